"""Tests of the chunked loss against torch's own, values and gradients, chunk by chunk."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from regard.train import loss as loss_module
from regard.train.loss import Loss, smoothed_cross_entropy
from tests.oracles.kernels import r_drop_loss


def inputs(dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor, Tensor]:
    states = torch.randn(3, 5, 8, dtype=dtype, requires_grad=True)
    weight = torch.randn(13, 8, dtype=dtype, requires_grad=True)
    targets = torch.randint(1, 13, (3, 5))
    targets[1, 3:] = 0
    targets[2, 1:] = 0
    return states, weight, targets


def by_torch(states: Tensor, weight: Tensor, targets: Tensor, smoothing: float) -> Tensor:
    logits = (states @ weight.T).flatten(0, 1)
    return F.cross_entropy(logits, targets.flatten(), ignore_index=0, label_smoothing=smoothing, reduction="sum")


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("rows_in_a_chunk", [1, 4, 100])
def test_values_and_gradients_are_torchs(monkeypatch: pytest.MonkeyPatch, smoothing: float, rows_in_a_chunk: int) -> None:
    monkeypatch.setattr(loss_module, "CPU_CHUNK", 13 * rows_in_a_chunk)
    states, weight, targets = inputs()
    ours = smoothed_cross_entropy(states, weight, targets, pad_id=0, smoothing=smoothing)
    expected = by_torch(states, weight, targets, smoothing)
    torch.testing.assert_close(ours.total, expected, atol=1e-12, rtol=0)
    torch.testing.assert_close(ours.nll, by_torch(states, weight, targets, 0.0), atol=1e-12, rtol=0)
    assert ours.num_tokens.item() == 9
    gradients = torch.autograd.grad(ours.total / 7, (states, weight))
    for gradient, its_oracle in zip(gradients, torch.autograd.grad(expected / 7, (states, weight)), strict=True):
        torch.testing.assert_close(gradient, its_oracle, atol=1e-12, rtol=0)


@pytest.mark.parametrize("rows_in_a_chunk", [4, 100])
def test_a_bias_of_the_output_and_its_gradient(monkeypatch: pytest.MonkeyPatch, rows_in_a_chunk: int) -> None:
    monkeypatch.setattr(loss_module, "CPU_CHUNK", 13 * rows_in_a_chunk)
    states, weight, targets = inputs()
    bias = torch.randn(13, dtype=torch.float64, requires_grad=True)
    ours = smoothed_cross_entropy(states, weight, targets, pad_id=0, smoothing=0.1, output_bias=bias)
    logits = F.linear(states, weight, bias).flatten(0, 1)
    expected = F.cross_entropy(logits, targets.flatten(), ignore_index=0, label_smoothing=0.1, reduction="sum")
    nll = F.cross_entropy(logits, targets.flatten(), ignore_index=0, reduction="sum")
    torch.testing.assert_close((ours.total, ours.nll), (expected, nll), atol=1e-12, rtol=0)
    gradients = torch.autograd.grad(ours.total / 7, (states, weight, bias))
    for gradient, its_oracle in zip(gradients, torch.autograd.grad(expected / 7, (states, weight, bias)), strict=True):
        torch.testing.assert_close(gradient, its_oracle, atol=1e-12, rtol=0)


def test_by_hand() -> None:
    """Use two words with logits 0 and log 3: P = (1/4, 3/4)."""
    states = torch.ones(1, 1, 1, dtype=torch.float64)
    weight = torch.tensor([[0.0], [3.0]], dtype=torch.float64).clamp(min=1).log()
    targets = torch.tensor([[1]])
    plain = smoothed_cross_entropy(states, weight, targets, pad_id=0, smoothing=0.0)
    assert plain.total.item() == pytest.approx(-torch.tensor(0.75).log().item(), abs=1e-7)
    smoothed = smoothed_cross_entropy(states, weight, targets, pad_id=0, smoothing=0.2)
    expected = -(0.9 * torch.tensor(0.75).log() + 0.1 * torch.tensor(0.25).log())
    assert smoothed.total.item() == pytest.approx(expected.item(), abs=1e-7)


def test_only_padding_is_no_loss_and_no_gradient() -> None:
    states, weight, targets = inputs()
    nothing: Loss = smoothed_cross_entropy(states, weight, targets * 0, pad_id=0, smoothing=0.1)
    nothing.total.backward()
    assert nothing.total.item() == nothing.nll.item() == nothing.num_tokens.item() == 0
    assert states.grad is not None and (states.grad == 0).all()
    assert weight.grad is not None and (weight.grad == 0).all()


def test_extreme_logits_stay_finite() -> None:
    states, weight, targets = inputs(torch.float32)
    loss = smoothed_cross_entropy(states * 1e4, weight, targets, pad_id=0, smoothing=0.1)
    loss.total.backward()
    assert loss.total.isfinite() and loss.nll.isfinite()
    assert states.grad is not None and states.grad.isfinite().all()
    expected = by_torch(states * 1e4, weight, targets, 0.1)
    torch.testing.assert_close(loss.total, expected, rtol=1e-3, atol=0)


def test_without_gradients_none_are_computed() -> None:
    """Count one matrix product instead of three."""
    states, weight, targets = inputs()
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        loss = smoothed_cross_entropy(states, weight, targets, pad_id=0, smoothing=0.1)
    assert counter.get_total_flops() < 2 * (2 * 15 * 8 * 13)
    torch.testing.assert_close(loss.total, by_torch(states, weight, targets, 0.1))
    assert not loss.total.requires_grad


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-4), (torch.bfloat16, 2e-2)])
def test_gradients_in_lower_precision(dtype: torch.dtype, tolerance: float) -> None:
    """Use sizes for the fast matrix kernels, and divide by a number of tokens that bfloat16 cannot represent."""
    states = torch.randn(16, 25, 32, dtype=torch.float64).to(dtype).requires_grad_()
    weight = (torch.randn(3000, 32, dtype=torch.float64) / 4).to(dtype).requires_grad_()
    targets = torch.randint(1, 3000, (16, 25))
    targets[3, 18:] = 0
    loss = smoothed_cross_entropy(states, weight, targets, pad_id=0, smoothing=0.1)
    ours = torch.autograd.grad(loss.total / loss.num_tokens, (states, weight))
    precise = [tensor.detach().double().requires_grad_() for tensor in (states, weight)]
    expected = torch.autograd.grad(by_torch(precise[0], precise[1], targets, 0.1) / 393, precise)
    assert loss.num_tokens.item() == 393
    for gradient, its_oracle in zip(ours, expected, strict=True):
        assert gradient.dtype == dtype
        assert (gradient.double() - its_oracle).norm() < tolerance * its_oracle.norm()
        scale = (gradient.double() * its_oracle).sum() / its_oracle.square().sum()
        assert abs(scale.item() - 1) < 1e-3  # no systematic error in spite of rounding


@pytest.mark.parametrize("frozen", ["states", "weight"])
def test_either_side_may_be_frozen(frozen: str) -> None:
    states, weight, targets = inputs()
    {"states": states, "weight": weight}[frozen].requires_grad_(False)
    smoothed_cross_entropy(states, weight, targets, pad_id=0, smoothing=0.1).total.backward()
    free = weight if frozen == "states" else states
    expected = torch.autograd.grad(by_torch(states, weight, targets, 0.1), free)[0]
    assert free.grad is not None
    torch.testing.assert_close(free.grad, expected, atol=1e-12, rtol=0)


def test_sums_may_be_summed_in_place() -> None:
    states, weight, targets = inputs()
    one, two = (smoothed_cross_entropy(states, weight, targets, pad_id=0, smoothing=0.1) for _ in range(2))
    total = one.total
    total += two.total
    total.backward()
    expected = torch.autograd.grad(2 * by_torch(states, weight, targets, 0.1), weight)[0]
    assert weight.grad is not None
    torch.testing.assert_close(weight.grad, expected, atol=1e-12, rtol=0)


def test_bfloat16_states_are_summed_in_float32() -> None:
    states, weight = torch.randn(64, 8, 8).bfloat16(), torch.randn(13, 8).bfloat16()
    targets = torch.randint(1, 13, (64, 8))
    loss = smoothed_cross_entropy(states, weight, targets, pad_id=0, smoothing=0.1)
    assert loss.total.dtype == loss.nll.dtype == torch.float32
    expected = by_torch(states.double(), weight.double(), targets, 0.1)
    torch.testing.assert_close(loss.total.double(), expected, rtol=1e-3, atol=0)


def passes(dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the states of two passes over the batch of `inputs`, and an output with a bias."""
    states, weight, targets = inputs(dtype)
    both = torch.stack([states, states + 0.3 * torch.randn_like(states)]).detach().requires_grad_()
    return both, weight, torch.randn(13, dtype=dtype, requires_grad=True), targets


def r_drop_by_torch(logits: Tensor, targets: Tensor, smoothing: float, r_drop: float) -> Tensor:
    return r_drop_loss(logits.flatten(1, 2), targets.flatten(), pad_id=0, smoothing=smoothing, r_drop=r_drop).sum()


@pytest.mark.parametrize(("smoothing", "r_drop"), [(0.0, 5.0), (0.1, 1.0), (0.1, 0.0)])
@pytest.mark.parametrize("pairs_in_a_chunk", [1, 4, 100])
@pytest.mark.parametrize("has_bias", [False, True])
def test_r_drop_and_its_gradients_are_those_of_the_formula(
    monkeypatch: pytest.MonkeyPatch, smoothing: float, r_drop: float, pairs_in_a_chunk: int, has_bias: bool
) -> None:
    monkeypatch.setattr(loss_module, "CPU_CHUNK", 2 * 13 * pairs_in_a_chunk)
    states, weight, bias, targets = passes()
    ours = smoothed_cross_entropy(
        states, weight, targets, pad_id=0, smoothing=smoothing, r_drop=r_drop, output_bias=bias if has_bias else None
    )
    logits = F.linear(states, weight, bias if has_bias else None)
    expected = r_drop_by_torch(logits, targets, smoothing, r_drop)
    torch.testing.assert_close(ours.total, expected, atol=1e-12, rtol=0)
    torch.testing.assert_close(ours.nll, r_drop_by_torch(logits, targets, 0.0, 0.0), atol=1e-12, rtol=0)
    assert ours.num_tokens.item() == 9
    free = (states, weight, bias)[: 2 + has_bias]
    gradients = torch.autograd.grad(ours.total / 7, free)
    for gradient, its_oracle in zip(gradients, torch.autograd.grad(expected / 7, free), strict=True):
        torch.testing.assert_close(gradient, its_oracle, atol=1e-12, rtol=0)


@pytest.mark.parametrize("r_drop", [0.0, 3.0])
def test_two_passes_that_agree_have_the_loss_of_one(r_drop: float) -> None:
    states, weight, targets = inputs()
    one = smoothed_cross_entropy(states, weight, targets, pad_id=0, smoothing=0.1)
    two = smoothed_cross_entropy(torch.stack([states] * 2), weight, targets, pad_id=0, smoothing=0.1, r_drop=r_drop)
    torch.testing.assert_close(tuple(two), tuple(one), atol=1e-12, rtol=0)
    gradients = (torch.autograd.grad(loss.total, (states, weight)) for loss in (two, one))
    for actual, expected in zip(*gradients, strict=True):
        torch.testing.assert_close(actual, expected, atol=1e-12, rtol=0)


def test_r_drop_of_nothing_but_padding_and_without_gradients() -> None:
    states, weight, _, targets = passes()
    nothing = smoothed_cross_entropy(states, weight, targets * 0, pad_id=0, smoothing=0.1, r_drop=2.0)
    assert nothing.total.item() == nothing.nll.item() == nothing.num_tokens.item() == 0
    assert all((gradient == 0).all() for gradient in torch.autograd.grad(nothing.total, (states, weight)))
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        loss = smoothed_cross_entropy(states, weight, targets, pad_id=0, smoothing=0.1, r_drop=2.0)
    assert counter.get_total_flops() == 2 * (2 * 15 * 8 * 13)  # one product, over both passes' rows
    torch.testing.assert_close(loss.total, r_drop_by_torch(states @ weight.T, targets, 0.1, 2.0))


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-4), (torch.bfloat16, 2e-2)])
def test_r_drop_in_lower_precision(dtype: torch.dtype, tolerance: float) -> None:
    first = torch.randn(16, 25, 32)
    states = torch.stack([first, first + 0.3 * torch.randn(16, 25, 32)]).to(dtype).requires_grad_()
    weight = (torch.randn(3000, 32) / 4).to(dtype).requires_grad_()
    targets = torch.randint(1, 3000, (16, 25))
    targets[3, 18:] = 0
    loss = smoothed_cross_entropy(states, weight, targets, pad_id=0, smoothing=0.1, r_drop=2.0)
    assert loss.total.dtype == loss.nll.dtype == torch.float32
    ours = torch.autograd.grad(loss.total / loss.num_tokens, (states, weight))
    precise = [tensor.detach().double().requires_grad_() for tensor in (states, weight)]
    expected = r_drop_by_torch(precise[0] @ precise[1].T, targets, 0.1, 2.0)
    torch.testing.assert_close(loss.total.double(), expected, rtol=1e-3, atol=0)
    for gradient, its_oracle in zip(ours, torch.autograd.grad(expected / 393, precise), strict=True):
        assert gradient.dtype == dtype
        assert (gradient.double() - its_oracle).norm() < tolerance * its_oracle.norm()
