"""Batches of pairs and their order: a pure function of lengths, budget, seed and epoch.

There is no state between epochs or batches, so a run can begin anywhere.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Indices = npt.NDArray[np.int64]

STRIPS = 1.6  # times √batches; measured to pad least (EXPERIMENTS.md)
SPARE = 1.02  # room on the smaller side of packed batches, relative to the mean
ROOM_STEP = 128  # tokens; matrix products are fast for multiples


@dataclass(frozen=True)
class PairLengths:
    """The tokens of each pair, with EOS on both sides."""

    src: Indices
    tgt: Indices

    @classmethod
    def of(cls, src_lengths: Indices, tgt_lengths: Indices) -> "PairLengths":
        return cls(src_lengths + 1, tgt_lengths + 1)


def epoch_pairs(weights: npt.NDArray[np.float64], *, seed: int, epoch: int) -> Indices:
    """Return the pairs of an epoch, each as often as its weight says; a fraction is a probability."""
    lot = np.random.default_rng([seed, epoch, 0]).random(len(weights))
    times = np.floor(weights).astype(np.int64) + (lot < weights % 1.0)
    return np.repeat(np.arange(len(weights), dtype=np.int64), times)


def epoch_batches(lengths: PairLengths, pairs: Indices, *, batch_tokens: int, seed: int, epoch: int) -> list[Indices]:
    """Form batches of similar lengths in random order, each of at most `batch_tokens` on its larger side, padding included.
    A pair that is longer than that is a batch of its own.

    Both sides are padded, so both should be alike: pairs are cut by target length into strips, each strip is ordered by
    source length, and batches are cut from the strips one after the other. With about as many strips as a strip has
    batches, a batch's range of lengths is equally narrow on both sides. Ties are broken at random, so that two epochs put
    different pairs together; then the batches are shuffled.
    """
    random = np.random.default_rng([seed, epoch, 1])
    src, tgt = lengths.src[pairs], lengths.tgt[pairs]
    by_target = _shuffled_and_sorted(tgt, random)
    num_batches = np.maximum(src, tgt).sum() / batch_tokens
    strip = np.empty(len(pairs), dtype=np.int64)
    strip[by_target] = np.cumsum(tgt[by_target]) * max(1.0, STRIPS * np.sqrt(num_batches)) // (tgt.sum() + 1)
    # Ascending in one strip and descending in the next: where two strips meet in a batch, sources are of similar lengths.
    snake = np.where(strip % 2 == 0, src, -src)
    order = _shuffled_and_sorted(strip * (2 * int(src.max(initial=0)) + 1) + snake, random)
    batches = [pairs[order[start:end]] for start, end in _cuts(src[order], tgt[order], batch_tokens)]
    return [batches[n] for n in random.permutation(len(batches))]


def packed_size(lengths: PairLengths, batch_tokens: int) -> tuple[int, int]:
    """Return the room for source and target tokens in a packed batch: `batch_tokens` on the side that has more of them; on
    the other as many as go with that and a little more, since batches differ. Each side has room for the longest text, and
    no more than for all texts."""
    totals = int(lengths.src.sum()), int(lengths.tgt.sum())
    least = int(max(lengths.src.max(), lengths.tgt.max()))
    tokens = min(batch_tokens, max(totals))
    src, tgt = (max(least, min(tokens, round(SPARE * tokens * side / max(totals)))) for side in totals)
    return -(-src // ROOM_STEP) * ROOM_STEP, -(-tgt // ROOM_STEP) * ROOM_STEP


def packed_batches(lengths: PairLengths, pairs: Indices, *, room: tuple[int, ...], seed: int, epoch: int) -> list[Indices]:
    """Form batches of any lengths, in random order, each filled until the next pair does not fit on one of its sides."""
    shuffled = pairs[np.random.default_rng([seed, epoch, 2]).permutation(len(pairs))]
    ends = [np.cumsum(side[shuffled]) for side in (lengths.src, lengths.tgt)]
    batches, start = [], 0
    while start < len(shuffled):
        before = [int(side[start - 1]) if start else 0 for side in ends]
        fits = (np.searchsorted(side, b + most, side="right") for side, b, most in zip(ends, before, room, strict=True))
        end = max(start + 1, min(map(int, fits)))
        batches.append(shuffled[start:end])
        start = end
    return batches


def _shuffled_and_sorted(keys: Indices, random: np.random.Generator) -> Indices:
    """Return an order of the keys, ties at random. Small keys are narrowed: numpy sorts 16 bits by radix."""
    shuffled = random.permutation(len(keys))
    narrow = keys.max(initial=0) < 2**15 and keys.min(initial=0) >= 0
    return shuffled[np.argsort(keys[shuffled].astype(np.int16 if narrow else np.int64), kind="stable")]


def _cuts(src: Indices, tgt: Indices, batch_tokens: int) -> list[tuple[int, int]]:
    """Cut a sequence of pairs so that each part, padded, stays within the budget."""
    cuts = []
    lengths = np.maximum(src, tgt)
    start = 0
    while start < len(lengths):
        most = batch_tokens // int(lengths[start]) + 1  # rows that can fit beside the first
        longest = np.maximum.accumulate(lengths[start : start + most])
        tokens = longest * np.arange(1, len(longest) + 1)
        end = start + max(1, int(np.searchsorted(tokens, batch_tokens, side="right")))
        cuts.append((start, end))
        start = end
    return cuts


def padding_share(lengths: PairLengths, batches: list[Indices]) -> float:
    """Return the share of padding in all tokens of the batches, both sides together."""
    if not batches:
        return 0.0
    sizes = np.array([len(batch) for batch in batches])
    sides = (lengths.src, lengths.tgt)
    real = sum(int(side[np.concatenate(batches)].sum()) for side in sides)
    padded = sum(int((longest_of(side, batches) * sizes).sum()) for side in sides)
    return 1.0 - real / padded


def longest_of(lengths: Indices, batches: list[Indices]) -> Indices:
    """Return the largest length in each batch."""
    starts = np.cumsum([0, *(len(batch) for batch in batches[:-1])])
    return np.maximum.reduceat(lengths[np.concatenate(batches)], starts)
