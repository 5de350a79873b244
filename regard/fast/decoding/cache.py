"""Keys and values of incremental decoding in tensors of fixed shapes and addresses, so that a step can be captured.

Each sentence occupies a place: row b of every tensor, with C slots for the positions of W beams. As soon as a sentence is
done, another takes its place, so each place counts its own positions: position t is written to the slots t · W to
t · W + W - 1. As in `DecoderCache`, keys never move when beams are reordered; `ancestry` marks the slots that a beam
descends from, and a sentence's beams read its slots together. A step finds its slots on the device, without a host sync.
"""

from dataclasses import dataclass, field

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.fast.support import decodes
from regard.model.cache import KeyValue


@dataclass
class StaticCache:
    """A cache with room for B places of C slots, W for each position, and for sources of S tokens."""

    # Keys and values. The heads of a slot are contiguous, because they are written together and kernels need this layout.
    past: Float[Tensor, "2 L B C H K"]
    memory: Float[Tensor, "2 L B S H K"]
    memory_mask: Float[Tensor, "B 1 1 S"]  # added to the scores
    memory_lengths: Int[Tensor, " B"]  # tokens before padding
    ancestry: Bool[Tensor, "B W C"]  # which slots each beam descends from
    lengths: Int[Tensor, " B"]  # past target positions of each sentence's beams
    places: Int[Tensor, "B 1"]
    kernels: bool  # whether attention uses our own kernels instead of torch's
    slots: Int[Tensor, "B W"] = field(init=False, repr=False)  # to which the current step writes
    mask: Float[Tensor, "B 1 W C"] = field(init=False, repr=False)  # of the current step, added to scores by torch's kernels

    @classmethod
    def empty(
        cls,
        like: Float[Tensor, "2 L _ H _ K"],
        *,
        num_places: int,
        width: int,
        num_positions: int,
        num_keys: int,
        kernels: bool,
    ) -> "StaticCache":
        """Return a cache for sentences with a memory `like` this one. With `kernels`, attention uses our own where they
        serve the model. Slots begin with zeros, because a NaN in a slot with a weight of zero would make the sum a NaN."""
        _, num_layers, _, num_heads, _, d_head = like.shape
        device = like.device
        return cls(
            past=like.new_zeros(2, num_layers, num_places, num_positions * width, num_heads, d_head),
            memory=like.new_zeros(2, num_layers, num_places, num_keys, num_heads, d_head),
            memory_mask=like.new_zeros(num_places, 1, 1, num_keys),
            memory_lengths=torch.zeros(num_places, dtype=torch.long, device=device),
            ancestry=torch.zeros(num_places, width, num_positions * width, dtype=torch.bool, device=device),
            lengths=torch.zeros(num_places, dtype=torch.long, device=device),
            places=torch.arange(num_places, device=device)[:, None],
            kernels=kernels and decodes(width, d_head, like.dtype),
        )

    @property
    def shape(self) -> tuple[int, int]:
        """The numbers of places and of beams of each."""
        return self.ancestry.shape[0], self.ancestry.shape[1]

    @property
    def num_positions(self) -> int:
        return self.ancestry.shape[2] // self.ancestry.shape[1]

    @property
    def num_keys(self) -> int:
        return self.memory.shape[3]

    def window(self, num_places: int, num_positions: int, num_keys: int) -> "StaticCache":
        """Return views of the first places, positions and keys, so that a step reads no more than it needs."""
        num_slots = num_positions * self.shape[1]
        return StaticCache(
            past=self.past[:, :, :num_places, :num_slots],
            memory=self.memory[:, :, :num_places, :num_keys],
            memory_mask=self.memory_mask[:num_places, :, :, :num_keys],
            memory_lengths=self.memory_lengths[:num_places],
            ancestry=self.ancestry[:num_places, :, :num_slots],
            lengths=self.lengths[:num_places],
            places=self.places[:num_places],
            kernels=self.kernels,
        )

    def open_slots(self) -> None:
        """Begin a step, and let each beam's next position attend to its past and to itself."""
        width = self.shape[1]
        self.slots = self.lengths[:, None] * width + torch.arange(width, device=self.lengths.device)
        self.ancestry.scatter_(2, self.slots[:, :, None], True)
        if not self.kernels:
            self.mask = _as_summand(self.ancestry, self.past.dtype)[:, None]

    def append(self, layer: int, new: KeyValue) -> KeyValue:
        """Write a slot for each beam, and return all slots, written or not. The mask marks those that a beam attends to."""
        keys, values = self.past[:, layer]
        keys[self.places, self.slots] = new.keys.transpose(1, 2)
        values[self.places, self.slots] = new.values.transpose(1, 2)
        return KeyValue(keys.transpose(1, 2), values.transpose(1, 2))

    def advance(self) -> None:
        """End a step, after which every beam has one more position."""
        self.lengths += 1

    def select(self, beams: Int[Tensor, "B W"]) -> None:
        """Make beam w of each sentence a copy of its beam `beams[b, w]`."""
        self.ancestry.copy_(self.ancestry.gather(1, beams[:, :, None].expand_as(self.ancestry)))

    def rewind(self, is_done: Bool[Tensor, " B"]) -> None:
        """Set the lengths of sentences that are done to 0. Until others take their places, they write to slots that
        are not read any more."""
        self.lengths.masked_fill_(is_done, 0)

    def fill(
        self,
        places: Int[Tensor, " R"],
        memory: Float[Tensor, "2 L _ H _ K"],
        rows: Int[Tensor, " R"],
        is_token: Bool[Tensor, "R S"],
    ) -> None:
        """Put new sentences into these places, with these rows of `memory`, the keys and values of their sources."""
        num_keys = memory.shape[4]
        self.memory[:, :, places, :num_keys] = memory[:, :, rows].transpose(3, 4)
        self.memory_mask.index_fill_(0, places, -torch.inf)
        self.memory_mask[places, :, :, :num_keys] = _as_summand(is_token, self.memory_mask.dtype)[:, None, None]
        self.memory_lengths[places] = is_token.sum(1)
        self.ancestry.index_fill_(0, places, False)
        self.lengths.index_fill_(0, places, 0)

    def move(self, sources: Int[Tensor, " R"], targets: Int[Tensor, " R"]) -> None:
        """Move sentences to other places, so that the first places are taken and the last are free."""
        for tensor in (self.ancestry, self.lengths, self.memory_mask, self.memory_lengths):
            tensor[targets] = tensor[sources]
        for tensor in (self.past, self.memory):
            tensor[:, :, targets] = tensor[:, :, sources]


def _as_summand(mask: Bool[Tensor, "*shape"], dtype: torch.dtype) -> Float[Tensor, "*shape"]:
    """Return 0 where a query may attend and −∞ where it may not: the logarithms of 1 and 0."""
    return mask.to(dtype).log_()
