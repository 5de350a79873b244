"""TensorBoard's event files, if `tensorboard` is installed."""

from pathlib import Path
from typing import Any


class EventFiles:
    def __init__(self, folder: Path, *, after_step: int, silent: bool = False) -> None:
        """Discard what earlier files say of steps after `after_step`, which will be repeated."""
        self._writer: Any = None
        if silent:
            return
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            return
        self._writer = SummaryWriter(str(folder), purge_step=after_step + 1)

    def add(self, line: dict[str, Any]) -> None:
        """Write a line of metrics."""
        if self._writer is not None:
            for name, value in line.items():
                if name != "step":
                    self._writer.add_scalar(name, value, line["step"])

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
