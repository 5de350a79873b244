"""Batches made ahead of time, so that a GPU need not wait for them: by a thread, or by processes where that takes long.

A batch depends on its place alone, not on who makes it or when. The thread makes the batches of a process that is lost.
"""

import multiprocessing
import os
import pickle
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from queue import Full, Queue
from typing import Generic, NamedTuple, Protocol, TypeVar, runtime_checkable

from regard.data.stream import Place

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
AHEAD = 4  # updates
PATIENCE = 0.1  # seconds between two checks whether to stop


@runtime_checkable
class Maker(Protocol[T_co]):
    """Makes the batches of one update, and says where the next update begins."""

    def __call__(self, place: Place) -> T_co: ...
    def after(self, place: Place) -> Place: ...


class Made(NamedTuple, Generic[T]):
    """The batches of the update that begins at a place, or the error that was raised instead."""

    place: Place
    what: T | None
    error: BaseException | None


class Worker(Generic[T]):
    """A process with a maker of its own, which it opens itself: the data are too large to send."""

    def __init__(self, opened: Callable[[], Maker[T]]) -> None:
        context = multiprocessing.get_context("spawn")  # a process that has used a GPU must not be forked
        self._pipe, its_pipe = context.Pipe()
        self._process = context.Process(target=_serve, args=(opened, its_pipe), daemon=True)
        with _without_interrupts():
            self._process.start()
        its_pipe.close()  # so that the pipe ends with the process
        self.is_lost = False

    def ask(self, place: Place) -> None:
        try:
            self._pipe.send(place)
        except OSError:
            self.is_lost = True

    def answer(self) -> T | None:
        """Return what was asked for, or None if the process is lost."""
        try:
            what: T = pickle.loads(self._pipe.recv_bytes())
        except Exception:
            self.is_lost = True
            return None
        return what

    def kill(self) -> None:
        """Kill the process, which only reads, so that nobody waits for its answer."""
        self._process.kill()

    def end(self) -> None:
        self._process.join()
        self._pipe.close()


def begun(opened: Callable[[], Maker[T]], count: int) -> list[Worker[T]]:
    """Start `count` workers, or as many as the system allows."""
    workers: list[Worker[T]] = []
    with suppress(OSError):
        while len(workers) < count:
            workers.append(Worker(opened))
    return workers


@contextmanager
def _without_interrupts() -> Iterator[None]:
    """Start processes that ignore Ctrl-C: their owner handles it, and needs batches until its update is done."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _serve(opened: Callable[[], Maker[T]], pipe: Connection) -> None:
    """Answer until the other end of the pipe is closed. After an error the owner makes the batch, and raises the error."""
    os.setsid()  # signals to the owner's process group are for the owner
    with suppress(Exception):
        make = opened()
        while True:
            # As bytes: torch would send a tensor as shared memory and a file descriptor, both of which are limited.
            pipe.send_bytes(pickle.dumps(make(pipe.recv()), protocol=5))


class Loader(Generic[T]):
    """Takes batches made ahead by workers, or by a thread if there are none."""

    def __init__(self, make: Maker[T], workers: Sequence[Worker[T]] = ()) -> None:
        self._make = make
        self._workers = list(workers)
        self._queue: Queue[Made[T]] = Queue(AHEAD)
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def num_lost(self) -> int:
        """The number of workers that ended too early."""
        return sum(worker.is_lost for worker in self._workers)

    def take(self, place: Place) -> T:
        """Return the batches of the update that begins here; restart if the last update did not end here."""
        if self._thread is None:
            self._begin(place)
        made = self._queue.get()
        if made.place != place:
            self.pause()
            self._begin(place)
            made = self._queue.get()
        if made.error is not None:
            self.pause()
            raise made.error
        assert made.what is not None
        return made.what

    def pause(self) -> None:
        """Make no more batches until one is taken."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        self._thread = None
        self._queue = Queue(AHEAD)
        self._stop = threading.Event()

    def close(self) -> None:
        """End the workers. The thread makes batches that are taken later."""
        self._stop.set()
        for worker in self._workers:
            worker.kill()
        self.pause()
        for worker in self._workers:
            worker.end()
        self._workers = []

    def _begin(self, place: Place) -> None:
        workers = [worker for worker in self._workers if not worker.is_lost]
        arguments = (place, self._make, workers, self._queue, self._stop)
        self._thread = threading.Thread(target=_work, args=arguments, daemon=True)
        self._thread.start()


def _work(place: Place, make: Maker[T], workers: list[Worker[T]], queue: "Queue[Made[T]]", stop: threading.Event) -> None:
    idle, ahead = deque(workers), place
    asked: deque[Worker[T]] = deque()  # for one update each, from `place` up to `ahead`
    while not stop.is_set():
        try:
            while idle:
                idle[0].ask(ahead)
                asked.append(idle.popleft())  # even if it is lost, which its answer will show
                ahead = make.after(ahead)
            what = None
            if asked:
                worker = asked.popleft()
                what = worker.answer()
                if not worker.is_lost:
                    idle.append(worker)
                elif stop.is_set():
                    break
            made = Made(place, make(place) if what is None else what, None)
            place = make.after(place)
            ahead = max(ahead, place)
        except BaseException as error:  # `take` raises it
            made = Made(place, None, error)
        while not stop.is_set():
            with suppress(Full):
                queue.put(made, timeout=PATIENCE)
                break
        if made.error is not None:
            break
    for worker in asked:  # discard what was asked for, so that the next thread does not receive it
        worker.answer()
