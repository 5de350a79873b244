"""What the model sees at once."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Int
from torch import Tensor

from regard.data.store import Ragged, Row
from regard.model.packing import Room, Sentences
from regard.text.tokenizer import BOS_ID, EOS_ID, PAD_ID


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
class Pairs:
    """Sentences and their translations, end to end: what is learnt from at once, before it is padded or packed."""

    src: Ragged
    tgt: Ragged

    @property
    def num_tokens(self) -> int:
        """Target tokens to predict, EOS among them."""
        return len(self.tgt.values) + len(self.tgt)

    def take(self, rows: npt.NDArray[np.int64]) -> "Pairs":
        return Pairs(self.src.take(rows), self.tgt.take(rows))

    def padded(self) -> Batch:
        """Rows of ids, padded at the end to the longest of their side. A source ends with EOS, so that none is empty."""
        targets = _padded(self.tgt)
        tgt_in = np.roll(targets, 1, axis=1)
        tgt_in[tgt_in == EOS_ID] = PAD_ID
        tgt_in[:, 0] = BOS_ID
        return Batch(torch.from_numpy(_padded(self.src)), torch.from_numpy(tgt_in), torch.from_numpy(targets))


Drawn = Pairs | TextBatch  # what a stream gives


@dataclass(frozen=True)
class PackedBatch:
    """`Pairs` as `regard.model.packing` lays them out; mostly one array."""

    arrays: list[npt.NDArray[np.int32]]
    num_tokens: int  # to predict


def of_similar_lengths(drawn: Drawn, batch_tokens: int) -> list[Drawn]:
    """The same sentences in pieces of at most so many tokens a side, padding included, each of which pads little."""
    if not isinstance(drawn, Pairs):
        return [drawn]
    longest = np.maximum(drawn.src.lengths, drawn.tgt.lengths) + 1
    order = np.argsort(longest, kind="stable")
    starts = [0]
    for row, length in enumerate(longest[order].tolist()):
        if (row - starts[-1] + 1) * length > batch_tokens and row > starts[-1]:
            starts.append(row)
    return [drawn.take(rows) for rows in np.split(order, starts[1:])]


def padded(drawn: Drawn) -> AnyBatch:
    """As torch's kernels take it."""
    return drawn.padded() if isinstance(drawn, Pairs) else drawn


def packed(drawn: Drawn, room: Room) -> PackedBatch:
    """As our own take it."""
    assert isinstance(drawn, Pairs)
    return PackedBatch(room.pack(ended(drawn.src), ended(drawn.tgt), BOS_ID), drawn.num_tokens)


def collate(src: Sequence[Row], tgt: Sequence[Row]) -> Batch:
    """A batch of these rows."""
    return Pairs(Ragged.of(src), Ragged.of(tgt)).padded()


def collate_sources(src: Sequence[Row]) -> Int[Tensor, "B S"]:
    """What there is before there is a target."""
    return torch.from_numpy(_padded(Ragged.of(src)))


def ended(rows: Ragged) -> Sentences:
    """With EOS behind each, still end to end."""
    lengths = rows.lengths + 1
    ids = np.empty(len(rows.values) + len(rows), dtype=np.int32)
    is_end = np.zeros(len(ids), dtype=np.bool_)
    is_end[np.cumsum(lengths) - 1] = True
    ids[is_end] = EOS_ID
    ids[~is_end] = rows.values
    return Sentences(ids, lengths)


def _padded(rows: Ragged) -> npt.NDArray[np.int64]:
    """One table, written in two strokes: all ids, then an EOS behind each row."""
    lengths = rows.lengths
    table = np.full((len(rows), int(lengths.max()) + 1), PAD_ID, dtype=np.int64)
    table[np.arange(table.shape[1]) < lengths[:, None]] = rows.values
    table[np.arange(len(rows)), lengths] = EOS_ID
    return table
