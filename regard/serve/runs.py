"""The runs that are served, each under a name, and which of them translates between two languages."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from regard.checkpoint import run_and_step
from regard.inspection.look import Json
from regard.serve.languages import base, matching, plain
from regard.train.metrics import read_lines
from regard.translate.translator import Translator, load

NAMELESS = ("src", "tgt")  # codes for a run that was not told its languages


@dataclass(frozen=True, eq=False)
class ServedRun:
    name: str
    folder: Path
    translator: Translator
    src_lang: str
    tgt_lang: str

    def training(self) -> Json:
        """How it came to be, or how far it is: read anew each time, for it may be training now."""
        run, _ = run_and_step(self.folder)
        weights = run.read_weights()
        return {
            "metrics": read_lines(run.metrics_path),
            "timing": read_lines(run.timing_path),
            "steps": run.read_config().train.steps,
            "is_finished": bool(weights and weights.final),
        }


def load_runs(folders: Sequence[Path], device: str) -> tuple[ServedRun, ...]:
    """In the order given; of several runs for one pair of languages, the first translates, and all can be looked into."""
    found: list[ServedRun] = []
    for folder in folders:
        translator = load(folder, device=device)
        data = translator.config.data
        languages = (data.src_lang or NAMELESS[0], data.tgt_lang or NAMELESS[1])
        run, step = run_and_step(folder.absolute())
        name = run.folder.name if step is None else f"{run.folder.name}@{step}"
        found.append(ServedRun(_unused(name, found), folder, translator, *languages))
    return tuple(found)


def _unused(name: str, runs: Sequence[ServedRun]) -> str:
    names = {run.name for run in runs}
    number, found = 1, name
    while found in names:
        number += 1
        found = f"{name}-{number}"
    return found


def run_for(runs: Sequence[ServedRun], source: str, target: str) -> ServedRun | None:
    """The first that translates between these languages; EN-US is en where there is no better."""
    from_there = [run for run in runs if base(run.src_lang) == base(source)]
    fitting = [run for run in from_there if base(run.tgt_lang) == base(target)]
    asked = (plain(source), plain(target))
    return max(
        fitting,
        key=lambda run: sum(plain(one) == code for one, code in zip((run.src_lang, run.tgt_lang), asked, strict=True)),
        default=None,
    )


def sources_for(runs: Sequence[ServedRun], target: str) -> list[str]:
    """Languages that can be translated into this one."""
    targets = set(matching(target, (run.tgt_lang for run in runs)))
    return list(dict.fromkeys(run.src_lang for run in runs if run.tgt_lang in targets))
