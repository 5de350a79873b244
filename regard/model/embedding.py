"""Sections 3.4 and 3.5: embeddings, and sinusoidal or learned positions."""

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.config import SharedEmbeddings
from regard.errors import UserError


class Embedding(nn.Module):
    """Section 3.4: a vector for each token, multiplied by √d_model if `scaled`. The matrix may also be the output map."""

    __call__: Callable[..., Tensor]

    def __init__(self, vocab_size: int, d_model: int, *, scaled: bool = True) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(vocab_size, d_model))
        self.scale = math.sqrt(d_model) if scaled else 1.0

    def forward(self, ids: Int[Tensor, "B T"]) -> Float[Tensor, "B T D"]:
        return F.embedding(ids, self.weight) * self.scale


class Embeddings(nn.Module):
    """Section 3.4: the matrices of source, target and output. A matrix that several of them share has one name and is stored
    in a checkpoint once."""

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
    """Section 3.5: PE(pos, 2i) = sin(pos / 10000^(2i/d)), PE(pos, 2i+1) = cos(pos / 10000^(2i/d)), in float64 on the CPU."""
    positions = torch.arange(num_positions, dtype=torch.float64, device="cpu")[:, None]
    even_dims = torch.arange(0, d_model, 2, dtype=torch.float64, device="cpu")
    angles = positions / 10000.0 ** (even_dims / d_model)  # (T, D/2)
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)


class SinusoidalPositions(nn.Module):
    """Sinusoids for any length: a table that is computed once and doubled for a longer sequence."""

    def __init__(self, d_model: int, num_positions: int = 512) -> None:
        super().__init__()
        self.d_model = d_model
        # Not a buffer, because distributed training synchronises buffers, and each process grows its own table.
        self.table = sinusoids(num_positions, d_model).to(torch.empty(0))

    def forward(self, positions: Int[Tensor, "B T"], extent: int) -> Float[Tensor, "B T D"]:
        """Return the encodings. `extent` is the largest position plus one, which the caller knows without a host sync."""
        if extent > self.table.shape[0]:
            num_positions = max(extent, 2 * self.table.shape[0])
            self.table = sinusoids(num_positions, self.d_model).to(self.table)
        return self.table[positions]

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "SinusoidalPositions":
        """Recompute the table in float64 after a change of dtype; a cast would keep the old rounding."""
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self.table = sinusoids(self.table.shape[0], self.d_model).to(fn(self.table))
        return self


class LearnedPositions(nn.Module):
    """The paper's alternative (Table 3, row E): a learned vector for each position up to a maximum."""

    def __init__(self, d_model: int, max_positions: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(max_positions, d_model))

    def forward(self, positions: Int[Tensor, "B T"], extent: int) -> Float[Tensor, "B T D"]:
        if extent > len(self.weight):
            raise UserError(
                f"a sequence of {extent} tokens is longer than the {len(self.weight)} learned positions of this model; "
                "split it, or train with a larger model.max_positions or with sinusoidal positions"
            )
        return F.embedding(positions, self.weight)
