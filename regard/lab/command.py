"""`regard lab`: the list of experiments, some of them, or all within a budget of time."""

import difflib
import shlex
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from regard.checkpoint import write_atomically
from regard.lab.experiment import Experiment, Setting, performed
from regard.lab.experiments import EXPERIMENTS
from regard.lab.finding import VERDICTS, Finding, Language, from_json, to_json
from regard.lab.page import Entry, page
from regard.lab.report import print_finding, print_list, print_summary
from regard.settings import similar_path
from regard.train.device import find_device

STORED = Path("docs/lab")  # read where it exists and nothing else is said


@dataclass(frozen=True)
class LabSettings:
    names: tuple[str, ...] = ()  # "all" is all of them; none: the list
    output: Path | None = None  # .html or .json
    minutes: float | None = None  # for all together; None: each takes what it takes
    seed: int = 1
    device: str = "cpu"
    language: Language = "en"
    stored: Path | None = None  # a folder of findings from elsewhere
    data: Path | None = None  # the folder of the corpora, for experiments that train on one
    work: Path = Path("runs/lab")  # where these keep what they train
    jobs: int = 1
    steps: int = 0


def run(settings: LabSettings) -> None:
    console = Console(highlight=False, emoji=False, markup=False)
    if not settings.names:
        print_list(EXPERIMENTS, console, settings.language)
        return
    chosen = chosen_experiments(settings.names, with_corpora=settings.data is not None)
    everything = settings.names == ("all",)
    output = settings.output or (Path("lab.html") if everything else None)
    if output is not None and output.suffix not in (".html", ".json"):
        raise ValueError(f"{output} must end in .html or .json, which say what is to be written")
    for one in chosen:
        if one.needs_corpus and settings.data is None:
            raise ValueError(f"{one.name} trains on a corpus; give the folder in which the corpora are with --data")
    device = str(find_device(settings.device))
    stored = [one for one in stored_findings(settings.stored) if everything or one.name in settings.names]
    if output is not None:
        output.parent.mkdir(parents=True, exist_ok=True)
    findings: list[Finding] = []
    try:
        perform(chosen, settings, device, findings)
    finally:  # also when it is stopped: what is done is kept
        if output is not None and findings:
            write(output, findings, stored, chosen, settings.language)
            Console(stderr=True, highlight=False, markup=False).print(
                f"{output}: {len(findings)} of {len(chosen)} experiments", soft_wrap=True
            )
        if everything:
            print_summary(in_order(findings, chosen), console, settings.language)
        else:
            for finding in findings:
                print_finding(finding, console, settings.language)


def chosen_experiments(names: Sequence[str], *, with_corpora: bool = False) -> tuple[Experiment, ...]:
    """In the order of the page, each once."""
    known = [one.name for one in EXPERIMENTS]
    if "all" in names:
        if len(names) > 1:
            raise ValueError("name experiments, or say all, not both")
        return tuple(one for one in EXPERIMENTS if with_corpora or not one.needs_corpus)
    for name in names:
        if name not in known:
            close = difflib.get_close_matches(name, [*known, "all"], n=1)
            advice = f"did you mean {close[0]}?" if close else "`regard lab` lists them"
            raise ValueError(f"there is no experiment {name!r}; {advice}")
    return tuple(one for one in EXPERIMENTS if one.name in names)


def stored_findings(folder: Path | None) -> list[Finding]:
    if folder is None:
        folder = STORED
    elif not folder.is_dir():
        raise ValueError(f"there is no folder {folder}{similar_path(folder)}")
    found: list[Finding] = []
    for path in sorted(folder.glob("*.json")):
        try:
            found += from_json(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise ValueError(f"{path} holds no findings of the lab: {error}") from error
    return found


def perform(chosen: Sequence[Experiment], settings: LabSettings, device: str, findings: list[Finding]) -> None:
    """Those that are quick first. What is found is put into `findings` one by one, so that nothing is lost when this is
    stopped. Of the time that is left, each may use as large a share as it has of what all that wait take."""
    progress = Console(stderr=True, highlight=False, markup=False)
    end = None if settings.minutes is None else time.monotonic() + 60 * settings.minutes
    waiting = sorted(chosen, key=lambda one: one.seconds)
    while waiting:
        experiment = waiting[0]
        seconds = experiment.seconds
        if end is not None:
            left = end - time.monotonic()
            if left <= 0:
                progress.print(f"the time is over; not run: {', '.join(one.name for one in waiting)}", soft_wrap=True)
                return
            seconds = left * experiment.seconds / sum(one.seconds for one in waiting)
        setting = Setting(
            seed=settings.seed,
            seconds=seconds,
            device=device,
            data=settings.data,
            work=settings.work,
            jobs=settings.jobs,
            steps=settings.steps,
        )
        progress.print(f"{len(findings) + 1}/{len(chosen)} {experiment.name} …", end=" ", soft_wrap=True)
        try:
            finding = performed(experiment, setting, command_line(experiment, settings))
        except BaseException:
            progress.print()  # what is said next begins a line
            raise
        progress.print(f"{VERDICTS[finding.verdict].text(settings.language)}, {finding.seconds:.1f} s", soft_wrap=True)
        findings.append(finding)
        waiting.pop(0)


def command_line(experiment: Experiment, settings: LabSettings) -> str:
    """That does this one again."""
    words = ["regard", "lab", experiment.name]
    words += ["--seed", str(settings.seed)] if settings.seed != 1 else []
    words += ["--device", settings.device] if settings.device != "cpu" else []
    words += ["--data", settings.data.name] if settings.data is not None and experiment.needs_corpus else []
    words += ["--jobs", str(settings.jobs)] if settings.jobs != 1 else []
    words += ["--steps", str(settings.steps)] if settings.steps else []
    return shlex.join(words)


def in_order(findings: Sequence[Finding], chosen: Sequence[Experiment]) -> list[Finding]:
    """Of the page; they were made in another."""
    places = [one.name for one in chosen]
    return sorted(findings, key=lambda one: places.index(one.name))


def write(
    output: Path, findings: Sequence[Finding], stored: Sequence[Finding], chosen: Sequence[Experiment], language: Language
) -> None:
    """As JSON, only what was found now: what is stored has a file already."""
    found = in_order(findings, chosen)
    if output.suffix == ".json":
        write_atomically(output, to_json(found).encode())
        return
    entries = [Entry(one) for one in found] + [Entry(one, stored=True) for one in stored]
    done = {one.name for one in found}
    not_run = [one.name for one in chosen if one.name not in done]
    write_atomically(output, page(entries, not_run, language).encode())
