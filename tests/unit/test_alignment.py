"""Tests of word alignment against examples worked by hand, and of minimum risk against sacreBLEU's chrF."""

import random

import pytest
import torch
from sacrebleu.metrics.chrf import CHRF

from regard.translate.alignment import shifted, word_links, words_of
from regard.translate.risk import chrf, least_risky, ngrams


def test_pieces_belong_to_the_words_that_spaces_separate() -> None:
    assert words_of(["▁Hel", "lo", "▁", "▁wor", "ld"], "Hello world") == [0, 0, 1, 1, 1]
    assert words_of(["▁", "木", "▁a"], "木 a") == [0, 0, 1]
    assert words_of([], "") == words_of(["<unk>", "▁"], " ") == []


def test_pieces_that_are_not_in_the_text_make_no_words() -> None:
    """Cover unknown pieces, spaces at the end, and bytes of letters and spaces: the words are always those of the text."""
    assert words_of(["<unk>", "▁Hello", "<unk>", "▁there"], "Hello there") == [0, 0, 1, 1]
    assert words_of(["▁Hello", "▁"], "Hello") == [0, 0]
    emoji = [f"<0x{byte:02X}>" for byte in "😀".encode()]
    assert words_of(["▁a", "▁", *emoji, "▁", *emoji, "b"], "a 😀 😀b") == [0, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2]
    assert words_of(["▁a", "<0x0A>", "b"], "a\nb") == [0, 1, 1]


def test_a_word_goes_where_its_pieces_look_most() -> None:
    """Align two target words of 2 and 1 pieces with two source words of 1 and 2; EOS does not count."""
    weights = torch.tensor([[0.3, 0.2, 0.2, 0.3], [0.35, 0.2, 0.2, 0.25], [0.1, 0.1, 0.1, 0.7]])
    # First target word: 0.65 on source word 0 and 0.8 on source word 1, though none of its pieces has more than 0.2.
    assert word_links(weights, [0, 1, 1], [0, 0, 1]) == ((1, 0), (1, 1))
    assert word_links(weights[:, :2], [0], [0, 0, 1]) == ((0, 0), (0, 1))
    assert word_links(weights, [], [0]) == ()


def test_links_of_parts_become_links_of_the_whole() -> None:
    parts = [("a b.", "x.", ((0, 0), (1, 0))), ("c d", "y z", ((0, 1), (1, 0)))]
    assert shifted(parts, "a b. c d", "x. y z") == ((0, 0), (1, 0), (2, 2), (3, 1))
    # If a word is split, both parts belong to it.
    assert shifted([("ab", "x", ((0, 0),)), ("cd e", "y", ((0, 0), (1, 0)))], "abcd e", "xy") == ((0, 0), (1, 0))


def test_chrf_is_sacrebleus() -> None:
    chance, metric = random.Random(2), CHRF()
    texts = ["".join(chance.choices("ab c", k=chance.randint(0, 12))) for _ in range(60)]
    for one in texts:
        for other in texts[::7]:
            expected = metric.sentence_score(one, [other]).score / 100
            assert chrf(ngrams(one), ngrams(other)) == pytest.approx(expected, abs=1e-9)


def test_the_least_risky_is_the_one_most_like_the_others() -> None:
    texts = ["the cat sat", "a dog ran off", "the cat sat on", "the cat sits"]
    metric = CHRF()
    risk = [sum(metric.sentence_score(one, [other]).score for other in texts) for one in texts]
    assert least_risky(texts, None) == sorted(range(4), key=lambda n: -risk[n])
    assert least_risky(texts, None)[0] != 1
    # If one is far more probable than all others together, similarity to it decides.
    assert least_risky(texts, [-50.0, 0.0, -50.0, -50.0])[0] == 1
