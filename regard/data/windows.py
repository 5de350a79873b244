"""Texts as one stream of tokens, BOS ids EOS BOS ids EOS …, cut into windows for a language model."""

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
    """Window n holds the tokens n · C to (n + 1) · C of the stream, C the `context`, and the next token of each. The last
    window may be shorter; there is no padding."""

    store: TextStore
    texts: Indices  # rows of the store, in the order of the stream
    context: int

    @cached_property
    def starts(self) -> Offsets:
        """The positions in the stream at which each text begins, and the end of the stream."""
        lengths = self.store.ids.lengths[self.texts] + 2
        return np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(lengths)])

    @property
    def num_tokens(self) -> int:
        """The number of tokens that are fed: all but the last, which has no next token."""
        return max(0, int(self.starts[-1]) - 1)

    def __len__(self) -> int:
        return math.ceil(self.num_tokens / self.context)

    def tokens(self, start: int, end: int) -> npt.NDArray[np.int64]:
        """Return the tokens of the stream from `start` up to `end`."""
        first = int(np.searchsorted(self.starts, start, side="right")) - 1
        last = int(np.searchsorted(self.starts, end, side="left"))
        parts: list[Sequence[int] | npt.NDArray[np.generic]] = []
        for text in self.texts[first:last].tolist():
            parts += [[BOS_ID], self.store.ids[text], [EOS_ID]]
        offset = int(self.starts[first])
        return np.concatenate(parts).astype(np.int64)[start - offset : end - offset]

    def batch(self, numbers: Sequence[int]) -> TextBatch:
        """Return a batch of windows of one length."""
        rows = []
        for number in numbers:
            start = number * self.context
            rows.append(self.tokens(start, min(start + self.context, self.num_tokens) + 1))
        table = np.stack(rows)
        ids_in, ids_out = table[:, :-1].copy(), table[:, 1:].copy()
        ids_out[ids_in == EOS_ID] = PAD_ID
        return TextBatch(torch.from_numpy(ids_in), torch.from_numpy(ids_out))

    def batches(self, order: Indices, batch_tokens: int) -> list[Indices]:
        """Form batches of windows in this order, of up to `batch_tokens` or one window each. A shorter window is a batch of
        its own, the last."""
        is_whole = (order + 1) * self.context <= self.num_tokens
        whole, short = order[is_whole], order[~is_whole]
        rows = max(1, batch_tokens // self.context)
        return [*(whole[start : start + rows] for start in range(0, len(whole), rows)), *([short] if len(short) else [])]


@dataclass(frozen=True, eq=False)
class TextStream:
    """Plain text in batches of windows, each a pure function of its place."""

    store: TextStore
    weights: npt.NDArray[np.float64]  # how often each text is seen in an epoch
    context: int
    batch_tokens: int
    seed: int

    @lru_cache(maxsize=2)  # noqa: B019 - a stream lives as long as its training
    def windows(self, epoch: int) -> Windows:
        """Return the texts of an epoch, in order, in as many passes as the largest weight says: a text must not follow
        itself, or a model would learn to copy."""
        numbers, times = np.unique(epoch_pairs(self.weights, seed=self.seed, epoch=epoch), return_counts=True)
        passes = [numbers[times > number] for number in range(int(times.max(initial=0)))]
        return Windows(self.store, np.concatenate(passes) if passes else numbers, self.context)

    @lru_cache(maxsize=2)  # noqa: B019
    def epoch(self, epoch: int) -> list[Indices]:
        """Return the numbers of the windows of each batch: every window once, in random order."""
        windows = self.windows(epoch)
        random = np.random.default_rng([self.seed, epoch, 1])
        batches = windows.batches(random.permutation(len(windows)), self.batch_tokens)
        return [batches[n] for n in random.permutation(len(batches))]

    def following(self, place: Place, count: int) -> tuple[list[Place], Place]:
        return following(self.epoch, place, count)

    def batch(self, place: Place) -> TextBatch:
        return self.windows(place.epoch).batch(self.epoch(place.epoch)[place.position].tolist())

    def lengths(self) -> PairLengths:
        """Return the lengths of the first epoch's windows, as if of two equal sides."""
        windows = self.windows(0)
        ends = np.minimum(np.arange(1, len(windows) + 1) * self.context, windows.num_tokens)
        lengths = np.diff(ends, prepend=0)
        return PairLengths(lengths, lengths)

    def sizes(self) -> list[int]:
        """Return numbers that differ for other text or subwords."""
        return [len(self.store), len(self.store.ids.values), self.context]

    def largest(self, epoch: int) -> list[Place]:
        """Return the place of a batch that needs most memory."""
        windows = self.windows(epoch)
        short = windows.num_tokens // self.context  # the number of the one that may be short, if there is one
        tokens = [len(batch) * self.context - (short in batch) for batch in self.epoch(epoch)]
        return [Place(epoch, int(np.argmax(tokens)))]


Stream = BatchStream | TextStream
