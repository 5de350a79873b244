"""Muon (Jordan et al. 2024): update the matrices of linear maps by the orthogonal matrix nearest to their gradients' mean.

A mean of gradients has few large singular values; those of its nearest orthogonal matrix are all 1, so that a map also
learns what is rare. All other parameters (embeddings and the output, biases, norms, an RNN's gates) are left to Adam.
Updates are scaled to the size of Adam's (Liu et al. 2025), so that the learning rate is the same.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.model.initialisation import num_stacked
from regard.model.onednn import one_dnn_multiplies

MOMENTUM = 0.95
ITERATIONS = 5
# x ↦ ax + bx³ + cx⁵ brings singular values from (0.002, 1] to between 0.68 and 1.21 in so many iterations.
COEFFICIENTS = (3.4445, -4.7750, 2.0315)
MEAN = "mean"  # the name of a gradient's running mean in a checkpoint
STEP = 0.2  # the root mean square of an update, over the learning rate


def maps_of(model: nn.Module) -> dict[str, tuple[int, int]]:
    """The parameters that hold linear maps, one or several stacked, and the shape of each map."""
    found = {}
    for name, weight in model.named_parameters():
        owner = model.get_submodule(name.rpartition(".")[0])
        if isinstance(owner, nn.Linear) and weight.ndim == 2 and name != "lm_head.weight":
            found[name] = (weight.shape[0] // num_stacked(name, weight), weight.shape[1])
    return found


def orthogonal(x: Float[Tensor, "N O I"], dtype: torch.dtype) -> Float[Tensor, "N O I"]:
    """Approximate UVᵀ of each matrix UΣVᵀ by Newton–Schulz iterations in this dtype."""
    a, b, c = COEFFICIENTS
    is_tall = x.shape[1] > x.shape[2]
    y = x.mT if is_tall else x
    y = (y / y.norm(dim=(1, 2), keepdim=True).clamp_min(1e-20)).to(dtype)
    with one_dnn_multiplies():
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
    dtype: torch.dtype,
) -> None:
    """Update maps of one shape and the running means of their gradients, unless the update is `skipped`."""
    grads = torch.where(skipped > 0, means, grads)  # leaves the means unchanged
    means.lerp_(grads, 1.0 - MOMENTUM)
    step = STEP * math.sqrt(max(values.shape[1:])) * rate * (1.0 - skipped)  # the entries of an orthogonal matrix are small
    values.sub_(step * orthogonal(torch.lerp(grads, means, MOMENTUM), dtype))  # Nesterov momentum


class Muon:
    """The optimizer of a model's linear maps."""

    def __init__(self, model: nn.Module, dtype: torch.dtype) -> None:
        self._parameters = dict(model.named_parameters())
        self._shapes = maps_of(model)
        self._dtype = dtype
        self.means = {name: torch.zeros_like(self._parameters[name]) for name in self._shapes}

    @torch.no_grad()
    def step(self, learning_rate: float, skipped: Float[Tensor, ""]) -> None:
        for name, shape in self._shapes.items():
            parameter = self._parameters[name]
            if parameter.grad is not None:
                tensors = (parameter, parameter.grad, self.means[name])
                values, grads, means = (tensor.view(-1, *shape) for tensor in tensors)
                rate = values.new_full((), learning_rate)
                muon_(values, grads, means, rate=rate, skipped=skipped, dtype=self._dtype)
