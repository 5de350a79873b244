"""The processes that train together: one, or those that torchrun started, on one host or several."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor


@dataclass(frozen=True)
class Processes:
    """The number of this process, and of all. If it is alone, the exchanges below do nothing."""

    rank: int = 0
    local_rank: int = 0  # among those of this host
    count: int = 1

    @property
    def is_main(self) -> bool:
        """Whether this is the process that prepares, writes and reports."""
        return self.rank == 0

    @classmethod
    def from_environment(cls) -> "Processes":
        """Read what torchrun sets."""
        names = ("RANK", "LOCAL_RANK", "WORLD_SIZE")
        return cls(*(int(os.environ[name]) for name in names)) if all(name in os.environ for name in names) else cls()

    @contextmanager
    def joined(self) -> Iterator[None]:
        """Connect the processes by gloo, and GPUs by NCCL. The timeout leaves the main process time to prepare a corpus."""
        if self.count > 1:
            backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
            dist.init_process_group(backend, timeout=timedelta(hours=24))
        try:
            yield
        finally:
            if self.count > 1:
                dist.destroy_process_group()

    def sum(self, tensor: Tensor) -> None:
        """Replace each process's tensor by the sum of all, in place."""
        if self.count > 1:
            dist.all_reduce(tensor)

    def from_main(self, number: int) -> int:
        """Return the main process's number in every process; the others wait until the main process gets here."""
        shared = torch.tensor(number, dtype=torch.int64)
        if self.count > 1:
            dist.broadcast(shared, src=0)
        return int(shared)

    def largest(self, number: int) -> int:
        """Return the largest number of all processes."""
        shared = torch.tensor(number, dtype=torch.int64)
        if self.count > 1:
            dist.all_reduce(shared, op=dist.ReduceOp.MAX)
        return int(shared)
