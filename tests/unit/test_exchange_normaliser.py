"""Tests of SentencePiece files that normalise by themselves, against `normalise` and the run's own subwords."""

import random
import sys
import unicodedata
from collections.abc import Iterator
from functools import cache

import pytest
import sentencepiece

from regard.exchange.normaliser import normalising, replacements
from regard.text.cleaning import normalise
from regard.text.tokenizer import Subwords
from tests.oracles.runs import sentences, subwords

CHARACTERS = [chr(n) for n in range(sys.maxunicode + 1) if not 0xD800 <= n < 0xE000]
MARKS = [character for character in CHARACTERS if unicodedata.combining(character)]
SPACES = [character for character in CHARACTERS if character.isspace()] + ["▁"]
DECOMPOSABLE = [character for character in CHARACTERS if unicodedata.normalize("NFD", character) != character]


@cache
def normaliser() -> sentencepiece.SentencePieceProcessor:
    return sentencepiece.SentencePieceProcessor(model_proto=normalising(subwords(400, 1)))


def normalised(text: str) -> str:
    """Normalise with SentencePiece, and undo its leading space and its escaped spaces."""
    return str(normaliser().normalize(text)).replace("▁", " ").removeprefix(" ")


def is_simple(text: str) -> bool:
    """Return whether each letter has at most one mark, or composes with all its marks into one character."""
    cluster, num_marks = "", 0
    for character in unicodedata.normalize("NFD", text) + "a":
        if not unicodedata.combining(character):
            if num_marks > 1 and len(unicodedata.normalize("NFC", cluster)) > 1:
                return False
            cluster, num_marks = "", -1
        cluster, num_marks = cluster + character, num_marks + 1
    return True


def require_equal(texts: list[str]) -> None:
    """Compare many texts at a time for speed, with a letter in between."""
    for start in range(0, len(texts), 1000):
        some = texts[start : start + 1000]
        if normalised("q".join(some)) != normalise("q".join(some)):
            raise AssertionError([text for text in some if normalised(f"q{text}q") != normalise(f"q{text}q")])


@pytest.mark.parametrize("template", ["{}", "a{}b", "{}{}", " {} ", "e\u0301{}", "\u0301{}가", "\u1100{}", "x\u3000{}\r"])
def test_every_character_in_its_surroundings(template: str) -> None:
    """Use every character if NFC is applied first, otherwise those with one mark on a letter."""
    texts = [template.replace("{}", character) for character in CHARACTERS]
    require_equal([unicodedata.normalize("NFC", text) for text in texts])
    marked = {*MARKS, *DECOMPOSABLE}
    simple = [text for text, character in zip(texts, CHARACTERS, strict=True) if character not in marked or is_simple(text)]
    assert len(simple) > len(texts) - 1200
    require_equal(simple)


def test_every_character_that_decomposes_decomposed() -> None:
    texts = [
        f"a {unicodedata.normalize(form, character)}\tb" for character in DECOMPOSABLE for form in ("NFD", "NFKD", "NFKC")
    ]
    require_equal([text for text in texts if is_simple(text)])


def test_every_mark_on_every_letter_that_takes_one() -> None:
    decompositions = [unicodedata.normalize("NFD", character) for character in DECOMPOSABLE]
    letters = sorted({text[0] for text in decompositions})
    marks = sorted({mark for text in decompositions for mark in text[1:]})
    require_equal([letter + mark for letter in letters for mark in marks if is_simple(letter + mark)])


def mixtures(count: int) -> Iterator[str]:
    draw = random.Random(5)
    decomposed = [unicodedata.normalize("NFD", character) for character in draw.sample(DECOMPOSABLE, 2000)]
    kinds = [
        list("abcdefghijöü"),
        SPACES,
        MARKS,
        decomposed,
        DECOMPOSABLE,
        CHARACTERS,
        ["\u200b", "\u200d", "\ufeff", "\x00", "\x07"],
    ]
    for _ in range(count):
        yield "".join(draw.choice(draw.choice(kinds)) for _ in range(draw.randint(0, 20)))


def test_mixtures_have_the_subwords_of_the_run() -> None:
    ours = subwords(400, 1)
    exported = Subwords(normalising(ours))
    texts = [*mixtures(20_000), *sentences(100)]
    assert sum(map(is_simple, texts)) > 1000
    composed = exported.encode([unicodedata.normalize("NFC", text) for text in texts])
    for text, ids, own, of_nfc in zip(
        texts, ours.encode([normalise(text) for text in texts]), exported.encode(texts), composed, strict=True
    ):
        assert of_nfc == ids, ascii(text)
        assert own == ids or not is_simple(text), ascii(text)


def test_the_pieces_and_the_way_back_stay_what_they_were() -> None:
    ours, draw = subwords(400, 1), random.Random(6)
    exported = Subwords(normalising(ours))
    assert exported.pieces(range(len(exported))) == ours.pieces(range(len(ours)))
    for _ in range(500):
        ids = draw.choices(range(4, len(ours)), k=draw.randint(0, 12))
        assert exported.decode(ids) == ours.decode(ids)


def test_the_table_changes_nothing_that_is_normalised() -> None:
    """Its keys map exactly to their normalised form."""
    for key, value in replacements().items():
        assert value == (normalise(key) or " ") != key
