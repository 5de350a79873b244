"""A batch without padding: its sentences next to each other, with the tokens that each token may attend to.

A pass that is captured once and replayed has a fixed number of rows. `PackLayout` has that number, packs batches into these
rows on a CPU as one array, which is copied to the GPU at once, and returns the parts of that array. Unused rows hold
padding, which attends to nothing and does not count in the loss. If the model sees a batch twice, there are two of each row.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Int
from torch import Tensor

from regard.data.batch import Drawn, Pairs
from regard.data.store import Ragged
from regard.fast.kernels.intervals import Intervals
from regard.text.tokenizer import BOS_ID, EOS_ID

Ints = npt.NDArray[np.int32]
Rows = npt.NDArray[np.int64]


class Sentences(NamedTuple):
    """Sentences next to each other, each with its EOS."""

    ids: Ints
    lengths: Rows


@dataclass(frozen=True)
class PackedBatch:
    """Pairs packed into arrays of a `PackLayout`, usually into one."""

    arrays: list[Ints]
    num_tokens: int  # target tokens to predict


class PackedSide(NamedTuple):
    """The tokens of one side."""

    ids: Int[Tensor, " N"]
    positions: Int[Tensor, " N"]
    order: Int[Tensor, " N"]  # rows, sorted by token
    starts: Int[Tensor, " _"]  # where each token's rows begin in that order; padding has none


class Packing(NamedTuple):
    """The tensors of one pass."""

    src: PackedSide
    tgt: PackedSide
    targets: Int[Tensor, " T"]  # stored once for all copies
    encoder: Intervals
    decoder: Intervals
    cross: Intervals
    seed: Int[Tensor, " 1"]  # of dropout


@dataclass(frozen=True)
class PackLayout:
    """The numbers of rows for the tokens of each side, and the sizes of the vocabularies. Each copy of a batch has these
    rows, in the same order."""

    src: int
    tgt: int
    src_vocab_size: int
    tgt_vocab_size: int
    pad_id: int
    copies: int = 1
    _places: tuple[tuple[int, int], ...] = field(init=False)

    def __post_init__(self) -> None:
        src, tgt = self.copies * self.src, self.copies * self.tgt
        sizes = [src, src, src, self.src_vocab_size + 1]
        sizes += [tgt, tgt, tgt, self.tgt_vocab_size + 1, self.tgt]
        sizes += [src] * 4 + [tgt] * 4 + [tgt, tgt, src, src, 1]
        ends = np.cumsum([-(-size // 4) * 4 for size in sizes]).tolist()  # each part begins at a multiple of 16 bytes
        starts = [0, *ends[:-1]]
        object.__setattr__(self, "_places", tuple((s, s + size) for s, size in zip(starts, sizes, strict=True)))

    @property
    def size(self) -> int:
        """The number of elements in the array."""
        return -(-self._places[-1][1] // 4) * 4

    def parts(self, array: Int[Tensor, " size"]) -> Packing:
        """Return the parts of the array, as views."""
        parts = [array[start:end] for start, end in self._places]
        return Packing(
            PackedSide(*parts[:4]),
            PackedSide(*parts[4:8]),
            parts[8],
            Intervals(*parts[9:13]),
            Intervals(*parts[13:17]),
            Intervals(*parts[17:21]),
            parts[21],
        )

    def cuts(self, src: Rows, tgt: Rows) -> list[slice]:
        """Cut sentences of these lengths, in their order, into as few pieces as fit."""
        assert src.max() <= self.src and tgt.max() <= self.tgt, "a sentence is longer than there is room for"
        pieces, start = [], 0
        while start < len(src):
            fits = (np.cumsum(src[start:]) <= self.src) & (np.cumsum(tgt[start:]) <= self.tgt)
            end = start + int(fits.sum())
            pieces.append(slice(start, end))
            start = end
        return pieces

    def pack(self, drawn: Drawn) -> PackedBatch:
        """Pack a batch into one array, or into several if it does not fit."""
        assert isinstance(drawn, Pairs)
        src, tgt = ended(drawn.src), ended(drawn.tgt)
        ends = [np.cumsum([0, *side.lengths]) for side in (src, tgt)]
        arrays = []
        for rows in self.cuts(src.lengths, tgt.lengths):
            src_piece, tgt_piece = (
                Sentences(side.ids[end[rows.start] : end[rows.stop]], side.lengths[rows])
                for side, end in zip((src, tgt), ends, strict=True)
            )
            arrays.append(self._packed(src_piece, tgt_piece))
        return PackedBatch(arrays, drawn.num_tokens)

    def set_seed(self, array: Ints, seed: int) -> None:
        """Set dropout's seed, which belongs to the update and not to the batch."""
        array[self._places[-1][0]] = np.array(seed, dtype=np.uint32).view(np.int32)

    def _packed(self, src: Sentences, tgt: Sentences) -> Ints:
        array = np.zeros(self.size, dtype=np.int32)
        parts = [array[start:end] for start, end in self._places]
        of_src, of_tgt = _bounds(src.lengths), _bounds(tgt.lengths)
        src_first, src_end = (np.repeat(places, src.lengths) for places in of_src)
        tgt_first, tgt_end = (np.repeat(places, tgt.lengths) for places in of_tgt)
        src_rows, tgt_rows = (np.arange(len(side.ids), dtype=np.int32) for side in (src, tgt))
        tgt_in = np.roll(tgt.ids, 1)  # shifted right
        tgt_in[of_tgt[0]] = BOS_ID
        self._fill_side(parts[:4], src.ids, src_rows - src_first)
        self._fill_side(parts[4:8], tgt_in, tgt_rows - tgt_first)
        parts[8][:] = self.pad_id
        parts[8][: len(tgt.ids)] = tgt.ids
        for part, places in zip(parts[9:13], (src_first, src_end) * 2, strict=True):
            self._fill(part, places, self.src)
        # Under the causal mask, a query's keys end with itself, and a key's queries begin with itself.
        for part, places in zip(parts[13:17], (tgt_first, tgt_rows + 1, tgt_rows, tgt_end), strict=True):
            self._fill(part, places, self.tgt)
        for part, places in zip(parts[17:19], of_src, strict=True):
            self._fill(part, np.repeat(places, tgt.lengths), self.src)
        for part, places in zip(parts[19:21], of_tgt, strict=True):
            self._fill(part, np.repeat(places, src.lengths), self.tgt)
        return array

    def _fill(self, part: Ints, values: Ints, shift: int = 0) -> None:
        """Write values into each copy, increased by `shift` from one copy to the next, as row numbers are."""
        for number, copy in enumerate(part.reshape(self.copies, -1)):
            np.add(values, number * shift, out=copy[: len(values)])

    def _fill_side(self, parts: list[Ints], tokens: Ints, positions: Ints) -> None:
        ids, places, order, starts = parts
        ids[:] = self.pad_id
        self._fill(ids, tokens)
        self._fill(places, positions)
        narrow = tokens.astype(np.uint16) if len(starts) <= 2**16 else tokens  # numpy sorts 16 bits by radix
        rows = np.argsort(narrow, kind="stable")[:, None] + np.arange(self.copies) * (len(ids) // self.copies)
        order[: rows.size] = rows.ravel()  # each row is followed by its copies, which hold the same token
        starts[1:] = self.copies * np.cumsum(np.bincount(tokens, minlength=len(starts) - 1))


def _bounds(lengths: Rows) -> tuple[Ints, Ints]:
    """Return where each sentence begins, and where it ends."""
    ends = np.cumsum(lengths, dtype=np.int32)
    return ends - lengths.astype(np.int32), ends


def ended(rows: Ragged) -> Sentences:
    """Return rows next to each other, with EOS after each."""
    lengths = rows.lengths + 1
    ids = np.empty(len(rows.values) + len(rows), dtype=np.int32)
    is_end = np.zeros(len(ids), dtype=np.bool_)
    is_end[np.cumsum(lengths) - 1] = True
    ids[is_end] = EOS_ID
    ids[~is_end] = rows.values
    return Sentences(ids, lengths)


def empty_array(layout: PackLayout, device: torch.device) -> Int[Tensor, " size"]:
    """Return an array that holds only padding, which every kernel accepts."""
    array = torch.zeros(layout.size, dtype=torch.int32, device=device)
    packing = layout.parts(array)
    for part in (packing.src.ids, packing.tgt.ids, packing.targets):
        part.fill_(layout.pad_id)
    return array
