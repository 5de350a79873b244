"""What softmax does to scores, and why scores are divided by √d_k (section 3.2.1)."""

import math
from itertools import pairwise

import torch
from jaxtyping import Float
from torch import Tensor

from regard.lab.charts import number
from regard.lab.experiment import Setting
from regard.lab.finding import BarChart, Finding, LineChart, Series, Table, Words
from regard.model.attention import inspected_attention

NOTE_004 = {1: 0.5761168847658291, 10: 0.9999092083843412, 100: 1.0}  # a: softmax([a, a, 2a])₃, as the note prints it


def attended(scores: Float[Tensor, " S"]) -> Float[Tensor, " S"]:
    """The weights that attention gives to keys with these scores: queries of width 1 are scaled by 1, and unit vectors as
    values give the weights back."""
    q = torch.ones(1, 1, 1, 1, dtype=scores.dtype)
    output, _ = inspected_attention(q, scores[None, None, :, None], torch.eye(len(scores), dtype=scores.dtype)[None, None])
    return output[0, 0, 0]


def jacobian(scores: Float[Tensor, " S"]) -> Float[Tensor, "S S"]:
    """∂weights/∂scores, by differentiating attention itself."""
    found = torch.autograd.functional.jacobian(attended, scores)
    assert isinstance(found, Tensor)
    return found


def by_hand(_: Setting) -> Finding:
    scores = (3.0, 1.0, -3.0)
    weights = attended(torch.tensor(scores, dtype=torch.float64)).tolist()
    exponentials = [math.exp(score) for score in scores]
    expected = [one / sum(exponentials) for one in exponentials]
    error = max(abs(a - b) for a, b in zip(weights, expected, strict=True))
    holds = error < 1e-12 and abs(sum(weights) - 1) < 1e-12 and max(weights) == weights[0]
    listed = ", ".join(f"{weight:.4f}" for weight in weights)
    rows = [
        (number(score), exponential, weight)
        for score, exponential, weight in zip(scores, exponentials, weights, strict=True)
    ]
    return Finding(
        name="softmax-by-hand",
        claims=("M4",),
        title=Words("softmax(3, 1, −3) by hand", "手算 softmax(3, 1, −3)"),
        claim=Words(
            "Note 002: softmax turns the outputs 3, 1, −3 into numbers between 0 and 1 that sum to 1; the largest output "
            "gets the largest probability.",
            "笔记 002：softmax 把输出 3、1、−3 映射为 (0, 1) 之间的值，累和为 1；最大的输出得到最大的概率。",
        ),
        verdict="held" if holds else "did not hold",
        outcome=Words(
            f"The weights are {listed} and sum to {sum(weights):.12g}. They differ from e^z / Σ e^z, computed without "
            f"torch, by {error:.1g} (allowed: 1e-12).",
            f"权重为 {listed}，和为 {sum(weights):.12g}。与不用 torch 计算的 e^z / Σ e^z 相差 {error:.1g}（容许 1e-12）。",
        ),
        tables=(
            Table(
                Words("Step by step", "逐步计算"),
                (Words("z", "z"), Words("e^z", "e^z"), Words("softmax", "softmax")),
                tuple(rows),
            ),
        ),
        charts=(
            BarChart(
                Words("Three scores as probabilities", "三个得分变成概率"),
                Words("probability", "概率"),
                tuple(Words(f"z = {number(score)}", f"z = {number(score)}") for score in scores),
                (Series(Words("softmax", "softmax"), y=tuple(weights)),),
            ),
        ),
    )


def saturation(_: Setting) -> Finding:
    def third(a: float) -> float:
        return float(attended(torch.tensor([a, a, 2 * a], dtype=torch.float64))[2])

    found = {a: third(float(a)) for a in NOTE_004}
    error = max(abs(found[a] - NOTE_004[a]) for a in NOTE_004)
    places = [number / 4 for number in range(401)]
    full = next(a for a in places if third(a) == 1.0)
    return Finding(
        name="saturation",
        claims=("M17",),
        title=Words("Large scores saturate softmax", "得分一大，softmax 就饱和"),
        claim=Words(
            "Note 004: of x = [a, a, 2a], softmax gives the third 0.5761168847658291 for a = 1, 0.9999092083843412 for a "
            "= 10 and 1.0 for a = 100: when scores are large, nearly everything goes to the largest.",
            "笔记 004：对 x = [a, a, 2a]，softmax 的第三个分量在 a = 1 时为 0.5761168847658291，a = 10 时为 "
            "0.9999092083843412，a = 100 时为 1.0：输入的数量级较大时，几乎全部概率都分给了最大的分量。",
        ),
        verdict="held" if error < 1e-12 else "did not hold",
        outcome=Words(
            f"In float64, the note's three numbers come out to within {error:.1g} (allowed: 1e-12; its last digits are "
            f"rounding). From a = {full:g} on, float64 cannot tell the result from 1.",
            f"在 float64 下，笔记的三个数都能得到，误差不超过 {error:.1g}（容许 1e-12；最后几位是舍入）。从 a = {full:g} "
            "起，float64 已分不清结果与 1。",
        ),
        tables=(
            Table(
                Words("The note's numbers", "笔记中的数"),
                (Words("a", "a"), Words("note 004", "笔记 004"), Words("found", "实测")),
                tuple((a, repr(NOTE_004[a]), repr(found[a])) for a in NOTE_004),
            ),
        ),
        charts=(
            LineChart(
                Words("The third of softmax([a, a, 2a])", "softmax([a, a, 2a]) 的第三个分量"),
                Words("a", "a"),
                Words("probability", "概率"),
                (Series(Words("third", "第三个"), y=tuple(third(a) for a in places), x=tuple(places)),),
            ),
        ),
    )


def gradient(_: Setting) -> Finding:
    """Note 004 writes −y_i·y_i off the diagonal. It must be −y_i·y_j, which is tested here, and the note's beside it."""

    def at(a: float) -> Tensor:
        return torch.tensor([a, a, 2 * a], dtype=torch.float64)

    error = note_error = 0.0
    for a in (0.0, 0.5, 1.0, 3.0, 10.0):
        y, found = attended(at(a)), jacobian(at(a))
        error = max(error, float((found - (y.diag() - y[:, None] * y[None, :])).abs().max()))
        note = -(y**2)[:, None].expand(3, 3) + y.diag()
        note_error = max(note_error, float((found - note).abs().max()))
    places = [number / 2 for number in range(201)]
    norms = [float(jacobian(at(a)).norm()) for a in places]
    falls = all(later < earlier for earlier, later in pairwise(norms[4:]))
    at_10, at_100 = norms[20], norms[200]
    holds = error < 1e-12 and falls and at_10 < 1e-3
    return Finding(
        name="softmax-gradient",
        claims=("M18",),
        title=Words("Saturated softmax passes no gradient", "饱和的 softmax 不传梯度"),
        claim=Words(
            "Note 004: ∂softmax/∂x = diag(y) − yᵀy, and as scores grow all of it tends to 0, so that parameters hardly "
            "change.",
            "笔记 004：∂softmax/∂x = diag(y) − yᵀy；得分变大时所有梯度都趋于 0，参数几乎无法更新。",
        ),
        verdict="held" if holds else "did not hold",
        outcome=Words(
            f"Differentiating attention itself gives diag(y) − yᵀy to within {error:.1g} (allowed: 1e-12). Its norm for "
            f"[a, a, 2a] is {norms[0]:.3f} at a = 0, {at_10:.1g} at a = 10 (allowed: 1e-3) and {at_100:.1g} at a = 100. "
            f"Off the diagonal it is −y_i·y_j; the note's −y_i·y_i is off by up to {note_error:.2f}. So dividing by √d_k "
            "guards against vanishing gradients, not, as note 003 has it, exploding ones.",
            f"直接对注意力求导得到 diag(y) − yᵀy，误差不超过 {error:.1g}（容许 1e-12）。对 [a, a, 2a]，其范数在 a = 0 时为 "
            f"{norms[0]:.3f}，a = 10 时为 {at_10:.1g}（容许 1e-3），a = 100 时为 {at_100:.1g}。非对角元应为 −y_i·y_j；笔记"
            f"写的 −y_i·y_i 最多差 {note_error:.2f}。所以除以 √d_k 防的是梯度消失，而不是笔记 003 所说的梯度爆炸。",
        ),
        charts=(
            LineChart(
                Words("How much of a gradient softmax passes on", "softmax 传回多少梯度"),
                Words("a, in scores [a, a, 2a]", "a（得分为 [a, a, 2a]）"),
                Words("norm of ∂softmax/∂x", "∂softmax/∂x 的范数"),
                (Series(Words("Frobenius norm", "Frobenius 范数"), y=tuple(norms), x=tuple(places)),),
                log_y=True,
            ),
        ),
    )


def score_variances(d_k: int, seeds: tuple[int, ...], num_pairs: int) -> tuple[Tensor, Tensor, float]:
    """Of q·k and of q·k/√d_k, for each seed; and how far the mean is from 0, in standard deviations, at most."""
    variances: tuple[list[float], list[float]] = ([], [])
    mean = 0.0
    for seed in seeds:
        q, k = torch.randn(2, num_pairs, 1, 1, d_k, generator=torch.Generator().manual_seed(seed))
        for scale, of_seeds in zip((1.0, None), variances, strict=True):
            scores = inspected_attention(q, k, k, scale=scale)[1].scores.double()
            of_seeds.append(float(scores.var()))
        mean = max(mean, abs(float(scores.mean())))
    return torch.tensor(variances[0]), torch.tensor(variances[1]), mean


def variance(setting: Setting) -> Finding:
    sizes, num_pairs, seeds = (1, 4, 16, 64, 256, 1024), 20_000, setting.seeds(5)
    found = [score_variances(d_k, seeds, num_pairs) for d_k in sizes]
    plain, scaled, largest_mean = [one[0] for one in found], [one[1] for one in found], max(one[2] for one in found)
    off = max(abs(float(one.mean()) / d_k - 1) for one, d_k in zip(plain, sizes, strict=True))
    off_scaled = max(abs(float(one.mean()) - 1) for one in scaled)
    holds = max(off, off_scaled) < 0.05 and largest_mean < 0.05
    rows = [
        (d_k, float(a.mean()), float(a.std()), float(b.mean()), float(b.std()))
        for d_k, a, b in zip(sizes, plain, scaled, strict=True)
    ]
    return Finding(
        name="score-variance",
        claims=("M16",),
        title=Words("The variance of q·k is d_k", "q·k 的方差是 d_k"),
        claim=Words(
            "Notes 002 and 004: if the components of q and k are independent with mean 0 and variance 1, q·k has mean 0 "
            "and variance d_k; divided by √d_k, variance 1.",
            "笔记 002、004：若 q 与 k 的分量相互独立、均值为 0、方差为 1，则 q·k 的均值为 0、方差为 d_k；除以 √d_k 后方差"
            "为 1。",
        ),
        verdict="held" if holds else "did not hold",
        outcome=Words(
            f"Over {num_pairs:,} pairs and {len(seeds)} seeds, the mean variance is d_k to within {off:.1%}, and 1 to "
            f"within {off_scaled:.1%} with the factor (allowed: 5%). The mean is 0 to within {largest_mean:.3f} standard "
            "deviations (allowed: 0.05).",
            f"{num_pairs:,} 对向量、{len(seeds)} 个种子：方差的均值与 d_k 相差不超过 {off:.1%}；除以 √d_k 后与 1 相差不超过"
            f" {off_scaled:.1%}（容许 5%）。均值与 0 相差不超过 {largest_mean:.3f} 个标准差（容许 0.05）。",
        ),
        tables=(
            Table(
                Words("Variance of the scores, mean ± standard deviation over seeds", "得分的方差，各种子的均值 ± 标准差"),
                (
                    Words("d_k", "d_k"),
                    Words("q·k", "q·k"),
                    Words("±", "±"),
                    Words("q·k / √d_k", "q·k / √d_k"),
                    Words("±", "±"),
                ),
                tuple(rows),
            ),
        ),
        charts=(
            LineChart(
                Words("Variance of the scores against d_k", "得分的方差与 d_k"),
                Words("d_k", "d_k"),
                Words("variance", "方差"),
                (_spread(Words("q·k", "q·k"), sizes, plain), _spread(Words("q·k / √d_k", "q·k / √d_k"), sizes, scaled)),
                log_x=True,
                log_y=True,
            ),
        ),
        seeds=seeds,
    )


def _spread(name: Words, sizes: tuple[int, ...], of_sizes: list[Tensor]) -> Series:
    """The mean, from the smallest to the largest of the seeds."""
    return Series(
        name,
        y=tuple(float(one.mean()) for one in of_sizes),
        x=tuple(map(float, sizes)),
        low=tuple(float(one.min()) for one in of_sizes),
        high=tuple(float(one.max()) for one in of_sizes),
    )
