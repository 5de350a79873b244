"""Faster operators for a CPU: affine maps by oneDNN, matrices in its layout for decoding, and cheaper random bits.

They compute the same as torch's own operators (EXPERIMENTS.md has the measurements), which run on other devices and under
`torch.compile`.
"""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor


def takes_cpu_road(x: Tensor) -> bool:
    """Return whether the kernels below serve this tensor: on a CPU, outside `torch.compile` and autocast."""
    return x.device.type == "cpu" and not torch.compiler.is_compiling() and not torch.is_autocast_enabled("cpu")


class _OneDnnLinear(torch.autograd.Function):
    """xWᵀ + b by oneDNN, because MKL falls back to slower generic kernels on CPUs of other makers than Intel. It has first
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
    """Multiply float32 matrices of any layout by oneDNN where it is exact; it is often faster than MKL."""
    with _rounding_allowed() if _one_dnn_stays_exact() else nullcontext():
        yield


@cache
def _one_dnn_stays_exact() -> bool:
    """Test whether oneDNN rounds float32 products to bfloat16 when it is allowed to, as torch demands for products of every
    layout. Only CPUs with AMX do so."""
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
ONE_DNN_PRODUCTS: Any = getattr(torch.backends.mkldnn, "matmul", None)  # oneDNN's settings
ONE_DNN_PAYS = 2**22  # multiplications in a product; with fewer, oneDNN costs more time than it saves


class PackedWeight:
    """A copy of a matrix in oneDNN's layout. A step of decoding multiplies few rows by large matrices, and would spend most
    of its time on reordering them. A copy of the model has to pack again."""

    def __init__(self, weight: Float[Tensor, "O I"]) -> None:
        self.weight = torch.ops.mkldnn._reorder_linear_weight(weight.detach(), PACKED_FOR)
        self.made_from = (weight.data_ptr(), weight._version)

    def serves(self, x: Tensor, weight: Float[Tensor, "O I"]) -> bool:
        """Return whether this copy may be used: without gradients, and while the matrix has not changed (a change through
        `.data` goes unnoticed)."""
        is_current = (weight.data_ptr(), weight._version) == self.made_from
        return is_current and x.dtype == torch.float32 and not torch.is_grad_enabled() and takes_cpu_road(x)

    def __reduce__(self) -> tuple[type[None], tuple[()]]:
        """Copy and pickle as None, because oneDNN's layout cannot be copied or stored."""
        return type(None), ()

    @staticmethod
    def is_possible(weight: Tensor) -> bool:
        is_versioned = not weight.is_inference()
        return HAS_ONE_DNN and is_versioned and weight.device.type == "cpu" and weight.dtype == torch.float32


PACKED_FOR = 32  # rows; the best layout for this number is good for any other


def linear(
    x: Float[Tensor, "*rows I"], weight: Float[Tensor, "O I"], bias: Tensor | None, packed: PackedWeight | None = None
) -> Float[Tensor, "*rows O"]:
    """Compute xWᵀ + b."""
    if packed is not None and packed.serves(x, weight):
        return _one_dnn_product(x, packed.weight, bias)
    is_large = x.numel() * len(weight) >= ONE_DNN_PAYS
    if HAS_ONE_DNN and is_large and takes_cpu_road(x) and x.dtype == weight.dtype == torch.float32:
        product: Tensor = _OneDnnLinear.apply(x, weight, bias)  # type: ignore[no-untyped-call]
        return product
    return F.linear(x, weight, bias)


def kept(x: Float[Tensor, "*shape"], p: float) -> Bool[Tensor, "*shape"]:
    """Draw a mask that is True with probability 1 - p (to 2⁻¹⁶), from 16 random bits per element, in a fifth of the time of
    `bernoulli_`."""
    words = torch.empty((x.numel() + 3) // 4, dtype=torch.int64, device=x.device).random_(-(2**63), None)
    bits = words.view(torch.int16)[: x.numel()]
    return (bits >= min(round(p * 2**16), 2**16 - 1) - 2**15).view(x.shape)
