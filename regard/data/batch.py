"""Batches of examples for one pass of a model."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Int
from torch import Tensor

from regard.data.store import Ragged, Row
from regard.text.tokenizer import BOS_ID, EOS_ID, PAD_ID


@dataclass(frozen=True)
class Batch:
    """Sources, and targets in two forms: the decoder is fed `tgt_in`, shifted right behind BOS, and has to predict
    `tgt_out`."""

    src: Int[Tensor, "B S"]
    tgt_in: Int[Tensor, "B T"]
    tgt_out: Int[Tensor, "B T"]

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        """The arguments of a model's forward pass."""
        return self.src, self.tgt_in

    @property
    def targets(self) -> Int[Tensor, "B T"]:
        return self.tgt_out

    @property
    def num_tokens(self) -> int:
        """The number of target tokens to predict, without padding."""
        return int((self.tgt_out != PAD_ID).sum())


@dataclass(frozen=True)
class TextBatch:
    """Windows of a stream of texts: the tokens that a language model is fed, and the next token of each. That of EOS is
    padding, because BOS always follows."""

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
        """The number of tokens to predict."""
        return int((self.ids_out != PAD_ID).sum())


AnyBatch = Batch | TextBatch


@dataclass(frozen=True)
class Pairs:
    """The sentences of a batch and their translations, end to end, before they are padded or packed."""

    src: Ragged
    tgt: Ragged

    @property
    def num_tokens(self) -> int:
        """The number of target tokens to predict, EOS among them."""
        return len(self.tgt.values) + len(self.tgt)

    def take(self, rows: npt.NDArray[np.int64]) -> "Pairs":
        return Pairs(self.src.take(rows), self.tgt.take(rows))

    def padded(self) -> Batch:
        """Pad the rows of each side to its longest. Sources end with EOS, so that none is empty."""
        targets = _padded(self.tgt)
        tgt_in = np.roll(targets, 1, axis=1)
        tgt_in[tgt_in == EOS_ID] = PAD_ID
        tgt_in[:, 0] = BOS_ID
        return Batch(torch.from_numpy(_padded(self.src)), torch.from_numpy(tgt_in), torch.from_numpy(targets))


Drawn = Pairs | TextBatch  # a batch as streams give it


def of_similar_lengths(drawn: Drawn, batch_tokens: int) -> list[Drawn]:
    """Split a batch into parts of similar lengths, of at most `batch_tokens` a side, padding included."""
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
    """Return a padded batch, for torch's kernels."""
    return drawn.padded() if isinstance(drawn, Pairs) else drawn


def collate(src: Sequence[Row], tgt: Sequence[Row]) -> Batch:
    """Return a batch of these rows."""
    return Pairs(Ragged.of(src), Ragged.of(tgt)).padded()


def collate_sources(src: Sequence[Row]) -> Int[Tensor, "B S"]:
    """Return the padded sources of a batch without targets."""
    return torch.from_numpy(_padded(Ragged.of(src)))


def _padded(rows: Ragged) -> npt.NDArray[np.int64]:
    """Return a table of all rows, each with EOS behind it."""
    lengths = rows.lengths
    table = np.full((len(rows), int(lengths.max()) + 1), PAD_ID, dtype=np.int64)
    table[np.arange(table.shape[1]) < lengths[:, None]] = rows.values
    table[np.arange(len(rows)), lengths] = EOS_ID
    return table
