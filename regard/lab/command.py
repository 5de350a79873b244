"""Runs `regard lab`: lists the experiments, or runs some or all of them within a budget of time."""

import difflib
import shlex
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from rich.console import Console

from regard.errors import UserError
from regard.lab.experiment import Experiment, Setting, performed
from regard.lab.experiments import EXPERIMENTS
from regard.lab.finding import Finding, from_json, to_json
from regard.lab.page import Entry, page
from regard.lab.report import print_finding, print_list, print_summary
from regard.lab.words import words
from regard.machine.device import find_device
from regard.pages.charts import PageLanguage
from regard.run.checkpoint import write_atomically
from regard.settings import similar_path

STORED = Path("docs/lab")  # the default folder of stored findings


@dataclass(frozen=True)
class LabSettings:
    names: tuple[str, ...] = ()  # "all" is all of them; none: the list
    output: Path | None = None  # .html or .json
    minutes: float | None = None  # for all together; None: no limit
    language: PageLanguage = "en"
    stored: Path | None = None  # a folder of findings from elsewhere
    setting: Setting = field(default_factory=Setting)  # of every experiment, except for its seconds


def run(settings: LabSettings) -> None:
    console = Console(highlight=False, emoji=False, markup=False)
    if not settings.names:
        print_list(EXPERIMENTS, console, settings.language)
        return
    has_data = settings.setting.data is not None
    chosen = chosen_experiments(settings.names, with_corpora=has_data)
    everything = settings.names == ("all",)
    output = settings.output or (Path("lab.html") if everything else None)
    if output is not None and output.suffix not in (".html", ".json"):
        raise UserError(f"{output} must end in .html or .json, which selects the format")
    for one in chosen:
        if one.needs_corpus and not has_data:
            raise UserError(f"{one.name} trains on a corpus; give the folder in which the corpora are with --data")
    device = str(find_device(settings.setting.device))
    stored = [one for one in stored_findings(settings.stored) if everything or one.name in settings.names]
    if output is not None:
        output.parent.mkdir(parents=True, exist_ok=True)
    findings: list[Finding] = []
    try:
        perform(chosen, settings, device, findings)
    finally:  # keep what is done when it is interrupted, too
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


def chosen_experiments(names: Sequence[str], *, with_corpora: bool) -> tuple[Experiment, ...]:
    """Return the experiments with these names in the order of the page, each once."""
    known = [one.name for one in EXPERIMENTS]
    if "all" in names:
        if len(names) > 1:
            raise UserError("name experiments, or say all, not both")
        return tuple(one for one in EXPERIMENTS if with_corpora or not one.needs_corpus)
    for name in names:
        if name not in known:
            close = difflib.get_close_matches(name, [*known, "all"], n=1)
            advice = f"did you mean {close[0]}?" if close else "`regard lab` lists them"
            raise UserError(f"there is no experiment {name!r}; {advice}")
    return tuple(one for one in EXPERIMENTS if one.name in names)


def stored_findings(folder: Path | None) -> list[Finding]:
    if folder is None:
        folder = STORED
    elif not folder.is_dir():
        raise UserError(f"there is no folder {folder}{similar_path(folder)}")
    found: list[Finding] = []
    for path in sorted(folder.glob("*.json")):
        try:
            found += from_json(path.read_text(encoding="utf-8"))
        except (UserError, UnicodeDecodeError) as error:
            raise UserError(f"{path} holds no findings of the lab: {error}") from error
    return found


def perform(chosen: Sequence[Experiment], settings: LabSettings, device: str, findings: list[Finding]) -> None:
    """Run the quick experiments first, and append each finding to `findings`, so that an interruption loses none. Divide the
    remaining time among the waiting experiments in proportion to what each usually takes."""
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
        setting = replace(settings.setting, seconds=seconds, device=device)
        progress.print(f"{len(findings) + 1}/{len(chosen)} {experiment.name} …", end=" ", soft_wrap=True)
        try:
            finding = performed(experiment, setting, command_line(experiment, settings.setting))
        except BaseException:
            progress.print()  # end the line
            raise
        progress.print(
            f"{words('verdicts', finding.verdict).text(settings.language)}, {finding.seconds:.1f} s", soft_wrap=True
        )
        findings.append(finding)
        waiting.pop(0)


def command_line(experiment: Experiment, setting: Setting) -> str:
    """Return the command that repeats this experiment."""
    parts = ["regard", "lab", experiment.name]
    parts += ["--seed", str(setting.seed)] if setting.seed != 1 else []
    parts += ["--device", setting.device] if setting.device != "cpu" else []
    parts += ["--data", setting.data.name] if setting.data is not None and experiment.needs_corpus else []
    parts += ["--jobs", str(setting.jobs)] if setting.jobs != 1 else []
    parts += ["--steps", str(setting.steps)] if setting.steps else []
    return shlex.join(parts)


def in_order(findings: Sequence[Finding], chosen: Sequence[Experiment]) -> list[Finding]:
    """Sort findings by the order of the page."""
    places = [one.name for one in chosen]
    return sorted(findings, key=lambda one: places.index(one.name))


def write(
    output: Path,
    findings: Sequence[Finding],
    stored: Sequence[Finding],
    chosen: Sequence[Experiment],
    language: PageLanguage,
) -> None:
    """Write a page with all findings, or JSON with the new ones."""
    found = in_order(findings, chosen)
    if output.suffix == ".json":
        write_atomically(output, to_json(found).encode())
        return
    entries = [Entry(one) for one in found] + [Entry(one, stored=True) for one in stored]
    done = {one.name for one in found}
    not_run = [one.name for one in chosen if one.name not in done]
    write_atomically(output, page(entries, not_run, language).encode())
