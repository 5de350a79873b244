"""Tests of plain text for language models: prepared, stored, and read through windows that leave nothing out."""

import itertools
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from regard.config import CorpusConfig, DataConfig, ModelConfig, RunConfig, TrainConfig
from regard.data.batch import TextBatch
from regard.data.prepare import prepare
from regard.data.report import read_report
from regard.data.store import SplitWriter, TextStore
from regard.data.stream import Place
from regard.data.windows import TextStream, Windows
from regard.model.kinds import build
from regard.text.tokenizer import BOS_ID, EOS_ID, PAD_ID, Tokenizer
from regard.train.plan import open_training_text, settled
from regard.train.validation import ValidationWindows, open_validation
from tests.oracles.runs import sentences


def make_store(folder: Path, rows: list[list[int]]) -> TextStore:
    with SplitWriter(folder, "train", {"text": 100}) as writer:
        writer.append(([" ".join(map(str, row)) for row in rows], rows))
    return TextStore.open(folder, "train")


def random_rows(count: int, seed: int = 0) -> list[list[int]]:
    random = np.random.default_rng(seed)
    return [random.integers(4, 100, random.integers(1, 12)).tolist() for _ in range(count)]


def make_stream(
    folder: Path, rows: list[list[int]], *, weight: float = 1.0, context: int = 7, tokens: int = 30
) -> TextStream:
    return TextStream(make_store(folder, rows), np.full(len(rows), weight), context, tokens, seed=3)


def tokens_of(rows: list[list[int]]) -> list[int]:
    return [token for row in rows for token in [BOS_ID, *row, EOS_ID]]


def test_a_window_by_hand(tmp_path: Path) -> None:
    store = make_store(tmp_path, [[10, 11, 12], [20], [30, 31]])
    windows = Windows(store, np.arange(3), context=4)
    # BOS 10 11 12 | EOS BOS 20 EOS | BOS 30 31 (EOS)
    assert len(windows) == 3 and windows.num_tokens == 11
    both = windows.batch([1, 0])
    assert both.ids_in.tolist() == [[EOS_ID, BOS_ID, 20, EOS_ID], [BOS_ID, 10, 11, 12]]
    assert both.ids_out.tolist() == [[PAD_ID, 20, EOS_ID, PAD_ID], [10, 11, 12, EOS_ID]]
    assert both.num_tokens == 6
    last = windows.batch([2])
    assert last.ids_in.tolist() == [[BOS_ID, 30, 31]] and last.ids_out.tolist() == [[30, 31, EOS_ID]]


@pytest.mark.parametrize("context", [1, 2, 7, 64, 10_000])
def test_an_epoch_sees_the_stream_exactly_once(tmp_path: Path, context: int) -> None:
    rows = random_rows(50)
    stream = make_stream(tmp_path, rows, context=context)
    expected = tokens_of(rows)
    seen: dict[int, tuple[list[int], list[int]]] = {}
    for position, numbers in enumerate(stream.epoch(0)):
        batch = stream.batch(Place(0, position))
        assert batch.ids_in.shape == batch.ids_out.shape
        assert batch.ids_in.numel() <= max(30, context), "within the budget, or a single window"
        assert (batch.ids_in != PAD_ID).all()
        for number, ids_in, ids_out in zip(numbers.tolist(), batch.ids_in.tolist(), batch.ids_out.tolist(), strict=True):
            assert number not in seen
            seen[number] = (ids_in, ids_out)
    read = [token for number in sorted(seen) for token in seen[number][0]]
    asked = [token for number in sorted(seen) for token in seen[number][1]]
    assert read == expected[:-1]
    following = expected[1:]
    assert asked == [PAD_ID if token == EOS_ID else after for token, after in zip(read, following, strict=True)]
    assert sum(token != PAD_ID for token in asked) == sum(len(row) + 1 for row in rows), "each text, and its end"


def test_the_order_is_a_function_of_seed_and_epoch(tmp_path: Path) -> None:
    stream = make_stream(tmp_path, random_rows(80))
    again = replace(stream)

    def order(one: TextStream, epoch: int) -> list[list[int]]:
        return [batch.tolist() for batch in one.epoch(epoch)]

    assert order(stream, 1) == order(again, 1)
    assert order(stream, 1) != order(stream, 0) != order(replace(stream, seed=4), 0)
    places, after = stream.following(Place(0, 0), len(stream.epoch(0)) + 1)
    assert places[-1] == Place(1, 0) and after == Place(1, 1)
    one, other = stream.batch(places[5]), again.batch(places[5])
    assert torch.equal(one.ids_in, other.ids_in) and torch.equal(one.ids_out, other.ids_out)


def test_weights_say_how_often_a_text_is_seen(tmp_path: Path) -> None:
    rows = random_rows(40)
    twice = make_stream(tmp_path, rows, weight=2.0)
    assert twice.windows(0).num_tokens == 2 * len(tokens_of(rows)) - 1
    half = replace(twice, weights=np.full(40, 0.5))
    counts = [len(half.windows(epoch).texts) for epoch in range(20)]
    assert 15 < np.mean(counts) < 25 and len(set(counts)) > 1


@pytest.mark.parametrize("weight", [2.0, 2.5, 3.0])
def test_no_text_follows_itself_however_often_it_is_seen(tmp_path: Path, weight: float) -> None:
    """Attention crosses the borders of texts: copying from the same text before would teach nothing."""
    stream = make_stream(tmp_path, random_rows(40), weight=weight)
    numbers = stream.windows(0).texts.tolist()
    assert sorted(set(numbers)) == list(range(40))
    assert all(one != other for one, other in itertools.pairwise(numbers))


def test_the_largest_batch_is_whole(tmp_path: Path) -> None:
    stream = make_stream(tmp_path, random_rows(30))
    (place,) = stream.largest(0)
    assert stream.batch(place).ids_in.shape == (4, 7)


def write(path: Path, *lines: str) -> str:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return str(path)


@pytest.fixture
def config(tmp_path: Path) -> DataConfig:
    texts = sentences(300)
    return DataConfig(
        train=(
            CorpusConfig(text=write(tmp_path / "one.txt", *texts[:200], "", "  ", "a\x01b", texts[0])),
            CorpusConfig(text=write(tmp_path / "two.txt", *texts[200:270]), weight=2.0),
        ),
        valid=CorpusConfig(text=write(tmp_path / "valid.txt", texts[0].upper(), "", *texts[270:])),
        vocab_size=320,
    )


def test_prepared_text_is_the_text_in_its_order(tmp_path: Path, config: DataConfig) -> None:
    texts = sentences(300)
    report = prepare(config, tmp_path / "data")
    store = TextStore.open(tmp_path / "data", "train")
    kept = [*texts[:200], texts[0], *texts[200:270]]  # a text that occurs twice is there twice
    assert [store.text[row] for row in range(len(store))] == kept
    tokenizer = Tokenizer.load(tmp_path / "data")
    assert tokenizer.is_shared and len(tokenizer.tgt) == report.tgt_vocab_size == 320
    assert [store.ids[row].tolist() for row in range(len(store))] == tokenizer.tgt.encode(kept)
    assert report.splits["train"].dropped == {"empty": 2, "control characters": 1}
    assert [corpus["pairs"] for corpus in report.corpora] == [201, 70]
    leaked = sum(text in kept for text in texts[270:])
    assert report.to_json()["leakage"] == {"texts": 31, "exact": leaked, "near": leaked + 1}, "the first one is in capitals"
    assert report.splits["train"].sides["text"].tokens == sum(map(len, tokenizer.tgt.encode(kept)))
    assert json.loads(json.dumps(read_report(tmp_path / "data")))["splits"]["train"]["kept"] == 271
    assert not list(tmp_path.glob("data/spool*")) and not list(tmp_path.glob(".*"))


def test_text_and_pairs_are_not_taken_for_each_other(tmp_path: Path, config: DataConfig) -> None:
    prepare(config, tmp_path / "data")
    tokenizer = Tokenizer.load(tmp_path / "data")
    language, translator = (ModelConfig.preset("tiny", vocab_size=320, kind=kind) for kind in ("language", "transformer"))
    with pytest.raises(ValueError, match="holds plain text, but a model of kind transformer learns from pairs"):
        open_training_text(tmp_path / "data", translator, TrainConfig(), tokenizer)
    stream = open_training_text(tmp_path / "data", language, TrainConfig(batch_tokens=600), tokenizer)
    assert isinstance(stream, TextStream) and stream.context == 256
    assert stream.weights.tolist() == [1.0] * 201 + [2.0] * 70
    train = settled(TrainConfig(batch_tokens=600), stream, 1)
    assert train.accumulation == 1, "no padding, so nothing to cut an update for"
    lengths = stream.lengths()
    assert lengths.tgt.sum() == stream.windows(0).num_tokens and set(lengths.tgt[:-1].tolist()) == {256}


def test_validation_is_the_mean_over_all_tokens_but_those_after_an_end(tmp_path: Path) -> None:
    rows = random_rows(20)
    model = build(ModelConfig.preset("tiny", vocab_size=100, kind="language"))
    windows = Windows(make_store(tmp_path, rows), np.arange(20), context=9)
    found = ValidationWindows(windows, batch_tokens=25).validate(model)
    model.eval()
    stream = tokens_of(rows)
    total, count = 0.0, 0
    for start in range(0, len(stream) - 1, 9):
        fed = stream[start : min(start + 9, len(stream) - 1)]
        log_probs = model(torch.tensor([fed]))[0].detach().double().log_softmax(-1)
        for place, token in enumerate(fed):
            if token != EOS_ID:
                total -= float(log_probs[place, stream[start + place + 1]])
                count += 1
    assert found.bleu is None and found.nll == pytest.approx(total / count, rel=1e-5)


@pytest.mark.parametrize(("which", "name"), [("train", "empty.txt"), ("valid", "empty.txt"), ("valid", "blank.txt")])
def test_files_without_text(tmp_path: Path, config: DataConfig, which: str, name: str) -> None:
    (tmp_path / "empty.txt").write_bytes(b"")
    write(tmp_path / "blank.txt", "", "   ")
    corpus = CorpusConfig(text=str(tmp_path / name))
    changed = replace(config, train=(*config.train, corpus)) if which == "train" else replace(config, valid=corpus)
    with pytest.raises(ValueError, match=f"no text in .*{name}"):
        prepare(changed, tmp_path / "data")
    assert not (tmp_path / "data").exists()


def test_a_corpus_is_text_or_pairs() -> None:
    with pytest.raises(ValueError, match=r"a\.txt is plain text and b\.de one of a pair"):
        CorpusConfig(text="a.txt", src="b.de")


def test_open_validation(tmp_path: Path, config: DataConfig) -> None:
    prepare(config, tmp_path / "data")
    tokenizer = Tokenizer.load(tmp_path / "data")
    run = RunConfig(data=config, model=ModelConfig.preset("tiny", vocab_size=320, kind="language"), train=TrainConfig())
    valid = open_validation(run, tmp_path / "data", tokenizer, batch_tokens=2048)
    assert isinstance(valid, ValidationWindows) and valid.windows.context == 256
    sample = valid.sample()
    assert isinstance(sample, TextBatch) and sample.ids_in.shape[1] <= 256
