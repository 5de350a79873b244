"""Make SentencePiece normalise text as `regard.text.cleaning.normalise` does, for other programs.

SentencePiece replaces, from left to right, the longest string that is in a table. The table covers white space completely.
It does not cover NFC completely, because a letter can have any number of combining marks in any order: it has every spelling
of those sequences that NFC composes to one character. Apply NFC first to be sure; the table changes only white space in such
text.
"""

import sys
import tempfile
import unicodedata
from collections import defaultdict
from functools import cache
from itertools import permutations
from pathlib import Path

import sentencepiece

from regard.exchange.spm import SpmModel
from regard.text.tokenizer import SPACE, Subwords


def normalising(subwords: Subwords) -> bytes:
    """Return the SentencePiece model with the table; an imported model keeps its own."""
    if subwords.is_marian:
        return subwords.model
    return SpmModel.parse(subwords.model, "the run's tokenizer").with_normaliser_of(_compiled()).serialise()


@cache
def _compiled() -> bytes:
    """Return a SentencePiece model with only the table, which SentencePiece compiles from a file."""
    sentencepiece.set_min_log_level(2)  # hide the message on its size
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rules.tsv"
        lines = (f"{_code_points(key)}\t{_code_points(value)}\n" for key, value in replacements().items())
        path.write_text("".join(lines), encoding="ascii")
        model: bytes = sentencepiece.SentencePieceNormalizer(rule_tsv=str(path)).serialized_model_proto()
    return model


def _code_points(text: str) -> str:
    return " ".join(f"{ord(character):X}" for character in text)


def replacements() -> dict[str, str]:
    """Return the table: white space becomes a space, and every spelling of a character becomes its NFC."""
    rules = dict.fromkeys(white_space(), " ")
    spelt: defaultdict[str, list[str]] = defaultdict(list)  # characters by what they decompose to
    for character in map(chr, range(sys.maxunicode + 1)):
        if not unicodedata.is_normalized("NFD", character) and character not in rules:
            spelt[_nfd(character)].append(character)
    for decomposed in spelt:
        for order in {"".join(order) for order in permutations(decomposed)}:
            if _nfd(order) == decomposed:
                rules |= dict.fromkeys(_spellings(order, spelt), unicodedata.normalize("NFC", decomposed))
    return {key: value for key, value in rules.items() if key != value}


def white_space() -> list[str]:
    """Return the characters that `normalise` makes spaces: U+2581, and those that Python calls white space."""
    return [SPACE, *(character for character in map(chr, range(sys.maxunicode + 1)) if character.isspace())]


def _nfd(text: str) -> str:
    return unicodedata.normalize("NFD", text)


def _spellings(decomposed: str, spelt: dict[str, list[str]]) -> set[str]:
    """Return all strings whose characters decompose to this string."""
    if not decomposed:
        return {""}
    found = set()
    for cut in range(1, len(decomposed) + 1):
        heads = [*spelt.get(_nfd(decomposed[:cut]), []), *(decomposed[:1] if cut == 1 else "")]
        found |= {head + tail for head in heads for tail in _spellings(decomposed[cut:], spelt)}
    return found
