"""All parameters of a model next to each other in memory, so that one kernel can update them."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

ALIGNED = 64  # elements; every tensor begins at a multiple of this number, for wide loads


class FlatParameters:
    """A model's parameters moved into one vector, `values`, of which they become views. `grads` and `copy` are as
    long; `copy` has the values in the precision of the arithmetic."""

    def __init__(self, model: nn.Module, dtype: torch.dtype, last: Sequence[str] = ()) -> None:
        """Place the parameters named `last`, all of them matrices, after the others, in this order and without gaps."""
        named = dict(model.named_parameters())
        named |= {name: named.pop(name) for name in last}
        self._starts: dict[int, int] = {}
        self.names: dict[str, tuple[int, torch.Size]] = {}
        end = 0
        for name, parameter in named.items():
            self._starts[id(parameter)] = end
            self.names[name] = (end, parameter.shape)
            end += parameter.numel() if name in last else -(-parameter.numel() // ALIGNED) * ALIGNED
        device = next(iter(named.values())).device
        self.values = torch.zeros(end, device=device)
        self.grads = torch.zeros(end, device=device)
        for parameter in named.values():
            place = self._view(self.values, self._starts[id(parameter)], parameter.shape)
            place.copy_(parameter.detach())
            parameter.data = place
            parameter.grad = self.grad_of(parameter)
        self.copy = self.values.to(dtype) if dtype != torch.float32 else self.values.clone()

    @staticmethod
    def _view(flat: Float[Tensor, " P"], start: int, shape: torch.Size) -> Tensor:
        return flat[start : start + shape.numel()].view(shape)

    def grad_of(self, parameter: Tensor) -> Tensor:
        return self._view(self.grads, self._starts[id(parameter)], parameter.shape)

    def copy_of(self, parameter: Tensor) -> Tensor:
        return self._view(self.copy, self._starts[id(parameter)], parameter.shape)

    def span(self, names: Sequence[str]) -> slice:
        """Return the slice of parameters that are next to each other, from the first to the last."""
        (first, _), (last, shape) = self.names[names[0]], self.names[names[-1]]
        return slice(first, last + shape.numel())

    def refresh(self) -> None:
        """Update the copy after the values were changed from outside."""
        self.copy.copy_(self.values)

    def by_name(self, flat: Float[Tensor, " _"], names: Sequence[str]) -> dict[str, Tensor]:
        """Return views, by parameter, of another vector, such as an optimizer's, with an element for each value."""
        begin = self.span(names).start
        places = {name: self.names[name] for name in names}
        return {name: self._view(flat, start - begin, shape) for name, (start, shape) in places.items()}
