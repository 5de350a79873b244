"""A text's translations, looked at from all sides: scores, brevity, lengths, single sentences. Plain values."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from rich.progress import Progress
from sacrebleu.metrics.base import Metric
from sacrebleu.metrics.bleu import BLEU

from regard.evaluate.comparison import Comparison, compare
from regard.evaluate.metrics import (
    JAPANESE,
    UNTOUCHED,
    USUAL_BLEU,
    BleuForm,
    Measurement,
    Statistics,
    has_mecab,
    measured,
    metrics_for,
    sentence_scores,
    sentence_statistics,
)
from regard.text.sentences import is_unspaced, primary

NUM_EXAMPLES = 10
NUM_BUCKETS = 6
MIN_BUCKET = 10  # sentences; BLEU of fewer says nothing
SUSPICIOUS_PERIODS = 0.5  # of all translations; detokenised text has next to none


@dataclass(frozen=True)
class EvaluationText:
    """What is translated and what it should become; files of references, all as long as the sources."""

    references: tuple[Sequence[str], ...]
    sources: Sequence[str] | None
    src_lang: str
    tgt_lang: str
    bleu_form: BleuForm = USUAL_BLEU

    def __len__(self) -> int:
        return len(self.references[0])


@dataclass(frozen=True)
class System:
    """Someone's translations of the text."""

    name: str
    translations: Sequence[str]


@dataclass(frozen=True)
class Brevity:
    """How long translations are, and what BLEU takes off for it."""

    penalty: float
    ratio: float
    num_tokens: int
    num_reference_tokens: int
    precisions: tuple[float, ...]  # of 1- to 4-grams, before the penalty


@dataclass(frozen=True)
class Bucket:
    """Sentences of similar length."""

    shortest: int
    longest: int
    num_sentences: int
    bleu: Measurement


@dataclass(frozen=True)
class SystemReport:
    name: str
    measurements: tuple[Measurement, ...]
    brevity: Brevity
    buckets: tuple[Bucket, ...]
    num_exact: int  # to the letter what a reference says
    num_empty: int
    num_untranslated: int | None  # just the source, though no reference is; None: the source is not known
    chrf: tuple[float, ...]  # of each sentence


@dataclass(frozen=True)
class Sentence:
    line: int
    source: str | None
    references: tuple[str, ...]
    translations: tuple[str, ...]  # of each system
    chrf: tuple[float, ...]  # of each system


@dataclass(frozen=True)
class Evaluation:
    text: EvaluationText
    length_unit: str  # such as "source words"
    systems: tuple[SystemReport, ...]  # one, or two to compare
    comparisons: tuple[Comparison, ...]  # by each metric; none where there is one system
    sentences: tuple[Sentence, ...]
    best: tuple[Sentence, ...]  # of the first system
    worst: tuple[Sentence, ...]
    gains: tuple[Sentence, ...]  # where the second system is most ahead of the first
    losses: tuple[Sentence, ...]  # where it is most behind
    notes: tuple[str, ...]  # what to know before believing the numbers


def evaluate(text: EvaluationText, systems: Sequence[System], num_resamples: int, progress: Progress) -> Evaluation:
    """One system, or two to compare. Their lines are counted before anything is measured."""
    for lines in [*text.references, *([] if text.sources is None else [text.sources])]:
        assert len(lines) == len(text) > 0
    for system in systems:
        assert len(system.translations) == len(text)
    unit, lengths = _lengths(text)
    reports = tuple(_report(system, text, lengths, num_resamples, progress) for system in systems)
    sentences = _sentences(text, systems, reports)
    best, worst = _extremes(sentences)
    gains, losses = _changes(sentences) if len(systems) == 2 else ((), ())
    return Evaluation(
        text=text,
        length_unit=unit,
        systems=reports,
        comparisons=_comparisons(reports) if len(systems) == 2 else (),
        sentences=sentences,
        best=best,
        worst=worst,
        gains=gains,
        losses=losses,
        notes=_notes(text, systems),
    )


def _report(
    system: System, text: EvaluationText, lengths: Sequence[int], num_resamples: int, progress: Progress
) -> SystemReport:
    metrics = metrics_for(text.tgt_lang, text.bleu_form)
    bleu, chrf, _ = metrics
    measurements: list[Measurement] = []
    statistics: dict[Metric, Statistics] = {}
    for metric, name in zip(metrics, ("BLEU", "chrF", "TER"), strict=True):
        lines = progress.track(system.translations, description=f"{name} of {system.name}")
        statistics[metric] = sentence_statistics(metric, lines, text.references)
        measurements.append(measured(metric, statistics[metric], num_resamples))
    translations = [line.strip() for line in system.translations]
    references = [{line.strip() for line in lines} for lines in zip(*text.references, strict=True)]
    exact = [line in wanted for line, wanted in zip(translations, references, strict=True)]
    sources = None if text.sources is None else [line.strip() for line in text.sources]
    return SystemReport(
        name=system.name,
        measurements=tuple(measurements),
        brevity=_brevity(bleu, statistics[bleu]),
        buckets=_buckets(bleu, statistics[bleu], lengths, num_resamples),
        num_exact=sum(exact),
        num_empty=translations.count(""),
        num_untranslated=None
        if sources is None
        else sum(
            bool(line) and line == source and not is_right
            for line, source, is_right in zip(translations, sources, exact, strict=True)
        ),
        chrf=tuple(sentence_scores(chrf, statistics[chrf])),
    )


def _brevity(bleu: BLEU, statistics: Statistics) -> Brevity:
    score = bleu._aggregate_and_compute(statistics)
    return Brevity(score.bp, float(score.ratio), score.sys_len, score.ref_len, tuple(score.precisions))


def _lengths(text: EvaluationText) -> tuple[str, list[int]]:
    """Of each source, or of each first reference where there are no sources: characters where words have no spaces."""
    side, lines, language = (
        ("reference", text.references[0], text.tgt_lang) if text.sources is None else ("source", text.sources, text.src_lang)
    )
    if is_unspaced(language):
        return f"{side} characters", [len("".join(line.split())) for line in lines]
    return f"{side} words", [len(line.split()) for line in lines]


def length_ranges(lengths: Sequence[int]) -> list[tuple[int, int]]:
    """From shortest to longest in ranges (both ends included) that hold about as many sentences each."""
    enough = max(MIN_BUCKET, math.ceil(len(lengths) / NUM_BUCKETS))
    ranges: list[tuple[int, int]] = []
    held = enough  # in the last range; full, so that the first length opens one
    for length, count in sorted(Counter(lengths).items()):
        if held >= enough:
            ranges.append((length, length))
            held = count
        else:
            ranges[-1] = (ranges[-1][0], length)
            held += count
    if len(ranges) > 1 and held < enough / 2:  # the few longest join those before them
        (shortest, _), (_, longest) = ranges[-2:]
        ranges[-2:] = [(shortest, longest)]
    return ranges


def _buckets(bleu: BLEU, statistics: Statistics, lengths: Sequence[int], num_resamples: int) -> tuple[Bucket, ...]:
    buckets = []
    for shortest, longest in length_ranges(lengths):
        rows = [row for row, length in zip(statistics, lengths, strict=True) if shortest <= length <= longest]
        buckets.append(Bucket(shortest, longest, len(rows), measured(bleu, rows, num_resamples)))
    return tuple(buckets)


def _comparisons(reports: Sequence[SystemReport]) -> tuple[Comparison, ...]:
    first, second = reports
    return tuple(
        compare((first.name, second.name), one, other)
        for one, other in zip(first.measurements, second.measurements, strict=True)
    )


def _sentences(text: EvaluationText, systems: Sequence[System], reports: Sequence[SystemReport]) -> tuple[Sentence, ...]:
    return tuple(
        Sentence(
            line=row + 1,
            source=None if text.sources is None else text.sources[row],
            references=tuple(lines[row] for lines in text.references),
            translations=tuple(system.translations[row] for system in systems),
            chrf=tuple(report.chrf[row] for report in reports),
        )
        for row in range(len(text))
    )


def _extremes(sentences: Sequence[Sentence]) -> tuple[tuple[Sentence, ...], tuple[Sentence, ...]]:
    """The best and the worst by chrF, which is steadier than BLEU for a single sentence: BLEU is 0 without a common
    4-gram, or what its smoothing makes of it. Of equal ones the longest come first, and none is both."""
    half = len(sentences) // 2
    best = sorted(sentences, key=lambda one: (-one.chrf[0], -len(one.references[0])))
    best = best[: min(NUM_EXAMPLES, len(sentences) - half)]
    taken = {one.line for one in best}
    worst = sorted(sentences, key=lambda one: (one.chrf[0], -len(one.references[0])))
    return tuple(best), tuple([one for one in worst if one.line not in taken][:NUM_EXAMPLES])


def _changes(sentences: Sequence[Sentence]) -> tuple[tuple[Sentence, ...], tuple[Sentence, ...]]:
    """Where the second system gains most on the first, and where it loses most."""
    ordered = sorted(sentences, key=lambda one: one.chrf[0] - one.chrf[1])
    gains = [one for one in ordered if one.chrf[1] > one.chrf[0]]
    losses = [one for one in reversed(ordered) if one.chrf[1] < one.chrf[0]]
    return tuple(gains[:NUM_EXAMPLES]), tuple(losses[:NUM_EXAMPLES])


def _notes(text: EvaluationText, systems: Sequence[System]) -> tuple[str, ...]:
    notes = []
    if len(text) == 1:
        notes.append("one sentence has no interval, and no difference on it can be tested")
    if is_unspaced(text.tgt_lang):
        notes.append(f"TER takes words from between spaces, of which {text.tgt_lang} has few; trust BLEU and chrF")
    if primary(text.tgt_lang) in JAPANESE and not text.bleu_form.tokenizer and not has_mecab():
        notes.append("BLEU counts characters; for words, as others report it, pip install 'sacrebleu[ja]'")
    for system in systems if text.bleu_form.tokenizer != UNTOUCHED else ():
        spaced = sum(line.endswith(" .") for line in system.translations) / len(text)
        expected = sum(line.endswith(" .") for line in text.references[0]) / len(text)
        if spaced > SUSPICIOUS_PERIODS > expected:
            notes.append(f"{spaced:.0%} of the lines of {system.name} end in ' .'; detokenise them, or BLEU is not BLEU")
    return tuple(notes)
