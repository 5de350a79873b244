"""Tests of the batches of training: every pair once an epoch, and the same from any starting place."""

from dataclasses import replace

import numpy as np
import pytest

from regard.data.batch import Batch
from regard.data.store import Lines, PairStore, Ragged
from regard.data.stream import BatchStream, Place
from regard.text.tokenizer import EOS_ID, PAD_ID, Subwords, Tokenizer, learn_subwords

WORDS = "der die das Haus Maus Hund house mouse dog läuft runs schnell".split()


def make_stream(num_pairs: int = 300, bpe_dropout: float = 0.0, weight: float = 1.0) -> BatchStream:
    random = np.random.default_rng(4)
    texts = [[" ".join(random.choice(WORDS, random.integers(1, 9))) for _ in range(num_pairs)] for _ in range(2)]
    subwords = Subwords(learn_subwords(texts[0] + texts[1], 320))
    sides = []
    for side in texts:
        rows = subwords.encode(side)
        lines = [f"{text}\n".encode() for text in side]
        ids = np.concatenate(rows).astype(np.uint16)
        starts = np.cumsum([0, *map(len, rows)])
        text = np.frombuffer(b"".join(lines), dtype=np.uint8)
        sides.append((Ragged(ids, starts), Lines(text, np.cumsum([0, *map(len, lines)]))))
    (src, src_text), (tgt, tgt_text) = sides
    store = PairStore(src, tgt, src_text, tgt_text)
    return BatchStream(
        store, Tokenizer(subwords, subwords), np.full(num_pairs, weight), batch_tokens=100, seed=7, bpe_dropout=bpe_dropout
    )


def texts_of(stream: BatchStream, batch: Batch) -> list[str]:
    return [stream.tokenizer.tgt.decode([token for token in row if token != EOS_ID]) for row in batch.tgt_out.tolist()]


@pytest.mark.parametrize("bpe_dropout", [0.0, 0.2])
def test_every_pair_is_seen_once_in_each_epoch(bpe_dropout: float) -> None:
    stream = make_stream(bpe_dropout=bpe_dropout)
    everything = sorted(stream.store.tgt_text[row] for row in range(300))
    orders = []
    for epoch in (0, 1):
        places = [Place(epoch, position) for position in range(len(stream.epoch(epoch)))]
        seen = [text for place in places for text in texts_of(stream, stream.batch(place).padded())]
        assert sorted(seen) == everything
        orders.append(seen)
    assert orders[0] != orders[1]


@pytest.mark.parametrize("bpe_dropout", [0.0, 0.2])
def test_it_can_begin_anywhere(bpe_dropout: float) -> None:
    """Use updates of three batches across the border of two epochs; another stream begins in the middle."""
    stream = make_stream(bpe_dropout=bpe_dropout)
    place = Place(0, 0)
    path = []
    for _ in range(20):
        places, place = stream.following(place, 3)
        path.append((places, place))
    assert {at.epoch for places, _ in path for at in places} > {0, 1}
    in_a_row = [at for places, _ in path for at in places]
    assert in_a_row == sorted(set(in_a_row))
    fresh = make_stream(bpe_dropout=bpe_dropout)
    places, after = fresh.following(path[6][1], 3)
    assert (places, after) == path[7]
    for at in places:
        one, other = stream.batch(at).padded(), fresh.batch(at).padded()
        assert one.src.tolist() == other.src.tolist() and one.tgt_out.tolist() == other.tgt_out.tolist()


def test_bpe_dropout_cuts_anew_each_epoch() -> None:
    stream = make_stream(bpe_dropout=0.3)
    lengths = []
    for epoch in (0, 1, 2):
        batches = [stream.batch(Place(epoch, position)) for position in range(len(stream.epoch(epoch)))]
        lengths.append(sum(batch.num_tokens for batch in batches))
    assert len(set(lengths)) > 1
    assert min(lengths) > int(stream.store.tgt.lengths.sum()) + 300


def test_an_epoch_may_be_empty() -> None:
    stream = make_stream(num_pairs=3, weight=0.2)
    places, _ = stream.following(Place(0, 0), 5)
    assert len(places) == 5 and len({at.epoch for at in places}) > 1


def test_the_largest_batches_are_known() -> None:
    stream = make_stream()
    sizes = [stream.batch(Place(0, position)).padded().src.numel() for position in range(len(stream.epoch(0)))]
    tried = [stream.batch(place).padded() for place in stream.largest(0)]
    assert max(max(batch.src.numel(), batch.tgt_in.numel()) for batch in tried) >= 0.9 * max(sizes)
    longest = max(stream.batch(Place(0, position)).padded().src.shape[1] for position in range(len(stream.epoch(0))))
    assert max(max(batch.src.shape[1], batch.tgt_in.shape[1]) for batch in tried) >= longest


@pytest.mark.parametrize("bpe_dropout", [0.0, 0.3, 0.9])
def test_packed_batches_hold_what_there_is_room_for(bpe_dropout: float) -> None:
    """BPE-dropout makes texts longer; none becomes longer than a whole batch, which has room for the longest text."""
    stream = replace(make_stream(bpe_dropout=bpe_dropout), packed=True, batch_tokens=1)
    seen: list[str] = []
    for position in range(len(stream.epoch(0))):
        batch = stream.batch(Place(0, position)).padded()
        for ids, most in zip((batch.src, batch.tgt_out), stream.packed_size(), strict=True):
            assert int((ids != PAD_ID).sum(1).max()) <= most
        seen += texts_of(stream, batch)
    assert sorted(seen) == sorted(stream.store.tgt_text[row] for row in range(len(stream.store)))


def test_an_epoch_without_pairs_has_no_padding() -> None:
    stream = replace(make_stream(weight=1e-9), packed=True)
    assert stream.epoch(0) == [] and stream.padding(0) == 0.0


@pytest.mark.parametrize("bpe_dropout", [0.3, 0.9])
def test_no_batch_is_longer_than_the_model_takes(bpe_dropout: float) -> None:
    """A text that BPE-dropout makes too long is not changed, wherever a stream begins."""
    plain = make_stream()
    longest = int(max(plain.lengths().src.max(), plain.lengths().tgt.max()))
    stream = replace(make_stream(bpe_dropout=bpe_dropout), longest=longest)
    unbounded, places = make_stream(bpe_dropout=bpe_dropout), [Place(0, n) for n in range(len(stream.epoch(0)))]
    widest = max(unbounded.batch(place).padded().tgt_in.shape[1] for place in places)
    assert widest > longest, "or there is nothing to see here"
    for place in places:
        bounded, free = stream.batch(place), unbounded.batch(place)
        assert max(bounded.src.lengths.max(), bounded.tgt.lengths.max()) + 1 <= longest
        for row, store_row in enumerate(stream.epoch(0)[place.position].tolist()):
            for side, other, store in ((bounded.src, free.src, stream.store.src), (bounded.tgt, free.tgt, stream.store.tgt)):
                expected = other[row] if len(other[row]) + 1 <= longest else store[store_row]
                assert side[row].tolist() == expected.tolist()
