"""What `regard info` says of a model is what belongs to its kind."""

from typing import Any

import pytest

from regard.config import ModelConfig
from regard.info import described

SIZES: dict[str, Any] = {
    "src_vocab_size": 100,
    "tgt_vocab_size": 100,
    "encoder_layers": 3,
    "decoder_layers": 2,
    "d_model": 64,
}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, "transformer, 3 + 2 layers, d_model 64, 8 heads, d_ff 2048, post-norm, relu, sinusoidal positions"),
        (
            {"positions": "none", "norm": "pre", "ablation": "residual"},
            "transformer, 3 + 2 layers, d_model 64, 8 heads, d_ff 2048, pre-norm, relu, no positions; taken out: residual",
        ),
        ({"kind": "rnn"}, "rnn, 3 + 2 layers, d_model 64, LSTM, d_state 512, one fixed vector between"),
        (
            {"kind": "rnn-attention", "cell": "gru", "score": "dot", "d_state": 96},
            "rnn-attention, 3 + 2 layers, d_model 64, GRU, d_state 96, dot attention",
        ),
    ],
)
def test_a_model_is_told_by_what_it_has(changes: dict[str, Any], expected: str) -> None:
    assert described(ModelConfig(**(SIZES | changes))) == expected
