"""What a run keeps: checkpoints, and the weights that translate. On a GPU they are written beside the updates."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from torch import Tensor

import regard
from regard.checkpoint import Run, Weights, weights_bytes
from regard.config import RunConfig
from regard.train.page import write_page


class Writer:
    """Writes in the order in which it is asked to: at once, or by a thread while its owner goes on. Whoever waits gets the
    error if something went wrong; nothing is written after that, for it would build on what is missing."""

    def __init__(self, *, beside: bool) -> None:
        self._thread = ThreadPoolExecutor(1) if beside else None
        self._pending: list[Future[None]] = []
        self._error: BaseException | None = None

    def do(self, work: Callable[[], None]) -> None:
        """`work` must not look at what its owner changes meanwhile."""
        if self._thread is None:
            work()
        else:
            self._pending.append(self._thread.submit(self._attempt, work))

    def wait(self) -> None:
        """Until all is written. Who is interrupted here may come again: what is under way is still remembered."""
        while self._pending:
            self._pending[0].result()
            self._pending.pop(0)
        self.raise_error()

    def raise_error(self) -> None:
        """What went wrong so far, if anything did; waits for nothing."""
        if self._error is not None:
            raise self._error

    def _attempt(self, work: Callable[[], None]) -> None:
        if self._error is None:
            try:
                work()
            except BaseException as error:  # whoever waits raises it
                self._error = error


def publish_average(run: Run, config: RunConfig, *, step: int, best: int) -> None:
    """The average of the last checkpoints up to this step becomes what translates, and those that are no longer needed go;
    the one that validated best is, until a better one comes."""
    tensors, steps = run.averaged_weights(steps_to_average(run, config, step))
    publish_weights(run, config, tensors, Weights("average", steps, step, final=False))
    # Two at least, so that there is one before a damaged one; at the beginning, that of step 0.
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
