"""Texts as one stream of tokens, BOS ids EOS BOS ids EOS …, and the windows through which a language model sees it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
import numpy.typing as npt
import torch

from regard.data.batch import TextBatch
from regard.data.batching import Indices, PairLengths, epoch_pairs
from regard.data.store import Offsets, TextStore
from regard.data.stream import BatchStream, Place, following
from regard.text.tokenizer import BOS_ID, EOS_ID, PAD_ID


@dataclass(frozen=True, eq=False)
class Windows:
    """Window n is the stream's tokens n · C to (n + 1) · C, C the `context`, and beside each token the one after it. The
    last is as short as what is left; there is no padding."""

    store: TextStore
    texts: Indices  # which of the store's, in this order, as often as they are named
    context: int

    @cached_property
    def starts(self) -> Offsets:
        """Where each text begins in the stream; behind them, where the stream ends."""
        lengths = self.store.ids.lengths[self.texts] + 2
        return np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(lengths)])

    @property
    def num_tokens(self) -> int:
        """That are fed: all but the last, after which there is none."""
        return max(0, int(self.starts[-1]) - 1)

    def __len__(self) -> int:
        return math.ceil(self.num_tokens / self.context)

    def tokens(self, start: int, end: int) -> npt.NDArray[np.int64]:
        """Of the stream, from one place up to another."""
        first = int(np.searchsorted(self.starts, start, side="right")) - 1
        last = int(np.searchsorted(self.starts, end, side="left"))
        parts: list[Sequence[int] | npt.NDArray[np.generic]] = []
        for text in self.texts[first:last].tolist():
            parts += [[BOS_ID], self.store.ids[text], [EOS_ID]]
        offset = int(self.starts[first])
        return np.concatenate(parts).astype(np.int64)[start - offset : end - offset]

    def batch(self, numbers: Sequence[int]) -> TextBatch:
        """Several windows of one length."""
        rows = []
        for number in numbers:
            start = number * self.context
            rows.append(self.tokens(start, min(start + self.context, self.num_tokens) + 1))
        table = np.stack(rows)
        ids_in, ids_out = table[:, :-1].copy(), table[:, 1:].copy()
        ids_out[ids_in == EOS_ID] = PAD_ID
        return TextBatch(torch.from_numpy(ids_in), torch.from_numpy(ids_out))

    def batches(self, order: Indices, batch_tokens: int) -> list[Indices]:
        """Windows in this order, as many at once as have up to `batch_tokens`, at least one. One that is shorter than the
        others is a batch of its own, the last."""
        is_whole = (order + 1) * self.context <= self.num_tokens
        whole, short = order[is_whole], order[~is_whole]
        rows = max(1, batch_tokens // self.context)
        return [*(whole[start : start + rows] for start in range(0, len(whole), rows)), *([short] if len(short) else [])]


@dataclass(frozen=True, eq=False)
class TextStream:
    """Training text as batches of windows, each a pure function of its place."""

    store: TextStore
    weights: npt.NDArray[np.float64]  # how often each text is seen in an epoch
    context: int
    batch_tokens: int
    seed: int

    @lru_cache(maxsize=2)  # noqa: B019 - a stream lives as long as its training
    def windows(self, epoch: int) -> Windows:
        """The texts in their order, from the first to the last as many times as the largest weight says: none follows
        itself, or a window would teach to copy."""
        numbers, times = np.unique(epoch_pairs(self.weights, seed=self.seed, epoch=epoch), return_counts=True)
        passes = [numbers[times > number] for number in range(int(times.max(initial=0)))]
        return Windows(self.store, np.concatenate(passes) if passes else numbers, self.context)

    @lru_cache(maxsize=2)  # noqa: B019
    def epoch(self, epoch: int) -> list[Indices]:
        """The numbers of each batch's windows: every window once, in random order."""
        windows = self.windows(epoch)
        random = np.random.default_rng([self.seed, epoch, 1])
        batches = windows.batches(random.permutation(len(windows)), self.batch_tokens)
        return [batches[n] for n in random.permutation(len(batches))]

    def following(self, place: Place, count: int) -> tuple[list[Place], Place]:
        return following(self.epoch, place, count)

    def batch(self, place: Place) -> TextBatch:
        return self.windows(place.epoch).batch(self.epoch(place.epoch)[place.position].tolist())

    def lengths(self) -> PairLengths:
        """Of the first epoch's windows, which have one side only."""
        windows = self.windows(0)
        ends = np.minimum(np.arange(1, len(windows) + 1) * self.context, windows.num_tokens)
        lengths = np.diff(ends, prepend=0)
        return PairLengths(lengths, lengths)

    def sizes(self) -> list[int]:
        """What text of other content or other subwords would hardly share."""
        return [len(self.store), len(self.store.ids.values), self.context]

    def largest(self, epoch: int) -> list[Place]:
        """Where memory will be short if anywhere: a batch with as many tokens as any has."""
        windows = self.windows(epoch)
        short = windows.num_tokens // self.context  # the number of the one that may be short, if there is one
        tokens = [len(batch) * self.context - (short in batch) for batch in self.epoch(epoch)]
        return [Place(epoch, int(np.argmax(tokens)))]


Stream = BatchStream | TextStream
