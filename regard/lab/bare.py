"""Examines attention by itself: softmax(XXᵀ)X of note 002, attention without queries, and the rank of its weights."""

import torch
from jaxtyping import Float
from torch import Tensor

from regard.lab.experiment import Setting
from regard.lab.result import HeatData, LineData, Result, SeriesData, TableData, Term
from regard.model.attention import inspected_attention

CHARACTERS = ("早", "上", "好")
# The note gives its vectors in a picture only. These are small whole numbers whose scores give the weights that it names.
VECTORS = ((2.0, 1.0, 1.0), (1.0, 2.0, 2.0), (1.0, 1.0, 2.0))
NOTED = (0.4, 0.4, 0.2)


def bare_attention(x: Float[Tensor, "T D"]) -> tuple[Float[Tensor, "T D"], Float[Tensor, "T T"], Float[Tensor, "T T"]]:
    """Return softmax(XXᵀ)X, its weights, and XXᵀ."""
    output, seen = inspected_attention(x[None, None], x[None, None], x[None, None], scale=1.0)
    return output[0, 0], seen.weights[0, 0], seen.scores[0, 0]


def good_morning(_: Setting) -> Result:
    x = torch.tensor(VECTORS, dtype=torch.float64)
    output, weights, scores = bare_attention(x)
    first = weights[0].tolist()
    by_hand = [sum(first[j] * VECTORS[j][n] for j in range(3)) for n in range(3)]
    error = max(abs(a - b) for a, b in zip(output[0].tolist(), by_hand, strict=True))
    sums = float((weights.sum(1) - 1).abs().max())
    holds = tuple(round(weight, 1) for weight in first) == NOTED and sums < 1e-12 and error < 1e-12
    rows = [
        (CHARACTERS[n], _listed(x[n], 0), _listed(scores[n], 0), _listed(weights[n], 2), _listed(output[n], 2))
        for n in range(3)
    ]
    rounded = [[round(value, 4) for value in row] for row in weights.tolist()]
    return Result(
        "held" if holds else "did not hold",
        {"weights": first, "sums": sums, "error": error},
        tables={"steps": TableData(rows)},
        charts={"weights": HeatData(rounded, CHARACTERS, CHARACTERS)},
    )


def _listed(numbers: Float[Tensor, " N"], digits: int) -> str:
    return ", ".join(f"{one:.{digits}f}" for one in numbers.tolist())


def no_queries(setting: Setting) -> Result:
    seeds, length, width = setting.seeds(5), 12, 16
    distances: list[tuple[int, float, float]] = []  # seed, distance from the mean of all values, and from the own value
    between = 0.0
    for seed in seeds:
        values = torch.randn(1, 1, length, width, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        zeros = torch.zeros_like(values)
        output = inspected_attention(zeros, zeros, values)[0]
        from_mean = float((output - values.mean(2, keepdim=True)).norm() / values.norm())
        distances.append((seed, from_mean, float((output - values).norm() / values.norm())))
        between = max(between, float((output - output[:, :, :1]).abs().max()))
    from_mean, from_values = max(one[1] for one in distances), min(one[2] for one in distances)
    return Result(
        "held" if from_values < 1e-9 else "did not hold",
        {"from_mean": from_mean, "from_values": from_values, "between": between, "seeds": len(seeds)},
        tables={"distances": TableData(distances)},
        seeds=seeds,
    )


def ranks_of(length: int, width: int, seed: int) -> tuple[int, int]:
    """Return the rank of random scores and that of their weights."""
    q, k = torch.randn(2, 1, 1, length, width, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    seen = inspected_attention(q, k, k)[1]
    return int(torch.linalg.matrix_rank(seen.scores[0, 0])), int(torch.linalg.matrix_rank(seen.weights[0, 0]))


def rank(setting: Setting) -> Result:
    length, widths, seeds = 64, (1, 2, 4, 8, 16, 32), setting.seeds(5)
    found = [[ranks_of(length, width, seed) for seed in seeds] for width in widths]
    of_scores, of_weights = ([[ranks[which] for ranks in of_width] for of_width in found] for which in (0, 1))
    bounded = all(max(ranks) <= width for ranks, width in zip(of_weights, widths, strict=True))
    above = sum(rank > width for ranks, width in zip(of_scores, widths, strict=True) for rank in ranks)
    at_4 = of_weights[widths.index(4)]
    spread = "–".join(map(str, sorted({min(at_4), max(at_4)})))
    curves = [
        SeriesData.over_seeds(Term(name), ranks, widths) for name, ranks in (("scores", of_scores), ("weights", of_weights))
    ]
    return Result(
        "held" if bounded else "did not hold",
        {"above": above, "cases": len(widths) * len(seeds), "spread": spread, "length": length, "seeds": len(seeds)},
        tables={"ranks": TableData(list(zip(widths, *(one.y for one in curves), strict=True)))},
        charts={"ranks": LineData(curves, log_x=True, log_y=True)},
        seeds=seeds,
    )
