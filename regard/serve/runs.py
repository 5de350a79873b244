"""The served runs with their names, and the choice of a run for two languages."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, count
from pathlib import Path

from regard.run.checkpoint import run_and_step
from regard.run.metrics import read_lines
from regard.serve.languages import base, matching, plain
from regard.settings import Json
from regard.translate.translator import Translator, load

NAMELESS = ("src", "tgt")  # codes for a run without languages


@dataclass(frozen=True, eq=False)
class ServedRun:
    """A run, loaded, with its name and languages."""

    name: str
    folder: Path
    translator: Translator
    src_lang: str
    tgt_lang: str

    def training(self) -> Json:
        """Return the lines of its metrics and timing, read anew because it may be training now."""
        run, _ = run_and_step(self.folder)
        weights = run.read_weights()
        return {
            "metrics": read_lines(run.metrics_path),
            "timing": read_lines(run.timing_path),
            "steps": run.read_config().train.steps,
            "is_finished": bool(weights and weights.final),
        }


def load_runs(folders: Sequence[Path], device: str) -> tuple[ServedRun, ...]:
    """Load the runs in this order. The first of several for one pair of languages translates; all can be inspected."""
    found: list[ServedRun] = []
    for folder in folders:
        translator = load(folder, device=device)
        data = translator.config.data
        languages = (data.src_lang or NAMELESS[0], data.tgt_lang or NAMELESS[1])
        run, step = run_and_step(folder.absolute())
        name = run.folder.name if step is None else f"{run.folder.name}@{step}"
        names = {one.name for one in found}
        unused = next(one for one in chain([name], (f"{name}-{n}" for n in count(2))) if one not in names)
        found.append(ServedRun(unused, folder, translator, *languages))
    return tuple(found)


def run_for(runs: Sequence[ServedRun], source: str, target: str) -> ServedRun | None:
    """Return the first run with the best match of both codes; EN-US also matches en."""
    fitting = [run for run in runs if (base(run.src_lang), base(run.tgt_lang)) == (base(source), base(target))]
    exact = [(plain(run.src_lang) == plain(source)) + (plain(run.tgt_lang) == plain(target)) for run in fitting]
    return fitting[exact.index(max(exact))] if fitting else None


def sources_for(runs: Sequence[ServedRun], target: str) -> list[str]:
    """Return the languages that can be translated to this one."""
    targets = set(matching(target, (run.tgt_lang for run in runs)))
    return list(dict.fromkeys(run.src_lang for run in runs if run.tgt_lang in targets))
