"""Tests of the study notes' claims about the model. Each test carries its claim's number."""

import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from regard.config import ModelConfig
from regard.model.attention import SelfAttention, attention, causal_mask, inspected_attention
from regard.model.embedding import sinusoids
from regard.model.layers import FeedForward, Residual
from regard.model.trace import Intervention
from regard.model.transformer import DecoderLayer, EncoderLayer, Transformer
from tests.conftest import VOCAB_SIZE, make_model

Ids = Callable[[int, int], Tensor]


def equal(a: Tensor, b: Tensor, tolerance: float = 1e-12) -> None:
    torch.testing.assert_close(a, b, atol=tolerance, rtol=0)


def test_m1_six_layers_of_width_512() -> None:
    model = Transformer(ModelConfig.preset("base", vocab_size=50))
    assert len(model.encoder) == len(model.decoder) == 6
    src, tgt_in = torch.randint(1, 50, (1, 3)), torch.randint(1, 50, (1, 2))
    trace = model.eval().trace(src, tgt_in)
    assert {x.shape for x in trace.encoder.residuals} == {(1, 3, 512)}
    assert {x.shape for x in trace.decoder.residuals} == {(1, 2, 512)}


def test_m2_each_sublayer_is_norm_of_x_plus_sublayer_of_x(model: Transformer, ids: Ids) -> None:
    """An encoder layer has two sub-layers, a decoder layer three, each with Add & Norm, in that order."""
    layers = [model.encoder[0], model.decoder[0]]
    residuals = {type(layer): [m for m in layer.modules() if isinstance(m, Residual)] for layer in layers}
    assert {kind: len(found) for kind, found in residuals.items()} == {EncoderLayer: 2, DecoderLayer: 3}
    trace = model.trace(ids(1, 5), ids(1, 4))
    encoder = model.encoder[0]
    x, after_attention, after_feed_forward = trace.encoder.residuals[:3]
    every = torch.ones(1, 1, 1, 5, dtype=torch.bool)
    equal(after_attention, encoder.self_attention_residual.norm(x + encoder.self_attention(x, mask=every)))
    x = after_attention
    equal(after_feed_forward, encoder.feed_forward_residual.norm(x + encoder.feed_forward(x)))
    layer = model.decoder[0]
    x, after_self, after_cross, after_feed_forward = trace.decoder.residuals[:4]
    equal(after_self, layer.self_attention_residual.norm(x + layer.self_attention(x, causal=True)))
    keys_values = layer.cross_attention.project_memory(trace.memory)
    attended = layer.cross_attention(after_self, keys_values, mask=every)
    equal(after_cross, layer.cross_attention_residual.norm(after_self + attended))
    equal(after_feed_forward, layer.feed_forward_residual.norm(after_cross + layer.feed_forward(after_cross)))


def test_m3_layer_norm_is_per_position_with_biased_variance(model: Transformer) -> None:
    norm = model.encoder[0].feed_forward_residual.norm
    x = torch.randn(3, 4, 16, dtype=torch.float64)
    mean = x.mean(-1, keepdim=True)
    variance = ((x - mean) ** 2).mean(-1, keepdim=True)  # biased: divided by n, not n - 1
    equal(norm(x), (x - mean) / (variance + norm.eps).sqrt() * norm.weight + norm.bias)
    equal(norm(x)[1:2, 2:3], norm(x[1:2, 2:3]))  # independent of other positions
    batch_norm = nn.BatchNorm1d(16).double()
    assert not torch.allclose(batch_norm(x.flatten(0, 1))[0], batch_norm(x[:2].flatten(0, 1))[0], atol=1e-3)


@pytest.mark.parametrize("causal", [False, True])
def test_m4_attention_is_softmax_of_scaled_scores_times_values(causal: bool) -> None:
    """The numbers of queries and keys are arbitrary; the output is as wide as the values."""
    q = torch.randn(1, 1, 3, 8, dtype=torch.float64)
    k, v = torch.randn(1, 1, 5, 8, dtype=torch.float64), torch.randn(1, 1, 5, 6, dtype=torch.float64)
    expected = np.zeros((3, 6))
    for t in range(3):
        keys = range(t + 1) if causal else range(5)
        scores = np.array([sum(q[0, 0, t, i].item() * k[0, 0, s, i].item() for i in range(8)) for s in keys])
        weights = np.exp(scores / math.sqrt(8)) / np.exp(scores / math.sqrt(8)).sum()
        expected[t] = sum(w * v[0, 0, s].numpy() for w, s in zip(weights, keys, strict=True))
    equal(attention(q, k, v, causal=causal)[0, 0], torch.tensor(expected))
    equal(inspected_attention(q, k, v, causal=causal)[0][0, 0], torch.tensor(expected))


def test_m5_heads_are_separate_attentions_concatenated_and_projected() -> None:
    layer = SelfAttention(512, 8, dropout=0.0, site="encoder", layer=0).double()
    x = torch.randn(2, 5, 512, dtype=torch.float64)
    weights, biases = layer.query_key_value.weight.chunk(3), layer.query_key_value.bias.chunk(3)
    heads = []
    for h in range(8):
        dims = slice(64 * h, 64 * (h + 1))  # 512 / 8 = 64
        q, k, v = (x @ w[dims].T + b[dims] for w, b in zip(weights, biases, strict=True))
        heads.append(torch.softmax(q @ k.transpose(1, 2) / math.sqrt(64), -1) @ v)
    expected = torch.cat(heads, -1) @ layer.output.weight.T + layer.output.bias
    equal(layer(x), expected)


def test_m6_no_output_depends_on_a_later_input(model: Transformer, ids: Ids) -> None:
    """The gradient of position i's logits with respect to the embedding at j is exactly 0 for j > i, and not 0 for j ≤ i."""
    src, tgt_in = ids(1, 4), ids(1, 6)
    memory, mask = model.encode(src), model.padding_mask(src)
    embedded: list[Tensor] = []

    def keep(_module: nn.Module, _inputs: object, output: Tensor) -> None:
        output.retain_grad()
        embedded.append(output)

    model.embeddings.target.register_forward_hook(keep)
    logits = model.project(model.decode(tgt_in, memory, mask))
    for i in range(6):
        embedded[0].grad = None
        logits[0, i].square().sum().backward(retain_graph=True)
        gradient = embedded[0].grad
        assert gradient is not None
        assert (gradient[0, i + 1 :] == 0).all()
        assert (gradient[0, : i + 1].abs().sum(-1) > 0).all()


def test_m6_masked_weights_are_exactly_zero(model: Transformer, ids: Ids) -> None:
    trace = model.trace(ids(2, 4), ids(2, 6))
    for layer in trace.decoder.self_attention:
        assert (layer.weights.triu(1) == 0).all()
        assert (layer.weights.tril() > 0).sum() == 2 * 4 * 21
        equal(layer.weights.sum(-1), torch.ones(2, 4, 6, dtype=torch.float64))
    causal = inspected_attention(*[torch.randn(1, 1, 3, 4)] * 3, causal=True)[1].mask
    assert causal.squeeze().tolist() == [[True, False, False], [True, True, False], [True, True, True]]


def test_m7_cross_attention_queries_the_decoder_and_reads_the_encoder(model: Transformer, ids: Ids) -> None:
    trace = model.trace(ids(1, 5), ids(1, 3))
    for layer, seen in zip(model.decoder, trace.decoder.cross_attention, strict=True):
        keys, values = layer.cross_attention.project_memory(trace.memory)
        equal(seen.keys, keys)
        equal(seen.values, values)
        assert seen.weights.shape == (1, 4, 3, 5)
    state = trace.decoder.residuals[1]  # after the first layer's masked self-attention
    queries = model.decoder[0].cross_attention.query(state)
    equal(trace.decoder.cross_attention[0].queries.transpose(1, 2).flatten(-2), queries)


def test_m7_memory_is_projected_once_per_sentence(model: Transformer, ids: Ids) -> None:
    calls = []
    for layer in model.decoder:
        layer.cross_attention.key_value.register_forward_hook(lambda *_: calls.append(1))
    cache = model.start(ids(2, 5), width=3)
    for _ in range(6):
        model.step(torch.ones(6, dtype=torch.long), cache)
    assert len(calls) == len(model.decoder)
    assert cache.memory.shape[2] == 2  # one row per sentence, not per beam


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_m8_padding_and_neighbours_change_nothing(ids: Ids, norm: str) -> None:
    model = make_model(norm=norm)
    sentences = [(ids(1, s), ids(1, t)) for s, t in ((5, 4), (2, 7), (9, 1))]
    src = torch.zeros(3, 12, dtype=torch.long)
    tgt_in = torch.zeros(3, 10, dtype=torch.long)
    for row, (s, t) in enumerate(sentences):
        src[row, : s.shape[1]] = s
        tgt_in[row, : t.shape[1]] = t
    together = model(src, tgt_in)
    for row, (s, t) in enumerate(sentences):
        equal(together[row, : t.shape[1]], model(s, t)[0])
    trace = model.trace(src, tgt_in)
    for seen in (*trace.encoder.self_attention, *trace.decoder.cross_attention):
        for row, (s, _) in enumerate(sentences):
            assert (seen.weights[row, :, :, s.shape[1] :] == 0).all()
            assert (seen.weights[row, :, :, : s.shape[1]] > 0).all()


def test_m9_one_pass_under_the_triangle_equals_feeding_prefixes(model: Transformer, ids: Ids) -> None:
    src, tgt_in = ids(2, 5), ids(2, 7)
    one_pass = model(src, tgt_in)
    for t in range(7):
        equal(one_pass[:, t], model(src, tgt_in[:, : t + 1])[:, -1])


@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_m10_feed_forward_is_the_same_map_at_each_position(activation: str) -> None:
    layer = FeedForward(512, 2048, activation=activation, dropout=0.0, stack="encoder").double()  # type: ignore[arg-type]
    x = torch.randn(2, 3, 512, dtype=torch.float64)
    hidden = x @ layer.inner.weight.T + layer.inner.bias
    assert hidden.shape == (2, 3, 2048)
    gelu = hidden * 0.5 * (1 + torch.erf(hidden / math.sqrt(2)))
    active = hidden.clamp(min=0) if activation == "relu" else gelu
    equal(layer(x), active @ layer.outer.weight.T + layer.outer.bias)
    equal(layer(x)[1:, 2:], layer(x[1:, 2:]))


def test_m11_embeddings_are_scaled_and_shared_with_the_output(model: Transformer, ids: Ids) -> None:
    tokens = ids(1, 3)
    equal(model.embeddings.source(tokens), model.embeddings.source.weight[tokens] * math.sqrt(16))
    assert model.output_weight is model.embeddings.target.weight is model.embeddings.source.weight
    states = torch.randn(2, 16, dtype=torch.float64)
    equal(model.project(states), states @ model.embeddings.source.weight.T)
    two_ways = make_model(shared_embeddings="target")
    assert two_ways.output_weight is two_ways.embeddings.target.weight is not two_ways.embeddings.source.weight
    apart = make_model(shared_embeddings="none")
    assert len({id(w) for w in (apart.embeddings.source.weight, apart.embeddings.target.weight, apart.output_weight)}) == 3
    for its, names in ((model, {"src"}), (two_ways, {"src", "tgt"}), (apart, {"src", "tgt", "output"})):
        stored = {name for name in its.state_dict() if "embedding" in name}
        assert stored == {f"embeddings.{name}.weight" for name in names}  # shared matrices are stored once


def test_m12_sinusoids_of_position_2() -> None:
    expected = [0.9093, -0.4161, 0.1987, 0.9801, 0.0200, 0.9998, 0.0020, 0.999998]
    assert [round(value, 4) for value in sinusoids(3, 8)[2].tolist()[:7]] == expected[:7]
    assert round(sinusoids(3, 8)[2, 7].item(), 6) == expected[7]


@pytest.mark.parametrize("offset", [1, 7, 40])
def test_m13_a_shift_is_one_linear_map_for_all_positions(offset: int) -> None:
    """Fit the map on half of the positions and test it on the other half. The slowest wave needs a long table."""
    table = sinusoids(20_000 + offset, 32)
    here, there = table[:20_000], table[offset:]
    shift = torch.linalg.lstsq(here[::2], there[::2]).solution
    equal(here[1::2] @ shift, there[1::2], 1e-9)


def test_m13_dot_products_depend_on_distance_only_and_fall_with_ripples() -> None:
    table = sinusoids(300, 128)
    products = table @ table.T
    for distance in (1, 5, 50):
        equal(products.diagonal(distance), products.diagonal(distance)[0].expand(300 - distance), 1e-9)
        equal(products.diagonal(distance), products.diagonal(-distance), 1e-9)
    curve = products[0]
    means = [curve[start : start + 50].mean() for start in range(0, 300, 50)]
    assert all(near > far for near, far in itertools.pairwise(means))
    assert (curve.diff() > 0).any()  # not monotone


def test_m14_learned_positions_are_an_option(ids: Ids) -> None:
    model = make_model(positions="learned")
    src, tgt_in = ids(1, 4), ids(1, 3)
    four, three = model(src, tgt_in), model(src[:, :3], tgt_in)
    with torch.no_grad():
        model.src_positions.weight[3] += 1.0  # type: ignore[operator,index]
    assert not torch.allclose(four, model(src, tgt_in))
    equal(three, model(src[:, :3], tgt_in))
    with pytest.raises(ValueError, match="65 tokens is longer than the 64 learned positions"):
        model(ids(1, 65), tgt_in)


def test_m15_without_positions_shuffled_words_give_shuffled_vectors(model: Transformer, ids: Ids) -> None:
    src, tgt_in = ids(1, 7), ids(1, 2)
    order = torch.randperm(7)
    without = Intervention(positions=False)
    shuffled = model.trace(src[:, order], tgt_in, without).memory
    equal(shuffled, model.trace(src, tgt_in, without).memory[:, order])
    with_positions = model.trace(src[:, order], tgt_in).memory
    assert not torch.allclose(with_positions, model.trace(src, tgt_in).memory[:, order], atol=1e-2)


def weights_of(scores: Tensor) -> Tensor:
    """Return the model's own softmax of these scores, through one query."""
    keys = scores[None, None, :, None]
    return inspected_attention(torch.ones_like(keys[:, :, :1]), keys, keys, scale=1.0)[1].weights[0, 0, 0]


def test_m17_softmax_saturates() -> None:
    for a, expected in ((1, 0.5761168847658291), (10, 0.9999092083843412), (100, 1.0)):
        y = weights_of(torch.tensor([a, a, 2 * a], dtype=torch.float64))
        assert abs(y[2].item() - expected) < 1e-12


def test_m18_softmax_gradient_is_diag_y_minus_y_y_and_vanishes() -> None:
    x = torch.randn(6, dtype=torch.float64)
    y = weights_of(x)
    jacobian = torch.autograd.functional.jacobian(weights_of, x)
    equal(jacobian, torch.diag(y) - torch.outer(y, y))
    norms = [torch.autograd.functional.jacobian(weights_of, x * a).norm() for a in (1, 10, 100, 1000)]
    assert norms[1] < norms[0] and norms[2] < norms[1] / 10 and norms[3] < 1e-12


def test_t1_autoregression_feeds_each_prediction_back(model: Transformer, ids: Ids) -> None:
    """Decode greedily from BOS until EOS or the maximum length: by steps, and by passes over the whole prefix."""
    bos, longest, src = 1, 12, ids(1, 5)

    def by_steps(eos: int) -> list[int]:
        cache = model.start(src)
        generated = [bos]
        while len(generated) <= longest and generated[-1] != eos:
            generated.append(int(model.step(torch.tensor(generated[-1:]), cache).argmax()))
        return generated

    def by_prefixes(eos: int) -> list[int]:
        prefix = [bos]
        while len(prefix) <= longest and prefix[-1] != eos:
            prefix.append(int(model(src, torch.tensor([prefix]))[0, -1].argmax()))
        return prefix

    unending = by_steps(eos=-1)
    assert len(unending) == longest + 1
    # Teacher forcing on its own output predicts that output at all positions.
    assert model(src, torch.tensor([unending[:-1]])).argmax(-1)[0].tolist() == unending[1:]
    # An untrained model does not end, so take one of its later words as EOS.
    eos = next(word for word in unending[2:] if word not in unending[:2])
    assert by_steps(eos) == by_prefixes(eos) == unending[: unending.index(eos) + 1]


def test_t2_the_encoder_runs_once_per_sentence(model: Transformer, ids: Ids) -> None:
    calls = []
    model.encoder[0].register_forward_hook(lambda *_: calls.append(1))
    cache = model.start(ids(3, 4), width=2)
    for _ in range(8):
        model.step(torch.ones(6, dtype=torch.long), cache)
    assert len(calls) == 1


def test_t7_the_worked_example_of_the_notes(model: Transformer) -> None:
    """Check the example 我/爱/机器/学习 → i love machine learning."""
    source = {word: n for n, word in enumerate(["<pad>", "我", "爱", "机器", "学习"])}
    target = {word: n for n, word in enumerate(["<pad>", "<bos>", "<eos>", "i", "love", "machine", "learning"])}
    src = torch.tensor([[source[w] for w in ["我", "爱", "机器", "学习"]]])
    sentence = ["<bos>", "i", "love", "machine", "learning", "<eos>"]
    tgt = torch.tensor([[target[w] for w in sentence]])
    tgt_in, tgt_out = tgt[:, :-1], tgt[:, 1:]
    words = {n: word for word, n in target.items()}
    assert [words[n] for n in tgt_in[0].tolist()] == ["<bos>", "i", "love", "machine", "learning"]
    assert [words[n] for n in tgt_out[0].tolist()] == ["i", "love", "machine", "learning", "<eos>"]
    trace = model.trace(src, tgt_in)
    assert trace.encoder.residuals[0].shape == (1, 4, 16)  # the note's [batch, 4, 512], at this model's width
    seen = trace.decoder.self_attention[0].mask.expand(1, 1, 5, 5)[0, 0]
    assert torch.equal(seen, causal_mask(5, 5)[0, 0])
    assert seen.int().tolist() == [[1, 0, 0, 0, 0], [1, 1, 0, 0, 0], [1, 1, 1, 0, 0], [1, 1, 1, 1, 0], [1, 1, 1, 1, 1]]
    assert trace.logits.shape == (1, *tgt_out.shape[1:], VOCAB_SIZE)
