"""Examines sinusoidal positions (section 3.5)."""

from itertools import pairwise

import torch
from jaxtyping import Float
from torch import Tensor

from regard.lab.experiment import Setting
from regard.lab.result import HeatData, LineData, Result, SeriesData, TableData, Term
from regard.model.embedding import sinusoids

NOTED = (0.9093, -0.4161, 0.1987, 0.9801, 0.0200, 0.9998, 0.0020, 0.999998)  # d = 8, position 2, as note 003 prints it


def table(_: Setting) -> Result:
    found = sinusoids(3, 8)[2].tolist()
    rounding = [0.5e-4] * 7 + [0.5e-6]  # of the printed numbers
    agree = sum(abs(a - b) <= most for a, b, most in zip(found, NOTED, rounding, strict=True))
    error = max(abs(a - b) for a, b in zip(found, NOTED, strict=True))
    formulas = [f"{'sin' if n % 2 == 0 else 'cos'}(2 / 10000^({n // 2 * 2}/8))" for n in range(8)]
    rows = [
        (n, formulas[n], f"{NOTED[n]:.{4 if n < 7 else 6}f}".replace("-", "−"), f"{found[n]:.6f}".replace("-", "−"))
        for n in range(8)
    ]
    return Result(
        "held" if agree == len(NOTED) else "did not hold",
        {"agree": agree, "error": error},
        tables={"noted": TableData(rows)},
        charts={"table": HeatData([[round(value, 4) for value in row] for row in sinusoids(50, 128).tolist()])},
    )


def shift_maps(codes: Float[Tensor, "T D"], k: int) -> Float[Tensor, "P 2 2"]:
    """Fit, for each pair (sin, cos), the matrix that maps position p to p + k, by least squares over all positions."""
    pairs = codes.unflatten(1, (-1, 2)).transpose(0, 1)  # (P, T, 2)
    fitted: Tensor = torch.linalg.lstsq(pairs[:, :-k], pairs[:, k:]).solution
    return fitted


def residual(codes: Float[Tensor, "T D"], maps: Float[Tensor, "P 2 2"], k: int) -> float:
    """Return the relative error of the maps."""
    pairs = codes.unflatten(1, (-1, 2)).transpose(0, 1)
    missed = pairs[:, :-k] @ maps - pairs[:, k:]
    return float(missed.norm() / pairs[:, k:].norm())


def rotations(k: int, d_model: int) -> Float[Tensor, "P 2 2"]:
    """Return the maps by the addition theorems: rotations by k · 10000^(−2i/d)."""
    angles = k * 10000.0 ** (-torch.arange(0, d_model, 2, dtype=torch.float64) / d_model)
    turned: Tensor = torch.stack([angles.cos(), -angles.sin(), angles.sin(), angles.cos()], dim=-1).unflatten(-1, (2, 2))
    return turned


def shift(setting: Setting) -> Result:
    d_model, num_positions, distances = 128, 500, tuple(range(1, 33))
    codes = sinusoids(2 * num_positions, d_model)
    near, far = codes[:num_positions], codes[num_positions:]
    drawn = torch.randn(codes.shape, generator=torch.Generator().manual_seed(setting.seed), dtype=torch.float64)
    maps = {k: shift_maps(near, k) for k in distances}
    unseen = max(residual(far, maps[k], k) for k in distances)
    apart = max(float((maps[k] - shift_maps(far, k)).abs().max()) for k in distances)
    control = min(residual(drawn[num_positions:], shift_maps(drawn[:num_positions], k), k) for k in distances)
    from_rotation = max(float((maps[k] - rotations(k, d_model)).abs().max()) for k in distances)
    shown = (18, 20, 24, 32)  # pairs whose angles stay below a full turn
    angles = [
        SeriesData(
            Term("dimensions", {"first": 2 * pair, "second": 2 * pair + 1}),
            [float(torch.atan2(maps[k][pair, 1, 0], maps[k][pair, 0, 0])) for k in distances],
            distances,
        )
        for pair in shown
    ]
    return Result(
        "held" if max(unseen, apart, from_rotation) < 1e-6 and control > 0.1 else "did not hold",
        {
            "last_near": num_positions - 1,
            "first_far": num_positions,
            "last_far": 2 * num_positions - 1,
            "unseen": unseen,
            "apart": apart,
            "from_rotation": from_rotation,
            "furthest": distances[-1],
            "control": control,
        },
        charts={"angle": LineData(angles)},
        seeds=(setting.seed,),
    )


def distance(_: Setting) -> Result:
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
        lines.append(SeriesData(f"d = {d_model}", means, offsets))
        ahead = means[reach:]  # k = 0, 1, …
        rises[d_model] = sum(later > earlier for earlier, later in pairwise(ahead))
        octaves[d_model] = [sum(ahead[2**n : 2 ** (n + 1)]) / 2**n for n in range(7)]
    falls = [later < earlier for means in octaves.values() for earlier, later in pairwise(means)]
    rows = [(f"{2**n}–{2 ** (n + 1) - 1}" if n else "1", *(octaves[d_model][n] for d_model in sizes)) for n in range(7)]
    return Result(
        "held" if all(falls) and uneven < 1e-9 else "did not hold",
        {
            "uneven": uneven,
            "furthest": reach - 1,
            "falls": sum(falls),
            "cases": len(falls),
            "reach": reach,
            "few": min(rises.values()),
            "many": max(rises.values()),
        },
        tables={"octaves": TableData(rows, columns=[line.name for line in lines])},
        charts={"products": LineData(lines)},
    )
