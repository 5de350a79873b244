"""Tests of static decoding with continuous batching against `beam` and `greedy`."""

import random
from itertools import pairwise
from typing import Any

import pytest
import torch

from regard.fast.decoding import batching
from regard.fast.decoding.decoder import Extent, StaticDecoder, positions_for, power_of_two
from regard.fast.decoding.search import StaticSearch
from regard.fast.support import runs_kernels
from regard.model.transformer import Transformer
from regard.search.hypothesis import Hypothesis, Sentence
from regard.translate.search import Search, Searcher
from tests.conftest import VOCAB_SIZE, make_model

TOLERANCES = {torch.float64: 1e-10, torch.float32: 1e-5}


def random_sentences(chance: random.Random, count: int, *, longest: int = 12, most_extra: int = 20) -> list[Sentence]:
    """Return sentences of various lengths, some with a prefix, some with a limit of 0."""
    sentences = []
    for _ in range(count):
        ids = [chance.randrange(4, VOCAB_SIZE) for _ in range(chance.randint(1, longest))]
        limit = chance.randint(0, len(ids) + most_extra)
        prefix = [chance.randrange(4, VOCAB_SIZE) for _ in range(chance.choice([0, 0, 1, 4]))][:limit]
        sentences.append(Sentence(ids, limit, prefix))
    return sentences


def both_roads(model: Transformer) -> tuple[StaticSearch, Searcher]:
    """Return the static search, and the plain one that it is compared with."""
    return StaticSearch(model), Searcher((model,), fast=False)


def assert_same(found: list[list[Hypothesis]], expected: list[list[Hypothesis]], tolerance: float) -> None:
    assert len(found) == len(expected)
    for ours, theirs in zip(found, expected, strict=True):
        assert [one.ids for one in ours] == [one.ids for one in theirs]
        for one, other in zip(ours, theirs, strict=True):
            assert one.log_probs == pytest.approx(other.log_probs, abs=tolerance)
            assert one.score == pytest.approx(other.score, abs=10 * tolerance)


def ending_model(dtype: torch.dtype = torch.float64, bias: float = 1.0, **changes: Any) -> Transformer:
    """Return a model whose outputs end at various lengths, which a random one hardly ever does."""
    model = make_model(dtype, output_bias=True, **changes)
    assert model.output_bias is not None
    with torch.no_grad():
        model.output_bias[2] += bias
    return model


@pytest.mark.parametrize(
    ("width", "num_places", "alpha", "dtype"),
    [
        (1, 1, 0.6, torch.float64),
        (1, 8, 0.0, torch.float32),
        (1, 32, 0.6, torch.float64),
        (2, 5, -1.0, torch.float64),
        (3, 1, 0.0, torch.float64),
        (4, 3, 0.6, torch.float32),
        (4, 8, 0.0, torch.float64),
        (7, 4, 1.0, torch.float64),
        (15, 32, 0.6, torch.float64),  # more proposals than there are tokens
    ],
)
def test_a_queue_finds_what_a_batch_finds(width: int, num_places: int, alpha: float, dtype: torch.dtype) -> None:
    chance = random.Random(width * num_places)
    static, plain = both_roads(ending_model(dtype))
    sentences = random_sentences(chance, min(20, 5 * num_places))
    num_best = chance.randint(1, width)
    found = static.search(sentences, width=width, alpha=alpha, num_best=num_best, num_places=num_places)
    expected = plain.search(sentences, Search(beam=width, alpha=alpha, num_best=num_best))
    assert_same(found, expected, TOLERANCES[dtype])
    assert len({len(one.ids) for ones in found for one in ones}) > 2, "all alike would prove little"


@pytest.mark.parametrize(
    "changes",
    [
        {"norm": "pre"},
        {"positions": "learned"},
        {"positions": "none"},
        {"shared_embeddings": "none", "activation": "gelu"},
        {"ablation": "projections"},
        {"ablation": "key-value"},
    ],
    ids=str,
)
def test_every_transformer_goes_through_a_queue(changes: dict[str, Any]) -> None:
    model = ending_model(**changes)
    sentences = random_sentences(random.Random(1), 8)
    static, plain = both_roads(model)
    for width in (1, 3):
        found = static.search(sentences, width=width, alpha=0.6, num_places=4)
        assert_same(found, plain.search(sentences, Search(beam=width, alpha=0.6)), 1e-10)


@pytest.mark.parametrize("width", [1, 3])
def test_outputs_outgrow_a_size_and_learned_positions_suffice_to_the_last(width: int) -> None:
    """A model that never ends fills every output to its limit, past 32, 64, 96 positions, and up to the last position."""
    limits = [5, 31, 32, 63, 64, 96, 99]
    sentences = [Sentence([4 + n, 5], limit) for n, limit in enumerate(limits)]
    for positions in ("sinusoidal", "learned"):
        static, plain = both_roads(ending_model(bias=-50.0, positions=positions, max_positions=100))
        found = static.search(sentences, width=width, alpha=0.6)
        assert [len(ones[0].ids) for ones in found] == limits
        assert_same(found, plain.search(sentences, Search(beam=width, alpha=0.6)), 1e-10)


@pytest.mark.parametrize("count", [200, pytest.param(4000, marks=pytest.mark.slow)])
def test_any_sentences_through_any_number_of_places(monkeypatch: pytest.MonkeyPatch, count: int, seed: int) -> None:
    """Find the plain search's hypotheses with limits from 0, prefixes, 1 to 128 places, and any width, penalty and interval
    between checks by the host. Models end their sentences at many different lengths."""
    chance = random.Random(seed)
    monkeypatch.setattr(batching, "FEWEST_PLACES", 1)
    done = 0
    while done < count:
        width, alpha = chance.choice([1, 1, 2, 4, 5]), chance.choice([0.0, 0.6, 1.5, -0.5])
        num_best = chance.randint(1, width)
        monkeypatch.setattr(batching, "LAG", chance.randint(0, 3))
        monkeypatch.setattr(batching, "REFILLED_AT_ONCE", chance.choice([1, 2, 8]))
        monkeypatch.setattr(batching, "ENCODED_TOKENS", chance.choice([8, 100, 16384]))
        static, plain = both_roads(ending_model(bias=chance.uniform(-1.0, 4.0), decoder_layers=1, encoder_layers=1))
        sentences = random_sentences(chance, chance.randint(1, 200), longest=chance.choice([3, 12]), most_extra=12)
        found = static.search(
            sentences, width=width, alpha=alpha, num_best=num_best, num_places=chance.choice([0, 1, 2, 7, 32, 128])
        )
        expected = plain.search(sentences, Search(beam=width, alpha=alpha, num_best=num_best))
        # If two hypotheses are equally good, rounding decides which comes first.
        tied = [n for n, ones in enumerate(expected) if any(abs(a.score - b.score) < 1e-9 for a, b in pairwise(ones))]
        assert len(tied) <= len(sentences) // 50
        rest = [n for n in range(len(sentences)) if n not in tied]
        assert_same([found[n] for n in rest], [expected[n] for n in rest], 1e-10)
        done += len(sentences)


@pytest.mark.parametrize(("lag", "at_once"), [(0, 8), (1, 1), (3, 4)])
def test_when_the_host_looks_changes_nothing(monkeypatch: pytest.MonkeyPatch, lag: int, at_once: int) -> None:
    monkeypatch.setattr(batching, "LAG", lag)
    monkeypatch.setattr(batching, "REFILLED_AT_ONCE", at_once)
    monkeypatch.setattr(batching, "FEWEST_PLACES", 1)
    monkeypatch.setattr(batching, "ENCODED_TOKENS", 30)
    sentences = random_sentences(random.Random(lag + at_once), 20)
    static, plain = both_roads(ending_model())
    for width in (1, 4):
        found = static.search(sentences, width=width, alpha=0.6, num_best=width, num_places=8)
        assert_same(found, plain.search(sentences, Search(beam=width, alpha=0.6, num_best=width)), 1e-10)


def test_a_rig_is_kept_while_it_has_room_and_its_model_stays_where_it_is() -> None:
    model = ending_model()
    static, plain = both_roads(model)
    sentences = random_sentences(random.Random(3), 6)
    static.search(sentences, width=3, alpha=0.6)
    first = static.decoders[3, 1]
    fewer = static.search(sentences[:2], width=3, alpha=0.0)
    assert static.decoders[3, 1] is first, "what was there before must not be seen"
    assert_same(fewer, plain.search(sentences[:2], Search(beam=3, alpha=0.0)), 1e-10)
    with torch.no_grad():
        model.output_weight.mul_(1.5)  # as a training step does
    again = static.search(sentences, width=3, alpha=0.6)
    assert static.decoders[3, 1] is first
    assert_same(again, plain.search(sentences, Search(beam=3, alpha=0.6)), 1e-10)
    static.search([Sentence([5] * 40, 90)], width=3, alpha=0.6)
    second = static.decoders[3, 1]
    assert second is not first and second.extent == Extent(8, 96, 64), "room for all so far"
    model.embeddings.src.weight.data = model.embeddings.src.weight.data.clone()
    assert not second.is_current
    static.search(sentences, width=3, alpha=0.6)
    static.search(sentences, width=1, alpha=0.6)
    static.search(sentences, width=2, alpha=0.6)
    assert list(static.decoders) == [(1, 1), (2, 1)], "only the latest few"


def test_an_accident_leaves_nothing_behind() -> None:
    model = ending_model(bias=-50.0)
    static, plain = both_roads(model)
    sentences = random_sentences(random.Random(4), 6)
    with torch.no_grad():
        weights = model.decoder[0].feed_forward.outer.bias.clone()
        model.decoder[0].feed_forward.outer.bias[:] = torch.nan
    with pytest.raises(AssertionError, match="not numbers"):
        static.search(sentences, width=3, alpha=0.6)
    with torch.no_grad():
        model.decoder[0].feed_forward.outer.bias[:] = weights
    found = static.search(sentences, width=3, alpha=0.6)
    assert_same(found, plain.search(sentences, Search(beam=3, alpha=0.6)), 1e-10)


def test_a_step_allocates_nothing_that_stays_and_moves_nothing() -> None:
    """A CUDA graph needs persistent tensors to keep their addresses from step to step."""
    decoder = StaticDecoder.of(ending_model(), Extent(4, 32, 32), width=3, num_best=1, graphs=False)
    sentences = random_sentences(random.Random(5), 4)

    def addresses() -> list[int]:
        owners = (decoder.cache, decoder.state)
        return [value.data_ptr() for one in owners for value in vars(one).values() if isinstance(value, torch.Tensor)]

    before = addresses()
    decoder.begin(0.6)
    decoder.fill([3, 1, 0, 2], decoder.encode(sentences), range(4), sentences)
    for _ in range(5):
        decoder.step(Extent(4, 32, 32))
    decoder.move([3], [1])
    assert addresses() == before


def test_sizes_are_few_and_enough() -> None:
    assert [positions_for(n, 10**6) for n in (1, 32, 33, 65, 97, 129, 193, 257, 385, 513)] == [
        32, 32, 64, 96, 128, 192, 256, 384, 512, 768,
    ]  # fmt: skip
    assert positions_for(70, 80) == 80
    assert [power_of_two(n) for n in (1, 2, 3, 4, 5, 128, 129)] == [1, 2, 4, 4, 8, 128, 256]


CUDA = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")


@CUDA
@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("width", [1, 4])
def test_captured_steps_find_what_a_batch_finds(width: int, dtype: torch.dtype) -> None:
    model = ending_model(dtype, d_model=32, num_heads=2).to("cuda")  # head sizes of our own kernels, if in float32
    sentences = random_sentences(random.Random(width), 300, longest=50)
    graphs, eager = StaticSearch(model), StaticSearch(model, graphs=False)
    for num_best in range(1, width + 1):
        expected = Searcher((model,), fast=False).search(sentences, Search(beam=width, alpha=0.6, num_best=num_best))
        for num_places, count in ((1, 20), (16, 100), (128, 300)):  # with one place, each token takes a step
            for static in (graphs, eager, graphs):
                found = static.search(sentences[:count], width=width, alpha=0.6, num_best=num_best, num_places=num_places)
                assert_same(found, expected[:count], 10 * TOLERANCES[dtype])
    decoder = graphs.decoders[width, width]
    assert decoder.graphs is not None and decoder.graphs.captured, "nothing was captured"
    assert decoder.cache.kernels == (dtype == torch.float32 and runs_kernels(decoder.device))
