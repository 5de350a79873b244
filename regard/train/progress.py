"""Progress of training: a bar on a terminal, lines of text elsewhere."""

import resource
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn

from regard.run.metrics import perplexity
from regard.train.validation import Validation


class Display:
    """Messages on stderr, and a bar if that is a terminal; silent unless in the main process."""

    def __init__(self, *, silent: bool = False) -> None:
        self._console = Console(stderr=True, quiet=silent, highlight=False, soft_wrap=True)
        columns = (BarColumn(bar_width=12), TextColumn("{task.description}", markup=False))
        self._progress = Progress(*columns, console=self._console, disable=silent or not self._console.is_terminal)
        self._task = TaskID(0)
        self._steps = self._first_step = 0
        self._began = time.perf_counter()
        self._last_shown = 0.0
        self._loss = self._bleu = self._speed = ""  # the latest, as the bar shows them

    @contextmanager
    def bar(self, steps: int, done: int) -> Iterator[None]:
        self._steps, self._first_step, self._began = steps, done, time.perf_counter()
        self._task = self._progress.add_task(self._description(done), total=steps, completed=done)
        with self._progress:
            yield

    def plan(self, steps: int) -> None:
        """Change the number of steps."""
        self._steps = steps
        self._progress.update(self._task, total=steps)

    def say(self, sentence: str) -> None:
        self._console.out(sentence, highlight=False)

    def warn(self, sentence: str) -> None:
        self._console.out(f"warning: {sentence}", highlight=False)

    def step(self, step: int) -> None:
        """Move the bar after an update, at most ten times a second."""
        now = time.perf_counter()
        if not self._progress.disable and now - self._last_shown > 0.1:
            self._last_shown = now
            self._progress.update(self._task, completed=step, description=self._description(step))

    def doing(self, what: str) -> None:
        """Show in the bar what takes a while between updates."""
        self._progress.update(self._task, description=what)

    def line(self, line: dict[str, Any], speed: float) -> None:
        """Show a line of metrics and the tokens per second: in the bar, or as text if there is none."""
        step, nll, amount = line["step"], line["nll"], memory_bytes() / 2**20
        memory = f"{amount / 1024:.1f} GiB" if amount >= 1024 else f"{amount:.0f} MiB"
        self._loss = f" loss {nll:.2f} ppl {perplexity(nll):,.1f}"
        self._speed = f" {speed:,.0f} tok/s {memory}"
        if not self._progress.disable:
            self.step(step)
        else:
            self.say(
                f"step {step:,}/{self._steps:,}  loss {nll:.3f}  perplexity {perplexity(nll):,.2f}  "
                f"lr {line['learning_rate']:.2e}  {speed:,.0f} tokens/s  {self._time_left(step)} left  {memory}"
            )

    def validation(self, step: int, found: Validation, *, is_best: bool) -> None:
        self._bleu = "" if found.bleu is None else f" BLEU {found.bleu:.1f}"
        score = "" if found.bleu is None else f"  BLEU {found.bleu:.2f}"
        best = "  (the best so far)" if is_best else ""
        self.say(f"step {step:,}  validation loss {found.nll:.3f}  perplexity {found.perplexity:,.2f}{score}{best}")

    def _description(self, step: int) -> str:
        """The text beside the bar, within eighty columns and with the least important at the end."""
        return f"{step:,}/{self._steps:,} {self._time_left(step)} left{self._loss}{self._bleu}{self._speed}"

    def _time_left(self, step: int) -> str:
        done = step - self._first_step
        return duration((time.perf_counter() - self._began) / done * (self._steps - step)) if done else "?"


def duration(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"


def memory_bytes() -> int:
    """The most memory that this process has had: of the GPU if it uses one, else main memory."""
    if torch.cuda.is_available() and torch.cuda.max_memory_allocated():
        return torch.cuda.max_memory_allocated()
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
