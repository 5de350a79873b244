"""Tests of preparing files into a folder: every pair accounted for, no leftovers, the same result each time."""

import json
import os
import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from regard.config import CleaningConfig, CorpusConfig, DataConfig
from regard.data import prepare as prepare_module
from regard.data.prepare import prepare, vocab_size_for
from regard.data.report import read_report
from regard.data.store import PairStore, SplitWriter, id_type
from regard.errors import UserError
from regard.text.tokenizer import Tokenizer

GERMAN = "der die Hund Katze läuft schläft isst schnell heute morgen nicht gern viel".split()
ENGLISH = "the a dog cat runs sleeps eats fast today tomorrow not gladly much".split()


def parallel(count: int, seed: int) -> list[tuple[str, str]]:
    chance = random.Random(seed)
    rows = [chance.choices(range(len(GERMAN)), k=chance.randint(3, 9)) for _ in range(count)]
    return [(" ".join(GERMAN[n] for n in row), " ".join(ENGLISH[n] for n in row)) for row in rows]


def corpus(folder: Path, name: str, pairs: list[tuple[str, str]], weight: float = 1.0) -> CorpusConfig:
    path = folder / f"{name}.tsv"
    path.write_text("".join(f"{src}\t{tgt}\n" for src, tgt in pairs), encoding="utf-8")
    return CorpusConfig(src=str(path), weight=weight)


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DataConfig:
    """Return 700 good training pairs in two corpora, with pairs for most filters, in chunks of 50, in this process."""
    monkeypatch.setattr(prepare_module, "CHUNK_PAIRS", 50)
    monkeypatch.setattr(prepare_module.os, "cpu_count", lambda: 1)  # type: ignore[attr-defined]
    good, valid = list(dict.fromkeys(parallel(2000, 1))), parallel(30, 2)
    assert not set(good[:700]) & set(valid)
    first = [*good[:400], good[0], good[1], ("", "empty"), ("Gleich hier", "Gleich hier"), ("Привет", "hello")]
    second = [*good[400:700], good[0], valid[0], (valid[1][0].upper() + "!", "something else"), ("der " * 70, "the " * 70)]
    return DataConfig(
        train=(corpus(tmp_path, "first", first), corpus(tmp_path, "second", second, weight=2.0)),
        valid=corpus(tmp_path, "valid", valid),
        src_lang="de",
        tgt_lang="en",
        vocab_size=400,
        cleaning=CleaningConfig(max_tokens=60),
    )


def test_every_pair_is_kept_or_dropped_with_a_reason(config: DataConfig, tmp_path: Path) -> None:
    report = prepare(config, tmp_path / "out")
    train = report.splits["train"]
    assert train.read == 405 + 304
    assert train.kept == 702
    assert train.dropped == {"duplicate": 3, "empty": 1, "copied": 1, "wrong script": 1, "too long": 1}
    assert train.read == train.kept + sum(train.dropped.values())
    assert train.examples["wrong script"] == [("Привет", "hello")]
    assert [entry["pairs"] for entry in report.corpora] == [400, 302]
    assert json.loads((tmp_path / "out" / "data.json").read_text())["splits"]["train"]["kept"] == 702


def test_leakage_is_found_to_the_letter_and_nearly(config: DataConfig, tmp_path: Path) -> None:
    leakage = prepare(config, tmp_path / "out").leakage["valid"]
    assert (leakage.count, leakage.exact) == (30, 1)
    assert leakage.near == [2, 1]
    assert len(leakage.examples) == 1


def test_the_store_holds_what_the_report_says(config: DataConfig, tmp_path: Path) -> None:
    report = prepare(config, tmp_path / "out")
    store, tokenizer = PairStore.open(tmp_path / "out", "train"), Tokenizer.load(tmp_path / "out")
    assert len(store) == 702
    for row in (0, 399, 400, 701):
        assert tokenizer.src.decode(store.src[row].tolist()) == store.src_text[row]
        assert tokenizer.tgt.encode([store.tgt_text[row]])[0] == store.tgt[row].tolist()
    for side, ragged in zip(report.splits["train"].sides.values(), (store.src, store.tgt), strict=True):
        assert side.tokens == ragged.lengths.sum() == len(ragged.values)
        assert side.longest == ragged.lengths.max()
        assert sum(side.histogram) == 702
        assert side.histogram[0] == (ragged.lengths < 10).sum()
    assert len(PairStore.open(tmp_path / "out", "valid")) == 30
    assert not list((tmp_path / "out").glob("spool*"))


@pytest.mark.parametrize("name", ["train.src.u16", "train.tgt.starts", "train.src.txt", "train.tgt.lines"])
@pytest.mark.parametrize("lost", [1, 8])
def test_a_file_that_was_cut_short_is_named(config: DataConfig, tmp_path: Path, name: str, lost: int) -> None:
    prepare(config, tmp_path / "out")
    path = tmp_path / "out" / name
    os.truncate(path, path.stat().st_size - lost)
    side = name.rpartition(".")[0]
    with pytest.raises(UserError, match=rf"out/{side}\.\w+ .*prepare the text again"):
        PairStore.open(tmp_path / "out", "train")


@pytest.mark.parametrize("content", ["{", "{}", "[]"])
def test_a_report_that_is_damaged_is_named(tmp_path: Path, content: str) -> None:
    (tmp_path / "data.json").write_text(content)
    with pytest.raises(UserError, match=r"data\.json is (not JSON|damaged)"):
        read_report(tmp_path)


def test_the_same_text_gives_the_same_bytes_in_one_process_or_many(
    config: DataConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare(config, tmp_path / "one")
    monkeypatch.setattr(prepare_module.os, "cpu_count", lambda: 2)  # type: ignore[attr-defined]
    prepare(config, tmp_path / "two")
    files = sorted(path.name for path in (tmp_path / "one").iterdir())
    assert files == sorted(path.name for path in (tmp_path / "two").iterdir())
    for name in files:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes(), name


def test_separate_vocabularies(config: DataConfig, tmp_path: Path) -> None:
    report = prepare(replace(config, shared_vocab=False, vocab_size=300), tmp_path / "out")
    tokenizer = Tokenizer.load(tmp_path / "out")
    assert not tokenizer.is_shared and not report.shared_vocab
    assert "▁Hund" not in tokenizer.tgt.pieces(range(len(tokenizer.tgt)))


def test_a_failure_leaves_nothing_behind(config: DataConfig, tmp_path: Path) -> None:
    broken = tmp_path / "broken.tsv"
    broken.write_bytes(b"a\tb\n" * 200 + b"no tab\n")
    with pytest.raises(ValueError, match=r"broken\.tsv:201: no tab"):
        prepare(replace(config, train=(CorpusConfig(src=str(broken)),)), tmp_path / "out")
    assert not (tmp_path / "out").exists()
    assert not [path for path in tmp_path.iterdir() if "preparing" in path.name]
    (tmp_path / "out").mkdir()
    with pytest.raises(ValueError, match="out is there already"):
        prepare(config, tmp_path / "out")


def test_nothing_left_to_learn_from(config: DataConfig, tmp_path: Path) -> None:
    same = corpus(tmp_path, "same", [("gleich", "gleich")] * 5)
    with pytest.raises(ValueError, match=r"none of the 5 training pairs was fit to learn from \(5 copied\)"):
        prepare(replace(config, train=(same,)), tmp_path / "out")
    report = prepare(replace(config, train=(same,), cleaning=CleaningConfig(drop_copies=False)), tmp_path / "out")
    assert report.splits["train"].dropped == {"duplicate": 4}


def test_too_many_tokens_everywhere_is_nothing_to_learn_from(config: DataConfig, tmp_path: Path) -> None:
    short = replace(config, cleaning=CleaningConfig(max_tokens=1))
    with pytest.raises(ValueError, match=r"none of the 709 training pairs was fit to learn from \(70\d too long"):
        prepare(short, tmp_path / "out")


def test_held_out_pairs_without_text_are_counted_too(config: DataConfig, tmp_path: Path) -> None:
    valid = corpus(tmp_path, "holes", [("", ""), ("der Hund", "the dog"), ("die Katze", "")])
    report = prepare(replace(config, valid=valid), tmp_path / "out").splits["valid"]
    assert (report.read, report.kept, report.dropped) == (3, 1, {"empty": 2})


@pytest.mark.parametrize(
    ("one", "other", "alike"),
    [
        ("Guten Tag!", "guten  tag", True),
        ("STRASSE", "straße", True),
        ("मेरी बेटी", "मेरा बेटा", False),  # my daughter, my son: vowels are marks here
        ("ไม่", "ไม้", False),
        ("1,000", "1000", True),
        ("!", "?", False),
    ],
)
def test_near_means_but_for_case_punctuation_and_spaces(one: str, other: str, alike: bool) -> None:
    assert (prepare_module.near_key_of(one) == prepare_module.near_key_of(other)) is alike


def test_the_sample_is_drawn_from_everywhere_and_by_seed() -> None:
    def drawn(seed: int) -> list[int]:
        return prepare_module.sampled(range(10_000), 100, seed)

    assert drawn(1) == drawn(1) != drawn(2)
    assert len(set(drawn(1))) == 100
    assert 3000 < np.mean([number for seed in range(20) for number in drawn(seed)]) < 7000


def test_vocabulary_sizes_grow_with_the_corpus() -> None:
    assert [vocab_size_for(n) for n in (1, 40_000, 164_000, 440_000, 2_000_000)] == [2000, 4000, 8000, 16000, 32000]


@pytest.mark.parametrize(("vocab_size", "dtype"), [(65_536, np.uint16), (65_537, np.uint32)])
def test_ids_take_two_bytes_where_they_fit(tmp_path: Path, vocab_size: int, dtype: type) -> None:
    assert id_type(vocab_size) is dtype
    rows = [[1, vocab_size - 1], [], [7]]
    with SplitWriter(tmp_path, "train", {"src": vocab_size, "tgt": vocab_size}) as writer:
        for chunk in (rows[:2], rows[2:], []):
            writer.append((["早\tx"] * len(chunk), chunk), ([""] * len(chunk), chunk))
    store = PairStore.open(tmp_path, "train")
    assert store.src.values.dtype == dtype
    assert [store.src[n].tolist() for n in range(3)] == rows
    assert [store.src_text[n] for n in range(3)] == ["早\tx"] * 3
    assert store.tgt_text[2] == ""
    assert store.src.lengths.tolist() == [2, 0, 1]
