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

    def pack(self, src: Rows, tgt_in: Rows, tgt_out: Rows) -> list[Ints]:
        """Tables of ids, padded at the end; more than one array where they do not fit into one."""
        src_lengths, tgt_lengths = ((table != self.pad_id).sum(1) for table in (src, tgt_out))
        return [
            self._packed((src[rows], src_lengths[rows]), (tgt_in[rows], tgt_lengths[rows]), tgt_out[rows])
            for rows in self.cuts(src_lengths, tgt_lengths)
        ]

    def set_seed(self, array: Ints, seed: int) -> None:
        """Of dropout. It belongs to the update, not to the batch, and so comes last."""
        array[self._places[-1][0]] = np.array(seed, dtype=np.uint32).view(np.int32)

    def _packed(self, src: tuple[Rows, Rows], tgt: tuple[Rows, Rows], tgt_out: Rows) -> Ints:
        array = np.zeros(self.size, dtype=np.int32)
        parts = [array[start:end] for start, end in self._places]
        src_first, src_end, src_positions = _sentences(src[1])
        tgt_first, tgt_end, tgt_positions = _sentences(tgt[1])
        num_tgt = len(tgt_positions)
        self._fill_side(parts[:4], src[0], src_positions)
        self._fill_side(parts[4:8], tgt[0], tgt_positions)
        parts[8][:] = self.pad_id
        parts[8][:num_tgt] = tgt_out[tgt_out != self.pad_id]
        for part, of_sentence in zip(parts[9:13], (src_first, src_end) * 2, strict=True):
            self._fill(part, np.repeat(of_sentence, src[1]), self.src)
        self._fill(parts[13], np.repeat(tgt_first, tgt[1]), self.tgt)
        self._fill(parts[14], np.arange(1, num_tgt + 1), self.tgt)  # up to and including the query itself
        self._fill(parts[15], np.arange(num_tgt), self.tgt)
        self._fill(parts[16], np.repeat(tgt_end, tgt[1]), self.tgt)
        for part, of_sentence in zip(parts[17:19], (src_first, src_end), strict=True):
            self._fill(part, np.repeat(of_sentence, tgt[1]), self.src)
        for part, of_sentence in zip(parts[19:21], (tgt_first, tgt_end), strict=True):
            self._fill(part, np.repeat(of_sentence, src[1]), self.tgt)
        return array

    def _fill(self, part: Ints, values: Rows, shift: int = 0) -> None:
        """In each copy, where they are so much larger than in the one before: rows of one side stand so much further on."""
        for number, copy in enumerate(np.split(part, self.copies)):
            copy[: len(values)] = values + number * shift

    def _fill_side(self, parts: list[Ints], table: Rows, positions: Rows) -> None:
        ids, places, order, starts = parts
        tokens = table[table != self.pad_id]
        ids[:] = self.pad_id
        self._fill(ids, tokens)
        self._fill(places, positions)
        narrow = tokens.astype(np.uint16) if len(starts) <= 2**16 else tokens  # which numpy sorts by radix
        rows = np.argsort(narrow, kind="stable")[:, None] + np.arange(self.copies) * (len(ids) // self.copies)
        order[: rows.size] = rows.ravel()  # each followed by its copies, which hold the same token
        starts[1:] = self.copies * np.cumsum(np.bincount(tokens, minlength=len(starts) - 1))


def _sentences(lengths: Rows) -> tuple[Rows, Rows, Rows]:
    """Where each begins and ends, and each token's position in its own."""
    ends = np.cumsum(lengths)
    firsts = ends - lengths
    return firsts, ends, np.arange(int(ends[-1])) - np.repeat(firsts, lengths)


def empty_array(room: Room, device: torch.device) -> Int[Tensor, " size"]:
    """Nothing but padding, which every kernel can take."""
    array = torch.zeros(room.size, dtype=torch.int32, device=device)
    for part in (room.parts(array).src.ids, room.parts(array).tgt.ids, room.parts(array).targets):
        part.fill_(room.pad_id)
    return array
