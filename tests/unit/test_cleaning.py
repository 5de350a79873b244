"""Tests that each filter drops bad pairs, keeps good ones, and can be turned off."""

from dataclasses import replace

import pytest

from regard.config import CleaningConfig
from regard.text.cleaning import REASONS, Pair, Reason, fits_script, normalise, reason_to_drop

RULES = CleaningConfig()
GOOD = [
    Pair("Guten Morgen.", "Good morning."),
    Pair("Ja.", "Yes, of course."),  # lengths of short texts may differ much
    Pair("42", "42"),  # no letters
    Pair("Ich mag 寿司.", "I like 寿司 (sushi)."),
]
BAD: list[tuple[Reason, Pair, CleaningConfig]] = [
    ("empty", Pair("", "text"), replace(RULES, drop_empty=False)),
    ("too long", Pair("a " * 600, "b " * 600), replace(RULES, max_characters=0)),
    ("length ratio", Pair("Nein, das ist nicht wahr." * 7, "No, it is."), replace(RULES, max_ratio=0.0)),
    ("copied", Pair("Copyright 2020", "Copyright 2020"), replace(RULES, drop_copies=False)),
    ("wrong script", Pair("Добрый день", "Good day"), replace(RULES, drop_wrong_script=False)),
    ("control characters", Pair("Guten\x07 Tag", "Good day"), replace(RULES, drop_control_characters=False)),
]


@pytest.mark.parametrize("pair", GOOD)
def test_good_pairs_stay(pair: Pair) -> None:
    assert reason_to_drop(pair, RULES, "de", "en") is None


@pytest.mark.parametrize(("reason", "pair", "without"), BAD)
def test_each_filter_has_its_reason_and_its_switch(reason: Reason, pair: Pair, without: CleaningConfig) -> None:
    assert reason_to_drop(pair, RULES, "de", "en") == reason
    assert reason_to_drop(pair, without, "de", "en") is None


@pytest.mark.parametrize(
    ("src_lang", "tgt_lang", "is_dropped"),
    [("de", "en", True), ("de", "", True), ("en", "en", False), ("en-US", "en_GB", False), ("", "", False)],
)
def test_what_is_right_already_may_stay_as_it_is(src_lang: str, tgt_lang: str, is_dropped: bool) -> None:
    """Source and target may be equal within one language (correction), but not in translation."""
    reason = reason_to_drop(Pair("I have read it.", "I have read it."), RULES, src_lang, tgt_lang)
    assert (reason == "copied") is is_dropped


def test_every_reason_is_tested() -> None:
    assert {reason for reason, *_ in BAD} | {"duplicate", "like validation"} == set(REASONS)  # see test_prepare.py


def test_normalising() -> None:
    assert normalise("  Zu\u0308rich\t \u3000x\u00a0y\x0b\r") == "Zürich x y"
    assert normalise(normalise("e\u0301  a")) == normalise("e\u0301  a")


@pytest.mark.parametrize(
    ("text", "language", "fits"),
    [
        ("你好，世界", "zh", True),
        ("Hello world", "zh", False),
        ("Hello world", "zh-Hans-CN", False),
        ("Python 是一种编程语言", "zh", True),
        ("こんにちは", "ja", True),
        ("東京都", "ja", True),
        ("안녕하세요", "ko", True),
        ("Привет", "ru", True),
        ("Hallo", "ru", False),
        ("¡Hola!", "es", True),
        ("Tiếng Việt", "vi", True),
        ("123 + 456", "zh", True),
        ("anything", "xx", True),
        ("anything", "", True),
    ],
)
def test_scripts(text: str, language: str, fits: bool) -> None:
    assert fits_script(text, language) is fits


def test_lengths_are_compared_as_scripts_say() -> None:
    """Ten Chinese characters are a sentence, not a fragment."""
    english = "I would like to know when the next train to the city leaves, please."
    assert reason_to_drop(Pair(english, "请问下一班进城的火车几点开？"), RULES, "en", "zh") is None
    assert reason_to_drop(Pair(english, "请问"), RULES, "en", "zh") == "length ratio"
