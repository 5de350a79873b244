"""Compares LayerNorm (section 3.1) with BatchNorm under padding and in batches."""

from collections.abc import Callable
from statistics import fmean

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.lab.experiment import Setting
from regard.lab.result import LineData, Result, SeriesData, TableData, Term
from regard.model.layers import Residual

WIDTH, LENGTH = 32, 8
Normalisation = Callable[[Float[Tensor, "B T D"]], Float[Tensor, "B T D"]]


def layer_norm(x: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
    """Apply our own LayerNorm, over the features of each position."""
    residual = Residual(WIDTH, norm="post", dropout=0.0, stack="encoder").double()
    normed: Tensor = residual.norm(x)
    return normed


def batch_norm(x: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
    """Normalise each feature over all positions of all sentences, as BatchNorm does in training."""
    normed: Tensor = nn.BatchNorm1d(WIDTH, dtype=x.dtype)(x.flatten(0, 1)).view_as(x)
    return normed


def sample_norm(x: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
    """Normalise over positions and features of a sentence together, which is one reading of note 002."""
    centred = x - x.mean((1, 2), keepdim=True)
    return centred / (x.var((1, 2), correction=0, keepdim=True) + 1e-5).sqrt()


KINDS: tuple[tuple[str, Normalisation], ...] = (
    ("layer-norm", layer_norm),
    ("batch-norm", batch_norm),
    ("sample-norm", sample_norm),
)


@torch.no_grad()
def padding_change(norm: Normalisation, seed: int, padding: int) -> float:
    """Return the mean change of a sentence's vectors when it is padded with zero vectors."""
    x, _ = _sentences(seed)
    padded = torch.cat([x, x.new_zeros(1, padding, WIDTH)], dim=1)
    return float((norm(padded)[:, :LENGTH] - norm(x)).abs().mean())


@torch.no_grad()
def neighbour_change(norm: Normalisation, seed: int) -> float:
    """Return the mean change of a sentence's vectors when other sentences are in the batch."""
    x, others = _sentences(seed)
    return float((norm(torch.cat([x, others]))[:1] - norm(x)).abs().mean())


def _sentences(seed: int) -> tuple[Float[Tensor, "1 T D"], Float[Tensor, "B T D"]]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(4, LENGTH, WIDTH, generator=generator, dtype=torch.float64) + 0.5
    return x[:1], x[1:] * 2


def neighbours(setting: Setting) -> Result:
    seeds, paddings = setting.seeds(5), (0, 2, 4, 8, 16, 32)
    filled = [[[padding_change(norm, seed, padding) for seed in seeds] for padding in paddings] for _, norm in KINDS]
    joined = [[neighbour_change(norm, seed) for seed in seeds] for _, norm in KINDS]
    ours = max(*joined[0], *(change for of_seeds in filled[0] for change in of_seeds))
    batch = min(*joined[1], *filled[1][-1])
    names = [name for name, _ in KINDS]
    padded = {name: fmean(of_kind[paddings.index(8)]) for name, of_kind in zip(names, filled, strict=True)}
    beside = {name: fmean(of_kind) for name, of_kind in zip(names, joined, strict=True)}
    curves = [SeriesData.over_seeds(Term(name), filled[n], paddings) for n, name in enumerate(names)]
    return Result(
        "held" if ours < 1e-12 and batch > 0.01 else "did not hold",
        {"ours": ours, "padded": padded, "beside": beside, "length": LENGTH, "seeds": len(seeds)},
        tables={"changes": TableData([(Term(name), padded[name], beside[name]) for name in names])},
        charts={"padding": LineData(curves)},
        seeds=seeds,
    )
