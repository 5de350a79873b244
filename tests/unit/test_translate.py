"""Tests of the translator on a small trained run: texts do not depend on their neighbours, and scores are correct."""

import itertools
import json
import math
import random
import shutil
import subprocess
import sys
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch.testing import assert_close

import regard
from regard.bench.search import compare, searched
from regard.data.batch import collate
from regard.errors import UserError
from regard.fast.decoding.search import StaticSearch
from regard.inspection.look import Question, look
from regard.model.onednn import PackedWeight
from regard.model.trace import Head, Intervention
from regard.model.transformer import Transformer
from regard.run.checkpoint import Run, weights_bytes
from regard.search.sample import Sampling
from regard.text.tokenizer import BOS_ID, EOS_ID, Subwords, Tokenizer
from regard.translate.search import BatchSize, Search, Searcher
from regard.translate.translator import Translator, load
from tests.conftest import VOCAB_SIZE, tiny_config
from tests.oracles.runs import make_recurrent, make_tokenizer, make_translator, sentences, write_run

RUN = Path(__file__).parents[1] / "runs" / "0.1.0"
SOURCES = (RUN / "source.de").read_text(encoding="utf-8").splitlines()


@pytest.fixture(scope="module")
def translator() -> Translator:
    return load(RUN, device="cpu")


@pytest.fixture(scope="module", params=["transformer", "rnn", "rnn-attention"])
def any_translator(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Translator:
    """Return each system that translates; the RNNs have random weights, and the trained run's subwords."""
    if request.param == "transformer":
        return load(RUN, device="cpu")
    tokenizer = Tokenizer.load(RUN)
    folder = tmp_path_factory.mktemp("runs") / request.param
    write_run(folder, make_recurrent(tokenizer, kind=request.param), tokenizer)
    return load(folder, device="cpu")


def made_up(count: int) -> list[str]:
    """Return texts of 1 to 12 words of the sources, in any order."""
    words, chance = " ".join(SOURCES).split(), random.Random(1)
    return [" ".join(chance.choices(words, k=chance.randint(1, 12))) for _ in range(count)]


def test_an_old_run_translates_as_it_did(translator: Translator) -> None:
    stored = [json.loads(line) for line in (RUN / "translations.jsonl").read_text(encoding="utf-8").splitlines()]
    translations = translator.translate([line["source"] for line in stored])
    assert [one.text for one in translations] == [line["text"] for line in stored]
    for one, line in zip(translations, stored, strict=True):
        assert one.score == pytest.approx(line["score"], abs=1e-3)


def test_load_is_at_hand_from_the_package() -> None:
    [translation] = regard.load(RUN, device="cpu").translate(SOURCES[:1], regard.Search(beam=2))
    assert isinstance(translation, regard.Translation)
    with pytest.raises(AttributeError, match="no attribute 'lode'"):
        _ = regard.lode


def contract(translator: Translator, num_texts: int) -> dict[str, int]:
    """Count how many searches of the same sentences, 7 and 64 at once against 1, are equal, ties or different."""
    ids = translator.tokenizer.src.encode(made_up(num_texts))
    alone, *others = (list(searched(translator, ids, width=4, batch=batch)) for batch in (1, 7, 64))
    verdicts = [compare(*pair) for other in others for pair in zip(alone, other, strict=True)]
    return {verdict: verdicts.count(verdict) for verdict in ("equal", "tie", "different")}


@pytest.mark.usefixtures("unchecked")
def test_batches_and_neighbours_change_nothing(any_translator: Translator) -> None:
    assert contract(any_translator, 40)["different"] == 0


@pytest.mark.slow
def test_batches_and_neighbours_change_nothing_in_2000_sentences(translator: Translator) -> None:
    counts = contract(translator, 2000)
    print(counts)  # noqa: T201 (the number of ties is part of the contract)
    assert counts["different"] == 0


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    "search", [Search(beam=1), Search(), Search(samples=3, num_best=3, seed=5), Search(minimum_risk=True)]
)
def test_the_size_of_batches_is_a_matter_of_speed(any_translator: Translator, search: Search) -> None:
    expected = [one.text for one in any_translator.translate(SOURCES[:20], search, batch=BatchSize(sentences=1))]
    for batch in (BatchSize(), BatchSize(tokens=60), BatchSize(sentences=7)):
        assert [one.text for one in any_translator.translate(SOURCES[:20], search, batch=batch)] == expected
    turned = any_translator.translate(SOURCES[:20][::-1], search)
    assert [one.text for one in turned[::-1]] == expected


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("search", [Search(beam=1), Search(num_best=3), Search(minimum_risk=True), Search(samples=2)])
def test_continuous_batching_translates_as_batches_do(
    translator: Translator, monkeypatch: pytest.MonkeyPatch, search: Search
) -> None:
    """Run the GPU's search on the CPU."""
    expected = translator.translate(SOURCES[:20], search, prefixes=["the"] * 20, align=True)
    model = translator.models[0]
    assert isinstance(model, Transformer)
    static = StaticSearch(model)
    monkeypatch.setattr(Searcher, "static", property(lambda _: static))
    for batch in (BatchSize(), BatchSize(tokens=40), BatchSize(sentences=3)):
        found = translator.translate(SOURCES[:20], search, batch=batch, prefixes=["the"] * 20, align=True)
        for one, other in zip(found, expected, strict=True):
            assert (one.text, one.pieces, one.alignment) == (other.text, other.pieces, other.alignment)
            assert [again.text for again in one.alternatives] == [again.text for again in other.alternatives]
            assert one.score == pytest.approx(other.score, abs=1e-4)
    assert search.samples or static.decoders, "continuous batching was not used"


@pytest.mark.parametrize(
    "search", [Search(beam=1), Search(num_best=4), Search(alpha=0.0, num_best=2), Search(samples=4, num_best=4)]
)
def test_every_score_is_that_of_its_pieces(any_translator: Translator, search: Search) -> None:
    """Score the text too, where encoding it again gives the same pieces."""
    found = [(one, other) for one in any_translator.translate(SOURCES, search) for other in (one, *one.alternatives)]
    sources = [one.source for one, _ in found]
    ours = [other for _, other in found]
    scored = any_translator.score(sources, [" ".join(one.pieces) for one in ours], pieces=True, alpha=search.alpha)
    by_text = any_translator.score(sources, [one.text for one in ours], alpha=search.alpha)
    same_pieces = 0
    for one, again, text in zip(ours, scored, by_text, strict=True):
        assert again.pieces == one.pieces
        assert again.score == pytest.approx(one.score, abs=1e-4)
        assert again.log_prob == pytest.approx(one.log_prob, abs=1e-4)
        assert one.log_prob == pytest.approx(sum(token.log_prob for token in one.tokens))
        if text.pieces == one.pieces:
            same_pieces += 1
            assert text.score == pytest.approx(one.score, abs=1e-4)
    is_trained = any_translator.config.model.kind == "transformer"  # random texts are encoded into other pieces
    assert same_pieces > (len(SOURCES) / 2 if is_trained else 0)


def test_a_score_is_the_sum_over_one_pass(any_translator: Translator) -> None:
    """Sum the log-probabilities from logits."""
    [scored] = any_translator.score(["Ich bin müde."], ["I am tired."])
    src = torch.tensor([[*any_translator.tokenizer.src.encode(["Ich bin müde."])[0], EOS_ID]])
    tgt = [*any_translator.tokenizer.tgt.encode(["I am tired."])[0], EOS_ID]
    log_probs = any_translator.models[0](src, torch.tensor([[BOS_ID, *tgt[:-1]]])).log_softmax(-1)[0]
    expected = [float(log_probs[place, token]) for place, token in enumerate(tgt)]
    assert [token.log_prob for token in scored.tokens] == pytest.approx(expected, abs=1e-5)
    assert scored.tokens[-1].piece == "</s>"


def test_a_beam_scores_at_least_what_greedy_search_scores_mostly(translator: Translator) -> None:
    greedy, beam = (translator.translate(SOURCES, Search(beam=width, alpha=0.0)) for width in (1, 4))
    assert sum(b.score >= a.score - 1e-4 for a, b in zip(greedy, beam, strict=True)) > 0.9 * len(SOURCES)
    assert sum(b.score > a.score + 1e-4 for a, b in zip(greedy, beam, strict=True)) > 0


def test_alternatives_differ_and_fall(any_translator: Translator) -> None:
    for translation in any_translator.translate(SOURCES[:10], Search(num_best=4)):
        every = [translation, *translation.alternatives]
        assert len({one.pieces for one in every}) == len(every) == 4
        assert [one.score for one in every] == sorted((one.score for one in every), reverse=True)


def test_what_is_drawn_depends_on_the_seed_and_the_text(translator: Translator) -> None:
    one, again, other = (
        [translation.text for translation in translator.translate(SOURCES[:5], Search(samples=1, seed=seed))]
        for seed in (1, 1, 2)
    )
    assert one == again != other
    [first, second] = translator.translate([SOURCES[0], SOURCES[0]], Search(samples=1))
    assert first.text == second.text
    cold = Search(samples=1, sampling=Sampling(temperature=1e-3))
    greedy = [translation.text for translation in translator.translate(SOURCES, Search(beam=1))]
    assert [translation.text for translation in translator.translate(SOURCES, cold)] == greedy


def test_a_translation_begins_as_it_is_told(translator: Translator) -> None:
    translations = translator.translate(["Ich bin müde."] * 3, prefixes=["We are", "", "Tom 木 is"])
    assert translations[0].text.startswith("We are")
    assert translations[1].text == translator.translate(["Ich bin müde."])[0].text
    assert translations[2].text.startswith("Tom 木 is")  # a letter outside the subwords, through its bytes
    [long] = translator.translate([" ".join(SOURCES[:12])], prefixes=["We are"])
    assert (long.num_parts, long.text[:6]) == (12, "We are")
    [scored] = translator.score(["Ich bin müde."], [" ".join(translations[0].pieces)], pieces=True)
    assert scored.log_prob == pytest.approx(translations[0].log_prob, abs=1e-4)
    with pytest.raises(ValueError, match=r"target 1: </s> cannot be in a text"):
        translator.score(["a"], ["▁a </s>"], pieces=True)
    with pytest.raises(ValueError, match="1 prefixes for 2 texts"):
        translator.translate(["a", "b"], prefixes=["c"])


def test_one_line_gives_one_line_whatever_is_drawn(translator: Translator) -> None:
    """Bytes may spell a newline; at a high temperature they do."""
    wild = Search(samples=40, num_best=40, sampling=Sampling(temperature=2.5))
    texts = [one.text for first in translator.translate(SOURCES[:5], wild) for one in (first, *first.alternatives)]
    assert any("\ufffd" in text for text in texts), "bytes must have come up"
    assert all(len(text.splitlines()) <= 1 and text == " ".join(text.split()) for text in texts)


def test_any_text_gives_some_text(translator: Translator) -> None:
    hostile = [
        "",
        "   ",
        "\u2581",
        "</s>",
        "<pad> <unk> <s>",
        "木林森 😀",
        "\x00\x01",
        "a" * 3000,
        "\u0301",
        "x\u2028y\x85z",
        "…",
    ]
    translations = translator.translate(hostile, align=True)
    assert [one.source for one in translations] == hostile
    assert all("\n" not in one.text for one in translations)
    for empty in translations[:3]:
        assert (empty.text, empty.tokens, empty.score, empty.alignment) == ("", (), 0.0, ())
    assert translator.score([""], [""])[0].score == 0.0
    with pytest.raises(UserError, match="give a list, not one text"):
        translator.translate("Ich")
    assert len(translator.translate(text for text in ("Ich", "Du"))) == 2


def test_special_tokens_in_a_text_are_text(translator: Translator) -> None:
    for text in ("</s>", "<pad>", "a </s> b <s> <unk>"):
        ids = translator.tokenizer.src.encode([text])[0]
        assert min(ids) > 3
        assert translator.tokenizer.src.decode(ids) == text


def test_a_long_text_is_translated_sentence_by_sentence(translator: Translator) -> None:
    texts = SOURCES[:12]
    [long] = translator.translate([" ".join(texts)], align=True)
    parts = translator.translate(texts, align=True)
    assert long.num_parts == 12
    assert long.text == " ".join(part.text for part in parts)
    assert long.log_prob == pytest.approx(sum(part.log_prob for part in parts))
    links, src, tgt = set(), 0, 0
    for part in parts:
        links |= {(src + i, tgt + j) for i, j in part.alignment or ()}
        src, tgt = src + len(part.source.split()), tgt + len(part.text.split())
    assert set(long.alignment or ()) == links


@pytest.mark.parametrize("size", [50_000, pytest.param(1_000_000, marks=pytest.mark.slow)])
def test_a_megabyte_in_one_line(translator: Translator, size: int) -> None:
    """Cut text without a space, and sentences: no part is too long, and none is lost. Translate the beginning as well."""
    for text in ("ab" * (size // 2), "Ich bin müde. " * (size // 14)):
        parts = translator.parts(text)
        assert "".join(part.source for part in parts) == text.replace(". ", ".")
        assert max(len(part.ids) for part in parts) <= translator.limit
        [translation] = translator.translate([text[:5000]], Search(beam=1))
        assert translation.num_parts > 5
        assert translation.text


def test_words_align_within_their_sentences(translator: Translator) -> None:
    for one in translator.translate(SOURCES, align=True):
        assert one.alignment
        assert max(i for i, _ in one.alignment) < len(one.source.split())
        assert sorted({j for _, j in one.alignment}) == list(range(len(one.text.split())))
    [scored] = translator.score(["Tom ist müde."], ["Tom is tired."], align=True)
    assert {j for _, j in scored.alignment or ()} == {0, 1, 2}


def test_several_runs_average_what_they_say(translator: Translator, tmp_path: Path) -> None:
    """A run with itself gives its own result; with another, the probabilities are the mean of both."""
    twice = load(RUN, RUN, device="cpu")
    assert [one.text for one in twice.translate(SOURCES)] == [one.text for one in translator.translate(SOURCES)]
    shutil.copytree(RUN, tmp_path / "other")
    other = Run(tmp_path / "other")
    torch.manual_seed(0)
    weights = Transformer(translator.config.model).state_dict()
    other.publish({"model.safetensors": weights_bytes(weights)})
    alone = load(other.folder, device="cpu")
    both = load(RUN, other.folder, device="cpu")
    pair = ["Ich bin müde."], ["I am tired."]
    [one], [two], [mean] = translator.score(*pair), alone.score(*pair), both.score(*pair)
    expected = [
        math.log((math.exp(a.log_prob) + math.exp(b.log_prob)) / 2) for a, b in zip(one.tokens, two.tokens, strict=True)
    ]
    assert [token.log_prob for token in mean.tokens] == pytest.approx(expected, abs=1e-5)
    [found] = both.translate(pair[0])
    [again] = both.score(pair[0], [" ".join(found.pieces)], pieces=True, alpha=0.6)
    assert again.score == pytest.approx(found.score, abs=1e-4)


def test_what_cannot_be_loaded_is_told(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="is not a run"):
        load(tmp_path)
    shutil.copytree(RUN, tmp_path / "run")
    (tmp_path / "run" / "model.safetensors").write_bytes(b"something else")
    with pytest.raises(ValueError, match=r"model\.safetensors is missing or not what was written"):
        load(tmp_path / "run")
    run = Run(tmp_path / "run")
    run.write_config(run.read_config(), None, "0.1.0")
    with pytest.raises(ValueError, match="has no weights yet"):
        load(tmp_path / "run")
    with pytest.raises(ValueError, match="at least one run"):
        load()


@pytest.mark.parametrize(
    ("settings", "what"),
    [
        ({"beam": 0}, "a beam of 0"),
        ({"beam": 2, "num_best": 3}, "cannot come from a beam of 2"),
        ({"samples": 2, "num_best": 3}, "cannot come from 2 samples"),
        ({"beam": 1, "minimum_risk": True}, "candidates to compare"),
        ({"max_extra": -1}, "longer than its input"),
        ({"alpha": 500.0}, "must lie between"),
        ({"alpha": math.nan}, "must lie between"),
        ({"samples": -1}, "-1 samples"),
    ],
)
def test_impossible_searches_are_refused(settings: dict[str, int], what: str) -> None:
    with pytest.raises(ValueError, match=what):
        Search(**settings)  # type: ignore[arg-type]


def test_packed_matrices_compute_the_same_and_notice_change() -> None:
    torch.manual_seed(0)
    model = Transformer(tiny_config(d_model=64, num_heads=4)).eval()
    src = torch.randint(3, 20, (3, 7))
    tokens = torch.tensor([1, 1, 1])
    expected = model.step(tokens, model.start(src))
    model.pack()
    if model.packed_output is None:
        pytest.skip("no oneDNN here")
    torch.testing.assert_close(model.step(tokens, model.start(src)), expected, atol=1e-5, rtol=0)
    assert deepcopy(model).packed_output is None  # packed weights cannot be copied
    right, model.packed_output.weight = model.packed_output.weight, PackedWeight(torch.zeros(VOCAB_SIZE, 64)).weight
    assert not torch.allclose(model.step(tokens, model.start(src)), expected, atol=1e-3), "it is used"
    model.packed_output.weight = right
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(0.5)
    changed = model.step(tokens, model.start(src))
    assert not torch.allclose(changed, expected, atol=1e-3)
    fresh = Transformer(model.config).eval()
    fresh.load_state_dict(model.state_dict())
    torch.testing.assert_close(changed, fresh.step(tokens, fresh.start(src)), atol=1e-6, rtol=0)


def test_learned_positions_limit_what_is_read_and_said(tmp_path: Path) -> None:
    """A model of learned positions cuts sources and outputs at its last one, and refuses longer prefixes."""
    tokenizer = make_tokenizer()
    model = make_translator(tokenizer, positions="learned", max_positions=24)
    translator = load(write_run(tmp_path / "run", model, tokenizer).folder, device="cpu")
    assert translator.limit == 23
    [translation] = translator.translate(["a b c d e f g " * 20], Search(beam=2))
    assert translation.num_parts > 1
    assert max(len(part.ids) for part in translator.parts("a b c d e f g " * 20)) <= 23
    with pytest.raises(ValueError, match=r"text 1: a prefix of \d+ subwords is longer than what this model can say, 23"):
        translator.translate(["a"], prefixes=["a b c d e f g " * 20])


def test_a_text_is_encoded_once(translator: Translator, monkeypatch: pytest.MonkeyPatch) -> None:
    encoded: list[str] = []
    original = Subwords.encode

    def encode(self: Subwords, texts: Sequence[str]) -> list[list[int]]:
        encoded.extend(texts)
        return original(self, texts)

    monkeypatch.setattr(Subwords, "encode", encode)
    translator.translate(SOURCES[:20], Search(beam=1), prefixes=["the"] * 20)
    assert sorted(text for text in encoded if text != "the") == sorted(SOURCES[:20])
    encoded.clear()
    long = " ".join(SOURCES[:12])
    assert translator.translate([long], Search(beam=1))[0].num_parts == 12
    assert sorted(text for text in encoded if text != long) == sorted(SOURCES[:12])


@pytest.fixture
def unlike_runs(tmp_path: Path) -> list[Path]:
    """Return two runs with the same subwords and training texts of different lengths."""
    tokenizer = make_tokenizer()
    folders = []
    for longest, max_tokens in ((9, 200), (30, 12), (0, 50)):
        run = write_run(tmp_path / str(longest), make_translator(tokenizer), tokenizer)
        weights, config = run.read_weights(), run.read_config()
        assert weights is not None
        cleaning = replace(config.data.cleaning, max_tokens=max_tokens)
        config = replace(config, longest=longest, data=replace(config.data, cleaning=cleaning))
        run.write_config(config, weights, regard.__version__)
        folders.append(run.folder)
    return folders


def test_the_order_of_an_ensembles_runs_changes_nothing(unlike_runs: list[Path]) -> None:
    """Texts are cut for the run with the least maximum length."""
    texts = [*sentences(10, seed=3), " ".join(sentences(8, seed=4))]
    expected = None
    for order in itertools.permutations(unlike_runs):
        translator = load(*order, device="cpu")
        assert (translator.used_to, translator.limit) == (9, 12)
        found = [(one.text, one.num_parts) for one in translator.translate(texts, Search(max_extra=5))]
        expected = expected or found
        assert found == expected


def test_an_empty_text_with_a_prefix_goes_on_from_the_prefix(any_translator: Translator) -> None:
    """Its log-probability is that of `score`; without a prefix, the output is empty."""
    prefixes, has_attention = ["", "We are", "We are", "  "], any_translator.config.model.kind != "rnn"
    empty, begun, alone, blank = any_translator.translate(
        ["", "", "  \u2028", ""], Search(max_extra=10), prefixes=prefixes, align=has_attention
    )
    assert (empty.text, blank.text) == ("", "")
    assert begun.text.startswith("We are") and begun.text == alone.text
    [scored] = any_translator.score([""], [" ".join(begun.pieces)], pieces=True, alpha=0.6)
    assert scored.score == pytest.approx(begun.score, abs=1e-4)


def test_what_is_cut_at_its_maximum_length_has_not_ended(any_translator: Translator) -> None:
    """A hypothesis that ends by itself stays the same with a larger maximum length."""
    for search in (Search(beam=1, max_extra=3), Search(num_best=3, max_extra=3), Search(samples=3, num_best=3, max_extra=3)):
        for text, first in zip(SOURCES, any_translator.translate(SOURCES, search), strict=True):
            most = len(any_translator.tokenizer.src.encode([text])[0]) + 3
            for one in (first, *first.alternatives):
                assert one.ended == (len(one.pieces) < most)
    assert not any_translator.translate(["a b c"], Search(max_extra=0), prefixes=["a b c d e f g h"])[0].ended
    assert any_translator.translate([""])[0].ended and any_translator.score(["a"], ["b c d e f g"])[0].ended


def test_a_long_text_has_ended_if_all_of_its_parts_have(translator: Translator) -> None:
    parts = translator.translate(SOURCES[:12], Search(max_extra=0))
    assert {part.ended for part in parts} == {True, False}
    for few in (SOURCES[:12], [part.source for part in parts if part.ended][:6]):
        texts = few + few if len(few) < 6 else few
        [long] = translator.translate([" ".join(texts)], Search(max_extra=0))
        assert long.num_parts == len(texts)
        assert long.ended == all(part.ended for part in parts if part.source in texts)


def test_half_a_character_is_refused_wherever_a_text_is_taken(translator: Translator) -> None:
    """A terminal of another encoding makes lone surrogates of input, and so do JSON's escapes."""
    whole, half = "Ich bin müde.", "m\udcfcde"
    with pytest.raises(UserError, match="text 2 is not UTF-8 text: its character 2 is half"):
        translator.translate([whole, half])
    with pytest.raises(UserError, match="prefix 1 is not UTF-8 text"):
        translator.translate([whole], prefixes=[half])
    with pytest.raises(UserError, match="source 1 is not UTF-8 text"):
        translator.score([half], [whole])
    with pytest.raises(UserError, match="target 1 is not UTF-8 text"):
        translator.score([whole], [half], pieces=True)
    with pytest.raises(UserError, match="target: piece 1 is not UTF-8 text"):
        translator.ids_of([half], "target")
    for question in (Question(text=half), Question(text=whole, target=half), Question(text=whole, target_pieces=(half,))):
        with pytest.raises(UserError, match="is not UTF-8 text"):
            look(translator, question)


def test_a_trace_is_the_models_pass_over_the_pieces_it_names(translator: Translator) -> None:
    source, target = "Guten Morgen!", "Good morning!"
    traced = translator.trace(source, target)
    [src], [tgt] = translator.tokenizer.src.encode([source]), translator.tokenizer.tgt.encode([target])
    batch = collate([src], [tgt])
    assert_close(traced.trace.logits, translator.models[0](batch.src, batch.tgt_in))
    assert traced.source_pieces == (*translator.tokenizer.src.pieces(src), "</s>")
    assert traced.target_pieces == (*translator.tokenizer.tgt.pieces(tgt), "</s>")
    weights = traced.trace.decoder.cross_attention[0].weights
    assert weights.shape[2:] == (len(traced.target_pieces), len(traced.source_pieces))


def test_without_a_target_the_own_translation_is_traced_also_under_an_intervention(translator: Translator) -> None:
    [translation] = translator.translate(["Guten Morgen!"])
    own = translator.trace("Guten Morgen!")
    assert own.target_pieces == (*translation.pieces, "</s>")
    log_probs = own.trace.logits[0].log_softmax(-1)
    ids = [*translator.ids_of(translation.pieces, "translation"), EOS_ID]
    assert log_probs[range(len(ids)), ids].tolist() == pytest.approx(
        [token.log_prob for token in translation.tokens], abs=1e-4
    )
    off = Intervention(heads_off=frozenset({Head("cross", 0, 0)}))
    changed = translator.trace("Guten Morgen!", intervention=off)
    assert changed.target_pieces == own.target_pieces
    assert (changed.trace.logits - own.trace.logits).abs().max() > 0


def test_a_trace_is_of_one_sentence(translator: Translator) -> None:
    for text, told in (("", "0 parts"), ("Das ist ein Satz. " * 60, "parts")):
        with pytest.raises(UserError, match=told):
            translator.trace(text)
    with pytest.raises(UserError, match="there is no cross head 99"):
        translator.trace("Danke.", intervention=Intervention(heads_off=frozenset({Head("cross", 0, 99)})))


def test_public_names_are_found_without_importing_torch_before() -> None:
    script = """import sys, regard
assert "torch" not in sys.modules
import regard.evaluate, regard.train
assert "torch" not in sys.modules
assert all(getattr(regard, name) is not None for name in regard.__all__)
import regard.train.command, regard.evaluate.metrics
assert callable(regard.train) and callable(regard.evaluate), "the packages are functions whatever was imported"
assert regard.train.command.run and regard.evaluate.metrics.bleu"""
    subprocess.run([sys.executable, "-c", script], check=True)
