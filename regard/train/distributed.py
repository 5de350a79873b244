"""The processes that train together: one, or as many as torchrun started, on one host or several."""

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
    """Who we are among them. Alone, everything here does nothing."""

    rank: int = 0
    local_rank: int = 0  # among those of this host
    count: int = 1

    @property
    def is_main(self) -> bool:
        """The one that prepares, writes and talks."""
        return self.rank == 0

    @classmethod
    def from_environment(cls) -> "Processes":
        """As torchrun tells us."""
        names = ("RANK", "LOCAL_RANK", "WORLD_SIZE")
        return cls(*(int(os.environ[name]) for name in names)) if all(name in os.environ for name in names) else cls()

    @contextmanager
    def joined(self) -> Iterator[None]:
        """Connected through gloo, and through NCCL where there are GPUs."""
        if self.count == 1:
            yield
            return
        backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
        # The main process may prepare a large corpus, or validate, while the others wait.
        dist.init_process_group(backend, timeout=timedelta(hours=24))
        try:
            yield
        finally:
            dist.destroy_process_group()

    def sum(self, tensor: Tensor) -> None:
        """Each process's tensor becomes the sum of all, in place."""
        if self.count > 1:
            dist.all_reduce(tensor)

    def from_main(self, number: int) -> int:
        """The main process's number, told to all. Also how the others wait for it."""
        shared = torch.tensor(number, dtype=torch.int64)
        if self.count > 1:
            dist.broadcast(shared, src=0)
        return int(shared)

    def largest(self, number: int) -> int:
        shared = torch.tensor(number, dtype=torch.int64)
        if self.count > 1:
            dist.all_reduce(shared, op=dist.ReduceOp.MAX)
        return int(shared)
