"""Tests of the same model on every available device, in every precision that it supports."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from regard.model.attention import attention, inspected_attention
from regard.train.loss import smoothed_cross_entropy
from tests.conftest import make_model

Ids = Callable[[int, int], Tensor]
DEVICES = [
    "cpu",
    pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")),
    pytest.param("mps", marks=pytest.mark.skipif(not torch.backends.mps.is_available(), reason="no MPS device here")),
]
# Tolerances against float64 on the CPU. Logits are of order 1.
PRECISIONS = [(torch.float64, 1e-10), (torch.float32, 1e-4), (torch.bfloat16, 0.3)]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("dtype", "tolerance"), PRECISIONS)
def test_every_precision_agrees_with_float64(ids: Ids, device: str, dtype: torch.dtype, tolerance: float) -> None:
    if device == "mps" and dtype == torch.float64:
        pytest.skip("MPS has no float64")
    reference = make_model()
    model = make_model().to(device, dtype)
    model.load_state_dict(reference.state_dict())
    src, tgt = ids(3, 6), ids(3, 5)
    src[1, 2:] = model.config.pad_id
    expected = reference(src, tgt)
    logits = model(src.to(device), tgt.to(device))
    assert logits.dtype == dtype
    torch.testing.assert_close(logits.double().cpu(), expected, atol=tolerance, rtol=0)
    traced = model.trace(src.to(device), tgt.to(device)).logits
    torch.testing.assert_close(traced.double().cpu(), expected, atol=tolerance, rtol=0)
    cache = model.start(src.to(device), width=1)
    for t in range(5):
        log_probs = model.step(tgt[:, t].to(device), cache)
        assert log_probs.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
        torch.testing.assert_close(log_probs.double().cpu(), expected[:, t].log_softmax(-1), atol=tolerance, rtol=0)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_gradients_are_finite_beside_an_empty_sentence(ids: Ids, device: str, dtype: torch.dtype) -> None:
    model = make_model(dropout=0.1, embedding_dropout=0.1).to(device, dtype).train()
    src, tgt = ids(3, 6).to(device), ids(3, 5).to(device)
    src[1] = model.config.pad_id
    states = model.decode(tgt, model.encode(src), model.padding_mask(src))
    loss = smoothed_cross_entropy(states, model.output_weight, tgt, pad_id=0, smoothing=0.1)
    loss.total.backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("mask_shape", [(2, 1, 1, 8), (2, 1, 8, 8)])
def test_nothing_to_attend_to_is_zeros_on_every_device(device: str, dtype: torch.dtype, mask_shape: tuple[int, ...]) -> None:
    """cuDNN's kernel would not return zeros."""
    q, k, v = (torch.randn(2, 3, 8, 16, dtype=dtype, device=device, requires_grad=True) for _ in range(3))
    mask = torch.ones(mask_shape, dtype=torch.bool, device=device)
    mask[0, :, 0] = False
    output = attention(q, k, v, mask=mask)
    output.square().sum().backward()
    assert (output[0, :, 0] == 0).all()
    expected = inspected_attention(q.double().cpu(), k.double().cpu(), v.double().cpu(), mask=mask.cpu())[0]
    torch.testing.assert_close(output.double().cpu(), expected, atol=3e-2 if dtype == torch.bfloat16 else 1e-5, rtol=0)
    for tensor in (q, k, v):
        assert tensor.grad is not None and tensor.grad.isfinite().all()


@pytest.mark.parametrize("device", DEVICES)
def test_the_loss_and_its_gradients_agree_with_float64_on_every_device(device: str) -> None:
    states, weight = torch.randn(4, 6, 16), torch.randn(3000, 16)
    targets = torch.randint(1, 3000, (4, 6))
    targets[1, 2:] = 0
    gradients = []
    for where, dtype in ((device, torch.float32), ("cpu", torch.float64)):
        inputs = [tensor.to(where, dtype).requires_grad_() for tensor in (states, weight)]
        loss = smoothed_cross_entropy(inputs[0], inputs[1], targets.to(where), pad_id=0, smoothing=0.1)
        gradients.append([loss.total, loss.nll, *torch.autograd.grad(loss.total, inputs)])
    for actual, expected in zip(*gradients, strict=True):
        torch.testing.assert_close(actual.double().cpu(), expected, atol=1e-3, rtol=1e-4)
