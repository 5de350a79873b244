"""Tests of every view, in both languages, in a real browser: it shows the numbers of `Trace`, writes nothing to the console,
and sends requests to its own server only."""

import math
import xml.etree.ElementTree as ET
from collections.abc import Callable

import pytest
import torch

from regard.data.batch import collate
from regard.inspection.look import Question, look, search
from regard.model.embedding import sinusoids
from regard.model.kinds import require_transformer
from regard.model.trace import Head, Intervention
from regard.run.metrics import read_lines
from regard.text.tokenizer import EOS_ID
from regard.translate.search import Search
from tests.page.browser import VIEWS, Studio, needs_chromium
from tests.page.conftest import CLOSE, RUN, TEXT, Truth, close

pytestmark = [pytest.mark.slow, needs_chromium]


def check_translate(studio: Studio, truth: Truth) -> None:
    assert studio.numbers_of(".output .piece", "data-log-prob") == pytest.approx(truth.log_probs(), abs=CLOSE)
    numbers = studio.download()
    assert numbers["translation"] == truth.text
    weights = truth.trace().decoder.cross_attention[1].weights[0].mean(0)  # (T, S), of the layer that aligns
    close(numbers["attended"], weights[numbers["place"], :-1])
    studio.click('[data-key="piece-1"]')
    [other] = [one for one in studio.all(".bars button.bar", "data-key") if one == "other-1"]
    chosen = studio.text(f'[data-key="{other}"] .name').replace("␣", "▁")
    studio.click(f'[data-key="{other}"]')
    pieces = (*truth.translator.tokenizer.tgt.pieces(truth.tgt_ids[:1]), chosen)
    assert studio.page.evaluate("new URLSearchParams(location.hash.slice(1)).get('prefix_pieces')") == " ".join(pieces)
    expected = look(truth.translator, Question(text=TEXT, prefix_pieces=pieces))
    assert studio.download()["translation"] == expected["target"]["text"]
    assert '"prefix_pieces"' in studio.text("pre"), "what the server translates would be another"


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
    trace, numbers = truth.trace(), studio.download()
    close(numbers["causal"], trace.decoder.self_attention[0].mask[0, 0])
    longer = [[*ids, *[EOS_ID] * 3] for ids in (truth.src_ids, truth.tgt_ids)]
    batch = collate([truth.src_ids, longer[0]], [truth.tgt_ids, longer[1]])
    padded = truth.translator.models[0].trace(batch.src, batch.tgt_in)
    size = len(longer[0]) + 1
    close(numbers["padding"], padded.encoder.self_attention[0].mask[0, 0].expand(size, size))
    real = len(truth.tgt_ids) + 1  # what stands after, no loss counts
    close(numbers["both"][:real], padded.decoder.self_attention[0].mask[0, 0][:real])
    assert all(sum(row) == real for row in numbers["both"][real:])
    assert studio.all("table[data-kept]", "data-kept") == ["0"]
    studio.click('[data-key="causal"]')
    close(studio.download()["causal"], torch.ones_like(trace.decoder.self_attention[0].mask[0, 0]))
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
    assert studio.click('[data-key="fold-entropy"]').download()["shown"] == studio.download()["attention"][1]["entropy"]
    studio.click('[data-key="fold-one"]').click('[data-key="try"]')
    changes = [
        sum(truth.log_probs(Intervention(heads_off=frozenset([Head("cross", 1, head)])))) - sum(truth.log_probs())
        for head in range(4)
    ]
    assert studio.download()["each_head_off"] == pytest.approx(changes, abs=1e-4)
    studio.click('[data-key="switch-1-0"]')
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
    model, trace = require_transformer(truth.translator.models[0], "this test"), truth.trace()
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


@pytest.mark.parametrize("view", VIEWS)
def test_a_picture_is_an_svg_with_the_words_of_the_view(studio: Studio, view: str) -> None:
    studio.open(view, text=TEXT, lang="en")
    root = ET.fromstring(studio.picture())
    words = " ".join("".join(node.itertext()) for node in root.iter("{http://www.w3.org/2000/svg}text"))
    assert root.tag.endswith("svg") and len(words) > 50
    assert "var(" not in ET.tostring(root, encoding="unicode")


def test_head_maps_are_of_the_search_that_was_asked_for(studio: Studio, truth: Truth) -> None:
    """Another translation gives another picture."""
    studio.open("heads", text=TEXT, run="one", target="I love you.")
    seen = look(truth.translator, Question(text=TEXT, target="I love you."))
    assert studio.download()["attention"] == seen["attention"]["cross"]
    assert math.isclose(studio.download()["shown"][0][0], seen["attention"]["cross"][1]["weights"][0][0][0])
