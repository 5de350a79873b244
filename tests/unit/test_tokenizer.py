"""Tests of subwords: text is restored exactly, special tokens are never text, and dropout depends only on its seed."""

import random
import subprocess
import sys
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

from regard.text.tokenizer import BOS_ID, EOS_ID, NUM_RESERVED, PAD_ID, UNK_ID, Subwords, Tokenizer, learn_subwords

WORDS = "der die das Haus Maus Hund house mouse dog the and und läuft runs schnell fast 学习 机器".split()


def sentences(seed: int, count: int = 2000) -> list[str]:
    chance = random.Random(seed)
    return [" ".join(chance.choices(WORDS, k=chance.randint(1, 8))) for _ in range(count)]


@pytest.fixture(scope="module")
def subwords() -> Subwords:
    return Subwords(learn_subwords(sentences(1), 340))


@pytest.mark.parametrize(
    "text",
    [
        "der Hund läuft schnell",
        "a literal </s> <s> <pad> <unk> <0x41> stays text",
        "never seen: ☃ 𝔘 \U0001f600 ñ",
        "▁ the marker itself? no: it is a space to SentencePiece",
        "机器 学习",
        "",
    ],
)
def test_text_comes_back(subwords: Subwords, text: str) -> None:
    ids = subwords.encode([text])[0]
    assert not {PAD_ID, BOS_ID, EOS_ID, UNK_ID} & set(ids)
    assert subwords.decode(ids) == text.replace("▁", " ").strip()
    assert subwords.decode([BOS_ID, *ids, EOS_ID, PAD_ID]) == text.replace("▁", " ").strip()


def test_known_words_are_few_pieces_and_unknown_characters_are_bytes(subwords: Subwords) -> None:
    assert subwords.pieces(subwords.encode(["Hund"])[0]) == ["▁Hund"]
    snowman = subwords.encode(["☃"])[0]
    assert subwords.pieces(snowman)[-3:] == ["<0xE2>", "<0x98>", "<0x83>"]
    assert all(UNK_ID < token < NUM_RESERVED for token in snowman[-3:])
    assert subwords.knows("H") and not subwords.knows("☃")


def test_dropout_varies_with_the_seed_and_with_nothing_else(subwords: Subwords) -> None:
    texts = sentences(2, 200)
    plain = subwords.encode(texts)
    first = subwords.encode_with_dropout(texts, dropout=0.1, seed=5)
    assert subwords.encode_with_dropout(texts, dropout=0.1, seed=6) != first != plain
    assert subwords.encode_with_dropout(texts, dropout=0.1, seed=5) == first
    assert [subwords.decode(ids) for ids in first] == texts
    assert sum(map(len, first)) > sum(map(len, plain))


def test_a_vocabulary_is_no_larger_than_the_text_supports(subwords: Subwords) -> None:
    assert len(subwords) <= 340
    assert len(Subwords(learn_subwords(["ab ab ab"], 5000))) < 300
    with pytest.raises(ValueError, match="a vocabulary of 200 is too small: 260 entries are special tokens and bytes"):
        learn_subwords(["ab"], 200)
    with pytest.raises(ValueError, match=r"a vocabulary of 262 cannot hold the characters of this text; give at least \d+"):
        learn_subwords(sentences(1), 262)
    with pytest.raises(ValueError, match="this is not a SentencePiece model"):
        Subwords(b"nonsense")


def test_saving_and_loading(subwords: Subwords, tmp_path: Path) -> None:
    other = Subwords(learn_subwords(sentences(3), 330))
    for name, tokenizer in (("shared", Tokenizer(subwords, subwords)), ("separate", Tokenizer(subwords, other))):
        (tmp_path / name).mkdir()
        tokenizer.save(tmp_path / name)
        loaded = Tokenizer.load(tmp_path / name)
        assert loaded.is_shared == (name == "shared")
        assert (loaded.src.model, loaded.tgt.model) == (tokenizer.src.model, tokenizer.tgt.model)
    with pytest.raises(ValueError, match="there is no tokenizer in"):
        Tokenizer.load(tmp_path)


def test_without_dropout_the_merges_are_sentencepieces(subwords: Subwords) -> None:
    """Compare our own merging with SentencePiece on random letters and signs, known and unknown, with repetitions."""
    chance = random.Random(5)
    alphabet = "aeiou der Haus fast 学习机器 aaa 😀 ñ 1,2.3 <s> <0x41>"
    texts = ["".join(chance.choices(alphabet, k=chance.randint(1, 30))) for _ in range(2000)]
    texts = [" ".join(text.split()) for text in texts] + sentences(3)
    assert subwords.encode_with_dropout(texts, dropout=0.0, seed=1) == subwords.encode(texts)


def test_dropout_is_the_same_in_every_process(subwords: Subwords, tmp_path: Path) -> None:
    """A continued run is another process."""
    (tmp_path / "model").write_bytes(subwords.model)
    code = (
        "import sys; from pathlib import Path; from regard.text.tokenizer import Subwords\n"
        "print(Subwords(Path(sys.argv[1]).read_bytes()).encode_with_dropout(['schnell house'] * 50, dropout=0.2, seed=7))"
    )
    outputs = [subprocess.check_output([sys.executable, "-c", code, str(tmp_path / "model")]) for _ in range(2)]
    assert (
        outputs[0] == outputs[1] == f"{subwords.encode_with_dropout(['schnell house'] * 50, dropout=0.2, seed=7)}\n".encode()
    )


def test_dropout_leaves_each_merge_out_as_often_as_it_says() -> None:
    """Check "ab": ▁ab results from two merges, the first of which is ▁a or ab, whichever is not left out."""
    subwords = Subwords(learn_subwords(["ab"] * 100, 300))
    plain = subwords.encode(["ab"])[0]
    assert len(plain) == 1 and subwords.pieces(plain) == ["▁ab"]
    draw = random.Random(1).random
    whole = sum(subwords._merged("▁ab", 0.3, draw) == plain for _ in range(20_000)) / 20_000
    assert subwords.knows("▁a") and subwords.knows("ab")
    assert abs(whole - (1 - 0.3**2) * 0.7) < 0.02


def test_dropout_cuts_a_word_in_many_ways_and_remembers_them(subwords: Subwords) -> None:
    """Earlier calls change nothing: with another dropout, in another order, or in a new instance."""
    texts = ["schnell"] * 2000 + sentences(1)
    seen: dict[float, list[list[int]]] = {}
    for dropout in (0.5, 0.1, 0.5, 0.1):
        cuts = subwords.encode_with_dropout(texts, dropout=dropout, seed=1)
        assert cuts == seen.setdefault(dropout, cuts)
        assert cuts == Subwords(subwords.model).encode_with_dropout(texts, dropout=dropout, seed=1)
        subwords.encode_with_dropout(texts[::-1], dropout=dropout, seed=2)
    assert len({tuple(ids) for ids in seen[0.5][:2000]}) > 10


def test_training_text_is_cut_as_often_as_dropout_says(subwords: Subwords) -> None:
    """Compare many words, drawn as in training, with merging each anew."""
    words = [first + second for first in WORDS for second in WORDS]
    for dropout in (0.1, 0.3):
        draw = random.Random(1).random
        pieces = sum(len(ids) for ids in subwords.encode_with_dropout(words * 20, dropout=dropout, seed=3))
        expected = sum(len(subwords._merged("▁" + word, dropout, draw)) for word in words * 20)
        plain = 20 * sum(len(ids) for ids in subwords.encode(words))
        assert (pieces - plain) / (expected - plain) == pytest.approx(1.0, abs=0.1)


def test_what_dropout_remembers_of_a_word_takes_little_memory(subwords: Subwords) -> None:
    """A corpus has hundreds of thousands of different words."""
    words = ["schnell", "läuft", "langsam", "danke", "bitte", "über"]
    subwords.encode_with_dropout(words, dropout=0.1, seed=1)
    subwords._cuts.clear()
    tracemalloc.start()
    subwords.encode_with_dropout(words * 2000, dropout=0.1, seed=1)  # every variant of every word
    taken, _ = tracemalloc.get_traced_memory()
    assert len(subwords._cuts) == len(words)
    subwords._cuts.clear()
    left, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert 0 < taken - left < 3000 * len(words)


def test_what_goes_wrong_in_the_text_it_learns_from_stays_what_it_was() -> None:
    """SentencePiece turns any exception of its iterator into a RuntimeError, which would be reported as a user's mistake."""

    def failing() -> Iterator[str]:
        yield from sentences(1, 100)
        raise KeyError("on purpose")

    with pytest.raises(KeyError, match="on purpose"):
        learn_subwords(failing(), 300)
