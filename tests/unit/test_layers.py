"""Tests of our CPU kernels against torch's own, and of dropout's arithmetic."""

from collections.abc import Callable
from functools import cache

import pytest
import torch
import torch.nn.functional as F

from regard.config import Norm
from regard.model import onednn
from regard.model.layers import Dropout, FeedForward, Linear, Residual
from regard.model.onednn import kept
from regard.model.transformer import Transformer
from tests.conftest import make_model, tiny_config


@pytest.fixture
def _one_dnn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use the fast kernel for these small tensors too."""
    assert torch.backends.mkldnn.is_available() == onednn.HAS_ONE_DNN
    monkeypatch.setattr(onednn, "ONE_DNN_PAYS", 0)


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


def test_one_dnn_multiplies_as_exactly_as_float32_can_and_the_setting_is_left_as_it_was() -> None:
    a, b = torch.randn(2, 300, 200)
    setting = onednn.ONE_DNN_PRODUCTS
    before = setting.fp32_precision
    with onednn.one_dnn_multiplies():
        found = a.t() @ b
    exact = a.double().t() @ b.double()
    assert float((found - exact).norm() / exact.norm()) < 1e-6
    with pytest.raises(KeyError), onednn.one_dnn_multiplies():
        raise KeyError
    assert setting.fp32_precision == before


def test_where_one_dnn_would_round_it_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulate a CPU with AMX by matrices that are rounded to bfloat16."""
    setting, product = onednn.ONE_DNN_PRODUCTS, torch.Tensor.__matmul__
    before = setting.fp32_precision

    def rounded(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        allowed = setting.fp32_precision == "bf16" and a.dtype == torch.float32
        return product(a.bfloat16(), b.bfloat16()).float() if allowed else product(a, b)

    monkeypatch.setattr(torch.Tensor, "__matmul__", rounded)
    monkeypatch.setattr(onednn, "_one_dnn_stays_exact", cache(onednn._one_dnn_stays_exact.__wrapped__))
    with onednn.one_dnn_multiplies():
        assert setting.fp32_precision == before
    assert not onednn._one_dnn_stays_exact()


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
    """Four elements share a random word; no pair of places may be dropped together more often than by chance."""
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


def test_random_words_are_not_used_twice() -> None:
    bits = kept(torch.empty(2**16), 0.5).view(16, -1)
    agreement = (bits[:, None] == bits[None, :]).double().mean(-1)
    assert (agreement[~torch.eye(16, dtype=torch.bool)] - 0.5).abs().max() < 5 * 0.5 / 64


def test_a_dropout_close_to_one_keeps_next_to_nothing() -> None:
    assert kept(torch.empty(2**16), 0.999999).sum() < 20


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_residual_drops_the_sublayers_output_and_nothing_else(norm: Norm) -> None:
    residual = Residual(16, norm=norm, dropout=0.5, stack="encoder").train()
    x = torch.randn(2, 3, 16)
    torch.manual_seed(3)
    actual = residual(x, torch.sin)
    torch.manual_seed(3)
    dropout, layer_norm = Dropout(0.5), residual.norm
    post = norm == "post"
    expected = layer_norm(x + dropout(torch.sin(x))) if post else x + dropout(torch.sin(layer_norm(x)))
    torch.testing.assert_close(actual, expected)


def test_feed_forward_drops_its_activations_and_nothing_else() -> None:
    layer = FeedForward(16, 32, activation="relu", dropout=0.5, stack="encoder").train()
    x = torch.randn(2, 3, 16)
    torch.manual_seed(3)
    actual = layer(x)
    torch.manual_seed(3)
    torch.testing.assert_close(actual, layer.outer(Dropout(0.5)(layer.inner(x).relu())))


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("place", ["dropout", "embedding_dropout", "attention_dropout", "activation_dropout"])
def test_each_dropout_acts_in_both_stacks_in_training_only(place: str, norm: str) -> None:
    model = make_model(torch.float64, norm=norm, **{place: 0.5})
    src, tgt_in = torch.tensor([[3, 4, 5]]), torch.tensor([[1, 2]])
    assert torch.equal(model(src, tgt_in), make_like(model)(src, tgt_in))
    memory, mask = model.encode(src), model.padding_mask(src)
    model.train()
    assert not torch.allclose(model.encode(src), model.encode(src))
    assert not torch.allclose(model.decode(tgt_in, memory, mask), model.decode(tgt_in, memory, mask))


def test_attention_dropout_acts_at_every_site() -> None:
    model = make_model(torch.float64, attention_dropout=0.5).train()
    x = torch.randn(1, 6, 16, dtype=torch.float64)
    mask = torch.ones(1, 1, 1, 6, dtype=torch.bool)
    cross = model.decoder[0].cross_attention
    sites: list[Callable[[], torch.Tensor]] = [
        lambda: model.encoder[0].self_attention(x, mask=mask),
        lambda: model.decoder[0].self_attention(x, causal=True),
        lambda: cross(x, cross.project_memory(x), mask=mask),
    ]
    for site in sites:
        assert not torch.allclose(site(), site())


@pytest.mark.usefixtures("_one_dnn")
@pytest.mark.parametrize("wanted", ["x", "weight", "bias"])
def test_linear_gives_just_the_gradients_asked_for(wanted: str) -> None:
    tensors = {"x": torch.randn(5, 24), "weight": torch.randn(40, 24), "bias": torch.randn(40)}
    tensors[wanted].requires_grad_()
    onednn.linear(tensors["x"], tensors["weight"], tensors["bias"]).sin().sum().backward()
    expected = torch.autograd.grad(F.linear(tensors["x"], tensors["weight"], tensors["bias"]).sin().sum(), tensors[wanted])
    assert tensors[wanted].grad is not None
    torch.testing.assert_close(tensors[wanted].grad, expected[0], atol=1e-4, rtol=1e-4)


@pytest.mark.usefixtures("_one_dnn")
def test_autocast_is_obeyed() -> None:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        x = Linear(24, 40)(torch.randn(500, 24))
        dropped = Dropout(0.25)(x)
    assert x.dtype == dropped.dtype == torch.bfloat16
    kept_ones = dropped != 0
    assert 0.7 < kept_ones.double().mean() < 0.8
    torch.testing.assert_close(dropped[kept_ones], x[kept_ones] / 0.75, rtol=1e-2, atol=0)


def make_like(model: Transformer) -> Transformer:
    """Return a model with the same weights in float64, without dropout."""
    plain = Transformer(tiny_config(norm=model.config.norm)).double().eval()
    plain.load_state_dict(model.state_dict())
    return plain
