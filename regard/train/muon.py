"""Muon (Jordan et al. 2024): the matrices of linear maps go where their gradients' mean points, in all directions as far.

A mean of gradients says of few directions much and of most little. Its nearest orthogonal matrix says the same of all, so
that a map learns in an update what is rare, too. Everything that is no such map (embeddings and the output, biases, norms,
an RNN's gates) is left to Adam. Steps are as large as Adam's would be (Liu et al. 2025), and so is the learning rate.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.model.initialisation import num_stacked
from regard.model.layers import one_dnn_multiplies

MOMENTUM = 0.95
ITERATIONS = 5
# Of x ↦ ax + bx³ + cx⁵, which in so many iterations brings singular values from (0.002, 1] to between 0.68 and 1.21.
COEFFICIENTS = (3.4445, -4.7750, 2.0315)
MEAN = "mean"  # what a checkpoint calls that of a parameter's gradients
STEP = 0.2  # the root mean square of an update, over the learning rate


def maps_of(model: nn.Module) -> dict[str, tuple[int, int]]:
    """The parameters that hold linear maps, and of what shape these are: one, or several below each other."""
    found = {}
    for name, weight in model.named_parameters():
        owner = model.get_submodule(name.rpartition(".")[0])
        if isinstance(owner, nn.Linear) and weight.ndim == 2 and name != "lm_head.weight":
            found[name] = (weight.shape[0] // num_stacked(name, weight), weight.shape[1])
    return found


def orthogonal(x: Float[Tensor, "N O I"], dtype: torch.dtype) -> Float[Tensor, "N O I"]:
    """About UVᵀ of each matrix UΣVᵀ, by Newton–Schulz iterations: matrix products alone, in an arithmetic of this type."""
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
    """One update of maps of one shape, and of their gradients' running means; if it is `skipped`, of neither."""
    grads = torch.where(skipped > 0, means, grads)  # which leaves them where they are
    means.lerp_(grads, 1.0 - MOMENTUM)
    step = STEP * math.sqrt(max(values.shape[1:])) * rate * (1.0 - skipped)  # an orthogonal matrix has entries this small
    values.sub_(step * orthogonal(torch.lerp(grads, means, MOMENTUM), dtype))  # Nesterov's: as if it came once more


class Muon:
    """Moves those of a model's parameters that are linear maps."""

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
