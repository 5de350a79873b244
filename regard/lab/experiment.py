"""Defines an experiment: a name, the claims it tests, and a function from a `Setting` to a `Result`."""

import platform
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import torch

from regard.lab.finding import Finding
from regard.lab.result import Result
from regard.lab.words import told
from regard.machine.device import num_cores, processor


@dataclass(frozen=True)
class Setting:
    """Settings of an experiment."""

    seed: int = 1  # the first one, if it needs several
    seconds: float = 60.0  # budget of time; training on a corpus ignores it
    device: str = "cpu"
    # For experiments that train on a corpus:
    data: Path | None = None  # the folder of all corpora
    work: Path = Path("runs/lab")  # stores what is trained, so that an interrupted experiment resumes
    jobs: int = 1  # runs at a time
    steps: int = 0  # updates of each; 0: the experiment's default

    def seeds(self, count: int) -> tuple[int, ...]:
        return tuple(range(self.seed, self.seed + count))


@dataclass(frozen=True)
class Experiment:
    name: str
    claims: tuple[str, ...]
    seconds: float  # usual time on a laptop's CPU
    run: Callable[[Setting], Result]
    needs_corpus: bool = False  # trains on a corpus; `all` includes it only with --data


def performed(experiment: Experiment, setting: Setting, command: str) -> Finding:
    """Run the experiment, and return its result in words, with its date, duration, command and machine."""
    date = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    began = time.monotonic()
    finding = told(experiment.name, experiment.claims, experiment.run(setting))
    seconds = round(time.monotonic() - began, 2)
    return replace(finding, seconds=seconds, command=command, machine=finding.machine or machine(setting.device), date=date)


def machine(device: str) -> str:
    """Describe the CPU, the GPU if it is used, and the versions of torch and Python."""
    gpu = f"{torch.cuda.get_device_name(device)} beside " if torch.device(device).type == "cuda" else ""
    cpu = f"{processor()}, {num_cores()} cores, {torch.get_num_threads()} of them used"
    return f"{gpu}{cpu}; torch {torch.__version__}, Python {platform.python_version()}"
