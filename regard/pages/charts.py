"""Chart data and their drawing as inline SVG, for the lab's page and the pictures of docs/. Interactive pages use
`drawing.js`.

Every text is there in both languages; the page shows one of them. Colours are CSS variables of the page; series also differ
by dashes and marks.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Literal
from unicodedata import east_asian_width

WIDTH, HEIGHT = 520.0, 280.0
LEFT, RIGHT, ABOVE, BELOW = 64.0, 16.0, 26.0, 44.0
NUM_COLOURS = 6  # CSS variables --s0 … --s5 of the page
DASHES = ("", "7 4", "2 3", "9 3 2 3", "1 4", "12 4")
NUM_SHADES = 24
MOST_MARKS = 40  # lines with more points have no marks

PageLanguage = Literal["en", "zh"]


@dataclass(frozen=True)
class Words:
    en: str
    zh: str

    def __post_init__(self) -> None:
        assert self.en.strip() and self.zh.strip(), f"words in one language only: {self}"

    def text(self, language: PageLanguage) -> str:
        return self.en if language == "en" else self.zh


@dataclass(frozen=True)
class Series:
    """Named numbers of a chart. `low` and `high`, if given, are the ends of an error bar or band around each number."""

    name: Words
    y: tuple[float, ...]
    x: tuple[float, ...] = ()  # only for lines; bars stand in the order of the groups
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
    rows: tuple[str, ...]  # labels from top to bottom, one for each row of values; if empty, rows are numbered from 0
    columns: tuple[str, ...]
    values: tuple[tuple[float, ...], ...]
    kind: Literal["heat"] = "heat"

    def __post_init__(self) -> None:
        assert len({len(row) for row in self.values}) == 1, f"the rows of {self.title.en!r} differ in length"
        assert len(self.rows) in (0, len(self.values)) and len(self.columns) in (0, len(self.values[0])), self.title.en
        assert all(math.isfinite(value) for row in self.values for value in row), f"{self.title.en!r} is not finite"


Chart = LineChart | BarChart | HeatMap


def bilingual(words: Words, tag: str = "span", attributes: str = "") -> str:
    """Return an element for each language, or one element if both texts are equal."""
    space = f" {attributes}" if attributes else ""
    written = escape if tag == "text" else typeset  # SVG has no <sub>
    if words.en == words.zh:
        return f"<{tag}{space}>{written(words.en)}</{tag}>"
    return "".join(
        f'<{tag}{space} lang="{lang}">{written(text)}</{tag}>' for lang, text in (("en", words.en), ("zh", words.zh))
    )


def typeset(text: str) -> str:
    """Return HTML with subscripts and superscripts for d_k and n^2."""
    lowered = re.sub(r"(?<=\w)_([A-Za-z]+)", r"<sub>\1</sub>", escape(text))
    return re.sub(r"\^(-?[\d.]*[\d½]|[a-z]\b)", r"<sup>\1</sup>", lowered).replace("<sup>-", "<sup>−")


def number(value: float) -> str:
    """Format with four significant digits at most, without trailing zeros, and with commas between thousands."""
    if value == 0:
        return "0"
    if not 1e-3 <= abs(value) < 1e7:
        return re.sub(r"e([+-])0*", r"e\1", f"{value:.2g}").replace("e+", "e").replace("-", "−")
    digits = max(0, 3 - math.floor(math.log10(abs(value))))
    text = f"{value:,.{digits}f}"
    return (text.rstrip("0").rstrip(".") if "." in text else text).replace("-", "−")


def figure(chart: Chart) -> str:
    """Return the chart as SVG with its title and, for several series, a legend."""
    drawn = {LineChart: _lines, BarChart: _bars, HeatMap: _heat_map}[type(chart)](chart)  # type: ignore[operator]
    names = [one.name for one in chart.series] if not isinstance(chart, HeatMap) else []
    legend = _legend(names, isinstance(chart, LineChart)) if len(names) > 1 else ""
    return f"<figure><figcaption>{bilingual(chart.title)}</figcaption>{drawn}{legend}</figure>"


def ticks(low: float, high: float) -> list[float]:
    """Return about five round numbers between `low` and `high`."""
    extent = high - low or abs(high) or 1.0
    power = 10.0 ** math.floor(math.log10(extent / 4))
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if extent / (factor * power) <= 5)
    first = math.ceil(low / step - 1e-9)
    return [float(f"{step * n:.12g}") for n in range(first, math.floor(high / step + 1e-9) + 1)]


def log_ticks(low: float, high: float) -> list[float]:
    """Return at most seven powers of ten between `low` and `high`; if fewer than three, also 2 and 5 times them."""
    first, last = math.ceil(math.log10(low) - 1e-9), math.floor(math.log10(high) + 1e-9)
    every = -(-(last - first + 1) // 7) or 1
    found = [10.0**n for n in range(first, last + 1, every)]
    if len(found) >= 3:
        return found
    return [f * 10.0**n for n in range(first - 1, last + 1) for f in (1, 2, 5) if low * 0.999 <= f * 10.0**n <= high * 1.001]


class Axis:
    """An axis that maps numbers to coordinates between `start` and `end`."""

    def __init__(self, values: Sequence[float], start: float, end: float, *, log: bool, from_zero: bool = False) -> None:
        low, high = min(values), max(values)
        if from_zero and not log:
            low, high = min(0.0, low), max(0.0, high)
        if low == high:
            low, high = (low / 2, high * 2) if log else (low - 0.5, high + 0.5)
        elif log:  # places a tick near either end
            low, high = low / 1.15, high * 1.15
        self.log, self.low, self.high = log, low, high
        self.start, self.end = start, end

    def at(self, value: float) -> float:
        low, high, value = (math.log(one) if self.log else one for one in (self.low, self.high, value))
        return self.start + (self.end - self.start) * (value - low) / (high - low)

    def ticks(self) -> list[float]:
        return log_ticks(self.low, self.high) if self.log else ticks(self.low, self.high)


def _text(x: float, y: float, text: str, attributes: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" {attributes}>{escape(text)}</text>'


def _words(x: float, y: float, words: Words, attributes: str = "") -> str:
    return bilingual(words, "text", f'x="{x:.1f}" y="{y:.1f}" {attributes}'.strip())


def _svg(height: float, title: Words, content: Sequence[str], width: float = WIDTH) -> str:
    """Return the SVG with its title in both languages as its only label for screen readers."""
    label = f"{title.en} / {title.zh}" if title.en != title.zh else title.en
    head = f'<svg viewBox="0 0 {width:g} {height:g}" role="img" aria-label="{escape(label)}">'
    return head + "".join(content) + "</svg>"


def _legend(names: Sequence[Words], lines: bool) -> str:
    items = []
    for n, name in enumerate(names):
        colour = f"var(--s{n % NUM_COLOURS})"
        stroke = f'stroke="{colour}" stroke-width="2.5" stroke-dasharray="{DASHES[n % len(DASHES)]}"'
        if lines:
            sample = f'<line x1="0" x2="26" y1="6" y2="6" {stroke}/>{_mark(13.0, 6.0, n)}'
        else:
            sample = f'<rect x="7" y="0" width="12" height="12" rx="2" fill="{colour}"/>'
        picture = f'<svg viewBox="0 0 26 12" width="26" height="12" aria-hidden="true">{sample}</svg>'
        items.append(f"<li>{picture}{bilingual(name)}</li>")
    return f'<ul class="legend">{"".join(items)}</ul>'


def _mark(x: float, y: float, series: int) -> str:
    """Return a mark in the series' colour; four shapes repeat."""
    fill = f'fill="var(--s{series % NUM_COLOURS})"'
    if series % 4 == 0:
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" {fill}/>'
    if series % 4 == 1:
        return f'<rect x="{x - 2.8:.1f}" y="{y - 2.8:.1f}" width="5.6" height="5.6" {fill}/>'
    up = 1 if series % 4 == 2 else -1
    return f'<path d="M{x - 3.4:.1f} {y + 2.8 * up:.1f}h6.8l-3.4 {-6 * up}z" {fill}/>'


def _horizontal_grid(axis: Axis, label: Words, width: float = WIDTH) -> list[str]:
    found = [_words(2.0, 13.0, label, 'class="label"')]
    for tick in axis.ticks():
        y = axis.at(tick)
        found.append(f'<line class="grid" x1="{LEFT:g}" x2="{width - RIGHT:g}" y1="{y:.1f}" y2="{y:.1f}"/>')
        found.append(_text(LEFT - 7, y + 4, number(tick), 'text-anchor="end"'))
    return found


def _lines(chart: LineChart) -> str:
    x_axis = Axis([x for one in chart.series for x in one.x], LEFT, WIDTH - RIGHT, log=chart.log_x)
    values = [y for one in chart.series for y in (*one.y, *one.low, *one.high)]
    # A line far from 0 would look flat on an axis that includes 0.
    near_zero = min(values) <= 0.5 * max(values)
    y_axis = Axis(values, HEIGHT - BELOW, ABOVE, log=chart.log_y, from_zero=near_zero)
    parts = _horizontal_grid(y_axis, chart.y_label)
    for tick in x_axis.ticks():
        x = x_axis.at(tick)
        parts.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{HEIGHT - BELOW:g}" y2="{HEIGHT - BELOW + 4:g}"/>')
        parts.append(_text(x, HEIGHT - BELOW + 17, number(tick), 'text-anchor="middle"'))
    parts.append(_words((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 7, chart.x_label, 'class="label" text-anchor="middle"'))
    for n, one in enumerate(chart.series):
        parts += _line(one, n, x_axis, y_axis)
    return _svg(HEIGHT, chart.title, parts)


def _line(one: Series, n: int, x_axis: Axis, y_axis: Axis) -> list[str]:
    colour = f"var(--s{n % NUM_COLOURS})"
    points = [(x_axis.at(x), y_axis.at(y)) for x, y in zip(one.x, one.y, strict=True)]
    parts = []
    if one.low:
        highs = [(x_axis.at(x), y_axis.at(y)) for x, y in zip(one.x, one.high, strict=True)]
        lows = [(x_axis.at(x), y_axis.at(y)) for x, y in zip(one.x, one.low, strict=True)]
        parts.append(f'<polygon points="{_path([*highs, *reversed(lows)])}" fill="{colour}" opacity="0.18"/>')
        if len(points) <= MOST_MARKS:
            parts += [
                f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{high:.1f}" y2="{low:.1f}" stroke="{colour}" stroke-width="1.2"/>'
                for (x, high), (_, low) in zip(highs, lows, strict=True)
            ]
    stroke = f'stroke="{colour}" stroke-width="2" stroke-dasharray="{DASHES[n % len(DASHES)]}"'
    parts.append(f'<polyline points="{_path(points)}" fill="none" {stroke} stroke-linejoin="round"/>')
    if len(points) <= MOST_MARKS:
        parts += [_mark(x, y, n) for x, y in points]
    return parts


def _path(points: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)


def _width(text: str) -> int:
    """Return the width in letters; a Chinese character is as wide as two."""
    return sum(2 if east_asian_width(letter) in "WF" else 1 for letter in text)


def _bars(chart: BarChart) -> str:
    """Draw bars, with the names of groups rotated if they do not fit side by side."""
    slot = (WIDTH - LEFT - RIGHT) / len(chart.groups)
    longest = max(_width(text) for group in chart.groups for text in (group.en, group.zh))
    turned = longest * 6.2 > slot
    below = BELOW + (longest * 3.2 if turned else 0.0) - 14
    height = HEIGHT + below - BELOW
    values = [value for one in chart.series for value in (*one.y, *one.low, *one.high)]
    y_axis = Axis(values, height - below, ABOVE, log=False, from_zero=True)
    parts = _horizontal_grid(y_axis, chart.y_label)
    bar = min(60.0, 0.76 * slot / len(chart.series))
    for g, group in enumerate(chart.groups):
        middle = LEFT + slot * (g + 0.5)
        for n, one in enumerate(chart.series):
            x, y, zero = middle + bar * (n - len(chart.series) / 2), y_axis.at(one.y[g]), y_axis.at(0.0)
            box = f'x="{x + 0.5:.1f}" y="{min(y, zero):.1f}" width="{bar - 1:.1f}" height="{abs(zero - y):.1f}"'
            parts.append(f'<rect {box} rx="1.5" fill="var(--s{n % NUM_COLOURS})"/>')
            if one.low:
                ends = f'y1="{y_axis.at(one.low[g]):.1f}" y2="{y_axis.at(one.high[g]):.1f}"'
                parts.append(f'<line class="whisker" x1="{x + bar / 2:.1f}" x2="{x + bar / 2:.1f}" {ends}/>')
        at = (
            f'text-anchor="end" transform="rotate(-40 {middle:.1f} {height - below + 14:.1f})"'
            if turned
            else 'text-anchor="middle"'
        )
        parts.append(_words(middle, height - below + (14 if turned else 17), group, at))
    return _svg(height, chart.title, parts)


def shades(values: Sequence[Sequence[float]], x: float, y: float, cell: tuple[float, float], most: float) -> dict[int, str]:
    """Return a path of rectangles for each shade, from −NUM_SHADES for −most to NUM_SHADES. Adjacent cells of one shade in a
    row are merged; shade 0 is left out."""
    width, height = cell
    found: dict[int, list[str]] = {}
    for row, of_row in enumerate(values):
        levels = [round(max(-1.0, min(1.0, value / most)) * NUM_SHADES) for value in of_row]
        start = 0
        for end in range(1, len(levels) + 1):
            if end == len(levels) or levels[end] != levels[start]:
                at = f"{x + start * width:g}"
                rectangle = f"M{at} {y + row * height:g}h{(end - start) * width:g}v{height:g}H{at}z"
                found.setdefault(levels[start], []).append(rectangle)
                start = end
    return {level: "".join(parts) for level, parts in sorted(found.items()) if level}


def _heat_map(chart: HeatMap) -> str:
    """Draw positive values in blue and negative ones in orange, with stronger colours for larger magnitudes."""
    num_rows, num_columns = len(chart.values), len(chart.values[0])
    room = WIDTH - LEFT - 74
    side = min(room / num_columns, 44.0)
    cell = (round(side, 2), round(min(side, 300 / num_rows), 2) if num_columns > 2 * num_rows else round(side, 2))
    width, height = cell[0] * num_columns, cell[1] * num_rows
    most = max(abs(value) for row in chart.values for value in row) or 1.0
    lowest = min(value for row in chart.values for value in row)
    parts = [
        f'<path fill="var(--{"plus" if level > 0 else "minus"})" fill-opacity="{abs(level) / NUM_SHADES:.3g}" d="{path}"/>'
        for level, path in shades(chart.values, LEFT, ABOVE, cell, most).items()
    ]
    parts.append(f'<rect class="frame" x="{LEFT:g}" y="{ABOVE:g}" width="{width:g}" height="{height:g}"/>')
    parts.append(_words(2.0, 13.0, chart.y_label, 'class="label"'))
    parts.append(_words(LEFT + width / 2, ABOVE + height + 36, chart.x_label, 'class="label" text-anchor="middle"'))
    for row in _shown(num_rows, cell[1], 14.0):
        label = chart.rows[row] if chart.rows else str(row)
        parts.append(_text(LEFT - 7, ABOVE + (row + 0.5) * cell[1] + 4, label, 'text-anchor="end"'))
    for column in _shown(num_columns, cell[0], 30.0):
        label = chart.columns[column] if chart.columns else str(column)
        parts.append(_text(LEFT + (column + 0.5) * cell[0], ABOVE + height + 17, label, 'text-anchor="middle"'))
    parts += _values(chart, cell, most) if min(cell) >= 30 else []
    parts += _scale(LEFT + width + 18, ABOVE, min(height, 140.0), most, lowest < 0)
    return _svg(ABOVE + height + BELOW, chart.title, parts)


def _shown(count: int, size: float, least: float) -> range:
    """Return the indices of the labels that fit: each, every second, fifth, tenth …"""
    every = next(n for n in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000) if n * size >= least)
    return range(0, count, every)


def _values(chart: HeatMap, cell: tuple[float, float], most: float) -> list[str]:
    found = []
    for row, of_row in enumerate(chart.values):
        for column, value in enumerate(of_row):
            kind = ' class="on"' if abs(value) > 0.55 * most else ' class="value"'
            x, y = LEFT + (column + 0.5) * cell[0], ABOVE + (row + 0.5) * cell[1] + 4
            found.append(_text(x, y, _three_digits(value), f'text-anchor="middle"{kind}'))
    return found


def _three_digits(value: float) -> str:
    """Format with three digits; exactly 0 is "0"."""
    digits = 2 if abs(value) < 9.995 else 1 if abs(value) < 99.95 else 0
    return f"{value:.{digits}f}".replace("-", "−") if value else "0"


def _scale(x: float, y: float, height: float, most: float, signed: bool) -> list[str]:
    """Draw the colour scale."""
    steps = 12
    ends = (most, -most) if signed else (most, 0.0)
    parts = []
    for n in range(steps):
        share = 1 - (n + 0.5) / steps * (2 if signed else 1)
        box = f'x="{x:g}" y="{y + n * height / steps:.1f}" width="12" height="{height / steps + 0.3:.1f}"'
        parts.append(f'<rect {box} fill="var(--{"plus" if share > 0 else "minus"})" fill-opacity="{abs(share):.2f}"/>')
    parts.append(f'<rect class="frame" x="{x:g}" y="{y:g}" width="12" height="{height:g}"/>')
    for share, end in ((0.0, ends[0]), (1.0, ends[1])):
        parts.append(_text(x + 18, y + share * height + 4, f"{end:.3g}".replace("-", "−")))
    return parts
