"""What an experiment is: a name, the claims it puts to the test, and a function from a `Setting` to a `Finding`."""

import platform
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import torch

from regard.lab.finding import Finding, Words
from regard.train.device import num_cores, processor


@dataclass(frozen=True)
class Setting:
    """What an experiment is told. Several seeds are this one and those after it."""

    seed: int = 1
    seconds: float = 60.0  # that it may take; who cannot keep to it does less, and says so; training on a corpus does not
    device: str = "cpu"
    # Of experiments that train on a corpus.
    data: Path | None = None  # the folder of its files
    work: Path = Path("runs/lab")  # where what is trained is kept, so that a second try goes on
    jobs: int = 1  # runs at a time
    steps: int = 0  # updates of each; 0: as the experiment has it

    def seeds(self, count: int) -> tuple[int, ...]:
        return tuple(range(self.seed, self.seed + count))


@dataclass(frozen=True)
class Experiment:
    name: str
    claims: tuple[str, ...]
    about: Words  # in a line, for the list
    seconds: float  # that it takes on a laptop's CPU, when it may; under 10: instant
    run: Callable[[Setting], Finding]
    needs_corpus: bool = False  # it trains on one, for long: not among `all`, unless it is told where that is


def performed(experiment: Experiment, setting: Setting, command: str) -> Finding:
    """What the experiment found, with when, where and how long."""
    date = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    began = time.monotonic()
    finding = experiment.run(setting)
    seconds = time.monotonic() - began
    return replace(
        finding, seconds=round(seconds, 2), command=command, machine=finding.machine or machine(setting.device), date=date
    )


def machine(device: str) -> str:
    """In words: what computed this, and with which torch. Beside a GPU there is always a CPU that did some of it."""
    cores = num_cores()
    cpu = f"{processor()}, {cores} cores, {torch.get_num_threads()} of them used"
    software = f"torch {torch.__version__}, Python {platform.python_version()}"
    if torch.device(device).type == "cuda":
        return f"{torch.cuda.get_device_name(device)} beside {cpu}; {software}"
    return f"{cpu}; {software}"
