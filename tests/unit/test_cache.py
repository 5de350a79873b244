"""Tests that decoding step by step with a cache equals one pass, whatever is done to the rows in between."""

import itertools
import random
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.utils.rnn import pad_sequence
from torch.utils.flop_counter import FlopCounterMode

from regard.model.cache import FIRST_ROOM, DecoderCache
from regard.model.sequence import EncoderDecoder
from regard.model.transformer import Transformer
from tests.conftest import VOCAB_SIZE, make_model, make_system

Ids = Callable[[int, int], Tensor]


def ragged_source(model: EncoderDecoder, ids: Ids) -> Tensor:
    src = ids(3, 9)
    src[1, 4:] = model.config.pad_id
    src[2, 7:] = model.config.pad_id
    return src


def one_pass(model: EncoderDecoder, src: Tensor, tgt: Tensor) -> Tensor:
    with torch.no_grad():
        logits: Tensor = model(src, tgt)
    return logits.log_softmax(-1)


@pytest.mark.parametrize("score", ["additive", "dot", "scaled"])
@pytest.mark.parametrize("cell", ["lstm", "gru"])
@pytest.mark.parametrize("kind", ["rnn", "rnn-attention"])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-5)])
def test_every_step_of_an_rnn_equals_one_pass(
    ids: Ids, kind: str, cell: str, score: str, dtype: torch.dtype, tolerance: float
) -> None:
    model = make_system(dtype, kind=kind, cell=cell, score=score)
    src, tgt = ragged_source(model, ids), ids(3, 8)
    cache = model.start(src)
    steps = torch.stack([model.step(tgt[:, t], cache) for t in range(8)], dim=1)
    torch.testing.assert_close(steps, one_pass(model, src, tgt), atol=tolerance, rtol=0)


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("positions", ["sinusoidal", "learned", "none"])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-5)])
def test_every_step_equals_one_pass(ids: Ids, norm: str, positions: str, dtype: torch.dtype, tolerance: float) -> None:
    model = make_model(dtype, norm=norm, positions=positions)
    src, tgt = ragged_source(model, ids), ids(3, 8)
    cache = model.start(src)
    steps = torch.stack([model.step(tgt[:, t], cache) for t in range(8)], dim=1)
    torch.testing.assert_close(steps, one_pass(model, src, tgt), atol=tolerance, rtol=0)
    assert cache.lengths.tolist() == [8, 8, 8]


def test_beams_may_be_reordered_repeated_widened_and_narrowed(system: Any, ids: Ids) -> None:
    """Keep each row's history as plain lists; after every step the cache must agree with a pass over them."""
    src = ragged_source(system, ids)
    cache = system.start(src)
    histories: list[list[list[int]]] = [[[]] for _ in range(3)]
    for width in (3, 3, 1, 4, 4, 2):
        parents = torch.randint(0, cache.shape[1], (3, width))
        cache.select(parents)
        histories = [[list(beams[p]) for p in row] for beams, row in zip(histories, parents.tolist(), strict=True)]
        tokens = ids(3, width)
        for beams, row in zip(histories, tokens.tolist(), strict=True):
            for beam, token in zip(beams, row, strict=True):
                beam.append(token)
        log_probs = system.step(tokens.flatten(), cache).view(3, width, VOCAB_SIZE)
        for b in range(3):
            expected = one_pass(system, src[b : b + 1].expand(width, -1), torch.tensor(histories[b]))[:, -1]
            torch.testing.assert_close(log_probs[b], expected, atol=1e-12, rtol=0)


def test_sentences_may_be_dropped_reordered_and_repeated(system: Any, ids: Ids) -> None:
    src, tgt = ragged_source(system, ids), ids(6, 5)
    cache = system.start(src, width=2)
    for t in range(3):
        system.step(tgt[:, t], cache)
    cache.select_sentences(torch.tensor([2, 0, 2]))
    rows = torch.tensor([4, 5, 0, 1, 4, 5])
    log_probs = system.step(tgt[rows, 3], cache)
    expected = one_pass(system, src[[2, 2, 0, 0, 2, 2]], tgt[rows, :4])[:, -1]
    torch.testing.assert_close(log_probs, expected, atol=1e-12, rtol=0)


@pytest.mark.parametrize("waiting_length", [3, 9, 14])
def test_a_finished_sentence_makes_room_for_a_waiting_one(system: Any, ids: Ids, waiting_length: int) -> None:
    """Rows of different lengths are decoded together; the new source may be shorter or longer than the others."""
    src, tgt = ragged_source(system, ids), ids(3, 12)
    waiting = ids(1, waiting_length)
    cache = system.start(src)
    for t in range(4):
        system.step(tgt[:, t], cache)
    cache.replace(torch.tensor([1]), system.start(waiting))
    assert cache.lengths.tolist() == [4, 0, 4]
    new_tgt = ids(1, 5)
    for t in range(5):
        tokens = torch.tensor([tgt[0, 4 + t], new_tgt[0, t], tgt[2, 4 + t]])
        log_probs = system.step(tokens, cache)
        torch.testing.assert_close(log_probs[1], one_pass(system, waiting, new_tgt[:, : t + 1])[0, -1], atol=1e-12, rtol=0)
        for row in (0, 2):
            expected = one_pass(system, src[row : row + 1], tgt[row : row + 1, : 5 + t])[0, -1]
            torch.testing.assert_close(log_probs[row], expected, atol=1e-12, rtol=0)


@dataclass
class Sentence:
    """The expected history of one sentence in the cache, as plain lists."""

    src: list[int]
    beams: list[list[int]]


@pytest.mark.parametrize("walk", range(6))
def test_any_sequence_of_operations_leaves_every_row_with_its_own_past(
    system: Any, walk: int, seed: int, request: pytest.FixtureRequest
) -> None:
    """Apply random sequences of select, select_sentences, replace (by caches that have stepped before) and step, at several
    widths, and compare with passes over each row's history."""
    if walk:
        request.getfixturevalue("unchecked")
    chance = random.Random(seed)

    def random_sentences(count: int) -> list[Sentence]:
        return [Sentence(chance.choices(range(1, VOCAB_SIZE), k=chance.randint(1, 9)), [[]]) for _ in range(count)]

    def fresh(sentences: list[Sentence], width: int) -> Any:
        src = pad_sequence([torch.tensor(sentence.src) for sentence in sentences], batch_first=True)
        for sentence in sentences:
            sentence.beams = [[] for _ in range(width)]
        return system.start(src, width=width)

    def step(cache: Any, sentences: list[Sentence]) -> None:
        rows = [beam for sentence in sentences for beam in sentence.beams]
        for row in rows:
            row.append(chance.randrange(1, VOCAB_SIZE))
        log_probs = system.step(torch.tensor([row[-1] for row in rows]), cache)
        sources = [sentence.src for sentence in sentences for _ in sentence.beams]
        for actual, source, row in zip(log_probs, sources, rows, strict=True):
            expected = one_pass(system, torch.tensor([source]), torch.tensor([row]))[0, -1]
            torch.testing.assert_close(actual, expected, atol=1e-12, rtol=0)
        assert cache.lengths.tolist() == [len(sentence.beams[0]) for sentence in sentences]
        if isinstance(cache, DecoderCache):
            assert cache.longest >= max(len(row) for row in rows)

    sentences = random_sentences(3)
    cache = fresh(sentences, width=2)
    for _ in range(40):
        match chance.randrange(4):
            case 0:
                width = chance.choice([1, cache.shape[1], cache.shape[1], 3])
                parents = [chance.choices(range(cache.shape[1]), k=width) for _ in sentences]
                cache.select(torch.tensor(parents))
                for sentence, row in zip(sentences, parents, strict=True):
                    sentence.beams = [list(sentence.beams[parent]) for parent in row]
            case 1:
                chosen = chance.choices(range(len(sentences)), k=chance.randint(1, 3))
                cache.select_sentences(torch.tensor(chosen))
                sentences = [deepcopy(sentences[n]) for n in chosen]
            case 2:
                places = chance.sample(range(len(sentences)), k=chance.randint(1, len(sentences)))
                waiting = random_sentences(len(places))
                other = fresh(waiting, cache.shape[1])
                for _ in range(chance.randint(0, 2)):
                    step(other, waiting)
                cache.replace(torch.tensor(places), other)
                for place, sentence in zip(places, waiting, strict=True):
                    sentences[place] = sentence
            case _:
                pass
        step(cache, sentences)


def test_misuse_is_caught(ids: Ids) -> None:
    model = make_model(positions="learned")
    cache = model.start(ids(3, 4), width=2)
    with pytest.raises(AssertionError, match="beams are numbered 0 to 1"):
        cache.select(torch.tensor([[0, 1], [2, 3], [0, 1]]))
    with pytest.raises(AssertionError, match="1 tokens for 6 rows"):
        model.step(torch.tensor([1]), cache)
    cache = model.start(ids(1, 4))
    for _ in range(64):
        model.step(torch.tensor([1]), cache)
    with pytest.raises(ValueError, match="65 tokens is longer than the 64 learned positions"):
        model.step(torch.tensor([1]), cache)
    with pytest.raises(ValueError, match=r"call model\.eval\(\) first"):
        model.train().start(ids(1, 4))


def test_when_the_oldest_leave_the_others_have_their_positions(ids: Ids) -> None:
    model = make_model(positions="learned")
    cache = model.start(ids(2, 4))
    for _ in range(60):
        model.step(torch.tensor([1, 1]), cache)
    cache.replace(torch.tensor([1]), model.start(ids(1, 4)))
    for _ in range(4):
        model.step(torch.tensor([1, 1]), cache)
    cache.select_sentences(torch.tensor([1]))
    for _ in range(60):  # the model has 64 positions
        model.step(torch.tensor([1]), cache)


def test_nothing_can_be_started(system: Any) -> None:
    cache = system.start(torch.empty(0, 3, dtype=torch.long))
    assert system.step(torch.tensor([], dtype=torch.long), cache).shape == (0, VOCAB_SIZE)


def test_an_emptied_cache_takes_an_empty_step(system: Any, ids: Ids) -> None:
    cache = system.start(ids(2, 4), width=3)
    system.step(torch.ones(6, dtype=torch.long), cache)
    cache.select_sentences(torch.tensor([], dtype=torch.long))
    assert system.step(torch.tensor([], dtype=torch.long), cache).shape == (0, VOCAB_SIZE)


def test_steps_and_traces_carry_no_gradients(model: Transformer, ids: Ids) -> None:
    cache = model.start(ids(1, 4))
    assert not cache.memory.requires_grad
    assert not model.step(torch.tensor([1]), cache).requires_grad
    assert not model.trace(ids(1, 4), ids(1, 2)).logits.requires_grad


def test_sentences_that_come_and_go_for_ever_need_no_more_room(model: Transformer, ids: Ids) -> None:
    """Slots without descendants are freed, because a server replaces sentences indefinitely."""
    cache = model.start(ids(2, 4), width=2)
    for turn in range(200):
        model.step(torch.ones(4, dtype=torch.long), cache)
        if turn % 5 == 4:
            cache.replace(torch.tensor([turn % 2]), model.start(ids(1, 4), width=2))
    assert cache.capacity == FIRST_ROOM
    assert cache.longest <= 10


def test_work_per_step_grows_with_the_length_at_most(model: Transformer, ids: Ids) -> None:
    """Count multiplications: a step attends to the positions before it and computes none of them again."""
    cache = model.start(ids(2, 5))
    counts = []
    for _ in range(64):
        with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:  # fused kernels are not counted
            model.step(torch.ones(2, dtype=torch.long), cache)
        counts.append(counter.get_total_flops())
    increments = {later - earlier for earlier, later in itertools.pairwise(counts)}
    # Two rows, two layers: scores and weighted sum over one more position of 16 dimensions, 2 operations each.
    assert increments == {2 * 2 * 2 * 16 * 2}


def test_room_doubles_and_changing_beams_moves_nothing(model: Transformer, ids: Ids) -> None:
    src = ids(2, 4)
    cache: DecoderCache = model.start(src, width=3)
    places = set()
    for _ in range(FIRST_ROOM // 3 - 10):
        model.step(torch.ones(6, dtype=torch.long), cache)
        before = cache.past[..., : cache.extent, :].clone()  # slots behind the extent are uninitialised
        cache.select(torch.tensor([[2, 1, 0], [1, 2, 0]]))  # each beam survives, so that no slot can be freed
        assert torch.equal(cache.past[..., : cache.extent, :], before)
        places.add(cache.past.data_ptr())
    assert len(places) == 1
    for _ in range(20):
        log_probs = model.step(torch.ones(6, dtype=torch.long), cache)
    expected = one_pass(model, src, torch.ones(2, int(cache.lengths[0]), dtype=torch.long))[:, -1]
    torch.testing.assert_close(log_probs, expected.repeat_interleave(3, 0), atol=1e-12, rtol=0)
    assert cache.past.shape == (2, 2, 2, 4, 2 * FIRST_ROOM, 4)


def test_long_outputs_attend_to_little_more_than_their_own_past(model: Transformer, ids: Ids) -> None:
    """Beams share their common past: slots grow with the length, not with length times width."""
    cache = model.start(ids(2, 4), width=4)
    for turn in range(400):
        model.step(torch.ones(8, dtype=torch.long), cache)
        cache.select(torch.tensor([[turn % 4, 0, 1, 1], [0, 0, 0, 0]]))
    assert cache.capacity <= 1024


def test_an_empty_source_gives_finite_log_probabilities(system: Any) -> None:
    """A row of padding attends to nothing; it must give no NaN for itself or its neighbour."""
    src = torch.tensor([[0, 0, 0], [3, 4, 5]])
    cache = system.start(src)
    assert system.step(torch.tensor([1, 1]), cache).isfinite().all()
    assert system(src, torch.tensor([[1, 2], [1, 2]])).isfinite().all()
