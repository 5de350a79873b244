"""Shared by all tests: reproducible random numbers, and small models whose every parameter matters."""

import os
import signal
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from regard.config import ModelConfig
from regard.model.kinds import EncoderDecoder, build_encoder_decoder
from regard.model.transformer import Transformer

VOCAB_SIZE = 23

# Without a GPU, Triton interprets our kernels. It asks when they are first imported; nothing takes them unless told to.
if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"

# A shell that starts us in the background has SIGINT ignored, and every command that a test starts would inherit that.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(1234)


def tiny_config(**changes: Any) -> ModelConfig:
    config = ModelConfig(
        src_vocab_size=VOCAB_SIZE,
        tgt_vocab_size=VOCAB_SIZE,
        encoder_layers=2,
        decoder_layers=2,
        d_model=16,
        num_heads=4,
        d_ff=32,
        d_state=12,
        dropout=0.0,
        embedding_dropout=0.0,
        max_positions=64,
    )
    return replace(config, **changes)


# All that translate: what search, scoring and serving ask of one they may ask of each.
SYSTEMS: dict[str, dict[str, Any]] = {
    "transformer": {},
    "rnn": {"kind": "rnn"},
    "rnn-gru": {"kind": "rnn", "cell": "gru"},
    "rnn-attention": {"kind": "rnn-attention"},
    "rnn-attention-gru-dot": {"kind": "rnn-attention", "cell": "gru", "score": "dot"},
}


def make_model(dtype: torch.dtype = torch.float64, **changes: Any) -> Transformer:
    model = make_system(dtype, **changes)
    assert isinstance(model, Transformer)
    return model


def make_system(dtype: torch.dtype = torch.float64, **changes: Any) -> EncoderDecoder:
    """A tiny model in eval mode, all of whose parameters are random: at its first values, attention would be all but
    uniform and biases and gains would be invisible to any comparison."""
    model = build_encoder_decoder(tiny_config(**changes)).to(dtype).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "embedding" in name or "positions" in name:
                parameter.normal_(std=0.25)
            else:
                parameter.normal_(mean=1.0 if "norm.weight" in name else 0.0, std=0.3)
    return model


@pytest.fixture
def model() -> Transformer:
    return make_model()


@pytest.fixture(params=SYSTEMS)
def system(request: pytest.FixtureRequest) -> EncoderDecoder:
    return make_system(**SYSTEMS[request.param])


@pytest.fixture
def ids() -> Callable[[int, int], torch.Tensor]:
    """Random tokens, none of them padding."""
    return lambda batch, length: torch.randint(1, VOCAB_SIZE, (batch, length))
