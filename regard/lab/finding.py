"""What an experiment found, as plain data that goes to JSON and back exactly: words in two languages, numbers, pictures.

Nothing here knows how a picture is drawn or a page is laid out (`charts`, `page`), nor how anything was found.
"""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from regard.settings import read_table, to_table

# held: the numbers say what the claim says, by a threshold that `outcome` states. did not hold: they say otherwise. no
# difference found: two things were compared and the spread over seeds is larger than what lies between them. measured:
# there was nothing to decide.
Verdict = Literal["held", "did not hold", "no difference found", "measured"]
Language = Literal["en", "zh"]


@dataclass(frozen=True)
class Words:
    en: str
    zh: str

    def __post_init__(self) -> None:
        assert self.en.strip() and self.zh.strip(), f"words in one language only: {self}"

    def text(self, language: Language) -> str:
        return self.en if language == "en" else self.zh


Cell = str | int | float | Words  # text that is the same in both languages, a number, or words


@dataclass(frozen=True)
class Table:
    title: Words
    columns: tuple[Words, ...]
    rows: tuple[tuple[Cell, ...], ...]

    def __post_init__(self) -> None:
        assert all(len(row) == len(self.columns) for row in self.rows), f"a row of {self.title.en!r} has not its columns"


@dataclass(frozen=True)
class Series:
    """Named numbers of a chart. `low` and `high`, where given, are the ends of an error bar or band around each number."""

    name: Words
    y: tuple[float, ...]
    x: tuple[float, ...] = ()  # of a line; bars stand in the groups' order
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        sizes = {len(numbers) for numbers in (self.x, self.low, self.high) if numbers}
        assert sizes <= {len(self.y)}, f"{self.name.en!r} has {len(self.y)} numbers, but {sizes} beside them"
        assert bool(self.low) == bool(self.high), f"{self.name.en!r} has one end of its spread only"
        assert all(map(math.isfinite, (*self.x, *self.y, *self.low, *self.high))), f"{self.name.en!r} is not finite"


@dataclass(frozen=True)
class LineChart:
    title: Words
    x_label: Words
    y_label: Words
    series: tuple[Series, ...]
    log_x: bool = False
    log_y: bool = False
    kind: Literal["lines"] = "lines"

    def __post_init__(self) -> None:
        assert all(len(one.x) == len(one.y) > 0 for one in self.series), f"a line of {self.title.en!r} needs x and y"
        for one in self.series:
            assert not self.log_x or min(one.x) > 0, f"{one.name.en!r} reaches 0 on a logarithmic axis"
            assert not self.log_y or min((*one.y, *one.low)) > 0, f"{one.name.en!r} reaches 0 on a logarithmic axis"


@dataclass(frozen=True)
class BarChart:
    title: Words
    y_label: Words
    groups: tuple[Words, ...]  # side by side along the axis
    series: tuple[Series, ...]  # side by side within each group
    kind: Literal["bars"] = "bars"

    def __post_init__(self) -> None:
        assert all(len(one.y) == len(self.groups) for one in self.series), f"a bar of {self.title.en!r} is missing"


@dataclass(frozen=True)
class HeatMap:
    title: Words
    x_label: Words
    y_label: Words
    rows: tuple[str, ...]  # labels, downwards; as many as rows of values, or none: then they are counted from 0
    columns: tuple[str, ...]
    values: tuple[tuple[float, ...], ...]
    kind: Literal["heat"] = "heat"

    def __post_init__(self) -> None:
        assert len({len(row) for row in self.values}) == 1, f"the rows of {self.title.en!r} differ in length"
        assert len(self.rows) in (0, len(self.values)) and len(self.columns) in (0, len(self.values[0])), self.title.en
        assert all(math.isfinite(value) for row in self.values for value in row), f"{self.title.en!r} is not finite"


Chart = LineChart | BarChart | HeatMap


@dataclass(frozen=True)
class Finding:
    name: str  # of the experiment, as `regard lab NAME` takes it
    claims: tuple[str, ...]  # their numbers, M17
    title: Words
    claim: Words  # what the notes say
    verdict: Verdict
    outcome: Words  # what was seen, in one to four sentences with numbers
    tables: tuple[Table, ...] = ()
    charts: tuple[Chart, ...] = ()
    seeds: tuple[int, ...] = ()  # none: nothing was drawn at random
    # Whoever runs an experiment fills these in (`lab.experiment.performed`).
    seconds: float = 0.0
    command: str = ""
    machine: str = ""
    date: str = ""


def to_json(findings: Sequence[Finding]) -> str:
    """Always a list, so that all files are read alike."""
    return json.dumps(to_table(_File(tuple(findings))), ensure_ascii=False, allow_nan=False, indent=1)


def from_json(text: str) -> tuple[Finding, ...]:
    """What `to_json` wrote. ValueError says what is wrong with anything else."""
    try:
        return read_table(_File, json.loads(text)).findings
    except json.JSONDecodeError as error:
        raise ValueError(f"this is no JSON: {error}") from error
    except AssertionError as error:
        raise ValueError(str(error)) from error


VERDICTS: dict[Verdict, Words] = {
    "held": Words("held", "成立"),
    "did not hold": Words("did not hold", "不成立"),
    "no difference found": Words("no difference found", "未见差异"),
    "measured": Words("measured", "已测量"),
}


@dataclass(frozen=True)
class _File:
    findings: tuple[Finding, ...]
