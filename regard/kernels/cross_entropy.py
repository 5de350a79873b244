"""Label-smoothed cross-entropy (section 5.4) of rows of logits, which become their own gradient in place."""

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Int
from torch import Tensor

BLOCK = 4096  # logits at a time


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
        tl.debug_barrier()  # every warp has read the target's logit before one of them overwrites it
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
    """The smoothed loss and −log P of each row. `logits` becomes the gradient of scale · Σ smoothed loss."""
    assert logits.is_contiguous()
    num_rows, vocab_size = logits.shape
    total, nll = torch.empty(2, num_rows, dtype=torch.float32, device=logits.device)
    _row_loss[(num_rows,)](logits, targets, total, nll, scale, vocab_size, pad_id, smoothing, BLOCK, num_warps=8)
    return total, nll
