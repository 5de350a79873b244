"""What an RNN remembers between steps: the state of every beam, and the source it may look at.

A state is small and is all there is of a beam's past, so it is moved when beams change places. The source is kept once for
each sentence, whatever its number of beams.
"""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

LayerState = tuple[Tensor, ...]  # (h,) of a GRU, (h, c) of an LSTM
State = tuple[LayerState, ...]


@dataclass(frozen=True)
class Memory:
    """A source as the decoder sees it: all its positions, with their keys; or one vector, without any."""

    values: Float[Tensor, "B S M"]
    keys: Float[Tensor, "B S K"]
    mask: Bool[Tensor, "B S"]
    bias: Float[Tensor, "B 1 S"]  # added to scores: 0 where there is a word, -∞ where there is none

    @classmethod
    def of(cls, values: Float[Tensor, "B S M"], keys: Float[Tensor, "B S K"], mask: Bool[Tensor, "B S"]) -> "Memory":
        """A source without words would leave softmax nothing, which is 0/0: its values are zeros, and all may be seen."""
        has_words = mask.any(-1)[:, None]
        bias = torch.zeros_like(mask, dtype=values.dtype).masked_fill(~mask & has_words, -math.inf)
        return cls(values * has_words[:, :, None], keys, mask, bias[:, None])

    @classmethod
    def fixed(cls, vector: Float[Tensor, "B M"]) -> "Memory":
        return cls.of(vector[:, None], vector[:, None, :0], torch.ones_like(vector[:, :1], dtype=torch.bool))

    def select(self, sentences: Int[Tensor, " R"]) -> "Memory":
        return Memory(*(part[sentences] for part in self._parts))

    def replaced(self, sentences: Int[Tensor, " R"], other: "Memory") -> "Memory":
        """With the sentences of `other` in these places, the shorter of both padded."""
        extent = max(self.mask.shape[1], other.mask.shape[1])
        parts = zip(self._widened(extent)._parts, other._widened(extent)._parts, strict=True)
        return Memory(*(old.index_copy(0, sentences, new) for old, new in parts))

    @property
    def _parts(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        return self.values, self.keys, self.mask, self.bias

    def _widened(self, extent: int) -> "Memory":
        missing = extent - self.mask.shape[1]
        values, keys = (F.pad(part, (0, 0, 0, missing)) for part in (self.values, self.keys))
        return Memory(values, keys, F.pad(self.mask, (0, missing)), F.pad(self.bias, (0, missing), value=-math.inf))


@dataclass
class RecurrentCache:
    """Row b · W + w is beam w of sentence b."""

    state: State  # each (B, W, Q)
    memory: Memory
    lengths: Int[Tensor, " B"]  # target positions that each sentence's beams have behind them

    @property
    def num_sentences(self) -> int:
        return self.state[0][0].shape[0]

    @property
    def width(self) -> int:
        return self.state[0][0].shape[1]

    @property
    def num_rows(self) -> int:
        return self.num_sentences * self.width

    def advance(self, state: State) -> None:
        """Ends a step: every beam has another state."""
        self.state = state
        self.lengths = self.lengths + 1

    def select(self, beams: Int[Tensor, "B W"]) -> None:
        """Makes beam w of each sentence a copy of what was its beam `beams[b, w]`: any order, any repeats, and as many
        beams as `beams` has columns. Numbers are those within a sentence."""
        if beams.device.type == "cpu" and beams.numel():  # elsewhere, to ask would be to wait
            assert 0 <= int(beams.min()) <= int(beams.max()) < self.width, f"beams are numbered 0 to {self.width - 1}"
        index = beams[:, :, None].expand(-1, -1, self.state[0][0].shape[2])
        self.state = tuple(tuple(part.gather(1, index) for part in layer) for layer in self.state)

    def select_sentences(self, sentences: Int[Tensor, " B"]) -> None:
        """Keeps these sentences, in this order, with all their beams; the others are dropped."""
        self.state = tuple(tuple(part[sentences] for part in layer) for layer in self.state)
        self.memory = self.memory.select(sentences)
        self.lengths = self.lengths[sentences]

    def replace(self, sentences: Int[Tensor, " R"], other: "RecurrentCache") -> None:
        """Puts the sentences of `other` (as many, of the same width) where these were."""
        assert other.width == self.width and other.num_sentences == len(sentences)
        self.state = tuple(
            tuple(part.index_copy(0, sentences, new) for part, new in zip(layer, others, strict=True))
            for layer, others in zip(self.state, other.state, strict=True)
        )
        self.memory = self.memory.replaced(sentences, other.memory)
        self.lengths = self.lengths.index_copy(0, sentences, other.lengths)
