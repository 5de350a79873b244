"""Tests of initial values: the table in `initialise`, and different states at different positions."""

import math
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from regard.config import ModelConfig
from regard.model.transformer import Transformer

BIG_ENOUGH = {"src_vocab_size": 2000, "tgt_vocab_size": 2000, "d_model": 256, "num_heads": 4, "d_ff": 1024}


def std_is(parameter: torch.Tensor, expected: float) -> bool:
    return abs(parameter.std().item() / expected - 1) < 0.02


@pytest.mark.parametrize(("norm", "encoder_factor", "decoder_factor"), [("pre", 1, 1), ("post", 16**-0.25, 36**-0.25)])
def test_the_table(norm: str, encoder_factor: float, decoder_factor: float) -> None:
    config = ModelConfig(**BIG_ENOUGH, norm=norm, encoder_layers=2, decoder_layers=3, positions="learned")  # type: ignore[arg-type]
    model = Transformer(replace(config, shared_embeddings="none"))
    square, rectangle = math.sqrt(2 / 512), math.sqrt(2 / 1280)
    for embedding in (model.embeddings.source.weight, model.embeddings.target.weight, model.output_weight):
        assert std_is(embedding, 1 / 16)
    assert std_is(model.src_positions.weight, math.sqrt(0.5))  # type: ignore[arg-type]
    for layer, factor in ((model.encoder[1], encoder_factor), (model.decoder[1], decoder_factor)):
        assert std_is(layer.self_attention.query_key_value.weight, square)
        assert std_is(layer.self_attention.output.weight, square * factor)
        assert std_is(layer.feed_forward.inner.weight, rectangle * factor)
        assert std_is(layer.feed_forward.outer.weight, rectangle * factor)
    cross = model.decoder[2].cross_attention
    assert std_is(cross.query.weight, square)
    assert std_is(cross.key_value.weight, square)
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            assert (parameter == 0).all()
        elif "norm" in name:
            assert (parameter == 1).all()
    assert sum(isinstance(module, nn.LayerNorm) for module in model.modules()) == (
        2 * 2 + 3 * 3 + (0 if norm == "post" else 2)
    )


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("layers", [3, 6])
def test_positions_are_apart_at_the_start_and_logits_have_variance_one(norm: str, layers: int) -> None:
    """Post-norm with plain Glorot starts at a cosine of 0.96 with three layers and 0.999 with six, and with six hardly
    learns."""
    config = ModelConfig(**BIG_ENOUGH, norm=norm, encoder_layers=layers, decoder_layers=layers)  # type: ignore[arg-type]
    model = Transformer(config).eval()
    src, tgt_in = torch.randint(1, 2000, (8, 12)), torch.randint(1, 2000, (8, 12))
    with torch.no_grad():
        states = model.decode(tgt_in, model.encode(src), model.padding_mask(src))
    cosines = F.normalize(states, dim=-1) @ F.normalize(states, dim=-1).transpose(1, 2)
    assert cosines[:, ~torch.eye(12, dtype=torch.bool)].mean() < 0.9
    assert 0.8 < model.project(states).std() < 1.25
