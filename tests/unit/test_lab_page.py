"""Tests of the lab's page: one file, complete in both languages, that makes no requests."""

import math
import re
from html.parser import HTMLParser
from itertools import pairwise

import pytest

from regard.lab.finding import Finding
from regard.lab.page import Entry, page
from regard.pages.charts import (
    BarChart,
    HeatMap,
    LineChart,
    Series,
    Words,
    figure,
    log_ticks,
    number,
    shades,
    ticks,
    typeset,
)
from tests.unit.test_lab_finding import finding, words

VOID = {"meta", "link", "br", "input", "img"}


class Reader(HTMLParser):
    """Collect elements as (tag, attributes, text in it and below), and whether each that is opened is closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[tuple[str, dict[str, str | None], list[str]]] = []
        self.elements: list[tuple[str, dict[str, str | None], list[str]]] = []
        self.feed(text)
        assert not self.open, f"left open: {[tag for tag, _, _ in self.open]}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        element = (tag, dict(attrs), list[str]())
        self.elements.append(element)
        if tag not in VOID:
            self.open.append(element)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs), []))

    def handle_endtag(self, tag: str) -> None:
        assert self.open[-1][0] == tag, f"</{tag}> closes <{self.open[-1][0]}>"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        for _, _, texts in self.open:
            texts.append(data)


@pytest.fixture(scope="module")
def read() -> Reader:
    return Reader(page([Entry(finding()), Entry(finding(), stored=True)], ["later"], "en"))


def test_it_asks_nobody_for_anything() -> None:
    text = page([Entry(finding())], [], "en")
    assert "default-src 'none'" in text
    assert not re.search(r"https?://|//\w+\.\w+/|@import|url\(", text)
    for tag, attributes, _ in Reader(text).elements:
        for name in ("src", "href", "xlink:href", "action"):
            target = attributes.get(name)
            assert target is None or target.startswith(("#", "data:")), (tag, target)


def test_both_languages_say_everything(read: Reader) -> None:
    said: dict[str, list[str]] = {"en": [], "zh": []}
    for tag, attributes, texts in read.elements:
        if tag != "html" and (language := attributes.get("lang")):
            said[language].append("".join(texts).strip())
    assert len(said["en"]) == len(said["zh"]) > 30
    assert all(said["en"]) and all(said["zh"])
    assert not [text for text in said["en"] if re.search(r"[\u4e00-\u9fff]", text) and text != "中文"]
    one = finding()
    for wanted in (one.title, one.claim, one.outcome, one.tables[0].title, one.charts[0].title, one.charts[2].title):
        assert wanted.en in said["en"]
        assert wanted.zh in said["zh"]


@pytest.mark.parametrize(("language", "html"), [("en", "en"), ("zh", "zh-Hans")])
def test_it_opens_in_the_language_that_is_asked_for(language: str, html: str) -> None:
    [root] = [one for one in Reader(page([], [], language)).elements if one[0] == "html"]  # type: ignore[arg-type]
    assert root[1] == {"lang": html, "data-language": language}


def test_contents_lead_to_findings_with_their_verdicts(read: Reader) -> None:
    anchors = [attributes["id"] for tag, attributes, _ in read.elements if tag == "section"]
    links = [(attributes["href"] or "")[1:] for tag, attributes, _ in read.elements if tag == "a"]
    assert anchors == links == ["everything", "everything-2"]
    badges = ["".join(texts) for _, attributes, texts in read.elements if "badge" in (attributes.get("class") or "")]
    assert len(badges) == 5  # the count, and two each in contents and section
    assert set(badges) == {"≈ no difference found≈ 未发现差异"}
    everything = "".join(read.elements[0][2])
    assert "later" in everything
    assert "the time was over" in everything


def test_where_a_finding_comes_from_is_said_and_a_stored_one_is_marked(read: Reader) -> None:
    origins = ["".join(texts) for tag, _, texts in read.elements if tag == "dl"]
    for origin in origins:
        for fact in ("1, 2, 3", "1.25 s", "regard lab everything", "a machine", "2026-01-02 03:04 UTC"):
            assert fact in origin
    marks = ["".join(texts) for _, attributes, texts in read.elements if attributes.get("class") == "stored"]
    assert marks == ["stored result已存结果: a machine, 2026-01-02 03:04 UTC"]


def test_tables_are_tables_and_text_is_text(read: Reader) -> None:
    cells = ["".join(texts) for tag, _, texts in read.elements if tag == "td"]
    assert {"plain", "3", "0.3"} <= set(cells)
    heads = [attributes for tag, attributes, _ in read.elements if tag == "th"]
    assert all(attributes.get("scope") == "col" for attributes in heads)
    scripts = [texts for tag, _, texts in read.elements if tag == "script"]
    assert len(scripts) == 1  # the "</script>" of the claim is text


def numbers_in(svg: str) -> list[float]:
    """Return all coordinates of an SVG."""
    return [float(value) for value in re.findall(r'(?:\bx|\by|x1|x2|y1|y2|cx|cy)="([-\d.]+)"', svg)]


@pytest.mark.parametrize(
    "chart",
    [
        LineChart(words("point"), words("x"), words("y"), (Series(words("a"), y=(3.0,), x=(2.0,)),), log_x=True, log_y=True),
        LineChart(words("flat"), words("x"), words("y"), (Series(words("a"), y=(5.0, 5.0), x=(0.0, 1.0)),)),
        LineChart(words("far"), words("x"), words("y"), (Series(words("a"), y=(1e-300, 1e300), x=(1.0, 1e9)),), log_y=True),
        BarChart(words("down"), words("y"), (words("g"),), (Series(words("a"), y=(-1.0,), low=(-2.0,), high=(3.0,)),)),
        BarChart(words("nothing"), words("y"), (words("a long name of a group"),) * 9, (Series(words("a"), y=(0.0,) * 9),)),
        HeatMap(words("zero"), words("x"), words("y"), (), (), ((0.0,),)),
        HeatMap(words("wide"), words("x"), words("y"), (), (), ((1.0, -1.0) * 200,)),
    ],
    ids=lambda chart: chart.title.en,
)
def test_unusual_charts_are_drawn_within_their_frame(chart: LineChart | BarChart | HeatMap) -> None:
    drawn = figure(chart)
    Reader(drawn)
    assert "nan" not in drawn
    assert "inf" not in drawn
    [(width, height)] = re.findall(r'<svg viewBox="0 0 ([\d.]+) ([\d.]+)" role="img"', drawn)
    assert all(-1 <= value <= max(float(width), float(height)) + 1 for value in numbers_in(drawn))


def test_lines_are_where_their_numbers_are() -> None:
    """A straight line stays straight; on logarithmic axes a power becomes one."""
    x = (1.0, 10.0, 100.0)
    for chart in (
        LineChart(words("a"), words("x"), words("y"), (Series(words("a"), y=x, x=x),)),
        LineChart(
            words("a"), words("x"), words("y"), (Series(words("a"), y=(1.0, 100.0, 1e4), x=x),), log_x=True, log_y=True
        ),
    ):
        [path] = re.findall(r'<polyline points="([^"]+)"', figure(chart))
        points = [tuple(map(float, point.split(","))) for point in path.split()]
        slopes = [(points[n + 1][1] - points[n][1]) / (points[n + 1][0] - points[n][0]) for n in range(2)]
        assert slopes[0] == pytest.approx(slopes[1], rel=0.05)
        assert slopes[0] < 0  # upwards


@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (-3.0, 7.0), (0.02, 0.021), (0.0, 123456.0), (5.0, 5.5)])
def test_ticks_are_round_evenly_apart_and_within(low: float, high: float) -> None:
    found = ticks(low, high)
    assert 2 <= len(found) <= 7
    assert low - 1e-9 <= found[0] and found[-1] <= high + 1e-9
    steps = {f"{b - a:.6g}" for a, b in pairwise(found)}
    assert len(steps) == 1
    assert re.fullmatch(r"(1|2|2\.5|5)", f"{float(f'{float(steps.pop()):e}'.split('e')[0]):g}")


@pytest.mark.parametrize(("low", "high"), [(1.0, 1000.0), (3.0, 70.0), (1e-44, 1.0), (0.05, 0.4)])
def test_logarithmic_ticks_are_within_and_enough(low: float, high: float) -> None:
    found = log_ticks(low, high)
    assert 2 <= len(found) <= 8
    assert all(low * 0.99 <= tick <= high * 1.01 for tick in found)


def test_numbers_and_formulas_as_one_writes_them() -> None:
    given = (0.0, 1024.0, 0.5, 3.14159, -2.5, 1e-15, 6.7e9, 0.0007)
    assert [number(value) for value in given] == ["0", "1,024", "0.5", "3.142", "−2.5", "1e−15", "6.7e9", "0.0007"]
    assert typeset("d_k < n^2.27, e^z") == "d<sub>k</sub> &lt; n<sup>2.27</sup>, e<sup>z</sup>"
    assert typeset("d_model^-½") == "d<sub>model</sub><sup>−½</sup>"


def test_a_heat_maps_rectangles_cover_its_cells_once() -> None:
    values = [[1.0, 1.0, -0.5, 0.0], [0.2, 1.0, 1.0, 1.0]]
    covered: dict[tuple[int, int], int] = {}
    for level, path in shades(values, 0.0, 0.0, (10.0, 20.0), most=1.0).items():
        for x, y, width in re.findall(r"M([\d.]+) ([\d.]+)h([\d.]+)v20H", path):
            for column in range(int(float(x)) // 10, int(float(x) + float(width)) // 10):
                place = (int(float(y)) // 20, column)
                assert place not in covered
                covered[place] = level
    wanted = {(r, c): round(value * 24) for r, row in enumerate(values) for c, value in enumerate(row) if value}
    assert covered == wanted


def test_a_finding_without_pictures_has_a_section() -> None:
    plain = Finding("plain", ("002",), words("t"), words("c"), "held", words("o"))
    assert "note 002" in page([Entry(plain)], [], "en")
    assert Words("a", "a").text("zh") == "a"
    assert math.isfinite(plain.seconds)
