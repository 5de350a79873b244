"""Tests of the page's numbers against `Transformer.trace` and the search."""

import math
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from torch.testing import assert_close

from regard.data.batch import collate
from regard.inspection.look import DIGITS, NUM_UNITS, Question, describe, learned_positions, look, look_at_head
from regard.model.embedding import LearnedPositions
from regard.model.kinds import require_transformer
from regard.model.trace import Head, Intervention, Trace
from regard.settings import Json
from regard.text.tokenizer import EOS_ID
from regard.translate.search import Search
from regard.translate.translator import Translator, load
from tests.conftest import make_model

RUN = Path(__file__).parents[1] / "runs" / "0.1.0"
TEXT = "Die meisten Japaner essen jeden Tag Reis."
QUESTION = Question(text=TEXT)
SITES = ("encoder", "decoder", "cross")


@pytest.fixture(scope="module")
def translator() -> Translator:
    return load(RUN, device="cpu")


@pytest.fixture(scope="module")
def found(translator: Translator) -> Json:
    return look(translator, QUESTION)


def traced(translator: Translator, seen: Json, intervention: Intervention | None = None) -> Trace:
    batch = collate([seen["source"]["ids"]], [seen["target"]["ids"]])
    return translator.models[0].trace(batch.src, batch.tgt_in, intervention)


def same(numbers: object, tensor: torch.Tensor) -> None:
    assert_close(torch.tensor(numbers, dtype=torch.float64), tensor.double(), rtol=0, atol=10**-DIGITS)


def log_probs(trace: Trace) -> torch.Tensor:
    return trace.logits[0].double().log_softmax(-1)


def test_the_translation_is_the_translators(translator: Translator, found: Json) -> None:
    [translation] = translator.translate([TEXT], Search(beam=4, num_best=4))
    assert found["target"]["text"] == translation.text
    others = [translation, *translation.alternatives]
    assert [one["text"] for one in found["search"]["hypotheses"]] == [one.text for one in others]
    for one, other in zip(found["search"]["hypotheses"], others, strict=True):
        assert one["log_prob"] == pytest.approx(other.log_prob, abs=1e-4)
        assert one["score"] == pytest.approx(other.score, abs=1e-4)
    assert found["log_prob"] == pytest.approx(translation.log_prob, abs=1e-4)


def test_a_long_text_is_looked_at_in_the_parts_that_are_translated(translator: Translator) -> None:
    text = f"{TEXT} {TEXT}\n\n" + " ".join([TEXT] * 4)
    lines = translator.translate([line for line in text.split("\n") if line])
    parts = look(translator, Question(text=text))["parts"]
    assert len(parts) > len(lines)
    seen = [look(translator, Question(text=text, part=part)) for part in range(len(parts))]
    assert [one["source"]["text"] for one in seen] == parts
    assert " ".join(one["target"]["text"] for one in seen) == " ".join(line.text for line in lines)


def test_pieces_are_taken_as_they_are(translator: Translator, found: Json) -> None:
    """Encoding the text would give other pieces."""
    letters = ("▁T", "h", "e")
    [usual] = translator.tokenizer.tgt.encode(["The"])
    seen = look(translator, replace(QUESTION, target_pieces=letters, prefix_pieces=letters))
    assert seen["target"]["text"] == "The"
    assert seen["target"]["pieces"] == list(letters) != translator.tokenizer.tgt.pieces(usual)
    assert all(one["pieces"][:3] == list(letters) for one in seen["search"]["hypotheses"])
    nothing = look(translator, replace(QUESTION, target_pieces=()))
    assert (nothing["target"]["ids"], len(nothing["predictions"])) == ([], 1)
    assert nothing["search"] == found["search"]


def test_predictions_are_those_of_the_trace(translator: Translator, found: Json) -> None:
    expected = log_probs(traced(translator, found))
    taken = [*found["target"]["ids"], EOS_ID]
    for place, one in enumerate(found["predictions"]):
        own = float(expected[place, taken[place]])
        assert one["log_prob"] == pytest.approx(own, abs=1e-5)
        assert one["rank"] == int((expected[place] > own).sum()) + 1
        probs = expected[place].exp()
        assert one["entropy"] == pytest.approx(-float((probs * expected[place]).sum()), abs=1e-4)
        same([best["log_prob"] for best in one["best"]], expected[place].sort(descending=True).values[:10])
    assert found["log_prob"] == pytest.approx(sum(one["log_prob"] for one in found["predictions"]), abs=1e-4)


def test_attention_is_that_of_the_trace(translator: Translator, found: Json) -> None:
    trace = traced(translator, found)
    layers = (trace.encoder.self_attention, trace.decoder.self_attention, trace.decoder.cross_attention)
    for site, of_site in zip(SITES, layers, strict=True):
        assert len(found["attention"][site]) == len(of_site)
        for one, layer in zip(found["attention"][site], of_site, strict=True):
            same(one["weights"], layer.weights[0])
            same(one["entropy"], layer.entropy[0])


def test_residuals_and_activations_are_those_of_the_trace(translator: Translator, found: Json) -> None:
    trace = traced(translator, found)
    for name, stack in (("encoder", trace.encoder), ("decoder", trace.decoder)):
        same(found["residuals"][name], stack.residual_norms[:, 0])
        for shares, layer in zip(found["activations"][name], stack.activations, strict=True):
            same(shares, (layer[0] > 0).double().mean(-1))
        for units, layer in zip(found["units"][name], stack.activations, strict=True):
            same(units["values"], layer[0][:, units["units"]].T)
            assert set(layer[0].argmax(-1).tolist()) <= set(units["units"]), "each place's strongest"
            assert len(set(units["units"])) == len(units["units"]) <= NUM_UNITS


def test_the_last_layer_of_the_lens_is_the_prediction(translator: Translator, found: Json) -> None:
    config = translator.models[0].config
    assert len(found["lens"]) == config.decoder_layers + 1
    for seen, one in zip(found["lens"][-1], found["predictions"], strict=True):
        assert seen["piece"] == one["best"][0]["piece"]
        assert seen["prob"] == pytest.approx(math.exp(one["best"][0]["log_prob"]), abs=2e-5)
        assert seen["own"] == pytest.approx(math.exp(one["log_prob"]), abs=2e-5)


def test_the_lens_of_a_layer_is_its_states_projected(translator: Translator, found: Json) -> None:
    model, trace = require_transformer(translator.models[0], "this test"), traced(translator, found)
    taken = [*found["target"]["ids"], EOS_ID]
    for layer, seen in enumerate(found["lens"]):
        states = trace.decoder.residuals[3 * layer][0]
        probs = model.project(model.decoder_norm(states)).double().softmax(-1)
        same([one["prob"] for one in seen], probs.max(-1).values)
        same([one["own"] for one in seen], probs[torch.arange(len(taken)), taken])


@pytest.mark.parametrize("site", SITES)
def test_a_head_is_its_formula(translator: Translator, found: Json, site: str) -> None:
    """Compare softmax(masked scores) with the weights of the other view; scores are q·k times the scale."""
    for layer in range(2):
        one = look_at_head(translator, QUESTION, Head(site, layer, 3))  # type: ignore[arg-type]
        queries, keys = torch.tensor(one["queries"]), torch.tensor(one["keys"])
        scores = queries @ keys.T * one["scale"]
        assert one["scale"] == one["d_k"] ** -0.5 == 0.25
        assert_close(scores, torch.tensor(one["scores"]), rtol=0, atol=1e-3)
        weights = scores.masked_fill(~torch.tensor(one["mask"]), -math.inf).softmax(-1)
        assert_close(weights, torch.tensor(found["attention"][site][layer]["weights"][3]), rtol=0, atol=1e-3)


def test_heads_off_positions_and_scale_are_obeyed(translator: Translator, found: Json) -> None:
    """The old translation is scored and the new one searched for under the intervention."""
    own = replace(QUESTION, target=found["target"]["text"])
    changes = (
        Intervention(positions=False),
        Intervention(score_scale=1.0),
        Intervention(heads_off=frozenset([Head("cross", 1, 0), Head("cross", 1, 1)])),
    )
    for change in changes:
        seen = look(translator, replace(own, intervention=change))
        expected = log_probs(traced(translator, seen, change))
        taken = [*seen["target"]["ids"], EOS_ID]
        assert seen["log_prob"] == pytest.approx(float(expected[torch.arange(len(taken)), taken].sum()), abs=1e-4)
        assert seen["log_prob"] != pytest.approx(found["log_prob"], abs=1e-3)
        best = seen["search"]["hypotheses"][0]
        again = look(translator, replace(QUESTION, target=best["text"], intervention=change))
        if again["target"]["pieces"] == best["pieces"][:-1]:
            assert again["log_prob"] == pytest.approx(best["log_prob"], abs=1e-3)


def test_m6_a_later_word_changes_earlier_predictions_only_without_the_causal_mask(translator: Translator) -> None:
    """Check the masks of the page."""
    for causal in (True, False):
        change = Intervention(causal=causal)
        one, other = (
            look(translator, Question(text=TEXT, target=f"Most people {last}", beam=1, intervention=change))
            for last in ("eat", "are")
        )
        first = one["predictions"][0]["log_prob"], other["predictions"][0]["log_prob"]
        assert (first[0] == first[1]) is causal


def test_the_search_tree_leads_to_the_hypotheses(found: Json) -> None:
    """Each finished candidate, followed to its parents, is one of the hypotheses, with its log-probability."""
    kept: list[list[str]] = [[]]
    ended: dict[tuple[str, ...], Json] = {}
    for candidates in found["search"]["steps"]:
        ways = [([*kept[one["parent"]], one["piece"]], one) for one in candidates]
        ended |= {tuple(way): one for way, one in ways if one["fate"] == "finished"}
        kept = [way for way, one in ways if one["fate"] == "kept"]
        assert [one["log_prob"] for one in candidates] == sorted((one["log_prob"] for one in candidates), reverse=True)
    for one in found["search"]["hypotheses"]:
        end = ended[tuple(one["pieces"])]
        assert end["log_prob"] == pytest.approx(one["log_prob"], abs=1e-4)
        assert end["score"] == pytest.approx(one["score"], abs=1e-4)


def test_t6_merges_end_in_the_pieces(translator: Translator, found: Json) -> None:
    for side in (found["source"], found["target"]):
        assert [piece for states in side["merges"] for piece in states[-1]] == side["pieces"]
        assert all(len(after) == len(before) - 1 for states in side["merges"] for before, after in pairwise(states))
    assert translator.tokenizer.src.pieces(found["source"]["ids"]) == found["source"]["pieces"]


def test_a_prefix_is_kept_and_a_target_is_looked_at(translator: Translator) -> None:
    assert look(translator, Question(text=TEXT, prefix="Every"))["target"]["text"].startswith("Every")
    assert look(translator, Question(text=TEXT, target="I love you."))["target"]["text"] == "I love you."


def test_learned_positions_are_the_models_table() -> None:
    model = make_model(positions="learned")
    assert isinstance(model.src_positions, LearnedPositions)
    same(learned_positions(model, 5), model.src_positions.weight[:5])
    assert learned_positions(make_model(), 5) == []


def test_parts_have_all_the_parameters(translator: Translator) -> None:
    described = describe(translator)
    assert sum(described["parameters"].values()) == sum(one.numel() for one in translator.models[0].parameters())
    assert (described["src_lang"], described["tgt_lang"]) == ("de", "en")


def test_what_cannot_be_looked_at_is_said(translator: Translator) -> None:
    with pytest.raises(ValueError, match="nothing to look at"):
        look(translator, Question(text=" "))
    with pytest.raises(ValueError, match=r"target has .* give a shorter one"):
        look(translator, Question(text="Reis", target="rice " * 200))
    with pytest.raises(ValueError, match="so there is no part 1"):
        look(translator, Question(text="Reis", part=1))
    with pytest.raises(ValueError, match="prefix: </s> cannot be in a text"):
        look(translator, Question(text="Reis", prefix_pieces=("</s>",)))
    with pytest.raises(ValueError, match="there is no head 9"):
        look_at_head(translator, QUESTION, Head("cross", 0, 9))
