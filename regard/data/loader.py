"""Batches made ahead of time, so that a GPU never waits for them: by a thread, or by processes where that takes long.

What is made depends on the place alone, whoever makes it and when. So a process that is gone is no harm: what it should have
made is made by the thread.
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
PATIENCE = 0.1  # seconds between two looks at whether anyone still wants more


@runtime_checkable
class Maker(Protocol[T_co]):
    """Makes what one update needs, and says where the next one begins."""

    def __call__(self, place: Place) -> T_co: ...
    def after(self, place: Place) -> Place: ...


class Made(NamedTuple, Generic[T]):
    """What was made for one update, from which place on; or what went wrong."""

    place: Place
    what: T | None
    error: BaseException | None


class Worker(Generic[T]):
    """A process with a maker of its own, which it opens itself: what that reads is too large to be sent."""

    def __init__(self, opened: Callable[[], Maker[T]]) -> None:
        context = multiprocessing.get_context("spawn")  # whoever has talked to a GPU must not be forked
        self._pipe, its_pipe = context.Pipe()
        self._process = context.Process(target=_serve, args=(opened, its_pipe), daemon=True)
        with _without_interrupts():
            self._process.start()
        its_pipe.close()  # that of the process is the only one, so that its end is the end of the pipe
        self.is_lost = False

    def ask(self, place: Place) -> None:
        try:
            self._pipe.send(place)
        except OSError:
            self.is_lost = True

    def answer(self) -> T | None:
        """None if the process is lost, for whatever reason: it will not be asked again."""
        try:
            what: T = pickle.loads(self._pipe.recv_bytes())
        except Exception:
            self.is_lost = True
            return None
        return what

    def kill(self) -> None:
        """Now: it only reads, and whoever waits for its answer shall not wait."""
        self._process.kill()

    def end(self) -> None:
        self._process.join()
        self._pipe.close()


def begun(opened: Callable[[], Maker[T]], count: int) -> list[Worker[T]]:
    """So many workers, or as many as there may be: a container may have no room for another process."""
    workers: list[Worker[T]] = []
    with suppress(OSError):
        while len(workers) < count:
            workers.append(Worker(opened))
    return workers


@contextmanager
def _without_interrupts() -> Iterator[None]:
    """What begins in here never hears a Ctrl-C: that is for its owner, who needs batches until its update is done."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _serve(opened: Callable[[], Maker[T]], pipe: Connection) -> None:
    """Until the other end of the pipe is closed, or its owner is killed. What goes wrong here goes wrong there as well, and
    is said there."""
    os.setsid()  # other signals to a launcher's group are for the owner, too
    with suppress(Exception):
        make = opened()
        while True:
            # As bytes: torch would send a tensor as shared memory and a file descriptor, of which there are few.
            pipe.send_bytes(pickle.dumps(make(pipe.recv()), protocol=5))


class Loader(Generic[T]):
    """Without workers, a thread makes them."""

    def __init__(self, make: Maker[T], workers: Sequence[Worker[T]] = ()) -> None:
        self._make = make
        self._workers = list(workers)
        self._queue: Queue[Made[T]] = Queue(AHEAD)
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def num_lost(self) -> int:
        """Workers that make nothing any more, though nobody has ended them."""
        return sum(worker.is_lost for worker in self._workers)

    def take(self, place: Place) -> T:
        """For the update that begins here. Elsewhere than where the last one ended, it begins anew."""
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
        """Makes no more until something is taken again."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        self._thread = None
        self._queue = Queue(AHEAD)
        self._stop = threading.Event()

    def close(self) -> None:
        """For good; what is taken after that, a thread makes."""
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
    asked: deque[Worker[T]] = deque()  # each for one thing at a time: the first for `place`, and so on up to `ahead`
    while not stop.is_set():
        try:
            while idle:
                idle[0].ask(ahead)
                asked.append(idle.popleft())  # and if it is lost, its answer says so
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
        except BaseException as error:  # whoever takes it raises it
            made = Made(place, None, error)
        while not stop.is_set():
            try:
                queue.put(made, timeout=PATIENCE)
                break
            except Full:
                continue
        if made.error is not None:
            break
    for worker in asked:  # so that who begins anew is not given these
        worker.answer()
