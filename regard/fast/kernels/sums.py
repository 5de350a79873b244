"""Column sums over many rows, in two stages and a fixed order, for the gradients of vectors such as biases."""

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

SPANS = 256  # the most parts that the rows are cut into, each summed separately
ROWS, COLUMNS = 16, 128


@triton.jit
def _span_sums(
    grad_ptr, hidden_ptr, partial_ptr, num_rows, num_columns, span,
    masked: tl.constexpr, block_rows: tl.constexpr, block_columns: tl.constexpr,
):  # fmt: skip
    columns = tl.program_id(1) * block_columns + tl.arange(0, block_columns)
    is_column = columns < num_columns
    start = tl.program_id(0) * span
    end = tl.minimum(start + span, num_rows)
    total = tl.zeros((block_rows, block_columns), tl.float32)
    for first in range(start, end, block_rows):
        rows = first + tl.arange(0, block_rows)
        inside = (rows < end)[:, None] & is_column[None, :]
        places = rows[:, None].to(tl.int64) * num_columns + columns[None, :]
        grad = tl.load(grad_ptr + places, mask=inside, other=0.0)
        if masked:
            hidden = tl.load(hidden_ptr + places, mask=inside, other=0.0)
            grad = tl.where(hidden > 0.0, grad, 0.0)
            tl.store(grad_ptr + places, grad, mask=inside)
        total += grad.to(tl.float32)
    tl.store(partial_ptr + tl.program_id(0) * num_columns + columns, tl.sum(total, 0), mask=is_column)


@triton.jit
def _add_spans(
    partial_ptr, first_ptr, second_ptr, third_ptr, num_spans, num_columns,
    block_spans: tl.constexpr, block_columns: tl.constexpr,
):  # fmt: skip
    which = tl.program_id(1)
    columns = tl.program_id(0) * block_columns + tl.arange(0, block_columns)
    is_column = columns < num_columns
    total = tl.zeros((block_spans, block_columns), tl.float32)
    for start in range(0, num_spans, block_spans):
        spans = start + tl.arange(0, block_spans)
        inside = (spans < num_spans)[:, None] & is_column[None, :]
        places = (which * num_spans + spans)[:, None] * num_columns + columns[None, :]
        total += tl.load(partial_ptr + places, mask=inside, other=0.0)
    into = first_ptr
    if which == 1:
        into = second_ptr
    if which == 2:
        into = third_ptr
    before = tl.load(into + columns, mask=is_column, other=0.0)
    tl.store(into + columns, before + tl.sum(total, 0), mask=is_column)


def add_spans(partial: Float[Tensor, "G spans D"], *into: Float[Tensor, " D"]) -> None:
    """Add the sums over spans to one, two or three vectors."""
    num_groups, num_spans, num_columns = partial.shape
    assert num_groups == len(into) <= 3
    first, second, third = (*into, into[0], into[0])[:3]
    grid = (triton.cdiv(num_columns, 32), num_groups)
    _add_spans[grid](partial, first, second, third, num_spans, num_columns, 64, 32, num_warps=4)


def add_column_sums(grad: Float[Tensor, "N D"], into: Float[Tensor, " D"]) -> None:
    """Add the sum over all rows to `into`."""
    _summed(grad, grad, into, masked=False)


def relu_gradient(grad: Float[Tensor, "N F"], hidden: Float[Tensor, "N F"], bias_grad: Float[Tensor, " F"]) -> None:
    """Set `grad` to zero in place where max(0, x + b), `hidden`, is zero, and add the gradient of b."""
    _summed(grad, hidden, bias_grad, masked=True)


def _summed(grad: Tensor, hidden: Tensor, into: Tensor, *, masked: bool) -> None:
    assert grad.is_contiguous() and hidden.is_contiguous()
    num_rows, num_columns = grad.shape
    span = triton.cdiv(num_rows, SPANS)
    num_spans = triton.cdiv(num_rows, span)
    partial = torch.empty(1, num_spans, num_columns, dtype=torch.float32, device=grad.device)
    _span_sums[(num_spans, triton.cdiv(num_columns, COLUMNS))](
        grad, hidden, partial, num_rows, num_columns, span, masked, ROWS, COLUMNS, num_warps=4
    )
    add_spans(partial, into)
