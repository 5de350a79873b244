"""Batches made ahead of time, so that a GPU never waits for them: by a thread, or by processes where that takes long.

What is made depends on the place alone, whoever makes it and when. So a process that is gone is no harm: what it should have
made is made by the thread.
"""

import multiprocessing
import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from queue import Full, Queue
from typing import Generic, NamedTuple, Protocol, TypeVar, runtime_checkable

from regard.data.stream import Place

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
AHEAD = 4  # updates
PATIENCE = 0.1  # seconds between two looks at whether anyone still wants more
GRACE = 10.0  # seconds that a process has to end


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
        self._process.start()
        its_pipe.close()  # that of the process is the only one, so that its end is the end of the pipe

    def ask(self, place: Place) -> bool:
        try:
            self._pipe.send(place)
        except OSError:
            return False
        return True

    def answer(self) -> T | None:
        """None if the process is gone."""
        try:
            what: T = self._pipe.recv()
        except (EOFError, OSError):
            return None
        return what

    def end(self) -> None:
        self._pipe.close()
        self._process.join(GRACE)
        self._process.kill()
        self._process.join()


def _serve(opened: Callable[[], Maker[T]], pipe: Connection) -> None:
    """Until the other end of the pipe is closed, or its owner is killed. Signals to a terminal's or a launcher's group are
    for the owner, who stops when its update is done; and what goes wrong here will go wrong there as well, and be said."""
    if hasattr(os, "setsid"):
        os.setsid()
    with suppress(Exception):
        make = opened()
        while True:
            pipe.send(make(pipe.recv()))


class Loader(Generic[T]):
    """Without workers, a thread makes them."""

    def __init__(self, make: Maker[T], workers: Sequence[Worker[T]] = ()) -> None:
        self._make = make
        self._workers = list(workers)
        self._queue: Queue[Made[T]] = Queue(AHEAD)
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

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
        self.pause()
        while self._workers:
            self._workers.pop().end()

    def _begin(self, place: Place) -> None:
        arguments = (place, self._make, self._workers, self._queue, self._stop)
        self._thread = threading.Thread(target=_work, args=arguments, daemon=True)
        self._thread.start()


def _work(place: Place, make: Maker[T], workers: list[Worker[T]], queue: "Queue[Made[T]]", stop: threading.Event) -> None:
    idle, ahead = deque(workers), place
    asked: deque[Worker[T]] = deque()  # each for one thing at a time: the first for `place`, and so on up to `ahead`
    while not stop.is_set():
        try:
            while idle:
                worker = idle.popleft()
                if worker.ask(ahead):  # who cannot be asked is gone
                    asked.append(worker)
                    ahead = make.after(ahead)
            what = None
            if asked:
                worker = asked.popleft()
                what = worker.answer()
                if what is not None:
                    idle.append(worker)
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
