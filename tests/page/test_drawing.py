"""Tests of the page's drawings: the picture as a file, axes, blocks of the figure, the tree, and readable colours."""

import json
import re
import xml.etree.ElementTree as ET
from itertools import pairwise
from typing import Any

import pytest
from playwright.sync_api import Route

from tests.page.browser import VIEWS, Studio, needs_chromium
from tests.page.conftest import TEXT, Truth

pytestmark = [pytest.mark.slow, needs_chromium]
SVG = "{http://www.w3.org/2000/svg}"
ENDING = "Most people eat rice every night."


def texts(root: ET.Element) -> list[ET.Element]:
    return list(root.iter(f"{SVG}text"))


def words(root: ET.Element) -> list[str]:
    return ["".join(node.itertext()) for node in texts(root)]


@pytest.mark.parametrize("lang", ["en", "zh"])
@pytest.mark.parametrize("view", VIEWS)
def test_a_picture_is_for_every_program_and_holds_every_line(studio: Studio, view: str, lang: str) -> None:
    """The file has no colour that only browsers know, and no text beyond its edge, however the page breaks lines."""
    studio.open(view, text=TEXT, lang=lang, run="one", theme="dark")
    found = studio.picture()
    assert "color(" not in found and "color-mix" not in found and "::" not in found
    root = ET.fromstring(found)
    width = float(root.attrib["width"])
    for node in root.findall(f"{SVG}text") + root.findall(f"{SVG}g/{SVG}text"):
        said, size = "".join(node.itertext()), float(node.attrib["font-size"])
        wide = sum(size if letter > "\u2e80" else size * 0.4 for letter in said)
        assert float(node.attrib["x"]) + wide <= width, said


def test_a_paragraph_in_chinese_is_as_many_lines_as_on_the_page(studio: Studio) -> None:
    studio.open("masks", text=TEXT, lang="zh", run="one")
    script = """node => { const range = document.createRange(); range.selectNodeContents(node);
        return [node.textContent, new Set([...range.getClientRects()].map(one => Math.round(one.top))).size]; }"""
    paragraph, num_lines = studio.page.eval_on_selector(".body .card p.soft", script)
    root = ET.fromstring(studio.picture())
    drawn = [node for node in texts(root) if len("".join(node.itertext())) > 3 and "".join(node.itertext()) in paragraph]
    assert len({node.attrib["y"] for node in drawn}) == num_lines > 1


def test_a_picture_has_room_for_what_scrolls(studio: Studio) -> None:
    """The page is unchanged afterwards."""
    studio.open("beam", text=TEXT, lang="en", run="one")
    scroll = '[data-scroll="tree"]'
    studio.page.eval_on_selector(scroll, "node => { node.scrollLeft = 40; }")
    before = studio.page.eval_on_selector(scroll, "node => [node.clientWidth, node.scrollWidth, node.scrollLeft]")
    root = ET.fromstring(studio.picture())
    [tree] = [node for node in root.iter(f"{SVG}svg") if node.get("aria-label") == "the search"]
    assert before[1] > before[0]
    assert float(tree.attrib["x"]) + float(tree.attrib["width"]) < float(root.attrib["width"]) - 32
    assert studio.page.eval_on_selector(scroll, "node => [node.clientWidth, node.scrollWidth, node.scrollLeft]") == before


def test_a_picture_shows_what_was_set(studio: Studio) -> None:
    studio.open("masks", text=TEXT, lang="en", run="one", later=ENDING)
    assert ENDING in words(ET.fromstring(studio.picture()))
    studio.open("decoding", text=TEXT, lang="en", run="one", reference=ENDING)
    root = ET.fromstring(studio.picture())
    assert ENDING in words(root) and any("the model begins" in one for one in words(root))
    assert any(node.get("r") == "8" for node in root.iter(f"{SVG}circle")), "the slider's knob"


def test_a_picture_fades_what_the_page_fades(studio: Studio) -> None:
    studio.open("translate", text=TEXT, lang="en", run="one")
    assert [one for one in ET.fromstring(studio.picture()).iter(f"{SVG}g") if one.get("opacity") == "0.8"], "bars"


def test_a_long_word_stays_in_its_card(studio: Studio) -> None:
    studio.open("subwords", text="Donaudampfschifffahrtsgesellschaftskapitän 你好你好", lang="en", run="one")
    script = """nodes => nodes.map(node =>
        node.closest(".card").getBoundingClientRect().right - node.getBoundingClientRect().right)"""
    assert min(studio.page.eval_on_selector_all(".token", script)) > 0


def test_axes_have_as_many_digits_as_their_steps(studio: Studio) -> None:
    studio.open("training", text=TEXT, lang="en", run="one")
    for most in (0.0007, 0.003, 2.2e-5, 0.9, 7, 12345):
        script = """most => import("./page/drawing.js").then(found =>
            [...found.lines({ curves: [{ name: "", points: [[0, 0], [10, most]] }], label: "" })
                .querySelectorAll("text[text-anchor=end]")].map(node => [node.textContent, +node.getAttribute("x")]))"""
        told = [one for one in studio.page.evaluate(script, most) if one[1] < 150 and one[0]]
        ticks = [float(one[0].replace(",", "")) for one in told]
        steps = [after - before for before, after in pairwise(ticks)]
        assert len(ticks) > 2 and steps == pytest.approx([steps[0]] * len(steps), rel=1e-6), told
        assert len({len(one[0].partition(".")[2]) for one in told}) == 1


def test_numbers_of_a_column_have_the_same_digits(studio: Studio) -> None:
    studio.open("beam", text=TEXT, lang="en", run="one")
    script = "values => import('./page/drawing.js').then(found => values.map(one => found.number(one, 3)))"
    shown = studio.page.evaluate(script, [-1.5, -0.25, 0, 4, -0.0004, 150.26])
    assert shown == ["−1.500", "−0.250", "0", "4", "−4.0e−4", "150.3"]
    script = "() => import('./page/drawing.js').then(found => [0, 0.0001, 0.5, 1].map(found.percent))"
    assert all(" " not in one for one in studio.page.evaluate(script)), "nothing that a line could break at"


def test_each_sum_of_the_figure_tells_its_own_numbers(studio: Studio, truth: Truth) -> None:
    norms = truth.trace().decoder.residual_norms[1:, 0].mean(-1)
    for sublayer in range(3):
        studio.open("map", text=TEXT, lang="en", run="one").click(f'[data-block="add.decoder.{sublayer}"]')
        assert studio.page.locator(".figure .chosen").count() == 1
        assert ", ".join(f"{float(one):.2f}" for one in norms[sublayer::3]) in studio.text(".panel")


def test_the_figure_leads_to_the_search_by_keyboard(studio: Studio) -> None:
    studio.open("map", text=TEXT, lang="en", run="one")
    studio.page.focus('[data-block="result.decoder"]')
    studio.page.keyboard.press("Space")
    studio.page.wait_for_selector('.panel[data-block="result.decoder"]')
    studio.click('[data-key="open"]')
    assert studio.page.get_attribute("#view", "data-view") == "beam"


def other_model(studio: Studio, **options: Any) -> None:
    """Report the same model with another configuration, by which the page chooses its texts."""

    def answer(route: Route) -> None:
        described = route.fetch().json()
        described["model"] |= options
        route.fulfill(body=json.dumps(described), content_type="application/json")

    studio.page.route(re.compile(r"/runs/one$"), answer)


def test_explanations_are_those_of_the_model(studio: Studio) -> None:
    other_model(studio, norm="pre", shared_embeddings="none", output_bias=True, positions="learned")
    said = {}
    for block in ("linear.decoder", "add.encoder.1", "positions.encoder", "positions.decoder", "norm.decoder.3"):
        said[block] = studio.open("map", text=TEXT, lang="en", run="one", block=block).text(".panel")
        assert studio.page.locator(".figure .chosen").count() == 1
    assert "z = x Wᵀ + b" in said["linear.decoder"] and "of its own" in said["linear.decoder"]
    assert "a direct path" in said["add.encoder.1"] and "pre-norm, learned positions" in said["add.encoder.1"]
    assert "the same sentence" in said["positions.encoder"] and "the same sentence" not in said["positions.decoder"]
    assert "that embedded them" not in studio.open("residual", text=TEXT, lang="en", run="one").text("#view")


def test_the_tree_is_one_stop_and_arrows_go_through_it(studio: Studio) -> None:
    studio.open("beam", text=TEXT, lang="en", run="one", beam="8")
    assert studio.page.locator('.tree [tabindex="0"]').count() == 1
    studio.page.focus('.tree [tabindex="0"]')
    focused = "document.activeElement.dataset.key"
    first = studio.page.evaluate(focused)
    assert first.startswith("node-0.")
    for key, expected in (("ArrowRight", "node-1."), ("ArrowLeft", first), ("ArrowDown", "node-0.1")):
        studio.page.keyboard.press(key)
        assert studio.page.evaluate(focused).startswith(expected)
    assert studio.page.locator('.tree [tabindex="0"]').count() == 1
    for key, node in (("Enter", "0.1"), ("Space", None), ("Space", "0.1"), ("Enter", None)):
        drawn = studio.page.get_attribute("html", "data-drawn")
        studio.page.keyboard.press(key)
        studio.page.wait_for_selector(f'html:not([data-drawn="{drawn}"])')
        assert studio.page.evaluate("new URLSearchParams(location.hash.slice(1)).get('node')") == node
        assert studio.page.evaluate(focused) == "node-0.1"


@pytest.mark.parametrize("layer", ["-1", "x", "99", "0.5", "NaN"])
def test_an_address_may_say_anything(studio: Studio, layer: str) -> None:
    studio.open("residual", text=TEXT, lang="en", run="one", layer=layer)
    assert studio.page.locator('[data-key^="ffn-"][aria-pressed="true"]').count() == 1
    studio.open("map", text=TEXT, lang="en", run="one", block=f"constructor.{layer}.{layer}")
    studio.open("map", text=TEXT, lang="en", run="one", block=f"add.decoder.{layer}")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_small_coloured_words_can_be_read(studio: Studio, theme: str) -> None:
    studio.open("map", text=TEXT, lang="en", run="one", theme=theme)
    script = "([node, name]) => getComputedStyle(document.querySelector(node))[name]"
    ink = studio.page.evaluate(script, [".figure .shape", "fill"])
    for ground in ((".figure .stack", "fill"), (".card", "backgroundColor")):
        assert contrast(ink, studio.page.evaluate(script, list(ground))) >= 4.5


def contrast(one: str, other: str) -> float:
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def luminance(colour: str) -> float:
    parts = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
    linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_doubtful_words_stand_out(studio: Studio, truth: Truth) -> None:
    """Less probable words have a stronger colour; while the pointer is on a source word, colour shows attention to it."""
    studio.open("training", text=TEXT, lang="en", run="one")
    script = """nodes => nodes.map(node => { const [, alpha] = getComputedStyle(node).backgroundColor.split("/");
        return parseFloat(alpha ?? "0"); })"""
    strength = studio.page.eval_on_selector_all(".output .piece", script)
    probs = [2.718281828**one for one in truth.log_probs()]
    assert strength == pytest.approx([min(0.5, 1 - prob) for prob in probs], abs=0.02)
    studio.page.hover(".pieces .piece")
    accent = "getComputedStyle(document.querySelector('.output .piece')).backgroundColor"
    red, _, blue = (float(part) for part in re.findall(r"[\d.]+", studio.page.evaluate(accent))[:3])
    assert blue > red
