"""A queue of requests and one worker thread, which translates texts of several requests in one batch.

Only the worker runs the models. A request submits jobs: texts to translate with one search, or one sentence to inspect. Jobs
with equal `Translate` values share batches. Jobs take turns text by text within a batch, and different values take turns
batch by batch, so that a long document does not delay a short sentence. The queue is bounded by tokens and by requests; if
it is full, `FullError` says when to try again.

A batch is formed when its oldest text has waited a few milliseconds, or as soon as it is full. Under load, texts wait for
the previous batch anyway, so that this wait costs nothing.
"""

import logging
import math
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from regard.errors import UserError
from regard.inspection.look import MOST_SUBWORDS, Question, look, look_at_head
from regard.model.trace import Head
from regard.serve.measurements import Measurements
from regard.serve.request_parsing import RefusalError
from regard.serve.settings import Queue
from regard.settings import Json
from regard.translate.search import BatchSize, Search
from regard.translate.translation import Translation
from regard.translate.translator import DEFAULT_SEARCH, SourceText, Translator

BATCHES_THAT_MAY_WAIT = 16
BATCHES_AT_FIRST = 4  # that may wait until the speed is known
LONGEST_RETRY = 30  # seconds
PROBE = "1"  # a text that every run has translated once, when it was loaded
CHARACTERS_A_TOKEN = 3  # roughly; encoding the text would block the event loop

FAULT = "something went wrong here; the server's log has more"
log = logging.getLogger("regard.serve")


class FullError(RefusalError):
    """The queue is full."""

    def __init__(self, retry_after: int) -> None:
        super().__init__(429, "the server is overloaded at the moment; try again", {"Retry-After": str(retry_after)})
        self.retry_after = retry_after


class TooLargeError(RefusalError):
    """A request is too large to be answered in time, even alone."""

    def __init__(self) -> None:
        super().__init__(413, "this is more than can be translated in time; send less at once")


class ClosedError(RefusalError):
    """The server is stopping."""

    def __init__(self) -> None:
        super().__init__(503, "the server is stopping", {"Retry-After": "5"})


class FaultError(RefusalError):
    """A fault of regard occurred, which has been counted and logged."""

    def __init__(self) -> None:
        super().__init__(500, FAULT)


@dataclass(frozen=True)
class Translate:
    """A run and a search, with which texts are to be translated. Jobs with equal values share batches."""

    run: str
    translator: Translator
    search: Search

    @property
    def weight(self) -> float:
        """The cost of a token, relative to one of a default search."""
        return max(self.search.num_candidates, DEFAULT_SEARCH.beam) / DEFAULT_SEARCH.beam


@dataclass(frozen=True)
class Look:
    """A sentence, or one head, to inspect. Jobs with equal values share one answer."""

    run: str
    translator: Translator
    question: Question
    head: Head | None = None

    weight = 4.0  # the search and a forward pass are recorded


Want = Translate | Look


class QueuedText(NamedTuple):
    """One text of a job."""

    job: "Job"
    place: int
    source: SourceText | None  # None for a `Look`
    num_tokens: int
    cost: float  # tokens, weighted by the cost of the search
    counted: float  # of the bound of the queue


@dataclass(eq=False)
class Job:
    """Texts whose answers make one future."""

    future: "Future[list[Any]]"
    num_texts: int
    counted: float  # of the bound of the queue: the sum over `waiting`
    arrived: float
    waiting: deque[QueuedText] = field(default_factory=deque)
    found: dict[int, Any] = field(default_factory=dict)

    def claim(self) -> bool:
        """Return whether it still needs an answer; if so, it can no longer be cancelled."""
        return not self.future.done() and self.future.set_running_or_notify_cancel()


class Batcher:
    """The queue and its worker."""

    def __init__(self, queue: Queue, suitable_tokens: int, measurements: Measurements) -> None:
        self.batch_tokens = queue.batch_tokens or suitable_tokens
        self.queue_tokens = queue.queue_tokens or BATCHES_THAT_MAY_WAIT * self.batch_tokens
        self.queue = queue
        self.measurements = measurements
        self._jobs: OrderedDict[Want, deque[Job]] = OrderedDict()
        self._waiting = 0.0  # tokens
        self._has_cancelled = False  # cancelled jobs are removed when the queue is full
        self._changed = threading.Condition()
        self._is_closed = False
        self._is_broken = False
        self._worker = threading.Thread(target=self._work, name="translator", daemon=True)
        self._worker.start()

    def translate(self, want: Translate, sources: Sequence[SourceText], *, among: int = 1) -> "Future[list[Translation]]":
        """Return a future of the translations of encoded texts, in their order. Cancel the future to give them up. A request
        makes `among` such calls."""
        return self._submit(want, sources, [max(1, source.num_tokens) for source in sources], among)

    def look(self, want: Look) -> "Future[list[Json]]":
        """Return a future of a list of one answer. Its cost is estimated from the number of characters."""
        return self._submit(want, [None], [1 + min(MOST_SUBWORDS, len(want.question.text) // CHARACTERS_A_TOKEN)])

    @property
    def is_able(self) -> bool:
        """Whether it can translate: False after a fault that `PROBE` also causes, until something is translated again."""
        return self._worker.is_alive() and not self._is_closed and not self._is_broken

    def turned_away(self) -> int:
        """Return after how many seconds to try again if not even one token fits into the queue, or else 0."""
        with self._changed:
            return self._retry_after() if self._is_full(0.0) else 0

    def waiting(self) -> dict[str, float]:
        """Return gauges for `/metrics`."""
        with self._changed:
            num_jobs = sum(map(len, self._jobs.values()))
            return {"queue_tokens": self._waiting, "queue_tokens_limit": self._bound(), "queue_requests": float(num_jobs)}

    def close(self, timeout: float) -> bool:
        """Refuse new jobs, finish those that wait, and return whether that was done in time."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        self._worker.join(timeout)
        return not self._worker.is_alive()

    def _submit(
        self, want: Want, sources: Sequence[SourceText | None], num_tokens: Sequence[int], among: int = 1
    ) -> "Future[list[Any]]":
        future: Future[list[Any]] = Future()
        if not sources:
            future.set_result([])
            return future
        whole = sum(num_tokens) * want.weight
        if whole > self._most_tokens():
            raise TooLargeError
        # Count at most half of the queue, or a request larger than the queue would never be accepted.
        counted = min(whole, self._bound() / 2 / among)
        job = Job(future, len(sources), counted, time.monotonic())
        job.waiting.extend(
            QueuedText(job, place, source, count, count * want.weight, count * want.weight * counted / whole)
            for place, (source, count) in enumerate(zip(sources, num_tokens, strict=True))
        )
        with self._changed:
            if self._is_closed:
                raise ClosedError
            if self._is_full(counted):
                raise FullError(self._retry_after())
            self._waiting += counted
            self._jobs.setdefault(want, deque()).append(job)
            self._changed.notify_all()
        future.add_done_callback(self._note_end)
        return future

    def _note_end(self, future: "Future[list[Any]]") -> None:
        self._has_cancelled = self._has_cancelled or future.cancelled()

    def _is_full(self, more: float) -> bool:
        """Return whether so many tokens more would exceed the bounds, after cancelled jobs are removed."""
        if self._is_beyond_bounds(more) and self._has_cancelled:
            self._remove_cancelled()
        return self._is_beyond_bounds(more)

    def _is_beyond_bounds(self, more: float) -> bool:
        has_many = sum(map(len, self._jobs.values())) >= self.queue.queue_requests
        return has_many or (self._waiting > 0 and self._waiting + max(more, 1.0) > self._bound())

    def _bound(self) -> float:
        """Return the number of tokens that may wait: as many as are translated in time, and at least one batch."""
        speed = self.measurements.tokens_per_second
        in_time = speed * self.queue.patience_seconds if speed else BATCHES_AT_FIRST * self.batch_tokens
        return float(min(self.queue_tokens, max(self.batch_tokens, in_time)))

    def _most_tokens(self) -> float:
        """Return the number of tokens that cannot be translated in time, even if large batches were several times as fast as
        the recent ones."""
        speed = self.measurements.tokens_per_second
        return max(8 * speed * self.queue.patience_seconds, BATCHES_AT_FIRST * self.batch_tokens) if speed else math.inf

    def _retry_after(self) -> int:
        speed = self.measurements.tokens_per_second
        return min(LONGEST_RETRY, max(1, math.ceil(self._waiting / speed))) if speed else 1

    def _remove_cancelled(self) -> None:
        self._has_cancelled = False
        for want in list(self._jobs):
            self._keep(want, [job for job in self._jobs[want] if not job.future.done()])

    def _keep(self, want: Want, jobs: Sequence[Job]) -> None:
        """Replace the waiting jobs of a want by some of them."""
        kept = set(jobs)
        self._waiting -= sum(job.counted for job in self._jobs[want] if job not in kept)
        if jobs:
            self._jobs[want] = deque(jobs)
        else:
            del self._jobs[want]
        if not self._jobs:
            self._waiting = 0.0  # without rounding errors

    # The methods below run in the worker thread.

    def _work(self) -> None:
        while True:
            taken: list[QueuedText] = []
            try:
                if (batch := self._next_batch()) is None:
                    return
                want, taken = batch
                if taken:
                    self._do(want, taken)
            except Exception:
                self._note_fault("the queue is emptied")
                self._fail_all(taken)

    def _next_batch(self) -> tuple[Want, list[QueuedText]] | None:
        """Wait for the next batch; return None if the queue is closed and empty."""
        with self._changed:
            while not self._jobs:
                if self._is_closed:
                    return None
                self._changed.wait()
            want = next(iter(self._jobs))
            if isinstance(want, Translate):
                self._wait_for_others(want)
            taken = self._take(want) if want in self._jobs else []
            if want in self._jobs:
                self._jobs.move_to_end(want)
            return want, taken

    def _wait_for_others(self, want: Want) -> None:
        until = self._jobs[want][0].arrived + self.queue.wait_seconds
        while not self._is_closed and (left := until - time.monotonic()) > 0:
            if sum(job.counted for job in self._jobs.get(want, ())) >= self.batch_tokens:
                return
            self._changed.wait(left)

    def _take(self, want: Want) -> list[QueuedText]:
        """Take a text of each job in turn until the batch is full, and at least one unless all jobs are over."""
        taken: list[QueuedText] = []
        cost = 0.0
        turns = deque(self._jobs[want])
        while turns:
            job = turns.popleft()
            if job.future.done():
                continue
            if taken and cost + job.waiting[0].cost > self.batch_tokens:
                turns.appendleft(job)
                break
            text = job.waiting.popleft()
            job.counted -= text.counted
            self._waiting -= text.counted
            taken.append(text)
            cost += text.cost
            if job.waiting:
                turns.append(job)
        self._keep(want, turns)
        return taken

    def _do(self, want: Want, taken: Sequence[QueuedText]) -> None:
        """Answer a batch; if that raises an exception, answer its texts one by one."""
        began = time.monotonic()
        try:
            answers = list(zip(taken, self._answers(want, taken), strict=True))
        except Exception as error:
            if len(taken) > 1:  # one text may have caused it
                report = log.warning if isinstance(error, UserError) else self._note_fault
                report(f"{len(taken)} texts could not be translated together, so one by one")
                for text in taken:
                    self._do(want, [text])
            elif isinstance(error, UserError):
                self._fail(taken[0].job, error)
            else:
                self._note_fault("a text could not be translated")
                self._is_broken = not self._can_translate(want.translator)
                self._fail(taken[0].job, FaultError())
            return
        self._is_broken = False
        seconds = time.monotonic() - began
        if isinstance(want, Translate):
            num_tokens = sum(text.num_tokens for text in taken)
            self.measurements.add_batch(want.run, len(taken), num_tokens, sum(text.cost for text in taken), seconds)
        else:  # one look for all
            self.measurements.add_look(want.run, taken[0].cost, seconds)
        for (job, place, *_), answer in answers:
            job.found[place] = answer
            if len(job.found) == job.num_texts and job.claim():
                job.future.set_result([job.found[n] for n in range(job.num_texts)])

    def _answers(self, want: Want, taken: Sequence[QueuedText]) -> Sequence[Any]:
        if isinstance(want, Translate):
            sources = [text.source for text in taken if text.source is not None]
            size = BatchSize(tokens=max(1, int(self.batch_tokens / want.weight)))
            found = dict(want.translator.translate_encoded(sources, want.search, batch=size))
            return [found[number] for number in range(len(taken))]
        if want.head is not None:
            return [look_at_head(want.translator, want.question, want.head)] * len(taken)
        return [look(want.translator, want.question)] * len(taken)

    def _can_translate(self, translator: Translator) -> bool:
        try:
            return bool(translator.translate([PROBE]))
        except Exception:
            self._note_fault("nothing can be translated")
            return False

    def _note_fault(self, message: str) -> None:
        """Count and log the exception that is being handled."""
        self.measurements.add_fault()
        log.exception(message)

    def _fail_all(self, taken: Sequence[QueuedText]) -> None:
        with self._changed:
            jobs = [*(text.job for text in taken), *(job for jobs in self._jobs.values() for job in jobs)]
            self._jobs.clear()
            self._waiting = 0.0
        for job in jobs:
            self._fail(job, FaultError())

    @staticmethod
    def _fail(job: Job, error: Exception) -> None:
        if job.claim():
            job.future.set_exception(error)
