"""From files of plain text to a folder that a language model learns from: `regard.data.prepare` for one side.

A line is a text. Texts stay in their order, however often one occurs: what stands before a text is what it is read after.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table

from regard.config import CleaningConfig, DataConfig
from regard.data.prepare import (
    CHUNK_PAIRS,
    Sample,
    Track,
    chunked,
    find_unknown,
    key_of,
    near_key_of,
    parallel_map,
    prepared_beside,
    vocab_size_for,
    write_report,
)
from regard.data.report import SideReport
from regard.data.store import TextWriter
from regard.text.cleaning import Reason, normalise, reason_to_drop_text
from regard.text.corpus import read_lines
from regard.text.tokenizer import Subwords, Tokenizer, learn_subwords

CHARACTERS_A_PAIR = 100  # roughly, on one side: what `vocab_size_for` takes a corpus's size in


class CleanText(NamedTuple):
    """A normalised text; why it is dropped, if it is; and what finds it again, to the letter and nearly."""

    text: str
    reason: Reason | None
    exact: int
    near: int


@dataclass
class TextSplit:
    """A split on its way from files to a store."""

    read: int = 0
    kept: int = 0
    dropped: dict[Reason, int] = field(default_factory=dict)
    text: SideReport = field(default_factory=SideReport)

    def keeps(self, clean: CleanText) -> bool:
        """Counts a text."""
        self.read += 1
        if clean.reason is None:
            self.kept += 1
        else:
            self.dropped[clean.reason] = self.dropped.get(clean.reason, 0) + 1
        return clean.reason is None


@dataclass
class TextReport:
    splits: dict[str, TextSplit]
    leakage: dict[str, int]  # of the validation texts: how many there are, and stand in the training text exactly and nearly
    corpora: list[dict[str, Any]]  # of the training split, in order: file, texts kept, weight
    vocab_size: int


def clean_texts(lines: list[str], rules: CleaningConfig) -> list[CleanText]:
    """Pure, and of picklable arguments: it runs in other processes."""
    texts = [normalise(line) for line in lines]
    return [CleanText(text, reason_to_drop_text(text, rules), key_of(text), near_key_of(text)) for text in texts]


def prepare_texts(
    config: DataConfig, folder: Path, track: Track[str] = lambda items, _: items, tokenizer: Tokenizer | None = None
) -> TextReport:
    """Reads, cleans, learns and encodes everything into `folder`, which appears only when it is whole. With a `tokenizer` of
    another run, no subwords are learnt."""
    with prepared_beside(folder) as workshop:
        report = _prepare_into(workshop, config, track, tokenizer)
        write_report(workshop, asdict(report), config)
    return report


def _prepare_into(folder: Path, config: DataConfig, track: Track[str], tokenizer: Tokenizer | None) -> TextReport:
    valid = TextSplit()
    rules = CleaningConfig(drop_control_characters=False)  # what a model is measured on is not chosen by filters
    held_out = [clean for clean in clean_texts(list(read_lines(config.valid.text)), rules) if valid.keeps(clean)]
    _require_text(valid.kept, config.valid.text)
    exact, near = {clean.exact for clean in held_out}, {clean.near for clean in held_out}
    seen_exact, seen_near = set[int](), set[int]()
    train, sample = TextSplit(), Sample[str](config.sample_pairs, config.seed)
    kept_by_corpus, num_characters = [], 0
    spool = folder / "spool"
    with spool.open("wb") as file:
        for corpus in config.train:
            before = train.kept
            lines = track(read_lines(corpus.text), f"reading {Path(corpus.text).name}")
            for chunk in parallel_map(clean_texts, chunked(lines, CHUNK_PAIRS), config.cleaning):
                for clean in filter(train.keeps, chunk):
                    seen_exact |= exact & {clean.exact}
                    seen_near |= near & {clean.near}
                    sample.offer(clean.text)
                    num_characters += len(clean.text)
                    file.write(clean.text.encode("utf-8") + b"\n")
            kept_by_corpus.append(train.kept - before)
            _require_text(kept_by_corpus[-1], corpus.text)
    if tokenizer is None:
        size = config.vocab_size or vocab_size_for(num_characters // CHARACTERS_A_PAIR)
        subwords = Subwords(learn_subwords(sample.items, size))
        tokenizer = Tokenizer(subwords, subwords)
    tokenizer.save(folder)
    _encode(folder, "train", _spooled(spool), train, tokenizer.tgt)
    _encode(folder, "valid", (clean.text for clean in held_out), valid, tokenizer.tgt)
    spool.unlink()
    return TextReport(
        splits={"train": train, "valid": valid},
        leakage={
            "texts": len(held_out),
            "exact": sum(clean.exact in seen_exact for clean in held_out),
            "near": sum(clean.near in seen_near for clean in held_out),
        },
        corpora=[
            {"text": corpus.text, "weight": corpus.weight, "pairs": count}
            for corpus, count in zip(config.train, kept_by_corpus, strict=True)
        ],
        vocab_size=len(tokenizer.tgt),
    )


def _require_text(num_kept: int, path: str) -> None:
    if num_kept == 0:
        raise ValueError(f"no text in {path} to learn from or to validate on; give at least one line")


def _spooled(path: Path) -> Iterator[str]:
    with path.open(encoding="utf-8", newline="\n") as file:
        for line in file:
            yield line[:-1]


def _encode(folder: Path, name: str, texts: Iterable[str], report: TextSplit, subwords: Subwords) -> None:
    """Ids and text of a split into its store, lengths and characters into its report."""
    characters: Counter[str] = Counter()
    with TextWriter(folder, name, vocab_size=len(subwords)) as writer:
        for chunk in chunked(texts, 4 * CHUNK_PAIRS):
            ids = subwords.encode(chunk)
            writer.append(chunk, ids)
            report.text.add(chunk, [len(row) for row in ids])
            characters.update("".join(chunk))
    find_unknown(report.text, characters, subwords)


def print_text_report(report: TextReport, console: Console) -> None:
    """The report as a person reads it: a table, then what is worth a second look."""
    table = Table()
    table.add_column("split", no_wrap=True)
    for heading in ("read", "kept", "tokens", "a word", "longest", "bytes"):
        table.add_column(heading, justify="right", no_wrap=True)
    for name, split in report.splits.items():
        text = split.text
        numbers = (split.read, split.kept, text.tokens)
        table.add_row(
            name,
            *(f"{number:,}" for number in numbers),
            f"{text.tokens_per_word:.2f}",
            f"{text.longest:,}",
            f"{text.num_unknown:,}",
        )
    console.print(table)
    console.print(f"{report.vocab_size:,} subwords")
    for name, split in report.splits.items():
        for reason, count in split.dropped.items():
            console.print(f"{name}: dropped {count:,}: {reason}", markup=False, highlight=False)
    if report.leakage["near"]:
        console.print(
            f"leakage: of {report.leakage['texts']:,} validation texts, {report.leakage['exact']:,} stand in the training "
            f"text to the letter and {report.leakage['near']:,} but for case and punctuation",
            markup=False,
        )
