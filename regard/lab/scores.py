"""Three ways to score a key for a query: additive, dot product, scaled dot product."""

import math
from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from regard.lab.experiment import Setting
from regard.lab.finding import Finding, LineChart, Series, Table, Words

SIZES, NUM_QUERIES, NUM_KEYS = (4, 16, 64, 256, 1024), 16, 32
Scores = Callable[[Float[Tensor, "T K"], Float[Tensor, "S K"], torch.Generator], Float[Tensor, "T S"]]


def additive(q: Float[Tensor, "T K"], k: Float[Tensor, "S K"], generator: torch.Generator) -> Float[Tensor, "T S"]:
    """vᵀ tanh(W_q q + W_k k) of Bahdanau et al., with first values as Glorot's: v is a map from d_k to 1."""
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


KINDS: tuple[tuple[Words, Scores], ...] = (
    (Words("additive", "加性"), additive),
    (Words("dot product", "点积"), dot),
    (Words("scaled dot product", "缩放点积"), scaled_dot),
)


def measured(scores: Float[Tensor, "T S"]) -> tuple[float, float, float]:
    """Their standard deviation, the largest weight of a query in the mean, and the mean norm of ∂weights/∂scores."""
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


def kinds(setting: Setting) -> Finding:
    seeds = setting.seeds(5)
    found = measurements(seeds)
    spread = found[0, :, :, 0].mean(-1)  # of additive scores, at each size
    favourite = float(found[1, -1, :, 1].mean())
    gradients = found[..., 2].mean(-1)  # (kinds, sizes)
    lost = float(gradients[1, -1] / gradients[2, -1])
    kept = float(gradients[2].min() / gradients[2].max())
    holds = lost < 0.5 and kept > 0.5

    def chart(title: Words, label: Words, which: int) -> LineChart:
        lines = tuple(_line(name, found[kind, :, :, which]) for kind, (name, _) in enumerate(KINDS))
        return LineChart(title, Words("d_k", "d_k"), label, lines, log_x=True, log_y=True)

    return Finding(
        name="scores",
        claims=("M20", "M16"),
        title=Words("Additive, dot and scaled dot scores", "加性、点积与缩放点积得分"),
        claim=Words(
            "Notes 000 and 001: the score of a key may be additive, a dot product or a scaled one; when d_k is large, dot "
            "products grow too large and softmax's gradient too small, which 1/√d_k relieves.",
            "笔记 000、001：得分可以是加性、点积或缩放点积；d_k 很大时点积数值过大，softmax 的梯度过小，缩放因子 1/√d_k 可"
            "以缓解。",
        ),
        verdict="held" if holds else "did not hold",
        outcome=Words(
            f"At d_k = 1024, the softmax of plain dot products passes on {lost:.0%} of the gradient that scaled ones do "
            f"(held: below 50%) and gives its favourite key {favourite:.0%} of the weight. Scaled, the gradient stays "
            f"within {1 - kept:.0%} over all d_k (allowed: 50%). Additive scores, through tanh, have a standard deviation "
            f"of {float(spread.min()):.2f} to {float(spread.max()):.2f} whatever d_k is. They are vᵀ tanh(W_q q + W_k k) "
            "with a learned vector v; note 001 has the query in v's place.",
            f"d_k = 1024 时，未缩放点积的 softmax 只传回缩放点积 {lost:.0%} 的梯度（判据：低于 50%），并把 {favourite:.0%} "
            f"的权重给了得分最高的键。缩放后，梯度在所有 d_k 上的变化不超过 {1 - kept:.0%}（容许 50%）。加性得分经过 tanh，"
            f"无论 d_k 多大，标准差都在 {float(spread.min()):.2f} 到 {float(spread.max()):.2f} 之间。它是 vᵀ tanh(W_q q + "
            "W_k k)，其中 v 是学到的向量；笔记 001 在 v 的位置写了查询。",
        ),
        tables=(_table(found),),
        charts=(
            chart(Words("How far scores spread", "得分的离散程度"), Words("standard deviation", "标准差"), 0),
            chart(
                Words("What softmax passes on", "softmax 传回多少"),
                Words("norm of ∂weights/∂scores", "∂权重/∂得分 的范数"),
                2,
            ),
        ),
        seeds=seeds,
    )


def _line(name: Words, values: Float[Tensor, "sizes seeds"]) -> Series:
    means, low, high = values.mean(1).tolist(), values.amin(1).tolist(), values.amax(1).tolist()
    return Series(name, y=tuple(means), x=tuple(map(float, SIZES)), low=tuple(low), high=tuple(high))


def _table(found: Float[Tensor, "kinds sizes seeds 3"]) -> Table:
    num_seeds = found.shape[2]
    return Table(
        Words(
            f"{NUM_QUERIES} queries, {NUM_KEYS} keys, mean of {num_seeds} seeds",
            f"{NUM_QUERIES} 个查询，{NUM_KEYS} 个键，{num_seeds} 个种子的均值",
        ),
        (
            Words("score", "得分"),
            Words("d_k", "d_k"),
            Words("standard deviation", "标准差"),
            Words("largest weight", "最大权重"),
            Words("gradient's norm", "梯度范数"),
        ),
        tuple(
            (name, d_k, *found[kind, at_size].mean(0).tolist())
            for kind, (name, _) in enumerate(KINDS)
            for at_size, d_k in enumerate(SIZES)
            if d_k in (4, 64, 1024)
        ),
    )
