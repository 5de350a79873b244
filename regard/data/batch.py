"""What the model sees at once."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Int
from torch import Tensor

from regard.text.tokenizer import BOS_ID, EOS_ID, PAD_ID

Row = Sequence[int] | npt.NDArray[np.integer[Any]]


@dataclass(frozen=True)
class Batch:
    """Sources, and targets twice: as the decoder is fed them, shifted right behind BOS, and as it should predict them."""

    src: Int[Tensor, "B S"]
    tgt_in: Int[Tensor, "B T"]
    tgt_out: Int[Tensor, "B T"]

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        """What a model makes its states of."""
        return self.src, self.tgt_in

    @property
    def targets(self) -> Int[Tensor, "B T"]:
        """What each state should predict."""
        return self.tgt_out

    @property
    def num_tokens(self) -> int:
        """Target tokens to predict; padding is none."""
        return int((self.tgt_out != PAD_ID).sum())


@dataclass(frozen=True)
class TextBatch:
    """Windows of a stream of texts: the tokens that a language model is fed, and the one after each. After EOS nothing is
    asked, for what follows is always BOS."""

    ids_in: Int[Tensor, "B T"]
    ids_out: Int[Tensor, "B T"]

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        return (self.ids_in,)

    @property
    def targets(self) -> Int[Tensor, "B T"]:
        return self.ids_out

    @property
    def num_tokens(self) -> int:
        """Tokens to predict."""
        return int((self.ids_out != PAD_ID).sum())


AnyBatch = Batch | TextBatch


@dataclass(frozen=True)
class PackedBatch:
    """A `Batch` without its padding, as `regard.model.packing` lays it out; mostly one array."""

    arrays: list[npt.NDArray[np.int32]]
    num_tokens: int  # to predict


def collate(src: Sequence[Row], tgt: Sequence[Row]) -> Batch:
    """Rows of ids, padded at the end to the longest of their side. A source ends with EOS, so that none is empty."""
    targets = _padded(tgt)
    tgt_in = np.roll(targets, 1, axis=1)
    tgt_in[tgt_in == EOS_ID] = PAD_ID
    tgt_in[:, 0] = BOS_ID
    return Batch(torch.from_numpy(_padded(src)), torch.from_numpy(tgt_in), torch.from_numpy(targets))


def of_similar_lengths(batch: "AnyBatch", batch_tokens: int) -> list["AnyBatch"]:
    """The same sentences in pieces of at most so many tokens a side, padding included, each of which pads little."""
    if not isinstance(batch, Batch):
        return [batch]
    src, tgt = ((ids != PAD_ID).sum(1) for ids in (batch.src, batch.tgt_out))
    order = torch.maximum(src, tgt).argsort(stable=True)
    longest = torch.maximum(src, tgt)[order].tolist()
    starts = [0]
    for row, length in enumerate(longest):
        if (row - starts[-1] + 1) * length > batch_tokens and row > starts[-1]:
            starts.append(row)
    pieces: list[AnyBatch] = []
    for start, end in zip(starts, [*starts[1:], len(order)], strict=True):
        rows = order[start:end]
        num_src, num_tgt = int(src[rows].max()), int(tgt[rows].max())
        pieces.append(Batch(batch.src[rows, :num_src], batch.tgt_in[rows, :num_tgt], batch.tgt_out[rows, :num_tgt]))
    return pieces


def collate_sources(src: Sequence[Row]) -> Int[Tensor, "B S"]:
    """What there is before there is a target."""
    return torch.from_numpy(_padded(src))


def _padded(rows: Sequence[Row]) -> npt.NDArray[np.int64]:
    """One table, written in two strokes: all ids, then an EOS behind each row."""
    lengths = np.fromiter(map(len, rows), dtype=np.int64, count=len(rows))
    table = np.full((len(rows), int(lengths.max()) + 1), PAD_ID, dtype=np.int64)
    table[np.arange(table.shape[1]) < lengths[:, None]] = np.concatenate(rows)
    table[np.arange(len(rows)), lengths] = EOS_ID
    return table
