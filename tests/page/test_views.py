"""Every view, in both languages, in a real browser: it shows the numbers of `Trace`, says nothing on the console, and asks
nobody but its own server."""

import gzip
import math
import shutil
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from playwright.sync_api import Browser
from torch.testing import assert_close

from regard.data.batch import collate
from regard.inspection.look import DIGITS, Question, look, search
from regard.model.embedding import sinusoids
from regard.model.trace import Head, Intervention, Trace
from regard.text.tokenizer import EOS_ID
from regard.train.metrics import append_line, read_lines
from regard.translate.search import Search
from regard.translate.translator import Translator
from tests.page.browser import VIEWS, Studio, browsing, needs_chromium
from tests.page.stub import PAGE, serving

pytestmark = [pytest.mark.slow, needs_chromium]
RUN = Path(__file__).parents[1] / "runs" / "0.1.0"
TEXT = "Die meisten Japaner essen jeden Tag Reis."
CLOSE = 10.0**-DIGITS


@dataclass(frozen=True)
class Truth:
    """What the model computes, asked without the page."""

    translator: Translator
    src_ids: list[int]
    tgt_ids: list[int]

    def trace(self, intervention: Intervention | None = None) -> Trace:
        batch = collate([self.src_ids], [self.tgt_ids])
        return self.translator.models[0].trace(batch.src, batch.tgt_in, intervention)

    def log_probs(self, intervention: Intervention | None = None) -> list[float]:
        every = self.trace(intervention).logits[0].double().log_softmax(-1)
        own: list[float] = every[torch.arange(len(self.tgt_ids) + 1), [*self.tgt_ids, EOS_ID]].tolist()
        return own

    @property
    def text(self) -> str:
        return self.translator.tokenizer.tgt.decode(self.tgt_ids)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with browsing() as found:
        yield found


@pytest.fixture(scope="module")
def server() -> Iterator[tuple[str, Truth]]:
    with serving({"one": RUN, "two": RUN}) as (address, served):
        translator = served.translators["one"]
        [src_ids] = translator.tokenizer.src.encode([TEXT])
        tgt_ids = list(search(translator, src_ids, Question(text=TEXT)).hypotheses[0].ids)
        yield address, Truth(translator, src_ids, tgt_ids)


@pytest.fixture
def studio(browser: Browser, server: tuple[str, Truth]) -> Iterator[Studio]:
    """However a test ends, its page made no noise and went nowhere else."""
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    found = Studio(page, f"{server[0]}/")
    yield found
    assert not found.problems
    here = (server[0], "data:", "blob:", "about:")
    assert not [url for url in found.requests if not url.startswith(here)]
    page.close()


@pytest.fixture
def truth(server: tuple[str, Truth]) -> Truth:
    return server[1]


def close(numbers: object, tensor: torch.Tensor, most: float = CLOSE) -> None:
    assert_close(torch.tensor(numbers, dtype=torch.float64), tensor.double(), rtol=0, atol=most)


def check_translate(studio: Studio, truth: Truth) -> None:
    assert studio.numbers_of(".output .piece", "data-log-prob") == pytest.approx(truth.log_probs(), abs=CLOSE)
    numbers = studio.download()
    assert numbers["translation"] == truth.text
    weights = truth.trace().decoder.cross_attention[1].weights[0].mean(0)  # (T, S), of the layer that aligns
    close(numbers["attended"], weights[numbers["place"], :-1])
    before = truth.translator.tokenizer.tgt.decode(truth.tgt_ids[:1])
    studio.click('[data-key="piece-1"]')
    [other] = [one for one in studio.all(".bars button.bar", "data-key") if one == "other-1"]
    chosen = studio.text(f'[data-key="{other}"] .name').lstrip("␣")
    studio.click(f'[data-key="{other}"]')
    prefix = studio.page.evaluate("new URLSearchParams(location.hash.slice(1)).get('prefix')")
    assert prefix.startswith(before) and prefix.endswith(chosen)
    [expected] = truth.translator.translate([TEXT], Search(), prefixes=[prefix])
    assert studio.download()["translation"] == expected.text


def check_map(studio: Studio, truth: Truth) -> None:
    source, target, config = len(truth.src_ids) + 1, len(truth.tgt_ids) + 1, truth.translator.config.model
    shapes = studio.page.eval_on_selector_all(".figure .shape", "nodes => nodes.map(node => node.textContent)")
    assert {str(source), str(target), f"{source} × {config.d_model}", f"{target} × {config.d_model}"} <= set(shapes)
    assert f"{target} × {config.tgt_vocab_size:,}" in shapes
    parameters = sum(one.numel() for one in truth.translator.models[0].parameters())
    assert f"{parameters:,}" in studio.text(".panel")
    studio.click('[data-block="ffn.encoder"]')
    active = (truth.trace().encoder.activations[0][0] > 0).double().mean()
    assert f"{100 * active:.0f} %" in studio.text(".panel")
    studio.click('[data-key="open"]')
    assert studio.page.get_attribute("#view", "data-view") == "residual"


def check_subwords(studio: Studio, truth: Truth) -> None:
    ids = [[int(one) for one in line.split()] for line in studio.all(".tokens", "data-ids")]
    assert ids == [truth.src_ids, truth.tgt_ids]
    merges = truth.translator.tokenizer.src.merges("Japaner")
    studio.click('[data-key="word-2"]')
    lines = studio.page.eval_on_selector_all(".merge", "lines => lines.map(line => line.children.length - 1)")
    assert lines == [len(symbols) for symbols in merges]


def check_positions(studio: Studio, truth: Truth) -> None:
    close(studio.download()["table"], sinusoids(50, truth.translator.config.model.d_model), 1e-9)
    studio.click('[data-key="positions"]')
    [shown] = studio.numbers_of("dd[data-log-prob]", "data-log-prob")
    assert shown == pytest.approx(sum(truth.log_probs(Intervention(positions=False))), abs=1e-4)
    assert shown < sum(truth.log_probs()) - 1


def check_masks(studio: Studio, truth: Truth) -> None:
    mask = truth.trace().decoder.self_attention[0].mask[0, 0]
    numbers = studio.download()
    close(numbers["causal"], mask)
    assert studio.all("table[data-kept]", "data-kept") == ["0"]
    assert studio.numbers_of("table[data-kept]", "data-open")[0] > 0
    open_log_probs = torch.tensor(truth.log_probs(Intervention(causal=False)), dtype=torch.float64)
    close([one["log_prob"] for one in numbers["without_mask"]], open_log_probs[: numbers["common"]])


def check_heads(studio: Studio, truth: Truth) -> None:
    layers = truth.trace().decoder.cross_attention
    shown = studio.numbers_of("button.head", "data-entropy")
    assert shown == pytest.approx([float(one.entropy[0, head].mean()) for one in layers for head in range(4)], abs=1e-4)
    close(studio.download()["shown"], layers[1].weights[0, 0])
    brightest = studio.page.evaluate(
        """() => { const canvas = document.querySelector('[data-key="head-1-2"] canvas');
        const data = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
        let best = 0; for (let n = 0; n < data.length / 4; n++) if (data[4 * n] < data[4 * best]) best = n; return best; }"""
    )
    assert brightest == int(layers[1].weights[0, 2].argmax())
    studio.click('[data-key="try"]')
    changes = [
        sum(truth.log_probs(Intervention(heads_off=frozenset([Head("cross", 1, head)])))) - sum(truth.log_probs())
        for head in range(4)
    ]
    assert studio.download()["each_head_off"] == pytest.approx(changes, abs=1e-4)
    studio.click('[data-key="off"]')
    off = Intervention(heads_off=frozenset([Head("cross", 1, 0)]))
    [log_prob] = studio.numbers_of("dd[data-log-prob]", "data-log-prob")
    assert log_prob == pytest.approx(sum(truth.log_probs(off)), abs=1e-4)
    assert studio.all("dd[data-text]", "data-text") == [
        truth.translator.tokenizer.tgt.decode(
            search(truth.translator, truth.src_ids, Question(text=TEXT, intervention=off)).hypotheses[0].ids
        )
    ]


def check_head(studio: Studio, truth: Truth) -> None:
    studio.click('[data-key="query-2"]')
    one = truth.trace().decoder.cross_attention[1]
    products = one.queries[0, 0, 2] @ one.keys[0, 0].T
    close(studio.numbers_of("b[data-product]", "data-product"), products, 1e-3)
    numbers = studio.download()
    close(numbers["weights"], one.weights[0, 0, 2], 1e-3)
    close(numbers["output"], one.weights[0, 0, 2] @ one.values[0, 0], 1e-3)
    studio.change("scale", "0")  # the exponent: scores are not divided at all
    close(studio.download()["weights"], products.softmax(-1), 1e-2)
    [log_prob] = studio.numbers_of("dd[data-log-prob]", "data-log-prob")
    assert log_prob == pytest.approx(sum(truth.log_probs(Intervention(score_scale=1.0))), abs=1e-4)


def check_decoding(studio: Studio, truth: Truth) -> None:
    expected = truth.log_probs()
    assert studio.numbers_of("[data-step]", "data-log-prob") == pytest.approx(expected[:1], abs=CLOSE)
    studio.click('[data-key="on"]')
    assert studio.numbers_of("[data-step]", "data-log-prob") == pytest.approx(expected[1:2], abs=CLOSE)
    studio.change("reference", "Most people love rice.")
    [greedy] = truth.translator.translate([TEXT], Search(beam=1))
    given = truth.translator.tokenizer.tgt.pieces(truth.translator.tokenizer.tgt.encode(["Most people love rice."])[0])
    pairs = zip([*given, "</s>"], [*greedy.pieces, "</s>"], strict=False)
    first = next(place for place, (one, other) in enumerate(pairs) if one != other)
    assert studio.all("table[data-divergence]", "data-divergence") == [str(first)]
    assert studio.download()["free"] == greedy.text


def check_beam(studio: Studio, truth: Truth) -> None:
    for width in (4, 2):
        if width != 4:
            studio.change("slider-beam", str(width))
        result = search(truth.translator, truth.src_ids, Question(text=TEXT, beam=width))
        totals = [one.total for step in result.steps for one in step]
        assert studio.numbers_of(".tree .node", "data-log-prob") == pytest.approx(totals, abs=CLOSE)
        fates = [one.fate for step in result.steps for one in step]
        assert [next(fate for fate in name.split()[1:2]) for name in studio.all(".tree .node", "class")] == fates
        assert studio.page.locator(".tree .node.best").count() == len(result.hypotheses[0].ids) + 1


def check_residual(studio: Studio, truth: Truth) -> None:
    model, trace = truth.translator.models[0], truth.trace()
    layers = [
        model.project(model.decoder_norm(states))[0].double().softmax(-1).max(-1).values
        for states in trace.decoder.residuals[::3]
    ]
    close(studio.numbers_of(".lens td", "data-prob"), torch.cat(layers[::-1]))
    close(studio.download()["residual_norms"], trace.decoder.residual_norms[:, 0])
    studio.click('[data-key="stack-encoder"]')
    close(studio.download()["residual_norms"], trace.encoder.residual_norms[:, 0])


def check_training(studio: Studio, truth: Truth) -> None:
    lines = read_lines(RUN / "metrics.jsonl")
    last = [line["step"] for line in lines if "nll" in line][-1]
    assert studio.numbers_of("p[data-step]", "data-step") == [last]
    assert studio.download()["training"]["metrics"] == lines
    studio.change("other", "two")
    shown = studio.numbers_of("dd[data-run]", "data-log-prob")
    assert shown == pytest.approx([sum(truth.log_probs())] * 2, abs=1e-4)


CHECKS: dict[str, Callable[[Studio, Truth], None]] = {
    "translate": check_translate,
    "map": check_map,
    "subwords": check_subwords,
    "positions": check_positions,
    "masks": check_masks,
    "heads": check_heads,
    "head": check_head,
    "decoding": check_decoding,
    "beam": check_beam,
    "residual": check_residual,
    "training": check_training,
}


@pytest.mark.parametrize("lang", ["en", "zh"])
@pytest.mark.parametrize("view", VIEWS)
def test_a_view_shows_the_models_numbers(studio: Studio, truth: Truth, view: str, lang: str) -> None:
    studio.open(view, lang=lang, text=TEXT, run="one")
    lead = studio.text(".lead")
    assert any("一" <= letter <= "鿿" for letter in lead) is (lang == "zh")
    assert lead.count("。" if lang == "zh" else ". ") + (lang == "en") >= 2, "two sentences"
    CHECKS[view](studio, truth)


def test_a_run_in_training_is_followed(browser: Browser, tmp_path: Path) -> None:
    """A line that is written while the page looks appears in it."""
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


@pytest.mark.parametrize("view", VIEWS)
def test_a_picture_is_an_svg_with_the_words_of_the_view(studio: Studio, view: str) -> None:
    studio.open(view, text=TEXT, lang="en")
    root = ET.fromstring(studio.picture())
    words = " ".join("".join(node.itertext()) for node in root.iter("{http://www.w3.org/2000/svg}text"))
    assert root.tag.endswith("svg") and len(words) > 50
    assert "var(" not in ET.tostring(root, encoding="unicode")


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


def test_what_goes_wrong_is_said(studio: Studio) -> None:
    studio.open("translate", text=TEXT, run="one")
    studio.page.fill("textarea", "Reis " * 200)
    studio.page.wait_for_selector("text=give a shorter one")
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
    """Reloaded, it is the same; and the browser's button goes back."""
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
    words = "Promise.all(['english', 'chinese'].map(name => import(`./page/${name}.js`).then(found => found[name])))"
    english, chinese = studio.page.evaluate(words)
    assert english.keys() == chinese.keys()
    for key, said in english.items():
        assert {part.split("}")[0] for part in said.split("{")[1:]} == {
            part.split("}")[0] for part in chinese[key].split("{")[1:]
        }, key


def test_pieces_are_put_together_again(studio: Studio, truth: Truth) -> None:
    """Also those that are bytes: what a translation is to begin with is text."""
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
    assert sum(len(gzip.compress(path.read_bytes())) for path in PAGE.iterdir()) < 600_000


def test_nothing_in_the_page_points_elsewhere() -> None:
    for path in PAGE.iterdir():
        text = path.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")
        assert "http://" not in text and "https://" not in text and "//cdn" not in text, path.name


def test_head_maps_are_of_the_search_that_was_asked_for(studio: Studio, truth: Truth) -> None:
    """Another translation, another picture."""
    studio.open("heads", text=TEXT, run="one", target="I love you.")
    seen = look(truth.translator, Question(text=TEXT, target="I love you."))
    assert studio.download()["attention"] == seen["attention"]["cross"]
    assert math.isclose(studio.download()["shown"][0][0], seen["attention"]["cross"][1]["weights"][0][0][0])
