"""Defines what an experiment returns: numbers, and the keys of the words that name them."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from regard.lab.finding import Verdict


@dataclass(frozen=True)
class Term:
    """The key of a phrase among the experiment's terms in `words.*.toml`, and the values of its placeholders."""

    key: str
    values: Mapping[str, Any] = field(default_factory=dict)


Label = str | Term  # a string is the same in both languages
Value = int | float | str | Term | Sequence[Any] | Mapping[str, Any]  # a sequence is written as a list
DataCell = int | float | str | Term
Numbers = Sequence[int | float]


@dataclass(frozen=True)
class TableData:
    rows: Sequence[Sequence[DataCell]]
    columns: Sequence[Label] = ()  # headings that follow those of the words


@dataclass(frozen=True)
class SeriesData:
    """Numbers of a chart's series. `low` and `high` are the ends of error bars."""

    name: Label
    y: Numbers
    x: Numbers = ()
    low: Numbers = ()
    high: Numbers = ()

    @classmethod
    def over_seeds(cls, name: Label, values: Sequence[Numbers], x: Numbers = ()) -> "SeriesData":
        """Return the mean of each group of values, with an error bar from its smallest to its largest value."""
        means = [statistics.fmean(group) for group in values]
        return cls(name, means, x, low=list(map(min, values)), high=list(map(max, values)))


@dataclass(frozen=True)
class LineData:
    series: Sequence[SeriesData]
    log_x: bool = False
    log_y: bool = False


@dataclass(frozen=True)
class BarData:
    groups: Sequence[Label]
    series: Sequence[SeriesData]


@dataclass(frozen=True)
class HeatData:
    values: Sequence[Numbers]
    rows: Sequence[str] = ()
    columns: Sequence[str] = ()


@dataclass(frozen=True)
class Result:
    """Result of an experiment. Tables and charts have the keys of their words in `words.*.toml`."""

    verdict: Verdict
    values: Mapping[str, Value] = field(default_factory=dict)  # of the placeholders in all texts but terms
    tables: Mapping[str, TableData] = field(default_factory=dict)
    charts: Mapping[str, LineData | BarData | HeatData] = field(default_factory=dict)
    seeds: tuple[int, ...] = ()  # empty: nothing was drawn at random
    machine: str = ""  # empty: this one
