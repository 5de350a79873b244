"""Tests of RNNs in the studio, in both languages: their own map, the numbers of their `Trace`, and a sentence for each part
that they lack."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser

from regard.inspection.look import Question, search
from regard.model.recurrent import Recurrent
from regard.model.trace import Head, Intervention
from regard.serve.file import LookSettings, write_look
from tests.oracles.runs import make_recurrent, make_tokenizer, make_translator, write_run
from tests.page.browser import VIEWS, Studio, needs_chromium
from tests.page.conftest import Truth, close
from tests.page.stub import serving
from tests.page.test_models import check_every_view, page_of

pytestmark = [pytest.mark.slow, needs_chromium]

TEXT = "abc öü jihg"
OFF = Intervention(heads_off=frozenset([Head("cross", 0, 0)]))
RUNS: dict[str, dict[str, Any]] = {
    "rnn": {"seed": 6},
    "gru": {"seed": 2, "cell": "gru", "decoder_layers": 2, "shared_embeddings": "none"},
    "additive": {"kind": "rnn-attention"},
    "dot": {"kind": "rnn-attention", "score": "dot"},
    "scaled": {"kind": "rnn-attention", "score": "scaled", "cell": "gru", "num_heads": 4},
}
WITH_ATTENTION = ("additive", "dot", "scaled")
languages = pytest.mark.parametrize("lang", ["en", "zh"])


@dataclass(frozen=True)
class Served:
    studio: Studio
    truths: dict[str, Truth]

    def open(self, view: str, run: str, **state: str) -> tuple[Studio, Truth]:
        return self.studio.open(view, text=TEXT, run=run, **state), self.truths[run]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found, tokenizer = tmp_path_factory.mktemp("recurrent"), make_tokenizer()
    for name, changes in RUNS.items():
        write_run(found / name, make_recurrent(tokenizer, **changes), tokenizer)
    return found


@pytest.fixture(scope="module")
def truths(folder: Path) -> Iterator[tuple[str, dict[str, Truth]]]:
    with serving({name: folder / name for name in RUNS}) as (address, served):
        found = {}
        for name, translator in served.translators.items():
            [src_ids] = translator.tokenizer.src.encode([TEXT])
            tgt_ids = list(search(translator, src_ids, Question(text=TEXT)).hypotheses[0].ids)
            assert len(tgt_ids) > 1, name
            found[name] = Truth(translator, src_ids, tgt_ids)
        yield address, found


@pytest.fixture
def served(browser: Browser, truths: tuple[str, dict[str, Truth]]) -> Iterator[Served]:
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    studio = Studio(page, f"{truths[0]}/")
    try:
        yield Served(studio, truths[1])
        assert not studio.problems
    finally:
        page.close()


def model_of(truth: Truth) -> Recurrent:
    model = truth.translator.models[0]
    assert isinstance(model, Recurrent)
    return model


@languages
@pytest.mark.parametrize("run", RUNS)
def test_every_view_of_an_rnn(served: Served, run: str, lang: str) -> None:
    check_every_view(served.studio, text=TEXT, run=run, lang=lang)


@languages
@pytest.mark.parametrize("run", RUNS)
def test_the_map_is_the_rnns_own(served: Served, run: str, lang: str) -> None:
    studio, truth = served.open("map", run, lang=lang)
    config, trace = model_of(truth).config, truth.trace()
    source, target = len(truth.src_ids) + 1, len(truth.tgt_ids) + 1
    blocks = {block.split(".")[0] for block in studio.all(".figure .block", "data-block")}
    common = "inputs outputs embedding forwards bridge cell readout linear softmax result".split()
    assert blocks == {*common, *(["cross", "backwards"] if run in WITH_ATTENTION else ["fixed"])}
    shapes = studio.page.eval_on_selector_all(".figure .shape", "nodes => nodes.map(node => node.textContent)")
    assert {f"{source} × {config.d_model}", f"{target} × {config.d_state}", f"{target} × {config.d_model}"} <= set(shapes)
    assert f"{sum(one.numel() for one in model_of(truth).parameters()):,}" in studio.text(".panel")
    if run in WITH_ATTENTION:
        assert f"{float(trace.decoder.cross_attention[0].entropy.mean()):.2f}" in studio.text(".panel")
        assert ("√d_k" in studio.text(".panel .formula")) is (run == "scaled")
        assert ("tanh" in studio.text(".panel .formula")) is (run == "additive")
    else:
        assert f"{float(trace.memory[0, -1].norm()):.2f}" in studio.text(".panel"), "how long C is"
    studio.click('[data-key="open"]')
    assert studio.page.get_attribute("#view", "data-view") == "heads"
    for stack, block, of_stage in (("encoder", "forwards", -1), ("decoder", "cell", 1), ("decoder", "readout", 2)):
        studio, _ = served.open("map", run, lang=lang, block=f"{block}.{stack}")
        stages = trace.encoder.residual_norms if stack == "encoder" else trace.decoder.residual_norms
        assert f"{float(stages[of_stage].mean()):.2f}" in studio.text(".panel"), block
        studio.click('[data-key="open"]')
        close(studio.download()["residual_norms"], stages[:, 0])


def test_an_rnn_that_says_nothing_has_every_view(browser: Browser, tmp_path: Path) -> None:
    tokenizer = make_tokenizer()
    for kind in ("rnn", "rnn-attention"):
        write_run(tmp_path / kind, make_recurrent(tokenizer, kind=kind, ending=30.0), tokenizer)
        with page_of(browser, tmp_path / kind) as studio:
            check_every_view(studio, text=TEXT)
            assert studio.open("translate", text=TEXT).download()["translation"] == ""


def test_kinds_can_be_compared(served: Served) -> None:
    studio, truth = served.open("training", "rnn", other="additive")
    shown = studio.numbers_of("dd[data-run]", "data-log-prob")
    assert shown == pytest.approx([sum(one.log_probs()) for one in (truth, served.truths["additive"])], abs=1e-4)


def test_a_map_knows_no_block_of_another_model(served: Served) -> None:
    studio, _ = served.open("map", "rnn", lang="en", block="cross.decoder")
    assert studio.text(".panel h3") == "The vector C"
    studio, _ = served.open("map", "additive", lang="en", block="ffn.encoder")
    assert studio.text(".panel h3") == "Attention"


@languages
def test_without_attention_there_is_one_vector_to_see(served: Served, lang: str) -> None:
    for view in ("heads", "head"):
        studio, truth = served.open(view, "rnn", lang=lang)
        close(studio.download()["fixed"], truth.trace().memory[0, -1])
        assert f"{model_of(truth).config.d_state} " in studio.text(".view-heads, .view-head")
    studio, truth = served.open("translate", "rnn", lang=lang)
    assert studio.numbers_of(".output .piece", "data-log-prob") == pytest.approx(truth.log_probs(), abs=1e-5)
    studio.page.hover(".output .piece")
    assert not studio.page.locator(".pieces .lit").count()
    told = studio.text(".columns .card:last-child p")
    assert ("no attention" if lang == "en" else "没有注意力") in told


@languages
@pytest.mark.parametrize("run", WITH_ATTENTION)
def test_the_attention_of_an_rnn_is_that_of_the_trace(served: Served, run: str, lang: str) -> None:
    studio, truth = served.open("heads", run, lang=lang)
    [attention] = truth.trace().decoder.cross_attention
    close(studio.download()["shown"], attention.weights[0, 0])
    assert studio.all("[data-key^='fold-']", "data-key") == ["fold-one", "fold-entropy"]
    studio.click('[data-key="switch-0-0"]')
    [log_prob] = studio.numbers_of("dd[data-log-prob]", "data-log-prob")
    assert log_prob == pytest.approx(sum(truth.log_probs(OFF)), abs=1e-4)
    assert abs(log_prob - sum(truth.log_probs())) > 1e-3
    studio, _ = served.open("translate", run, lang=lang, place="1")
    close(studio.download()["attended"], attention.weights[0, 0, 1, :-1])
    studio.page.hover('.output [data-key="piece-1"]')
    assert studio.page.locator(".pieces .lit").count() == len(truth.src_ids)


@languages
@pytest.mark.parametrize("run", WITH_ATTENTION)
def test_one_head_goes_by_the_models_score(served: Served, run: str, lang: str) -> None:
    studio, truth = served.open("head", run, lang=lang, query="1")
    [one] = truth.trace().decoder.cross_attention
    shown = studio.numbers_of("b[data-product]", "data-product")
    d_k = one.keys.shape[-1]
    close(shown, one.scores[0, 0, 1] * (math.sqrt(d_k) if run == "scaled" else 1), 2e-3)
    close(studio.download()["weights"], one.weights[0, 0, 1], 1e-3)
    close(studio.download()["output"], one.weights[0, 0, 1] @ one.values[0, 0], 1e-3)
    sliders = studio.page.locator('[data-key="scale"]').count()
    assert sliders == (0 if run == "additive" else 1)
    if run == "additive":
        vector = model_of(truth).attention.vector.weight[0]  # type: ignore[union-attr]
        assert studio.numbers_of("[data-most]", "data-most") == pytest.approx([float(vector.abs().sum())], abs=1e-3)
        return
    studio.change("scale", "-1")  # the exponent
    [log_prob] = studio.numbers_of("dd[data-log-prob]", "data-log-prob")
    assert log_prob == pytest.approx(sum(truth.log_probs(Intervention(score_scale=0.1))), abs=1e-4)
    products = one.queries[0, 0, 1] @ one.keys[0, 0].T
    close(studio.download()["weights"], (products * 0.1).softmax(-1), 1e-2)


@languages
@pytest.mark.parametrize("run", ["rnn", "additive"])
def test_an_rnn_needs_no_mask(served: Served, run: str, lang: str) -> None:
    studio, truth = served.open("masks", run, lang=lang, causal="off")
    assert studio.all("table[data-kept]", "data-kept") == ["0"]
    assert not studio.page.locator('[data-key="causal"]').count()
    numbers = studio.download()
    assert [one["log_prob"] for one in numbers["as_it_is"]] == pytest.approx(
        truth.log_probs()[: numbers["common"]], abs=1e-5
    )
    assert ("padding" in numbers) is (run == "additive")
    studio, _ = served.open("positions", run, lang=lang, positions="off")
    assert not studio.page.locator('[data-key="positions"]').count()
    assert str(len(truth.src_ids) + 1) in studio.text(".view-positions")


@pytest.mark.parametrize("run", ["rnn", "additive"])
def test_a_file_about_an_rnn(browser: Browser, folder: Path, tmp_path: Path, run: str) -> None:
    write_look(LookSettings(run=folder / run, text=TEXT, output=tmp_path / "look.html"))
    studio = Studio(browser.new_page(), f"file://{tmp_path / 'look.html'}")
    for view in VIEWS:
        more = {"heads": {"off": "cross.0.0"}, "masks": {"causal": "off"}, "positions": {"positions": "off"}}
        studio.open(view, lang="en", **more.get(view, {}))
        seen = studio.text("#view")
        assert "a model has to be asked" not in seen and "NaN" not in seen, view
    assert not studio.problems
    studio.page.close()


def test_what_stands_on_the_page_is_not_what_was_taken_out(browser: Browser, tmp_path: Path) -> None:
    """The page describes a Transformer that lacks a part as such, with the formulas of what is left."""
    tokenizer = make_tokenizer()
    without: dict[str, dict[str, Any]] = {
        "scale": {"ablation": "scale"},
        "mask": {"ablation": "causal-mask"},
        "none": {"positions": "none"},
    }
    for name, changes in without.items():
        write_run(tmp_path / name, make_translator(tokenizer, **changes), tokenizer)
    page = browser.new_page()
    with serving({name: tmp_path / name for name in without}) as (address, _):
        studio = Studio(page, f"{address}/")
        studio.open("map", text=TEXT, lang="en", run="scale", block="self.encoder")
        assert studio.text(".panel .formula") == "softmax(Q Kᵀ) V"
        assert "not divided" in studio.text(".panel") and "Taken out" in studio.text(".panel")
        studio.open("head", text=TEXT, lang="en", run="scale")
        assert studio.download()["scale"] == 1
        studio.open("map", text=TEXT, lang="en", run="mask", block="masked.decoder")
        assert "mask" not in studio.text(".panel .formula") and "Masked" not in (
            studio.page.text_content(".figure") or "Masked"
        )
        studio.open("masks", text=TEXT, lang="en", run="mask")
        assert all(all(row) for row in studio.download()["causal"])
        assert not studio.page.locator('[data-key="causal"]').count()
        studio.open("map", text=TEXT, lang="en", run="none")
        assert not studio.page.locator(".figure .wave").count() and "no positions" in studio.text(".panel")
        assert not studio.problems
    page.close()
