"""`regard prepare`: from what was typed to a prepared folder, with progress."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from regard.config import CorpusConfig, DataConfig
from regard.data.batching import PairLengths, epoch_batches, epoch_pairs, padding_share
from regard.data.prepare import T, Track, prepare
from regard.data.report import DataReport, pair_weights, print_report
from regard.data.store import PairStore
from regard.data.texts import TextReport, prepare_texts, print_text_report
from regard.text.corpus import TWO_SIDED, content_suffix
from regard.text.tokenizer import Tokenizer


def corpora_of(src: list[str], tgt: list[str], weights: list[float]) -> tuple[CorpusConfig, ...]:
    """The training corpora, from flags that may be repeated."""
    if tgt and len(tgt) != len(src):
        raise ValueError(f"--src was given {len(src)} times and --tgt {len(tgt)} times; give one --tgt for each --src")
    if weights and len(weights) != len(src):
        raise ValueError(f"--weight was given {len(weights)} times for {len(src)} corpora; give one for each, or none")
    targets: list[str | None] = [*tgt] or [None] * len(src)
    return tuple(
        CorpusConfig(src=one, tgt=other, weight=weight)
        for one, other, weight in zip(src, targets, weights or [1.0] * len(src), strict=True)
    )


def held_out_corpus(src: str, tgt: str | None, src_lang: str, tgt_lang: str) -> CorpusConfig:
    """A corpus to measure on. Its files' suffixes must not contradict the training text's."""
    for path, language in ((src, src_lang), (tgt or "", tgt_lang)):
        if language and language_of(path) not in ("", language):
            raise ValueError(f"{path} looks like {language_of(path)}, but {language} belongs there; are two files swapped?")
    return CorpusConfig(src=src, tgt=tgt)


def language_of(path: str) -> str:
    """`de` for train.de.xz; nothing for names that do not tell."""
    suffix = content_suffix(path)
    letters = suffix.removeprefix(".").split("-")[0]
    tells = suffix not in (*TWO_SIDED, ".src", ".tgt", ".txt") and letters.isalpha() and len(letters) in (2, 3)
    return suffix.removeprefix(".") if tells else ""


def print_padding(folder: Path, report: DataReport, console: Console) -> None:
    """What training would fill its batches up with, in a first epoch."""
    store = PairStore.open(folder, "train")
    lengths = PairLengths.of(store.src.lengths, store.tgt.lengths)
    pairs = epoch_pairs(pair_weights(report.corpora), seed=1, epoch=0)
    for budget in (2048, 4096, 25600):
        batches = epoch_batches(lengths, pairs, batch_tokens=budget, seed=1, epoch=0)
        share = padding_share(lengths, batches)
        console.print(f"{len(batches):,} batches of up to {budget:,} tokens a side, {share:.1%} padding")


def bar_on_terminals() -> Progress:
    """On stderr, gone when the work is done; nothing where nobody looks."""
    stderr = Console(stderr=True)
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    return Progress(*columns, console=stderr, transient=True, disable=not stderr.is_terminal)


def prepare_with_progress(config: DataConfig, folder: Path, tokenizer: Tokenizer | None = None) -> DataReport:
    """Shows a bar on stderr while it works, and then the report."""
    with bar_on_terminals() as progress:
        report = prepare(config, folder, _shown_in(progress), tokenizer)
    print_report(report, Console())
    return report


def prepare_texts_with_progress(config: DataConfig, folder: Path, tokenizer: Tokenizer | None = None) -> TextReport:
    """The same for plain text."""
    with bar_on_terminals() as progress:
        report = prepare_texts(config, folder, _shown_in(progress), tokenizer)
    print_text_report(report, Console())
    return report


def _shown_in(progress: Progress) -> Track[T]:
    def track(items: Iterable[T], what: str) -> Iterator[T]:
        task = progress.add_task(what, total=None)
        for count, item in enumerate(items, start=1):
            yield item
            if count % 1000 == 0:
                progress.update(task, completed=count)

    return track


def run(config: DataConfig, folder: Path) -> None:
    report = prepare_with_progress(config, folder)
    print_padding(folder, report, Console())
    Console(stderr=True).out(
        f"prepared {report.splits['train'].kept:,} pairs in {folder}; the whole report is {folder / 'data.json'}",
        highlight=False,
    )
