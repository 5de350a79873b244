"""The training loss: label-smoothed cross-entropy straight from the decoder's states (section 5.4), of one pass or of two
that shall agree (R-Drop).

The logits of a batch are its largest tensor by far. They are made, used and forgotten a few hundred rows at a time, with
the gradient taken on the way: the whole is never held, and each part is read while it is still in the cache.
"""

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from regard.model.layers import linear, one_dnn_multiplies

# Logits made at a time: few enough for a CPU's cache (8 MiB in float32), enough to fill a GPU.
CPU_CHUNK, GPU_CHUNK = 2**21, 2**27


class Loss(NamedTuple):
    """Sums over the tokens of a batch. Divide once per update, after all of its batches are summed."""

    total: Float[Tensor, ""]  # label-smoothed; the one to differentiate
    nll: Float[Tensor, ""]  # −Σ log P(token): its mean's exponential is the perplexity
    num_tokens: Int[Tensor, ""]


def smoothed_cross_entropy(
    states: Float[Tensor, "B T D"],
    output_weight: Float[Tensor, "V D"],
    targets: Int[Tensor, "B T"],
    *,
    pad_id: int,
    smoothing: float,
    output_bias: Float[Tensor, " V"] | None = None,
) -> Loss:
    """Cross-entropy with (1 - ε) · one-hot + ε/V as the target distribution; padding does not count.

    Not for the inside of `torch.compile`: its loop over chunks would be compiled anew for every number of rows.
    """
    states, output_weight = _prepared(states, output_weight, output_bias)
    rows, row_targets = states.flatten(0, 1), targets.flatten()
    total, nll = _ChunkedCrossEntropy.apply(rows, output_weight, row_targets, pad_id, smoothing)  # type: ignore[no-untyped-call]
    return Loss(total, nll, (targets != pad_id).sum())


def paired_cross_entropy(
    states: Float[Tensor, "2 B T D"],
    output_weight: Float[Tensor, "V D"],
    targets: Int[Tensor, "B T"],
    *,
    pad_id: int,
    smoothing: float,
    r_drop: float,
    output_bias: Float[Tensor, " V"] | None = None,
) -> Loss:
    """R-Drop (Liang et al. 2021): of two passes over a batch, with different dropout, that give a token the distributions p
    and q. Its loss is the mean of the two smoothed cross-entropies + α/2 · the mean of KL(p‖q) and KL(q‖p): the paper's
    L = CE₁ + CE₂ + α · ½ (KL + KL), divided by two. So α is the paper's, and a token counts once, as it does without R-Drop.
    `nll` is the mean of both passes', too.
    """
    states, output_weight = _prepared(states, output_weight, output_bias)
    rows, row_targets = states.flatten(1, 2), targets.flatten()
    total, nll = _ChunkedPairs.apply(rows, output_weight, row_targets, pad_id, smoothing, r_drop)  # type: ignore[no-untyped-call]
    return Loss(total, nll, (targets != pad_id).sum())


def _prepared(
    states: Float[Tensor, "*rows D"], weight: Float[Tensor, "V D"], bias: Float[Tensor, " V"] | None
) -> tuple[Float[Tensor, "*rows I"], Float[Tensor, "V I"]]:
    """States and weight as the functions below take them."""
    if bias is not None:  # xWᵀ + b is [x, 1] [W, b]ᵀ: rare enough (imported models) to cost a copy, and no code below
        states = F.pad(states, (0, 1), value=1.0)
        weight = torch.cat([weight, bias[:, None].to(weight.dtype)], dim=1)
    if not torch.is_grad_enabled():  # which the functions below cannot see, and would work for nothing
        return states.detach(), weight.detach()
    return states, weight


def _add_product(into: Float[Tensor, "V D"], a: Float[Tensor, "V R"], b: Float[Tensor, "R D"]) -> None:
    if into.dtype != a.dtype:
        into += a @ b
    else:
        with one_dnn_multiplies():
            into.addmm_(a, b)


class _ChunkedCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        states: Float[Tensor, "R D"],
        weight: Float[Tensor, "V D"],
        targets: Int[Tensor, " R"],
        pad_id: int,
        smoothing: float,
    ) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
        vocab_size = len(weight)
        precise = torch.promote_types(states.dtype, torch.float32)  # sums and softmax of bf16 states are float32's
        is_real = targets != pad_id
        wants_grad = any(ctx.needs_input_grad[:2])
        # Σ_v logits_v = x · Σ_v W_v: what smoothing needs of the other words costs one vector, not a pass over the logits.
        weight_sum = weight.sum(0, dtype=precise)
        total, nll = (states.new_zeros((), dtype=precise) for _ in range(2))
        grad_states = torch.empty_like(states) if wants_grad else None
        grad_weight = torch.zeros_like(weight, dtype=precise) if wants_grad else None
        chunk = max(1, (CPU_CHUNK if states.device.type == "cpu" else GPU_CHUNK) // vocab_size)
        for start in range(0, len(targets), chunk):
            rows = slice(start, start + chunk)
            x, target, real = states[rows], targets[rows], is_real[rows]
            logits = linear(x, weight, None).to(precise)  # (R, V), for this chunk's R
            target_logit = logits.gather(1, target[:, None])[:, 0]
            log_probs = torch.log_softmax(logits, -1, out=logits)  # in place: fresh memory costs as much as the arithmetic
            target_log_prob = log_probs.gather(1, target[:, None])[:, 0]
            log_z = target_logit - target_log_prob
            mean_log_prob = (x.to(precise) @ weight_sum) / vocab_size - log_z
            nll -= (target_log_prob * real).sum()
            total -= (((1 - smoothing) * target_log_prob + smoothing * mean_log_prob) * real).sum()
            if grad_states is None or grad_weight is None:
                continue
            # ∂total/∂logits = softmax(logits) - (1 - ε) · one-hot - ε/V, of which only the softmax is a full matrix.
            probs = log_probs.exp_().to(states.dtype)
            real_x = x * real[:, None]
            expected_weight = linear(probs, weight.t(), None)
            wanted_weight = (1 - smoothing) * F.embedding(target, weight) + (smoothing / vocab_size) * weight_sum
            grad_states[rows] = (expected_weight - wanted_weight) * real[:, None]
            _add_product(grad_weight, probs.t(), real_x)
            grad_weight.index_add_(0, target, real_x.to(precise), alpha=smoothing - 1)
            grad_weight -= (smoothing / vocab_size) * real_x.sum(0, dtype=precise)
        if grad_states is not None and grad_weight is not None:
            ctx.save_for_backward(grad_states, grad_weight)
        ctx.weight_dtype = weight.dtype
        ctx.mark_non_differentiable(nll)
        return total, nll

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad_total: Tensor, _grad_nll: Tensor) -> tuple[Tensor | None, ...]:
        grad_states, grad_weight = ctx.saved_tensors
        return grad_states * grad_total, (grad_weight * grad_total).to(ctx.weight_dtype), None, None, None


class _ChunkedPairs(torch.autograd.Function):
    """A chunk holds both passes' rows. Their agreement has a full matrix for a gradient: nothing is saved by keeping the
    targets apart, as above."""

    @staticmethod
    def forward(
        ctx: Any,
        states: Float[Tensor, "2 R D"],
        weight: Float[Tensor, "V D"],
        targets: Int[Tensor, " R"],
        pad_id: int,
        smoothing: float,
        r_drop: float,
    ) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
        vocab_size = len(weight)
        precise = torch.promote_types(states.dtype, torch.float32)
        wants_grad = any(ctx.needs_input_grad[:2])
        total, nll = (states.new_zeros((), dtype=precise) for _ in range(2))
        grad_states = torch.empty_like(states) if wants_grad else None
        grad_weight = torch.zeros_like(weight, dtype=precise) if wants_grad else None
        chunk = max(1, (CPU_CHUNK if states.device.type == "cpu" else GPU_CHUNK) // (2 * vocab_size))
        for start in range(0, len(targets), chunk):
            rows = slice(start, start + chunk)
            x, target = states[:, rows].flatten(0, 1), targets[rows]
            real = (target != pad_id).to(precise)
            logits = linear(x, weight, None).to(precise)
            log_probs = torch.log_softmax(logits, -1, out=logits).unflatten(0, (2, -1))  # (2, R, V), for this chunk's R
            target_log_prob = log_probs.gather(2, target.expand(2, -1)[:, :, None])[:, :, 0].mean(0)
            probs = log_probs.exp()
            log_ratio = log_probs[0] - log_probs[1]  # log p - log q
            divergence = torch.stack([(probs[0] * log_ratio).sum(-1), -(probs[1] * log_ratio).sum(-1)])  # KL(p‖q), KL(q‖p)
            smoothed = (1 - smoothing) * target_log_prob + smoothing * log_probs.mean((0, 2))
            nll -= (target_log_prob * real).sum()
            total += ((r_drop / 2 * divergence.mean(0) - smoothed) * real).sum()
            if grad_states is None or grad_weight is None:
                continue
            # ∂KL(p‖q)/∂p's logits = p (log p - log q - KL(p‖q)), ∂KL(q‖p)/∂p's logits = p - q; of q's logits, by symmetry.
            grad = probs * (torch.stack([log_ratio, -log_ratio]) - divergence[:, :, None]) + probs - probs.flip(0)
            grad = r_drop / 4 * grad + (probs - smoothing / vocab_size) / 2
            grad.scatter_add_(2, target.expand(2, -1)[:, :, None], grad.new_full((2, len(target), 1), (smoothing - 1) / 2))
            grad_logits = (grad * real[:, None]).flatten(0, 1).to(states.dtype)
            grad_states[:, rows] = linear(grad_logits, weight.t(), None).unflatten(0, (2, -1))
            _add_product(grad_weight, grad_logits.t(), x)
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
