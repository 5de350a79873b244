"""Runs `regard demo`: trains and evaluates a translator on the sentences that come with regard."""

import shlex
import shutil
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table as PrintedTable

from regard.errors import UserError
from regard.evaluate.command import EvaluationSettings, measure_and_write
from regard.run.checkpoint import Run
from regard.run.metrics import read_lines
from regard.settings import Table, merged, read_json, read_toml
from regard.train import command as training
from regard.train.progress import duration

HERE = Path(__file__).parent
NUM_EXAMPLES = 8


@dataclass(frozen=True, kw_only=True)
class DemoSettings:
    """Settings from the command line; None means the recipe's."""

    folder: Path
    minutes: float | None = None
    seed: int | None = None
    device: str | None = None


def text(split: str, language: str) -> str:
    """Return the file of a part of the sentences that come with regard."""
    return str(HERE / "text" / f"{split}.{language}.xz")


def run(settings: DemoSettings) -> None:
    began = time.perf_counter()
    console = Console(highlight=False)
    folder = settings.folder
    is_new = not Run(folder).config_path.exists()
    if is_new:
        _say(
            console,
            "German → English, from 40,000 sentence pairs of Tatoeba (CC BY 2.0 FR, tatoeba.org), none of it downloaded",
        )
    else:
        _require_own(folder)
    if is_new or not _is_finished(folder, settings):
        training.run(_recipe(settings, is_new=is_new), folder)
    report = _own_report(folder)
    if report is None:
        _say(console, "\ntranslating the 1,000 test sentences, which were kept apart, with beam 4")
        measure_and_write(
            EvaluationSettings(
                system=str(folder), src=text("test", "de"), refs=(text("test", "en"),), device=settings.device or "auto"
            )
        )
        report = _own_report(folder)
        assert report is not None
    _show(report, console)
    _say(
        console,
        f"trained in {duration(_training_seconds(folder))}; this command took {duration(time.perf_counter() - began)}\n",
    )
    _say_what_next(folder, console)


def _require_own(folder: Path) -> None:
    """Refuse a run of other text, whose evaluation would be overwritten."""
    corpora = Run(folder).read_config().data.train
    if not all(_is_own(corpus.src, "train") for corpus in corpora):
        raise UserError(f"{folder} is a run of other text; give another folder with -o")


def _recipe(settings: DemoSettings, *, is_new: bool) -> Table:
    """Return the recipe for a new run, or only the given settings for an existing one."""
    asked = {"minutes": settings.minutes, "seed": settings.seed, "device": settings.device}
    asked_for: Table = {"train": {name: value for name, value in asked.items() if value is not None}}
    if not is_new:
        return asked_for
    corpora: Table = {
        "train": [{"src": text("train", "de"), "tgt": text("train", "en")}],
        "valid": {"src": text("valid", "de"), "tgt": text("valid", "en")},
        "test": [{"src": text("test", "de"), "tgt": text("test", "en")}],
    }
    return merged(read_toml(HERE / "recipe.toml"), {"data": corpora}, asked_for)


def _is_finished(folder: Path, settings: DemoSettings) -> bool:
    if settings.minutes is not None or settings.seed is not None:
        return False  # training reports settings that contradict the run
    weights = Run(folder).read_weights()
    return weights is not None and weights.final


def _own_report(folder: Path) -> Table | None:
    """Return the evaluation of the current weights on the demo's test sentences, if there is one."""
    path, weights = folder / "evaluation.json", Run(folder).model_path
    if not path.exists() or path.stat().st_mtime < weights.stat().st_mtime:
        return None
    try:
        report: Table = read_json(path)
        is_own = _is_own(report["settings"]["src"], "test")
    except (UserError, LookupError, TypeError):  # damaged; it is written again
        return None
    return report if is_own else None


def _is_own(path: str | None, split: str) -> bool:
    """Return whether a file is one of the demo's, in any installation of regard."""
    return Path(path or "").parts[-4:] == Path(text(split, "de")).parts[-4:]


def _training_seconds(folder: Path) -> float:
    """Return the time of updates, validations and checkpoints over all sessions."""
    lines = read_lines(Run(folder).timing_path)
    return sum(float(value) for line in lines for name, value in line.items() if name.endswith("seconds"))


def _show(report: Table, console: Console) -> None:
    table = PrintedTable(title=f"the first {NUM_EXAMPLES} of the test sentences", title_justify="left")
    for heading in ("German", "regard", "a person"):
        table.add_column(heading, ratio=1)
    for sentence in report["sentences"][:NUM_EXAMPLES]:
        table.add_row(*map(escape, (sentence["source"], sentence["translations"][0], sentence["references"][0])))
    console.print()
    console.print(table)
    scores = {score["metric"]: score for score in report["systems"][0]["scores"]}
    bleu = scores["BLEU"]
    _say(
        console,
        f"BLEU {bleu['score']:.1f} (95 % interval {bleu['interval']['low']:.1f}–{bleu['interval']['high']:.1f}), "
        f"chrF {scores['chrF2']['score']:.1f}, on {report['num_sentences']:,} sentences",
    )


def _say_what_next(folder: Path, console: Console) -> None:
    _say(console, "now type")
    regard, run = _own_name(), shlex.quote(str(folder))
    for command, what in (
        (f'echo "Wo ist der Bahnhof?" | {regard} translate {run}', "translate"),
        (f"{regard} info {run}", "what it is"),
        (f"{regard} serve {run}", "the page that looks inside"),
        (f"{regard} train --help", "train your own"),
    ):
        _say(console, f"  {command:60}  # {what}")
    _say(console, f"or look at {folder / 'training.html'} and {folder / 'evaluation.html'}")


def _own_name() -> str:
    """Return the name by which this command was called."""
    is_module = Path(sys.argv[0]).name == "__main__.py"
    called = Path(sys.executable if is_module else sys.argv[0])
    found = shutil.which(called.name)
    name = called.name if found is not None and Path(found).samefile(called) else str(called)
    return f"{name} -m regard" if is_module else name


def _say(console: Console, sentence: str) -> None:
    console.print(sentence, markup=False, soft_wrap=True)
