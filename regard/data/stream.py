"""The batches of all epochs of training, each a pure function of its place."""

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
    packed_size,
    padding_share,
)
from regard.data.store import Lines, PairStore, Ragged
from regard.text.tokenizer import Subwords, Tokenizer

LONGER = 2.0  # times BPE-dropout: roughly the share by which it lengthens a text


class Place(NamedTuple):
    """The place of a batch: its position in an epoch."""

    epoch: int
    position: int


def following(epoch: Callable[[int], Sequence[object]], place: Place, count: int) -> tuple[list[Place], Place]:
    """Return the next `count` places, and the one after them."""
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
    """Pairs in batches of up to `batch_tokens` a side: of similar lengths, to be padded, or of any lengths, to be packed."""

    store: PairStore
    tokenizer: Tokenizer
    weights: npt.NDArray[np.float64]  # how often each pair is seen in an epoch
    batch_tokens: int
    seed: int
    bpe_dropout: float = 0.0
    packed: bool = False
    longest: int = 2**20  # tokens a side that the model takes, EOS among them

    @cache  # noqa: B019 - a stream lives as long as its training
    def lengths(self) -> PairLengths:
        return PairLengths.of(self.store.src.lengths, self.store.tgt.lengths)

    @lru_cache(maxsize=2)  # noqa: B019
    def epoch(self, epoch: int) -> list[Indices]:
        pairs = epoch_pairs(self.weights, seed=self.seed, epoch=epoch)
        if self.packed:
            longer = 1 + LONGER * self.bpe_dropout
            room = tuple(int(side / longer) for side in self.packed_size())
            return packed_batches(self.lengths(), pairs, room=room, seed=self.seed, epoch=epoch)
        return epoch_batches(self.lengths(), pairs, batch_tokens=self.batch_tokens, seed=self.seed, epoch=epoch)

    @cache  # noqa: B019
    def packed_size(self) -> tuple[int, int]:
        """Return the most tokens of source and of target in a packed batch."""
        return packed_size(self.lengths(), self.batch_tokens)

    def padding(self, epoch: int) -> float:
        """Return the share of padding in the tokens of an epoch."""
        batches = self.epoch(epoch)
        if not self.packed or not batches:
            return padding_share(self.lengths(), batches)
        real = sum(int(side[np.concatenate(batches)].sum()) for side in (self.lengths().src, self.lengths().tgt))
        return 1.0 - real / (len(batches) * sum(self.packed_size()))

    def following(self, place: Place, count: int) -> tuple[list[Place], Place]:
        return following(self.epoch, place, count)

    def batch(self, place: Place) -> Pairs:
        rows = self.epoch(place.epoch)[place.position]
        if self.bpe_dropout == 0.0:
            return Pairs(self.store.src.take(rows), self.store.tgt.take(rows))
        src_seed, tgt_seed = np.random.SeedSequence([self.seed, *place]).generate_state(2).tolist()
        src_room, tgt_room = self.packed_size() if self.packed else (self.longest, self.longest)
        src = self._resegmented(rows, self.tokenizer.src, self.store.src, self.store.src_text, src_seed, src_room)
        return Pairs(
            src, self._resegmented(rows, self.tokenizer.tgt, self.store.tgt, self.store.tgt_text, tgt_seed, tgt_room)
        )

    def _resegmented(self, rows: Indices, subwords: Subwords, ids: Ragged, text: Lines, seed: int, room: int) -> Ragged:
        """Segment rows with BPE-dropout. A text that would be longer than the model takes, or than a packed batch has room
        for, keeps its segmentation."""
        pairs, most = rows.tolist(), min(room, self.longest)
        found = subwords.encode_with_dropout([text[row] for row in pairs], dropout=self.bpe_dropout, seed=seed)
        return Ragged.of([new if len(new) < most else ids[row].tolist() for new, row in zip(found, pairs, strict=True)])

    def sizes(self) -> list[int]:
        """Return numbers that differ for other text or subwords."""
        return [len(self.store), len(self.store.src.values), len(self.store.tgt.values)]

    def largest(self, epoch: int) -> list[Place]:
        """Return the places of the batches that need most memory: with the most tokens, and with the longest text."""
        lengths = self.lengths()
        longest = longest_of(np.maximum(lengths.src, lengths.tgt), self.epoch(epoch))
        tokens = longest * np.array([len(batch) for batch in self.epoch(epoch)])
        return [Place(epoch, position) for position in sorted({int(np.argmax(tokens)), int(np.argmax(longest))})]
