"""Tests that prefetched batches equal those made on demand, in any process."""

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch

from regard.data.loader import AHEAD, Loader, Maker, Worker, begun
from regard.data.stream import Place


@dataclass
class Numbers:
    """A maker that returns the place that was asked for, and the process."""

    made: list[Place] = field(default_factory=list)

    def __call__(self, place: Place) -> tuple[str, int]:
        self.made.append(place)
        return f"{place.epoch}.{place.position}", os.getpid()

    def after(self, place: Place) -> Place:
        return Place(place.epoch, place.position + 1)


@dataclass
class Broken(Numbers):
    """A maker that fails at one place."""

    at: int = 2

    def __call__(self, place: Place) -> tuple[str, int]:
        if place.position == self.at:
            raise ValueError("the text is gone")
        return super().__call__(place)


def taken(loader: Loader[tuple[str, int]], first: Place, count: int) -> list[tuple[str, int]]:
    return [loader.take(Place(first.epoch, first.position + number)) for number in range(count)]


def test_one_after_the_other_and_from_any_place() -> None:
    loader = Loader[tuple[str, int]](Numbers())
    found = taken(loader, Place(0, 0), 3 * AHEAD)
    assert found == [(f"0.{number}", os.getpid()) for number in range(3 * AHEAD)]
    assert loader.take(Place(5, 2))[0] == "5.2"  # as after a measurement, when the state is restored
    assert loader.take(Place(5, 3))[0] == "5.3"
    loader.close()


@pytest.mark.parametrize("num_workers", [0, 2])
def test_an_error_reaches_whoever_takes(num_workers: int) -> None:
    loader = Loader[tuple[str, int]](Broken(), [Worker[tuple[str, int]](Broken) for _ in range(num_workers)])
    taken(loader, Place(0, 0), 2)
    with pytest.raises(ValueError, match="the text is gone"):
        loader.take(Place(0, 2))
    assert loader.take(Place(0, 0))[0] == "0.0"
    loader.close()


def test_it_does_not_run_far_ahead_and_ends_when_closed() -> None:
    threads, make = threading.active_count(), Numbers()
    loader = Loader[tuple[str, int]](make)
    loader.take(Place(0, 0))
    loader.close()
    assert len(make.made) <= AHEAD + 2
    assert threading.active_count() == threads


def workers_of(opened: Callable[[], Maker[tuple[str, int]]], count: int = 3) -> list[Worker[tuple[str, int]]]:
    return [Worker(opened) for _ in range(count)]


@dataclass
class Tensors(Numbers):
    """A maker of tensors, as in a padded batch."""

    def __call__(self, place: Place) -> Any:
        return torch.arange(place.position)


@dataclass
class Endless(Numbers):
    """A maker that takes longer than any test."""

    def __call__(self, place: Place) -> tuple[str, int]:
        time.sleep(3600)
        return super().__call__(place)


def test_processes_make_what_the_thread_would_have_made() -> None:
    make, before = Numbers(), multiprocessing.active_children()
    loader = Loader[tuple[str, int]](make, workers_of(Numbers))
    found = taken(loader, Place(0, 0), 20)
    assert [what for what, _ in found] == [f"0.{number}" for number in range(20)]
    makers = {process for _, process in found}
    assert len(makers) == 3 and os.getpid() not in makers and not make.made
    loader.pause()  # while some have been requested
    assert [what for what, _ in taken(loader, Place(7, 4), 5)] == ["7.4", "7.5", "7.6", "7.7", "7.8"]
    loader.close()
    assert multiprocessing.active_children() == before
    assert loader.take(Place(7, 9)) == ("7.9", os.getpid())
    loader.close()


def test_what_a_lost_process_should_have_made_is_made() -> None:
    """The system may kill a process at any moment when memory runs out."""
    make = Numbers()
    loader = Loader[tuple[str, int]](make, workers_of(Numbers))
    [(_, lost), *_] = found = taken(loader, Place(0, 0), 5)
    os.kill(lost, signal.SIGKILL)
    found += taken(loader, Place(0, 5), 30)
    assert [what for what, _ in found] == [f"0.{number}" for number in range(35)]
    assert lost not in {process for _, process in found[-10:]} and len({process for _, process in found[-10:]}) == 2
    assert loader.num_lost == 1
    loader.close()


def test_tensors_do_not_travel_as_files() -> None:
    """The number of open files is limited to a thousand in a process, and shared memory to megabytes in a container."""
    loader = Loader[Any](Tensors(), workers_of(Tensors, 1))
    found = loader.take(Place(0, 5))
    assert found.tolist() == [0, 1, 2, 3, 4] and not found.is_shared()
    loader.close()


def test_closing_waits_for_nobody() -> None:
    """A second Ctrl-C must not wait for a batch, nor for a process that is still starting."""
    loader, before = Loader[tuple[str, int]](Numbers(), workers_of(Endless, 2)), multiprocessing.active_children()
    threading.Thread(target=loader.take, args=(Place(0, 0),), daemon=True).start()
    while loader._thread is None or not loader._thread.is_alive():
        time.sleep(0.01)
    loader.close()
    assert len(before) >= 2 and not {one.pid for one in before} & {one.pid for one in multiprocessing.active_children()}


def test_as_many_processes_as_there_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: Any) -> None:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(multiprocessing.context.SpawnProcess, "start", refused)
    assert begun(Numbers, 3) == []


def test_signals_to_the_group_do_not_reach_processes_and_they_end_with_their_owner() -> None:
    """Ctrl-C is handled by the training process, which finishes its update and needs batches until then."""
    here, there = multiprocessing.Pipe()
    owner = multiprocessing.get_context("spawn").Process(target=own_a_worker, args=(there,))
    owner.start()
    there.close()  # so that a failing owner is noticed
    worker = here.recv()
    assert os.getpgid(worker) != os.getpgid(owner.pid or 0)
    owner.kill()
    owner.join()
    assert Path(f"/proc/{os.getpid()}/stat").exists(), "who runs is only known on Linux"
    for _ in range(12_000):
        if not is_running(worker):
            return
        time.sleep(0.05)
    pytest.fail("the process outlived its owner")


def own_a_worker(pipe: "multiprocessing.connection.Connection") -> None:
    loader = Loader[tuple[str, int]](Numbers(), workers_of(Numbers, 1))
    pipe.send(loader.take(Place(0, 0))[1])
    time.sleep(3600)


def is_running(process: int) -> bool:
    """Return whether a process runs; a zombie does not."""
    try:
        return Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
