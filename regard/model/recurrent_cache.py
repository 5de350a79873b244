"""An RNN's state between steps: the state of every beam, and the source to which it may attend.

A state is small and holds all of a beam's past, so it is moved when beams are reordered. The source is kept once for each
sentence, whatever its number of beams.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.model.cache import require_beams

LayerState = tuple[Tensor, ...]  # (h,) of a GRU, (h, c) of an LSTM
State = tuple[LayerState, ...]


class Memory(NamedTuple):
    """A source as the decoder sees it: all its positions, with their keys; or one vector, without keys."""

    values: Float[Tensor, "B S M"]
    keys: Float[Tensor, "B S K"]
    mask: Bool[Tensor, "B S"]
    bias: Float[Tensor, "B 1 S"]  # added to scores: 0 where there is a word, -∞ where there is none

    @classmethod
    def of(cls, values: Float[Tensor, "B S M"], keys: Float[Tensor, "B S K"], mask: Bool[Tensor, "B S"]) -> "Memory":
        """Return a memory of these values. Those of a source without words are zeros, all of which may be attended to,
        because softmax over nothing is 0/0."""
        has_words = mask.any(-1)[:, None]
        bias = torch.zeros_like(mask, dtype=values.dtype).masked_fill(~mask & has_words, -math.inf)
        return cls(values * has_words[:, :, None], keys, mask, bias[:, None])

    @classmethod
    def fixed(cls, vector: Float[Tensor, "B M"]) -> "Memory":
        return cls.of(vector[:, None], vector[:, None, :0], torch.ones_like(vector[:, :1], dtype=torch.bool))

    def select(self, sentences: Int[Tensor, " R"]) -> "Memory":
        return Memory(*(part[sentences] for part in self))

    def replaced(self, sentences: Int[Tensor, " R"], other: "Memory") -> "Memory":
        """Return a memory with the sentences of `other` in place of these. The shorter of both is padded."""
        extent = max(self.mask.shape[1], other.mask.shape[1])
        parts = zip(self._widened(extent), other._widened(extent), strict=True)
        return Memory(*(old.index_copy(0, sentences, new) for old, new in parts))

    def _widened(self, extent: int) -> "Memory":
        missing = extent - self.mask.shape[1]
        values, keys = (F.pad(part, (0, 0, 0, missing)) for part in (self.values, self.keys))
        return Memory(values, keys, F.pad(self.mask, (0, missing)), F.pad(self.bias, (0, missing), value=-math.inf))


@dataclass
class RecurrentCache:
    """The states of N = B · W rows; row b · W + w is beam w of sentence b."""

    state: State  # each (B, W, Q)
    memory: Memory
    lengths: Int[Tensor, " B"]  # past target positions of each sentence's beams

    @property
    def shape(self) -> tuple[int, int]:
        """The numbers of sentences and of beams of each."""
        num_sentences, width, _ = self.state[0][0].shape
        return num_sentences, width

    def advance(self, state: State) -> None:
        """End a step, after which every beam has a new state."""
        self.state = state
        self.lengths = self.lengths + 1

    def select(self, beams: Int[Tensor, "B W"]) -> None:
        """Make beam w of each sentence a copy of its beam `beams[b, w]`, in any order and with any repeats. There are then
        as many beams as `beams` has columns."""
        require_beams(beams, self.shape[1])
        index = beams[:, :, None].expand(-1, -1, self.state[0][0].shape[2])
        self.state = tuple(tuple(part.gather(1, index) for part in layer) for layer in self.state)

    def select_sentences(self, sentences: Int[Tensor, " B"]) -> None:
        """Keep these sentences, in this order, with all their beams, and drop the others."""
        self.state = tuple(tuple(part[sentences] for part in layer) for layer in self.state)
        self.memory = self.memory.select(sentences)
        self.lengths = self.lengths[sentences]

    def replace(self, sentences: Int[Tensor, " R"], other: "RecurrentCache") -> None:
        """Put the sentences of `other` (as many, of the same width) in place of these."""
        assert other.shape == (len(sentences), self.shape[1])
        self.state = tuple(
            tuple(part.index_copy(0, sentences, new) for part, new in zip(layer, others, strict=True))
            for layer, others in zip(self.state, other.state, strict=True)
        )
        self.memory = self.memory.replaced(sentences, other.memory)
        self.lengths = self.lengths.index_copy(0, sentences, other.lengths)
