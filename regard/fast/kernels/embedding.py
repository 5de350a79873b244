"""Sections 3.4 and 3.5: dropout(embedding · √d_model + position), and the gradient of the embedding matrix.

A token's gradient is the sum over all rows where it occurs. The rows are given sorted by token, so that one program for
each block of columns sums a row of the matrix in a fixed order.
"""

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Int
from torch import Tensor

from regard.fast.kernels.dropout import HashDropout, kept

ROWS = 4
PLACES, COLUMNS = 16, 128


@triton.jit
def _forward(
    ids_ptr, positions_ptr, weight_ptr, table_ptr, out_ptr, seed_ptr, num_rows, scale, site_key, threshold, keep_scale,
    d: tl.constexpr, block_d: tl.constexpr, block_rows: tl.constexpr, placed: tl.constexpr, drops: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(0) * block_rows + tl.arange(0, block_rows)
    dims = tl.arange(0, block_d)
    is_row = rows < num_rows
    inside = is_row[:, None] & (dims < d)[None, :]
    ids = tl.load(ids_ptr + rows, mask=is_row, other=0)
    x = tl.load(weight_ptr + ids[:, None].to(tl.int64) * d + dims[None, :], mask=inside, other=0.0) * scale
    if placed:
        positions = tl.load(positions_ptr + rows, mask=is_row, other=0)
        x += tl.load(table_ptr + positions[:, None] * d + dims[None, :], mask=inside, other=0.0)
    places = rows[:, None] * d + dims[None, :]
    if drops:
        x = tl.where(kept(seed_ptr, site_key, places, threshold), x * keep_scale, 0.0)
    tl.store(out_ptr + places, x.to(out_ptr.dtype.element_ty), mask=inside)


@triton.jit
def _gradient(
    grad_ptr, order_ptr, starts_ptr, weight_grad_ptr, seed_ptr, scale, site_key, threshold, keep_scale,
    d: tl.constexpr, block_places: tl.constexpr, block_d: tl.constexpr, drops: tl.constexpr,
):  # fmt: skip
    token = tl.program_id(0)
    start = tl.load(starts_ptr + token)
    end = tl.load(starts_ptr + token + 1)
    if start < end:
        dims = tl.program_id(1) * block_d + tl.arange(0, block_d)
        is_dim = dims < d
        total = tl.zeros((block_places, block_d), tl.float32)
        for first in range(start, end, block_places):
            numbers = first + tl.arange(0, block_places)
            rows = tl.load(order_ptr + numbers, mask=numbers < end, other=0)
            inside = (numbers < end)[:, None] & is_dim[None, :]
            places = rows[:, None] * d + dims[None, :]
            grad = tl.load(grad_ptr + places, mask=inside, other=0.0).to(tl.float32)
            if drops:
                grad = tl.where(kept(seed_ptr, site_key, places, threshold), grad * keep_scale, 0.0)
            total += grad
        into = weight_grad_ptr + token.to(tl.int64) * d + dims
        tl.store(into, tl.load(into, mask=is_dim, other=0.0) + tl.sum(total, 0) * scale, mask=is_dim)


def embed(
    ids: Int[Tensor, " N"],
    positions: Int[Tensor, " N"],
    weight: Float[Tensor, "V D"],
    table: Float[Tensor, "P D"] | None,
    *,
    scale: float,
    dropout: HashDropout,
    dtype: torch.dtype,
) -> Float[Tensor, "N D"]:
    """Return dropout(embedding · scale + position), without positions if there is no table."""
    d = weight.shape[1]
    out = torch.empty(len(ids), d, dtype=dtype, device=ids.device)
    _forward[(triton.cdiv(len(ids), ROWS),)](
        ids, positions, weight, weight if table is None else table, out, dropout.seed, len(ids), scale, dropout.key,
        dropout.threshold, dropout.scale, d, triton.next_power_of_2(d), ROWS, table is not None, dropout.p > 0.0,
        num_warps=4,
    )  # fmt: skip
    return out


def add_embedding_gradient(
    grad: Float[Tensor, "N D"],
    order: Int[Tensor, " N"],
    starts: Int[Tensor, " _"],
    into: Float[Tensor, "V D"],
    *,
    scale: float,
    dropout: HashDropout,
) -> None:
    """Add the gradient of the matrix. `order` has the rows sorted by token; `starts` has the index in it at which each
    token's rows begin and, as its last element, the index at which the last token's rows end."""
    vocab_size, d = into.shape
    assert len(starts) == vocab_size + 1 and grad.is_contiguous()
    _gradient[(vocab_size, triton.cdiv(d, COLUMNS))](
        grad, order, starts, into, dropout.seed, scale, dropout.key, dropout.threshold, dropout.scale, d, PLACES, COLUMNS,
        dropout.p > 0.0, num_warps=4,
    )  # fmt: skip
