"""Muon (Jordan et al. 2024): the matrices of linear maps go where their gradients' mean points, in all directions as far.

A mean of gradients says of few directions much and of most little. Its nearest orthogonal matrix says the same of all, so
that a map learns in an update what is rare, too. Everything that is no such map (embeddings and the output, biases, norms)
is left to Adam. Steps are as large as Adam's would be (Liu et al. 2025), and so is the learning rate.
"""

import math
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.model.initialisation import num_stacked

MOMENTUM = 0.95
ITERATIONS = 5
# Of x ↦ ax + bx³ + cx⁵, which brings singular values from (0, 1] near 1 in so many iterations: to between 0.7 and 1.2.
COEFFICIENTS = (3.4445, -4.7750, 2.0315)
MEAN = "mean"  # what a checkpoint calls that of a parameter's gradients
STEP = 0.2  # the root mean square of an update, over the learning rate


class Maps(NamedTuple):
    """The linear maps of one shape: how many are stacked in each of these parameters."""

    shape: tuple[int, int]
    counts: dict[str, int]


def maps_of(model: nn.Module) -> list[Maps]:
    """Those of a model, all shapes."""
    found: dict[tuple[int, int], Maps] = {}
    for name, weight in model.named_parameters():
        owner = model.get_submodule(name.rpartition(".")[0])
        if isinstance(owner, nn.Linear) and weight.ndim == 2 and name != "lm_head.weight":
            count = num_stacked(name, weight)
            shape = (weight.shape[0] // count, weight.shape[1])
            found.setdefault(shape, Maps(shape, {})).counts[name] = count
    return list(found.values())


def orthogonal(x: Float[Tensor, "N O I"]) -> Float[Tensor, "N O I"]:
    """About UVᵀ of each matrix UΣVᵀ, by Newton–Schulz iterations: matrix products alone. A GPU does them in bfloat16."""
    a, b, c = COEFFICIENTS
    is_tall = x.shape[1] > x.shape[2]
    y = x.mT if is_tall else x
    y = y / y.norm(dim=(1, 2), keepdim=True).clamp_min(1e-20)
    y = y.bfloat16() if y.device.type == "cuda" else y
    for _ in range(ITERATIONS):
        squares = y @ y.mT
        y = torch.baddbmm(y, torch.baddbmm(squares, squares, squares, beta=b, alpha=c), y, beta=a)
    return (y.mT if is_tall else y).to(x.dtype)


def muon_(
    values: Float[Tensor, "N O I"],
    grads: Float[Tensor, "N O I"],
    means: Float[Tensor, "N O I"],
    *,
    rate: Float[Tensor, ""],
    skipped: Float[Tensor, ""],
) -> None:
    """One update of all maps of one shape, and of their gradients' running means; if it is `skipped`, of neither."""
    grads = torch.where(skipped > 0, means, grads)  # which leaves them where they are
    means.lerp_(grads, 1.0 - MOMENTUM)
    step = STEP * math.sqrt(max(values.shape[1:])) * rate * (1.0 - skipped)  # an orthogonal matrix has entries this small
    values.sub_(step * orthogonal(torch.lerp(grads, means, MOMENTUM)))  # Nesterov's: as if this gradient came once more


class Muon:
    """Moves those of a model's parameters that are linear maps, all of one shape at once."""

    def __init__(self, parameters: dict[str, nn.Parameter], maps: list[Maps]) -> None:
        self._parameters = parameters
        self._maps = maps
        self.means = {name: torch.zeros_like(parameters[name]) for one in maps for name in one.counts}

    @torch.no_grad()
    def step(self, learning_rate: float, skipped: Float[Tensor, ""]) -> None:
        for one in self._maps:
            values: list[Tensor] = [self._parameters[name] for name in one.counts]
            means = [self.means[name] for name in one.counts]
            grads = [mean if value.grad is None else value.grad for value, mean in zip(values, means, strict=True)]
            stacked = [torch.cat(parts).view(-1, *one.shape) for parts in (values, grads, means)]
            muon_(*stacked, rate=values[0].new_full((), learning_rate), skipped=skipped)
            for parts, moved in ((values, stacked[0]), (means, stacked[2])):
                for part, new in zip(parts, moved.flatten(0, 1).split([len(part) for part in parts]), strict=True):
                    part.copy_(new)
