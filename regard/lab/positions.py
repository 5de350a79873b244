"""Section 3.5: what is in sinusoidal positions."""

from itertools import pairwise

import torch
from jaxtyping import Float
from torch import Tensor

from regard.lab.experiment import Setting
from regard.lab.finding import Finding, HeatMap, LineChart, Series, Table, Words
from regard.model.embedding import sinusoids

NOTED = (0.9093, -0.4161, 0.1987, 0.9801, 0.0200, 0.9998, 0.0020, 0.999998)  # d = 8, position 2, as note 003 prints it


def table(_: Setting) -> Finding:
    found = sinusoids(3, 8)[2].tolist()
    # Each printed number stands for all that round to it; the last has two digits more.
    allowed = [0.5e-4] * 7 + [0.5e-6]
    agree = sum(abs(a - b) <= most for a, b, most in zip(found, NOTED, allowed, strict=True))
    error = max(abs(a - b) for a, b in zip(found, NOTED, strict=True))
    formulas = [f"{'sin' if n % 2 == 0 else 'cos'}(2 / 10000^({n // 2 * 2}/8))" for n in range(8)]
    return Finding(
        name="positions",
        claims=("M12",),
        title=Words("The table of sinusoids", "正弦位置编码表"),
        claim=Words(
            "Notes 000, 001 and 003: PE(pos, 2i) = sin(pos / 10000^(2i/d)) and PE(pos, 2i+1) = cos of the same; for d = "
            "8, position 2 is [0.9093, −0.4161, 0.1987, 0.9801, 0.0200, 0.9998, 0.0020, 0.999998].",
            "笔记 000、001、003：PE(pos, 2i) = sin(pos / 10000^(2i/d))，PE(pos, 2i+1) 为其余弦；d = 8 时位置 2 的编码为 "
            "[0.9093, −0.4161, 0.1987, 0.9801, 0.0200, 0.9998, 0.0020, 0.999998]。",
        ),
        verdict="held" if agree == len(NOTED) else "did not hold",
        outcome=Words(
            f"The model's own table agrees with {agree} of the 8 to the digits that are printed; the largest difference is "
            f"{error:.1g}. Each row of the picture is a position: the first dimensions change from one word to the next, "
            "the last ones hardly at all.",
            f"模型自己的编码表与 8 个数中的 {agree} 个在所印的位数上一致，最大相差 {error:.1g}。图中每一行是一个位置：靠前"
            "的维度逐词变化，靠后的几乎不变。",
        ),
        tables=(
            Table(
                Words("Position 2, d = 8", "位置 2，d = 8"),
                (Words("dimension", "维度"), Words("formula", "公式"), Words("note", "笔记"), Words("found", "实测")),
                tuple(
                    (
                        n,
                        formulas[n],
                        f"{NOTED[n]:.{4 if n < 7 else 6}f}".replace("-", "−"),
                        f"{found[n]:.6f}".replace("-", "−"),
                    )
                    for n in range(8)
                ),
            ),
        ),
        charts=(
            HeatMap(
                Words("50 positions, 128 dimensions", "50 个位置，128 维"),
                Words("dimension", "维度"),
                Words("position", "位置"),
                (),
                (),
                tuple(tuple(round(value, 4) for value in row) for row in sinusoids(50, 128).tolist()),
            ),
        ),
    )


def shift_maps(codes: Float[Tensor, "T D"], k: int) -> Float[Tensor, "P 2 2"]:
    """For each pair (sin, cos), the matrix that takes it k positions on, fitted by least squares to all there are."""
    pairs = codes.unflatten(1, (-1, 2)).transpose(0, 1)  # (P, T, 2)
    fitted: Tensor = torch.linalg.lstsq(pairs[:, :-k], pairs[:, k:]).solution
    return fitted


def residual(codes: Float[Tensor, "T D"], maps: Float[Tensor, "P 2 2"], k: int) -> float:
    """By how much the maps miss, relative to the size of what they should give."""
    pairs = codes.unflatten(1, (-1, 2)).transpose(0, 1)
    missed = pairs[:, :-k] @ maps - pairs[:, k:]
    return float(missed.norm() / pairs[:, k:].norm())


def rotations(k: int, d_model: int) -> Float[Tensor, "P 2 2"]:
    """What the addition theorems say: (sin, cos) of p + k is that of p, turned by k · 10000^(−2i/d)."""
    angles = k * 10000.0 ** (-torch.arange(0, d_model, 2, dtype=torch.float64) / d_model)
    turned: Tensor = torch.stack([angles.cos(), -angles.sin(), angles.sin(), angles.cos()], dim=-1).unflatten(-1, (2, 2))
    return turned


def shift(setting: Setting) -> Finding:
    d_model, num_positions, distances = 128, 500, tuple(range(1, 33))
    codes = sinusoids(2 * num_positions, d_model)
    near, far = codes[:num_positions], codes[num_positions:]
    drawn = torch.randn(
        2 * num_positions, d_model, generator=torch.Generator().manual_seed(setting.seed), dtype=torch.float64
    )
    maps = {k: shift_maps(near, k) for k in distances}
    unseen = max(residual(far, maps[k], k) for k in distances)
    apart = max(float((maps[k] - shift_maps(far, k)).abs().max()) for k in distances)
    control = min(residual(drawn[num_positions:], shift_maps(drawn[:num_positions], k), k) for k in distances)
    from_rotation = max(float((maps[k] - rotations(k, d_model)).abs().max()) for k in distances)
    holds = max(unseen, apart, from_rotation) < 1e-6 and control > 0.1
    shown = (18, 20, 24, 32)  # which do not go round within these distances
    lines = [
        Series(
            Words(f"dimensions {2 * pair} and {2 * pair + 1}", f"第 {2 * pair} 与 {2 * pair + 1} 维"),
            y=tuple(float(torch.atan2(maps[k][pair, 1, 0], maps[k][pair, 0, 0])) for k in distances),
            x=tuple(map(float, distances)),
        )
        for pair in shown
    ]
    return Finding(
        name="shift",
        claims=("M13",),
        title=Words("k positions on is a linear map of k alone", "后移 k 个位置是只取决于 k 的线性变换"),
        claim=Words(
            "Notes 001 and 002: PE(pos + k) is a linear function of PE(pos), by a map that depends on k only.",
            "笔记 001、002：PE(pos + k) 可由 PE(pos) 线性表示，变换只取决于 k。",
        ),
        verdict="held" if holds else "did not hold",
        outcome=Words(
            f"A 2 × 2 map for each pair of dimensions, fitted to positions 0–{num_positions - 1}, gives positions "
            f"{num_positions}–{2 * num_positions - 1} with a relative error of {unseen:.1g}; fitted to those instead, it "
            f"is the same map to within {apart:.1g}. It is the rotation by k · 10000^(−2i/d) to within {from_rotation:.1g} "
            f"(allowed: 1e-6, k = 1–{distances[-1]}). For a random table of the same size the error is {control:.2f} or "
            "more. The encoding is absolute, with this relative structure; note 002 calls it relative.",
            f"对每对维度在位置 0–{num_positions - 1} 上拟合一个 2 × 2 变换，用到位置 "
            f"{num_positions}–{2 * num_positions - 1} 上，相对误差为 {unseen:.1g}；改在后者上拟合，得到的是同一个变换，相差"
            f"不超过 {apart:.1g}。它就是转角为 k · 10000^(−2i/d) 的旋转，误差不超过 {from_rotation:.1g}（容许 1e-6，k = "
            f"1–{distances[-1]}）。同样大小的随机表误差不小于 {control:.2f}。这是具有相对结构的绝对位置编码；笔记 002 称之"
            "为相对位置编码。",
        ),
        charts=(
            LineChart(
                Words("Angle of the fitted rotation", "拟合出的旋转角"),
                Words("k, positions on", "后移的位置数 k"),
                Words("angle, radians", "角度（弧度）"),
                tuple(lines),
            ),
        ),
        seeds=(setting.seed,),
    )


def distance(_: Setting) -> Finding:
    reach, sizes = 128, (64, 128, 512)
    lines, uneven, rises, octaves = [], 0.0, {}, {}
    for d_model in sizes:
        codes = sinusoids(4 * reach, d_model)
        products = codes @ codes.T  # (T, T)
        offsets = list(range(-reach, reach + 1))
        of_offset = [products.diagonal(offset) for offset in offsets]
        uneven = max(uneven, *(float(one.max() - one.min()) / d_model for one in of_offset))
        means = [float(one.mean()) / (d_model / 2) for one in of_offset]
        uneven = max(uneven, *(abs(a - b) for a, b in zip(means, reversed(means), strict=True)))
        lines.append(Series(Words(f"d = {d_model}", f"d = {d_model}"), y=tuple(means), x=tuple(map(float, offsets))))
        ahead = means[reach:]  # k = 0, 1, …
        rises[d_model] = sum(later > earlier for earlier, later in pairwise(ahead))
        octaves[d_model] = [sum(ahead[2**n : 2 ** (n + 1)]) / 2**n for n in range(7)]
    falls = [later < earlier for means in octaves.values() for earlier, later in pairwise(means)]
    few, many = min(rises.values()), max(rises.values())
    rows = [(f"{2**n}–{2 ** (n + 1) - 1}" if n else "1", *(octaves[d_model][n] for d_model in sizes)) for n in range(7)]
    return Finding(
        name="distance",
        claims=("M13",),
        title=Words("The inner product of two positions tells how far apart they are", "两个位置编码的内积反映距离"),
        claim=Words(
            "Note 002: PE(p)·PE(p + k) falls as the distance k grows and so stands for it, but is the same for k and −k "
            "and cannot tell directions. (We hold it to: falls overall, with ripples.)",
            "笔记 002：PE(p)·PE(p + k) 随相对距离 k 的增大而减小，从而表征距离；但对 k 与 −k 相同，无法区分方向。（此处检"
            "验的是：总体下降，有波动。）",
        ),
        verdict="held" if all(falls) and uneven < 1e-9 else "did not hold",
        outcome=Words(
            f"The product depends on |k| only, to within {uneven:.1g} (allowed: 1e-9). Averaged over 1, 2–3, 4–7, … up to "
            f"{reach - 1}, it falls in {sum(falls)} of {len(falls)} cases (allowed: all). From one distance to the next it "
            f"need not, as the note's words would have it: of {reach} steps outwards, {few} to {many} go up.",
            f"内积只取决于 |k|，误差不超过 {uneven:.1g}（容许 1e-9）。按 1、2–3、4–7……直到 {reach - 1} 取平均，"
            f"{len(falls)} 次中有 {sum(falls)} 次下降（要求：全部）。但并非如笔记所说步步下降：向外 {reach} 步中有 {few} 至"
            f" {many} 步是上升的。",
        ),
        tables=(
            Table(
                Words("Mean inner product, as a share of that with itself", "平均内积，与自身内积之比"),
                (Words("distance", "距离"), *(Words(f"d = {d_model}", f"d = {d_model}") for d_model in sizes)),
                tuple(rows),
            ),
        ),
        charts=(
            LineChart(
                Words("PE(p)·PE(p + k), as a share of PE(p)·PE(p)", "PE(p)·PE(p + k) 与 PE(p)·PE(p) 之比"),
                Words("k", "k"),
                Words("share", "比值"),
                tuple(lines),
            ),
        ),
    )
