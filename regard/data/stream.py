"""The batches of training, one after the other through all epochs, each a pure function of its place."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from regard.data.batch import Pairs
from regard.data.batching import (
    Indices,
    PairLengths,
    epoch_batches,
    epoch_pairs,
    longest_of,
    packed_batches,
    packed_room,
    padding_share,
)
from regard.data.store import PairStore, Ragged
from regard.text.tokenizer import Tokenizer

LONGER = 2.0  # times BPE-dropout: about how much longer it makes a text


class Place(NamedTuple):
    """A batch: the `position`-th of an epoch."""

    epoch: int
    position: int


def following(epoch: Callable[[int], Sequence[object]], place: Place, count: int) -> tuple[list[Place], Place]:
    """The next `count` places, and the one after them. Epochs follow each other without a gap."""
    places: list[Place] = []
    while len(places) < count:
        if place.position < len(epoch(place.epoch)):
            places.append(place)
            place = Place(place.epoch, place.position + 1)
        else:  # an epoch may be empty, where all weights are below 1
            place = Place(place.epoch + 1, 0)
    return places, place


@dataclass(frozen=True, eq=False)
class BatchStream:
    """Training text as batches of up to `batch_tokens` a side: of similar lengths, to be padded, or of any, to be packed."""

    store: PairStore
    tokenizer: Tokenizer
    weights: npt.NDArray[np.float64]  # how often each pair is seen in an epoch
    batch_tokens: int
    seed: int
    bpe_dropout: float = 0.0
    packed: bool = False

    @cache  # noqa: B019 - a stream lives as long as its training
    def lengths(self) -> PairLengths:
        return PairLengths.of(self.store.src.lengths, self.store.tgt.lengths)

    @lru_cache(maxsize=2)  # noqa: B019
    def epoch(self, epoch: int) -> list[Indices]:
        pairs = epoch_pairs(self.weights, seed=self.seed, epoch=epoch)
        if self.packed:
            longer = 1 + LONGER * self.bpe_dropout
            room = tuple(int(side / longer) for side in self.room())
            return packed_batches(self.lengths(), pairs, room=room, seed=self.seed, epoch=epoch)
        return epoch_batches(self.lengths(), pairs, batch_tokens=self.batch_tokens, seed=self.seed, epoch=epoch)

    @cache  # noqa: B019
    def room(self) -> tuple[int, int]:
        """Tokens of source and target that a packed batch has room for."""
        return packed_room(self.lengths(), self.batch_tokens)

    def padding(self, epoch: int) -> float:
        """The share of all tokens of an epoch that is padding."""
        batches = self.epoch(epoch)
        if not self.packed or not batches:
            return padding_share(self.lengths(), batches)
        real = sum(int(side[np.concatenate(batches)].sum()) for side in (self.lengths().src, self.lengths().tgt))
        return 1.0 - real / (len(batches) * sum(self.room()))

    def following(self, place: Place, count: int) -> tuple[list[Place], Place]:
        return following(self.epoch, place, count)

    def batch(self, place: Place) -> Pairs:
        rows = self.epoch(place.epoch)[place.position]
        if self.bpe_dropout == 0.0:
            return Pairs(self.store.src.take(rows), self.store.tgt.take(rows))
        pairs = rows.tolist()
        seeds = np.random.SeedSequence([self.seed, *place]).generate_state(2)
        src, tgt = (
            subwords.encode_with_dropout([text[row] for row in pairs], dropout=self.bpe_dropout, seed=int(seed))
            for subwords, text, seed in zip(
                (self.tokenizer.src, self.tokenizer.tgt), (self.store.src_text, self.store.tgt_text), seeds, strict=True
            )
        )
        if self.packed:  # where BPE-dropout makes a text longer than there is room for, it stays as it is
            src, tgt = (
                [new if len(new) < most else ragged[row].tolist() for new, row in zip(side, pairs, strict=True)]
                for side, ragged, most in zip((src, tgt), (self.store.src, self.store.tgt), self.room(), strict=True)
            )
        return Pairs(Ragged.of(src), Ragged.of(tgt))

    def sizes(self) -> list[int]:
        """What text of other content or other subwords would hardly share."""
        return [len(self.store), len(self.store.src.values), len(self.store.tgt.values)]

    def largest(self, epoch: int) -> list[Place]:
        """Where memory will be short if anywhere: an epoch's batch with most tokens, and the one with the longest."""
        lengths = self.lengths()
        longest = longest_of(np.maximum(lengths.src, lengths.tgt), self.epoch(epoch))
        tokens = longest * np.array([len(batch) for batch in self.epoch(epoch)])
        return [Place(epoch, position) for position in sorted({int(np.argmax(tokens)), int(np.argmax(longest))})]
