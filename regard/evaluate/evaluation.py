"""An evaluation as values: scores, brevity, scores by length, and single sentences."""

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
    """The sources, if they are known, and sets of references, all with equally many lines."""

    references: tuple[Sequence[str], ...]
    sources: Sequence[str] | None
    src_lang: str
    tgt_lang: str
    bleu_form: BleuForm = USUAL_BLEU

    def __len__(self) -> int:
        return len(self.references[0])


@dataclass(frozen=True)
class System:
    """A named set of translations of the text."""

    name: str
    translations: Sequence[str]


@dataclass(frozen=True)
class Brevity:
    """The length of translations, and BLEU's penalty for it."""

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
    num_exact: int  # equal to a reference
    num_empty: int
    num_untranslated: int | None  # equal to the source, though no reference is; None: the source is not known
    chrf: tuple[float, ...]  # of each sentence


@dataclass(frozen=True)
class EvaluatedSentence:
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
    sentences: tuple[EvaluatedSentence, ...]
    best: tuple[EvaluatedSentence, ...]  # of the first system
    worst: tuple[EvaluatedSentence, ...]
    gains: tuple[EvaluatedSentence, ...]  # where the second system is most ahead of the first
    losses: tuple[EvaluatedSentence, ...]  # where it is most behind
    notes: tuple[str, ...]  # reasons for care with the numbers


def evaluate(text: EvaluationText, systems: Sequence[System], num_resamples: int, progress: Progress) -> Evaluation:
    """Evaluate one system, or two to compare."""
    sources = [] if text.sources is None else [text.sources]
    for lines in [*text.references, *sources, *(system.translations for system in systems)]:
        assert len(lines) == len(text) > 0
    unit, lengths = _lengths(text)
    reports = tuple(_report(system, text, lengths, num_resamples, progress) for system in systems)
    sentences = tuple(
        EvaluatedSentence(
            line=row + 1,
            source=None if text.sources is None else text.sources[row],
            references=tuple(lines[row] for lines in text.references),
            translations=tuple(system.translations[row] for system in systems),
            chrf=tuple(report.chrf[row] for report in reports),
        )
        for row in range(len(text))
    )
    best, worst = _extremes(sentences)
    is_pair = len(systems) == 2
    gains, losses = _changes(sentences) if is_pair else ((), ())
    metrics = zip(*(report.measurements for report in reports), strict=True)
    names = [system.name for system in systems]
    return Evaluation(
        text=text,
        length_unit=unit,
        systems=reports,
        comparisons=tuple(compare((names[0], names[1]), *pair) for pair in metrics) if is_pair else (),
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
    num_untranslated = None
    if text.sources is not None:
        rows = zip(translations, text.sources, references, strict=True)
        num_untranslated = sum(line not in wanted and line == source.strip() != "" for line, source, wanted in rows)
    score = bleu._aggregate_and_compute(statistics[bleu])
    return SystemReport(
        name=system.name,
        measurements=tuple(measurements),
        brevity=Brevity(score.bp, float(score.ratio), score.sys_len, score.ref_len, tuple(score.precisions)),
        buckets=_buckets(bleu, statistics[bleu], lengths, num_resamples),
        num_exact=sum(line in wanted for line, wanted in zip(translations, references, strict=True)),
        num_empty=translations.count(""),
        num_untranslated=num_untranslated,
        chrf=tuple(sentence_scores(chrf, statistics[chrf])),
    )


def _lengths(text: EvaluationText) -> tuple[str, list[int]]:
    """Return the length of each source, or else of each first reference, in words or, in languages that do not separate
    words by spaces, in characters; and the unit's name."""
    side, lines, language = (
        ("reference", text.references[0], text.tgt_lang) if text.sources is None else ("source", text.sources, text.src_lang)
    )
    if is_unspaced(language):
        return f"{side} characters", [len("".join(line.split())) for line in lines]
    return f"{side} words", [len(line.split()) for line in lines]


def length_ranges(lengths: Sequence[int]) -> list[tuple[int, int]]:
    """Cut lengths into ranges (both ends included) that hold about equally many sentences each."""
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


def _extremes(sentences: Sequence[EvaluatedSentence]) -> tuple[tuple[EvaluatedSentence, ...], tuple[EvaluatedSentence, ...]]:
    """Return the best and the worst sentences by chrF; BLEU of a single sentence depends too much on its smoothing. Among
    equal ones the longest come first, and none is in both lists."""
    half = len(sentences) // 2
    best = sorted(sentences, key=lambda one: (-one.chrf[0], -len(one.references[0])))
    best = best[: min(NUM_EXAMPLES, len(sentences) - half)]
    taken = {one.line for one in best}
    worst = sorted(sentences, key=lambda one: (one.chrf[0], -len(one.references[0])))
    return tuple(best), tuple([one for one in worst if one.line not in taken][:NUM_EXAMPLES])


def _changes(sentences: Sequence[EvaluatedSentence]) -> tuple[tuple[EvaluatedSentence, ...], tuple[EvaluatedSentence, ...]]:
    """Return the sentences where the second system is most ahead of the first, and where it is most behind."""
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
            notes.append(f"{spaced:.0%} of the lines of {system.name} end in ' .'; detokenise them, or BLEU is misleading")
    return tuple(notes)
