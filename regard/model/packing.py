"""A batch without padding: its sentences one behind the other, and for every token which others it may attend to.

A pass that is recorded once and repeated has a fixed number of rows. `Room` says how many, packs batches into them on a CPU,
as one array that travels to the GPU at once, and finds the parts of that array again. Rows that are left over hold padding
that attends to nothing and counts for nothing. Where the model shall see a batch twice, all of its rows stand there twice.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Int
from torch import Tensor

from regard.config import ModelConfig
from regard.kernels.intervals import Intervals

Ints = npt.NDArray[np.int32]
Rows = npt.NDArray[np.int64]


def unserved(config: ModelConfig) -> str | None:
    """What of this model the packed pass cannot do, or nothing."""
    reasons = {
        f"models of kind {config.kind}": config.kind != "transformer",
        f"activation {config.activation}": config.activation != "relu",
        "learned positions": config.positions == "learned",
        "an output bias": config.output_bias,
        "dropout on attention weights": config.attention_dropout > 0.0,
        "dropout inside the feed-forward network": config.activation_dropout > 0.0,
        f"ablation {config.ablation}": config.ablation != "none",
        f"heads of {config.d_head}": config.d_head not in (16, 32, 64, 128),
        f"d_model {config.d_model}": config.d_model % 8 != 0,
    }
    return next((what for what, holds in reasons.items() if holds), None)


class Sentences(NamedTuple):
    """End to end, each with its EOS."""

    ids: Ints
    lengths: Rows


class Side(NamedTuple):
    """The tokens of one side."""

    ids: Int[Tensor, " N"]
    positions: Int[Tensor, " N"]
    order: Int[Tensor, " N"]  # rows, sorted by token
    starts: Int[Tensor, " _"]  # where each token's begin in that order; padding has none


class Packing(NamedTuple):
    """What the model sees at once."""

    src: Side
    tgt: Side
    targets: Int[Tensor, " T"]  # once, for all copies
    encoder: Intervals
    decoder: Intervals
    cross: Intervals
    seed: Int[Tensor, " 1"]  # of dropout


@dataclass(frozen=True)
class Room:
    """For so many tokens on each side, out of vocabularies of these sizes. Of several copies, each has so many rows, and the
    same ones: row r of one is row r of all."""

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
        """Numbers in the array."""
        return -(-self._places[-1][1] // 4) * 4

    def parts(self, array: Int[Tensor, " size"]) -> Packing:
        """Views into it."""
        parts = [array[start:end] for start, end in self._places]
        return Packing(
            Side(*parts[:4]),
            Side(*parts[4:8]),
            parts[8],
            Intervals(*parts[9:13]),
            Intervals(*parts[13:17]),
            Intervals(*parts[17:21]),
            parts[21],
        )

    def cuts(self, src: Rows, tgt: Rows) -> list[slice]:
        """Sentences of these lengths in as few pieces as fit, each after the other."""
        assert src.max() <= self.src and tgt.max() <= self.tgt, "a sentence is longer than there is room for"
        pieces, start = [], 0
        while start < len(src):
            fits = (np.cumsum(src[start:]) <= self.src) & (np.cumsum(tgt[start:]) <= self.tgt)
            end = start + int(fits.sum())
            pieces.append(slice(start, end))
            start = end
        return pieces

    def pack(self, src: Sentences, tgt: Sentences, bos_id: int) -> list[Ints]:
        """More than one array where they do not fit into one."""
        ends = [np.cumsum([0, *side.lengths]) for side in (src, tgt)]
        arrays = []
        for rows in self.cuts(src.lengths, tgt.lengths):
            src_piece, tgt_piece = (
                Sentences(side.ids[end[rows.start] : end[rows.stop]], side.lengths[rows])
                for side, end in zip((src, tgt), ends, strict=True)
            )
            arrays.append(self._packed(src_piece, tgt_piece, bos_id))
        return arrays

    def set_seed(self, array: Ints, seed: int) -> None:
        """Of dropout. It belongs to the update, not to the batch, and so comes last."""
        array[self._places[-1][0]] = np.array(seed, dtype=np.uint32).view(np.int32)

    def _packed(self, src: Sentences, tgt: Sentences, bos_id: int) -> Ints:
        array = np.zeros(self.size, dtype=np.int32)
        parts = [array[start:end] for start, end in self._places]
        of_src, of_tgt = _bounds(src.lengths), _bounds(tgt.lengths)
        src_first, src_end = (np.repeat(places, src.lengths) for places in of_src)
        tgt_first, tgt_end = (np.repeat(places, tgt.lengths) for places in of_tgt)
        src_rows, tgt_rows = (np.arange(len(side.ids), dtype=np.int32) for side in (src, tgt))
        tgt_in = np.roll(tgt.ids, 1)  # what is predicted, shifted right
        tgt_in[of_tgt[0]] = bos_id
        self._fill_side(parts[:4], src.ids, src_rows - src_first)
        self._fill_side(parts[4:8], tgt_in, tgt_rows - tgt_first)
        parts[8][:] = self.pad_id
        parts[8][: len(tgt.ids)] = tgt.ids
        for part, places in zip(parts[9:13], (src_first, src_end) * 2, strict=True):
            self._fill(part, places, self.src)
        # Under the causal mask up to and including the query itself, and from the key itself on.
        for part, places in zip(parts[13:17], (tgt_first, tgt_rows + 1, tgt_rows, tgt_end), strict=True):
            self._fill(part, places, self.tgt)
        for part, places in zip(parts[17:19], of_src, strict=True):
            self._fill(part, np.repeat(places, tgt.lengths), self.src)
        for part, places in zip(parts[19:21], of_tgt, strict=True):
            self._fill(part, np.repeat(places, src.lengths), self.tgt)
        return array

    def _fill(self, part: Ints, values: Ints, shift: int = 0) -> None:
        """In each copy, where they are so much larger than in the one before: rows of one side stand so much further on."""
        for number, copy in enumerate(part.reshape(self.copies, -1)):
            np.add(values, number * shift, out=copy[: len(values)])

    def _fill_side(self, parts: list[Ints], tokens: Ints, positions: Ints) -> None:
        ids, places, order, starts = parts
        ids[:] = self.pad_id
        self._fill(ids, tokens)
        self._fill(places, positions)
        narrow = tokens.astype(np.uint16) if len(starts) <= 2**16 else tokens  # which numpy sorts by radix
        rows = np.argsort(narrow, kind="stable")[:, None] + np.arange(self.copies) * (len(ids) // self.copies)
        order[: rows.size] = rows.ravel()  # each followed by its copies, which hold the same token
        starts[1:] = self.copies * np.cumsum(np.bincount(tokens, minlength=len(starts) - 1))


def _bounds(lengths: Rows) -> tuple[Ints, Ints]:
    """Where each sentence begins, and where it ends."""
    ends = np.cumsum(lengths, dtype=np.int32)
    return ends - lengths.astype(np.int32), ends


def empty_array(room: Room, device: torch.device) -> Int[Tensor, " size"]:
    """Nothing but padding, which every kernel can take."""
    array = torch.zeros(room.size, dtype=torch.int32, device=device)
    for part in (room.parts(array).src.ids, room.parts(array).tgt.ids, room.parts(array).targets):
        part.fill_(room.pad_id)
    return array
