"""Many requests, one worker: what waits is translated together.

The worker thread owns the models; nobody else runs them. What it is asked is a job: some texts to translate with one search,
or one sentence to look into. Jobs that want the same (`Translate` values that are equal) share batches. Within one, jobs
take turns text by text, and different wants take turns batch by batch, so that a long document does not keep a short
sentence waiting. How much may wait is bounded, by tokens and by requests; beyond, `FullError` says when to come again.

A batch is formed when its oldest text has waited a few milliseconds, or as soon as it is full. Under load it is the batch
before it that texts wait for, and no time is lost.
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

from regard.inspection.look import Json, Question, look, look_at_head
from regard.model.trace import Head
from regard.serve.measurements import Measurements
from regard.serve.settings import Queue
from regard.translate.search import BatchSize, Search
from regard.translate.translation import Translation
from regard.translate.translator import DEFAULT_SEARCH, Translator

BATCHES_THAT_MAY_WAIT = 16
BATCHES_AT_FIRST = 4  # while nobody knows how fast they are translated
LONGEST_RETRY = 30  # seconds
MOST_FAILURES = 5

log = logging.getLogger("regard.serve")


class FullError(Exception):
    """There is too much to do already."""

    def __init__(self, retry_after: int) -> None:
        super().__init__(f"the queue is full; try again in {retry_after} s")
        self.retry_after = retry_after


class HopelessError(Exception):
    """A request that is too large to be answered in time, even alone."""


class ClosedError(Exception):
    """The server is stopping."""


@dataclass(frozen=True)
class Translate:
    """To translate texts with a run. Equal ones share batches."""

    run: str
    translator: Translator
    search: Search

    @property
    def weight(self) -> float:
        """What a token costs, beside one of a usual search."""
        return max(self.search.num_candidates, DEFAULT_SEARCH.beam) / DEFAULT_SEARCH.beam


@dataclass(frozen=True)
class Look:
    """To look into a sentence, or into one head. Equal ones are answered by one look."""

    run: str
    translator: Translator
    question: Question
    head: Head | None = None

    weight = 4.0  # every proposal of the beam is kept, and a pass is written down


Want = Translate | Look


class Piece(NamedTuple):
    """One text of a job."""

    place: int
    text: str
    num_tokens: int
    cost: float  # tokens, weighted by how they are searched
    counted: float  # of what may wait


@dataclass(eq=False)
class Job:
    """What one request waits for."""

    future: "Future[list[Any]]"
    waiting: deque[Piece]
    counted: float  # of what may wait: the sum over its waiting pieces
    arrived: float
    found: dict[int, Any] = field(default_factory=dict)
    num_pieces: int = 0

    @property
    def is_over(self) -> bool:
        """Answered, failed, or given up by who asked."""
        return self.future.done()

    def is_still_wanted(self) -> bool:
        """If so, it can no longer be given up."""
        return not self.is_over and self.future.set_running_or_notify_cancel()


class Taken(NamedTuple):
    """A piece in a batch, and whose it is."""

    job: Job
    piece: Piece


class Batcher:
    def __init__(self, queue: Queue, suitable_tokens: int, measurements: Measurements) -> None:
        self.batch_tokens = queue.batch_tokens or suitable_tokens
        self.queue_tokens = queue.queue_tokens or BATCHES_THAT_MAY_WAIT * self.batch_tokens
        self.queue_requests = queue.queue_requests
        self.wait_seconds = queue.wait_seconds
        self.patience_seconds = queue.patience_seconds
        self.measurements = measurements
        self._jobs: OrderedDict[Want, deque[Job]] = OrderedDict()
        self._waiting = 0.0  # tokens
        self._has_cancelled = False  # jobs that nobody waits for, to be forgotten when room is needed
        self._changed = threading.Condition()
        self._is_closed = False
        self._failures = 0  # in a row
        self._worker = threading.Thread(target=self._work, name="translator", daemon=True)
        self._worker.start()

    def translate(self, want: Translate, texts: Sequence[str], *, among: int = 1) -> "Future[list[Translation]]":
        """Of each text, in their order. Who no longer wants it cancels the future. `among`: in how many such calls a request
        comes."""
        return self._submit(want, texts, among)

    def look(self, want: Look) -> "Future[list[Json]]":
        """One answer, in a list."""
        return self._submit(want, [want.question.text])

    @property
    def is_able(self) -> bool:
        """To translate. A device that failed again and again does not recover."""
        return self._worker.is_alive() and not self._is_closed and self._failures < MOST_FAILURES

    def turned_away(self) -> int:
        """After how many seconds to come again, for someone who has not even said what they want; 0: come in."""
        with self._changed:
            return self._retry_after() if self._is_full(0.0) else 0

    def waiting(self) -> dict[str, float]:
        """For those who watch."""
        with self._changed:
            num_jobs = sum(map(len, self._jobs.values()))
            return {"queue_tokens": self._waiting, "queue_tokens_limit": self._bound(), "queue_requests": float(num_jobs)}

    def close(self, timeout: float) -> bool:
        """Takes nothing more, finishes what waits, and says whether that was done in time."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        self._worker.join(timeout)
        return not self._worker.is_alive()

    def _submit(self, want: Want, texts: Sequence[str], among: int = 1) -> "Future[list[Any]]":
        future: Future[list[Any]] = Future()
        if not texts:
            future.set_result([])
            return future
        num_tokens = [len(ids) + 1 for ids in want.translator.tokenizer.src.encode(list(texts))]
        whole = sum(num_tokens) * want.weight
        if whole > self._hopeless():
            raise HopelessError("this would never be done in time")
        # A request larger than the queue is let in when there is room for half a queue, or it never would be; the other half
        # is for others.
        counted = min(whole, self._bound() / 2 / among)
        pieces = deque(
            Piece(place, text, count, count * want.weight, count * want.weight * counted / whole)
            for place, (text, count) in enumerate(zip(texts, num_tokens, strict=True))
        )
        job = Job(future, pieces, counted, time.monotonic(), num_pieces=len(pieces))
        with self._changed:
            if self._is_closed:
                raise ClosedError("the server is stopping")
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
        """Beyond the bounds, or more than can be done in time: to be sent away is better than to wait in vain."""
        is_full = self._is_beyond_bounds(more)
        if is_full and self._has_cancelled:
            self._forget_the_cancelled()
            is_full = self._is_beyond_bounds(more)
        return is_full

    def _is_beyond_bounds(self, more: float) -> bool:
        if sum(map(len, self._jobs.values())) >= self.queue_requests:
            return True
        return self._waiting > 0 and self._waiting + max(more, 1.0) > self._bound()

    def _bound(self) -> float:
        """Tokens that may wait now; one batch always may."""
        speed = self.measurements.tokens_per_second
        in_time = speed * self.patience_seconds if speed else BATCHES_AT_FIRST * self.batch_tokens
        return float(min(self.queue_tokens, max(self.batch_tokens, in_time)))

    def _hopeless(self) -> float:
        """Tokens of a request that would take many times as long as anyone waits: in large batches, more than four times as
        fast as lately."""
        speed = self.measurements.tokens_per_second
        return max(8 * speed * self.patience_seconds, BATCHES_AT_FIRST * self.batch_tokens) if speed else math.inf

    def _retry_after(self) -> int:
        speed = self.measurements.tokens_per_second
        return min(LONGEST_RETRY, max(1, math.ceil(self._waiting / speed))) if speed else 1

    def _forget_the_cancelled(self) -> None:
        self._has_cancelled = False
        for want in list(self._jobs):
            self._keep(want, [job for job in self._jobs[want] if not job.is_over])

    def _keep(self, want: Want, jobs: Sequence[Job]) -> None:
        """The jobs of a want that still wait."""
        kept = set(jobs)
        self._waiting -= sum(job.counted for job in self._jobs[want] if job not in kept)
        if jobs:
            self._jobs[want] = deque(jobs)
        else:
            del self._jobs[want]
        if not self._jobs:
            self._waiting = 0.0  # exactly, whatever was rounded

    # What follows runs in the worker's thread.

    def _work(self) -> None:
        while (batch := self._next_batch()) is not None:
            want, taken = batch
            if taken:
                self._do(want, taken)

    def _next_batch(self) -> tuple[Want, list[Taken]] | None:
        """None: closed, and nothing is left."""
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
        until = self._jobs[want][0].arrived + self.wait_seconds
        while not self._is_closed and (left := until - time.monotonic()) > 0:
            if sum(job.counted for job in self._jobs.get(want, ())) >= self.batch_tokens:
                return
            self._changed.wait(left)

    def _take(self, want: Want) -> list[Taken]:
        """A text of each job in turn, until the batch is full; at least one."""
        taken: list[Taken] = []
        cost = 0.0
        turns = deque(self._jobs[want])
        waiting: list[Job] = []  # has had its turn and has more
        while turns or waiting:
            if not turns:
                turns, waiting = deque(waiting), []
            job = turns[0]
            if job.is_over:
                turns.popleft()
                continue
            if taken and cost + job.waiting[0].cost > self.batch_tokens:
                break
            turns.popleft()
            piece = job.waiting.popleft()
            job.counted -= piece.counted
            self._waiting -= piece.counted
            taken.append(Taken(job, piece))
            cost += piece.cost
            if job.waiting:
                waiting.append(job)
        self._keep(want, [*turns, *waiting])
        return taken

    def _do(self, want: Want, taken: Sequence[Taken]) -> None:
        began = time.monotonic()
        try:
            found = self._answers(want, [one.piece.text for one in taken])
        except Exception as error:
            if len(taken) > 1:  # whoever it was that failed, the others need not
                log.warning(
                    "%d texts could not be translated together (%s), so one by one", len(taken), type(error).__name__
                )
                for one in taken:
                    self._do(want, [one])
                return
            if not isinstance(error, ValueError):
                self._failures += 1
                log.exception("a text could not be translated")
            self._fail(taken[0].job, error)
            return
        self._failures = 0
        seconds = time.monotonic() - began
        if isinstance(want, Translate):
            num_tokens = sum(one.piece.num_tokens for one in taken)
            self.measurements.add_batch(want.run, len(taken), num_tokens, sum(one.piece.cost for one in taken), seconds)
        else:  # one look, however many wanted it
            self.measurements.add_look(want.run, taken[0].piece.cost, seconds)
        for one, answer in zip(taken, found, strict=True):
            one.job.found[one.piece.place] = answer
            if len(one.job.found) == one.job.num_pieces and one.job.is_still_wanted():
                one.job.future.set_result([one.job.found[place] for place in range(one.job.num_pieces)])

    def _answers(self, want: Want, texts: list[str]) -> Sequence[Any]:
        if isinstance(want, Translate):
            return want.translator.translate(texts, want.search, batch=BatchSize(tokens=self._tokens_for(want)))
        if want.head is not None:
            return [look_at_head(want.translator, want.question, want.head)] * len(texts)
        return [look(want.translator, want.question)] * len(texts)

    def _tokens_for(self, want: Translate) -> int:
        return max(1, int(self.batch_tokens / want.weight))

    @staticmethod
    def _fail(job: Job, error: Exception) -> None:
        if job.is_still_wanted():
            job.future.set_exception(error)
