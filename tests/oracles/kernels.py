"""Compute the results of `regard.fast.kernels` by torch's own operations: dense masks, autograd, no blocks."""

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.fast.kernels.intervals import Intervals


def attention_weights(q: Tensor, k: Tensor, intervals: Intervals, num_heads: int) -> Tensor:
    """Return attention weights (H, Q, N); rows that may attend to nothing are zeros."""
    keys = torch.arange(len(k), device=k.device)
    mask = (keys >= intervals.key_first[:, None]) & (keys < intervals.key_end[:, None])
    d_head = q.shape[1] // num_heads
    by_head = [x.unflatten(1, (num_heads, d_head)).transpose(0, 1) for x in (q, k)]
    scores = by_head[0] @ by_head[1].transpose(1, 2) / math.sqrt(d_head)
    some = mask.any(1, keepdim=True)
    weights: Tensor = scores.masked_fill(~mask & some, -math.inf).softmax(-1) * some
    return weights


def attention(q: Tensor, k: Tensor, v: Tensor, intervals: Intervals, num_heads: int) -> Tensor:
    values = v.unflatten(1, (num_heads, -1)).transpose(0, 1)
    heads: Tensor = attention_weights(q, k, intervals, num_heads) @ values
    return heads.transpose(0, 1).flatten(1)


def add_norm(inputs: Sequence[Tensor], *, keep: Tensor, epsilon: float) -> tuple[Tensor, Tensor]:
    """Return stream and normed, of x, y, b, γ and β; `keep` is the dropout mask, divided by the probability of keeping."""
    x, y, bias, gamma, beta = inputs
    stream = x + (y + bias) * keep
    return stream, F.layer_norm(stream, gamma.shape, gamma, beta, epsilon)


def r_drop_loss(logits: Tensor, targets: Tensor, *, pad_id: int, smoothing: float, r_drop: float) -> Tensor:
    """Return each token's loss, given the logits of two passes (2, N, V): the mean of the two smoothed cross-entropies plus
    α/2 times the mean of the two divergences, and 0 for padding."""
    losses = [smoothed_loss(one, targets, pad_id=pad_id, smoothing=smoothing) for one in logits]
    log_p, log_q = (one.log_softmax(-1) for one in logits)
    forth = F.kl_div(log_q, log_p, reduction="none", log_target=True).sum(-1)
    back = F.kl_div(log_p, log_q, reduction="none", log_target=True).sum(-1)
    return (losses[0] + losses[1]) / 2 + r_drop / 2 * (forth + back) / 2 * (targets != pad_id)


def smoothed_loss(logits: Tensor, targets: Tensor, *, pad_id: int, smoothing: float) -> Tensor:
    return F.cross_entropy(logits, targets.long(), ignore_index=pad_id, label_smoothing=smoothing, reduction="none")
