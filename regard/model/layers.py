"""The parts of a layer that are not attention: affine maps, dropout, the residual wrapper, the feed-forward network.

`Linear` and `Dropout` compute what torch's own compute; on a CPU they take a faster road there (EXPERIMENTS.md has the
measurements), elsewhere and under `torch.compile` they are torch's own.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from regard.config import Activation, Norm
from regard.model.trace import Recorder, Stack

ACTIVATIONS: dict[Activation, Callable[[Tensor], Tensor]] = {"relu": F.relu, "gelu": F.gelu, "silu": F.silu}


def takes_cpu_road(x: Tensor) -> bool:
    """Whether the hand-picked CPU kernels below serve this tensor; the compiler and autocast have ideas of their own."""
    return x.device.type == "cpu" and not torch.compiler.is_compiling() and not torch.is_autocast_enabled("cpu")


class _OneDnnLinear(torch.autograd.Function):
    """xWᵀ + b through oneDNN: on CPUs without Intel's name on them, MKL falls back to slower generic kernels. First
    derivatives only."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.has_bias = bias is not None
        return _one_dnn_product(x, weight, bias)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        x, weight = ctx.saved_tensors
        rows = grad.reshape(-1, grad.shape[-1])
        needs_x, needs_weight, needs_bias = ctx.needs_input_grad
        grad_x = _one_dnn_product(rows, weight.t(), None).view(x.shape) if needs_x else None
        with one_dnn_multiplies():
            grad_weight = rows.t() @ x.reshape(-1, x.shape[-1]) if needs_weight else None
        grad_bias = rows.sum(0) if needs_bias and ctx.has_bias else None
        return grad_x, grad_weight, grad_bias


def _one_dnn_product(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    product: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
    return product


@contextmanager
def one_dnn_multiplies() -> Iterator[None]:
    """In here, float32 matrices of any layout are multiplied by oneDNN where that is as exact: often faster than MKL."""
    if not _one_dnn_stays_exact():
        yield
        return
    with _rounding_allowed():
        yield


@cache
def _one_dnn_stays_exact() -> bool:
    """torch asks oneDNN for float32 products of every layout only where they may be rounded to bfloat16 on the way. Only
    CPUs with AMX make use of that, and there it must not be; so it is tried."""
    if not (HAS_ONE_DNN and hasattr(ONE_DNN_PRODUCTS, "fp32_precision")):
        return False
    a, b = torch.randn(2, 128, 128, generator=torch.Generator().manual_seed(1))
    with _rounding_allowed():
        found = a.t() @ b
    exact = a.double().t() @ b.double()
    return bool((found - exact).norm() < 1e-5 * exact.norm())


@contextmanager
def _rounding_allowed() -> Iterator[None]:
    before, ONE_DNN_PRODUCTS.fp32_precision = ONE_DNN_PRODUCTS.fp32_precision, "bf16"
    try:
        yield
    finally:
        ONE_DNN_PRODUCTS.fp32_precision = before


HAS_ONE_DNN = torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")
ONE_DNN_PRODUCTS: Any = getattr(torch.backends.mkldnn, "matmul", None)  # its settings
ONE_DNN_PAYS = 2**22  # multiplications in a product; below, the detour costs more than it gains


class PackedWeight:
    """A matrix once more, in the order in which oneDNN reads it: a step of decoding multiplies few rows by large matrices,
    and would spend most of its time on bringing them into that order. A copy of the model has to pack anew."""

    def __init__(self, weight: Float[Tensor, "O I"]) -> None:
        self.weight = torch.ops.mkldnn._reorder_linear_weight(weight.detach(), PACKED_FOR)
        self.made_from = (weight.data_ptr(), weight._version)

    def serves(self, x: Tensor, weight: Float[Tensor, "O I"]) -> bool:
        """Not while gradients are wanted, and not after the matrix has changed (a change behind torch's back, through
        `.data`, goes unnoticed)."""
        is_current = (weight.data_ptr(), weight._version) == self.made_from
        return is_current and x.dtype == torch.float32 and not torch.is_grad_enabled() and takes_cpu_road(x)

    def __reduce__(self) -> tuple[type[None], tuple[()]]:
        """What is packed cannot be copied or stored: nothing comes of it."""
        return type(None), ()

    @staticmethod
    def is_possible(weight: Tensor) -> bool:
        is_watched = not weight.is_inference()  # such tensors do not count their changes
        return HAS_ONE_DNN and is_watched and weight.device.type == "cpu" and weight.dtype == torch.float32


PACKED_FOR = 32  # rows; the order that is best for so many is good for any number


def linear(
    x: Float[Tensor, "*rows I"], weight: Float[Tensor, "O I"], bias: Tensor | None, packed: PackedWeight | None = None
) -> Float[Tensor, "*rows O"]:
    """xWᵀ + b."""
    if packed is not None and packed.serves(x, weight):
        return _one_dnn_product(x, packed.weight, bias)
    is_large = x.numel() * len(weight) >= ONE_DNN_PAYS
    if HAS_ONE_DNN and is_large and takes_cpu_road(x) and x.dtype == weight.dtype == torch.float32:
        product: Tensor = _OneDnnLinear.apply(x, weight, bias)  # type: ignore[no-untyped-call]
        return product
    return F.linear(x, weight, bias)


class Linear(nn.Linear):
    packed: PackedWeight | None = None

    def forward(self, x: Float[Tensor, "*rows I"]) -> Float[Tensor, "*rows O"]:
        return linear(x, self.weight, self.bias, self.packed)


def pack_linears(module: nn.Module) -> None:
    """Every affine map below keeps its matrix a second time, packed."""
    for one in module.modules():
        if isinstance(one, Linear):
            one.packed = PackedWeight(one.weight)


def kept(x: Float[Tensor, "*shape"], p: float) -> Bool[Tensor, "*shape"]:
    """True with probability 1 - p (to 2⁻¹⁶), from 16 random bits an element: a fifth of the time of `bernoulli_`."""
    words = torch.empty((x.numel() + 3) // 4, dtype=torch.int64, device=x.device).random_(-(2**63), None)
    bits = words.view(torch.int16)[: x.numel()]
    return (bits >= min(round(p * 2**16), 2**16 - 1) - 2**15).view(x.shape)


class Dropout(nn.Dropout):
    def forward(self, x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        if not self.training or self.p == 0.0:
            return x
        if x.device.type == "cpu" and not torch.compiler.is_compiling():
            return x * kept(x, self.p).to(x.dtype).mul_(1.0 / (1.0 - self.p))
        return F.dropout(x, self.p)


class Residual(nn.Module):
    """Section 3.1: the residual connection, dropout and LayerNorm around every sub-layer.

    post: LayerNorm(x + Dropout(Sublayer(x))), the paper's; pre: x + Dropout(Sublayer(LayerNorm(x))). Where it is not
    `connected`, the sum is left out.
    """

    def __init__(self, d_model: int, *, norm: Norm, dropout: float, stack: Stack, connected: bool = True) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(d_model)
        self.dropout = Dropout(dropout)
        self.is_pre_norm = norm == "pre"
        self.stack: Stack = stack
        self.is_connected = connected

    def forward(
        self, x: Float[Tensor, "B T D"], sublayer: Callable[[Tensor], Tensor], recorder: Recorder | None = None
    ) -> Float[Tensor, "B T D"]:
        kept = x if self.is_connected else torch.zeros_like(x)
        if self.is_pre_norm:
            x = kept + self.dropout(sublayer(self.norm(x)))
        else:
            x = self.norm(kept + self.dropout(sublayer(x)))
        if recorder is not None:
            recorder.add_residual(self.stack, x)
        return x


class FeedForward(nn.Module):
    """Section 3.3, equation 2: FFN(x) = max(0, xW₁ + b₁)W₂ + b₂, the same at every position."""

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
            recorder.add_activation(self.stack, hidden)
        output: Tensor = self.outer(self.dropout(hidden))
        return output
