"""Long texts cut into parts: where people would cut, and never a letter lost."""

import random

import pytest

from regard.text.sentences import joined, parts_for, sentences


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("One. Two! Three?", ["One.", "Two!", "Three?"]),
        ("He said: “Stop!” Then he left.", ["He said: “Stop!”", "Then he left."]),
        ("Dr. Smith met J. Doe. They talked.", ["Dr. Smith met J. Doe.", "They talked."]),
        ("z. B. das hier. Und das.", ["z. B. das hier.", "Und das."]),
        ("It costs 3.50 euros. Cheap.", ["It costs 3.50 euros.", "Cheap."]),
        ("und so weiter ... und mehr. Ende.", ["und so weiter ... und mehr.", "Ende."]),
        ("我爱你。你呢？很好！", ["我爱你。", "你呢？", "很好！"]),
        ("「行く。」と言った。次。", ["「行く。」", "と言った。", "次。"]),
        ("no end at all", ["no end at all"]),
        ("", []),
    ],
)
def test_sentences_end_where_people_end_them(text: str, expected: list[str]) -> None:
    assert sentences(text) == expected


def letters(texts: list[str]) -> list[int]:
    return [len(text) for text in texts]


def test_parts_fit_and_nothing_is_lost() -> None:
    """Counted in letters, for random texts with and without sentence ends, commas and spaces."""
    chance = random.Random(3)
    for _ in range(300):
        alphabet = chance.choice(["ab", "ab ", "ab, ", "aB. ,", "中文。，", "aB! 中"])
        text = " ".join("".join(chance.choices(alphabet, k=chance.randint(0, 200))).split())
        limit = chance.randint(3, 40)
        parts = parts_for(text, lambda texts: [len(one) for one in texts], used_to=limit, bearable=limit)
        assert "".join("".join(parts).split()) == "".join(text.split())
        assert all(len(part) <= limit for part in parts)
        if len(text) <= limit:
            assert parts == ([text] if text else [""])


def test_parts_that_are_more_together_than_apart_are_cut_all_the_same() -> None:
    """As subwords may be where no space follows a comma: each unit has fewer than its share of the whole."""
    parts = parts_for("aaa，bbb，ccc", lambda texts: [len(one) - 1 for one in texts], used_to=9, bearable=9)
    assert "".join(parts) == "aaa，bbb，ccc"
    assert all(len(part) - 1 <= 9 for part in parts)


def test_a_thousand_dots_take_no_time() -> None:
    """Seconds, if each dot were tried to the end of all; a test that takes for ever fails, too."""
    assert sentences("a" + "." * 100_000) == ["a" + "." * 100_000]
    assert len(sentences("Was? " * 20_000)) == 20_000


def test_a_sentence_is_cut_at_clauses_before_words_before_letters() -> None:
    count = lambda texts: [len(one) for one in texts]  # noqa: E731
    assert parts_for("aaa bbb, ccc ddd", count, used_to=10, bearable=10) == ["aaa bbb,", "ccc ddd"]
    assert parts_for("aaa bbb ccc ddd", count, used_to=10, bearable=10) == ["aaa bbb", "ccc ddd"]
    assert parts_for("abcdefghijkl", count, used_to=10, bearable=10) == ["abcdef", "ghijkl"]


def test_what_is_longer_than_usual_is_cut_at_sentence_ends_only() -> None:
    count = lambda texts: [len(one) for one in texts]  # noqa: E731
    text = "Eins zwei drei vier. Fünf."
    assert parts_for(text, count, used_to=10, bearable=100) == ["Eins zwei drei vier.", "Fünf."]
    assert parts_for(text, count, used_to=30, bearable=100) == [text]


def test_parts_are_joined_as_their_language_is_written() -> None:
    assert joined(["One.", "", "Two."], "en") == "One. Two."
    assert joined(["一。", "二。"], "zh") == joined(["一。", "二。"], "zh-Hans") == "一。二。"
    assert joined(["One.", "Two."], "") == "One. Two."
