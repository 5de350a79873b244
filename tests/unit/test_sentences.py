"""Tests of cutting long texts into parts, without loss of characters."""

import random
from collections.abc import Sequence

import pytest

from regard.text.sentences import Encode, joined, parts_for, sentences


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
        # An abbreviation may begin a sentence that follows another.
        ("He left. Mr. Smith came back.", ["He left.", "Mr. Smith came back."]),
        ("Es war gut. J. S. Bach kam. Er ging.", ["Es war gut.", "J. S. Bach kam.", "Er ging."]),
        ("Ja. Z.B. Anna. Nein.", ["Ja.", "Z.B. Anna.", "Nein."]),
        ("Il part. M. Petit et Mme. Grand restent.", ["Il part.", "M. Petit et Mme. Grand restent."]),
        ("Vino. El Sr. Ruiz y la Sra. Paz (EE. UU.) no.", ["Vino.", "El Sr. Ruiz y la Sra. Paz (EE. UU.) no."]),
        ("Он ушёл. Проф. Петров живёт на ул. Мира.", ["Он ушёл.", "Проф. Петров живёт на ул. Мира."]),
        ("Ναι. Ο κ. Παππάς είναι εδώ.", ["Ναι.", "Ο κ. Παππάς είναι εδώ."]),
        ("यह है. डॉ. शर्मा आए.", ["यह है.", "डॉ. शर्मा आए."]),
        ("وصل. د. أحمد هنا.", ["وصل.", "د. أحمد هنا."]),
        ("See No. 5 of Vol. 3. No. He did not.", ["See No. 5 of Vol. 3. No.", "He did not."]),
        ("He came at 5 p.m. The U.S. won.", ["He came at 5 p.m. The U.S. won."]),  # ambiguous: not cut
        ("[J. Doe] and “M. Roe” left. So what?", ["[J. Doe] and “M. Roe” left.", "So what?"]),
        # Ordinal numbers.
        ("Er kam am 3. Mai. Sie am 13. Juni.", ["Er kam am 3. Mai.", "Sie am 13. Juni."]),
        ("Ludwig XIV. Bourbon. Ende.", ["Ludwig XIV. Bourbon.", "Ende."]),
        ("It was in 1999. Then he left.", ["It was in 1999.", "Then he left."]),
        # Closing quotation marks of other languages, and quotations within quotations.
        ("„Komm!“ Dann ging er.", ["„Komm!“", "Dann ging er."]),
        ("„Komm!“ sagte er. Sie kam.", ["„Komm!“ sagte er.", "Sie kam."]),
        ("»Komm!« Dann ging er. »Nein.« Ende.", ["»Komm!«", "Dann ging er.", "»Nein.«", "Ende."]),
        ("„Er rief: ‚Halt!‘“ Alle blieben.", ["„Er rief: ‚Halt!‘“", "Alle blieben."]),
        ("‚Ja.‘ ›Nein.‹ ‹Oui.› Schluss.", ["‚Ja.‘", "›Nein.‹", "‹Oui.›", "Schluss."]),
        ("« Viens ! » Puis il part. « Non. »", ["« Viens ! »", "Puis il part.", "« Non. »"]),
        ("Er ging. »Komm!« Sie kam.", ["Er ging.", "»Komm!«", "Sie kam."]),
        ("他来了。“你好。”她说。", ["他来了。", "“你好。”", "她说。"]),
        # Ends of other scripts.
        ("यह पहला है। यह दूसरा है।", ["यह पहला है।", "यह दूसरा है।"]),
        ("यह पहला है।यह दूसरा है॥१॥", ["यह पहला है।", "यह दूसरा है॥१॥"]),
        ("من أنت؟ أنا علي.", ["من أنت؟", "أنا علي."]),
        ("یہ ایک ہے۔ وہ پی۔ایچ۔ڈی ہے۔", ["یہ ایک ہے۔", "وہ پی۔ایچ۔ڈی ہے۔"]),
        ("ይህ ነው። ያ ነው፧ አዎ።", ["ይህ ነው።", "ያ ነው፧", "አዎ።"]),
        ("Սա մեկն է։ Ժամը 10։30 է։", ["Սա մեկն է։", "Ժամը 10։30 է։"]),
        ("ငါသွားသည်။ သူလာသည်။", ["ငါသွားသည်။", "သူလာသည်။"]),
        ("ខ្ញុំ ។ល។ ទៅ។ គាត់", ["ខ្ញុំ ។ល។", "ទៅ។", "គាត់"]),
        ("これは３．５です。はい！？次．次", ["これは３．５です。", "はい！？", "次．", "次"]),
        # Ellipses.
        ("Wait... What? I . . . know. hm… Peter.", ["Wait...", "What?", "I . . . know. hm…", "Peter."]),
        ("no end at all", ["no end at all"]),
        ("", []),
    ],
)
def test_sentences_end_where_people_end_them(text: str, expected: list[str]) -> None:
    assert sentences(text) == expected


def letters(texts: Sequence[str]) -> list[list[int]]:
    """Return one subword for each letter."""
    return [[ord(letter) for letter in text] for text in texts]


def cut(text: str, encode: Encode = letters, *, used_to: int, bearable: int) -> list[str]:
    parts = parts_for(text, encode, used_to=used_to, bearable=bearable)
    assert [part.ids for part in parts] == [encode([part.text])[0] for part in parts]
    return [part.text for part in parts]


def test_parts_fit_and_nothing_is_lost() -> None:
    """Count in letters, for random texts with and without sentence ends, commas and spaces."""
    chance = random.Random(3)
    for _ in range(300):
        alphabet = chance.choice(
            ["ab", "ab ", "ab, ", "aB. ,", "中文。，", "aB! 中", "aM r.1„“« »", "कि। ", "ก ", "e\u0301👩\u200d🚀"]
        )
        text = " ".join("".join(chance.choices(alphabet, k=chance.randint(0, 200))).split())
        limit = chance.randint(3, 40)
        parts = cut(text, used_to=limit, bearable=limit)
        assert "".join("".join(parts).split()) == "".join(text.split())
        assert all(len(part) <= limit for part in parts)
        if len(text) <= limit:
            assert parts == ([text] if text else [""])


@pytest.mark.parametrize("mark", ".!?‼⁇⁈⁉։؟۔।॥။።፧។៕᠃᙮꘎꘏꛳꧉꩝꫰꯫﹗。！？｡．")
def test_every_script_has_its_sentence_ends(mark: str) -> None:
    assert sentences(f"Aaa{mark} Bbb{mark}") == [f"Aaa{mark}", f"Bbb{mark}"]


@pytest.mark.parametrize(
    ("text", "language"), [("Eins. Zwei! J. S. Drei?", "de"), ("一二三。二！三二一", "zh"), ("ไป กิน ข้าว", "th")]
)
def test_sentences_joined_are_the_text(text: str, language: str) -> None:
    assert joined(sentences(text), language) == text
    assert joined(cut(text, used_to=5, bearable=5), language) == text


def test_what_must_be_torn_is_torn_at_unclear_sentence_ends_first_and_not_within_a_character() -> None:
    assert cut("ich, ja. du, nein. er", used_to=10, bearable=10) == ["ich, ja.", "du, nein.", "er"]
    assert cut("aaae\u0301bb", used_to=4, bearable=4) == ["aaa", "e\u0301bb"]
    assert cut("\u0301" * 6, used_to=3, bearable=3) == ["\u0301" * 3] * 2


def test_what_is_not_cut_is_encoded_once() -> None:
    encoded: list[str] = []

    def counting(texts: Sequence[str]) -> list[list[int]]:
        encoded.extend(texts)
        return letters(texts)

    assert cut("One. Two.", counting, used_to=100, bearable=200) == ["One. Two."]
    assert cut("one two three", counting, used_to=10, bearable=20) == ["one two three"]
    assert encoded.count("One. Two.") == encoded.count("one two three") == 2  # one of them by the test


def test_parts_that_are_more_together_than_apart_are_cut_all_the_same() -> None:
    """Units may have fewer subwords alone than within the whole if no space follows a comma."""
    parts = cut("aaa，bbb，ccc", lambda texts: [ids[1:] for ids in letters(texts)], used_to=9, bearable=9)
    assert "".join(parts) == "aaa，bbb，ccc"
    assert all(len(part) - 1 <= 9 for part in parts)


def test_a_thousand_dots_take_no_time() -> None:
    """Trying each dot up to the end of all would take seconds."""
    assert sentences("a" + "." * 100_000) == ["a" + "." * 100_000]
    assert len(sentences("Was? " * 20_000)) == 20_000


def test_a_sentence_is_cut_at_clauses_before_words_before_letters() -> None:
    assert cut("aaa bbb, ccc ddd", used_to=10, bearable=10) == ["aaa bbb,", "ccc ddd"]
    assert cut("aaa bbb ccc ddd", used_to=10, bearable=10) == ["aaa bbb", "ccc ddd"]
    assert cut("abcdefghijkl", used_to=10, bearable=10) == ["abcdef", "ghijkl"]


def test_what_is_longer_than_usual_is_cut_at_sentence_ends_only() -> None:
    text = "Eins zwei drei vier. Fünf."
    assert cut(text, used_to=10, bearable=100) == ["Eins zwei drei vier.", "Fünf."]
    assert cut(text, used_to=30, bearable=100) == [text]


def test_parts_are_joined_as_their_language_is_written() -> None:
    assert joined(["One.", "", "Two."], "en") == "One. Two."
    assert joined(["一。", "二。"], "zh") == joined(["一。", "二。"], "zh-Hans") == "一。二。"
    assert joined(["One.", "Two."], "") == joined(["One.", "Two."], "ja") == "One. Two."
    assert joined(["ไป", "กิน"], "th") == "ไป กิน"
    assert joined(["ໄປ", "ກິນ"], "lo") == "ໄປ ກິນ"
    assert joined(["ខ្ញុំ។", "គាត់។"], "km-KH") == "ខ្ញុំ។ គាត់។"
    assert joined([], "de") == joined(["", ""], "zh") == ""
