"""A model set up to search with static shapes: its cache, the search's board and, on a GPU, graphs of a step of both."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import torch
from jaxtyping import Bool
from torch import Tensor

from regard.data.batch import collate_sources
from regard.model.cache import KeyValue
from regard.model.embedding import SinusoidalPositions
from regard.model.static_cache import StaticCache
from regard.model.transformer import Transformer
from regard.search.board import BeamBoard, Board, GreedyBoard
from regard.search.hypothesis import forced_tokens
from regard.text.tokenizer import BOS_ID, EOS_ID
from regard.translate.graphs import Graphs

FEWEST_POSITIONS = 32


class Sentence(NamedTuple):
    """What a search is given: a source, the most tokens of an output, and what it has to begin with."""

    ids: Sequence[int]
    limit: int
    prefix: Sequence[int] = ()


class Extent(NamedTuple):
    """How much a rig has room for, and how much of it a step touches: the shape that it is captured by."""

    num_places: int
    num_positions: int
    num_keys: int

    def holds(self, other: "Extent") -> bool:
        return all(ours >= theirs for ours, theirs in zip(self, other, strict=True))


class Encoded(NamedTuple):
    """Sentences that wait for a place, with what all layers made of their sources."""

    memory: KeyValue
    is_token: Bool[Tensor, "B S"]


@dataclass(frozen=True, eq=False)
class Rig:
    """For one model, one width of the beam and one number of hypotheses; for any sentences that it has room for."""

    model: Transformer
    cache: StaticCache
    board: Board
    graphs: Graphs | None
    reads: tuple[Tensor, ...]  # what captured steps read beside cache and board; held, so that it outlives them

    @classmethod
    def of(
        cls, model: Transformer, extent: Extent, *, width: int, num_best: int, graphs: bool, kernels: bool = False
    ) -> "Rig":
        """A beam of 1 is greedy search. `kernels` of our own attend, where they serve such a model and beam."""
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
        board: Board
        if width == 1:
            board = GreedyBoard.empty(
                num_places=extent.num_places,
                num_steps=extent.num_positions,
                bos_id=BOS_ID,
                eos_id=EOS_ID,
                device=device,
            )
        else:
            board = BeamBoard.empty(
                num_places=extent.num_places,
                width=width,
                num_steps=extent.num_positions,
                num_best=num_best,
                bos_id=BOS_ID,
                eos_id=EOS_ID,
                device=device,
            )
        model.tgt_positions(torch.zeros(1, 1, dtype=torch.long, device=device), extent.num_positions)  # its table grows now
        return cls(model, cache, board, Graphs(device) if graphs else None, _read_by(model))

    @property
    def extent(self) -> Extent:
        return Extent(self.cache.num_sentences, self.cache.num_positions, self.cache.num_keys)

    @property
    def device(self) -> torch.device:
        return self.cache.keys.device

    @property
    def is_current(self) -> bool:
        """Whether the model's weights still are where captured steps read them. They may have changed their values."""
        now = _read_by(self.model)
        return len(now) == len(self.reads) and all(
            a.data_ptr() == b.data_ptr() for a, b in zip(now, self.reads, strict=True)
        )

    def begin(self, alpha: float) -> None:
        """Another search: nobody is in any place."""
        self.board.begin(alpha)
        self.cache.lengths.zero_()

    def encode(self, sentences: Sequence[Sentence]) -> Encoded:
        src = self.to_device(collate_sources([sentence.ids for sentence in sentences]))
        memory = self.model.project_source(src)
        return Encoded(memory, (src != self.model.config.pad_id)[:, : memory.keys.shape[3]])

    def fill(self, places: Sequence[int], encoded: Encoded, rows: Sequence[int], sentences: Sequence[Sentence]) -> None:
        """Puts sentences, which are these rows of `encoded`, into places."""
        limits = [sentence.limit for sentence in sentences]
        forced = forced_tokens([sentence.prefix for sentence in sentences], limits, eos_id=EOS_ID)
        table = torch.full((len(places), 3 + self.board.forced.shape[1]), EOS_ID)  # one table: one copy to the device
        table[:, 0], table[:, 1], table[:, 2] = torch.tensor(places), torch.tensor(rows), torch.tensor(limits)
        table[:, 3 : 3 + forced.shape[1]] = forced
        table = self.to_device(table)
        self.cache.fill(table[:, 0], encoded.memory, table[:, 1], encoded.is_token[table[:, 1]])
        self.board.fill(table[:, 0], table[:, 2], table[:, 3:])

    def move(self, sources: Sequence[int], targets: Sequence[int]) -> None:
        """Sentences to places that nobody is in."""
        table = self.to_device(torch.tensor([sources, targets]))
        self.cache.move(table[0], table[1])
        self.board.move(table[0], table[1])

    def step(self, window: Extent) -> None:
        """One step of every sentence in these places."""
        work = partial(self._step, window)
        if self.graphs is None:
            with torch.cuda.device_of(self.cache.keys):  # our own kernels run on the current device, whatever they are given
                work()
        else:
            self.graphs.run(window, work)

    @torch.no_grad()
    def _step(self, window: Extent) -> None:
        """Static from end to end: embedding, layers, probabilities, the best of them, and who is done."""
        cache, board = self.cache.window(*window), self.board.window(window.num_places)
        parents = board.advance(self.model.step(board.ids.flatten(), cache))
        if parents is not None:
            cache.select(parents)
        cache.rewind(board.is_done)

    def to_device(self, table: Tensor) -> Tensor:
        """Without waiting for what the device is at."""
        if self.device.type == "cuda":
            return table.pin_memory().to(self.device, non_blocking=True)
        return table.to(self.device)


def positions_for(num_positions: int, most: int) -> int:
    """At least so many, in few different sizes: each is a graph of its own. Never more than `most`."""
    size = FEWEST_POSITIONS
    while size < num_positions:
        size += max(FEWEST_POSITIONS, 2 ** (size.bit_length() - 2))
    return min(size, most)


def power_of_two(number: int) -> int:
    """The smallest that is not below."""
    return 1 << max(0, number - 1).bit_length()


def _read_by(model: Transformer) -> tuple[Tensor, ...]:
    """What a step of a model reads: its parameters, and tables that are none."""
    tables = [part.table for part in (model.src_positions, model.tgt_positions) if isinstance(part, SinusoidalPositions)]
    return (*(parameter.detach() for parameter in model.parameters()), *tables)
