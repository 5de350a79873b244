"""Keys and values that incremental decoding keeps between steps.

A batch of B sentences with W beams each is N = B · W rows; row b · W + w is beam w of sentence b.

A slot holds the key and the value of one position of one beam. They are never moved when beams are reordered. A step appends
W slots to every sentence, one for each beam, and `ancestry` marks the slots that a beam descends from; reordering beams only
reorders rows of that mask. A sentence's beams are W queries of one row of slots, and of the one memory that cross-attention
keeps for the sentence.
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
LEAST_STEPS = 8  # the fewest steps between two removals of dead slots


class KeyValue(NamedTuple):
    """Projected keys and values, split into heads."""

    keys: Float[Tensor, "B H S K"]
    values: Float[Tensor, "B H S K"]


@dataclass(frozen=True)
class LayerCache:
    """Views of one layer's part of a `DecoderCache`, so that appending writes to the cache."""

    keys: Float[Tensor, "B H C K"]
    values: Float[Tensor, "B H C K"]
    extent: int

    def append(self, new: KeyValue) -> KeyValue:
        """Write a slot for each beam, and return all slots so far. `DecoderCache.ancestry` masks them."""
        end = self.extent + new.keys.shape[2]
        self.keys[:, :, self.extent : end] = new.keys
        self.values[:, :, self.extent : end] = new.values
        return KeyValue(self.keys[:, :, :end], self.values[:, :, :end])


@dataclass
class DecoderCache:
    """A cache with room for C slots a sentence, which doubles when its live slots need more."""

    past: Float[Tensor, "2 L B H C K"]  # keys and values of every layer's self-attention
    memory: Float[Tensor, "2 L B H S K"]  # keys and values of every layer's cross-attention
    memory_mask: Bool[Tensor, "B 1 1 S"]
    ancestry: Bool[Tensor, "B W C"]  # which slots each beam descends from
    lengths: Int[Tensor, " B"]  # past target positions of each sentence's beams
    extent: int = 0  # slots in use, dead ones included
    next_tidying: int = 0  # the extent at which dead slots are removed again
    longest: int = 0  # at least the largest of `lengths`, known without a host sync

    @classmethod
    def empty(
        cls,
        memory: Sequence[Float[Tensor, "2 L _ H _ K"]],
        rows: Sequence[list[int]],
        memory_mask: Bool[Tensor, "B 1 1 S"],
        *,
        width: int,
        num_slots: int = FIRST_ROOM,
    ) -> "DecoderCache":
        """Return a cache for `width` beams a sentence, before the first step. `memory` has the keys and values of groups of
        sentences, and `rows` the numbers of these sentences. There is room for at least `num_slots`."""
        room = max(FIRST_ROOM, num_slots)
        table = _gathered(memory, rows, memory_mask.shape[3])
        _, num_layers, num_sentences, num_heads, _, d_head = table.shape
        return cls(
            past=table.new_empty(2, num_layers, num_sentences, num_heads, room, d_head),
            memory=table,
            memory_mask=memory_mask,
            ancestry=memory_mask.new_zeros(num_sentences, width, room),
            lengths=torch.zeros(num_sentences, dtype=torch.long, device=table.device),
        )

    @property
    def shape(self) -> tuple[int, int]:
        """The numbers of sentences and of beams of each."""
        return self.ancestry.shape[0], self.ancestry.shape[1]

    @property
    def width(self) -> int:
        return self.ancestry.shape[1]

    @property
    def capacity(self) -> int:
        return self.past.shape[4]

    def layer(self, index: int) -> LayerCache:
        keys, values = self.past[:, index]
        return LayerCache(keys, values, self.extent)

    def layer_memory(self, index: int) -> KeyValue:
        return KeyValue(*self.memory[:, index])

    def open_slots(self) -> Bool[Tensor, "B 1 W C"]:
        """Make room for a step, and return a mask of each beam's past and itself, to which its next position may attend."""
        if self.extent + self.width > min(self.capacity, self.next_tidying):
            self._tidy()
        end = self.extent + self.width
        self.ancestry[:, :, self.extent : end] = torch.eye(self.width, dtype=torch.bool, device=self.ancestry.device)
        return self.ancestry[:, None, :, :end]

    def advance(self) -> None:
        """End a step, after which every beam has one more position."""
        self.extent += self.width
        self.lengths += 1
        self.longest += 1

    def begin_with(self, is_token: Bool[Tensor, "B P"]) -> None:
        """Let every beam descend from its sentence's prompt, which a pass has written, but not from the padding after it."""
        assert self.extent == 0
        self.extent = self.longest = is_token.shape[1]
        self.ancestry[:, :, : self.extent] = is_token[:, None]
        self.lengths = is_token.sum(1)
        self._tidy_after(self.extent)

    def select(self, beams: Int[Tensor, "B W"]) -> None:
        """Make beam w of each sentence a copy of its beam `beams[b, w]`, in any order and with any repeats. There are then
        as many beams as `beams` has columns."""
        require_beams(beams, self.width)
        self.ancestry = self.ancestry.gather(1, beams[:, :, None].expand(-1, -1, self.capacity))

    def select_sentences(self, sentences: Int[Tensor, " B"]) -> None:
        """Keep these sentences, in this order, with all their beams, and drop the others. Unless their number grows, only
        those that change places are copied."""
        if len(sentences) > len(self.lengths):
            self.past, self.memory = self.past[:, :, sentences], self.memory[:, :, sentences]
        else:
            moved = (sentences != torch.arange(len(sentences), device=sentences.device)).nonzero()[:, 0]
            for tensor in (self.past, self.memory):
                tensor[:, :, moved] = tensor[:, :, sentences[moved]]
            self.past, self.memory = self.past[:, :, : len(sentences)], self.memory[:, :, : len(sentences)]
        self.memory_mask, self.ancestry = self.memory_mask[sentences], self.ancestry[sentences]
        self.lengths = self.lengths[sentences]
        self.longest = int(self.lengths.max()) if len(sentences) else 0

    def replace(self, sentences: Int[Tensor, " R"], other: "DecoderCache") -> None:
        """Put the sentences of `other` (as many, of the same width) in place of these, and leave the rest as it is."""
        assert other.shape == (len(sentences), self.width)
        end, num_keys = other.extent, other.memory.shape[4]
        self._grow(end)
        self._pad_memory(num_keys)
        self.past[..., self.extent : end, :] = 0  # a NaN in a slot with a weight of zero would make the sum a NaN
        self.past[:, :, sentences, :, :end] = other.past[..., :end, :]
        self.ancestry[sentences] = False
        self.ancestry[sentences, :, :end] = other.ancestry[:, :, :end]
        self.lengths[sentences] = other.lengths
        self.memory[:, :, sentences, :, :num_keys] = other.memory
        self.memory_mask[sentences] = False
        self.memory_mask[sentences, :, :, :num_keys] = other.memory_mask
        self.extent = max(self.extent, end)
        self.longest = int(self.lengths.max())

    def _tidy(self) -> None:
        """Move the slots that some beam still descends from to the front. Beams share most of their past, so that the number
        of these slots grows by little more than one a step. Tidying every √n steps costs least for n slots."""
        alive = self.ancestry[:, :, : self.extent].any(1)  # (B, C)
        num_alive = int(alive.sum(1).max()) if alive.numel() else 0
        if num_alive < self.extent:
            slots = alive.byte().argsort(dim=1, descending=True, stable=True)[:, :num_alive]
            index = slots[:, None, :, None].expand(*self.past.shape[:4], num_alive, self.past.shape[5])
            self.past[..., :num_alive, :] = self.past.gather(4, index)
            kept = self.ancestry.gather(2, slots[:, None, :].expand(-1, self.width, -1))
            self.ancestry = F.pad(kept, (0, self.capacity - num_alive))
            self.extent = num_alive
        self._tidy_after(num_alive)

    def _tidy_after(self, num_alive: int) -> None:
        self.next_tidying = self.extent + self.width * max(LEAST_STEPS, math.isqrt(num_alive))
        self._grow(self.next_tidying)

    def _grow(self, num_slots: int) -> None:
        """Make room for at least so many slots, and for twice as many as before where that is more."""
        if num_slots > self.capacity:
            missing = max(num_slots - self.capacity, self.capacity)
            wide = self.past.new_empty(*self.past.shape[:4], self.capacity + missing, self.past.shape[5])
            wide[..., : self.extent, :] = self.past[..., : self.extent, :]
            self.past, self.ancestry = wide, F.pad(self.ancestry, (0, missing))

    def _pad_memory(self, num_keys: int) -> None:
        """Make room for sources of up to `num_keys` tokens."""
        missing = num_keys - self.memory.shape[4]
        if missing > 0:
            self.memory = F.pad(self.memory, (0, 0, 0, missing))
            self.memory_mask = F.pad(self.memory_mask, (0, missing))


def require_beams(beams: Int[Tensor, "B W"], width: int) -> None:
    """Check numbers of beams within their sentences, on a CPU only, because the check needs a host sync elsewhere."""
    if beams.device.type == "cpu" and beams.numel():
        assert 0 <= int(beams.min()) <= int(beams.max()) < width, f"beams are numbered 0 to {width - 1}"


def _gathered(
    parts: Sequence[Float[Tensor, "2 L _ H _ K"]], rows: Sequence[list[int]], num_keys: int
) -> Float[Tensor, "2 L B H S K"]:
    """Return groups of sentences as one table, with zeros after the keys of shorter groups."""
    if len(parts) == 1 and parts[0].shape[4] == num_keys and rows[0] == sorted(rows[0]):
        return parts[0]
    _, num_layers, _, num_heads, _, d_head = parts[0].shape
    table = parts[0].new_zeros(2, num_layers, sum(map(len, rows)), num_heads, num_keys, d_head)
    for part, sentences in zip(parts, rows, strict=True):
        table[:, :, sentences, :, : part.shape[4]] = part
    return table
