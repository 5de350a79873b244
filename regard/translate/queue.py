"""Many sentences through a few places: as soon as some are done, those that wait take their places.

The device is never waited for. A step's flags, who is done, are looked at while the next step runs; a place whose sentence
is done computes in vain until then, and changes nothing. What was found is copied when its place is needed, and read while
the device goes on.
"""

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from regard.search.hypothesis import Hypothesis
from regard.translate.rig import Encoded, Extent, Rig, Sentence, positions_for, power_of_two

LAG = 1  # steps that are under way while the flags of the one before are looked at
REFILLED_AT_ONCE = 8  # a refill costs about as much as a step of few sentences: so many in the time of a full turnover
ENCODED_TOKENS = 16384  # at once, padding counted
FEWEST_PLACES = 8  # below, a step takes no less time
FEWEST_KEYS = 32


class Arrival(NamedTuple):
    """A copy to the host that is under way."""

    table: Tensor
    event: torch.cuda.Event | None

    def wait(self) -> Tensor:
        if self.event is not None:
            self.event.synchronize()
        return self.table


class Flags(NamedTuple):
    """Who was where in a step, and which places were done after it."""

    step: int
    flying: dict[int, int]
    is_done: Arrival


class Notes(NamedTuple):
    """What a board wrote down about some sentences, and in how many steps."""

    sentences: list[int]
    num_steps: list[int]
    table: Arrival


class Queue:
    """One search of many sentences. The longest are first, so that those which are under way together are alike."""

    def __init__(self, rig: Rig, sentences: Sequence[Sentence], *, num_places: int, alpha: float) -> None:
        assert num_places <= rig.extent.num_places
        self.rig = rig
        self.sentences = sentences
        self.num_places = num_places
        self.alpha = alpha
        self.waiting = deque(sorted(range(len(sentences)), key=lambda number: -len(sentences[number].ids)))
        self.encoded: Encoded | None = None
        self.rows: deque[tuple[int, int]] = deque()  # of `encoded` that have no place yet: the row, the sentence
        self.flying: dict[int, int] = {}  # places, and the sentences there that are not known to be done
        self.landed: dict[int, tuple[int, int]] = {}  # places of those that are; the sentence, its steps
        self.places: dict[int, int] = {}  # the other way round: each flying sentence's
        self.began: dict[int, int] = {}  # the step before which each sentence came
        self.step = 0
        self.flags: deque[Flags] = deque()
        self.notes: list[Notes] = []
        self.found: list[list[Hypothesis]] = [[] for _ in sentences]

    def run(self) -> list[list[Hypothesis]]:
        """Each sentence's hypotheses, the best first."""
        self.rig.begin(self.alpha)
        while self.waiting or self.rows or self.flying:
            self._refill()
            self._close_ranks()
            self.rig.step(self._window())
            self.step += 1
            self._ask()
            self._read()
            if len(self.flags) > LAG:
                self._learn(self.flags.popleft())
        self._hand_in()
        self._read()
        return self.found

    def _refill(self) -> None:
        """Where enough places are free to be worth it."""
        num_free = self.num_places - len(self.flying)
        enough = max(1, self.num_places // REFILLED_AT_ONCE)
        if not (self.waiting or self.rows) or (self.flying and num_free < enough):
            return
        self._hand_in()
        free = [place for place in range(self.num_places) if place not in self.flying]
        while free and (self.waiting or self.rows):
            if not self.rows:
                self._encode()
            assert self.encoded is not None
            taken = [self.rows.popleft() for _ in range(min(len(free), len(self.rows)))]
            places, free = free[: len(taken)], free[len(taken) :]
            rows, numbers = [row for row, _ in taken], [number for _, number in taken]
            self.rig.fill(places, self.encoded, rows, [self.sentences[number] for number in numbers])
            for place, number in zip(places, numbers, strict=True):
                self.flying[place], self.places[number], self.began[number] = number, place, self.step

    def _encode(self) -> None:
        """The next of those that wait: as many as there are places, or fewer where they are long."""
        num_tokens = len(self.sentences[self.waiting[0]].ids) + 1
        count = min(len(self.waiting), self.num_places, max(1, ENCODED_TOKENS // num_tokens))
        numbers = [self.waiting.popleft() for _ in range(count)]
        self.encoded = self.rig.encode([self.sentences[number] for number in numbers])
        self.rows.extend(enumerate(numbers))

    def _close_ranks(self) -> None:
        """When nobody waits any more, those that are left move together, so that a step has fewer places."""
        if self.waiting or self.rows or not self.flying:
            return
        enough = max(FEWEST_PLACES, power_of_two(len(self.flying)))
        if 2 * enough > power_of_two(max(self.flying) + 1):
            return
        self._hand_in()
        sources = [place for place in self.flying if place >= enough]
        targets = [place for place in range(enough) if place not in self.flying][: len(sources)]
        self.rig.move(sources, targets)
        for source, target in zip(sources, targets, strict=True):
            number = self.flying.pop(source)
            self.flying[target], self.places[number] = number, target

    def _window(self) -> Extent:
        """What the next step has to touch, in few different sizes: each is a graph of its own."""
        room = self.rig.extent
        num_positions = self.step - min(self.began[number] for number in self.flying.values()) + 1
        num_keys = max(len(self.sentences[number].ids) + 1 for number in self.flying.values())
        return Extent(
            num_places=min(power_of_two(max(self.flying) + 1), self.num_places),
            num_positions=positions_for(num_positions, room.num_positions),
            num_keys=min(max(FEWEST_KEYS, power_of_two(num_keys)), room.num_keys),
        )

    def _ask(self) -> None:
        self.flags.append(Flags(self.step, dict(self.flying), self._arriving(self.rig.board.is_done)))

    def _learn(self, flags: Flags) -> None:
        is_done = flags.is_done.wait().tolist()
        for place, number in flags.flying.items():
            if is_done[place] and number in self.places:
                now = self.places.pop(number)  # it may have moved since
                del self.flying[now]
                self.landed[now] = (number, flags.step - self.began[number])

    def _hand_in(self) -> None:
        """Takes the notes of all that are known to be done, before others come to their places."""
        if not self.landed:
            return
        numbers, num_steps = (list(column) for column in zip(*self.landed.values(), strict=True))
        places = self.rig.to_device(torch.tensor(list(self.landed)))
        self.notes.append(Notes(numbers, num_steps, self._arriving(self.rig.board.notes[places, : max(num_steps)])))
        self.landed.clear()

    def _read(self) -> None:
        for notes in self.notes:
            for number, num_steps, table in zip(notes.sentences, notes.num_steps, notes.table.wait(), strict=True):
                self.found[number] = self.rig.board.read(table[:num_steps].tolist(), self.alpha)
        self.notes.clear()

    def _arriving(self, table: Tensor) -> Arrival:
        if table.device.type != "cuda":
            return Arrival(table.clone(), None)
        copy = torch.empty(table.shape, dtype=table.dtype, pin_memory=True).copy_(table, non_blocking=True)
        event = torch.cuda.Event()
        event.record(torch.cuda.current_stream(table.device))
        return Arrival(copy, event)
