"""What incremental decoding remembers between steps.

A batch of B sentences with W beams each is N = B · W rows; row b · W + w is beam w of sentence b. Self-attention's keys and
values are kept per row, cross-attention's once per sentence, whatever the beam width.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor


class KeyValue(NamedTuple):
    """Projected keys and values, split into heads: what a query is compared with, and what it takes home."""

    keys: Float[Tensor, "B H S K"]
    values: Float[Tensor, "B H S K"]


@dataclass(frozen=True)
class LayerCache:
    """One layer's share of a `DecoderCache`: views into it, so that appending writes through."""

    keys: Float[Tensor, "N H C K"]
    values: Float[Tensor, "N H C K"]
    lengths: Int[Tensor, " N"]
    extent: int

    def append(self, new: KeyValue) -> KeyValue:
        """Writes one position after each row's last; returns all of them so far. Rows shorter than the longest have
        stale positions at the end, which `DecoderCache.mask` hides."""
        rows = torch.arange(len(self.lengths), device=self.lengths.device)
        self.keys[rows, :, self.lengths] = new.keys[:, :, 0].to(self.keys.dtype)
        self.values[rows, :, self.lengths] = new.values[:, :, 0].to(self.values.dtype)
        return KeyValue(self.keys[:, :, : self.extent + 1], self.values[:, :, : self.extent + 1])


@dataclass
class DecoderCache:
    """Preallocated for `capacity` target positions; each row has its own length."""

    keys: Float[Tensor, "L N H C K"]
    values: Float[Tensor, "L N H C K"]
    lengths: Int[Tensor, " N"]
    memory_keys: Float[Tensor, "L B H S K"]
    memory_values: Float[Tensor, "L B H S K"]
    memory_mask: Bool[Tensor, "B 1 1 S"]
    extent: int = 0  # the longest row's length, known without asking the device

    @classmethod
    def empty(
        cls, memory: list[KeyValue], memory_mask: Bool[Tensor, "B 1 1 S"], *, width: int, capacity: int
    ) -> "DecoderCache":
        """For `width` beams a sentence, before the first step. `memory` is each layer's projection of the source."""
        memory_keys = torch.stack([layer.keys for layer in memory])  # (L, B, H, S, K)
        memory_values = torch.stack([layer.values for layer in memory])
        num_layers, num_sentences, num_heads, _, d_head = memory_keys.shape
        shape = (num_layers, num_sentences * width, num_heads, capacity, d_head)
        return cls(
            # Zeros rather than whatever was there: a masked NaN would still be a NaN times zero.
            keys=memory_keys.new_zeros(shape),
            values=memory_keys.new_zeros(shape),
            lengths=torch.zeros(num_sentences * width, dtype=torch.long, device=memory_keys.device),
            memory_keys=memory_keys,
            memory_values=memory_values,
            memory_mask=memory_mask,
        )

    @property
    def num_rows(self) -> int:
        return self.keys.shape[1]

    @property
    def num_sentences(self) -> int:
        return self.memory_keys.shape[1]

    @property
    def width(self) -> int:
        return self.num_rows // max(1, self.num_sentences)

    @property
    def capacity(self) -> int:
        return self.keys.shape[3]

    def layer(self, index: int) -> LayerCache:
        return LayerCache(self.keys[index], self.values[index], self.lengths, self.extent)

    def memory(self, index: int) -> KeyValue:
        return KeyValue(self.memory_keys[index], self.memory_values[index])

    def mask(self) -> Bool[Tensor, "N 1 1 C"]:
        """What each row's next position may attend to: its own past and itself."""
        positions = torch.arange(self.extent + 1, device=self.lengths.device)
        return (positions <= self.lengths[:, None])[:, None, None, :]

    def advance(self) -> None:
        """Ends a step: every row has one more position."""
        self.lengths += 1
        self.extent += 1

    def select(self, beams: Int[Tensor, "B W"]) -> None:
        """Makes beam w of each sentence a copy of what was its beam `beams[b, w]`: any order, any repeats, and as many
        beams as `beams` has columns. Numbers are those within a sentence."""
        if beams.device.type == "cpu" and beams.numel():  # elsewhere, to ask would be to wait
            assert 0 <= int(beams.min()) <= int(beams.max()) < self.width, f"beams are numbered 0 to {self.width - 1}"
        first_rows = torch.arange(self.num_sentences, device=beams.device)[:, None] * self.width
        self._keep_rows((first_rows + beams).flatten())

    def select_sentences(self, sentences: Int[Tensor, " B"]) -> None:
        """Keeps these sentences, in this order, with all their beams; the others are dropped."""
        self._keep_rows(self._rows_of(sentences))
        self.memory_keys = self.memory_keys[:, sentences]
        self.memory_values = self.memory_values[:, sentences]
        self.memory_mask = self.memory_mask[sentences]
        self.extent = int(self.lengths.max()) if len(self.lengths) else 0

    def replace(self, sentences: Int[Tensor, " R"], other: "DecoderCache") -> None:
        """Puts the sentences of `other` (as many, of the same width) where these were, so that finished ones make room for
        waiting ones without touching the rest."""
        assert other.width == self.width and other.num_sentences == len(sentences)
        assert other.extent <= self.capacity, "the other cache holds more positions than this one can"
        num_keys = other.memory_keys.shape[3]
        self._pad_memory(num_keys)
        rows = self._rows_of(sentences)
        self.keys[:, rows, :, : other.extent] = other.keys[:, :, :, : other.extent]
        self.values[:, rows, :, : other.extent] = other.values[:, :, :, : other.extent]
        self.lengths[rows] = other.lengths
        self.memory_keys[:, sentences, :, :num_keys] = other.memory_keys
        self.memory_values[:, sentences, :, :num_keys] = other.memory_values
        self.memory_mask[sentences] = False
        self.memory_mask[sentences, :, :, :num_keys] = other.memory_mask
        self.extent = int(self.lengths.max())

    def _rows_of(self, sentences: Int[Tensor, " R"]) -> Int[Tensor, " N"]:
        beams = torch.arange(self.width, device=sentences.device)
        return (sentences[:, None] * self.width + beams).flatten()

    def _keep_rows(self, rows: Int[Tensor, " N"]) -> None:
        """Only positions in use are copied, so that a step's work grows with what was said, not with the capacity."""
        if len(rows) == self.num_rows:
            self.keys[:, :, :, : self.extent] = self.keys[:, rows, :, : self.extent]
            self.values[:, :, :, : self.extent] = self.values[:, rows, :, : self.extent]
        else:
            self.keys, self.values = self.keys[:, rows], self.values[:, rows]
        self.lengths = self.lengths[rows]

    def _pad_memory(self, num_keys: int) -> None:
        """Makes room for sources of up to `num_keys` tokens."""
        missing = num_keys - self.memory_keys.shape[3]
        if missing > 0:
            self.memory_keys = F.pad(self.memory_keys, (0, 0, 0, missing))
            self.memory_values = F.pad(self.memory_values, (0, 0, 0, missing))
            self.memory_mask = F.pad(self.memory_mask, (0, missing))
