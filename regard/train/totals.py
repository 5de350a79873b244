"""Sums over the updates between two lines of metrics."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from regard.train.loss import Loss

TOTAL, NLL, TOKENS, NORM, MAX_NORM, UPDATES, SKIPPED = range(7)


class Totals:
    """Sums over the updates since the last line, kept on the device to avoid a host sync in each update. An update that was
    skipped, because its gradient was not finite, counts only as skipped."""

    def __init__(self, device: torch.device) -> None:
        precise = torch.float32 if device.type == "mps" else torch.float64  # Apple's GPUs have no float64
        self.sums = torch.zeros(7, dtype=precise, device=device)
        self._losses = torch.zeros(2, dtype=precise, device=device)  # of the current update

    def add_loss(self, loss: Loss) -> None:
        self._losses += torch.stack([loss.total.detach(), loss.nll.detach()]).to(self._losses.dtype)

    def add_update(self, norm: Tensor, skipped: Tensor, num_tokens: int) -> None:
        """Add the losses of an update, now that it is done."""
        self.sums[TOTAL : NLL + 1] += torch.where((skipped == 0) & self._losses.isfinite().all(), self._losses, 0.0)
        self._losses.zero_()
        finite = torch.where(norm.isfinite(), norm, 0.0).to(self.sums.dtype)
        self.sums[NORM] += finite
        self.sums[MAX_NORM] = torch.maximum(self.sums[MAX_NORM], finite)
        self.sums[UPDATES] += 1
        self.sums[SKIPPED] += skipped
        self.sums[TOKENS] += num_tokens * (1 - skipped)

    def to_list(self) -> list[float]:
        numbers: list[float] = self.sums.tolist()
        return numbers

    def restore(self, numbers: Sequence[float]) -> None:
        self.sums.copy_(torch.tensor(numbers, dtype=self.sums.dtype))

    def clear(self) -> None:
        self.sums.zero_()
        self._losses.zero_()


def line_of(totals: list[float]) -> dict[str, Any]:
    """The metrics of the updates that were summed into `totals`."""
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
