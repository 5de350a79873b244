"""Equation 1 over packed sentences: every query attends to an interval of keys.

The intervals express the paper's three masks. In the encoder, the interval is the query's own sentence; under the causal
mask, it ends with the query itself; in cross-attention, it is the sentence's source. The queries that attend to one key are
also an interval, over which the gradients of keys and values are summed.

Sentences are short, so memory traffic limits attention more than arithmetic does. A program takes a block of one head's
rows, which may belong to several sentences, and loops over all keys from the first to the last that these may attend to.
"""

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

from regard.fast.kernels.intervals import Intervals

# Rows of a program, rows of the other side that it loads at a time, and warps, chosen by measurement (EXPERIMENTS.md).
BLOCK, STRIDE, WARPS = 64, 32, 4
LOG2_E = 1.4426950408889634


class Heads(NamedTuple):
    """The output of all heads, and the base-2 logarithm of each softmax's denominator, which the gradient needs."""

    values: Float[Tensor, "Q D"]
    log_sums: Float[Tensor, "H Q"]


@triton.jit
def _forward(
    q_ptr, k_ptr, v_ptr, out_ptr, log_sum_ptr, first_ptr, end_ptr, num_queries, q_stride, kv_stride, scale,
    num_heads: tl.constexpr, d_head: tl.constexpr, block: tl.constexpr, stride: tl.constexpr,
):  # fmt: skip
    head = tl.program_id(1)
    rows = tl.program_id(0) * block + tl.arange(0, block)
    dims = head * d_head + tl.arange(0, d_head)
    is_row = rows < num_queries
    first = tl.load(first_ptr + rows, mask=is_row, other=2**30)
    end = tl.load(end_ptr + rows, mask=is_row, other=0)
    first = tl.where(first < end, first, 2**30)  # a query without keys must not determine where the loop begins
    q = tl.load(q_ptr + rows[:, None] * q_stride + dims[None, :], mask=is_row[:, None], other=0.0)
    largest = tl.full((block,), -float("inf"), tl.float32)
    total = tl.zeros((block,), tl.float32)
    out = tl.zeros((block, d_head), tl.float32)
    last_end = tl.max(end, 0)
    for start in range(tl.min(first, 0), last_end, stride):
        keys = start + tl.arange(0, stride)
        is_key = keys < last_end
        k = tl.load(k_ptr + keys[:, None] * kv_stride + dims[None, :], mask=is_key[:, None], other=0.0)
        v = tl.load(v_ptr + keys[:, None] * kv_stride + dims[None, :], mask=is_key[:, None], other=0.0)
        scores = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
        may = (keys[None, :] >= first[:, None]) & (keys[None, :] < end[:, None])
        scores = tl.where(may, scores, -float("inf"))
        new_largest = tl.maximum(largest, tl.max(scores, 1))
        shift = tl.where(new_largest == -float("inf"), 0.0, new_largest)  # avoid -inf - (-inf) before the first key
        weights = tl.exp2(scores - shift[:, None])
        fade = tl.exp2(largest - shift)
        total = total * fade + tl.sum(weights, 1)
        out = out * fade[:, None] + tl.dot(weights.to(v.dtype), v, input_precision="ieee")
        largest = new_largest
    some = total > 0.0
    out = tl.where(some[:, None], out / tl.where(some, total, 1.0)[:, None], 0.0)
    out_places = out_ptr + rows[:, None] * (num_heads * d_head) + dims[None, :]
    tl.store(out_places, out.to(out_ptr.dtype.element_ty), mask=is_row[:, None])
    log_sum = tl.where(some, largest + tl.log2(tl.where(some, total, 1.0)), 0.0)
    tl.store(log_sum_ptr + head * num_queries + rows, log_sum, mask=is_row)


@triton.jit
def _query_gradient(
    q_ptr, k_ptr, v_ptr, out_ptr, log_sum_ptr, first_ptr, end_ptr, grad_ptr, dq_ptr, delta_ptr, num_queries, q_stride,
    kv_stride, scale, num_heads: tl.constexpr, d_head: tl.constexpr, block: tl.constexpr, stride: tl.constexpr,
):  # fmt: skip
    head = tl.program_id(1)
    rows = tl.program_id(0) * block + tl.arange(0, block)
    dims = head * d_head + tl.arange(0, d_head)
    is_row = rows < num_queries
    first = tl.load(first_ptr + rows, mask=is_row, other=2**30)
    end = tl.load(end_ptr + rows, mask=is_row, other=0)
    first = tl.where(first < end, first, 2**30)
    q = tl.load(q_ptr + rows[:, None] * q_stride + dims[None, :], mask=is_row[:, None], other=0.0)
    out_places = rows[:, None] * (num_heads * d_head) + dims[None, :]
    grad = tl.load(grad_ptr + out_places, mask=is_row[:, None], other=0.0)
    out = tl.load(out_ptr + out_places, mask=is_row[:, None], other=0.0)
    delta = tl.sum(grad.to(tl.float32) * out.to(tl.float32), 1)  # Σ_k weight_k · d_weight_k, for softmax's gradient
    tl.store(delta_ptr + head * num_queries + rows, delta, mask=is_row)
    log_sum = tl.load(log_sum_ptr + head * num_queries + rows, mask=is_row, other=0.0)
    dq = tl.zeros((block, d_head), tl.float32)
    last_end = tl.max(end, 0)
    for start in range(tl.min(first, 0), last_end, stride):
        keys = start + tl.arange(0, stride)
        is_key = keys < last_end
        k = tl.load(k_ptr + keys[:, None] * kv_stride + dims[None, :], mask=is_key[:, None], other=0.0)
        v = tl.load(v_ptr + keys[:, None] * kv_stride + dims[None, :], mask=is_key[:, None], other=0.0)
        scores = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
        may = (keys[None, :] >= first[:, None]) & (keys[None, :] < end[:, None])
        weights = tl.where(may, tl.exp2(scores - log_sum[:, None]), 0.0)
        d_weights = tl.dot(grad, tl.trans(v), input_precision="ieee")
        d_scores = weights * (d_weights - delta[:, None])
        dq += tl.dot(d_scores.to(k.dtype), k, input_precision="ieee")
    dq = dq * (scale * 0.6931471805599453)  # times ln 2, because scale contains log₂ e
    tl.store(dq_ptr + rows[:, None] * q_stride + dims[None, :], dq.to(dq_ptr.dtype.element_ty), mask=is_row[:, None])


@triton.jit
def _key_value_gradient(
    q_ptr, k_ptr, v_ptr, log_sum_ptr, delta_ptr, first_ptr, end_ptr, grad_ptr, dk_ptr, dv_ptr, num_queries, num_keys,
    q_stride, kv_stride, scale, num_heads: tl.constexpr, d_head: tl.constexpr, block: tl.constexpr, stride: tl.constexpr,
):  # fmt: skip
    head = tl.program_id(1)
    keys = tl.program_id(0) * block + tl.arange(0, block)
    dims = head * d_head + tl.arange(0, d_head)
    is_key = keys < num_keys
    first = tl.load(first_ptr + keys, mask=is_key, other=2**30)
    end = tl.load(end_ptr + keys, mask=is_key, other=0)
    first = tl.where(first < end, first, 2**30)
    k = tl.load(k_ptr + keys[:, None] * kv_stride + dims[None, :], mask=is_key[:, None], other=0.0)
    v = tl.load(v_ptr + keys[:, None] * kv_stride + dims[None, :], mask=is_key[:, None], other=0.0)
    dk = tl.zeros((block, d_head), tl.float32)
    dv = tl.zeros((block, d_head), tl.float32)
    last_end = tl.max(end, 0)
    for start in range(tl.min(first, 0), last_end, stride):
        rows = start + tl.arange(0, stride)
        is_row = rows < last_end
        q = tl.load(q_ptr + rows[:, None] * q_stride + dims[None, :], mask=is_row[:, None], other=0.0)
        places = grad_ptr + rows[:, None] * (num_heads * d_head) + dims[None, :]
        grad = tl.load(places, mask=is_row[:, None], other=0.0)
        log_sum = tl.load(log_sum_ptr + head * num_queries + rows, mask=is_row, other=0.0)
        delta = tl.load(delta_ptr + head * num_queries + rows, mask=is_row, other=0.0)
        scores = tl.dot(k, tl.trans(q), input_precision="ieee") * scale  # (keys, queries)
        may = (rows[None, :] >= first[:, None]) & (rows[None, :] < end[:, None])
        weights = tl.where(may, tl.exp2(scores - log_sum[None, :]), 0.0)
        dv += tl.dot(weights.to(grad.dtype), grad, input_precision="ieee")
        d_weights = tl.dot(v, tl.trans(grad), input_precision="ieee")
        d_scores = weights * (d_weights - delta[None, :])
        dk += tl.dot(d_scores.to(q.dtype), q, input_precision="ieee")
    dk = dk * (scale * 0.6931471805599453)
    places = keys[:, None] * kv_stride + dims[None, :]
    tl.store(dk_ptr + places, dk.to(dk_ptr.dtype.element_ty), mask=is_key[:, None])
    tl.store(dv_ptr + places, dv.to(dv_ptr.dtype.element_ty), mask=is_key[:, None])


def attention(
    q: Float[Tensor, "Q D"], k: Float[Tensor, "N D"], v: Float[Tensor, "N D"], intervals: Intervals, num_heads: int
) -> Heads:
    """Compute softmax(QKᵀ/√d_k)V for each head. Rows may be parts of longer rows, such as those of a fused projection. A
    query with an empty interval gets zeros."""
    assert k.stride() == v.stride() and q.stride(1) == k.stride(1) == 1
    assert max(q.stride(0) * len(q), k.stride(0) * len(k)) < 2**31, "more than the kernels count to"
    num_queries, d_model = q.shape
    d_head = d_model // num_heads
    out = q.new_empty(num_queries, d_model)
    log_sums = q.new_empty(num_heads, num_queries, dtype=torch.float32)
    _forward[(triton.cdiv(num_queries, BLOCK), num_heads)](
        q, k, v, out, log_sums, intervals.key_first, intervals.key_end, num_queries, q.stride(0), k.stride(0),
        LOG2_E / d_head**0.5, num_heads, d_head, BLOCK, STRIDE, num_warps=WARPS,
    )  # fmt: skip
    return Heads(out, log_sums)


def attention_gradient(
    q: Float[Tensor, "Q D"],
    k: Float[Tensor, "N D"],
    v: Float[Tensor, "N D"],
    heads: Heads,
    intervals: Intervals,
    grad: Float[Tensor, "Q D"],
    into: tuple[Float[Tensor, "Q D"], Float[Tensor, "N D"], Float[Tensor, "N D"]],
) -> None:
    """Write the gradients of q, k and v into tensors with the same strides."""
    dq, dk, dv = into
    assert dq.stride() == q.stride() and dk.stride() == dv.stride() == k.stride() and grad.is_contiguous()
    num_heads, num_queries = heads.log_sums.shape
    d_head = q.shape[1] // num_heads
    delta = torch.empty_like(heads.log_sums)
    scale = LOG2_E / d_head**0.5
    _query_gradient[(triton.cdiv(num_queries, BLOCK), num_heads)](
        q, k, v, heads.values, heads.log_sums, intervals.key_first, intervals.key_end, grad, dq, delta, num_queries,
        q.stride(0), k.stride(0), scale, num_heads, d_head, BLOCK, STRIDE, num_warps=WARPS,
    )  # fmt: skip
    _key_value_gradient[(triton.cdiv(len(k), BLOCK), num_heads)](
        q, k, v, heads.log_sums, delta, intervals.query_first, intervals.query_end, grad, dk, dv, num_queries, len(k),
        q.stride(0), k.stride(0), scale, num_heads, d_head, BLOCK, STRIDE, num_warps=WARPS,
    )  # fmt: skip
