"""Tests that `regard info` shows the settings that belong to a model's kind."""

from pathlib import Path
from typing import Any

import pytest

from regard.config import ModelConfig
from regard.errors import UserError
from regard.info import described
from regard.run.metrics import read_lines

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


def test_a_log_that_is_damaged_is_named(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text('{"step": 1}\n{"st\n')
    with pytest.raises(UserError, match=r"metrics\.jsonl is damaged: .*restore it"):
        read_lines(tmp_path / "metrics.jsonl")
