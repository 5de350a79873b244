"""Three ways to score a key for a query: additive, dot product, scaled dot product."""

import math
from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from regard.lab.experiment import Setting
from regard.lab.finding import Finding, LineChart, Series, Table, Words

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


def kinds(setting: Setting) -> Finding:
    sizes, num_queries, num_keys, seeds = (4, 16, 64, 256, 1024), 16, 32, setting.seeds(5)
    found = torch.zeros(len(KINDS), len(sizes), len(seeds), 3, dtype=torch.float64)
    for at_size, d_k in enumerate(sizes):
        for at_seed, seed in enumerate(seeds):
            generator = torch.Generator().manual_seed(seed)
            q = torch.randn(num_queries, d_k, generator=generator, dtype=torch.float64)
            k = torch.randn(num_keys, d_k, generator=generator, dtype=torch.float64)
            for kind, (_, scores) in enumerate(KINDS):
                found[kind, at_size, at_seed] = torch.tensor(measured(scores(q, k, generator)))
    gradients = found[..., 2].mean(-1)  # (kinds, sizes)
    lost = float(gradients[1, -1] / gradients[2, -1])
    kept = float(gradients[2].min() / gradients[2].max())
    holds = lost < 0.5 and kept > 0.5

    def chart(title: Words, label: Words, which: int) -> LineChart:
        lines = tuple(_line(name, sizes, found[kind, :, :, which]) for kind, (name, _) in enumerate(KINDS))
        return LineChart(title, Words("d_k", "d_k"), label, lines, log_x=True, log_y=True)

    rows = [
        (name, d_k, *found[kind, at_size].mean(0).tolist())
        for kind, (name, _) in enumerate(KINDS)
        for at_size, d_k in enumerate(sizes)
        if d_k in (4, 64, 1024)
    ]
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
            f"(held: below 50%) and gives its favourite key {float(found[1, -1, :, 1].mean()):.0%} of the weight. Scaled, "
            f"the gradient stays within {1 - kept:.0%} over all d_k (allowed: 50%); additive scores, bounded by tanh, stay "
            "of one size too. The additive score is vᵀ tanh(W_q q + W_k k) with a learned vector v; note 001 has the "
            "query in v's place.",
            f"d_k = 1024 时，未缩放点积的 softmax 只传回缩放点积 {lost:.0%} 的梯度（判据：低于 50%），并把 "
            f"{float(found[1, -1, :, 1].mean()):.0%} 的权重给了第一名。缩放后，梯度在所有 d_k 上的变化不超过 "
            f"{1 - kept:.0%}（容许 50%）；加性得分受 tanh 约束，大小也稳定。加性得分应为 vᵀ tanh(W_q q + W_k k)，其中 v 是"
            "学到的向量；笔记 001 在 v 的位置写了查询。",
        ),
        tables=(
            Table(
                Words(
                    f"{num_queries} queries, {num_keys} keys, mean of {len(seeds)} seeds",
                    f"{num_queries} 个查询，{num_keys} 个键，{len(seeds)} 个种子的均值",
                ),
                (
                    Words("score", "得分"),
                    Words("d_k", "d_k"),
                    Words("standard deviation", "标准差"),
                    Words("largest weight", "最大权重"),
                    Words("gradient's norm", "梯度范数"),
                ),
                tuple(rows),
            ),
        ),
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


def _line(name: Words, sizes: tuple[int, ...], values: Float[Tensor, "sizes seeds"]) -> Series:
    means, low, high = values.mean(1).tolist(), values.amin(1).tolist(), values.amax(1).tolist()
    return Series(name, y=tuple(means), x=tuple(map(float, sizes)), low=tuple(low), high=tuple(high))
