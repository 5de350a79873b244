"""Devices: find one, synchronise with it, and report that its memory is too small."""

import os
import platform
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import torch

from regard.errors import UserError


def find_device(name: str, local_rank: int = 0) -> torch.device:
    """The device of this name; "auto" is a GPU if there is one. Each process of a host takes a GPU of its own."""
    if name == "auto" and not torch.cuda.is_available():
        name = "cpu"
    if name in ("auto", "cuda"):
        name = f"cuda:{local_rank}"
    try:
        device = torch.device(name)
        torch.zeros(1, device=device).tolist()  # fails on "meta"
    except (RuntimeError, AssertionError) as error:
        raise UserError(f"the device {name!r} is not available here; try --device cpu") from error
    if device.type == "cuda":
        torch.cuda.set_device(device)
    return device


def num_cores() -> int:
    """The number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def processor() -> str:
    """The name of the CPU."""
    with suppress(OSError):
        if model := re.search(r"^model name\s*: (.+)", Path("/proc/cpuinfo").read_text(encoding="utf-8"), re.MULTILINE):
            return model[1]
    return platform.processor() or platform.machine()


def be_deterministic() -> None:
    """Choose CUDA kernels that always compute the same sums, which costs speed. Call it before the first matrix product."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True)


def is_short_of_memory(error: RuntimeError | MemoryError) -> bool:
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or "allocate memory" in str(error)


@contextmanager
def advice_on_memory(advice: str) -> Iterator[None]:
    """Turn an error about memory into a sentence with advice."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not is_short_of_memory(error):
            raise
        raise UserError(f"a batch does not fit into memory; {advice}") from error


def synchronize(device: torch.device) -> None:
    """Wait until the device has finished its work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()
