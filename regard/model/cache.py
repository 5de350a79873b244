"""What incremental decoding remembers between steps.

A batch of B sentences with W beams each is N = B · W rows; row b · W + w is beam w of sentence b.

Keys and values are never moved when beams change places. A step appends W slots to every sentence, one for each beam, and
`ancestry` says which slots a beam descends from: to reorder beams is to reorder rows of that mask. A sentence's beams are W
queries of one row of slots, as they are of the one memory that cross-attention keeps for it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

FIRST_ROOM = 128  # slots that a new cache has room for, before it grows
LEAST_STEPS = 8  # between two times that dead slots are given up


class KeyValue(NamedTuple):
    """Projected keys and values, split into heads: what a query is compared with, and what it takes home."""

    keys: Float[Tensor, "*L B H S K"]
    values: Float[Tensor, "*L B H S K"]


@dataclass(frozen=True)
class LayerCache:
    """One layer's share of a `DecoderCache`: views into it, so that appending writes through."""

    keys: Float[Tensor, "B H C K"]
    values: Float[Tensor, "B H C K"]
    extent: int

    def append(self, new: KeyValue) -> KeyValue:
        """Writes a slot for each beam; returns all slots so far. Which of them a beam may see, `DecoderCache.mask` says."""
        end = self.extent + new.keys.shape[2]
        self.keys[:, :, self.extent : end] = new.keys
        self.values[:, :, self.extent : end] = new.values
        return KeyValue(self.keys[:, :, :end], self.values[:, :, :end])


@dataclass
class DecoderCache:
    """Room for C slots a sentence, which doubles when what is still alive needs more."""

    keys: Float[Tensor, "L B H C K"]
    values: Float[Tensor, "L B H C K"]
    ancestry: Bool[Tensor, "B W C"]  # which slots each beam descends from
    lengths: Int[Tensor, " B"]  # target positions that each sentence's beams have behind them
    memory_keys: Float[Tensor, "L B H S K"]
    memory_values: Float[Tensor, "L B H S K"]
    memory_mask: Bool[Tensor, "B 1 1 S"]
    extent: int = 0  # slots in use, dead ones included
    next_tidying: int = 0  # the extent at which dead slots are given up again
    longest: int = 0  # at least the largest of `lengths`, known without asking the device

    @classmethod
    def empty(
        cls,
        memory: Sequence[KeyValue],
        rows: Sequence[list[int]],
        memory_mask: Bool[Tensor, "B 1 1 S"],
        *,
        width: int,
    ) -> "DecoderCache":
        """For `width` beams a sentence, before the first step. `memory` is what all layers make of the source, in groups of
        sentences, and `rows` says which these are."""
        memory_keys, memory_values = (_gathered(part, rows, memory_mask.shape[3]) for part in zip(*memory, strict=True))
        num_layers, num_sentences, num_heads, _, d_head = memory_keys.shape
        return cls(
            keys=memory_keys.new_empty(num_layers, num_sentences, num_heads, FIRST_ROOM, d_head),
            values=memory_keys.new_empty(num_layers, num_sentences, num_heads, FIRST_ROOM, d_head),
            ancestry=memory_mask.new_zeros(num_sentences, width, FIRST_ROOM),
            lengths=torch.zeros(num_sentences, dtype=torch.long, device=memory_keys.device),
            memory_keys=memory_keys,
            memory_values=memory_values,
            memory_mask=memory_mask,
        )

    @property
    def num_sentences(self) -> int:
        return self.ancestry.shape[0]

    @property
    def width(self) -> int:
        return self.ancestry.shape[1]

    @property
    def num_rows(self) -> int:
        return self.num_sentences * self.width

    @property
    def capacity(self) -> int:
        return self.keys.shape[3]

    def layer(self, index: int) -> LayerCache:
        return LayerCache(self.keys[index], self.values[index], self.extent)

    def memory(self, index: int) -> KeyValue:
        return KeyValue(self.memory_keys[index], self.memory_values[index])

    def open_slots(self) -> Bool[Tensor, "B 1 W C"]:
        """Begins a step: makes room for it, and returns what each beam's next position may attend to: its past, itself."""
        if self.extent + self.width > min(self.capacity, self.next_tidying):
            self._tidy()
        end = self.extent + self.width
        self.ancestry[:, :, self.extent : end] = torch.eye(self.width, dtype=torch.bool, device=self.ancestry.device)
        return self.ancestry[:, None, :, :end]

    def advance(self) -> None:
        """Ends a step: every beam has one more position."""
        self.extent += self.width
        self.lengths += 1
        self.longest += 1

    def reserve(self, num_slots: int) -> None:
        """Room for as many before the first step."""
        assert self.extent == 0
        self._grow(num_slots)

    def begin_with(self, is_token: Bool[Tensor, "B P"]) -> None:
        """After a pass that wrote whole prompts: every beam descends from its own, but not from the padding behind it."""
        assert self.extent == 0
        self.extent = self.longest = is_token.shape[1]
        self.ancestry[:, :, : self.extent] = is_token[:, None]
        self.lengths = is_token.sum(1)
        self._tidy_after(self.extent)

    def select(self, beams: Int[Tensor, "B W"]) -> None:
        """Makes beam w of each sentence a copy of what was its beam `beams[b, w]`: any order, any repeats, and as many
        beams as `beams` has columns. Numbers are those within a sentence."""
        if beams.device.type == "cpu" and beams.numel():  # elsewhere, to ask would be to wait
            assert 0 <= int(beams.min()) <= int(beams.max()) < self.width, f"beams are numbered 0 to {self.width - 1}"
        self.ancestry = self.ancestry.gather(1, beams[:, :, None].expand(-1, -1, self.capacity))

    def select_sentences(self, sentences: Int[Tensor, " B"]) -> None:
        """Keeps these sentences, in this order, with all their beams; the others are dropped. Of at most as many sentences
        as there were, only those that change places are copied."""
        if len(sentences) > self.num_sentences:
            self.keys, self.values = self.keys[:, sentences], self.values[:, sentences]
            self.memory_keys, self.memory_values = self.memory_keys[:, sentences], self.memory_values[:, sentences]
        else:
            moved = (sentences != torch.arange(len(sentences), device=sentences.device)).nonzero()[:, 0]
            for tensor in (self.keys, self.values, self.memory_keys, self.memory_values):
                tensor[:, moved] = tensor[:, sentences[moved]]
            self.keys, self.values = self.keys[:, : len(sentences)], self.values[:, : len(sentences)]
            self.memory_keys = self.memory_keys[:, : len(sentences)]
            self.memory_values = self.memory_values[:, : len(sentences)]
        self.ancestry, self.lengths = self.ancestry[sentences], self.lengths[sentences]
        self.memory_mask = self.memory_mask[sentences]
        self.longest = int(self.lengths.max()) if len(sentences) else 0

    def replace(self, sentences: Int[Tensor, " R"], other: "DecoderCache") -> None:
        """Puts the sentences of `other` (as many, of the same width) where these were, so that finished ones make room for
        waiting ones without touching the rest."""
        assert other.width == self.width and other.num_sentences == len(sentences)
        self._grow(other.extent)
        # Nobody attends to these, but a NaN that happened to be there would still be a NaN times zero.
        self.keys[:, :, :, self.extent : other.extent] = 0
        self.values[:, :, :, self.extent : other.extent] = 0
        self._pad_memory(num_keys := other.memory_keys.shape[3])
        self.keys[:, sentences, :, : other.extent] = other.keys[:, :, :, : other.extent]
        self.values[:, sentences, :, : other.extent] = other.values[:, :, :, : other.extent]
        self.ancestry[sentences] = False
        self.ancestry[sentences, :, : other.extent] = other.ancestry[:, :, : other.extent]
        self.lengths[sentences] = other.lengths
        self.memory_keys[:, sentences, :, :num_keys] = other.memory_keys
        self.memory_values[:, sentences, :, :num_keys] = other.memory_values
        self.memory_mask[sentences] = False
        self.memory_mask[sentences, :, :, :num_keys] = other.memory_mask
        self.extent = max(self.extent, other.extent)
        self.longest = int(self.lengths.max())

    def _tidy(self) -> None:
        """Brings the slots that some beam still descends from to the front. Most beams have most of their past in common, so
        that what is alive grows by little more than one slot a step: attention to dead slots would cost more than this does
        every so often, and √n steps between are the best for n slots."""
        alive = self.ancestry[:, :, : self.extent].any(1)  # (B, C)
        num_alive = int(alive.sum(1).max()) if alive.numel() else 0
        if num_alive < self.extent:
            slots = alive.byte().argsort(dim=1, descending=True, stable=True)[:, :num_alive]
            index = slots[None, :, None, :, None].expand(*self.keys.shape[:3], num_alive, self.keys.shape[4])
            for tensor in (self.keys, self.values):
                tensor[:, :, :, :num_alive] = tensor.gather(3, index)
            kept = self.ancestry.gather(2, slots[:, None, :].expand(-1, self.width, -1))
            self.ancestry = F.pad(kept, (0, self.capacity - num_alive))
            self.extent = num_alive
        self._tidy_after(num_alive)

    def _tidy_after(self, num_alive: int) -> None:
        self.next_tidying = self.extent + self.width * max(LEAST_STEPS, math.isqrt(num_alive))
        self._grow(self.next_tidying)

    def _grow(self, num_slots: int) -> None:
        """Room for at least so many, and at least twice as many as before where that is not enough."""
        if num_slots > self.capacity:
            room = max(num_slots, 2 * self.capacity)
            self.keys, self.values = (self._widened(tensor, room) for tensor in (self.keys, self.values))
            self.ancestry = F.pad(self.ancestry, (0, room - self.ancestry.shape[2]))

    def _widened(self, tensor: Float[Tensor, "L B H _ K"], room: int) -> Float[Tensor, "L B H _ K"]:
        wide = tensor.new_empty(*tensor.shape[:3], room, tensor.shape[4])
        wide[:, :, :, : self.extent] = tensor[:, :, :, : self.extent]
        return wide

    def _pad_memory(self, num_keys: int) -> None:
        """Makes room for sources of up to `num_keys` tokens."""
        missing = num_keys - self.memory_keys.shape[3]
        if missing > 0:
            self.memory_keys = F.pad(self.memory_keys, (0, 0, 0, missing))
            self.memory_values = F.pad(self.memory_values, (0, 0, 0, missing))
            self.memory_mask = F.pad(self.memory_mask, (0, missing))


def _gathered(
    parts: Sequence[Float[Tensor, "L _ H _ K"]], rows: Sequence[list[int]], num_keys: int
) -> Float[Tensor, "L B H S K"]:
    """Groups of sentences as one table, with zeros where a group was shorter."""
    if len(parts) == 1 and parts[0].shape[3] == num_keys and rows[0] == sorted(rows[0]):
        return parts[0]
    num_layers, _, num_heads, _, d_head = parts[0].shape
    table = parts[0].new_zeros(num_layers, sum(map(len, rows)), num_heads, num_keys, d_head)
    for part, places in zip(parts, rows, strict=True):
        table[:, places, :, : part.shape[3]] = part
    return table
