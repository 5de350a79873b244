"""Tests that an invalid model configuration is refused with a one-sentence message."""

import math
import subprocess
import sys

import pytest

from regard.config import PRESETS, ModelConfig, TrainConfig
from tests.conftest import tiny_config

COUNTS = "src_vocab_size tgt_vocab_size encoder_layers decoder_layers d_model num_heads d_ff max_positions d_state context"


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"num_heads": 3}, r"model\.d_model = 16 cannot be split evenly over model\.num_heads = 3"),
        ({"dropout": 1.0}, r"model\.dropout is 1\.0; it must be at least 0 and below 1"),
        ({"attention_dropout": -0.1}, r"model\.attention_dropout is -0\.1"),
        *[({name: 0}, rf"model\.{name} is 0; it must be at least 1") for name in COUNTS.split()],
        ({"pad_id": 23}, r"model\.pad_id is 23; it must be an id below 23"),
        ({"d_model": 15, "num_heads": 3}, r"model\.d_model is 15; it must be even for sinusoidal positions"),
        ({"src_vocab_size": 30}, "the source vocabulary has 30 entries and the target vocabulary 23; use 'target'"),
    ],
)
def test_bad_values_are_named(changes: dict[str, object], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        tiny_config(**changes)


@pytest.mark.parametrize("weight", [-0.5, math.inf, math.nan])
def test_a_bad_weight_of_r_drop_is_named(weight: float) -> None:
    with pytest.raises(ValueError, match=rf"train\.r_drop is {weight}; it must be a number of at least 0"):
        TrainConfig(r_drop=weight)


@pytest.mark.parametrize(
    ("field", "choices"),
    [
        ("norm", "post, pre"),
        ("activation", "relu, gelu, silu"),
        ("positions", "sinusoidal, learned, none"),
        ("shared_embeddings", "all, target, none"),
    ],
)
def test_bad_choices_are_named(field: str, choices: str) -> None:
    """Run in a process without this one's type checks, which would raise first."""
    code = f"from regard.config import ModelConfig; ModelConfig(src_vocab_size=9, tgt_vocab_size=9, {field}='both')"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.stderr.endswith(f"UserError: model.{field} is 'both'; it must be one of {choices}\n")


def test_presets_are_the_papers_and_ours() -> None:
    base, big = (ModelConfig.preset(name, vocab_size=37000) for name in ("base", "big"))
    assert ModelConfig(src_vocab_size=37000, tgt_vocab_size=37000) == base
    assert (base.d_model, base.num_heads, base.d_head, base.d_ff, base.dropout) == (512, 8, 64, 2048, 0.1)
    assert (big.d_model, big.num_heads, big.d_head, big.d_ff, big.dropout) == (1024, 16, 64, 4096, 0.3)
    assert list(PRESETS) == ["tiny", "small", "base", "big"]
    with pytest.raises(ValueError, match="no preset 'huge'; choose one of tiny, small, base, big"):
        ModelConfig.preset("huge", vocab_size=10)
