"""Tests of the fused attention kernel against the formula, with extreme masks."""

import pytest
import torch
from torch import Tensor

from regard.model.attention import attention, inspected_attention


def qkv(device: str = "cpu", dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor, Tensor]:
    shapes = ((2, 3, 4, 8), (2, 3, 6, 8), (2, 3, 6, 8))
    q, k, v = (torch.randn(shape, dtype=dtype, device=device, requires_grad=True) for shape in shapes)
    return q, k, v


@pytest.mark.parametrize("mask_shape", [(2, 1, 1, 6), (2, 1, 4, 6), (1, 1, 4, 6)])
def test_both_paths_agree_under_any_mask(mask_shape: tuple[int, ...]) -> None:
    q, k, v = qkv()
    mask = torch.rand(mask_shape) < 0.7
    by_formula, seen = inspected_attention(q, k, v, mask=mask)
    torch.testing.assert_close(attention(q, k, v, mask=mask), by_formula, atol=1e-12, rtol=0)
    assert (seen.weights[~mask.expand_as(seen.weights)] == 0).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("mask_shape", [(2, 1, 1, 6), (2, 1, 4, 6)])
def test_a_row_that_may_attend_to_nothing_gives_zeros_and_finite_gradients(
    mask_shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    mask = torch.ones(mask_shape, dtype=torch.bool)
    mask[0, :, 0] = False
    for path in (attention, lambda *args, **kwargs: inspected_attention(*args, **kwargs)[0]):
        q, k, v = qkv(dtype=dtype)
        output = path(q, k, v, mask=mask)
        assert (output[0, :, 0] == 0).all()
        assert output[1].abs().min() > 0
        output.square().sum().backward()
        for tensor in (q, k, v):
            assert tensor.grad is not None and tensor.grad.isfinite().all()


@pytest.mark.parametrize("autocast", [False, True])
def test_bfloat16_on_a_cpu_is_float32_rounded(autocast: bool) -> None:
    q, k, v = (tensor.detach().bfloat16().requires_grad_() for tensor in qkv(dtype=torch.float32))
    exact = [tensor.detach().float().requires_grad_() for tensor in (q, k, v)]
    mask = torch.rand(2, 1, 4, 6) < 0.8
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
        found = attention(q, k, v, mask=mask)
    expected = attention(*exact, mask=mask)
    assert torch.equal(found, expected.bfloat16())
    grad = torch.randn(found.shape).bfloat16()
    found.backward(grad)
    expected.backward(grad.float())
    for one, other in zip((q, k, v), exact, strict=True):
        assert one.grad is not None and other.grad is not None
        assert torch.equal(one.grad, other.grad.bfloat16())


def test_the_scale_is_one_over_the_root_of_the_head_size_unless_told_otherwise() -> None:
    q, k, v = qkv()
    seen = inspected_attention(q, k, v)[1]
    torch.testing.assert_close(seen.scores, q @ k.transpose(-1, -2) / 8**0.5)
    unscaled = inspected_attention(q, k, v, scale=1.0)[1]
    torch.testing.assert_close(unscaled.scores, seen.scores * 8**0.5)


def test_entropy_is_zero_for_one_key_and_its_logarithm_for_equal_ones() -> None:
    q, k, v = torch.zeros(1, 1, 1, 4), torch.zeros(1, 1, 5, 4), torch.randn(1, 1, 5, 4)
    torch.testing.assert_close(inspected_attention(q, k, v)[1].entropy.squeeze(), torch.tensor(5.0).log())
    only_one = torch.tensor([True, False, False, False, False])[None, None, None]
    assert inspected_attention(q, k, v, mask=only_one)[1].entropy.item() == 0.0


def test_with_queries_and_keys_zero_attention_is_the_average_of_the_values() -> None:
    v = torch.randn(1, 1, 5, 4, dtype=torch.float64)
    zeros = torch.zeros_like(v)
    torch.testing.assert_close(attention(zeros, zeros, v), v.mean(2, keepdim=True).expand_as(v))


def test_softmax_can_raise_the_rank_of_the_scores() -> None:
    q, k = (torch.randn(1, 1, 10, 2, dtype=torch.float64) for _ in range(2))
    seen = inspected_attention(q, k, k)[1]
    assert torch.linalg.matrix_rank(seen.scores.squeeze()) == 2
    assert torch.linalg.matrix_rank(seen.weights.squeeze()) > 2
