"""What incremental decoding remembers where every shape and address must stay: a step can be recorded once and replayed.

B sentences have a place each, for W beams and up to C positions. A place is taken by another sentence as soon as its own is
done, so each has a clock of its own: position t of a sentence is written to slots t · W to t · W + W - 1 of its place. As in
`DecoderCache`, keys never move when beams change places; `ancestry` says which slots a beam descends from, and a sentence's
beams read its slots together. Where to write is known to the device alone: no step asks it anything.
"""

from dataclasses import dataclass, field

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.model.cache import KeyValue

# What kernels.decoding serves; it cannot say so itself, for not everyone can import it.
SERVED_HEADS = (16, 32, 64, 128)
SERVED_TYPES = (torch.float32, torch.bfloat16, torch.float16)
MOST_SERVED_BEAMS = 8


@dataclass(frozen=True)
class StaticLayerCache:
    """One layer's share of a `StaticCache`: views into it, so that appending writes through."""

    keys: Float[Tensor, "B C H K"]
    values: Float[Tensor, "B C H K"]
    ancestry: Bool[Tensor, "B W C"]
    lengths: Int[Tensor, " B"]
    places: Int[Tensor, "B 1"]
    slots: Int[Tensor, "B W"]
    kernels: bool  # whether `attend` is to be asked; else `append`

    def append(self, new: KeyValue) -> KeyValue:
        """Writes a slot for each beam; returns all there are, written or not. Which a beam may see, the mask says."""
        self.keys[self.places, self.slots] = new.keys.transpose(1, 2)
        self.values[self.places, self.slots] = new.values.transpose(1, 2)
        return KeyValue(self.keys.transpose(1, 2), self.values.transpose(1, 2))

    def attend(self, q: Float[Tensor, "B H W K"], new: KeyValue, scale: float | None) -> Float[Tensor, "B W D"]:
        """Writes a slot for each beam as well, and gives what all heads see, side by side: by our own kernel, which reads
        no further than each sentence has come."""
        from regard.kernels.decoding import attend_to_past

        return attend_to_past(
            q, new.keys, new.values, self.keys, self.values, ancestry=self.ancestry, lengths=self.lengths, scale=scale
        )


@dataclass(frozen=True)
class StaticMemory:
    """One layer's keys and values of the sources, which stand at the beginning of their places."""

    keys: Float[Tensor, "B S H K"]
    values: Float[Tensor, "B S H K"]
    lengths: Int[Tensor, " B"]
    kernels: bool  # whether `attend` is to be asked; else `all`

    def all(self) -> KeyValue:
        """Those that nobody may see, too; which these are, the mask says."""
        return KeyValue(self.keys.transpose(1, 2), self.values.transpose(1, 2))

    def attend(self, q: Float[Tensor, "B H W K"], scale: float | None) -> Float[Tensor, "B W D"]:
        """What all heads see, side by side: by our own kernel, which reads no further than each source goes."""
        from regard.kernels.decoding import attend_to_source

        return attend_to_source(q, self.keys, self.values, lengths=self.lengths, scale=scale)


@dataclass
class StaticCache:
    """Room for B places of C slots, W of them a position, and for sources of S tokens."""

    keys: Float[Tensor, "L B C H K"]  # not (…, H, C, K): a slot's heads are written together, and kernels read them so, too
    values: Float[Tensor, "L B C H K"]
    ancestry: Bool[Tensor, "B W C"]  # which slots each beam descends from
    lengths: Int[Tensor, " B"]  # target positions that each sentence's beams have behind them
    memory_keys: Float[Tensor, "L B S H K"]
    memory_values: Float[Tensor, "L B S H K"]
    memory_mask: Float[Tensor, "B 1 1 S"]  # as what is added to scores
    memory_lengths: Int[Tensor, " B"]  # the same as a number: tokens stand before padding
    places: Int[Tensor, "B 1"]
    kernels: bool  # whether our own attend, and not torch's
    slots: Int[Tensor, "B W"] = field(init=False, repr=False)  # where the step that is under way writes

    @classmethod
    def empty(
        cls, like: KeyValue, *, num_places: int, width: int, num_positions: int, num_keys: int, kernels: bool
    ) -> "StaticCache":
        """For sentences whose memory is `like` this one's. With `kernels` our own attend, where they can. Zeros: nobody
        attends to what was never written, but a NaN that happened to be there would still be a NaN times zero."""
        num_layers, _, num_heads, _, d_head = like.keys.shape
        slots = (num_layers, num_places, num_positions * width, num_heads, d_head)
        memory = (num_layers, num_places, num_keys, num_heads, d_head)
        device = like.keys.device
        return cls(
            keys=like.keys.new_zeros(slots),
            values=like.keys.new_zeros(slots),
            ancestry=torch.zeros(num_places, width, num_positions * width, dtype=torch.bool, device=device),
            lengths=torch.zeros(num_places, dtype=torch.long, device=device),
            memory_keys=like.keys.new_zeros(memory),
            memory_values=like.keys.new_zeros(memory),
            memory_mask=like.keys.new_zeros(num_places, 1, 1, num_keys),
            memory_lengths=torch.zeros(num_places, dtype=torch.long, device=device),
            places=torch.arange(num_places, device=device)[:, None],
            kernels=kernels and is_served(width, d_head, like.keys.dtype),
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
    def num_positions(self) -> int:
        return self.ancestry.shape[2] // self.width

    @property
    def num_keys(self) -> int:
        return self.memory_keys.shape[2]

    @property
    def longest(self) -> int:
        """What none of `lengths` is beyond, known without asking the device."""
        return self.num_positions - 1

    def window(self, num_places: int, num_positions: int, num_keys: int) -> "StaticCache":
        """The first places, with as much of each as its sentence needs so far: views, so that nothing is read in vain and
        nothing is copied when more is needed."""
        num_slots = num_positions * self.width
        return StaticCache(
            keys=self.keys[:, :num_places, :num_slots],
            values=self.values[:, :num_places, :num_slots],
            ancestry=self.ancestry[:num_places, :, :num_slots],
            lengths=self.lengths[:num_places],
            memory_keys=self.memory_keys[:, :num_places, :num_keys],
            memory_values=self.memory_values[:, :num_places, :num_keys],
            memory_mask=self.memory_mask[:num_places, :, :, :num_keys],
            memory_lengths=self.memory_lengths[:num_places],
            places=self.places[:num_places],
            kernels=self.kernels,
        )

    def layer(self, index: int) -> StaticLayerCache:
        return StaticLayerCache(
            self.keys[index], self.values[index], self.ancestry, self.lengths, self.places, self.slots, self.kernels
        )

    def memory(self, index: int) -> StaticMemory:
        return StaticMemory(self.memory_keys[index], self.memory_values[index], self.memory_lengths, self.kernels)

    def open_slots(self) -> Bool[Tensor, "B 1 W C"] | Float[Tensor, "B 1 W C"]:
        """Begins a step: what each beam's next position may attend to is its past and itself. For torch's kernels it is what
        is added to scores, which they would make of True and False themselves, in every layer anew."""
        self.slots = self.lengths[:, None] * self.width + torch.arange(self.width, device=self.lengths.device)
        self.ancestry.scatter_(2, self.slots[:, :, None], True)
        return (self.ancestry if self.kernels else _as_summand(self.ancestry, self.keys.dtype))[:, None]

    def advance(self) -> None:
        """Ends a step: every beam has one more position."""
        self.lengths += 1

    def select(self, beams: Int[Tensor, "B W"]) -> None:
        """Makes beam w of each sentence a copy of what was its beam `beams[b, w]`."""
        self.ancestry.copy_(self.ancestry.gather(1, beams[:, :, None].expand_as(self.ancestry)))

    def rewind(self, is_done: Bool[Tensor, " B"]) -> None:
        """Sentences that are done stay where they are until others come, and write where nobody reads any more."""
        self.lengths.masked_fill_(is_done, 0)

    def fill(
        self, places: Int[Tensor, " R"], memory: KeyValue, rows: Int[Tensor, " R"], is_token: Bool[Tensor, "R S"]
    ) -> None:
        """Puts new sentences there: these rows of what all layers made of their sources."""
        num_keys = memory.keys.shape[3]
        self.memory_keys[:, places, :num_keys] = memory.keys[:, rows].transpose(2, 3)
        self.memory_values[:, places, :num_keys] = memory.values[:, rows].transpose(2, 3)
        self.memory_mask.index_fill_(0, places, -torch.inf)
        self.memory_mask[places, :, :, :num_keys] = _as_summand(is_token, self.memory_mask.dtype)[:, None, None]
        self.memory_lengths[places] = is_token.sum(1)
        self.ancestry.index_fill_(0, places, False)
        self.lengths.index_fill_(0, places, 0)

    def move(self, sources: Int[Tensor, " R"], targets: Int[Tensor, " R"]) -> None:
        """Sentences to other places, so that the first places are taken and the last are free."""
        for tensor in (self.ancestry, self.lengths, self.memory_mask, self.memory_lengths):
            tensor[targets] = tensor[sources]
        for tensor in (self.keys, self.values, self.memory_keys, self.memory_values):
            tensor[:, targets] = tensor[:, sources]


def is_served(width: int, d_head: int, dtype: torch.dtype) -> bool:
    """Whether our own kernels can attend for so many beams, heads of this size and numbers of this type."""
    return width <= MOST_SERVED_BEAMS and d_head in SERVED_HEADS and dtype in SERVED_TYPES


def _as_summand(mask: Bool[Tensor, "*shape"], dtype: torch.dtype) -> Float[Tensor, "*shape"]:
    """0 where a query may attend, −∞ where it may not: the logarithms of 1 and 0."""
    return mask.to(dtype).log_()
