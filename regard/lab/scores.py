"""Compares three scores of a key for a query: additive, dot product, and scaled dot product."""

import math
from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from regard.lab.experiment import Setting
from regard.lab.result import LineData, Result, SeriesData, TableData, Term

SIZES, NUM_QUERIES, NUM_KEYS = (4, 16, 64, 256, 1024), 16, 32
ScoreFunction = Callable[[Float[Tensor, "T K"], Float[Tensor, "S K"], torch.Generator], Float[Tensor, "T S"]]


def additive(q: Float[Tensor, "T K"], k: Float[Tensor, "S K"], generator: torch.Generator) -> Float[Tensor, "T S"]:
    """Return vᵀ tanh(W_q q + W_k k) as in Bahdanau et al., with Glorot's initialisation."""
    d_k = q.shape[-1]
    w_q, w_k = torch.randn(2, d_k, d_k, generator=generator, dtype=q.dtype) / math.sqrt(d_k)
    v = torch.randn(d_k, generator=generator, dtype=q.dtype) * (2 / (d_k + 1)) ** 0.5
    hidden = torch.tanh((q @ w_q)[:, None] + (k @ w_k)[None])  # (T, S, K)
    scores: Tensor = hidden @ v
    return scores


def dot(q: Float[Tensor, "T K"], k: Float[Tensor, "S K"], _: torch.Generator) -> Float[Tensor, "T S"]:
    return q @ k.T


def scaled_dot(q: Float[Tensor, "T K"], k: Float[Tensor, "S K"], _: torch.Generator) -> Float[Tensor, "T S"]:
    scores: Tensor = q @ k.T / math.sqrt(q.shape[-1])
    return scores


KINDS: tuple[tuple[str, ScoreFunction], ...] = (("additive", additive), ("dot", dot), ("scaled-dot", scaled_dot))


def measured(scores: Float[Tensor, "T S"]) -> tuple[float, float, float]:
    """Return the standard deviation of scores, the mean of the largest weights, and the mean norm of ∂weights/∂scores."""
    weights = scores.softmax(-1)
    # ‖diag(y) − yyᵀ‖² = Σ y² − 2 Σ y³ + (Σ y²)²
    squares = (weights**2).sum(-1)
    norms = (squares - 2 * (weights**3).sum(-1) + squares**2).clamp(min=0).sqrt()
    return float(scores.std()), float(weights.amax(-1).mean()), float(norms.mean())


def measurements(seeds: tuple[int, ...]) -> Float[Tensor, "kinds sizes seeds 3"]:
    found = torch.zeros(len(KINDS), len(SIZES), len(seeds), 3, dtype=torch.float64)
    for at_size, d_k in enumerate(SIZES):
        for at_seed, seed in enumerate(seeds):
            generator = torch.Generator().manual_seed(seed)
            q = torch.randn(NUM_QUERIES, d_k, generator=generator, dtype=torch.float64)
            k = torch.randn(NUM_KEYS, d_k, generator=generator, dtype=torch.float64)
            for kind, (_, scores) in enumerate(KINDS):
                found[kind, at_size, at_seed] = torch.tensor(measured(scores(q, k, generator)))
    return found


def kinds(setting: Setting) -> Result:
    seeds = setting.seeds(5)
    found = measurements(seeds)
    spread = found[0, :, :, 0].mean(-1)  # of additive scores, at each size
    gradients = found[..., 2].mean(-1)  # (kinds, sizes)
    lost = float(gradients[1, -1] / gradients[2, -1])
    kept = float(gradients[2].min() / gradients[2].max())
    rows = [
        (Term(name), d_k, *found[kind, at_size].mean(0).tolist())
        for kind, (name, _) in enumerate(KINDS)
        for at_size, d_k in enumerate(SIZES)
        if d_k in (4, 64, 1024)
    ]

    def chart(which: int) -> LineData:
        pairs = zip(KINDS, found[..., which].tolist(), strict=True)
        curves = [SeriesData.over_seeds(Term(name), of_sizes, SIZES) for (name, _), of_sizes in pairs]
        return LineData(curves, log_x=True, log_y=True)

    return Result(
        "held" if lost < 0.5 and kept > 0.5 else "did not hold",
        {
            "lost": lost,
            "favourite": float(found[1, -1, :, 1].mean()),
            "change": 1 - kept,
            "low": float(spread.min()),
            "high": float(spread.max()),
            "queries": NUM_QUERIES,
            "keys": NUM_KEYS,
            "seeds": len(seeds),
        },
        tables={"scores": TableData(rows)},
        charts={"spread": chart(0), "gradient": chart(2)},
        seeds=seeds,
    )
