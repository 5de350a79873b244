"""Write `training.html`: the curves of a run in one file that needs no network."""

from regard.config import RunConfig
from regard.pages.template import filled
from regard.run.checkpoint import Run, write_atomically
from regard.run.metrics import read_lines

MOST_POINTS = 2000  # of a curve; a screen has no more


def write_page(run: Run, config: RunConfig) -> None:
    metrics = read_lines(run.metrics_path)
    is_language = config.model.kind == "language"
    data = {
        "name": run.folder.resolve().name,
        "languages": [] if is_language else [config.data.src_lang or "source", config.data.tgt_lang or "target"],
        "steps": config.train.steps,
        "training": thinned([line for line in metrics if "loss" in line]),
        "validation": thinned([line for line in metrics if "valid_nll" in line]),
        "timing": thinned([line for line in read_lines(run.timing_path) if "tokens_per_second" in line]),
    }
    page = filled("regard.train", "training.html", data)
    write_atomically(run.folder / "training.html", page.encode("utf-8", errors="replace"))


def thinned(lines: list[dict[str, object]]) -> list[dict[str, object]]:
    """Keep at most MOST_POINTS lines, evenly spaced and always the last."""
    every = -(-len(lines) // MOST_POINTS) or 1
    return [line for number, line in enumerate(lines, start=1) if number % every == 0 or number == len(lines)]
