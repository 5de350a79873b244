"""What a person sees while a model learns: a bar on a terminal, plain lines elsewhere."""

import resource
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn

from regard.train.metrics import perplexity
from regard.train.validation import Validation


class Display:
    """Talks on stderr; a process that is not the main one is silent."""

    def __init__(self, *, silent: bool = False) -> None:
        self._console = Console(stderr=True, quiet=silent, highlight=False, soft_wrap=True)
        columns = (BarColumn(bar_width=12), TextColumn("{task.description}", markup=False))
        self._progress = Progress(*columns, console=self._console, disable=silent or not self._console.is_terminal)
        self._task = TaskID(0)
        self._steps = self._first_step = 0
        self._began = time.perf_counter()
        self._last_shown = 0.0
        self._last_loss = self._last_bleu = self._last_speed = ""

    @contextmanager
    def bar(self, steps: int, done: int) -> Iterator[None]:
        """While it lasts, a terminal has a bar."""
        self._steps, self._first_step, self._began = steps, done, time.perf_counter()
        self._task = self._progress.add_task(self._description(done), total=steps, completed=done)
        with self._progress:
            yield

    def plan(self, steps: int) -> None:
        """Another number of steps than there was to be."""
        self._steps = steps
        self._progress.update(self._task, total=steps)

    def say(self, sentence: str) -> None:
        self._console.out(sentence, highlight=False)

    def warn(self, sentence: str) -> None:
        self._console.out(f"warning: {sentence}", highlight=False)

    def step(self, step: int) -> None:
        """After every update; a person sees no more than ten a second."""
        now = time.perf_counter()
        if not self._progress.disable and now - self._last_shown > 0.1:
            self._last_shown = now
            self._progress.update(self._task, completed=step, description=self._description(step))

    def doing(self, what: str) -> None:
        """Something that is no update and takes a while."""
        self._progress.update(self._task, description=what)

    def line(self, step: int, *, nll: float, learning_rate: float, tokens_per_second: float) -> None:
        """A line of metrics: into the bar, or printed where there is none."""
        self._last_loss = f" loss {nll:.2f} ppl {perplexity(nll):,.1f}"
        self._last_speed = f" {tokens_per_second:,.0f} tok/s {memory_text()}"
        if not self._progress.disable:
            self.step(step)
        else:
            self.say(
                f"step {step:,}/{self._steps:,}  loss {nll:.3f}  perplexity {perplexity(nll):,.2f}  "
                f"lr {learning_rate:.2e}  {tokens_per_second:,.0f} tokens/s  {self._time_left(step)} left  {memory_text()}"
            )

    def validation(self, step: int, validation: Validation, *, is_best: bool) -> None:
        self._last_bleu = "" if validation.bleu is None else f" BLEU {validation.bleu:.1f}"
        score = "" if validation.bleu is None else f"  BLEU {validation.bleu:.2f}"
        best = "  (the best so far)" if is_best else ""
        self.say(
            f"step {step:,}  validation loss {validation.nll:.3f}  perplexity {validation.perplexity:,.2f}{score}{best}"
        )

    def _description(self, step: int) -> str:
        """Eighty columns with the bar; what matters least comes last."""
        left = self._time_left(step)
        return f"{step:,}/{self._steps:,} {left} left{self._last_loss}{self._last_bleu}{self._last_speed}"

    def _time_left(self, step: int) -> str:
        done = step - self._first_step
        if not done:
            return "?"
        return duration((time.perf_counter() - self._began) / done * (self._steps - step))


def duration(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"


def memory_bytes() -> int:
    """The most this process has had: of the GPU where it uses one, else of main memory."""
    if torch.cuda.is_available() and torch.cuda.max_memory_allocated():
        return torch.cuda.max_memory_allocated()
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def memory_text() -> str:
    amount = memory_bytes() / 2**20
    return f"{amount / 1024:.1f} GiB" if amount >= 1024 else f"{amount:.0f} MiB"
