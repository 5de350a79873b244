"""The parts of a layer that are not attention: affine maps, dropout, the residual wrapper, the feed-forward network."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from regard.config import Activation, Norm
from regard.model.onednn import PackedWeight, kept, linear
from regard.model.trace import Recorder, Stack, recorded

ACTIVATIONS: dict[Activation, Callable[[Tensor], Tensor]] = {"relu": F.relu, "gelu": F.gelu, "silu": F.silu}


class Linear(nn.Linear):
    """xWᵀ + b. `packed` is a copy of the matrix in a layout that makes decoding on a CPU faster."""

    __call__: Callable[..., Tensor]
    packed: PackedWeight | None = None

    def forward(self, x: Float[Tensor, "*rows I"]) -> Float[Tensor, "*rows O"]:
        return linear(x, self.weight, self.bias, self.packed)


class Dropout(nn.Dropout):
    """Dropout with cheaper random bits on a CPU."""

    __call__: Callable[..., Tensor]

    def forward(self, x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        if not self.training or self.p == 0.0:
            return x
        if x.device.type == "cpu" and not torch.compiler.is_compiling():
            return x * kept(x, self.p).to(x.dtype).mul_(1.0 / (1.0 - self.p))
        return F.dropout(x, self.p)


class Residual(nn.Module):
    """Section 3.1: the residual connection, dropout and LayerNorm around every sub-layer.

    Post-norm, as in the paper: LayerNorm(x + Dropout(Sublayer(x))); pre-norm: x + Dropout(Sublayer(LayerNorm(x))).
    """

    def __init__(self, d_model: int, *, norm: Norm, dropout: float, stack: Stack) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(d_model)
        self.dropout = Dropout(dropout)
        self.is_pre_norm = norm == "pre"
        self.stack: Stack = stack

    def forward(
        self, x: Float[Tensor, "B T D"], sublayer: Callable[[Tensor], Tensor], recorder: Recorder | None = None
    ) -> Float[Tensor, "B T D"]:
        if self.is_pre_norm:
            x = self.connect(x, self.dropout(sublayer(self.norm(x))))
        else:
            x = self.norm(self.connect(x, self.dropout(sublayer(x))))
        return recorded(x, self.stack, recorder)

    def connect(self, x: Float[Tensor, "B T D"], y: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
        return x + y


class FeedForward(nn.Module):
    """Section 3.3, equation 2: FFN(x) = max(0, xW₁ + b₁)W₂ + b₂, applied at every position."""

    def __init__(self, d_model: int, d_ff: int, *, activation: Activation, dropout: float, stack: Stack) -> None:
        super().__init__()
        self.inner = Linear(d_model, d_ff)
        self.outer = Linear(d_ff, d_model)
        self.activation = ACTIVATIONS[activation]
        self.dropout = Dropout(dropout)
        self.stack: Stack = stack

    def forward(self, x: Float[Tensor, "B T D"], recorder: Recorder | None = None) -> Float[Tensor, "B T D"]:
        hidden = self.activation(self.inner(x))  # (B, T, F)
        if recorder is not None:
            recorder.activations[self.stack].append(hidden)
        return self.outer(self.dropout(hidden))
