"""Tests of the model against other implementations of the same function."""

import itertools
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from regard.bench.peers import TorchTransformer, marian_model
from regard.model.transformer import Transformer
from tests.conftest import VOCAB_SIZE, make_model, tiny_config
from tests.oracles.numpy_transformer import NumpyTransformer
from tests.oracles.weights import copy_into_marian, copy_into_torch_transformer

Ids = Callable[[int, int], Tensor]


def numpy_logits(model: Transformer, src: Tensor, tgt_in: Tensor) -> Tensor:
    parameters = {name: value.detach().numpy() for name, value in model.named_parameters()}
    oracle = NumpyTransformer(model.config, parameters)
    pairs = zip(src.tolist(), tgt_in.tolist(), strict=True)
    return torch.tensor(np.array([oracle.logits(s, t) for s, t in pairs]))


@pytest.mark.parametrize(
    ("norm", "activation", "positions", "shared"),
    [
        *itertools.product(("post", "pre"), ("relu", "gelu", "silu"), ("sinusoidal",), ("all",)),
        ("post", "relu", "learned", "all"),
        ("post", "relu", "sinusoidal", "target"),
        ("pre", "gelu", "learned", "none"),
    ],
)
def test_numpy_float64(ids: Ids, norm: str, activation: str, positions: str, shared: str) -> None:
    model = make_model(norm=norm, activation=activation, positions=positions, shared_embeddings=shared)
    src, tgt_in = ids(2, 5), ids(2, 4)
    torch.testing.assert_close(model(src, tgt_in), numpy_logits(model, src, tgt_in), atol=1e-10, rtol=0)


def test_numpy_float64_separate_vocabularies_and_depths(ids: Ids) -> None:
    model = make_model(
        src_vocab_size=VOCAB_SIZE + 7, shared_embeddings="target", encoder_layers=3, decoder_layers=1, num_heads=2
    )
    src, tgt_in = torch.randint(1, VOCAB_SIZE + 7, (2, 6)), ids(2, 3)
    assert model(src, tgt_in).shape == (2, 3, VOCAB_SIZE)
    torch.testing.assert_close(model(src, tgt_in), numpy_logits(model, src, tgt_in), atol=1e-10, rtol=0)


def test_numpy_float64_output_bias(ids: Ids) -> None:
    model = make_model(output_bias=True)
    src, tgt_in = ids(2, 5), ids(2, 4)
    logits = model(src, tgt_in)
    torch.testing.assert_close(logits, numpy_logits(model, src, tgt_in), atol=1e-10, rtol=0)
    cache = model.start(src)
    for t in range(4):
        torch.testing.assert_close(model.step(tgt_in[:, t], cache), logits[:, t].log_softmax(-1), atol=1e-10, rtol=0)


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_torch_transformer_with_copied_weights(ids: Ids, norm: str) -> None:
    """`torch.nn.Transformer` ends each stack with a LayerNorm in either mode; post-norm leaves it out, as the paper does."""
    model = make_model(torch.float32, norm=norm)
    peer = TorchTransformer(tiny_config(norm=norm), max_length=9).eval()
    copy_into_torch_transformer(model, peer)
    src, tgt_in = ids(3, 9), ids(3, 7)
    src[1, 5:] = model.config.pad_id
    src[2, 2:] = model.config.pad_id
    torch.testing.assert_close(model(src, tgt_in), peer(src, tgt_in), atol=1e-5, rtol=0)


@pytest.mark.parametrize("activation", ["relu", "silu"])
def test_marian_with_copied_weights(ids: Ids, activation: str) -> None:
    """Marian puts all sines before all cosines: its hidden dimensions are permuted."""
    model = make_model(torch.float32, activation=activation)
    peer = marian_model(tiny_config(activation=activation), max_length=32).eval()
    copy_into_marian(model, peer)
    src, tgt_in = ids(3, 9), ids(3, 7)
    src[1, 5:] = model.config.pad_id
    mask = (src != model.config.pad_id).long()
    logits = peer(input_ids=src, attention_mask=mask, decoder_input_ids=tgt_in, use_cache=False).logits
    torch.testing.assert_close(model(src, tgt_in), logits, atol=1e-4, rtol=0)
