"""`regard evaluate`: read files, translate, measure, print and write."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import Progress

from regard.data.command import bar_on_terminals, language_of
from regard.errors import UserError
from regard.evaluate.evaluation import Evaluation, EvaluationText, System, evaluate
from regard.evaluate.metrics import BleuForm, metrics_for
from regard.evaluate.page import page
from regard.evaluate.report import counted, print_report, to_json
from regard.run.checkpoint import Run, write_atomically
from regard.settings import similar_path
from regard.text.corpus import read_lines
from regard.translate.search import BatchSize, Search
from regard.translate.translator import load

FEWEST_RESAMPLES, MOST_RESAMPLES = 40, 1_000_000  # 40: so that 2.5 % of them are one
NO_LANGUAGES = ("ref", "hyp", "out", "sys", "mt")  # suffixes that look like codes


@dataclass(frozen=True, kw_only=True)
class EvaluationSettings:
    """The settings of an evaluation. A system is a run's folder or a file of translations."""

    system: str
    refs: tuple[str, ...]
    src: str | None = None
    versus: str | None = None
    output: str | None = None
    tgt_lang: str | None = None
    tokenize: str = ""  # sacreBLEU's name for how BLEU finds words; "": by the target language
    lowercase: bool = False  # BLEU without regard to case
    num_resamples: int = 1000
    beam: int = 4
    alpha: float = 0.6
    batch_tokens: int = 0  # 0: as many as suit the device
    device: str = "auto"

    def __post_init__(self) -> None:
        if not self.refs:
            raise UserError("there is nothing to compare with; give a file of references")
        if not FEWEST_RESAMPLES <= self.num_resamples <= MOST_RESAMPLES:
            raise UserError(f"{self.num_resamples} resamples; give from {FEWEST_RESAMPLES} to {MOST_RESAMPLES:,}")

    @property
    def systems(self) -> tuple[str, ...]:
        return (self.system,) if self.versus is None else (self.system, self.versus)


def run(settings: EvaluationSettings) -> None:
    """Evaluate, print the report and write it as a page and as JSON."""
    evaluation, folder = measure_and_write(settings)
    stdout = Console()
    print_report(evaluation, stdout)
    stdout.out(f"pictures, and the best, worst and all other sentences: {folder / 'evaluation.html'}", highlight=False)
    stdout.out(f"the same as data: {folder / 'evaluation.json'}", highlight=False)


def measure(settings: EvaluationSettings) -> Evaluation:
    """Evaluate without writing anything."""
    return _measured(settings, *_read(settings))


def measure_and_write(settings: EvaluationSettings) -> tuple[Evaluation, Path]:
    """Evaluate, and return the folder that the evaluation was written into as well."""
    text, finished = _read(settings)
    folder = output_folder(settings)
    evaluation = _measured(settings, text, finished)
    report = to_json(evaluation, asdict(settings))
    content = json.dumps(report, ensure_ascii=False, indent=1) + "\n"
    # The data last: if it is there, the page is, too.
    write_atomically(folder / "evaluation.html", page(evaluation, report).encode("utf-8", errors="replace"))
    write_atomically(folder / "evaluation.json", content.encode("utf-8", errors="backslashreplace"))
    return evaluation, folder


def _read(settings: EvaluationSettings) -> tuple[EvaluationText, dict[str, list[str]]]:
    """Read the text and the finished translations, so that mistakes in files are found before anything is translated."""
    system_names(settings.systems)
    for path in settings.systems:
        if not Path(path).exists():
            raise UserError(f"there is no run or file {path}{similar_path(path)}")
        if Path(path).is_dir() and settings.src is None:
            Run(Path(path)).read_config()  # a folder that is no run is the greater mistake
            raise UserError(f"{path} is a run and needs text to translate; give it with --src")
    read = [*settings.refs, *([] if settings.src is None else [settings.src])]
    files = {path: list(read_lines(path)) for path in read}
    finished = {path: list(read_lines(path)) for path in settings.systems if not Path(path).is_dir()}
    first = settings.refs[0]
    if not files[first]:
        raise UserError(f"no text in {first}; give at least one line")
    for path, lines in [*files.items(), *finished.items()]:
        if len(lines) != len(files[first]):
            raise UserError(
                f"{path} has {counted(len(lines), 'line')} and {first} has {len(files[first]):,}; a line of one must belong "
                "to the same line of the other"
            )
    src_lang, tgt_lang = languages(settings)
    form = BleuForm(settings.tokenize, settings.lowercase)
    metrics_for(tgt_lang, form)  # or its tokenizer is not installed
    sources = None if settings.src is None else files[settings.src]
    return EvaluationText(tuple(files[path] for path in settings.refs), sources, src_lang, tgt_lang, form), finished


def _measured(settings: EvaluationSettings, text: EvaluationText, finished: dict[str, list[str]]) -> Evaluation:
    with bar_on_terminals() as progress:
        systems = [
            System(name, finished[path] if path in finished else _translated(path, text.sources or [], settings, progress))
            for path, name in zip(settings.systems, system_names(settings.systems), strict=True)
        ]
        return evaluate(text, systems, settings.num_resamples, progress)


def system_names(paths: Sequence[str]) -> list[str]:
    """Return the systems' names, without their folders unless only those tell two of them apart."""
    if len({Path(path).resolve() for path in paths}) < len(paths):
        raise UserError(f"{paths[0]} cannot be compared with itself; give another --versus")
    names = [Path(path).name for path in paths]
    names = [Path(path).resolve().name if name in ("", "..") else name for path, name in zip(paths, names, strict=True)]
    return names if len(set(names)) == len(names) else list(paths)


def languages(settings: EvaluationSettings) -> tuple[str, str]:
    """Return the source and target language: as given, else as the runs say, else by the names of the files."""
    suffixes = [language_of(path or "") for path in (settings.src, settings.refs[0])]
    named = ("" if suffixes[0] in NO_LANGUAGES else suffixes[0], "" if suffixes[1] in NO_LANGUAGES else suffixes[1])
    found = []
    for path in settings.systems:
        if Path(path).is_dir():
            data = Run(Path(path)).read_config().data
            found.append((data.src_lang, data.tgt_lang))
            if named[0] != named[1] and named == (data.tgt_lang, data.src_lang):
                raise UserError(
                    f"{settings.src} looks like {named[0]}, but {path} translates from {data.src_lang}; are --src and --ref "
                    "swapped?"
                )
    if len({pair for pair in found if all(pair)}) > 1:
        pairs = " and ".join(f"{src} to {tgt}" for src, tgt in found)
        raise UserError(f"the two runs translate from {pairs}; they cannot be compared")
    found.append(named)
    src_lang = next((src for src, _ in found if src), "")
    tgt_lang = next((tgt for _, tgt in found if tgt), "")
    return src_lang, settings.tgt_lang or tgt_lang


def output_folder(settings: EvaluationSettings) -> Path:
    """Return the folder to write into, by default the run's."""
    if settings.output is None:
        return Path(settings.system) if Path(settings.system).is_dir() else Path()
    folder = Path(settings.output)
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder} is a file; -o needs a folder")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _translated(path: str, sources: Sequence[str], settings: EvaluationSettings, progress: Progress) -> list[str]:
    search, batch = Search(beam=settings.beam, alpha=settings.alpha), BatchSize(tokens=settings.batch_tokens)
    found = load(path, device=settings.device).translations(sources, search, batch=batch)
    by_line = dict(progress.track(found, total=len(sources), description=f"{Path(path).name} translates"))
    return [by_line[line].text for line in range(len(sources))]
