"""Batches made ahead of time by a thread, so that a GPU never waits for them."""

import threading
from collections.abc import Callable
from queue import Full, Queue
from typing import Generic, NamedTuple, TypeVar

from regard.data.stream import Place

T = TypeVar("T")
AHEAD = 4  # updates
PATIENCE = 0.1  # seconds between two looks at whether anyone still wants more


class Made(NamedTuple, Generic[T]):
    """What was made for one update, from which place on, and the place after it; or what went wrong."""

    place: Place
    what: T | None
    after: Place
    error: BaseException | None


class Loader(Generic[T]):
    """Calls a function for one update after the other. What that gives depends on the place alone, whoever calls it and
    when."""

    def __init__(self) -> None:
        self._queue: Queue[Made[T]] = Queue(AHEAD)
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def take(self, place: Place, make: Callable[[Place], tuple[T, Place]]) -> tuple[T, Place]:
        """The update that begins here, and the place after it, by `make`, which is always the same and is not kept when this
        is closed. Elsewhere than where the last one ended, it begins anew."""
        if self._thread is None:
            self._begin(place, make)
        made = self._queue.get()
        if made.place != place:
            self.close()
            self._begin(place, make)
            made = self._queue.get()
        if made.error is not None:
            self.close()
            raise made.error
        assert made.what is not None
        return made.what, made.after

    def close(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        self._thread = None
        self._queue = Queue(AHEAD)
        self._stop = threading.Event()

    def _begin(self, place: Place, make: Callable[[Place], tuple[T, Place]]) -> None:
        self._thread = threading.Thread(target=_work, args=(place, make, self._queue, self._stop), daemon=True)
        self._thread.start()


def _work(place: Place, make: Callable[[Place], tuple[T, Place]], queue: "Queue[Made[T]]", stop: threading.Event) -> None:
    while not stop.is_set():
        made: Made[T]
        try:
            what, after = make(place)
            made = Made(place, what, after, None)
        except BaseException as error:  # whoever takes it raises it
            made = Made(place, None, place, error)
        while not stop.is_set():
            try:
                queue.put(made, timeout=PATIENCE)
                break
            except Full:
                continue
        if made.error is not None:
            return
        place = made.after
