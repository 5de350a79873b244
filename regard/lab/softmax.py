"""Shows what softmax does to scores, and why scores are divided by √d_k (section 3.2.1)."""

import math
from itertools import pairwise

import torch
from jaxtyping import Float
from torch import Tensor

from regard.lab.experiment import Setting
from regard.lab.result import BarData, LineData, Result, SeriesData, TableData, Term
from regard.model.attention import inspected_attention

NOTE_004 = {1: 0.5761168847658291, 10: 0.9999092083843412, 100: 1.0}  # a: softmax([a, a, 2a])₃, as the note prints it


def attended(scores: Float[Tensor, " S"]) -> Float[Tensor, " S"]:
    """Return the weights that attention gives to keys with these scores, by taking unit vectors as values."""
    q = torch.ones(1, 1, 1, 1, dtype=scores.dtype)
    output, _ = inspected_attention(q, scores[None, None, :, None], torch.eye(len(scores), dtype=scores.dtype)[None, None])
    return output[0, 0, 0]


def jacobian(scores: Float[Tensor, " S"]) -> Float[Tensor, "S S"]:
    """Return ∂weights/∂scores by automatic differentiation of attention."""
    found = torch.autograd.functional.jacobian(attended, scores)
    assert isinstance(found, Tensor)
    return found


def by_hand(_: Setting) -> Result:
    scores = (3.0, 1.0, -3.0)
    weights = attended(torch.tensor(scores, dtype=torch.float64)).tolist()
    exponentials = [math.exp(score) for score in scores]
    expected = [one / sum(exponentials) for one in exponentials]
    error = max(abs(a - b) for a, b in zip(weights, expected, strict=True))
    holds = error < 1e-12 and abs(sum(weights) - 1) < 1e-12 and max(weights) == weights[0]
    labels = [f"z = {score:g}".replace("-", "−") for score in scores]
    return Result(
        "held" if holds else "did not hold",
        {"weights": weights, "sum": sum(weights), "error": error},
        tables={"steps": TableData(list(zip(scores, exponentials, weights, strict=True)))},
        charts={"weights": BarData(labels, [SeriesData("softmax", weights)])},
    )


def third(a: float) -> float:
    return float(attended(torch.tensor([a, a, 2 * a], dtype=torch.float64))[2])


def saturation(_: Setting) -> Result:
    found = {a: third(float(a)) for a in NOTE_004}
    error = max(abs(found[a] - NOTE_004[a]) for a in NOTE_004)
    places = [number / 4 for number in range(401)]
    probabilities = list(map(third, places))
    full = next((a for a, probability in zip(places, probabilities, strict=True) if probability == 1.0), math.inf)
    return Result(
        "held" if error < 1e-12 else "did not hold",
        {"error": error, "full": full},
        tables={"noted": TableData([(a, repr(NOTE_004[a]), repr(found[a])) for a in NOTE_004])},
        charts={"third": LineData([SeriesData(Term("third"), probabilities, places)])},
    )


def gradient(_: Setting) -> Result:
    """Test diag(y) − yyᵀ, and measure the error of note 004, which has −y_i·y_i in place of −y_i·y_j."""

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
    return Result(
        "held" if error < 1e-12 and falls and at_10 < 1e-3 else "did not hold",
        {"error": error, "note_error": note_error, "at_0": norms[0], "at_10": at_10, "at_100": at_100},
        charts={"norm": LineData([SeriesData(Term("norm"), norms, places)], log_y=True)},
    )


def score_variances(d_k: int, seeds: tuple[int, ...], num_pairs: int) -> tuple[Tensor, Tensor, float]:
    """Return the variances of q·k and of q·k/√d_k for each seed, and the largest absolute mean of q·k/√d_k."""
    variances: tuple[list[float], list[float]] = ([], [])
    mean = 0.0
    for seed in seeds:
        q, k = torch.randn(2, num_pairs, 1, 1, d_k, generator=torch.Generator().manual_seed(seed))
        for scale, of_seeds in zip((1.0, None), variances, strict=True):
            scores = inspected_attention(q, k, k, scale=scale)[1].scores.double()
            of_seeds.append(float(scores.var()))
        mean = max(mean, abs(float(scores.mean())))
    return torch.tensor(variances[0]), torch.tensor(variances[1]), mean


def variance(setting: Setting) -> Result:
    sizes, num_pairs, seeds = (1, 4, 16, 64, 256, 1024), 20_000, setting.seeds(5)
    found = [score_variances(d_k, seeds, num_pairs) for d_k in sizes]
    plain, scaled, largest_mean = [one[0] for one in found], [one[1] for one in found], max(one[2] for one in found)
    off = max(abs(float(one.mean()) / d_k - 1) for one, d_k in zip(plain, sizes, strict=True))
    off_scaled = max(abs(float(one.mean()) - 1) for one in scaled)
    rows = [
        (d_k, float(a.mean()), float(a.std()), float(b.mean()), float(b.std()))
        for d_k, a, b in zip(sizes, plain, scaled, strict=True)
    ]
    curves = [
        SeriesData.over_seeds(name, torch.stack(of_sizes).tolist(), sizes)
        for name, of_sizes in (("q·k", plain), ("q·k / √d_k", scaled))
    ]
    return Result(
        "held" if max(off, off_scaled, largest_mean) < 0.05 else "did not hold",
        {"pairs": num_pairs, "seeds": len(seeds), "off": off, "off_scaled": off_scaled, "mean": largest_mean},
        tables={"variance": TableData(rows)},
        charts={"variance": LineData(curves, log_x=True, log_y=True)},
        seeds=seeds,
    )
