"""Tests that batches hold every pair once, within the budget, in an order that depends only on seed and epoch."""

from itertools import pairwise

import numpy as np
import pytest

from regard.data.batch import Batch, Pairs, collate, of_similar_lengths
from regard.data.batching import (
    Indices,
    PairLengths,
    epoch_batches,
    epoch_pairs,
    packed_batches,
    packed_size,
    padding_share,
)
from regard.data.store import Ragged


def random_lengths(count: int, seed: int = 0) -> PairLengths:
    """Return targets of 1 to 60 tokens, and sources of about the same length."""
    random = np.random.default_rng(seed)
    tgt = random.gamma(3.0, 5.0, count).astype(np.int64) + 1
    src = np.maximum(1, (tgt * random.normal(1.0, 0.2, count)).astype(np.int64))
    return PairLengths.of(src, tgt)


def batches_of(lengths: PairLengths, *, batch_tokens: int = 512, seed: int = 1, epoch: int = 0) -> list[Indices]:
    pairs = epoch_pairs(np.ones(len(lengths.src)), seed=seed, epoch=epoch)
    return epoch_batches(lengths, pairs, batch_tokens=batch_tokens, seed=seed, epoch=epoch)


@pytest.mark.parametrize("count", [0, 1, 2, 999])
@pytest.mark.parametrize("batch_tokens", [1, 100, 4096, 10**9])
def test_every_pair_exactly_once_and_no_batch_over_its_budget(count: int, batch_tokens: int) -> None:
    lengths = random_lengths(count)
    batches = batches_of(lengths, batch_tokens=batch_tokens)
    assert sorted(np.concatenate([*batches, np.zeros(0, dtype=np.int64)]).tolist()) == list(range(count))
    for batch in batches:
        size = len(batch) * max(lengths.src[batch].max(), lengths.tgt[batch].max())
        assert size <= batch_tokens or len(batch) == 1


def test_the_order_is_a_function_of_seed_and_epoch() -> None:
    lengths = random_lengths(2000)

    def order(seed: int, epoch: int) -> list[list[int]]:
        return [batch.tolist() for batch in batches_of(lengths, seed=seed, epoch=epoch)]

    assert order(1, 0) == order(1, 0)
    assert order(1, 0) != order(1, 1) and order(1, 0) != order(2, 0)
    together = [{frozenset(batch) for batch in order(1, epoch)} for epoch in (0, 1)]
    assert len(together[0] & together[1]) < len(together[0]) / 10  # pairs have other neighbours, not only another order


def test_batches_come_in_no_order_of_length() -> None:
    lengths = random_lengths(5000)
    longest = [lengths.tgt[batch].max() for batch in batches_of(lengths)]
    assert abs(np.corrcoef(longest, np.arange(len(longest)))[0, 1]) < 0.2


def test_padding_is_little_and_counted_right() -> None:
    lengths = random_lengths(30_000)
    batches = batches_of(lengths, batch_tokens=2048)
    assert padding_share(lengths, batches) < 0.05
    by_hand = PairLengths(np.array([2, 4]), np.array([3, 3]))
    assert padding_share(by_hand, [np.array([0, 1])]) == pytest.approx(1 - 12 / 14)


def test_weights_say_how_often_a_pair_is_seen() -> None:
    weights = np.repeat([1.0, 2.0, 0.25, 1.5], 4000)
    counts = np.bincount(epoch_pairs(weights, seed=3, epoch=0), minlength=16_000).reshape(4, 4000)
    assert (counts[0] == 1).all() and (counts[1] == 2).all()
    assert set(counts[2]) == {0, 1} and abs(counts[2].mean() - 0.25) < 0.04
    assert set(counts[3]) == {1, 2} and abs(counts[3].mean() - 1.5) < 0.04
    assert not np.array_equal(epoch_pairs(weights, seed=3, epoch=0), epoch_pairs(weights, seed=3, epoch=1))


def test_collate_shifts_right_and_pads_at_the_end() -> None:
    batch = collate([[5, 6, 7], [8]], [[9], [10, 11]])
    assert batch.src.tolist() == [[5, 6, 7, 2], [8, 2, 0, 0]]
    assert batch.tgt_in.tolist() == [[1, 9, 0], [1, 10, 11]]
    assert batch.tgt_out.tolist() == [[9, 2, 0], [10, 11, 2]]
    assert batch.num_tokens == 5
    empty = collate([[]], [np.array([], dtype=np.uint16)])
    assert (empty.src.tolist(), empty.tgt_in.tolist(), empty.tgt_out.tolist()) == ([[2]], [[1]], [[2]])


def test_packed_batches_have_each_pair_once_and_keep_to_their_room() -> None:
    lengths = random_lengths(5000)
    room = packed_size(lengths, 2048)
    assert max(room) == 2048 and min(room) % 128 == 0
    pairs = np.arange(5000)
    batches = packed_batches(lengths, pairs, room=room, seed=1, epoch=0)
    assert sorted(np.concatenate(batches)) == list(range(5000))
    for side, most in zip((lengths.src, lengths.tgt), room, strict=True):
        assert max(int(side[batch].sum()) for batch in batches) <= most
    for batch, following in pairwise(batches):  # no batch has room for another pair
        more = [int(side[batch].sum() + side[following[0]]) for side in (lengths.src, lengths.tgt)]
        assert more[0] > room[0] or more[1] > room[1]
    again, other = (packed_batches(lengths, pairs, room=room, seed=1, epoch=epoch) for epoch in (0, 1))
    assert all(np.array_equal(one, two) for one, two in zip(batches, again, strict=True))
    assert not np.array_equal(np.concatenate(batches), np.concatenate(other))


def test_a_packed_batch_has_room_for_the_longest_pair() -> None:
    lengths = PairLengths(np.array([3, 300]), np.array([4, 5]))
    assert min(packed_size(lengths, 64)) >= 300
    batches = packed_batches(lengths, np.arange(2), room=packed_size(lengths, 64), seed=1, epoch=0)
    assert sorted(np.concatenate(batches)) == [0, 1]


def test_a_packed_batch_can_be_cut_into_pieces_that_pad_little() -> None:
    random = np.random.default_rng(5)
    src, tgt = ([random.integers(4, 99, int(n)) for n in random.gamma(2.0, 10.0, 60) + 1] for _ in range(2))
    whole = Pairs(Ragged.of(src), Ragged.of(tgt))
    pieces = [piece.padded() for piece in of_similar_lengths(whole, 256) if isinstance(piece, Pairs)]
    assert len(pieces) > 3 and sum(piece.num_tokens for piece in pieces) == whole.num_tokens
    for piece in pieces:
        assert len(piece.src) == 1 or max(piece.src.numel(), piece.tgt_in.numel()) <= 256
        assert (piece.src != 0).any(0).all() and (piece.tgt_out != 0).any(0).all()  # no column of padding alone

    def sentences(batches: list[Batch]) -> list[tuple[tuple[int, ...], ...]]:
        """Return every pair without its padding, sorted."""
        rows = (row for batch in batches for row in zip(*batch.inputs, batch.targets, strict=True))
        return sorted(tuple(tuple(ids[ids != 0].tolist()) for ids in row) for row in rows)

    assert sentences(pieces) == sentences([whole.padded()])
