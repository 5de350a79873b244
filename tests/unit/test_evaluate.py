"""Tests of evaluation against the sacrebleu command line, and against arithmetic by hand."""

import itertools
import json
import math
import os
import random
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from rich.progress import Progress

from regard.evaluate.command import EvaluationSettings, languages, system_names
from regard.evaluate.comparison import compare, p_text, points
from regard.evaluate.evaluation import MIN_BUCKET, NUM_BUCKETS, Evaluation, EvaluationText, System, evaluate, length_ranges
from regard.evaluate.metrics import (
    USUAL_BLEU,
    BleuForm,
    Interval,
    Measurement,
    bleu,
    has_mecab,
    measured,
    metrics_for,
    sentence_scores,
    sentence_statistics,
)
from regard.evaluate.page import page
from regard.evaluate.report import to_json

LETTERS = {"en": "abcdefghij", "zh": "今天气很好我们去公园散步", "ja": "今日はとても良い天気ですね"}


def sacrebleu(*arguments: str) -> str:
    """Run the real command line, without the user's environment variables."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SACREBLEU")} | {"NO_COLOR": "1"}
    command = [sys.executable, "-m", "sacrebleu", *arguments, "-q", "-m", "bleu", "chrf", "ter"]
    return subprocess.run(command, capture_output=True, text=True, check=True, env=environment, encoding="utf-8").stdout


def some_lines(language: str, seed: int, count: int) -> list[str]:
    """Return lines of a few words each (or letters, in languages without spaces), some with punctuation."""
    chance = random.Random(seed)
    words = [chance.choice(LETTERS[language]) * (1 if language != "en" else chance.randint(1, 3)) for _ in range(30)]
    join = " ".join if language == "en" else "".join
    return [join(chance.choices(words, k=chance.randint(2, 12))) + chance.choice(["", ".", ", no?"]) for _ in range(count)]


def damaged(lines: Sequence[str], seed: int, share: float) -> list[str]:
    """Leave some letters out, and double some."""
    chance = random.Random(seed)
    return ["".join(c * chance.choices([1, 0, 2], [1 - share, share / 2, share / 2])[0] for c in line) for line in lines]


def write(path: Path, lines: Sequence[str]) -> str:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return str(path)


def evaluated(
    translations: Sequence[Sequence[str]],
    *references: Sequence[str],
    sources: Sequence[str] | None = None,
    lang: str = "en",
    num_resamples: int = 40,
    form: BleuForm = USUAL_BLEU,
) -> Evaluation:
    text = EvaluationText(references, sources, "de", lang, form)
    systems = [System(name, lines) for name, lines in zip("AB", translations, strict=False)]
    return evaluate(text, systems, num_resamples, Progress(disable=True))


@pytest.mark.parametrize(
    ("language", "flags", "num_references"),
    [
        ("en", [], 1),
        ("en", [], 3),
        ("zh", ["-tok", "zh"], 1),
        ("zh", ["-tok", "zh"], 2),
        ("ja", ["-tok", "ja-mecab" if has_mecab() else "char"], 1),
    ],
)
def test_scores_intervals_and_signatures_are_the_command_lines(
    tmp_path: Path, language: str, flags: list[str], num_references: int
) -> None:
    first = some_lines(language, seed=1, count=37)
    references = [first, *(damaged(first, seed, share=0.2) for seed in range(num_references - 1))]
    translations = damaged(first, seed=9, share=0.25)
    translations[3], references[-1][5] = "", ""
    files = [write(tmp_path / f"ref.{n}", lines) for n, lines in enumerate(references)]
    told = json.loads(sacrebleu(*files, "-i", write(tmp_path / "mine", translations), "--confidence", "-w", "9", *flags))
    ours = evaluated([translations], *references, lang=language, num_resamples=1000).systems[0]
    assert [one.name for one in ours.measurements] == ["BLEU", "chrF2", "TER"] == [theirs["name"] for theirs in told]
    for one, theirs in zip(ours.measurements, told, strict=True):
        assert one.signature == theirs["signature"] and f"nrefs:{num_references}|bs:1000" in one.signature
        assert one.score == pytest.approx(theirs["score"], abs=1e-8) and one.score > 0
        assert one.interval is not None
        assert one.interval.mean == pytest.approx(theirs["confidence_mean"], abs=1e-8)
        assert one.interval.half_width == pytest.approx(theirs["confidence_var"], abs=1e-8) and one.interval.half_width > 0
        assert one.interval.high - one.interval.low == pytest.approx(2 * one.interval.half_width, rel=1e-5)
    verbose = re.search(r"BP = ([\d.]+) ratio = ([\d.]+) hyp_len = (\d+) ref_len = (\d+)", told[0]["verbose_score"])
    assert verbose is not None
    brevity = ours.brevity
    assert [f"{brevity.penalty:.3f}", f"{brevity.ratio:.3f}"] == [verbose[1], verbose[2]]
    assert [brevity.num_tokens, brevity.num_reference_tokens] == [int(verbose[3]), int(verbose[4])]


@pytest.mark.parametrize(
    ("form", "flags", "words"),
    [
        (BleuForm(lowercase=True), ["-lc"], "case:lc|eff:no|tok:13a"),
        (BleuForm("intl"), ["-tok", "intl"], "case:mixed|eff:no|tok:intl"),
        (BleuForm("none", lowercase=True), ["--tokenize", "none", "--lowercase"], "case:lc|eff:no|tok:none"),
    ],
)
def test_case_and_words_are_the_command_lines(tmp_path: Path, form: BleuForm, flags: list[str], words: str) -> None:
    lines = some_lines("en", seed=5, count=23)
    translations = [line.title() if n % 2 else line.replace("a", "A-b") for n, line in enumerate(damaged(lines, 6, 0.1))]
    files = write(tmp_path / "ref", lines), "-i", write(tmp_path / "mine", translations)
    told = json.loads(sacrebleu(*files, "--confidence", "-w", "9", *flags))
    ours = evaluated([translations], lines, num_resamples=1000, form=form).systems[0].measurements
    for one, theirs in zip(ours, told, strict=True):
        assert one.score == pytest.approx(theirs["score"], abs=1e-8) and one.signature == theirs["signature"]
    assert words in ours[0].signature
    plain = evaluated([translations], lines).systems[0].measurements
    assert ours[0].score != plain[0].score and [one.score for one in ours[1:]] == [one.score for one in plain[1:]]


def test_japanese_words_where_they_can_be_found_and_a_word_where_not(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = some_lines("ja", seed=1, count=12)
    monkeypatch.setattr("regard.evaluate.metrics.has_mecab", lambda: True)
    assert BleuForm().tokenizer_for("ja-JP") == "ja-mecab" and BleuForm("char").tokenizer_for("ja") == "char"
    assert bleu(lines, lines, "ja") == pytest.approx(100), "a run's own BLEU does not depend on what is installed"
    for module in ("metrics", "evaluation"):
        monkeypatch.setattr(f"regard.evaluate.{module}.has_mecab", lambda: False)
    said = "BLEU counts characters; for words, as others report it, pip install 'sacrebleu[ja]'"
    assert BleuForm().tokenizer_for("ja") == "char" and said in evaluated([lines], lines, lang="ja").notes
    assert said not in evaluated([lines], lines, lang="ja", form=BleuForm("char")).notes
    assert said not in evaluated([lines], lines, lang="zh").notes


@pytest.mark.parametrize("share", [0.1, 0.17])
def test_paired_bootstrap_is_the_command_lines(tmp_path: Path, share: float) -> None:
    """Compare once with a clear difference and once with a doubtful one."""
    references = some_lines("en", seed=2, count=41)
    systems = [damaged(references, seed=3, share=0.2), damaged(references, seed=4, share=share)]
    files = [write(tmp_path / name, lines) for name, lines in zip("AB", systems, strict=True)]
    told = sacrebleu(write(tmp_path / "ref", references), "-i", *files, "--paired-bs", "-f", "text", "-w", "6")
    ours = evaluated(systems, references, num_resamples=1000)
    p_values = re.findall(r"\(p = ([\d.]+)\)", told)
    assert [f"{one.p_value:.4f}" for one in ours.comparisons] == p_values and len(p_values) == 3
    scores = re.findall(r"([\d.]+) \(([\d.]+) ± ([\d.]+)\)", told)
    assert len(scores) == 6
    for one, theirs in zip([m for system in ours.systems for m in system.measurements], scores, strict=True):
        assert one.interval is not None
        # The command line computes means in two ways, one of them in float32, so the sixth digit may differ.
        assert [one.score, one.interval.mean, one.interval.half_width] == pytest.approx(list(map(float, theirs)), rel=2e-6)
        assert f"{one.name:<10} {one.signature}\n" in told
    first, second = (system.measurements[0].score for system in ours.systems)
    assert ours.comparisons[0].difference == second - first


def measurement(name: str, score: float, resampled: Sequence[float], *, interval: bool = True) -> Measurement:
    return Measurement(
        name, score, Interval(0.0, 0.0, 0.0, 0.0) if interval else None, "", np.array(resampled, dtype=np.float64)
    )


def test_p_is_the_share_of_resamples_that_differ_as_much_by_chance() -> None:
    """With differences 1, 1, 1, 5, less their mean of 2, one of four exceeds the 1.5 found; (1 + 1) / (4 + 1)."""
    first, second = measurement("BLEU", 20.0, [10, 20, 30, 40]), measurement("BLEU", 21.5, [11, 21, 31, 45])
    assert compare(("A", "B"), first, second).p_value == 2 / 5
    assert compare(("B", "A"), second, first).p_value == 2 / 5


SURE = [1.0] * 49  # differences without variance: (0 + 1) / (49 + 1)
UNSURE = [0.0, 10.0] * 24  # half of them are 5 above their mean: (24 + 1) / (48 + 1)


@pytest.mark.parametrize(
    ("name", "scores", "differences", "words"),
    [
        ("BLEU", (20.0, 21.2), SURE, "B is better than A by 1.2 BLEU, p = 0.02"),
        ("BLEU", (21.2, 20.0), SURE, "A is better than B by 1.2 BLEU, p = 0.02"),
        ("BLEU", (20.0, 21.2), UNSURE, "no difference found between A and B: +1.2 BLEU for B, p = 0.51"),
        ("BLEU", (21.2, 20.0), UNSURE, "no difference found between A and B: −1.2 BLEU for B, p = 0.51"),
        ("TER", (20.0, 21.2), SURE, "A is better than B by 1.2 TER (TER is better when lower), p = 0.02"),
        ("TER", (21.2, 20.0), SURE, "B is better than A by 1.2 TER (TER is better when lower), p = 0.02"),
        ("TER", (21.2, 20.0), UNSURE, "no difference found between A and B: −1.2 TER for B, p = 0.51"),
    ],
)
def test_words_say_who_is_better(name: str, scores: tuple[float, float], differences: list[float], words: str) -> None:
    first, second = measurement(name, scores[0], [0.0] * len(differences)), measurement(name, scores[1], differences)
    assert compare(("A", "B"), first, second).words == words


def test_what_cannot_be_tested_is_said_to_be_so() -> None:
    lines = some_lines("en", seed=1, count=20)
    same = evaluated([lines, lines], damaged(lines, seed=1, share=0.2))
    assert all(one.p_value is None and one.difference == 0 for one in same.comparisons)
    assert same.comparisons[0].words.startswith("no difference between A and B in BLEU: both have ")
    assert same.gains == same.losses == ()
    alone = evaluated([["a b c d f"], ["a b c d e"]], ["a b c d e"])
    assert all(one.p_value is None for one in alone.comparisons)
    assert alone.comparisons[2].words == "B has the better TER by 20.0, but one sentence allows no test"
    assert all(one.interval is None for system in alone.systems for one in system.measurements)
    assert alone.notes == ("one sentence has no interval, and no difference on it can be tested",)


def test_the_better_of_two_constructed_systems_is_found_by_all_metrics() -> None:
    references = some_lines("en", seed=5, count=60)
    good, bad = damaged(references, seed=6, share=0.05), damaged(references, seed=7, share=0.5)
    for systems, better, other in (([bad, good], "B", "A"), ([good, bad], "A", "B")):
        ours = evaluated(systems, references, num_resamples=200)
        assert all(one.words.startswith(f"{better} is better than {other} by ") for one in ours.comparisons)
        assert all(one.p_value is not None and one.p_value < 0.05 for one in ours.comparisons)
        changes = [sorted((one.chrf[1] - one.chrf[0] for one in ours.sentences), reverse=most) for most in (True, False)]
        assert [one.chrf[1] - one.chrf[0] for one in ours.gains] == [d for d in changes[0] if d > 0][:10]
        assert [one.chrf[1] - one.chrf[0] for one in ours.losses] == [d for d in changes[1] if d < 0][:10]


def test_small_numbers_are_not_rounded_away() -> None:
    assert [points(d) for d in (1.24, -0.3, 0.004, 0.0)] == ["1.2", "0.3", "0.004", "0.0"]
    assert [p_text(p) for p in (0.004, 0.2134, 1 / 1001, 50 / 1001, 0.05)] == ["0.004", "0.21", "0.001", "0.04995", "0.05"]


@pytest.mark.parametrize(
    "lengths",
    [
        list(range(1, 601)),
        [5] * 400,
        [1] + [5] * 59,
        [3],
        [0, 1, 2],
        [random.Random(1).randint(1, 40) for _ in range(997)],
        [4] * 170 + [5] * 170 + [6] * 170 + [7] * 3,
    ],
)
def test_lengths_are_cut_into_ranges_of_about_as_many(lengths: list[int]) -> None:
    ranges = length_ranges(lengths)
    held = [sum(low <= length <= high for length in lengths) for low, high in ranges]
    assert sum(held) == len(lengths) and all(one[1] < other[0] for one, other in itertools.pairwise(ranges))
    assert 1 <= len(ranges) <= NUM_BUCKETS
    assert {end for one in ranges for end in one} <= set(lengths), "a range begins and ends where there is a sentence"
    if len(ranges) > 1:
        assert min(held) >= min(MIN_BUCKET, len(lengths) / NUM_BUCKETS) / 2
    if lengths == list(range(1, 601)):
        assert ranges == [(1, 100), (101, 200), (201, 300), (301, 400), (401, 500), (501, 600)]


def test_a_buckets_bleu_is_that_of_its_sentences_alone() -> None:
    references = some_lines("en", seed=8, count=90)
    translations = damaged(references, seed=9, share=0.2)
    sources = [" ".join(["wort"] * (1 + n % 3)) for n in range(90)]
    ours = evaluated([translations], references, sources=sources)
    assert ours.length_unit == "source words"
    assert [(b.shortest, b.longest, b.num_sentences) for b in ours.systems[0].buckets] == [(n, n, 30) for n in (1, 2, 3)]
    for n, bucket in enumerate(ours.systems[0].buckets):
        alone = evaluated([translations[n::3]], references[n::3]).systems[0].measurements[0]
        assert bucket.bleu.score == alone.score and bucket.bleu.interval == alone.interval
    assert evaluated([translations], references).length_unit == "reference words"
    chinese = some_lines("zh", seed=1, count=12)
    unspaced = evaluated([chinese], chinese, lang="zh-TW")
    assert unspaced.length_unit == "reference characters" and unspaced.systems[0].buckets[-1].longest > 1
    assert unspaced.notes == ("TER takes words from between spaces, of which zh-TW has few; trust BLEU and chrF",)


def test_oddities_are_counted() -> None:
    references = ["the cat", "the dog", "Berlin", "a", "b", "c"]
    others = ["a cat", "a dog", "Berlin", "a", "b", "c"]
    sources = ["die Katze", "der Hund", "Berlin", "x", "y", ""]
    translations = ["a cat", "der Hund ", "Berlin", " ", "y", ""]
    ours = evaluated([translations], references, others, sources=sources).systems[0]
    assert (ours.num_exact, ours.num_empty, ours.num_untranslated) == (2, 2, 2), "Berlin is right as it is"
    assert evaluated([translations], references).systems[0].num_untranslated is None
    tokenised = evaluated([["it is so ."] * 5], ["It is so."] * 5)
    assert any("100% of the lines of A end in ' .'" in note for note in tokenised.notes)


@pytest.mark.parametrize("count", [1, 2, 5, 19, 50])
def test_best_and_worst_are_by_chrf_and_never_the_same(count: int) -> None:
    references = some_lines("en", seed=count, count=count)
    translations = damaged(references, seed=1, share=0.3)
    ours = evaluated([translations], references)
    _, chrf, _ = metrics_for("en")
    by_api = [chrf.sentence_score(one, [other]).score for one, other in zip(translations, references, strict=True)]
    assert list(ours.systems[0].chrf) == pytest.approx(by_api, abs=1e-9)
    assert [one.chrf[0] for one in ours.best] == sorted(ours.systems[0].chrf, reverse=True)[: len(ours.best)]
    assert [one.chrf[0] for one in ours.worst] == sorted(ours.systems[0].chrf)[: len(ours.worst)]
    lines = [one.line for one in (*ours.best, *ours.worst)]
    assert len(set(lines)) == len(lines) == min(20, count)
    assert all(one.translations == (translations[one.line - 1],) for one in ours.best)


@pytest.mark.parametrize(
    ("translations", "references"),
    [(["", " "], ["a b", "c"]), (["a b", "c"], ["", ""]), (["", ""], ["", ""]), ([""], ["a"]), (["a"], ["a"])],
)
def test_blank_and_single_lines_are_no_reason_to_fail(translations: list[str], references: list[str]) -> None:
    ours = evaluated([translations, references], references)
    text = json.dumps(to_json(ours, {"num_resamples": 40}), allow_nan=False)
    assert json.loads(text)["num_sentences"] == len(references)
    assert all(math.isfinite(one.score) for one in ours.systems[0].measurements)


def test_resampling_one_test_set_at_a_time_draws_what_all_at_once_would() -> None:
    references = some_lines("en", seed=1, count=11)
    _, chrf, _ = metrics_for("en")
    statistics = sentence_statistics(chrf, damaged(references, seed=2, share=0.3), [references])
    drawn = np.random.default_rng(12345).choice(11, size=(50, 11))
    rows = np.array(statistics, dtype=np.float64)
    expected = [sentence_scores(chrf, [rows[which].sum(axis=0).tolist()])[0] for which in drawn]
    assert measured(chrf, statistics, 50).resampled.tolist() == pytest.approx(expected, rel=1e-5)


def test_markup_in_sentences_cannot_leave_the_script() -> None:
    hostile = ["</script><script>alert(1)</script>", "<!-- <script> & \u2028 \\ ' \" `${1}`", "/*DATA*/null"]
    ours = evaluated([hostile], hostile, sources=hostile)
    written = page(ours, to_json(ours, {"num_resamples": 40}))
    assert written.count("<script>") == written.count("</script>") == 1 and "<!--" not in written
    found = re.search(r"const data = (.*);\n", written)
    assert found is not None
    data = json.loads(found[1])
    assert [one["translations"][0] for one in data["sentences"]] == hostile
    assert data["chrf"] == [[100.0, 100.0, 100.0]] and data["systems"][0]["num_untranslated"] == 0
    assert not re.search(r"innerHTML|insertAdjacent|document\.write|outerHTML", written)
    assert not re.search(r"""(src|href|url|import)\s*[=(]\s*["']?\s*(https?:)?//""", written)


def test_names_and_languages_come_from_paths() -> None:
    assert system_names(["runs/a", "runs/b"]) == ["a", "b"] and system_names(["."]) == [Path.cwd().name]
    assert system_names(["old/test.en", "new/test.en"]) == ["old/test.en", "new/test.en"]
    with pytest.raises(ValueError, match="runs/a cannot be compared with itself; give another --versus"):
        system_names(["runs/a", "runs/b/../a"])
    for refs, src, told, expected in (
        ("test.en", "test.de.gz", None, ("de", "en")),
        ("test.ref", None, None, ("", "")),
        ("test.en", None, "zh", ("", "zh")),
    ):
        settings = EvaluationSettings(system="no such", refs=(refs,), src=src, tgt_lang=told)
        assert languages(settings) == expected
