"""Tests of training on a GPU: bfloat16 follows float32, compiled follows plain, and non-finite updates are skipped."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from regard.config import ModelConfig, Precision, TrainConfig
from regard.data.batch import Batch, collate
from regard.machine.processes import Processes
from regard.train.learner import Learner
from regard.train.totals import Totals, line_of

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
CONFIG = TrainConfig(
    precision="float32", compile="off", steps=200, warmup=20, learning_rate=1e-3, schedule="linear", clip_norm=1.0
)
MODEL = ModelConfig(
    src_vocab_size=500, tgt_vocab_size=500, encoder_layers=2, decoder_layers=2, d_model=128, num_heads=4, d_ff=256,
    dropout=0.0, embedding_dropout=0.0,
)  # fmt: skip


def batches(count: int) -> list[Batch]:
    def row() -> list[int]:
        return torch.randint(3, 500, (int(torch.randint(3, 20, ())),)).tolist()

    rows = [[row() for _ in range(64)] for _ in range(count)]
    return [collate(side, [ids[::-1] for ids in side]) for side in rows]


def losses(config: TrainConfig, data: list[Batch]) -> list[float]:
    device = torch.device("cuda")
    learner, totals, found = Learner(MODEL, config, device, Processes()), Totals(device), []
    for batch in data:
        learner.update([(0, batch)], totals)
        found.append(line_of(totals.to_list())["loss"])
        totals.clear()
    return found


def test_bfloat16_follows_float32() -> None:
    """Compare the first 50 losses; eight bits of mantissa give an error of a few thousandths in a loss of six."""
    data = batches(50)
    plain, short = (losses(replace(CONFIG, precision=precision), data) for precision in PRECISIONS)
    assert plain[-1] < plain[0] - 0.2
    assert short == pytest.approx(plain, abs=0.02)
    assert short != plain


PRECISIONS: tuple[Precision, Precision] = ("float32", "bfloat16")


def test_compiled_follows_plain() -> None:
    data = batches(12)
    assert losses(replace(CONFIG, compile="on"), data) == pytest.approx(losses(CONFIG, data), abs=1e-4)


@pytest.mark.parametrize("optimizer", ["adam", "muon"])
def test_what_is_not_finite_changes_nothing_and_nobody_waits(optimizer: Any) -> None:
    device, config = torch.device("cuda"), replace(CONFIG, precision="bfloat16", optimizer=optimizer)
    learner, totals = Learner(MODEL, config, device, Processes()), Totals(device)
    first, second = batches(2)
    learner.update([(0, first)], totals)
    before = {name: tensor.clone() for name, tensor in learner.weights().items()}
    hook = learner.model.output_weight.register_hook(lambda gradient: gradient * float("nan"))
    torch.cuda.set_sync_debug_mode("error")
    try:
        learner.update([(0, second)], totals)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    hook.remove()
    assert line_of(totals.to_list())["skipped"] == 1
    assert all(torch.equal(tensor, before[name]) for name, tensor in learner.weights().items())
