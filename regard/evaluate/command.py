"""`regard evaluate`: from what was typed to translations, measured, printed and written."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import Progress

from regard.checkpoint import Run, write_atomically
from regard.data.command import bar_on_terminals, language_of
from regard.evaluate.evaluation import Evaluation, EvaluationText, System, evaluate
from regard.evaluate.metrics import BleuForm, metrics_for
from regard.evaluate.page import page
from regard.evaluate.report import counted, print_report, to_json
from regard.settings import similar_path
from regard.text.corpus import read_lines
from regard.translate.search import BatchSize, Search
from regard.translate.translator import load

NO_LANGUAGES = ("ref", "hyp", "out", "sys", "mt")  # suffixes that look like codes


@dataclass(frozen=True, kw_only=True)
class EvaluationSettings:
    """What was asked for. A system is a run's folder or a file of translations."""

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

    @property
    def systems(self) -> tuple[str, ...]:
        return (self.system,) if self.versus is None else (self.system, self.versus)


def run(settings: EvaluationSettings) -> None:
    evaluation, folder = measure(settings)
    stdout = Console()
    print_report(evaluation, stdout)
    stdout.out(f"pictures, and the best, worst and all other sentences: {folder / 'evaluation.html'}", highlight=False)
    stdout.out(f"the same as data: {folder / 'evaluation.json'}", highlight=False)


def measure(settings: EvaluationSettings) -> tuple[Evaluation, Path]:
    """The evaluation, and the folder it was written into. What can be wrong with files is found before anything is
    translated."""
    names = system_names(settings.systems)
    text = read_text(settings)
    texts = {path: read_system(path, text, settings) for path in settings.systems if not Path(path).is_dir()}
    folder = output_folder(settings)
    with bar_on_terminals() as progress:
        systems = [
            System(name, texts[path] if path in texts else translated(path, text.sources or [], settings, progress))
            for path, name in zip(settings.systems, names, strict=True)
        ]
        evaluation = evaluate(text, systems, settings.num_resamples, progress)
    report = to_json(evaluation, asdict(settings))
    content = json.dumps(report, ensure_ascii=False, indent=1) + "\n"
    # The data last: where it is, all is.
    write_atomically(folder / "evaluation.html", page(evaluation, report).encode("utf-8", errors="replace"))
    write_atomically(folder / "evaluation.json", content.encode("utf-8", errors="backslashreplace"))
    return evaluation, folder


def system_names(paths: Sequence[str]) -> list[str]:
    """Their own names, without the folders they lie in unless only those tell two of them apart."""
    if len({Path(path).resolve() for path in paths}) < len(paths):
        raise ValueError(f"{paths[0]} cannot be compared with itself; give another --versus")
    names = [Path(path).name for path in paths]
    names = [Path(path).resolve().name if name in ("", "..") else name for path, name in zip(paths, names, strict=True)]
    return names if len(set(names)) == len(names) else list(paths)


def read_text(settings: EvaluationSettings) -> EvaluationText:
    """Sources and references, with as many lines each."""
    for path in settings.systems:
        if not Path(path).exists():
            raise ValueError(f"there is no run or file {path}{similar_path(path)}")
        if Path(path).is_dir() and settings.src is None:
            Run(Path(path)).read_config()  # a folder that is no run is the greater mistake
            raise ValueError(f"{path} is a run and needs text to translate; give it with --src")
    references = tuple(list(read_lines(path)) for path in settings.refs)
    if not references[0]:
        raise ValueError(f"no text in {settings.refs[0]}; give at least one line")
    for path, lines in zip(settings.refs, references, strict=True):
        _require_as_many(path, lines, settings.refs[0], references[0])
    sources = None if settings.src is None else list(read_lines(settings.src))
    if settings.src is not None and sources is not None:
        _require_as_many(settings.src, sources, settings.refs[0], references[0])
    src_lang, tgt_lang = languages(settings)
    form = BleuForm(settings.tokenize, settings.lowercase)
    metrics_for(tgt_lang, form)  # or its tokenizer is not installed
    return EvaluationText(references, sources, src_lang, tgt_lang, form)


def read_system(path: str, text: EvaluationText, settings: EvaluationSettings) -> list[str]:
    """A file of finished translations."""
    lines = list(read_lines(path))
    _require_as_many(path, lines, settings.refs[0], text.references[0])
    return lines


def _require_as_many(path: str, lines: Sequence[str], ref_path: str, references: Sequence[str]) -> None:
    """sacreBLEU would go on with what is there."""
    if len(lines) != len(references):
        raise ValueError(
            f"{path} has {counted(len(lines), 'line')} and {ref_path} has {len(references):,}; a line of one must belong to "
            "the same line of the other"
        )


def languages(settings: EvaluationSettings) -> tuple[str, str]:
    """Source and target: as told, else as the runs say, else as the files are called."""
    named = (_language_of(settings.src or ""), _language_of(settings.refs[0]))
    found = []
    for path in settings.systems:
        if Path(path).is_dir():
            data = Run(Path(path)).read_config().data
            found.append((data.src_lang, data.tgt_lang))
            if named[0] != named[1] and named == (data.tgt_lang, data.src_lang):
                raise ValueError(
                    f"{settings.src} looks like {named[0]}, but {path} translates from {data.src_lang}; are --src and --ref "
                    "swapped?"
                )
    if len({pair for pair in found if all(pair)}) > 1:
        pairs = " and ".join(f"{src} to {tgt}" for src, tgt in found)
        raise ValueError(f"the two runs translate from {pairs}; they cannot be compared")
    found.append(named)
    src_lang = next((src for src, _ in found if src), "")
    tgt_lang = next((tgt for _, tgt in found if tgt), "")
    return src_lang, settings.tgt_lang or tgt_lang


def _language_of(path: str) -> str:
    language = language_of(path)
    return "" if language in NO_LANGUAGES else language


def output_folder(settings: EvaluationSettings) -> Path:
    """Where the files go: a run's are kept with it."""
    if settings.output is None:
        return Path(settings.system) if Path(settings.system).is_dir() else Path()
    folder = Path(settings.output)
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder} is a file; -o needs a folder")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def translated(path: str, sources: Sequence[str], settings: EvaluationSettings, progress: Progress) -> list[str]:
    """By a run."""
    translator = load(path, device=settings.device)
    found = translator.translations(
        sources, Search(beam=settings.beam, alpha=settings.alpha), batch=BatchSize(tokens=settings.batch_tokens)
    )
    by_line = dict(progress.track(found, total=len(sources), description=f"{Path(path).name} translates"))
    return [by_line[line].text for line in range(len(sources))]
