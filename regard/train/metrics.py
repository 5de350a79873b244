"""What training says about itself: sums between two lines, and the files the lines go to."""

import json
import math
import os
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard.train.loss import Loss

TOTAL, NLL, TOKENS, NORM, MAX_NORM, UPDATES, SKIPPED = range(7)


class Totals:
    """Sums over the updates since the last line, on the device, so that no update waits to be written about. An update that
    was skipped, because its gradient was not finite, counts as such and as nothing else."""

    def __init__(self, device: torch.device) -> None:
        precise = torch.float32 if device.type == "mps" else torch.float64  # which Apple's GPUs do not have
        self._sums = torch.zeros(7, dtype=precise, device=device)
        self._losses = torch.zeros(2, dtype=precise, device=device)  # of the update under way

    def add_loss(self, loss: Loss) -> None:
        self._losses += torch.stack([loss.total.detach(), loss.nll.detach()]).to(self._losses.dtype)

    def add_update(self, norm: Tensor, skipped: Tensor, num_tokens: int) -> None:
        """Ends an update."""
        self._sums[TOTAL : NLL + 1] += torch.where((skipped == 0) & self._losses.isfinite().all(), self._losses, 0.0)
        self._losses.zero_()
        finite = torch.where(norm.isfinite(), norm, 0.0).to(self._sums.dtype)
        self._sums[NORM] += finite
        self._sums[MAX_NORM] = torch.maximum(self._sums[MAX_NORM], finite)
        self._sums[UPDATES] += 1
        self._sums[SKIPPED] += skipped
        self._sums[TOKENS] += num_tokens * (1 - skipped)

    @property
    def sums(self) -> Tensor:
        """For processes to add up and for checkpoints to keep."""
        return self._sums

    def to_list(self) -> list[float]:
        numbers: list[float] = self._sums.tolist()
        return numbers

    def restore(self, numbers: list[float]) -> None:
        self._sums.copy_(torch.tensor(numbers, dtype=self._sums.dtype))

    def clear(self) -> None:
        self._sums.zero_()
        self._losses.zero_()


def line_of(totals: list[float]) -> dict[str, Any]:
    """Means over the updates that `totals` is the sum of."""
    tokens = max(1.0, totals[TOKENS])
    learnt_from = max(1.0, totals[UPDATES] - totals[SKIPPED])
    return {
        "loss": totals[TOTAL] / tokens,
        "nll": totals[NLL] / tokens,
        "gradient_norm": totals[NORM] / learnt_from,
        "max_gradient_norm": totals[MAX_NORM],
        "tokens": int(totals[TOKENS]),
        "skipped": int(totals[SKIPPED]),
    }


def perplexity(nll: float) -> float:
    return math.exp(min(nll, 700.0))


def append_line(path: Path, line: dict[str, Any]) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line, allow_nan=False) + "\n")


def read_lines(path: Path) -> list[dict[str, Any]]:
    """All whole lines."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_bytes().decode("utf-8").split("\n")[:-1]]


def size_on_disk(path: Path) -> int:
    """Its length, once all of it is on the disk."""
    if not path.exists():
        return 0
    with path.open("rb") as file:
        os.fsync(file.fileno())
    return path.stat().st_size


def cut_back(path: Path, size: int, *, is_needed: bool) -> None:
    """Forgets what was written after a checkpoint that remembers this size. What is needed must have as much."""
    found = path.stat().st_size if path.exists() else 0
    if is_needed and found < size:
        raise ValueError(f"{path} has lost lines since it was saved; restore it, or delete the run and begin anew")
    if found > size:
        os.truncate(path, size)
