"""Tests of positions for any length, in any precision."""

import pytest
import torch

from regard.model.embedding import SinusoidalPositions, sinusoids
from tests.conftest import make_model


def test_the_table_grows_to_any_length() -> None:
    positions = SinusoidalPositions(8, num_positions=4).double()
    where = torch.tensor([[3, 700]])
    torch.testing.assert_close(positions(where, 701), sinusoids(701, 8)[where], atol=0, rtol=0)
    torch.testing.assert_close(positions(where, 701), sinusoids(2000, 8)[where], atol=0, rtol=0)


def test_a_long_sequence_meets_the_same_positions_as_a_large_table() -> None:
    """Encode 600 tokens with a table of 512, in one pass and step by step."""
    model = make_model()
    src, tgt = torch.randint(1, 23, (1, 600)), torch.randint(1, 23, (1, 530))
    grown = model(src, tgt)
    larger = make_model()
    larger.load_state_dict(model.state_dict())
    larger.src_positions = larger.tgt_positions = SinusoidalPositions(16, num_positions=1024).double()
    torch.testing.assert_close(grown, larger(src, tgt), atol=0, rtol=0)
    fresh = make_model()
    fresh.load_state_dict(model.state_dict())
    cache = fresh.start(src[:, :3])
    for t in range(530):
        log_probs = fresh.step(tgt[:, t], cache)
    torch.testing.assert_close(log_probs, larger(src[:, :3], tgt)[:, -1].log_softmax(-1), atol=1e-12, rtol=0)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_a_change_of_precision_rounds_from_float64_and_not_from_the_last_one(dtype: torch.dtype) -> None:
    exact = sinusoids(512, 16).to(dtype)
    assert torch.equal(SinusoidalPositions(16).to(dtype).table, exact)
    assert torch.equal(SinusoidalPositions(16).bfloat16().to(dtype).table, exact)


def test_the_table_is_no_part_of_the_state_that_processes_exchange() -> None:
    """Each process grows its own table: as buffers, tables of two lengths would meet in a broadcast."""
    model = make_model()
    assert not list(model.buffers())
    assert not [name for name in model.state_dict() if "position" in name]
