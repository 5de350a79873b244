"""Filters for pairs and plain texts. Each looks at one pair at a time; duplicates are found by `regard.data.prepare`."""

import re
import unicodedata
from collections.abc import Iterable
from typing import Literal, NamedTuple, get_args

from regard.config import CleaningConfig
from regard.errors import UserError
from regard.text.sentences import primary

Reason = Literal[
    "empty", "too long", "length ratio", "duplicate", "copied", "wrong script", "control characters", "like validation"
]
REASONS: tuple[Reason, ...] = get_args(Reason)

_SPACES = re.compile(r"[\s▁]+")
# Control characters that are not white space, replacement characters, and code points for private use.
_CONTROLS = re.compile("[\u0000-\u0008\u000e-\u001b\u007f-\u0084\u0086-\u009f\ufffd\ue000-\uf8ff]")


def normalise(text: str) -> str:
    """Return a text in NFC, with white space (also U+2581, SentencePiece's space) folded to single spaces and stripped."""
    return _SPACES.sub(" ", unicodedata.normalize("NFC", text)).strip()


class Pair(NamedTuple):
    """A source text and its translation."""

    src: str
    tgt: str


def reason_to_drop(pair: Pair, rules: CleaningConfig, src_lang: str = "", tgt_lang: str = "") -> Reason | None:
    """Return the first filter that a normalised pair fails, or None."""
    src, tgt = pair
    if not src or not tgt:
        return "empty" if rules.drop_empty else None
    if 0 < rules.max_characters < max(len(src), len(tgt)):
        return "too long"
    if rules.drop_control_characters and (_CONTROLS.search(src) or _CONTROLS.search(tgt)):
        return "control characters"
    # A text without letters may be its own translation; within one language, or if none is named, any text may.
    if rules.drop_copies and src == tgt and primary(src_lang) != primary(tgt_lang) and any(map(str.isalpha, src)):
        return "copied"
    if rules.drop_wrong_script and not (fits_script(src, src_lang) and fits_script(tgt, tgt_lang)):
        return "wrong script"
    if rules.max_ratio and _is_lopsided(src, tgt, src_lang, tgt_lang, rules):
        return "length ratio"
    return None


def reason_to_drop_text(text: str, rules: CleaningConfig) -> Reason | None:
    """Return the first filter that a normalised plain text fails, or None."""
    if not text:
        return "empty"
    return "control characters" if rules.drop_control_characters and _CONTROLS.search(text) else None


# Roughly how many letters of a Latin text one character of these languages stands for.
_DENSITY = {"zh": 3.0, "ja": 2.0, "ko": 2.0}


def _is_lopsided(src: str, tgt: str, src_lang: str, tgt_lang: str, rules: CleaningConfig) -> bool:
    lengths = [len(text) * _DENSITY.get(primary(lang), 1.0) for text, lang in ((src, src_lang), (tgt, tgt_lang))]
    return max(lengths) >= rules.ratio_from and max(lengths) > rules.max_ratio * min(lengths)


_HAN = "\u2e80-\u2fdf\u3005\u3007\u3021-\u3029\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003134f"
_LATIN = "A-Za-z\u00aa\u00ba\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u024f\u1e00-\u1eff"
_LETTERS: dict[str, re.Pattern[str]] = {
    language: re.compile(f"[{letters}]")
    for languages, letters in {
        "en de fr es it pt nl sv da no nb nn fi et pl cs sk sl hr hu ro lt lv tr vi id ms ca eu ga is": _LATIN,
        "ru uk be bg mk": "\u0400-\u052f",
        "el": "\u0370-\u03ff\u1f00-\u1fff",
        "ar fa ur": "\u0600-\u06ff\u0750-\u077f\u08a0-\u08ff",
        "he": "\u0590-\u05ff",
        "hi mr ne": "\u0900-\u097f",
        "th": "\u0e00-\u0e7f",
        "zh": _HAN,
        "ja": "\u3040-\u30ff\uff66-\uff9d" + _HAN,
        "ko": "\u1100-\u11ff\u3130-\u318f\uac00-\ud7af" + _HAN,
    }.items()
    for language in languages.split()
}


def fits_script(text: str, language: str) -> bool:
    """Return whether at least a fifth of the letters are of the language's script: names and terms may be of another. A text
    without letters, or in a language not in the table, fits."""
    letters = _LETTERS.get(primary(language))
    return letters is None or 5 * len(letters.findall(text)) >= sum(character.isalpha() for character in text)


def require_texts(texts: Iterable[str], what: str) -> list[str]:
    """Return the texts, or raise a UserError for one that cannot be encoded. `what` they are is for that error."""
    if isinstance(texts, str):
        raise UserError(f"give a list, not one {what}: [{what}]")
    found = list(texts)
    for number, text in enumerate(found, start=1):
        if not isinstance(text, str):
            raise UserError(f"{what} {number} is {None if text is None else type(text).__name__}, not a string")
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:  # from JSON's escapes, or a terminal of another encoding
            raise UserError(
                f"{what} {number} is not UTF-8 text: its character {error.start + 1} is half a surrogate pair; convert it"
            ) from error
    return found
