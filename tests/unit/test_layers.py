"""Our CPU kernels against torch's own, and dropout's arithmetic."""

import pytest
import torch
import torch.nn.functional as F

from regard.model import layers
from regard.model.layers import Dropout, Linear, kept
from regard.model.transformer import Transformer
from tests.conftest import make_model, tiny_config


@pytest.fixture
def _one_dnn(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fast kernel for these small tensors, too."""
    assert torch.backends.mkldnn.is_available() == layers.HAS_ONE_DNN
    monkeypatch.setattr(layers, "ONE_DNN_PAYS", 0)


@pytest.mark.usefixtures("_one_dnn")
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(5, 24), (2, 7, 24), (1, 1, 24)])
def test_linear_and_its_gradients_are_torchs(shape: tuple[int, ...], bias: bool) -> None:
    ours = Linear(24, 40, bias=bias)
    x, y = torch.randn(shape, requires_grad=True), torch.randn(*shape[:-1], 40)
    x64 = x.detach().double().requires_grad_()
    weight64 = ours.weight.detach().double().requires_grad_()
    bias64 = ours.bias.detach().double().requires_grad_() if bias else None
    (ours(x) * y).sum().backward()
    (F.linear(x64, weight64, bias64) * y.double()).sum().backward()
    torch.testing.assert_close(ours(x).double(), F.linear(x64, weight64, bias64), atol=1e-5, rtol=1e-5)
    pairs = [(x.grad, x64.grad), (ours.weight.grad, weight64.grad)]
    if bias64 is not None:
        pairs.append((ours.bias.grad, bias64.grad))
    for grad, expected in pairs:
        assert grad is not None and expected is not None
        torch.testing.assert_close(grad.double(), expected, atol=1e-5, rtol=1e-5)


@pytest.mark.usefixtures("_one_dnn")
def test_linear_takes_inputs_that_are_not_contiguous() -> None:
    ours = Linear(24, 40)
    x = torch.randn(6, 24, 3).transpose(1, 2).requires_grad_()
    torch.testing.assert_close(ours(x), F.linear(x, ours.weight, ours.bias), atol=1e-5, rtol=1e-5)
    ours(x).transpose(0, 1).square().sum().backward()
    assert x.grad is not None
    expected = torch.autograd.grad(F.linear(x, ours.weight, ours.bias).square().sum(), x)[0]
    torch.testing.assert_close(x.grad, expected, atol=1e-4, rtol=1e-4)


@pytest.mark.usefixtures("_one_dnn")
def test_a_whole_model_on_the_fast_kernel_agrees_with_float64() -> None:
    model = make_model(torch.float32)
    src, tgt_in = torch.randint(1, 23, (3, 6)), torch.randint(1, 23, (3, 5))
    in_float64 = make_like(model)
    torch.testing.assert_close(model(src, tgt_in).double(), in_float64(src, tgt_in), atol=1e-4, rtol=0)
    (model(src, tgt_in).square().mean()).backward()
    (in_float64(src, tgt_in).square().mean()).backward()
    for ours, theirs in zip(model.parameters(), in_float64.parameters(), strict=True):
        assert ours.grad is not None and theirs.grad is not None
        torch.testing.assert_close(ours.grad.double(), theirs.grad, atol=1e-4, rtol=1e-3)


@pytest.mark.parametrize("p", [0.1, 0.3, 0.5])
def test_dropout_keeps_its_share_and_the_mean(p: float) -> None:
    x = torch.ones(1000, 1001, requires_grad=True)
    y = Dropout(p)(x)
    share = (y != 0).double().mean().item()
    assert abs(share - (1 - p)) < 5 * (p * (1 - p) / x.numel()) ** 0.5 + 2**-16
    assert set(y.unique().tolist()) == {0.0, torch.tensor(1 / (1 - p)).item()}
    y.sum().backward()
    assert x.grad is not None and torch.equal(x.grad, y.detach())


def test_dropped_elements_are_independent_of_their_place() -> None:
    """Four elements share a random word; no pair of places may be dropped together more often than chance says."""
    dropped = ~kept(torch.empty(200_000, 8), 0.25)
    together = (dropped.T.double() @ dropped.double()) / len(dropped)
    off_diagonal = together[~torch.eye(8, dtype=torch.bool)]
    assert (off_diagonal - 0.25**2).abs().max() < 5 * (0.0625 * 0.9375 / len(dropped)) ** 0.5
    assert (together.diagonal() - 0.25).abs().max() < 5 * (0.25 * 0.75 / len(dropped)) ** 0.5


def test_dropout_is_off_in_eval_mode_and_reproducible_by_seed() -> None:
    x = torch.randn(3, 5)
    assert torch.equal(Dropout(0.5).eval()(x), x)
    torch.manual_seed(7)
    first = Dropout(0.5)(x)
    torch.manual_seed(7)
    assert torch.equal(Dropout(0.5)(x), first)


@pytest.mark.parametrize("place", ["dropout", "embedding_dropout", "attention_dropout", "activation_dropout"])
def test_each_dropout_acts_in_training_only(place: str) -> None:
    model = make_model(torch.float64, **{place: 0.5})
    src, tgt_in = torch.tensor([[3, 4, 5]]), torch.tensor([[1, 2]])
    assert torch.equal(model(src, tgt_in), make_like(model)(src, tgt_in))
    model.train()
    assert not torch.allclose(model(src, tgt_in), model(src, tgt_in))


def make_like(model: Transformer) -> Transformer:
    """The same weights in float64, without any dropout."""
    plain = Transformer(tiny_config()).double().eval()
    plain.load_state_dict(model.state_dict())
    return plain
