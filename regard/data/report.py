"""What a corpus is like: what was kept and dropped and why, lengths, unknown characters, leakage. Plain data."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from regard.text.cleaning import Reason
from regard.text.corpus import Pair

NUM_EXAMPLES = 3
BUCKET = 10  # tokens to a bar of a histogram
NUM_BUCKETS = 26


@dataclass
class SideReport:
    """One side of a split, as it was kept."""

    characters: int = 0
    words: int = 0
    tokens: int = 0
    longest: int = 0  # in tokens
    histogram: list[int] = field(default_factory=lambda: [0] * NUM_BUCKETS)  # texts of 0-9, 10-19, … tokens
    unknown: dict[str, int] = field(default_factory=dict)  # characters spelled in bytes, the most frequent ones
    num_unknown: int = 0  # how often any of those occur

    @property
    def tokens_per_word(self) -> float:
        return self.tokens / max(1, self.words)

    def add(self, texts: Sequence[str], lengths: Sequence[int]) -> None:
        """Texts, and how many tokens each has."""
        self.characters += sum(map(len, texts))
        self.words += sum(len(text.split()) for text in texts)
        for length in lengths:
            self.histogram[min(length // BUCKET, NUM_BUCKETS - 1)] += 1
        self.tokens += sum(lengths)
        self.longest = max([self.longest, *lengths])


@dataclass
class SplitReport:
    """A split on its way from files to a store."""

    read: int = 0
    kept: int = 0
    dropped: dict[Reason, int] = field(default_factory=dict)
    examples: dict[Reason, list[Pair]] = field(default_factory=dict)
    src: SideReport = field(default_factory=SideReport)
    tgt: SideReport = field(default_factory=SideReport)

    @property
    def reasons(self) -> list[tuple[Reason, int]]:
        """Why pairs were dropped, the most frequent reason first."""
        return sorted(self.dropped.items(), key=lambda entry: -entry[1])

    @property
    def sides(self) -> tuple[SideReport, SideReport]:
        return self.src, self.tgt

    def drop(self, reason: Reason, pair: Pair) -> None:
        self.dropped[reason] = self.dropped.get(reason, 0) + 1
        examples = self.examples.setdefault(reason, [])
        if len(examples) < NUM_EXAMPLES:
            examples.append(Pair(_shortened(pair.src), _shortened(pair.tgt)))


def _shortened(text: str, length: int = 80) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"


@dataclass
class Leakage:
    """How much of a held-out split stands in the training text."""

    pairs: int  # of the held-out split
    exact: int = 0  # both sides, to the letter
    near_src: int = 0  # the source, but for case, punctuation and spaces
    near_tgt: int = 0
    examples: list[Pair] = field(default_factory=list)


@dataclass
class DataReport:
    splits: dict[str, SplitReport]
    leakage: dict[str, Leakage]
    corpora: list[dict[str, Any]]  # of the training split, in order: files, pairs kept, weight
    src_lang: str
    tgt_lang: str
    src_vocab_size: int
    tgt_vocab_size: int
    shared_vocab: bool

    def to_json(self) -> dict[str, Any]:
        data = asdict(self)
        for name, split in self.splits.items():
            for side, report in (("src", split.src), ("tgt", split.tgt)):
                data["splits"][name][side]["tokens_per_word"] = round(report.tokens_per_word, 4)
        return data


def read_report(folder: Path) -> dict[str, Any]:
    """The report of a prepared folder, which is what makes it one."""
    path = folder / "data.json"
    if not path.exists():
        raise ValueError(f"{folder} is no folder that `regard prepare` made: it has no data.json")
    report: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return report


def pair_weights(corpora: Sequence[dict[str, Any]]) -> npt.NDArray[np.float64]:
    """How often each pair of the training split is seen in an epoch."""
    return np.repeat([float(corpus["weight"]) for corpus in corpora], [corpus["pairs"] for corpus in corpora])


def print_report(report: DataReport, console: Console) -> None:
    """The report as a person reads it: a table, then what is worth a second look."""
    table = Table()
    table.add_column("split", no_wrap=True)
    for heading in ("read", "kept", "side", "tokens", "a word", "longest", "bytes"):
        table.add_column(heading, justify="right", no_wrap=True)
    languages = (escape(report.src_lang or "source"), escape(report.tgt_lang or "target"))
    for name, split in report.splits.items():
        for n, (language, side) in enumerate(zip(languages, split.sides, strict=True)):
            pairs = (name, f"{split.read:,}", f"{split.kept:,}") if n == 0 else ("", "", "")
            numbers = (f"{side.tokens:,}", f"{side.tokens_per_word:.2f}", f"{side.longest:,}", f"{side.num_unknown:,}")
            table.add_row(*pairs, language, *numbers)
    console.print(table)
    sizes = "" if report.shared_vocab else f"{report.src_vocab_size:,} source and "
    console.print(f"{sizes}{report.tgt_vocab_size:,} {'shared' if report.shared_vocab else 'target'} subwords")
    for name, split in report.splits.items():
        for reason, count in split.reasons:
            example = split.examples[reason][0]
            told = f"{name}: dropped {count:,}: {reason}, such as {example.src!r} | {example.tgt!r}"
            console.print(told, markup=False, highlight=False)
    for split_name, leakage in report.leakage.items():
        if leakage.exact or leakage.near_src or leakage.near_tgt:
            console.print(
                f"leakage: of {leakage.pairs:,} {split_name} pairs, {leakage.exact:,} stand in the training text to the "
                f"letter; {leakage.near_src:,} sources and {leakage.near_tgt:,} targets but for case and punctuation",
                markup=False,
            )
