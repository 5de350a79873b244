"""Fixtures of all tests: reproducible random numbers, and small models in which every parameter affects the output."""

import os
import random
import signal
from collections.abc import Callable, Generator
from dataclasses import replace
from typing import Any

import jaxtyping
import pytest
import torch

from regard.config import ModelConfig
from regard.model.kinds import build_encoder_decoder
from regard.model.sequence import EncoderDecoder
from regard.model.transformer import Transformer

VOCAB_SIZE = 23

# Without a GPU, Triton interprets our kernels. It reads this when they are first imported; they are used only on request.
if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"

# Tensors of tests are too small for a second thread to help, and `pytest -n` divides the cores.
os.environ.setdefault("OMP_NUM_THREADS", "1")  # inherited by the commands that tests start
torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))

# A shell that starts pytest in the background ignores SIGINT, and every command that a test starts would inherit that.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--seed", type=int, help="repeat what random tests drew when this was shown; default: a new one")


def pytest_configure(config: pytest.Config) -> None:
    if config.option.seed is None:
        config.option.seed = random.SystemRandom().randrange(2**32)


def pytest_report_header(config: pytest.Config) -> str:
    return f"random tests: --seed {config.option.seed}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed and "seed" in getattr(item, "fixturenames", ()):
        report.sections.append(("random test", f"--seed {item.config.option.seed} repeats it"))
    return report


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """Return a number for random tests, which differs between tests and sessions."""
    return random.Random(f"{request.config.option.seed} {request.node.nodeid}").randrange(2**32)


@pytest.fixture
def unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Turn off shape checks, which take half of the time, in a test of many repetitions of code that others check."""
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)


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


# All translation models: search, scoring and serving must work with each.
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
    """Return a tiny model in eval mode with random parameters. With initial values attention would be almost uniform, and
    comparisons could not see biases and gains."""
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
    """Return random tokens without padding."""
    return lambda batch, length: torch.randint(1, VOCAB_SIZE, (batch, length))
