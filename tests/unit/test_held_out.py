"""Tests of text held out for validation where none is given: none of it is in the training text."""

import random
from pathlib import Path

import pytest

from regard.config import CleaningConfig, CorpusConfig, DataConfig
from regard.data import prepare as prepare_module
from regard.data.command import prepare_with_progress
from regard.data.prepare import prepare
from regard.data.report import read_report
from regard.data.store import PairStore, TextStore
from regard.text.tokenizer import Tokenizer
from tests.oracles.runs import sentences

UNFILTERED = CleaningConfig(drop_duplicates=False, drop_copies=False, max_ratio=0.0)


@pytest.fixture(autouse=True)
def _in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prepare_module, "CHUNK_PAIRS", 50)
    monkeypatch.setattr(prepare_module.os, "cpu_count", lambda: 1)  # type: ignore[attr-defined]


def corpora(folder: Path, pairs: list[tuple[str, str]], **changes: object) -> DataConfig:
    """Write two corpora, the second with weight 2."""
    half = len(pairs) // 3
    files = []
    for name, part, weight in (("one", pairs[:half], 1.0), ("two", pairs[half:], 2.0)):
        (folder / f"{name}.tsv").write_text("".join(f"{src}\t{tgt}\n" for src, tgt in part), encoding="utf-8")
        files.append(CorpusConfig(src=str(folder / f"{name}.tsv"), weight=weight))
    settings = {"train": tuple(files), "vocab_size": 400, "cleaning": UNFILTERED} | changes
    return DataConfig(**settings)  # type: ignore[arg-type]


def hostile(kind: str) -> list[tuple[str, str]]:
    draw, texts = random.Random(5), sorted(set(sentences(3000)))
    draw.shuffle(texts)
    some, others = texts[:600], texts[600:1200]
    if kind == "one source for nearly all":
        return [("abc" if n > 150 else src, tgt) for n, (src, tgt) in enumerate(zip(some, others, strict=True))]
    if kind == "one target for half":
        return [(src, "abc" if n % 2 else tgt) for n, (src, tgt) in enumerate(zip(some, others, strict=True))]
    if kind == "three translations each":
        return [(some[n // 3], other) for n, other in enumerate(others)]
    if kind == "case and punctuation":
        return [(some[n // 2].upper() + "!" if n % 2 else some[n // 2], other) for n, other in enumerate(others)]
    if kind == "sides swapped":
        return [*zip(some, others, strict=True), *zip(others, some, strict=True)]
    if kind == "everything twice":
        return [*zip(some, others, strict=True)] * 2
    return list(zip(some, others, strict=True))


KINDS = ["plain", "one source for nearly all", "one target for half", "three translations each"]
KINDS += ["case and punctuation", "sides swapped", "everything twice"]


def pairs_of(folder: Path, split: str) -> list[tuple[str, str]]:
    store = PairStore.open(folder, split)
    return [(store.src_text[row], store.tgt_text[row]) for row in range(len(store))]


def near(text: str) -> str:
    return "".join(character for character in text.casefold() if character.isalpha())


@pytest.mark.parametrize("kind", KINDS)
def test_no_text_that_is_kept_apart_is_learnt_from(tmp_path: Path, kind: str) -> None:
    pairs = hostile(kind)
    report = prepare(corpora(tmp_path, pairs), tmp_path / "out")
    train, valid = pairs_of(tmp_path / "out", "train"), pairs_of(tmp_path / "out", "valid")
    assert 5 <= len(valid) <= len(pairs) // 20 and len(set(valid)) == len(valid)
    assert not {near(text) for pair in valid for text in pair} & {near(text) for pair in train for text in pair}
    assert set(train) | set(valid) <= set(pairs)
    assert len(train) >= 0.9 * len(pairs), "not much is lost for it"
    split = report.splits["train"]
    assert split.read == split.kept + sum(split.dropped.values()) and split.kept == len(train)
    assert split.read + report.splits["valid"].read == len(pairs)
    sizes = [corpus["pairs"] for corpus in read_report(tmp_path / "out")["corpora"]]
    assert sum(sizes) == len(train) and set(train[: sizes[0]]) <= set(pairs[: len(pairs) // 3])
    assert not list((tmp_path / "out").glob("spool*"))


def test_it_is_a_function_of_seed_and_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = hostile("one target for half")

    def kept(name: str, pairs: list[tuple[str, str]], **changes: object) -> set[tuple[str, str]]:
        prepare(corpora(tmp_path, pairs, **changes), tmp_path / name)
        return set(pairs_of(tmp_path / name, "valid"))

    first = kept("first", pairs)
    shuffled = random.Random(2).sample(pairs, len(pairs))
    assert len(first & kept("shuffled", shuffled)) == len(first), "wherever it stands"
    assert kept("other seed", pairs, seed=2) != first
    monkeypatch.setattr(prepare_module.os, "cpu_count", lambda: 2)  # type: ignore[attr-defined]
    monkeypatch.setattr("regard.data.held_out.BLOCK", 37)
    assert kept("two processes", pairs) == first
    for path in (tmp_path / "first").iterdir():
        assert path.read_bytes() == (tmp_path / "two processes" / path.name).read_bytes(), path.name


def test_the_subwords_are_learnt_from_the_training_text_alone(tmp_path: Path) -> None:
    prepare(corpora(tmp_path, hostile("plain")), tmp_path / "all")
    lines = [f"{src}\t{tgt}\n" for src, tgt in pairs_of(tmp_path / "all", "train")]
    (tmp_path / "train.tsv").write_text("".join(lines), encoding="utf-8")
    lines = [f"{src}\t{tgt}\n" for src, tgt in pairs_of(tmp_path / "all", "valid")]
    (tmp_path / "valid.tsv").write_text("".join(lines), encoding="utf-8")
    config = corpora(tmp_path, hostile("plain"), valid=CorpusConfig(src=str(tmp_path / "valid.tsv")))
    config = DataConfig(**vars(config) | {"train": (CorpusConfig(src=str(tmp_path / "train.tsv")),)})
    report = prepare(config, tmp_path / "given")
    assert report.kept_apart == "" and report.leakage["valid"].near == [0, 0]
    assert Tokenizer.load(tmp_path / "given").is_in(tmp_path / "all")


def test_it_is_said_aloud(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    prepare_with_progress(corpora(tmp_path, hostile("plain"), seed=3), tmp_path / "pairs")
    said = " ".join(capsys.readouterr().out.split())
    count = len(PairStore.open(tmp_path / "pairs", "valid"))
    assert f"{count} of 600 pairs are kept apart to validate on (seed 3)" in said
    assert "--valid-src and --valid-tgt would take their place" in said
    (tmp_path / "text.txt").write_text("".join(f"{text}\n" for text in sentences(400)), encoding="utf-8")
    config = DataConfig(train=(CorpusConfig(text=str(tmp_path / "text.txt")),), vocab_size=350)
    prepare_with_progress(config, tmp_path / "texts")
    said = " ".join(capsys.readouterr().out.split())
    assert "of 400 texts are kept apart to validate on (seed 1)" in said and "--valid-text would take their place" in said


def test_too_little_to_spare_any(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"99 pairs are too few to keep some apart .* takes 100; give --valid-src"):
        prepare(corpora(tmp_path, hostile("plain")[:99]), tmp_path / "out")
    same = [("abc", tgt) for _, tgt in hostile("plain")]
    with pytest.raises(ValueError, match="too many of the 600 pairs share a text to keep some apart"):
        prepare(corpora(tmp_path, same), tmp_path / "out")
    assert not (tmp_path / "out").exists()
    (tmp_path / "text.txt").write_text("abc\nabcd\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"2 texts are too few .*; give --valid-text"):
        prepare(DataConfig(train=(CorpusConfig(text=str(tmp_path / "text.txt")),)), tmp_path / "out")


def test_plain_text_stays_in_its_order(tmp_path: Path) -> None:
    draw, texts = random.Random(3), sentences(500)
    lines = [draw.choice(texts[:5]) if n % 3 == 0 else text for n, text in enumerate(texts)]  # with repetitions
    (tmp_path / "text.txt").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    config = DataConfig(train=(CorpusConfig(text=str(tmp_path / "text.txt")),), vocab_size=350)
    prepare(config, tmp_path / "out")
    train, valid = (TextStore.open(tmp_path / "out", split) for split in ("train", "valid"))
    kept, apart = ([store.text[row] for row in range(len(store))] for store in (train, valid))
    assert 5 <= len(apart) <= 25 and not set(apart) & set(kept)
    assert kept == [line for line in lines if line not in set(apart)]
