"""Sections 3.4 and 3.5: embeddings, and the two ways of telling positions apart, or none."""

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.config import SharedEmbeddings


class Embedding(nn.Module):
    """Section 3.4: a vector for each token, multiplied by √d_model where it is `scaled`. The matrix may also serve as output
    projection."""

    def __init__(self, vocab_size: int, d_model: int, *, scaled: bool = True) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(vocab_size, d_model))
        self.scale = math.sqrt(d_model) if scaled else 1.0

    def forward(self, ids: Int[Tensor, "B T"]) -> Float[Tensor, "B T D"]:
        return F.embedding(ids, self.weight) * self.scale


class Embeddings(nn.Module):
    """Section 3.4: the matrices of source, target and output. Only what is a matrix of its own is kept here, so that what is
    shared has one name, and stands in a checkpoint once."""

    def __init__(self, src_vocab_size: int, tgt_vocab_size: int, d_model: int, *, shared: SharedEmbeddings) -> None:
        super().__init__()
        self.src = Embedding(src_vocab_size, d_model)
        self.tgt = None if shared == "all" else Embedding(tgt_vocab_size, d_model)
        self.output = Embedding(tgt_vocab_size, d_model) if shared == "none" else None

    @property
    def source(self) -> Embedding:
        return self.src

    @property
    def target(self) -> Embedding:
        return self.src if self.tgt is None else self.tgt

    @property
    def output_weight(self) -> Float[Tensor, "V D"]:
        """The matrix of the pre-softmax map."""
        return (self.target if self.output is None else self.output).weight


def sinusoids(num_positions: int, d_model: int) -> Float[Tensor, "T D"]:
    """Section 3.5: PE(pos, 2i) = sin(pos / 10000^(2i/d)), PE(pos, 2i+1) = cos(the same). In float64, on the CPU."""
    positions = torch.arange(num_positions, dtype=torch.float64, device="cpu")[:, None]
    even_dims = torch.arange(0, d_model, 2, dtype=torch.float64, device="cpu")
    angles = positions / 10000.0 ** (even_dims / d_model)  # (T, D/2)
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)


class SinusoidalPositions(nn.Module):
    """Sinusoids for any length: a table that is computed once and doubled when a longer sequence comes by."""

    def __init__(self, d_model: int, num_positions: int = 512) -> None:
        super().__init__()
        self.d_model = d_model
        # No buffer, though it moves like one: processes that train together exchange buffers, and each grows its own table.
        self.table = sinusoids(num_positions, d_model).to(torch.empty(0))

    def forward(self, positions: Int[Tensor, "B T"], extent: int) -> Float[Tensor, "B T D"]:
        """`extent` is one more than the largest position, which the caller knows without asking the device."""
        if extent > self.table.shape[0]:
            num_positions = max(extent, 2 * self.table.shape[0])
            self.table = sinusoids(num_positions, self.d_model).to(self.table)
        return self.table[positions]

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "SinusoidalPositions":
        """After a change of dtype, the table is rounded anew from float64: casting it would keep the old rounding."""
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self.table = sinusoids(self.table.shape[0], self.d_model).to(fn(self.table))
        return self


class LearnedPositions(nn.Module):
    """The paper's alternative (Table 3, row E): a learned vector for each position up to a maximum."""

    def __init__(self, d_model: int, max_positions: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(max_positions, d_model))

    def forward(self, positions: Int[Tensor, "B T"], extent: int) -> Float[Tensor, "B T D"]:
        self.require(extent)
        return F.embedding(positions, self.weight)

    def require(self, extent: int) -> None:
        if extent > len(self.weight):
            raise ValueError(
                f"a sequence of {extent} tokens is longer than the {len(self.weight)} learned positions of this model; "
                "split it, or train with a larger model.max_positions or with sinusoidal positions"
            )


class NoPositions(nn.Module):
    """Nothing to tell positions apart by: what the notes' claim M15 is about."""

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.d_model = d_model

    def forward(self, positions: Int[Tensor, "B T"], _extent: int) -> Float[Tensor, "B T D"]:
        return torch.zeros(*positions.shape, self.d_model, device=positions.device)
