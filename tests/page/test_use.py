"""Tests of the page in use: typing, pointing, keys, shared addresses; and of what the page must never do."""

import gzip
import json
import re
import shutil
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from regard.run.metrics import append_line, read_lines
from tests.page.browser import VIEWS, Studio, needs_chromium
from tests.page.conftest import RUN, TEXT, Truth, close
from tests.page.stub import PAGE, serving

pytestmark = [pytest.mark.slow, needs_chromium]


def test_a_run_in_training_is_followed(browser: Browser, tmp_path: Path) -> None:
    """A line of metrics that is written while the page is open appears on it."""
    folder = tmp_path / "run"
    shutil.copytree(RUN, folder)
    lines = read_lines(folder / "metrics.jsonl")
    (folder / "metrics.jsonl").unlink()
    append_line(folder / "metrics.jsonl", lines[0])
    with serving({"run": folder}) as (address, served):
        served.is_finished = False
        studio = Studio(browser.new_page(), f"{address}/").open("training", lang="en", text=TEXT)
        assert "in training" in studio.text("p[data-step]")
        append_line(folder / "metrics.jsonl", lines[1])
        studio.page.wait_for_selector(f'p[data-step="{lines[1]["step"]}"]')
        assert not studio.problems
        studio.page.close()


def test_typing_translates(studio: Studio, truth: Truth) -> None:
    studio.open("translate", text=TEXT, run="one")
    other = "Ich will dir nur helfen."
    studio.page.fill("textarea", other)
    studio.page.wait_for_function("text => new URLSearchParams(location.hash.slice(1)).get('text') === text", arg=other)
    [expected] = truth.translator.translate([other])
    total = "[...document.querySelectorAll('.output .piece')].reduce((sum, node) => sum + Number(node.dataset.logProb), 0)"
    studio.page.wait_for_function(f"log => Math.abs({total} - log) < 1e-3", arg=expected.log_prob)
    studio.settled()
    assert studio.download()["translation"] == expected.text
    curl = studio.text("pre")
    assert curl.startswith(f"curl -s {studio.address}translate ") and other in curl
    asked = json.loads(curl.split(" -d '")[1].removesuffix("'"))
    assert asked.items() >= {"beam": 4, "alpha": 0.6, "source": "de", "target": "en"}.items()
    studio.open("translate", text=other, run="two")  # not the first for its languages
    assert studio.text("pre").startswith(f"curl -s {studio.address}inspect ") and '"run":"two"' in studio.text("pre")


def test_what_goes_wrong_is_said(studio: Studio) -> None:
    studio.open("translate", text=TEXT, run="one", target="rice " * 300)
    assert "give a shorter one" in studio.text("#view")
    assert [one for one in studio.problems if "422" in one]  # the browser's own note on an answer that is no 200
    studio.problems.clear()


def test_a_server_that_is_gone_is_said(studio: Studio) -> None:
    studio.open("translate", text=TEXT, run="one", lang="en")
    studio.page.route("**/inspect", lambda route: route.abort())
    studio.page.fill("textarea", "Guten Morgen!")
    studio.page.wait_for_selector("text=Is regard serve still running?")
    assert all("ERR_FAILED" in one for one in studio.problems)
    studio.problems.clear()


def test_pointing_at_a_word_lights_what_it_looked_at(studio: Studio, truth: Truth) -> None:
    studio.open("translate", text=TEXT, run="one")
    studio.page.hover('[data-key="piece-1"]')
    lit = studio.page.eval_on_selector_all(
        ".pieces .piece.lit", "nodes => nodes.map(node => parseFloat(node.style.getPropertyValue('--share')))"
    )
    weights = truth.trace().decoder.cross_attention[1].weights[0].mean(0)[1, :-1]
    assert lit.index(max(lit)) == int(weights.argmax())
    close(lit, 100 * weights**0.6, 0.6)


def test_the_keyboard_is_enough(studio: Studio) -> None:
    studio.open("translate", text=TEXT, lang="en")
    studio.page.focus("#tab-translate")
    for view in ("map", "subwords", "positions"):
        studio.page.keyboard.press("ArrowDown")
        studio.page.wait_for_selector(f"#view[data-view={view}]")
        studio.settled()
        assert studio.page.evaluate("document.activeElement.id") == f"tab-{view}"
    studio.page.keyboard.press("End")
    studio.page.wait_for_selector("#view[data-view=training]")
    studio.open("heads", text=TEXT, lang="en", run="one")
    studio.page.focus('[data-key="head-0-0"]')
    studio.page.keyboard.press("ArrowRight")
    studio.page.keyboard.press("Enter")
    studio.page.wait_for_function("location.hash.includes('head=1')")
    studio.page.focus("svg.matrix")
    studio.page.keyboard.press("ArrowDown")
    assert "%" in studio.text("figcaption.reading")
    outline = "getComputedStyle(document.activeElement).outlineStyle"
    assert studio.page.evaluate(outline) != "none"


def test_a_view_is_in_its_address(studio: Studio) -> None:
    """The view is the same after a reload, and the browser's back button returns to it."""
    studio.open("heads", text=TEXT, lang="zh", run="one")
    studio.click('[data-key="site-encoder"]').click('[data-key="head-0-3"]').click('[data-key="theme"]')
    before = studio.text("#view"), studio.page.evaluate("document.documentElement.dataset.theme")
    studio.page.reload()
    studio.page.wait_for_selector("#view[data-view=heads] .body")
    studio.settled()
    assert (studio.text("#view"), studio.page.evaluate("document.documentElement.dataset.theme")) == before
    studio.click("#tab-beam")
    studio.page.go_back()
    studio.page.wait_for_selector("#view[data-view=heads] .body")


def test_both_languages_say_everything(studio: Studio) -> None:
    studio.open("translate", text=TEXT)
    each = "name => Promise.all([import(`./page/${name}.js`), import(`./page/${name}_others.js`)])"
    words = f"Promise.all(['english', 'chinese'].map({each}))"
    words += ".then(said => said.map(files => Object.assign({}, ...files.flatMap(file => Object.values(file)))))"
    english, chinese = studio.page.evaluate(words)
    assert english.keys() == chinese.keys()
    for key, said in english.items():
        assert {part.split("}")[0] for part in said.split("{")[1:]} == {
            part.split("}")[0] for part in chinese[key].split("{")[1:]
        }, key


def test_every_word_is_used() -> None:
    """A key is used as it is or built from parts: `${view}.title` may be any view's, and kinds of models have their own."""
    sources = {path.name: path.read_text(encoding="utf-8") for path in PAGE.glob("*.js")}
    said_by = [sources.pop(name) for name in ("english.js", "english_others.js")]
    keys = [key for file in said_by for key in re.findall(r'^  "?([\w.-]+)"?:', file, re.MULTILINE)]
    keys = [re.sub(r"\.(recurrent|rnn|rnn-attention|without-[a-z-]+)$", "", key) for key in keys]
    del sources["chinese.js"], sources["chinese_others.js"]
    code = "\n".join(sources.values())
    said = set(re.findall(r'"([\w.-]+)"', code))
    made = [re.split(r"\$\{[^}]*\}", one) for one in re.findall(r"`([\w.-]*(?:\$\{[^}`]*\}[\w.-]*)+)`", code)]
    patterns = [re.compile(".+".join(map(re.escape, parts))) for parts in made if re.search("[a-z]", "".join(parts))]
    assert len(keys) > 200
    assert not [key for key in keys if key not in said and not any(one.fullmatch(key) for one in patterns)]


def test_pieces_are_put_together_again(studio: Studio, truth: Truth) -> None:
    """Pieces that are bytes are joined as well, because a prefix is given as text."""
    studio.open("translate", text=TEXT)
    subwords = truth.translator.tokenizer.tgt
    for text in (TEXT, "5 € für 你好", "naïve ▲"):
        pieces = subwords.pieces(subwords.encode([text])[0])
        assert (
            studio.page.evaluate("pieces => import('./page/drawing.js').then(found => found.textOf(pieces))", pieces) == text
        )


@pytest.mark.parametrize("width", [380, 800, 1800])
def test_nothing_is_wider_than_the_screen(studio: Studio, width: int) -> None:
    studio.page.set_viewport_size({"width": width, "height": 800})
    text = f"{TEXT} Es gibt viele schlechte Menschen auf der Welt, und Tom wollte nicht Marias Gefühle verletzen."
    for view in VIEWS:
        studio.open(view, text=text, run="one", lang="en")
        assert studio.page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, view


def test_the_page_is_small() -> None:
    assert sum(len(gzip.compress(path.read_bytes())) for path in PAGE.iterdir()) < 120_000


def test_nothing_in_the_page_points_elsewhere() -> None:
    for path in PAGE.iterdir():
        text = path.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")
        assert "http://" not in text and "https://" not in text and "//cdn" not in text, path.name
