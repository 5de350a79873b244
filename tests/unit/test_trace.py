"""Tests that a trace shows the fast path's values, and that an intervention changes only what it names."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from regard.model.attention import MultiHeadAttention
from regard.model.trace import AttentionTrace, Head, Intervention
from regard.model.transformer import DecoderLayer, EncoderLayer, Transformer
from tests.conftest import make_model

Ids = Callable[[int, int], Tensor]


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_a_trace_reproduces_the_fast_path(ids: Ids, norm: str) -> None:
    model = make_model(torch.float32, norm=norm)
    src, tgt_in = ids(3, 7), ids(3, 5)
    src[1, 4:] = model.config.pad_id
    tgt_in[2, 3:] = model.config.pad_id
    trace = model.trace(src, tgt_in)
    fast = model.decode(tgt_in, model.encode(src), model.padding_mask(src))
    torch.testing.assert_close(trace.states, fast, atol=1e-5, rtol=0)
    torch.testing.assert_close(trace.logits, model(src, tgt_in), atol=1e-5, rtol=0)


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_the_recorded_weights_alone_give_the_fast_paths_sublayers(ids: Ids, norm: str) -> None:
    """Compute the sub-layer output from recorded weights and values only, and compare it with the fused kernel's."""
    model = make_model(torch.float32, norm=norm)
    src, tgt_in = ids(2, 7), ids(2, 5)
    mask = model.padding_mask(src)
    trace = model.trace(src, tgt_in)

    def rebuilt(seen: AttentionTrace, attention: MultiHeadAttention) -> Tensor:
        heads = seen.weights @ seen.values
        output: Tensor = attention.output(heads.transpose(1, 2).flatten(-2))
        return output

    for n, layer in enumerate(model.encoder):
        x = trace.encoder.residuals[2 * n]
        x = layer.self_attention_residual.norm(x) if norm == "pre" else x
        fast = layer.self_attention(x, mask=mask)
        torch.testing.assert_close(rebuilt(trace.encoder.self_attention[n], layer.self_attention), fast, atol=1e-5, rtol=0)
    for n, decoder in enumerate(model.decoder):
        x, after_self = trace.decoder.residuals[3 * n], trace.decoder.residuals[3 * n + 1]
        if norm == "pre":
            x, after_self = decoder.self_attention_residual.norm(x), decoder.cross_attention_residual.norm(after_self)
        fast = decoder.self_attention(x, causal=True)
        torch.testing.assert_close(rebuilt(trace.decoder.self_attention[n], decoder.self_attention), fast, atol=1e-5, rtol=0)
        fast = decoder.cross_attention(after_self, decoder.cross_attention.project_memory(trace.memory), mask=mask)
        seen = trace.decoder.cross_attention[n]
        torch.testing.assert_close(rebuilt(seen, decoder.cross_attention), fast, atol=1e-5, rtol=0)


def test_a_trace_holds_every_layer_and_head(model: Transformer, ids: Ids) -> None:
    trace = model.trace(ids(2, 7), ids(2, 5))
    assert [len(trace.encoder.self_attention), len(trace.encoder.cross_attention)] == [2, 0]
    assert [len(trace.decoder.self_attention), len(trace.decoder.cross_attention)] == [2, 2]
    assert [len(trace.encoder.residuals), len(trace.decoder.residuals)] == [1 + 2 * 2, 1 + 2 * 3]
    cross = trace.decoder.cross_attention[1]
    assert cross.queries.shape == (2, 4, 5, 4)
    assert cross.keys.shape == cross.values.shape == (2, 4, 7, 4)
    assert cross.scores.shape == cross.weights.shape == (2, 4, 5, 7)
    assert cross.entropy.shape == (2, 4, 5)
    torch.testing.assert_close(cross.weights, cross.scores.softmax(-1))
    assert trace.decoder.residual_norms.shape == (7, 2, 5)
    torch.testing.assert_close(trace.decoder.residual_norms[2, 1, 3], trace.decoder.residuals[2][1, 3].square().sum().sqrt())
    for n, encoder in enumerate(model.encoder):
        x = trace.encoder.residuals[2 * n + 1]  # the input of the feed-forward network
        torch.testing.assert_close(trace.encoder.activations[n], encoder.feed_forward.inner(x).relu())
    for n, decoder in enumerate(model.decoder):
        x = trace.decoder.residuals[3 * n + 2]
        torch.testing.assert_close(trace.decoder.activations[n], decoder.feed_forward.inner(x).relu())


def test_the_model_keeps_nothing_of_a_trace(model: Transformer, ids: Ids) -> None:
    before = {name: set(vars(module)) for name, module in model.named_modules()}
    model.trace(ids(2, 7), ids(2, 5), Intervention(score_scale=1.0))
    assert {name: set(vars(module)) for name, module in model.named_modules()} == before


def test_an_intervention_that_changes_nothing_changes_nothing(model: Transformer, ids: Ids) -> None:
    src, tgt_in = ids(2, 4), ids(2, 3)
    torch.testing.assert_close(model.trace(src, tgt_in, Intervention()).logits, model(src, tgt_in), atol=1e-12, rtol=0)


@pytest.mark.parametrize("site", ["encoder", "decoder", "cross"])
def test_a_head_that_is_off_is_one_whose_share_of_w_o_is_zero(ids: Ids, site: str) -> None:
    model = make_model()
    src, tgt_in = ids(2, 5), ids(2, 4)
    off = Intervention(heads_off=frozenset({Head(site, 1, 2)}))  # type: ignore[arg-type]
    switched = model.trace(src, tgt_in, off).logits
    assert not torch.allclose(switched, model(src, tgt_in))
    self_attention = (model.encoder if site == "encoder" else model.decoder)[1].self_attention
    attention = model.decoder[1].cross_attention if site == "cross" else self_attention
    with torch.no_grad():
        attention.output.weight[:, 2 * 4 : 3 * 4] = 0.0
    torch.testing.assert_close(switched, model(src, tgt_in), atol=1e-12, rtol=0)


def test_score_scale_replaces_the_root_of_d_k(ids: Ids) -> None:
    """Another scale equals other queries: doubling W_Q doubles every score."""
    model = make_model()
    src, tgt_in = ids(2, 5), ids(2, 4)
    doubled = model.trace(src, tgt_in, Intervention(score_scale=2 / 4**0.5)).logits
    with torch.no_grad():
        layers: list[EncoderLayer | DecoderLayer] = [*model.encoder, *model.decoder]
        for attention in (layer.self_attention for layer in layers):
            attention.query_key_value.weight[:16] *= 2
            attention.query_key_value.bias[:16] *= 2
        for query in (layer.cross_attention.query for layer in model.decoder):
            query.weight.mul_(2)
            query.bias.mul_(2)
    torch.testing.assert_close(doubled, model(src, tgt_in), atol=1e-12, rtol=0)


def test_positions_off_is_a_model_whose_positions_are_all_zero(ids: Ids) -> None:
    model = make_model(positions="learned")
    src, tgt_in = ids(2, 5), ids(2, 4)
    without = model.trace(src, tgt_in, Intervention(positions=False)).logits
    assert not torch.allclose(without, model(src, tgt_in))
    with torch.no_grad():
        for positions in (model.src_positions, model.tgt_positions):
            positions.weight.zero_()  # type: ignore[operator]
    torch.testing.assert_close(without, model(src, tgt_in), atol=1e-12, rtol=0)


def test_without_the_causal_mask_later_words_change_earlier_predictions(model: Transformer, ids: Ids) -> None:
    src, tgt_in = ids(1, 5), torch.tensor([[1, 5, 6, 7, 8]])
    other = torch.tensor([[1, 5, 6, 7, 9]])
    no_mask = Intervention(causal=False)
    assert torch.equal(model(src, tgt_in)[:, :4], model(src, other)[:, :4])
    assert not torch.allclose(model.trace(src, tgt_in, no_mask).logits[:, 0], model.trace(src, other, no_mask).logits[:, 0])
    padded = torch.cat([tgt_in, torch.zeros(1, 3, dtype=torch.long)], dim=1)
    unpadded = model.trace(src, tgt_in, no_mask).logits
    torch.testing.assert_close(model.trace(src, padded, no_mask).logits[:, :5], unpadded, atol=1e-12, rtol=0)


@pytest.mark.parametrize(
    "intervention",
    [
        Intervention(heads_off=frozenset({Head("encoder", 0, 1), Head("decoder", 1, 0), Head("cross", 0, 3)})),
        Intervention(score_scale=1.0),
        Intervention(positions=False),
    ],
)
def test_steps_obey_an_intervention_as_a_traced_pass_does(model: Transformer, ids: Ids, intervention: Intervention) -> None:
    src, tgt = ids(2, 5), ids(2, 4)
    cache = model.start(src, intervention=intervention)
    steps = torch.stack([model.step(tgt[:, t], cache, intervention) for t in range(4)], dim=1)
    expected = model.trace(src, tgt, intervention).logits.log_softmax(-1)
    torch.testing.assert_close(steps, expected, atol=1e-12, rtol=0)


def test_mistakes_are_told_in_a_sentence(model: Transformer, ids: Ids) -> None:
    missing = Intervention(heads_off=frozenset({Head("cross", 7, 0)}))
    with pytest.raises(ValueError, match="no cross head 0 in layer 7: this model has 2 such layers of 4 heads"):
        model.trace(ids(1, 2), ids(1, 2), missing)
    with pytest.raises(ValueError, match=r"a trace needs a model without dropout; call model\.eval\(\) first"):
        model.train().trace(ids(1, 2), ids(1, 2))


@pytest.mark.parametrize(
    ("changes", "intervention"),
    [
        ({"ablation": "scale"}, Intervention(score_scale=1.0)),
        ({"positions": "none"}, Intervention(positions=False)),
        ({"ablation": "causal-mask"}, Intervention(causal=False)),
    ],
    ids=["scale", "positions", "causal mask"],
)
def test_a_model_made_without_something_is_one_in_which_it_is_left_out(
    model: Transformer, ids: Ids, changes: dict[str, Any], intervention: Intervention
) -> None:
    without = make_model(**changes)
    without.load_state_dict(model.state_dict())
    src, tgt = ids(2, 6), ids(2, 5)
    tgt[1, 3:] = model.config.pad_id
    torch.testing.assert_close(without(src, tgt), model.trace(src, tgt, intervention).logits, atol=1e-12, rtol=0)


@pytest.mark.parametrize("shared", ["query-key", "key-value", "projections"])
def test_shared_maps_are_the_same_maps_twice(ids: Ids, shared: str) -> None:
    """Compare with a model of three maps, two or all of which are equal: for `projections` the identity."""
    without, whole = make_model(ablation=shared), make_model()
    state = without.state_dict()
    width = without.config.d_model
    for name, tensor in whole.state_dict().items():
        if name in state and state[name].shape == tensor.shape:
            continue
        owner, _, kind = name.rpartition(".")
        one = torch.eye(width, dtype=tensor.dtype) if kind == "weight" else torch.zeros(width, dtype=tensor.dtype)
        found = state.pop(name, one)
        of_query = state.get(f"{owner.removesuffix('.key_value')}.query.{kind}", one)
        maps = list(found.split(width)) if shared != "projections" else [one]
        is_cross = owner.endswith(".key_value")
        if shared == "projections":
            state[name] = torch.cat([one] * (len(tensor) // width))
        elif shared == "query-key":
            state[name] = torch.cat([of_query, maps[0]] if is_cross else [maps[0], maps[0], maps[1]])
        else:
            state[name] = torch.cat([maps[0], maps[0]] if is_cross else [maps[0], maps[1], maps[1]])
    whole.load_state_dict(state)
    src, tgt = ids(2, 6), ids(2, 5)
    torch.testing.assert_close(without(src, tgt), whole(src, tgt), atol=1e-12, rtol=0)


def test_without_residuals_a_layer_is_its_sublayers_alone() -> None:
    """Compare post-norm LayerNorm(Sublayer(x)), written out for one encoder layer."""
    without = make_model(ablation="residual")
    layer = without.encoder[0]
    x, mask = torch.randn(2, 5, 16, dtype=torch.float64), torch.ones(2, 1, 1, 5, dtype=torch.bool)
    y = layer.self_attention_residual.norm(layer.self_attention(x, mask=mask))
    expected = layer.feed_forward_residual.norm(layer.feed_forward(y))
    torch.testing.assert_close(layer(x, mask=mask), expected, atol=1e-12, rtol=0)
