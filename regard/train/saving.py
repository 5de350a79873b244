"""Writing checkpoints and the weights that translate; with a GPU, in a thread beside the updates."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from torch import Tensor

import regard
from regard.config import RunConfig
from regard.run.checkpoint import Run, Weights, weights_bytes
from regard.train.page import write_page
from regard.train.validation import Validation


@dataclass(frozen=True)
class Best:
    """The checkpoint that validated best, and how many validations ago that was."""

    step: int
    validation: Validation
    age: int = 0


@dataclass(frozen=True, kw_only=True)
class TrainingState:
    """The progress of a run: the content of a checkpoint's `state.json`."""

    step: int
    place: tuple[int, int]  # of the next batch: epoch and position
    seconds: float = 0.0  # of training so far
    scheduled: bool = True  # False: saved because of a signal
    totals: tuple[float, ...]  # sums since the last line of metrics
    best: Best | None
    metrics_bytes: int  # lengths of the two logs
    timing_bytes: int
    data: tuple[int, ...]  # sizes of the training text
    torch: str  # its version


class Writer:
    """Does work in order: at once, or in a thread while its owner goes on. `wait` raises the first error, after which
    nothing more is written, because it could depend on what is missing."""

    def __init__(self, *, beside: bool) -> None:
        self._thread = ThreadPoolExecutor(1) if beside else None
        self._pending: list[Future[None]] = []
        self._error: BaseException | None = None

    def do(self, work: Callable[[], None]) -> None:
        """Do `work`, which must not read what its owner changes meanwhile."""
        if self._thread is None:
            work()
        else:
            self._pending.append(self._thread.submit(self._attempt, work))

    def wait(self) -> None:
        """Wait until all is written. After an interrupt, `wait` can be called again."""
        while self._pending:
            self._pending[0].result()
            self._pending.pop(0)
        self.raise_error()

    def raise_error(self) -> None:
        """Raise the first error so far, without waiting."""
        if self._error is not None:
            raise self._error

    def _attempt(self, work: Callable[[], None]) -> None:
        if self._error is None:
            try:
                work()
            except BaseException as error:  # raised by `wait`
                self._error = error


def publish_average(run: Run, config: RunConfig, *, step: int, best: int) -> None:
    """Let a run translate with the average of its last checkpoints up to this step, and delete older checkpoints, except
    that of step `best`."""
    tensors, steps = run.averaged_weights(steps_to_average(run, config, step))
    publish_weights(run, config, tensors, Weights("average", steps, step, final=False))
    # At least two, in case the last is damaged; in the beginning, that of step 0 as well.
    last = [0, *_scheduled_steps(run, step)][-max(2, config.train.keep_checkpoints) :]
    for saved in run.saved_steps():
        if saved not in {*last, best}:
            run.delete_checkpoint(saved)
    write_page(run, config)


def publish_weights(run: Run, config: RunConfig, tensors: dict[str, Tensor], weights: Weights) -> None:
    run.publish({"model.safetensors": weights_bytes(tensors)})
    run.write_config(config, weights, regard.__version__)


def steps_to_average(run: Run, config: RunConfig, step: int) -> list[int]:
    return _scheduled_steps(run, step)[-config.train.keep_checkpoints :]


def _scheduled_steps(run: Run, step: int) -> list[int]:
    return [saved for saved in run.saved_steps() if 0 < saved <= step and run.is_scheduled(saved)]
