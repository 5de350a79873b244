"""A model set up to search with static shapes: its cache, the search's state and, on a GPU, CUDA graphs of a step."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from regard.data.batch import collate_sources
from regard.fast.decoding.beam_state import BeamState, GreedyState, SearchState
from regard.fast.decoding.cache import StaticCache
from regard.fast.decoding.graphs import Graphs
from regard.fast.decoding.step import step
from regard.model.embedding import SinusoidalPositions
from regard.model.transformer import Transformer
from regard.search.hypothesis import Sentence, forbid, forced_tokens
from regard.text.tokenizer import BOS_ID, EOS_ID, NEVER_OUTPUT

FEWEST_POSITIONS = 32


class Extent(NamedTuple):
    """The size of a decoder, or of the part of it that a step uses, which identifies a captured step. A place is the row of
    a batch that one sentence occupies."""

    num_places: int
    num_positions: int
    num_keys: int

    def holds(self, other: "Extent") -> bool:
        return all(ours >= theirs for ours, theirs in zip(self, other, strict=True))


class Encoded(NamedTuple):
    """The projected keys and values of sentences that wait for a place."""

    memory: Float[Tensor, "2 L B H S K"]
    is_token: Bool[Tensor, "B S"]


@dataclass(frozen=True, eq=False)
class StaticDecoder:
    """A decoder for one model, beam width and number of hypotheses, and for any sentences that it has room for."""

    model: Transformer
    cache: StaticCache
    state: SearchState
    graphs: Graphs | None
    reads: tuple[Tensor, ...]  # tensors outside cache and state that captured steps read, kept alive for them

    @classmethod
    def of(
        cls, model: Transformer, extent: Extent, *, width: int, num_best: int, graphs: bool, kernels: bool = False
    ) -> "StaticDecoder":
        """Set up a decoder. A width of 1 is greedy search. With `kernels`, attention uses our own where it can."""
        device = model.output_weight.device
        like = model.project_source(torch.full((1, 1), EOS_ID, device=device))
        cache = StaticCache.empty(
            like,
            num_places=extent.num_places,
            width=width,
            num_positions=extent.num_positions,
            num_keys=extent.num_keys,
            kernels=kernels,
        )
        state: SearchState
        if width == 1:
            state = GreedyState.empty(
                num_places=extent.num_places, num_steps=extent.num_positions, bos_id=BOS_ID, eos_id=EOS_ID, device=device
            )
        else:
            state = BeamState.empty(
                num_places=extent.num_places,
                width=width,
                num_steps=extent.num_positions,
                num_best=num_best,
                bos_id=BOS_ID,
                eos_id=EOS_ID,
                device=device,
            )
        model.tgt_positions(torch.zeros(1, 1, dtype=torch.long, device=device), extent.num_positions)  # grow the table
        return cls(model, cache, state, Graphs(device) if graphs else None, _read_by(model))

    @property
    def extent(self) -> Extent:
        return Extent(self.cache.shape[0], self.cache.num_positions, self.cache.num_keys)

    @property
    def device(self) -> torch.device:
        return self.cache.past.device

    @property
    def is_current(self) -> bool:
        """Whether the model's weights are still at the addresses that captured steps read. Their values may have changed."""
        now = _read_by(self.model)
        return len(now) == len(self.reads) and all(
            a.data_ptr() == b.data_ptr() for a, b in zip(now, self.reads, strict=True)
        )

    def begin(self, alpha: float) -> None:
        """Begin another search, with all places free."""
        self.state.begin(alpha)
        self.cache.lengths.zero_()

    def encode(self, sentences: Sequence[Sentence]) -> Encoded:
        src = self.to_device(collate_sources([sentence.ids for sentence in sentences]))
        memory = self.model.project_source(src)
        return Encoded(memory, (src != self.model.config.pad_id)[:, : memory.shape[4]])

    def fill(self, places: Sequence[int], encoded: Encoded, rows: Sequence[int], sentences: Sequence[Sentence]) -> None:
        """Put sentences, which are these rows of `encoded`, into these places."""
        limits = [sentence.limit for sentence in sentences]
        forced = forced_tokens([sentence.prefix for sentence in sentences], limits, eos_id=EOS_ID)
        table = torch.full((len(places), 3 + self.state.forced.shape[1]), EOS_ID)  # one table, for one copy to the device
        table[:, 0], table[:, 1], table[:, 2] = torch.tensor(places), torch.tensor(rows), torch.tensor(limits)
        table[:, 3 : 3 + forced.shape[1]] = forced
        table = self.to_device(table)
        self.cache.fill(table[:, 0], encoded.memory, table[:, 1], encoded.is_token[table[:, 1]])
        self.state.fill(table[:, 0], table[:, 2], table[:, 3:])

    def move(self, sources: Sequence[int], targets: Sequence[int]) -> None:
        """Move sentences from source places to free target places."""
        table = self.to_device(torch.tensor([sources, targets]))
        self.cache.move(table[0], table[1])
        self.state.move(table[0], table[1])

    def step(self, window: Extent) -> None:
        """Run one step of every sentence in this window."""
        work = partial(self._step, window)
        if self.graphs is None:
            with torch.cuda.device_of(self.cache.past):  # our own kernels run on the current device
                work()
        else:
            self.graphs.run(window, work)

    @torch.no_grad()
    def _step(self, window: Extent) -> None:
        """Run the model, then the search, on views of static shape."""
        cache, state = self.cache.window(*window), self.state.window(window.num_places)
        parents = state.advance(forbid(step(self.model, state.ids.flatten(), cache), NEVER_OUTPUT))
        if parents is not None:
            cache.select(parents)
        cache.rewind(state.is_done)

    def to_device(self, table: Tensor) -> Tensor:
        """Copy a table to the device without a host sync."""
        if self.device.type == "cuda":
            return table.pin_memory().to(self.device, non_blocking=True)
        return table.to(self.device)


def positions_for(num_positions: int, most: int) -> int:
    """Round up to one of few sizes, because each size needs a graph of its own, but at most to `most`."""
    size = FEWEST_POSITIONS
    while size < num_positions:
        size += max(FEWEST_POSITIONS, 2 ** (size.bit_length() - 2))
    return min(size, most)


def power_of_two(number: int) -> int:
    """Return the smallest power of two that is at least `number`."""
    return 1 << max(0, number - 1).bit_length()


def _read_by(model: Transformer) -> tuple[Tensor, ...]:
    """Return the tensors that a step of a model reads: its parameters and its tables of positions."""
    tables = [part.table for part in (model.src_positions, model.tgt_positions) if isinstance(part, SinusoidalPositions)]
    return (*(parameter.detach() for parameter in model.parameters()), *tables)
