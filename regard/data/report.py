"""A report on a corpus: what was kept, what was dropped and why, lengths, unknown characters, leakage."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from regard.data.store import Side
from regard.errors import UserError
from regard.settings import Json, read_json
from regard.text.cleaning import Reason

NUM_EXAMPLES = 3
BUCKET = 10  # tokens to a bar of a histogram
NUM_BUCKETS = 26
SideTexts = tuple[str, ...]  # one text for each side: two are a pair, one is plain text


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
        """Add texts, and the number of tokens of each."""
        self.characters += sum(map(len, texts))
        self.words += sum(len(text.split()) for text in texts)
        for length in lengths:
            self.histogram[min(length // BUCKET, NUM_BUCKETS - 1)] += 1
        self.tokens += sum(lengths)
        self.longest = max([self.longest, *lengths])


@dataclass
class SplitReport:
    """The report on a split while it is read from files and written to a store."""

    read: int = 0
    kept: int = 0
    dropped: dict[Reason, int] = field(default_factory=dict)
    examples: dict[Reason, list[SideTexts]] = field(default_factory=dict)
    sides: dict[Side, SideReport] = field(default_factory=dict)

    @classmethod
    def of(cls, sides: Sequence[Side], count: int = 0) -> "SplitReport":
        return cls(read=count, kept=count, sides={side: SideReport() for side in sides})

    @property
    def reasons(self) -> list[tuple[Reason, int]]:
        """The reasons for which texts were dropped, the most frequent first."""
        return sorted(self.dropped.items(), key=lambda entry: -entry[1])

    def drop(self, reason: Reason, texts: SideTexts) -> None:
        self.dropped[reason] = self.dropped.get(reason, 0) + 1
        examples = self.examples.setdefault(reason, [])
        if len(examples) < NUM_EXAMPLES:
            examples.append(tuple(text if len(text) <= 80 else text[:79] + "…" for text in texts))

    def to_json(self) -> Json:
        data = asdict(self)
        sides = data.pop("sides")
        if "text" in self.sides:
            del data["examples"]
        else:
            for side, report in self.sides.items():
                sides[side]["tokens_per_word"] = round(report.tokens_per_word, 4)
        data.update(sides)
        return data


@dataclass
class Leakage:
    """The numbers of texts of a held-out split that also stand in the training text."""

    count: int  # of the pairs or texts of the split
    exact: int  # all sides, to the letter
    near: list[int]  # each side, apart from case, punctuation and spaces
    examples: list[SideTexts] = field(default_factory=list)

    def to_json(self) -> Json:
        if len(self.near) == 1:
            return {"texts": self.count, "exact": self.exact, "near": self.near[0]}
        near_src, near_tgt = self.near
        near = {"near_src": near_src, "near_tgt": near_tgt}
        return {"pairs": self.count, "exact": self.exact, **near, "examples": self.examples}


@dataclass
class DataReport:
    splits: dict[str, SplitReport]
    leakage: dict[str, Leakage]
    corpora: list[Json]  # of the training split, in order: files, pairs or texts kept, weight
    src_lang: str
    tgt_lang: str
    src_vocab_size: int
    tgt_vocab_size: int
    shared_vocab: bool
    kept_apart: str = ""  # a sentence on what was kept apart, if no validation text was given

    @property
    def is_plain(self) -> bool:
        return "text" in self.splits["train"].sides

    def to_json(self) -> Json:
        data = vars(self) | {"splits": {name: split.to_json() for name, split in self.splits.items()}}
        if not self.is_plain:
            return data | {"leakage": {name: leakage.to_json() for name, leakage in self.leakage.items()}}
        leakage = self.leakage.get("valid") or Leakage(self.splits["valid"].kept, 0, [0])
        return {
            "splits": data["splits"],
            "leakage": leakage.to_json(),
            "corpora": self.corpora,
            "vocab_size": self.tgt_vocab_size,
            "kept_apart": self.kept_apart,
        }


def read_report(folder: Path) -> Json:
    """Read the report of a prepared folder."""
    path = folder / "data.json"
    if not path.exists():
        raise UserError(f"{folder} was not made by `regard prepare`: it has no data.json")
    try:
        report: Json = read_json(path)
        report["config"], report["corpora"], report["splits"]
    except (TypeError, KeyError) as error:
        raise UserError(f"{path} is damaged: {error!r}; prepare the text again") from error
    return report


def pair_weights(corpora: Sequence[Json]) -> npt.NDArray[np.float64]:
    """Return how often each pair or text of the training split is seen in an epoch."""
    return np.repeat([float(corpus["weight"]) for corpus in corpora], [corpus["pairs"] for corpus in corpora])


def print_report(report: DataReport, console: Console) -> None:
    """Print the report: a table, then dropped texts and leakage."""
    languages = [] if report.is_plain else [escape(report.src_lang or "source"), escape(report.tgt_lang or "target")]
    table = Table()
    table.add_column("split", no_wrap=True)
    for heading in ("read", "kept", *(["side"] if languages else []), "tokens", "a word", "longest", "bytes"):
        table.add_column(heading, justify="right", no_wrap=True)
    for name, split in report.splits.items():
        for n, side in enumerate(split.sides.values()):
            counts = ("", "", "") if n else (name, f"{split.read:,}", f"{split.kept:,}")
            numbers = (f"{side.tokens:,}", f"{side.tokens_per_word:.2f}", f"{side.longest:,}", f"{side.num_unknown:,}")
            table.add_row(*counts, *languages[n : n + 1], *numbers)
    console.print(table)
    sizes = "" if report.shared_vocab else f"{report.src_vocab_size:,} source and "
    kind = "" if report.is_plain else "shared " if report.shared_vocab else "target "
    console.print(f"{sizes}{report.tgt_vocab_size:,} {kind}subwords")
    for name, split in report.splits.items():
        for reason, count in split.reasons:
            example = " | ".join(map(repr, split.examples[reason][0]))
            console.print(f"{name}: dropped {count:,}: {reason}, such as {example}", markup=False, highlight=False)
    if report.kept_apart:
        console.print(report.kept_apart, markup=False, highlight=False)
    for name, leakage in report.leakage.items():
        if not any(leakage.near):
            continue
        if report.is_plain:
            found = (
                f"{leakage.count:,} validation texts, {leakage.exact:,} stand in the training text to the letter and "
                f"{leakage.near[0]:,}"
            )
        else:
            found = (
                f"{leakage.count:,} {name} pairs, {leakage.exact:,} stand in the training text to the letter; "
                f"{leakage.near[0]:,} sources and {leakage.near[1]:,} targets"
            )
        console.print(f"leakage: of {found} apart from case and punctuation", markup=False)
