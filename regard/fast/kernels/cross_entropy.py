"""Label-smoothed cross-entropy (section 5.4) of rows of logits, which are replaced by their gradient in place, for one pass
or for the two passes of R-Drop."""

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Int
from torch import Tensor

BLOCK = 4096  # logits that a program loads at a time
PAIRED_BLOCK = 2048  # logits of each of two rows


@triton.jit
def _row_loss(
    logits_ptr, targets_ptr, total_ptr, nll_ptr, scale_ptr, vocab_size, pad_id, smoothing, block: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0)
    logits_ptr += row.to(tl.int64) * vocab_size
    target = tl.load(targets_ptr + row)
    if target == pad_id:
        tl.store(total_ptr + row, 0.0)
        tl.store(nll_ptr + row, 0.0)
        for start in range(0, vocab_size, block):
            words = start + tl.arange(0, block)
            tl.store(logits_ptr + words, tl.zeros((block,), logits_ptr.dtype.element_ty), mask=words < vocab_size)
    else:
        largest = -float("inf")
        total = 0.0
        plain_sum = 0.0
        for start in range(0, vocab_size, block):
            words = start + tl.arange(0, block)
            x = tl.load(logits_ptr + words, mask=words < vocab_size, other=-float("inf")).to(tl.float32)
            new_largest = tl.maximum(largest, tl.max(x, 0))
            total = total * tl.exp(largest - new_largest) + tl.sum(tl.exp(x - new_largest), 0)
            plain_sum += tl.sum(tl.where(words < vocab_size, x, 0.0), 0)
            largest = new_largest
        log_z = largest + tl.log(total)
        of_target = tl.load(logits_ptr + target).to(tl.float32)
        tl.store(nll_ptr + row, log_z - of_target)
        tl.store(total_ptr + row, log_z - (1.0 - smoothing) * of_target - smoothing * plain_sum / vocab_size)
        scale = tl.load(scale_ptr)
        tl.debug_barrier()  # every warp must read the target's logit before any of them overwrites it
        for start in range(0, vocab_size, block):
            words = start + tl.arange(0, block)
            x = tl.load(logits_ptr + words, mask=words < vocab_size, other=0.0).to(tl.float32)
            grad = tl.exp(x - log_z) - smoothing / vocab_size
            grad = (grad - tl.where(words == target, 1.0 - smoothing, 0.0)) * scale
            tl.store(logits_ptr + words, grad.to(logits_ptr.dtype.element_ty), mask=words < vocab_size)


def cross_entropy_(
    logits: Float[Tensor, "N V"],
    targets: Int[Tensor, " N"],
    scale: Float[Tensor, " 1"],
    *,
    pad_id: int,
    smoothing: float,
) -> tuple[Float[Tensor, " N"], Float[Tensor, " N"]]:
    """Return each row's smoothed loss and −log P, and replace `logits` by the gradient of scale · Σ smoothed loss."""
    assert logits.is_contiguous()
    num_rows, vocab_size = logits.shape
    total, nll = torch.empty(2, num_rows, dtype=torch.float32, device=logits.device)
    _row_loss[(num_rows,)](logits, targets, total, nll, scale, vocab_size, pad_id, smoothing, BLOCK, num_warps=8)
    return total, nll


@triton.jit
def _with_block(x, gap, largest, total, gap_total):
    """Add a block of logits to Σ exp(x) and Σ exp(x) · gap, both of them divided by exp(largest)."""
    new_largest = tl.maximum(largest, tl.max(x, 0))
    fade = tl.exp(largest - new_largest)
    weights = tl.exp(x - new_largest)
    return new_largest, total * fade + tl.sum(weights, 0), gap_total * fade + tl.sum(weights * gap, 0)


@triton.jit
def _pair_loss(
    logits_ptr, targets_ptr, total_ptr, nll_ptr, scale_ptr, vocab_size, pad_id, smoothing, r_drop, block: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0)
    x_ptr = logits_ptr + row.to(tl.int64) * vocab_size
    y_ptr = x_ptr + tl.num_programs(0).to(tl.int64) * vocab_size
    target = tl.load(targets_ptr + row)
    if target == pad_id:
        tl.store(total_ptr + row, 0.0)
        tl.store(nll_ptr + row, 0.0)
        for start in range(0, vocab_size, block):
            words = start + tl.arange(0, block)
            tl.store(x_ptr + words, 0.0, mask=words < vocab_size)
            tl.store(y_ptr + words, 0.0, mask=words < vocab_size)
    else:
        x_largest = -float("inf")
        y_largest = -float("inf")
        x_total = 0.0
        y_total = 0.0
        x_gap = 0.0
        y_gap = 0.0
        plain_sum = 0.0
        for start in range(0, vocab_size, block):
            words = start + tl.arange(0, block)
            is_word = words < vocab_size
            x = tl.load(x_ptr + words, mask=is_word, other=0.0).to(tl.float32)
            y = tl.load(y_ptr + words, mask=is_word, other=0.0).to(tl.float32)
            plain_sum += tl.sum(x + y, 0)
            gap = x - y
            x = tl.where(is_word, x, -float("inf"))
            y = tl.where(is_word, y, -float("inf"))
            x_largest, x_total, x_gap = _with_block(x, gap, x_largest, x_total, x_gap)
            y_largest, y_total, y_gap = _with_block(y, gap, y_largest, y_total, y_gap)
        x_log_z = x_largest + tl.log(x_total)
        y_log_z = y_largest + tl.log(y_total)
        # log p - log q is the gap between the logits minus the gap between the log z; KL(p‖q) is its mean under p.
        kl_pq = x_gap / x_total - (x_log_z - y_log_z)
        kl_qp = (x_log_z - y_log_z) - y_gap / y_total
        log_z = (x_log_z + y_log_z) / 2
        of_target = (tl.load(x_ptr + target).to(tl.float32) + tl.load(y_ptr + target).to(tl.float32)) / 2
        smoothed = log_z - (1.0 - smoothing) * of_target - smoothing * plain_sum / (2 * vocab_size)
        tl.store(nll_ptr + row, log_z - of_target)
        tl.store(total_ptr + row, smoothed + r_drop / 4 * (kl_pq + kl_qp))
        scale = tl.load(scale_ptr)
        tl.debug_barrier()  # every warp must read the target's logits before any of them overwrites them
        for start in range(0, vocab_size, block):
            words = start + tl.arange(0, block)
            is_word = words < vocab_size
            log_p = tl.load(x_ptr + words, mask=is_word, other=0.0).to(tl.float32) - x_log_z
            log_q = tl.load(y_ptr + words, mask=is_word, other=0.0).to(tl.float32) - y_log_z
            p = tl.exp(log_p)
            q = tl.exp(log_q)
            wanted = smoothing / vocab_size + tl.where(words == target, 1.0 - smoothing, 0.0)
            dx = (p - wanted) / 2 + r_drop / 4 * (p * (log_p - log_q - kl_pq) + p - q)
            dy = (q - wanted) / 2 + r_drop / 4 * (q * (log_q - log_p - kl_qp) + q - p)
            tl.store(x_ptr + words, (dx * scale).to(logits_ptr.dtype.element_ty), mask=is_word)
            tl.store(y_ptr + words, (dy * scale).to(logits_ptr.dtype.element_ty), mask=is_word)


def paired_cross_entropy_(
    logits: Float[Tensor, "2 N V"],
    targets: Int[Tensor, " N"],
    scale: Float[Tensor, " 1"],
    *,
    pad_id: int,
    smoothing: float,
    r_drop: float,
) -> tuple[Float[Tensor, " N"], Float[Tensor, " N"]]:
    """Return each row's loss, as in `train.loss.smoothed_cross_entropy`, and its mean −log P over two passes, and replace
    `logits` by the gradient of scale · Σ loss."""
    assert logits.is_contiguous()
    _, num_rows, vocab_size = logits.shape
    total, nll = torch.empty(2, num_rows, dtype=torch.float32, device=logits.device)
    _pair_loss[(num_rows,)](
        logits, targets, total, nll, scale, vocab_size, pad_id, smoothing, r_drop, PAIRED_BLOCK, num_warps=8
    )  # fmt: skip
    return total, nll
