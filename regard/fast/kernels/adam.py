"""Adam (section 5.3) in one kernel for all parameters, which are next to each other in memory."""

import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

BLOCK = 2048


@triton.jit
def _update(
    value_ptr, grad_ptr, first_ptr, second_ptr, copy_ptr, control_ptr, count, beta1, beta2, epsilon, block: tl.constexpr,
):  # fmt: skip
    places = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
    inside = places < count
    rate = tl.load(control_ptr)
    grad_scale = tl.load(control_ptr + 1)
    root_of_second_correction = tl.load(control_ptr + 2)
    skipped = tl.load(control_ptr + 3)
    value = tl.load(value_ptr + places, mask=inside, other=0.0)
    if skipped == 0.0:
        grad = tl.load(grad_ptr + places, mask=inside, other=0.0) * grad_scale
        first = tl.load(first_ptr + places, mask=inside, other=0.0)
        second = tl.load(second_ptr + places, mask=inside, other=0.0)
        first = first + (1.0 - beta1) * (grad - first)
        second = beta2 * second + (1.0 - beta2) * grad * grad
        value -= rate * first / (tl.sqrt(second) / root_of_second_correction + epsilon)
        tl.store(first_ptr + places, first, mask=inside)
        tl.store(second_ptr + places, second, mask=inside)
        tl.store(value_ptr + places, value, mask=inside)
        tl.store(copy_ptr + places, value.to(copy_ptr.dtype.element_ty), mask=inside)
    tl.store(grad_ptr + places, tl.zeros((block,), tl.float32), mask=inside)


def adam_(
    values: Float[Tensor, " P"],
    grads: Float[Tensor, " P"],
    first: Float[Tensor, " P"],
    second: Float[Tensor, " P"],
    copy: Float[Tensor, " P"],
    control: Float[Tensor, " 4"],
    *,
    beta1: float,
    beta2: float,
    epsilon: float,
) -> None:
    """Update values and moments in place, write the values to `copy` in its precision, and set the gradients to zero.
    `control` holds the learning rate over 1 - β₁ᵗ, the gradients' factor, √(1 - β₂ᵗ), and 1 to skip the update, else 0."""
    grid = (triton.cdiv(len(values), BLOCK),)
    _update[grid](
        values, grads, first, second, copy, control, len(values), beta1, beta2, epsilon, BLOCK, num_warps=4
    )  # fmt: skip
