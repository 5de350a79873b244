"""Tests of the RNN encoder–decoders against their formulas, and of the notes' claims S1, S2 and M20."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from regard.config import PRESETS, ModelConfig, ModelKind
from regard.model.kinds import build
from regard.model.recurrent import Recurrent
from regard.model.trace import Head, Intervention
from tests.conftest import make_system, tiny_config
from tests.oracles import numpy_rnn

Ids = Callable[[int, int], Tensor]
KINDS: tuple[ModelKind, ...] = ("rnn", "rnn-attention")


def make_rnn(**changes: Any) -> Recurrent:
    model = make_system(**changes)
    assert isinstance(model, Recurrent)
    return model


@pytest.mark.parametrize("score", ["additive", "dot", "scaled"])
@pytest.mark.parametrize("cell", ["lstm", "gru"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("layers", [(1, 1), (2, 3)])
def test_numpy_float64_s1_s2_m20(ids: Ids, kind: str, cell: str, score: str, layers: tuple[int, int]) -> None:
    """Compare sentences of different lengths in one batch with one at a time without padding."""
    encoder_layers, decoder_layers = layers
    model = make_rnn(kind=kind, cell=cell, score=score, encoder_layers=encoder_layers, decoder_layers=decoder_layers)
    parameters = {name: parameter.detach().numpy() for name, parameter in model.named_parameters()}
    src, tgt = ids(3, 7), ids(3, 5)
    lengths = (7, 4, 1)
    for row, length in enumerate(lengths):
        src[row, length:] = model.config.pad_id
    logits = model(src, tgt)
    for row, length in enumerate(lengths):
        expected = numpy_rnn.logits(parameters, model.config, src[row, :length].tolist(), tgt[row].tolist())
        torch.testing.assert_close(logits[row].detach(), torch.from_numpy(expected), atol=1e-10, rtol=0)


@pytest.mark.parametrize("kind", KINDS)
def test_no_output_depends_on_a_later_word(ids: Ids, kind: str) -> None:
    """The gradient of an output is exactly 0 to every later input, and not 0 to those before."""
    model = make_rnn(kind=kind, shared_embeddings="target")
    src, tgt = ids(1, 4), torch.arange(1, 7)[None]  # no token twice, so that each row of the gradient belongs to one input
    states = model.states(src, tgt)
    for place in range(6):
        [grad] = torch.autograd.grad(states[0, place].square().sum(), [model.embeddings.target.weight], retain_graph=True)
        reached = grad[tgt[0]].abs().sum(-1)
        assert (reached[: place + 1] > 0).all()
        assert (reached[place + 1 :] == 0).all()


def test_s1_all_that_is_known_of_a_source_is_one_vector(ids: Ids) -> None:
    """The last encoder state determines the output, whatever the others are."""
    model = make_rnn(kind="rnn")
    src, tgt = ids(2, 6), ids(2, 5)
    src[1, 4:] = model.config.pad_id
    memory, mask = model.encode(src), model.padding_mask(src)
    other = torch.randn_like(memory)
    other[0, 5], other[1, 3] = memory[0, 5], memory[1, 3]
    torch.testing.assert_close(model.decode(tgt, other, mask), model.decode(tgt, memory, mask), atol=0, rtol=0)
    other[0, 5] += 1.0
    assert not torch.allclose(model.decode(tgt, other, mask)[0], model.decode(tgt, memory, mask)[0])


def test_s2_weights_are_a_softmax_and_padding_gets_none(ids: Ids) -> None:
    """Check c_i = Σ_j α_ij h_j, with the state before the step as query: the first row is that of the initial state."""
    model = make_rnn(kind="rnn-attention")
    src, tgt = ids(2, 6), ids(2, 5)
    src[1, 4:] = model.config.pad_id
    [seen] = model.trace(src, tgt).decoder.cross_attention
    assert (seen.weights[1, :, :, 4:] == 0).all()
    torch.testing.assert_close(seen.weights.sum(-1), torch.ones(2, 1, 5, dtype=torch.float64))
    changed = tgt.clone()
    changed[:, 0] = (changed[:, 0] + 1) % 22 + 1
    [other] = model.trace(src, changed).decoder.cross_attention
    torch.testing.assert_close(other.weights[:, :, 0], seen.weights[:, :, 0])  # the query precedes the first word
    assert not torch.allclose(other.weights[:, :, 1], seen.weights[:, :, 1])


def test_a_traced_pass_is_the_pass(ids: Ids) -> None:
    for kind in KINDS:
        model = make_rnn(kind=kind)
        src, tgt = ids(2, 6), ids(2, 5)
        torch.testing.assert_close(model.trace(src, tgt).logits, model(src, tgt).detach(), atol=1e-12, rtol=0)


def test_without_its_head_attention_gives_nothing(ids: Ids) -> None:
    """The output equals that with values of zero, in one pass and step by step."""
    model = make_rnn(kind="rnn-attention")
    src, tgt = ids(2, 6), ids(2, 5)
    off = Intervention(heads_off=frozenset([Head("cross", 0, 0)]))
    traced = model.trace(src, tgt, off).logits.log_softmax(-1)
    cache = model.start(src, intervention=off)
    steps = torch.stack([model.step(tgt[:, t], cache, off) for t in range(5)], dim=1)
    torch.testing.assert_close(steps, traced, atol=1e-12, rtol=0)
    assert not torch.allclose(traced, model(src, tgt).log_softmax(-1))
    scaled = Intervention(score_scale=0.0)  # all scores equal: the mean of the source
    [seen] = model.trace(src, tgt, scaled).decoder.cross_attention
    torch.testing.assert_close(seen.weights, torch.full_like(seen.weights, 1 / 6))


@pytest.mark.parametrize("kind", KINDS)
def test_what_an_rnn_has_not_cannot_be_left_out(ids: Ids, kind: str) -> None:
    model = make_rnn(kind=kind)
    for intervention in (Intervention(positions=False), Intervention(causal=False)):
        with pytest.raises(ValueError, match="neither positions nor a causal mask"):
            model.trace(ids(1, 3), ids(1, 3), intervention)
    with pytest.raises(ValueError, match=r"there is no encoder head 0 in layer 0: this model has no such heads"):
        model.start(ids(1, 3), intervention=Intervention(heads_off=frozenset([Head("encoder", 0, 0)])))


@pytest.mark.parametrize("preset", PRESETS)
def test_presets_have_as_many_parameters_as_the_transformer(preset: str) -> None:
    def count(kind: ModelKind, vocab_size: int) -> int:
        with torch.device("meta"):
            model = build(ModelConfig.preset(preset, vocab_size=vocab_size, kind=kind))
        return sum(parameter.numel() for parameter in model.parameters())

    for vocab_size in (100, 8000):
        for kind in KINDS:
            # Matrices of tiny models are so small that a step of 8 in width exceeds 1 %.
            allowed = 0.04 if preset == "tiny" else 0.02
            assert count(kind, vocab_size) == pytest.approx(count("transformer", vocab_size), rel=allowed)


@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_first_values(cell: str) -> None:
    """Recurrent matrices are orthogonal gate by gate, and an LSTM's forget gate begins open."""
    model = Recurrent(tiny_config(kind="rnn-attention", cell=cell))
    layer = model.decoder.layers[0]
    gates = layer.weight_hh_l0.detach().chunk(4 if cell == "lstm" else 3)  # type: ignore[operator]
    for gate in gates:
        torch.testing.assert_close(gate @ gate.t(), torch.eye(12), atol=1e-5, rtol=0)
    biases = (layer.bias_ih_l0 + layer.bias_hh_l0).detach()  # type: ignore[operator]
    expected = torch.zeros_like(biases)
    if cell == "lstm":
        expected[12:24] = 1.0
    torch.testing.assert_close(biases, expected)
