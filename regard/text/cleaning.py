"""Which pairs are worth learning from, and why the others are not.

`normalise` and the filters look at one pair at a time and can run anywhere; duplicates are the caller's to find, who alone
sees the whole corpus.
"""

import re
import unicodedata
from typing import Literal, get_args

from regard.config import CleaningConfig
from regard.text.corpus import Pair
from regard.text.sentences import primary

Reason = Literal["empty", "too long", "length ratio", "duplicate", "copied", "wrong script", "control characters"]
REASONS: tuple[Reason, ...] = get_args(Reason)


_SPACES = re.compile(r"[\s▁]+")
# Controls that are no white space, replacement characters, and code points for private use.
_CONTROLS = re.compile("[\u0000-\u0008\u000e-\u001b\u007f-\u0084\u0086-\u009f\ufffd\ue000-\uf8ff]")


def normalise(text: str) -> str:
    """NFC, white space (and U+2581, which is a space to SentencePiece) folded to single spaces, none at the ends."""
    return _SPACES.sub(" ", unicodedata.normalize("NFC", text)).strip()


def reason_to_drop(pair: Pair, rules: CleaningConfig, src_lang: str = "", tgt_lang: str = "") -> Reason | None:
    """The first filter that a normalised pair fails, or None."""
    src, tgt = pair
    if not src or not tgt:
        return "empty" if rules.drop_empty else None
    if 0 < rules.max_characters < max(len(src), len(tgt)):
        return "too long"
    if rules.drop_control_characters and (_CONTROLS.search(src) or _CONTROLS.search(tgt)):
        return "control characters"
    if rules.drop_copies and src == tgt and _should_differ(src, src_lang, tgt_lang):
        return "copied"
    if rules.drop_wrong_script and not (fits_script(src, src_lang) and fits_script(tgt, tgt_lang)):
        return "wrong script"
    if rules.max_ratio and _is_lopsided(src, tgt, src_lang, tgt_lang, rules):
        return "length ratio"
    return None


def _should_differ(text: str, src_lang: str, tgt_lang: str) -> bool:
    """A text in another language is another one, if it has letters. Within one language it may well stay as it is: what is
    right already needs no correction. Where no languages are named, nobody knows."""
    return primary(src_lang) != primary(tgt_lang) and any(character.isalpha() for character in text)


def reason_to_drop_text(text: str, rules: CleaningConfig) -> Reason | None:
    """The same for a normalised text that stands alone."""
    if not text:
        return "empty"
    return "control characters" if rules.drop_control_characters and _CONTROLS.search(text) else None


# How many letters of a Latin text one character of these scripts stands for, roughly.
_DENSITY = {"zh": 3.0, "ja": 2.0, "ko": 2.0}


def _is_lopsided(src: str, tgt: str, src_lang: str, tgt_lang: str, rules: CleaningConfig) -> bool:
    lengths = [len(text) * _DENSITY.get(primary(lang), 1.0) for text, lang in ((src, src_lang), (tgt, tgt_lang))]
    return max(lengths) >= rules.ratio_from and max(lengths) > rules.max_ratio * min(lengths)


_HAN = "\u2e80-\u2fdf\u3005\u3007\u3021-\u3029\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003134f"
_LATIN = "A-Za-z\u00aa\u00ba\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u024f\u1e00-\u1eff"
_LETTERS: dict[str, re.Pattern[str]] = {
    script: re.compile(f"[{letters}]")
    for script, letters in {
        "latin": _LATIN,
        "cyrillic": "\u0400-\u052f",
        "greek": "\u0370-\u03ff\u1f00-\u1fff",
        "arabic": "\u0600-\u06ff\u0750-\u077f\u08a0-\u08ff",
        "hebrew": "\u0590-\u05ff",
        "devanagari": "\u0900-\u097f",
        "thai": "\u0e00-\u0e7f",
        "han": _HAN,
        "japanese": "\u3040-\u30ff\uff66-\uff9d" + _HAN,
        "hangul": "\u1100-\u11ff\u3130-\u318f\uac00-\ud7af" + _HAN,
    }.items()
}
SCRIPT_OF: dict[str, str] = {
    **dict.fromkeys(
        "en de fr es it pt nl sv da no nb nn fi et pl cs sk sl hr hu ro lt lv tr vi id ms ca eu ga is".split(), "latin"
    ),
    **dict.fromkeys("ru uk be bg mk".split(), "cyrillic"),
    **dict.fromkeys("ar fa ur".split(), "arabic"),
    **dict.fromkeys("hi mr ne".split(), "devanagari"),
    "el": "greek",
    "he": "hebrew",
    "th": "thai",
    "zh": "han",
    "ja": "japanese",
    "ko": "hangul",
}


def fits_script(text: str, language: str) -> bool:
    """Whether at least some of a text's letters (a fifth) are of its language's script. Names and terms may be of another; a
    text without letters, or in a language not in the table, fits."""
    script = SCRIPT_OF.get(primary(language))
    if script is None:
        return True
    num_letters = sum(character.isalpha() for character in text)
    return 5 * len(_LETTERS[script].findall(text)) >= num_letters
