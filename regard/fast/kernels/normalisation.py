"""Section 3.1's residual connection, dropout and LayerNorm in one pass over memory, and their gradients in another."""

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

from regard.fast.kernels.dropout import HashDropout, kept
from regard.fast.kernels.sums import add_spans

SPANS = 512  # the most parts that the backward pass cuts the rows into
TILE = 2048  # elements that a program holds at a time


class NormParameters(NamedTuple):
    """γ and β, and the tensors to which their gradients are added."""

    gamma: Float[Tensor, " D"]
    beta: Float[Tensor, " D"]
    gamma_grad: Float[Tensor, " D"]
    beta_grad: Float[Tensor, " D"]
    epsilon: float


class Summed(NamedTuple):
    """The residual stream x + dropout(y + b), its LayerNorm, and each row's statistics, which the gradient needs."""

    stream: Float[Tensor, "N D"]
    normed: Float[Tensor, "N D"]
    mean: Float[Tensor, " N"]
    rstd: Float[Tensor, " N"]


@triton.jit
def _forward(
    x_ptr, y_ptr, bias_ptr, gamma_ptr, beta_ptr, stream_ptr, normed_ptr, mean_ptr, rstd_ptr, seed_ptr, num_rows, site_key,
    threshold, keep_scale, epsilon,
    d: tl.constexpr, block_d: tl.constexpr, block_rows: tl.constexpr, adds: tl.constexpr, drops: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(0) * block_rows + tl.arange(0, block_rows)
    dims = tl.arange(0, block_d)
    is_dim = dims < d
    inside = (rows < num_rows)[:, None] & is_dim[None, :]
    places = rows[:, None] * d + dims[None, :]
    z = tl.load(x_ptr + places, mask=inside, other=0.0).to(tl.float32)
    if adds:
        y = tl.load(y_ptr + places, mask=inside, other=0.0).to(tl.float32)
        y += tl.load(bias_ptr + dims, mask=is_dim, other=0.0)[None, :]
        if drops:
            y = tl.where(kept(seed_ptr, site_key, places, threshold), y * keep_scale, 0.0)
        z = tl.where(inside, z + y, 0.0).to(stream_ptr.dtype.element_ty)
        tl.store(stream_ptr + places, z, mask=inside)
        z = z.to(tl.float32)  # normalise the rounded values that are stored, as the gradient does
    mean = tl.sum(z, 1) / d
    centred = tl.where(inside, z - mean[:, None], 0.0)
    rstd = 1.0 / tl.sqrt(tl.sum(centred * centred, 1) / d + epsilon)
    gamma = tl.load(gamma_ptr + dims, mask=is_dim, other=0.0)
    beta = tl.load(beta_ptr + dims, mask=is_dim, other=0.0)
    normed = centred * rstd[:, None] * gamma[None, :] + beta[None, :]
    tl.store(normed_ptr + places, normed.to(normed_ptr.dtype.element_ty), mask=inside)
    tl.store(mean_ptr + rows, mean, mask=rows < num_rows)
    tl.store(rstd_ptr + rows, rstd, mask=rows < num_rows)


@triton.jit
def _backward(
    grad_ptr, stream_grad_ptr, stream_ptr, mean_ptr, rstd_ptr, gamma_ptr, dx_ptr, dy_ptr, partial_ptr, seed_ptr, num_rows,
    span, site_key, threshold, keep_scale,
    d: tl.constexpr, block_d: tl.constexpr, block_rows: tl.constexpr, goes_on: tl.constexpr, adds: tl.constexpr,
    drops: tl.constexpr,
):  # fmt: skip
    program = tl.program_id(0)
    dims = tl.arange(0, block_d)
    is_dim = dims < d
    gamma = tl.load(gamma_ptr + dims, mask=is_dim, other=0.0)
    d_gamma = tl.zeros((block_rows, block_d), tl.float32)
    d_beta = tl.zeros((block_rows, block_d), tl.float32)
    d_bias = tl.zeros((block_rows, block_d), tl.float32)
    end = tl.minimum((program + 1) * span, num_rows)
    for first in range(program * span, end, block_rows):
        rows = first + tl.arange(0, block_rows)
        is_row = rows < end
        inside = is_row[:, None] & is_dim[None, :]
        places = rows[:, None] * d + dims[None, :]
        grad = tl.load(grad_ptr + places, mask=inside, other=0.0).to(tl.float32)
        z = tl.load(stream_ptr + places, mask=inside, other=0.0).to(tl.float32)
        mean = tl.load(mean_ptr + rows, mask=is_row, other=0.0)
        rstd = tl.load(rstd_ptr + rows, mask=is_row, other=0.0)
        normal = tl.where(inside, (z - mean[:, None]) * rstd[:, None], 0.0)
        d_gamma += grad * normal
        d_beta += grad
        d_normal = grad * gamma[None, :]
        along = tl.sum(d_normal * normal, 1) / d
        dz = (d_normal - (tl.sum(d_normal, 1) / d)[:, None] - normal * along[:, None]) * rstd[:, None]
        if goes_on:  # add the gradient of the stream's other use
            dz += tl.load(stream_grad_ptr + places, mask=inside, other=0.0).to(tl.float32)
        tl.store(dx_ptr + places, dz.to(dx_ptr.dtype.element_ty), mask=inside)
        if adds:
            dy = dz
            if drops:
                dy = tl.where(kept(seed_ptr, site_key, places, threshold), dz * keep_scale, 0.0)
            d_bias += tl.where(inside, dy, 0.0)
            tl.store(dy_ptr + places, dy.to(dy_ptr.dtype.element_ty), mask=inside)
    spans = tl.num_programs(0)
    partial = partial_ptr + program * d + dims
    tl.store(partial, tl.sum(d_gamma, 0), mask=is_dim)
    tl.store(partial + spans * d, tl.sum(d_beta, 0), mask=is_dim)
    if adds:
        tl.store(partial + 2 * spans * d, tl.sum(d_bias, 0), mask=is_dim)


def norm(x: Float[Tensor, "N D"], by: NormParameters, dtype: torch.dtype) -> Summed:
    """Compute LayerNorm(x), without a residual connection."""
    return _launch(x, None, None, by, None, dtype)


def add_norm(
    x: Float[Tensor, "N D"],
    y: Float[Tensor, "N D"],
    bias: Float[Tensor, " D"],
    by: NormParameters,
    dropout: HashDropout,
) -> Summed:
    """Compute LayerNorm(x + dropout(y + b))."""
    return _launch(x, y, bias, by, dropout, y.dtype)


def norm_gradient(summed: Summed, grad: Float[Tensor, "N D"], by: NormParameters) -> Float[Tensor, "N D"]:
    """Return the gradient of x, given that of LayerNorm(x), and add those of γ and β."""
    dx = torch.empty_like(summed.stream)
    _launch_back(summed, grad, None, by, None, dx, None, (by.gamma_grad, by.beta_grad))
    return dx


def add_norm_gradient(
    summed: Summed,
    grad: Float[Tensor, "N D"],
    stream_grad: Float[Tensor, "N D"] | None,
    by: NormParameters,
    bias_grad: Float[Tensor, " D"],
    dropout: HashDropout,
) -> tuple[Float[Tensor, "N D"], Float[Tensor, "N D"]]:
    """Return the gradients of x and y as two tensors, because callers add to one of them, and add those of γ, β and b.
    `grad` is the gradient of the LayerNorm's output, `stream_grad` that of the sum where it is used by itself."""
    dx = torch.empty_like(summed.stream)
    dy = torch.empty_like(summed.normed)
    _launch_back(summed, grad, stream_grad, by, dropout, dx, dy, (by.gamma_grad, by.beta_grad, bias_grad))
    return dx, dy


def _launch(
    x: Tensor, y: Tensor | None, bias: Tensor | None, by: NormParameters, dropout: HashDropout | None, dtype: torch.dtype
) -> Summed:
    num_rows, d = x.shape
    stream = x if y is None else torch.empty_like(x)
    normed = torch.empty_like(x, dtype=dtype)
    mean, rstd = torch.empty(2, num_rows, dtype=torch.float32, device=x.device)
    block_d = triton.next_power_of_2(d)
    block_rows = max(1, TILE // block_d)
    seed, key, threshold, scale, drops = _dropped(dropout, mean)
    _forward[(triton.cdiv(num_rows, block_rows),)](
        x, x if y is None else y, by.gamma if bias is None else bias, by.gamma, by.beta, stream, normed, mean, rstd, seed,
        num_rows, key, threshold, scale, by.epsilon, d, block_d, block_rows, y is not None, drops, num_warps=4,
    )  # fmt: skip
    return Summed(stream, normed, mean, rstd)


def _launch_back(
    summed: Summed,
    grad: Tensor,
    stream_grad: Tensor | None,
    by: NormParameters,
    dropout: HashDropout | None,
    dx: Tensor,
    dy: Tensor | None,
    into: tuple[Tensor, ...],
) -> None:
    num_rows, d = grad.shape
    assert grad.is_contiguous() and (stream_grad is None or stream_grad.is_contiguous())
    block_d = triton.next_power_of_2(d)
    block_rows = max(1, TILE // block_d)
    span = block_rows * triton.cdiv(num_rows, SPANS * block_rows)
    num_spans = triton.cdiv(num_rows, span)
    partial = torch.empty(len(into), num_spans, d, dtype=torch.float32, device=grad.device)
    seed, key, threshold, scale, drops = _dropped(dropout, summed.mean)
    _backward[(num_spans,)](
        grad, grad if stream_grad is None else stream_grad, summed.stream, summed.mean, summed.rstd, by.gamma, dx,
        dx if dy is None else dy, partial, seed, num_rows, span, key, threshold, scale, d, block_d, block_rows,
        stream_grad is not None, dy is not None, drops, num_warps=4,
    )  # fmt: skip
    add_spans(partial, *into)


def _dropped(dropout: HashDropout | None, instead: Tensor) -> tuple[Tensor, int, int, float, bool]:
    """Return a kernel's dropout arguments, with `instead` in place of the seed if nothing is dropped."""
    if dropout is None or dropout.p == 0.0:
        return instead, 0, 0, 1.0, False
    return dropout.seed, dropout.key, dropout.threshold, dropout.scale, True
