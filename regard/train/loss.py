"""The training loss: label-smoothed cross-entropy straight from the decoder's states (section 5.4), of one pass or of two
that R-Drop compares.

The logits of a batch are by far its largest tensor. They are computed a few hundred rows at a time, together with their
gradient, so that they are never held as a whole and each chunk is read while it is still in the cache.
"""

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.model.onednn import linear, one_dnn_multiplies

# Logits in a chunk: few enough for a CPU's cache (8 MiB in float32), enough to fill a GPU.
CPU_CHUNK, GPU_CHUNK = 2**21, 2**27


class Loss(NamedTuple):
    """Sums over the tokens of a batch. Divide once per update, after all of its batches are summed."""

    total: Float[Tensor, ""]  # label-smoothed; the one to differentiate
    nll: Float[Tensor, ""]  # −Σ log P(token): its mean's exponential is the perplexity
    num_tokens: Int[Tensor, ""]


def smoothed_cross_entropy(
    states: Float[Tensor, "*passes B T D"],
    output_weight: Float[Tensor, "V D"],
    targets: Int[Tensor, "B T"],
    *,
    pad_id: int,
    smoothing: float,
    r_drop: float = 0.0,
    output_bias: Float[Tensor, " V"] | None = None,
) -> Loss:
    """Cross-entropy with (1 - ε) · one-hot + ε/V as the target distribution; padding does not count.

    States (2, B, T, D) are those of two passes with different dropout, which give a token the distributions p and q. Their
    loss is that of R-Drop (Liang et al. 2021): the mean of both cross-entropies + α/2 · the mean of KL(p‖q) and KL(q‖p),
    half of the paper's CE₁ + CE₂ + α · ½ (KL + KL), so that α is the paper's and a token counts once. `nll` is the mean too.

    Do not call it inside `torch.compile`, which would compile its loop over chunks again for every number of rows.
    """
    if output_bias is not None:  # xWᵀ + b is [x, 1] [W, b]ᵀ; only imported models have a bias, so a copy is cheap enough
        states = F.pad(states, (0, 1), value=1.0)
        output_weight = torch.cat([output_weight, output_bias[:, None].to(output_weight.dtype)], dim=1)
    if not torch.is_grad_enabled():  # `needs_input_grad` would not tell
        states, output_weight = states.detach(), output_weight.detach()
    rows = states.reshape(2 if states.ndim == 4 else 1, targets.numel(), -1)
    total, nll = _ChunkedLoss.apply(rows, output_weight, targets.flatten(), pad_id, smoothing, r_drop)  # type: ignore[no-untyped-call]
    return Loss(total, nll, (targets != pad_id).sum())


class _ChunkedLoss(torch.autograd.Function):
    """The loss of one pass or of a pair of passes, whose gradients are computed in the forward pass."""

    @staticmethod
    def forward(
        ctx: Any,
        states: Float[Tensor, "P R D"],
        weight: Float[Tensor, "V D"],
        targets: Int[Tensor, " R"],
        pad_id: int,
        smoothing: float,
        r_drop: float,
    ) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
        num_passes = len(states)
        precise = torch.promote_types(states.dtype, torch.float32)  # for the sums and the softmax of bfloat16 states
        wants_grad = any(ctx.needs_input_grad[:2])
        total, nll = (states.new_zeros((), dtype=precise) for _ in range(2))
        grad_states = torch.empty_like(states) if wants_grad else None
        grad_weight = torch.zeros_like(weight, dtype=precise) if wants_grad else None
        weight_sum = weight.sum(0, dtype=precise)
        chunk = max(1, (CPU_CHUNK if states.device.type == "cpu" else GPU_CHUNK) // (num_passes * len(weight)))
        for start in range(0, len(targets), chunk):
            rows = slice(start, start + chunk)
            x, target = states[:, rows].flatten(0, 1), targets[rows]
            is_real = target != pad_id
            logits = linear(x, weight, None).to(precise)
            if num_passes == 1:
                chunk_total, chunk_nll, grad_x = _learn_chunk(
                    x, logits, weight, weight_sum, target, is_real, smoothing, grad_weight
                )
            else:
                chunk_total, chunk_nll, grad_x = _learn_pairs(
                    x, logits, weight, target, is_real, smoothing, r_drop, grad_weight
                )
            total += chunk_total
            nll += chunk_nll
            if grad_states is not None and grad_x is not None:
                grad_states[:, rows] = grad_x.unflatten(0, (num_passes, -1))
        if grad_states is not None and grad_weight is not None:
            ctx.save_for_backward(grad_states, grad_weight)
        ctx.weight_dtype = weight.dtype
        ctx.mark_non_differentiable(nll)
        return total, nll

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad_total: Tensor, _grad_nll: Tensor) -> tuple[Tensor | None, ...]:
        grad_states, grad_weight = ctx.saved_tensors
        return grad_states * grad_total, (grad_weight * grad_total).to(ctx.weight_dtype), None, None, None, None


def _learn_chunk(
    x: Float[Tensor, "R D"],
    logits: Float[Tensor, "R V"],
    weight: Float[Tensor, "V D"],
    weight_sum: Float[Tensor, " D"],
    target: Int[Tensor, " R"],
    is_real: Bool[Tensor, " R"],
    smoothing: float,
    grad_weight: Float[Tensor, "V D"] | None,
) -> tuple[Tensor, Tensor, Tensor | None]:
    """The smoothed loss and nll of a chunk of rows, and the gradient of `x`; that of the weight is added to `grad_weight`.

    Smoothing needs Σ_v logits_v = x · Σ_v W_v, which takes one vector instead of a pass over the logits.
    """
    vocab_size, precise = len(weight), logits.dtype
    target_logit = logits.gather(1, target[:, None])[:, 0]
    log_probs = torch.log_softmax(logits, -1, out=logits)  # in place: fresh memory costs as much as the arithmetic
    target_log_prob = log_probs.gather(1, target[:, None])[:, 0]
    log_z = target_logit - target_log_prob
    mean_log_prob = (x.to(precise) @ weight_sum) / vocab_size - log_z
    total = -(((1 - smoothing) * target_log_prob + smoothing * mean_log_prob) * is_real).sum()
    nll = -(target_log_prob * is_real).sum()
    if grad_weight is None:
        return total, nll, None
    # ∂total/∂logits = softmax(logits) - (1 - ε) · one-hot - ε/V, of which only the softmax is a full matrix.
    probs = log_probs.exp_().to(x.dtype)
    real_x = x * is_real[:, None]
    expected_weight = linear(probs, weight.t(), None)
    wanted_weight = (1 - smoothing) * F.embedding(target, weight) + (smoothing / vocab_size) * weight_sum
    _add_product(grad_weight, probs.t(), real_x)
    grad_weight.index_add_(0, target, real_x.to(precise), alpha=smoothing - 1)
    grad_weight -= (smoothing / vocab_size) * real_x.sum(0, dtype=precise)
    return total, nll, (expected_weight - wanted_weight) * is_real[:, None]


def _learn_pairs(
    x: Float[Tensor, "N D"],
    logits: Float[Tensor, "N V"],
    weight: Float[Tensor, "V D"],
    target: Int[Tensor, " R"],
    is_real: Bool[Tensor, " R"],
    smoothing: float,
    r_drop: float,
    grad_weight: Float[Tensor, "V D"] | None,
) -> tuple[Tensor, Tensor, Tensor | None]:
    """R-Drop's loss and nll of a chunk of rows, those of the first pass followed by those of the second, and gradients as
    above. The gradient of the divergence is a full matrix, so that nothing is gained by treating the targets apart."""
    log_probs = torch.log_softmax(logits, -1, out=logits).unflatten(0, (2, -1))  # (2, R, V)
    target_log_prob = log_probs.gather(2, target.expand(2, -1)[:, :, None])[:, :, 0].mean(0)
    probs = log_probs.exp()
    log_ratio = log_probs[0] - log_probs[1]  # log p - log q
    divergence = torch.stack([(probs[0] * log_ratio).sum(-1), -(probs[1] * log_ratio).sum(-1)])  # KL(p‖q), KL(q‖p)
    smoothed = (1 - smoothing) * target_log_prob + smoothing * log_probs.mean((0, 2))
    total = ((r_drop / 2 * divergence.mean(0) - smoothed) * is_real).sum()
    nll = -(target_log_prob * is_real).sum()
    if grad_weight is None:
        return total, nll, None
    # ∂KL(p‖q)/∂p's logits = p (log p - log q - KL(p‖q)), ∂KL(q‖p)/∂p's logits = p - q; of q's logits, by symmetry.
    grad = probs * (torch.stack([log_ratio, -log_ratio]) - divergence[:, :, None]) + probs - probs.flip(0)
    grad = r_drop / 4 * grad + (probs - smoothing / len(weight)) / 2
    grad.scatter_add_(2, target.expand(2, -1)[:, :, None], grad.new_full((2, len(target), 1), (smoothing - 1) / 2))
    grad_logits = (grad * is_real[:, None]).flatten(0, 1).to(x.dtype)
    _add_product(grad_weight, grad_logits.t(), x)
    return total, nll, linear(grad_logits, weight.t(), None)


def _add_product(into: Float[Tensor, "V D"], a: Float[Tensor, "V R"], b: Float[Tensor, "R D"]) -> None:
    if into.dtype != a.dtype:
        into += a @ b
    else:
        with one_dnn_multiplies():
            into.addmm_(a, b)
