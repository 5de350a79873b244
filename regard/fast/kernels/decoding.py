"""Equation 1 for a step of decoding: the beams of each sentence attend to the sentence's past positions or to its source.

Keys and values are laid out as in `StaticCache`, with a place for each sentence. The few beams are not enough queries for
matrix units, and each key is used once per beam, so the amount of memory read determines the time. A program takes one head
of one place, reads each key and value once for all W beams, stops at the sentence's end, and skips slots that no beam
descends from any more. It computes in float32, whatever the type of its inputs.

Each slot of a block accumulates a softmax of its own, over every `block`-th slot from there on. These are merged after the
loop, so that the threads of a program need no synchronisation within it.
"""

import triton
import triton.language as tl
from jaxtyping import Bool, Float, Int
from torch import Tensor

# Scores (beams times slots) that a program computes at a time, which determine its number of registers; and its warps.
SCORES, WARPS = 64, 4
LOG2_E = 1.4426950408889634


@triton.jit
def _seen(q, k, v, may, largest, total, out):
    """Add a block to the largest score, and to the softmax's denominator and numerator relative to it."""
    scores = tl.where(may, tl.sum(q * k, 2, keep_dims=True), -float("inf"))  # (W, block, 1)
    new_largest = tl.maximum(largest, scores)
    shift = tl.where(new_largest == -float("inf"), 0.0, new_largest)  # avoid -inf - (-inf) before the first key
    weights = tl.exp2(scores - shift)
    fade = tl.exp2(largest - shift)
    return new_largest, total * fade + weights, out * fade + weights * v


@triton.jit
def _descent(ancestry_ptr, slots, end, ancestry_beam, width: tl.constexpr):
    """Return, for each slot, one bit for each beam that descends from it. With a tile of W by slots instead, the compiler
    would lay out all other tiles like it, and move them between threads for every block."""
    bits = tl.zeros_like(slots)
    for beam in tl.static_range(width):
        bits |= tl.load(ancestry_ptr + beam * ancestry_beam + slots, mask=slots < end, other=0).to(tl.int32) << beam
    return bits


@triton.jit
def _past(
    q_ptr, new_k_ptr, new_v_ptr, k_ptr, v_ptr, ancestry_ptr, lengths_ptr, out_ptr, q_place, q_head, q_beam, kv_place,
    kv_slot, kv_head, ancestry_place, ancestry_beam, scale, width: tl.constexpr, num_beams: tl.constexpr,
    num_heads: tl.constexpr, d_head: tl.constexpr, block: tl.constexpr,
):  # fmt: skip
    head, place = tl.program_id(0), tl.program_id(1).to(tl.int64)
    beams = tl.arange(0, num_beams)[:, None, None]  # a power of two, of which `is_beam` masks the excess
    is_beam = beams < width
    dims = tl.arange(0, d_head)[None, None, :]
    fresh = place * q_place + head * q_head + beams * q_beam + dims  # (W, 1, K), in tensors with one row per beam
    q = tl.load(q_ptr + fresh, mask=is_beam, other=0.0).to(tl.float32) * scale
    new_k = tl.load(new_k_ptr + fresh, mask=is_beam, other=0.0)
    new_v = tl.load(new_v_ptr + fresh, mask=is_beam, other=0.0)
    end = tl.load(lengths_ptr + place).to(tl.int32) * width
    k_ptr += place * kv_place + head * kv_head
    v_ptr += place * kv_place + head * kv_head
    own = (end + beams) * kv_slot + dims
    tl.store(k_ptr + own, new_k, mask=is_beam)
    tl.store(v_ptr + own, new_v, mask=is_beam)

    ancestry_ptr += place * ancestry_place
    slots = tl.arange(0, block)[None, :, None]
    descent = _descent(ancestry_ptr, slots, end, ancestry_beam, width)
    largest = tl.full((num_beams, block, 1), -float("inf"), tl.float32)
    total = tl.zeros((num_beams, block, 1), tl.float32)
    out = tl.zeros((num_beams, block, d_head), tl.float32)
    for _ in range(0, end, block):
        places = slots * kv_slot + dims
        k = tl.load(k_ptr + places, mask=descent != 0, other=0.0).to(tl.float32)
        v = tl.load(v_ptr + places, mask=descent != 0, other=0.0).to(tl.float32)
        slots += block
        # Load the next block's bits early: its keys cannot be loaded before they are known.
        next_descent = _descent(ancestry_ptr, slots, end, ancestry_beam, width)
        largest, total, out = _seen(q, k, v, ((descent >> beams) & 1) != 0, largest, total, out)
        descent = next_descent

    # Each beam also attends to itself, with its key and value in registers instead of those just stored in the cache.
    own_score = tl.sum(q * new_k.to(tl.float32), 2, keep_dims=True)
    shift = tl.maximum(own_score, tl.max(largest, 1, keep_dims=True))
    fade = tl.exp2(largest - shift)
    own_weight = tl.exp2(own_score - shift)
    total = own_weight + tl.sum(total * fade, 1, keep_dims=True)
    out = own_weight * new_v.to(tl.float32) + tl.sum(out * fade, 1, keep_dims=True)
    out_places = ((place * width + beams) * num_heads + head) * d_head + dims
    tl.store(out_ptr + out_places, (out / total).to(out_ptr.dtype.element_ty), mask=is_beam)


@triton.jit
def _source(
    q_ptr, k_ptr, v_ptr, lengths_ptr, out_ptr, q_place, q_head, q_beam, kv_place, kv_slot, kv_head, scale,
    width: tl.constexpr, num_beams: tl.constexpr, num_heads: tl.constexpr, d_head: tl.constexpr, block: tl.constexpr,
):  # fmt: skip
    head, place = tl.program_id(0), tl.program_id(1).to(tl.int64)
    beams = tl.arange(0, num_beams)[:, None, None]
    is_beam = beams < width
    dims = tl.arange(0, d_head)[None, None, :]
    q_places = place * q_place + head * q_head + beams * q_beam + dims
    q = tl.load(q_ptr + q_places, mask=is_beam, other=0.0).to(tl.float32) * scale
    end = tl.load(lengths_ptr + place).to(tl.int32)
    k_ptr += place * kv_place + head * kv_head
    v_ptr += place * kv_place + head * kv_head
    largest = tl.full((num_beams, block, 1), -float("inf"), tl.float32)
    total = tl.zeros((num_beams, block, 1), tl.float32)
    out = tl.zeros((num_beams, block, d_head), tl.float32)
    for start in range(0, end, block):
        tokens = start + tl.arange(0, block)[None, :, None]
        is_token = tokens < end
        places = tokens * kv_slot + dims
        k = tl.load(k_ptr + places, mask=is_token, other=0.0).to(tl.float32)
        v = tl.load(v_ptr + places, mask=is_token, other=0.0).to(tl.float32)
        largest, total, out = _seen(q, k, v, is_token, largest, total, out)
    shift = tl.max(largest, 1, keep_dims=True)
    fade = tl.exp2(largest - tl.where(shift == -float("inf"), 0.0, shift))
    total = tl.sum(total * fade, 1, keep_dims=True)
    out = tl.sum(out * fade, 1, keep_dims=True) / tl.where(total > 0.0, total, 1.0)
    out_places = ((place * width + beams) * num_heads + head) * d_head + dims
    tl.store(out_ptr + out_places, out.to(out_ptr.dtype.element_ty), mask=is_beam)


def attend_to_past(
    q: Float[Tensor, "B H W K"],
    new_k: Float[Tensor, "B H W K"],
    new_v: Float[Tensor, "B H W K"],
    keys: Float[Tensor, "B C H K"],
    values: Float[Tensor, "B C H K"],
    *,
    ancestry: Bool[Tensor, "B W C"],
    lengths: Int[Tensor, " B"],
    scale: float | None = None,
) -> Float[Tensor, "B W D"]:
    """Return a step's self-attention, with the heads concatenated. Beam w of place b attends to itself and to those of the
    first `lengths[b]` · W slots that `ancestry` marks. Its key and value are written to slot `lengths[b]` · W + w. `scale`
    replaces 1/√d_k."""
    num_places, num_heads, width, d_head = q.shape
    assert q.stride() == new_k.stride() == new_v.stride() and keys.stride() == values.stride()
    assert q.stride(3) == keys.stride(3) == ancestry.stride(2) == lengths.stride(0) == 1
    assert q.dtype == new_k.dtype == new_v.dtype == keys.dtype == values.dtype
    num_beams = triton.next_power_of_2(width)
    out = q.new_empty(num_places, width, num_heads * d_head)
    _past[(num_heads, num_places)](
        q, new_k, new_v, keys, values, ancestry, lengths, out, *q.stride()[:3], *keys.stride()[:3], *ancestry.stride()[:2],
        _in_base_2(scale, d_head), width, num_beams, num_heads, d_head, SCORES // num_beams, num_warps=WARPS,
    )  # fmt: skip
    return out


def attend_to_source(
    q: Float[Tensor, "B H W K"],
    keys: Float[Tensor, "B S H K"],
    values: Float[Tensor, "B S H K"],
    *,
    lengths: Int[Tensor, " B"],
    scale: float | None = None,
) -> Float[Tensor, "B W D"]:
    """Return a step's cross-attention, with the heads concatenated. All beams of place b attend to the first `lengths[b]`
    keys, and get zeros if there are none. `scale` replaces 1/√d_k."""
    num_places, num_heads, width, d_head = q.shape
    assert keys.stride() == values.stride() and q.stride(3) == keys.stride(3) == lengths.stride(0) == 1
    num_beams = triton.next_power_of_2(width)
    out = q.new_empty(num_places, width, num_heads * d_head)
    _source[(num_heads, num_places)](
        q, keys, values, lengths, out, *q.stride()[:3], *keys.stride()[:3], _in_base_2(scale, d_head), width,
        num_beams, num_heads, d_head, SCORES // num_beams, num_warps=WARPS,
    )  # fmt: skip
    return out


def _in_base_2(scale: float | None, d_head: int) -> float:
    """Return the factor of scores for a softmax with powers of 2 instead of e."""
    return LOG2_E * (d_head**-0.5 if scale is None else scale)
