"""Continuous batching: each place of a batch takes the next sentence as soon as its own is done.

A place is the row of a batch that one sentence occupies. A step needs no host sync: its flags, which mark the sentences that
are done, are read while the next step runs. Until then, a place whose sentence is done goes on computing, and its results
are discarded. The notes of finished sentences are copied when their places are needed, and read while the device goes on.
"""

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from regard.fast.decoding.decoder import Encoded, Extent, StaticDecoder, positions_for, power_of_two
from regard.search.hypothesis import Hypothesis, Sentence

LAG = 1  # steps that are launched before the flags of the step before them are read
REFILLED_AT_ONCE = 8  # refills while all places change once; each costs about as much as a step of few sentences
ENCODED_TOKENS = 16384  # tokens to encode at once, padding included
FEWEST_PLACES = 8  # with fewer, a step takes no less time
FEWEST_KEYS = 32


class Arrival(NamedTuple):
    """A pending copy to the host."""

    table: Tensor
    event: torch.cuda.Event | None

    def wait(self) -> Tensor:
        if self.event is not None:
            self.event.synchronize()
        return self.table


class Flags(NamedTuple):
    """The sentence in each place during a step, and the places that were done after it."""

    step: int
    active: dict[int, int]
    is_done: Arrival


class PendingNotes(NamedTuple):
    """The notes of finished sentences, on their way to the host, and the number of steps of each."""

    sentences: list[int]
    num_steps: list[int]
    table: Arrival


class ContinuousBatching:
    """One search over many sentences, the longest first, so that those in one batch have similar lengths."""

    def __init__(self, decoder: StaticDecoder, sentences: Sequence[Sentence], *, num_places: int, alpha: float) -> None:
        assert num_places <= decoder.extent.num_places
        self.decoder = decoder
        self.sentences = sentences
        self.num_places = num_places
        self.alpha = alpha
        self.waiting = deque(sorted(range(len(sentences)), key=lambda number: -len(sentences[number].ids)))
        self.encoded: Encoded | None = None
        self.rows: deque[tuple[int, int]] = deque()  # rows of `encoded` without a place yet, and their sentences
        self.active: dict[int, int] = {}  # the sentence in each place that is not known to be done
        self.finished: dict[int, tuple[int, int]] = {}  # the sentence in each place that is done, and its number of steps
        self.began: dict[int, int] = {}  # the step before which each sentence took its place
        self.step = 0
        self.flags: deque[Flags] = deque()
        self.notes: list[PendingNotes] = []
        self.found: list[list[Hypothesis]] = [[] for _ in sentences]

    def run(self) -> list[list[Hypothesis]]:
        """Search, and return each sentence's hypotheses, the best first."""
        self.decoder.begin(self.alpha)
        while self.waiting or self.rows or self.active:
            self._refill()
            self._compact()
            self.decoder.step(self._window())
            self.step += 1
            self.flags.append(Flags(self.step, dict(self.active), self._arriving(self.decoder.state.is_done)))
            self._read()
            if len(self.flags) > LAG:
                self._finish(self.flags.popleft())
        self._copy_notes()
        self._read()
        return self.found

    def _refill(self) -> None:
        """Put waiting sentences into free places if enough places are free."""
        num_free = self.num_places - len(self.active)
        enough = max(1, self.num_places // REFILLED_AT_ONCE)
        if not (self.waiting or self.rows) or (self.active and num_free < enough):
            return
        self._copy_notes()
        free = [place for place in range(self.num_places) if place not in self.active]
        while free and (self.waiting or self.rows):
            if not self.rows:
                self._encode()
            assert self.encoded is not None
            taken = [self.rows.popleft() for _ in range(min(len(free), len(self.rows)))]
            places, free = free[: len(taken)], free[len(taken) :]
            rows, numbers = [row for row, _ in taken], [number for _, number in taken]
            self.decoder.fill(places, self.encoded, rows, [self.sentences[number] for number in numbers])
            for place, number in zip(places, numbers, strict=True):
                self.active[place], self.began[number] = number, self.step

    def _encode(self) -> None:
        """Encode the next waiting sentences: as many as there are places, or fewer if they are long."""
        num_tokens = len(self.sentences[self.waiting[0]].ids) + 1
        count = min(len(self.waiting), self.num_places, max(1, ENCODED_TOKENS // num_tokens))
        numbers = [self.waiting.popleft() for _ in range(count)]
        self.encoded = self.decoder.encode([self.sentences[number] for number in numbers])
        self.rows.extend(enumerate(numbers))

    def _compact(self) -> None:
        """Move the active sentences to the first places once no sentence waits, so that a step has fewer places."""
        if self.waiting or self.rows or not self.active:
            return
        enough = max(FEWEST_PLACES, power_of_two(len(self.active)))
        if 2 * enough > power_of_two(max(self.active) + 1):
            return
        self._copy_notes()
        sources = [place for place in self.active if place >= enough]
        targets = [place for place in range(enough) if place not in self.active][: len(sources)]
        self.decoder.move(sources, targets)
        for source, target in zip(sources, targets, strict=True):
            self.active[target] = self.active.pop(source)

    def _window(self) -> Extent:
        """Return the part of the decoder that the next step uses, in one of few sizes, since each size needs a graph."""
        room = self.decoder.extent
        num_positions = self.step - min(self.began[number] for number in self.active.values()) + 1
        num_keys = max(len(self.sentences[number].ids) + 1 for number in self.active.values())
        return Extent(
            num_places=min(power_of_two(max(self.active) + 1), self.num_places),
            num_positions=positions_for(num_positions, room.num_positions),
            num_keys=min(max(FEWEST_KEYS, power_of_two(num_keys)), room.num_keys),
        )

    def _finish(self, flags: Flags) -> None:
        """Move the sentences that are done from `active` to `finished`."""
        is_done = flags.is_done.wait().tolist()
        places = {number: place for place, number in self.active.items()}  # sentences may have moved since
        for place, number in flags.active.items():
            if is_done[place] and number in places:
                del self.active[places[number]]
                self.finished[places[number]] = (number, flags.step - self.began[number])

    def _copy_notes(self) -> None:
        """Start copying the notes of finished sentences before others take their places."""
        if not self.finished:
            return
        numbers, num_steps = (list(column) for column in zip(*self.finished.values(), strict=True))
        places = self.decoder.to_device(torch.tensor(list(self.finished)))
        self.notes.append(
            PendingNotes(numbers, num_steps, self._arriving(self.decoder.state.notes[places, : max(num_steps)]))
        )
        self.finished.clear()

    def _read(self) -> None:
        for notes in self.notes:
            for number, num_steps, table in zip(notes.sentences, notes.num_steps, notes.table.wait(), strict=True):
                self.found[number] = self.decoder.state.read(table[:num_steps].tolist(), self.alpha)
        self.notes.clear()

    def _arriving(self, table: Tensor) -> Arrival:
        if table.device.type != "cuda":
            return Arrival(table.clone(), None)
        copy = torch.empty(table.shape, dtype=table.dtype, pin_memory=True).copy_(table, non_blocking=True)
        event = torch.cuda.Event()
        event.record(torch.cuda.current_stream(table.device))
        return Arrival(copy, event)
