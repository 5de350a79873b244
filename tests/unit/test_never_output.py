"""Tests that PAD and BOS are never output, however probable a model finds them, and that all else is unchanged."""

import itertools
import math
import random
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from regard.fast.decoding.search import StaticSearch
from regard.generate.generator import Generation, load_language
from regard.model.sequence import EncoderDecoder
from regard.model.transformer import Transformer
from regard.search.beam import beam
from regard.search.ensemble import Caches, ensemble
from regard.search.greedy import greedy
from regard.search.hypothesis import forbid, length_penalty
from regard.search.sample import Sampling, sample
from regard.text.tokenizer import BOS_ID, EOS_ID, NEVER_OUTPUT, PAD_ID
from regard.translate.search import Search, Searcher
from regard.translate.translator import Translator, load
from tests.oracles.runs import make_recurrent, make_tokenizer, make_translator, sentences, write_run
from tests.oracles.table_model import TableCache, TableModel, random_table
from tests.unit.test_generate import write_language_run

V = 6
SEARCHES = (Search(beam=1), Search(num_best=4), Search(samples=8, num_best=8), Search(beam=4, minimum_risk=True))


def favouring(seed: int) -> TableModel:
    """Return a table in which PAD and BOS have most of the probability at every step."""
    table = random_table(seed, V)

    def favoured(sentence: int, prefix: tuple[int, ...]) -> list[float]:
        row = table(sentence, prefix)
        return [
            p * (0.1 if token not in NEVER_OUTPUT else 1) + (0.45 if token in NEVER_OUTPUT else 0)
            for token, p in enumerate(row)
        ]

    return TableModel(favoured)


def allowed(model: TableModel) -> Any:
    def step(ids: Tensor, cache: TableCache) -> Tensor:
        return forbid(model.step(ids, cache), NEVER_OUTPUT)

    return step


def test_every_search_finds_what_brute_force_finds_without_them() -> None:
    """Compare with all sequences of the other tokens, by the model's own log-probabilities."""
    for seed in range(40):
        model, limit, alpha = favouring(seed), 3, random.Random(seed).choice([0.0, 0.6])
        words = [token for token in range(V) if token not in (*NEVER_OUTPUT, EOS_ID)]
        every = [ids for length in range(limit + 1) for ids in itertools.product(words, repeat=length)]
        scores = {ids: model.log_prob(0, BOS_ID, [*ids, EOS_ID]) / length_penalty(len(ids) + 1, alpha) for ids in every}
        ranked = sorted(every, key=lambda ids: -scores[ids])
        [found] = beam(
            allowed(model), model.start(), [limit], width=len(every), bos_id=BOS_ID, eos_id=EOS_ID, alpha=alpha, num_best=5
        )
        assert [one.ids for one in found.hypotheses] == ranked[:5]
        assert [one.score for one in found.hypotheses] == pytest.approx([scores[ids] for ids in ranked[:5]])

        [first] = greedy(allowed(model), model.start(), [limit], bos_id=BOS_ID, eos_id=EOS_ID)
        prefix: tuple[int, ...] = ()
        while len(prefix) < limit:
            row = model.table(0, (BOS_ID, *prefix))
            token = max((*words, EOS_ID), key=lambda one: row[one])
            if token == EOS_ID:
                break
            prefix = (*prefix, token)
        assert first.ids == prefix and first.log_prob == pytest.approx(model.log_prob(0, BOS_ID, [*prefix, EOS_ID]))


def test_samples_follow_what_is_left() -> None:
    """Draw one token evenly: the shares are those of the tokens that are allowed."""
    model, count = favouring(1), 2000
    evenly = ((torch.arange(count) + 0.5) / count)[None, :, None].expand(1, count, 2)
    [found] = sample(allowed(model), model.start(), [1], evenly, sampling=Sampling(), bos_id=BOS_ID, eos_id=EOS_ID)
    row = model.table(0, (BOS_ID,))
    rest = sum(p for token, p in enumerate(row) if token not in NEVER_OUTPUT)
    for token in range(EOS_ID, V):
        ids = () if token == EOS_ID else (token,)
        assert abs([one.ids for one in found].count(ids) - count * row[token] / rest) <= 1
    assert all(one.log_prob == pytest.approx(model.log_prob(0, BOS_ID, [*one.ids, EOS_ID])) for one in found[:50])


def test_an_ensemble_of_such_models_neither() -> None:
    one, other = favouring(1), favouring(2)
    step = ensemble([allowed(one), allowed(other)])
    [found] = beam(step, Caches((one.start(), other.start())), [5], width=4, bos_id=BOS_ID, eos_id=EOS_ID, num_best=4)
    for hypothesis in found.hypotheses:
        assert not set(hypothesis.ids) & set(NEVER_OUTPUT)
        assert all(map(math.isfinite, hypothesis.log_probs))


@pytest.fixture(scope="module", params=["transformer", "rnn-attention", "two"])
def favouring_translator(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Translator:
    """Return models whose output bias makes PAD and BOS by far the most probable tokens."""
    tokenizer = make_tokenizer()
    transformer = make_translator(tokenizer, output_bias=True)
    recurrent = make_recurrent(tokenizer, kind="rnn-attention")
    models: dict[str, list[EncoderDecoder]] = {
        "transformer": [transformer],
        "rnn-attention": [recurrent],
        "two": [transformer, recurrent],
    }
    folder = tmp_path_factory.mktemp("runs")
    for number, model in enumerate(models[request.param]):
        assert model.output_bias is not None
        model.output_bias[list(NEVER_OUTPUT)] = 20.0
        write_run(folder / str(number), model, tokenizer)
    return load(*sorted(folder.iterdir()), device="cpu")


@pytest.mark.parametrize("search", SEARCHES)
def test_what_is_found_can_be_scored_and_scores_the_same(
    favouring_translator: Translator, monkeypatch: pytest.MonkeyPatch, search: Search
) -> None:
    """Use static shapes as well, where a model has them."""
    translator = favouring_translator
    assert_scored(translator, search)
    if len(translator.models) == 1 and isinstance(translator.models[0], Transformer):
        static = StaticSearch(translator.models[0])
        monkeypatch.setattr(Searcher, "static", property(lambda _: static))
        assert_scored(translator, search)


def assert_scored(translator: Translator, search: Search) -> None:
    texts = sentences(8, seed=4)
    found = [
        (text, one)
        for text, first in zip(texts, translator.translate(texts, search), strict=True)
        for one in (first, *first.alternatives)
    ]
    assert any(one.pieces for _, one in found), "all empty would prove nothing"
    pieces = [" ".join(one.pieces) for _, one in found]
    scored = translator.score([text for text, _ in found], pieces, pieces=True, alpha=search.alpha)
    for (_, one), again in zip(found, scored, strict=True):
        assert again.pieces == one.pieces
        assert again.score == pytest.approx(one.score, abs=2e-3)


def test_language_models_say_neither(tmp_path: Path) -> None:
    write_language_run(tmp_path / "run")
    generator = load_language(tmp_path / "run", device="cpu")
    assert generator.model.lm_head is not None
    with torch.no_grad():
        generator.model.lm_head.weight[PAD_ID] *= 30  # large, with changing sign
        generator.model.lm_head.weight[BOS_ID] *= 30
    generator.model.pack()
    for how in (Generation(greedy=True, max_tokens=12), Generation(num=4, max_tokens=12)):
        texts = [text for of_prompt in generator.generate(["", *sentences(4, seed=8)], how) for text in of_prompt]
        assert any(text.pieces for text in texts)
        ids = {token for text in texts for token in generator.tokenizer.tgt.ids(text.pieces)}
        assert not ids & set(NEVER_OUTPUT)
        assert all(math.isfinite(log_prob) for text in texts for log_prob in text.log_probs)
