"""TensorBoard's event files, where `tensorboard` is installed; nothing, where it is not."""

from pathlib import Path
from types import TracebackType
from typing import Any


class EventFiles:
    def __init__(self, folder: Path, *, after_step: int, silent: bool = False) -> None:
        """What earlier files say of steps after `after_step` is void: they will be done again."""
        self._writer: Any = None
        if silent:
            return
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            return
        self._writer = SummaryWriter(str(folder), purge_step=after_step + 1)

    def add(self, line: dict[str, Any]) -> None:
        """A line of metrics."""
        if self._writer is not None:
            for name, value in line.items():
                if name != "step":
                    self._writer.add_scalar(name, value, line["step"])

    def __enter__(self) -> "EventFiles":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._writer is not None:
            self._writer.close()
