"""Where the arithmetic happens."""

import os
import platform
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import torch

OLDEST_GPU = (8, 0)  # whose matrix units know bfloat16


def find_device(name: str, local_rank: int = 0) -> torch.device:
    """The device of this name; "auto" is a GPU where there is one. Processes of one host take its GPUs in turn."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cuda":
        name = f"cuda:{local_rank}"
    try:
        device = torch.device(name)
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as error:
        raise ValueError(f"the device {name!r} is not to be had here; try --device cpu") from error
    if device.type == "cuda":
        torch.cuda.set_device(device)
    return device


@cache
def runs_kernels(device: torch.device) -> bool:
    """An NVIDIA GPU that is not too old does where Triton is and can compile, for which it needs a C compiler: the smallest
    kernel is tried. A CPU does only where Triton interprets them, which is slow, and for tests."""
    if find_spec("triton") is None:
        return False
    if device.type != "cuda":
        return device.type == "cpu" and os.environ.get("TRITON_INTERPRET") == "1"
    if torch.version.hip or torch.cuda.get_device_capability(device) < OLDEST_GPU:
        return False
    from regard.kernels.sums import add_column_sums

    try:
        add_column_sums(torch.ones(1, 8, device=device), torch.zeros(8, device=device))
    except Exception:  # whatever it is, torch's own kernels do as well
        return False
    return True


def num_cores() -> int:
    """That this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def processor() -> str:
    """What it calls itself."""
    try:
        models = re.findall(r"^model name\s*: (.+)", Path("/proc/cpuinfo").read_text(encoding="utf-8"), flags=re.MULTILINE)
    except OSError:
        models = []
    return models[0] if models else platform.processor() or platform.machine()


def be_deterministic() -> None:
    """CUDA kernels that give the same sums every time, at some cost in speed. Before the first matrix product."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True)


@contextmanager
def advice_on_memory(advice: str) -> Iterator[None]:
    """Running out of memory as a sentence with advice."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:  # torch.OutOfMemoryError is one of the former
        by_the_cpu = "allocate memory" in str(error)
        if not (by_the_cpu or isinstance(error, torch.OutOfMemoryError | MemoryError)):
            raise
        raise ValueError(f"a batch does not fit into memory; {advice}") from error


def synchronize(device: torch.device) -> None:
    """Waits until the device has done what it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()
