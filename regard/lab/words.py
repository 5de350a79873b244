"""Fills the words of `words.en.toml` and `words.zh.toml`, which have the same keys, with the numbers of an experiment.

Placeholders are those of `str.format`: `{error:.1g}`, `{kept[rnn]:.0%}`. The items of a list are formatted one by one, and
separated by the language's commas.
"""

import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, reduce
from operator import getitem
from typing import Any

from regard.lab.finding import Finding, FindingTable
from regard.lab.result import BarData, HeatData, Label, LineData, Numbers, Result, SeriesData, TableData, Term, Value
from regard.pages.charts import BarChart, Chart, HeatMap, LineChart, PageLanguage, Series, Words
from regard.pages.template import read

LANGUAGES: tuple[PageLanguage, PageLanguage] = ("en", "zh")
COMMAS: dict[PageLanguage, str] = {"en": ", ", "zh": "、"}


@cache
def texts(language: PageLanguage) -> dict[str, Any]:
    """Read a file. An experiment inherits words from the one that it is `like`, and includes the shared terms."""
    found: dict[str, Any] = tomllib.loads(read("regard.lab", f"words.{language}.toml"))
    for name, own in found["experiments"].items():
        one = found["experiments"].get(own.get("like"), {}) | own
        found["experiments"][name] = one | {"terms": found["terms"] | one.get("terms", {})}
    return found


def words(*keys: str) -> Words:
    """Return a text without placeholders."""
    return Words(*(reduce(getitem, keys, texts(language)) for language in LANGUAGES))  # type: ignore[arg-type]


@dataclass(frozen=True)
class Listed:
    """Items that are formatted one by one, with commas between them."""

    items: Sequence[object]
    comma: str

    def __format__(self, spec: str) -> str:
        return self.comma.join(format(one, spec) for one in self.items) or "–"


class Speaker:
    """Words of an experiment in one language, filled with the numbers of its result."""

    def __init__(self, language: PageLanguage, name: str, values: Mapping[str, Value]) -> None:
        self.language, self.values = language, values
        self.texts: dict[str, Any] = texts(language)["experiments"][name]

    def text(self, *keys: str) -> str:
        return self._filled(reduce(getitem, keys, self.texts), self.values)  # type: ignore[arg-type]

    def columns(self, table: str) -> list[str]:
        return [self._filled(one, self.values) for one in self.texts["tables"][table]["columns"]]

    def label(self, label: Label) -> str:
        return label if isinstance(label, str) else self._filled(self.texts["terms"][label.key], label.values)

    def _filled(self, template: str, values: Mapping[str, Value]) -> str:
        return template.format_map({name: self._spoken(value) for name, value in values.items()})

    def _spoken(self, value: Value) -> object:
        if isinstance(value, Term):
            return self.label(value)
        if isinstance(value, Mapping):
            return {name: self._spoken(one) for name, one in value.items()}
        if isinstance(value, str | int | float):
            return value
        return Listed([self._spoken(one) for one in value], COMMAS[self.language])


def told(name: str, claims: tuple[str, ...], result: Result) -> Finding:
    """Put the result of an experiment into words."""
    speakers = [Speaker(language, name, result.values) for language in LANGUAGES]

    def both(say: Callable[[Speaker], str]) -> Words:
        return Words(*map(say, speakers))

    def text(*keys: str) -> Words:
        return both(lambda speaker: speaker.text(*keys))

    def label(one: Label) -> Words:
        return both(lambda speaker: speaker.label(one))

    def table(key: str, data: TableData) -> FindingTable:
        columns = (Words(*pair) for pair in zip(*(speaker.columns(key) for speaker in speakers), strict=True))
        rows = (tuple(label(cell) if isinstance(cell, Term) else cell for cell in row) for row in data.rows)
        return FindingTable(text("tables", key, "title"), (*columns, *map(label, data.columns)), tuple(rows))

    def series(all_data: Sequence[SeriesData]) -> tuple[Series, ...]:
        return tuple(Series(label(one.name), *map(_floats, (one.y, one.x, one.low, one.high))) for one in all_data)

    def chart(key: str, data: LineData | BarData | HeatData) -> Chart:
        title, y_label = text("charts", key, "title"), text("charts", key, "y")
        if isinstance(data, BarData):
            return BarChart(title, y_label, tuple(map(label, data.groups)), series(data.series))
        x_label = text("charts", key, "x")
        if isinstance(data, LineData):
            return LineChart(title, x_label, y_label, series(data.series), data.log_x, data.log_y)
        return HeatMap(title, x_label, y_label, tuple(data.rows), tuple(data.columns), tuple(map(_floats, data.values)))

    return Finding(
        name=name,
        claims=claims,
        title=text("title"),
        claim=text("claim"),
        verdict=result.verdict,
        outcome=text("outcome"),
        tables=tuple(table(key, data) for key, data in result.tables.items()),
        charts=tuple(chart(key, data) for key, data in result.charts.items()),
        seeds=result.seeds,
        machine=result.machine,
    )


def _floats(numbers: Numbers) -> tuple[float, ...]:
    return tuple(map(float, numbers))
