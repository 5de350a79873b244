"""Tests of the values that a run settles when it begins."""

import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

from regard.config import CorpusConfig, DataConfig, RunConfig, TrainConfig
from regard.data.batch import Batch, Pairs
from regard.data.batching import PairLengths, padding_share
from regard.data.stream import BatchStream, Place
from regard.fast import support
from regard.machine.processes import Processes
from regard.train import batches, plan, road
from regard.train.batches import BatchMaker, num_workers
from regard.train.plan import (
    Pace,
    accumulation_for,
    batch_tokens,
    largest_batch_tokens,
    left_to_the_plan,
    settled,
    steps_by_the_clock,
    with_default_warmup,
    with_intervals,
    with_steps,
)
from regard.train.road import with_kernels
from regard.train.schedule import rate_of
from regard.train.tensorboard import EventFiles
from tests.conftest import tiny_config
from tests.unit.test_stream import make_stream


def test_everything_left_open_is_settled_once() -> None:
    stream = make_stream(num_pairs=2000)
    config = settled(TrainConfig(batch_tokens=2000, warmup=0, device="cpu"), stream, num_processes=1)
    assert config.precision == "float32" and config.compile == "off" and config.threads == torch.get_num_threads()
    assert config.steps == 2000 and config.warmup == 400, "30 epochs would be fewer"
    assert min(config.log_every, config.valid_every, config.save_every, config.accumulation) > 0
    assert settled(config, stream, num_processes=1) == config
    timed = settled(TrainConfig(batch_tokens=2000, minutes=1.0, device="cpu"), stream, num_processes=1)
    assert timed.steps == 0, "which needs a model to measure with"
    assert with_intervals(replace(timed, steps=50, warmup=0)).warmup == 10


def test_an_update_is_cut_until_it_pads_little() -> None:
    """An update is cut into as few batches as that takes, but at least one for each process."""
    stream = make_stream(num_pairs=4000)
    accumulation = accumulation_for(stream, tokens=20_000, num_processes=1)

    def share(parts: int) -> float:
        cut = replace(stream, batch_tokens=20_000 // parts)
        return padding_share(cut.lengths(), cut.epoch(0))

    assert accumulation > 1 and share(accumulation // 2) > 0.05
    assert share(accumulation) <= 0.05 or 20_000 // (2 * accumulation) < plan.SMALLEST_BATCH
    assert accumulation_for(stream, tokens=600, num_processes=3) >= 3
    config = TrainConfig(batch_tokens=20_000, accumulation=accumulation)
    assert batch_tokens(config) == 20_000 // accumulation


def test_our_own_kernels_are_for_a_gpu_and_for_what_they_serve(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny_config(d_model=32, num_heads=2)
    config = TrainConfig(device="cpu", precision="bfloat16")
    assert with_kernels(config, model, 1).kernels == "off"
    monkeypatch.setattr(road, "find_device", lambda _: torch.device("cuda"))
    monkeypatch.setattr(support, "runs_kernels", lambda _: True)
    assert with_kernels(config, model, 1).kernels == "on"
    for other, reason in (
        (replace(config, precision="float64"), "float64"),
        (replace(config, compile="on"), "torch.compile"),
    ):
        assert with_kernels(other, model, 1).kernels == "off"
        with pytest.raises(ValueError, match=reason):
            with_kernels(replace(other, kernels="on"), model, 1)
    assert with_kernels(config, model, 2).kernels == "off"
    assert with_kernels(config, replace(model, activation="gelu"), 1).kernels == "off"
    with pytest.raises(ValueError, match="activation gelu"):
        with_kernels(replace(config, kernels="on"), replace(model, activation="gelu"), 1)
    assert with_kernels(replace(config, kernels="off"), model, 1).kernels == "off"
    monkeypatch.setattr(support, "runs_kernels", lambda _: False)  # as on an old GPU, or without a compiler
    assert with_kernels(config, model, 1).kernels == "off"


def test_packed_text_is_cut_into_no_more_batches_than_processes() -> None:
    stream = replace(make_stream(num_pairs=4000), packed=True)
    assert accumulation_for(stream, tokens=20_000, num_processes=1) == 1
    assert 0.0 <= stream.padding(0) < 0.1


class _SmallCard:
    """A learner on a GPU that holds 5,000 tokens a side."""

    def __init__(self, *_: object) -> None: ...

    def update(self, batches: list[tuple[int, Batch]], _totals: object) -> None:
        if batches[0][1].src.numel() > 5000:
            raise torch.OutOfMemoryError


def test_only_a_gpu_has_words_cut_by_other_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "num_cores", lambda: 8)
    cutting, gpu = TrainConfig(bpe_dropout=0.1), torch.device("cuda")
    assert num_workers(cutting, gpu, Processes()) == 7
    assert num_workers(cutting, gpu, Processes(0, 0, 4)) == 1  # the four share its cores
    assert num_workers(cutting, torch.device("cpu"), Processes()) == num_workers(TrainConfig(), gpu, Processes()) == 0
    monkeypatch.setattr(batches, "num_cores", lambda: 1)
    assert num_workers(cutting, gpu, Processes()) == 0


def test_a_process_draws_its_own_share_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    stream, drawn = make_stream(num_pairs=300), list[Place]()
    draw = BatchStream.batch

    def counted(self: BatchStream, place: Place) -> Pairs:
        drawn.append(place)
        return draw(self, place)

    monkeypatch.setattr(BatchStream, "batch", counted)
    makers = [BatchMaker(stream, 5, Processes(rank, rank, 2), None) for rank in (0, 1)]
    shares = [make(Place(0, 0)) for make in makers]
    assert [[number for number, _ in share] for share in shares] == [[0, 2, 4], [1, 3]]
    assert drawn == [Place(0, number) for number in (0, 2, 4, 1, 3)]
    assert makers[0].after(Place(0, 0)) == makers[1].after(Place(0, 0)) == Place(0, 5)


def test_the_largest_batch_is_found_by_trying(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "find_device", lambda _: torch.device("cuda"))
    monkeypatch.setattr(plan, "Learner", _SmallCard)
    monkeypatch.setattr(plan, "Totals", lambda _: None)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda _: None)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    lengths = PairLengths(np.full(10_000, 20), np.full(10_000, 10))
    assert 0.9 * 5000 / 1.25 <= largest_batch_tokens(tiny_config(), TrainConfig(), lengths) <= 0.9 * 5000
    few = PairLengths(np.full(20, 20), np.full(20, 10))
    assert largest_batch_tokens(tiny_config(), TrainConfig(), few) == 0.9 * 400, "no more than there is"
    long = PairLengths(np.full(3, 6000), np.full(3, 10))
    with pytest.raises(ValueError, match="not even 6,000 tokens fit into the memory of cuda; try a smaller --preset"):
        largest_batch_tokens(tiny_config(), TrainConfig(), long)


def test_a_cpu_has_no_largest_batch() -> None:
    with pytest.raises(ValueError, match="looks for what fits a GPU; give a number for a CPU"):
        largest_batch_tokens(tiny_config(), TrainConfig(device="cpu"), PairLengths(np.full(3, 6), np.full(3, 6)))


def test_event_files_where_tensorboard_is_installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    written: list[object] = []

    class SummaryWriter:
        def __init__(self, folder: str, purge_step: int) -> None:
            written.append((folder, purge_step))

        def add_scalar(self, *scalar: object) -> None:
            written.append(scalar)

        def close(self) -> None:
            written.append("closed")

    module: Any = ModuleType("torch.utils.tensorboard")
    module.SummaryWriter = SummaryWriter
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", module)
    with closing(EventFiles(tmp_path, after_step=10)) as events:
        events.add({"step": 12, "loss": 3.5})
    assert written == [(str(tmp_path), 11), ("loss", 3.5, 12), "closed"]
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)  # as if it were not installed
    with closing(EventFiles(tmp_path, after_step=10)) as events:
        events.add({"step": 12, "loss": 3.5})
    assert len(written) == 3


def clocked_run(*, steps: int, minutes: float, **given: Any) -> RunConfig:
    """Return a run with a plan of so many steps in so many minutes."""
    train = TrainConfig(minutes=minutes, warmup=0, device="cpu", precision="float32", compile="off", **given)
    planned = left_to_the_plan({"minutes": minutes} | given)
    corpus = CorpusConfig(src="a", tgt="b")
    data = DataConfig(train=(corpus,), valid=corpus)
    return RunConfig(planned=planned, data=data, model=tiny_config(), train=with_intervals(replace(train, steps=steps)))


@pytest.mark.parametrize("planned", [104, 1000, 2000, 20_000])
def test_a_run_by_the_clock_ends_when_it_shall(planned: int) -> None:
    """Speeds of the first seconds do not matter: at 8 steps a second, 4 minutes are 1,920 steps."""
    config, seconds, step, reserve = clocked_run(steps=planned, minutes=4.0), 0.0, 0, 2.0
    while step < config.train.steps:
        step, seconds = step + 1, seconds + 1 / 8
        if step % config.train.save_every == 0:
            done = Pace(step, seconds)
            steps = steps_by_the_clock(config, done=done, recent=done, reserve=reserve)
            config = config if steps == config.train.steps else with_steps(config, steps)
    assert abs(seconds + reserve - 240) < 10
    assert config.train == with_intervals(replace(config.train, warmup=0, log_every=0, save_every=0))
    assert 8 <= step // config.train.valid_every <= 12, "as many validations as were planned"


def test_a_machine_that_slows_down_ends_in_time_with_fewer_steps() -> None:
    config, seconds, step = clocked_run(steps=1920, minutes=4.0), 0.0, 0
    while step < config.train.steps:
        step, seconds = step + 1, seconds + (1 / 8 if seconds < 60 else 1 / 4)
        if step % config.train.save_every == 0:
            done = Pace(step, seconds)
            steps = steps_by_the_clock(config, done=done, recent=done, reserve=0.0)
            config = config if steps == config.train.steps else with_steps(config, steps)
    assert 235 < seconds < 275
    assert step < 1920


def test_what_was_given_is_not_planned() -> None:
    config = clocked_run(steps=1000, minutes=4.0, valid_every=7, save_every=9)
    assert config.planned == ("steps", "warmup", "log_every")
    longer = with_steps(config, 3000).train
    assert (longer.valid_every, longer.save_every) == (7, 9)
    assert (longer.steps, longer.warmup) == (3000, 400)


@pytest.mark.parametrize("steps", [1, 300, 2000, 7999, 8000, 100_000])
def test_a_warm_up_that_nobody_gave_leaves_half_of_the_steps(steps: int) -> None:
    """The learning rate rises as high as the paper's."""
    clocked = clocked_run(steps=1, minutes=4.0)
    base = replace(clocked, preset="base", train=replace(clocked.train, steps=0))
    for config in (with_default_warmup(replace(base, train=replace(base.train, steps=steps))), with_steps(base, steps)):
        assert config.train.warmup == min(4000, max(1, steps // 2))
        peak = rate_of(config.train, config.model.d_model, config.train.warmup)
        assert peak == pytest.approx((config.model.d_model * 4000) ** -0.5)
    longer = with_steps(with_steps(base, steps), 100_000).train
    assert longer.warmup == 4000
    small = replace(base, preset="small")
    assert with_steps(small, steps).train.warmup == min(400, max(1, steps // 5)), "as it always was"


def test_a_plan_stands_where_steps_were_given_or_the_end_is_near() -> None:
    clocked = clocked_run(steps=1000, minutes=4.0)

    def steps(step: int, seconds: float, config: RunConfig = clocked) -> int:
        return steps_by_the_clock(config, done=Pace(step, seconds), recent=Pace(step, seconds), reserve=0.0)

    assert steps(700, 20.0) > 1000
    assert steps(800, 182.0) == 1000, "the last quarter"
    assert steps(800, 20.0) > 1000, "of steps, not of time"
    assert steps(700, 1.0) == 1000, "too early to tell"
    assert steps(700, 20.0, replace(clocked, planned=())) == 1000
    assert steps(500, 300.0) == 501, "the time is over"


def test_a_machine_that_is_suddenly_faster_is_believed() -> None:
    """100 steps took 100 s of 5 minutes, then 60 took 3 s: at 20 steps a second, 197 s are left for 3,940 more."""
    clocked = clocked_run(steps=300, minutes=5.0)
    assert steps_by_the_clock(clocked, done=Pace(160, 103.0), recent=Pace(60, 3.0), reserve=0.0) == 160 + 3940
    assert steps_by_the_clock(clocked, done=Pace(160, 103.0), recent=Pace(60, 1.0), reserve=0.0) == 300, "too early"
