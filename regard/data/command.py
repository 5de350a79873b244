"""The command `regard prepare`: flags to a configuration, progress, and padding."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from regard.config import CorpusConfig, DataConfig
from regard.data.batching import PairLengths, epoch_batches, epoch_pairs, padding_share
from regard.data.prepare import prepare
from regard.data.report import DataReport, SideTexts, pair_weights, print_report
from regard.data.store import PairStore
from regard.errors import UserError
from regard.text.corpus import TWO_SIDED, content_suffix
from regard.text.tokenizer import Tokenizer


def corpora_of(src: list[str], tgt: list[str], weights: list[float]) -> tuple[CorpusConfig, ...]:
    """Return the training corpora, from flags that may be repeated."""
    if tgt and len(tgt) != len(src):
        raise UserError(f"--src was given {len(src)} times and --tgt {len(tgt)} times; give one --tgt for each --src")
    if weights and len(weights) != len(src):
        raise UserError(f"--weight was given {len(weights)} times for {len(src)} corpora; give one for each, or none")
    targets: list[str | None] = [*tgt] or [None] * len(src)
    return tuple(
        CorpusConfig(src=one, tgt=other, weight=weight)
        for one, other, weight in zip(src, targets, weights or [1.0] * len(src), strict=True)
    )


def held_out_corpus(src: str, tgt: str | None, src_lang: str, tgt_lang: str) -> CorpusConfig:
    """Return a corpus to measure on, whose files' suffixes must not contradict the training text's."""
    for path, language in ((src, src_lang), (tgt or "", tgt_lang)):
        if language and language_of(path) not in ("", language):
            raise UserError(f"{path} looks like {language_of(path)}, but {language} belongs there; are two files swapped?")
    return CorpusConfig(src=src, tgt=tgt)


def language_of(path: str) -> str:
    """Return `de` for train.de.xz; nothing for names that do not tell."""
    suffix = content_suffix(path)
    letters = suffix.removeprefix(".").split("-")[0]
    tells = suffix not in (*TWO_SIDED, ".src", ".tgt", ".txt") and letters.isalpha() and len(letters) in (2, 3)
    return suffix.removeprefix(".") if tells else ""


def bar_on_terminals() -> Progress:
    """Show a progress bar on stderr until the work is done; show nothing if stderr is not a terminal."""
    stderr = Console(stderr=True)
    text = TextColumn("{task.description}", markup=False)
    columns = (SpinnerColumn(), text, BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, console=stderr, transient=True, disable=not stderr.is_terminal)


def prepare_with_progress(config: DataConfig, folder: Path, tokenizer: Tokenizer | None = None) -> DataReport:
    """Prepare text with a bar on stderr, then print the report."""
    with bar_on_terminals() as progress:

        def track(items: Iterable[SideTexts], what: str) -> Iterator[SideTexts]:
            task = progress.add_task(what, total=None)
            for count, item in enumerate(items, start=1):
                yield item
                if count % 1000 == 0:
                    progress.update(task, completed=count)

        report = prepare(config, folder, track, tokenizer)
    print_report(report, Console())
    return report


def run(config: DataConfig, folder: Path) -> None:
    report, console = prepare_with_progress(config, folder), Console()
    store = PairStore.open(folder, "train")
    lengths = PairLengths.of(store.src.lengths, store.tgt.lengths)
    pairs = epoch_pairs(pair_weights(report.corpora), seed=1, epoch=0)
    for budget in (2048, 4096, 25600):
        batches = epoch_batches(lengths, pairs, batch_tokens=budget, seed=1, epoch=0)
        share = padding_share(lengths, batches)
        console.print(f"{len(batches):,} batches of up to {budget:,} tokens a side, {share:.1%} padding")
    Console(stderr=True).out(
        f"prepared {report.splits['train'].kept:,} pairs in {folder}; the whole report is {folder / 'data.json'}",
        highlight=False,
    )
