"""Tests of inspecting RNNs: every number against `Recurrent.trace`; fields that an RNN lacks are empty."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.testing import assert_close

from regard.data.batch import collate
from regard.inspection.look import Question, describe, look, look_at_head
from regard.model.recurrent import Recurrent
from regard.model.trace import Head, Intervention, Trace
from regard.serve.file import LookSettings, answers
from regard.serve.runs import load_runs
from regard.settings import Json
from regard.text.tokenizer import EOS_ID
from regard.translate.translator import Translator, load
from tests.oracles.runs import make_recurrent, make_tokenizer, make_translator, write_run
from tests.unit.test_inspection import log_probs, same

TEXT = "abc öü jihg"
ONLY_HEAD = Head("cross", 0, 0)
KINDS: dict[str, dict[str, Any]] = {
    "rnn": {"seed": 6},
    "rnn, gru": {"seed": 2, "cell": "gru", "decoder_layers": 2, "shared_embeddings": "none"},
    "additive": {"kind": "rnn-attention"},
    "dot": {"kind": "rnn-attention", "score": "dot"},
    "scaled": {"kind": "rnn-attention", "score": "scaled", "cell": "gru", "num_heads": 4},
}
WITHOUT, WITH = ("rnn", "rnn, gru"), ("additive", "dot", "scaled")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    tokenizer, found = make_tokenizer(), tmp_path_factory.mktemp("runs")
    for name, changes in KINDS.items():
        write_run(found / name, make_recurrent(tokenizer, **changes), tokenizer)
    return found


@pytest.fixture(scope="module")
def translators(folder: Path) -> dict[str, Translator]:
    return {name: load(folder / name, device="cpu") for name in KINDS}


def model_of(translator: Translator) -> Recurrent:
    model = translator.models[0]
    assert isinstance(model, Recurrent)
    return model


def traced(translator: Translator, seen: Json, intervention: Intervention | None = None) -> Trace:
    batch = collate([seen["source"]["ids"]], [seen["target"]["ids"]])
    return translator.models[0].trace(batch.src, batch.tgt_in, intervention)


@pytest.mark.parametrize("name", KINDS)
def test_a_look_is_the_trace(translators: dict[str, Translator], name: str) -> None:
    translator = translators[name]
    seen = look(translator, Question(text=TEXT))
    trace, taken = traced(translator, seen), [*seen["target"]["ids"], EOS_ID]
    assert len(taken) > 2
    same([one["log_prob"] for one in seen["predictions"]], log_probs(trace)[torch.arange(len(taken)), taken])
    same(seen["residuals"]["encoder"], trace.encoder.residual_norms[:, 0])
    same(seen["residuals"]["decoder"], trace.decoder.residual_norms[:, 0])
    assert seen["search"]["hypotheses"][0]["log_prob"] == pytest.approx(seen["log_prob"], abs=1e-3), "steps are the pass"
    assert (seen["lens"], seen["positions"]) == ([], [])
    assert seen["activations"] == seen["units"] == {"encoder": [], "decoder": []}
    assert seen["attention"]["encoder"] == seen["attention"]["decoder"] == []
    assert len(seen["attention"]["cross"]) == (name in WITH)


@pytest.mark.parametrize("name", WITHOUT)
def test_without_attention_there_is_the_fixed_vector(translators: dict[str, Translator], name: str) -> None:
    translator = translators[name]
    seen = look(translator, Question(text=TEXT))
    assert seen["alignment"] is None
    model, batch = model_of(translator), collate([seen["source"]["ids"]], [[]])
    cache = model.start(batch.src)
    same(seen["fixed"], cache.memory.values[0, 0])
    with pytest.raises(ValueError, match="there is no head 0 in layer 0 of cross"):
        look_at_head(translator, Question(text=TEXT), ONLY_HEAD)


def test_alignments_need_attention(translators: dict[str, Translator]) -> None:
    [translation] = translators["additive"].translate([TEXT], align=True)
    assert translation.alignment and {word for _, word in translation.alignment} == set(range(len(translation.text.split())))
    with pytest.raises(ValueError, match="a model of kind rnn has no attention that words could be aligned by"):
        translators["rnn"].translate([TEXT], align=True)


@pytest.mark.parametrize("name", WITH)
def test_the_one_head_is_its_formula(translators: dict[str, Translator], name: str) -> None:
    translator = translators[name]
    seen, one = look(translator, Question(text=TEXT)), look_at_head(translator, Question(text=TEXT), ONLY_HEAD)
    assert (seen["alignment"], seen["fixed"], one["score"]) == ({"layer": 0, "fed_in": False}, [], name)
    q, k = torch.tensor(one["queries"]), torch.tensor(one["keys"])
    if name == "additive":
        scores = torch.tanh(q[:, None] + k[None]) @ torch.tensor(one["vector"])
    else:
        scores = q @ k.T / (one["d_k"] ** 0.5 if name == "scaled" else 1.0)
        assert one["vector"] == []
    assert_close(scores, torch.tensor(one["scores"]), rtol=0, atol=1e-3)
    weights = torch.tensor(seen["attention"]["cross"][0]["weights"][0])
    assert_close(scores.softmax(-1), weights, rtol=0, atol=1e-3)
    assert one["d_k"] == model_of(translator).config.d_state
    assert len(one["values"][0]) == 2 * one["d_k"]


@pytest.mark.parametrize("name", WITH)
def test_the_state_before_a_step_asks(translators: dict[str, Translator], name: str) -> None:
    """Bahdanau et al. compare s_{i-1} with the source, not s_i: the query exists before the step."""
    translator = translators[name]
    seen, model = look(translator, Question(text=TEXT)), model_of(translator)
    one = look_at_head(translator, Question(text=TEXT), ONLY_HEAD)
    assert model.attention is not None
    batch = collate([seen["source"]["ids"]], [seen["target"]["ids"]])
    cache = model.start(batch.src)
    for place, token in enumerate(batch.tgt_in[0]):
        same(one["queries"][place], model.attention.query(cache.state[-1][0])[0, 0])
        model.step(token[None], cache)


@pytest.mark.parametrize("name", WITH)
def test_the_one_head_can_be_switched_off(translators: dict[str, Translator], name: str) -> None:
    off = Intervention(heads_off=frozenset([ONLY_HEAD]))
    seen = look(translators[name], Question(text=TEXT))
    without = look(translators[name], Question(text=TEXT, target_pieces=tuple(seen["target"]["pieces"]), intervention=off))
    taken = [*seen["target"]["ids"], EOS_ID]
    own = log_probs(traced(translators[name], seen, off))[torch.arange(len(taken)), taken]
    assert without["log_prob"] == pytest.approx(float(own.sum()), abs=1e-4)
    assert without["log_prob"] != seen["log_prob"]


@pytest.mark.parametrize("name", KINDS)
def test_parameters_are_counted_by_part(translators: dict[str, Translator], name: str) -> None:
    model, parts = model_of(translators[name]), describe(translators[name])["parameters"]
    assert sum(parts.values()) == sum(one.numel() for one in model.parameters())
    count = {
        part: sum(one.numel() for one in getattr(model, part).parameters()) for part in ("bridge", "decoder", "readout")
    }
    assert parts.items() >= count.items()
    config = model.config
    gates, width = 4 if config.cell == "lstm" else 3, config.d_state * (2 if name in WITH else 1)
    of_layers = [gates * config.d_state * (one + config.d_state + 2) for one in (config.d_model, width)]
    assert parts["encoder.forwards"] == sum(of_layers)
    assert parts.get("encoder.backwards", 0) == (sum(of_layers) if name in WITH else 0)
    assert ("attention" in parts) is (name in WITH)


@pytest.mark.parametrize("name", ["rnn", "additive"])
def test_a_file_asks_an_rnn_only_what_it_can_answer(folder: Path, name: str) -> None:
    [run] = load_runs([folder / name], device="cpu")
    found = answers(run, LookSettings(run=folder / name, text=TEXT, output=Path("nowhere")))
    asked = [one["question"] for one in found["inspect"]]
    assert all(one["positions"] and one["causal"] for one in asked)
    heads = [[one["question"][part] for part in ("site", "layer", "head")] for one in found["heads"]]
    assert heads == ([list(ONLY_HEAD)] if name == "additive" else [])
    assert sum(bool(one["heads_off"]) for one in asked) == len(heads)


def test_a_model_without_scale_is_not_told_to_have_one(tmp_path: Path) -> None:
    tokenizer = make_tokenizer()
    write_run(tmp_path / "run", make_translator(tokenizer, ablation="scale"), tokenizer)
    one = look_at_head(load(tmp_path / "run", device="cpu"), Question(text=TEXT), ONLY_HEAD)
    assert (one["score"], one["scale"], one["d_k"]) == ("dot", 1.0, 8)
    scores = torch.tensor(one["queries"]) @ torch.tensor(one["keys"]).T
    assert_close(scores, torch.tensor(one["scores"]), rtol=0, atol=1e-3)
