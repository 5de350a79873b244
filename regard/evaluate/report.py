"""An evaluation printed on a terminal, and as JSON."""

from collections.abc import Sequence
from dataclasses import asdict

import sacrebleu
from rich.console import Console
from rich.markup import escape
from rich.table import Table

import regard
from regard.evaluate.evaluation import Bucket, Evaluation, SystemReport
from regard.evaluate.metrics import Measurement
from regard.settings import Json


def to_json(evaluation: Evaluation, settings: Json) -> Json:
    """Return the whole evaluation as JSON, with the settings that it was made with."""
    lists = ("best", "worst", "gains", "losses", "sentences")
    return {
        "regard": regard.__version__,
        "sacrebleu": sacrebleu.__version__,
        "settings": settings,
        "src_lang": evaluation.text.src_lang,
        "tgt_lang": evaluation.text.tgt_lang,
        "num_sentences": len(evaluation.text),
        "num_references": len(evaluation.text.references),
        "length_unit": evaluation.length_unit,
        "systems": [_system_json(system) for system in evaluation.systems],
        "comparisons": [asdict(one) for one in evaluation.comparisons],
        "notes": list(evaluation.notes),
        **{name: [asdict(one) for one in getattr(evaluation, name)] for name in lists},
    }


def _system_json(system: SystemReport) -> Json:
    counts = {name: getattr(system, name) for name in ("num_exact", "num_empty", "num_untranslated")}
    return {
        "name": system.name,
        "scores": [_measurement_json(one) for one in system.measurements],
        "brevity": asdict(system.brevity),
        "buckets": [_bucket_json(bucket) for bucket in system.buckets],
        **counts,
    }


def _measurement_json(measurement: Measurement) -> Json:
    return {
        "metric": measurement.name,
        "score": measurement.score,
        "interval": _interval_json(measurement),
        "signature": measurement.signature,
        "lower_is_better": measurement.lower_is_better,
    }


def _bucket_json(bucket: Bucket) -> Json:
    sizes = {name: getattr(bucket, name) for name in ("shortest", "longest", "num_sentences")}
    return {**sizes, "bleu": bucket.bleu.score, "interval": _interval_json(bucket.bleu)}


def _interval_json(measurement: Measurement) -> Json | None:
    return None if measurement.interval is None else asdict(measurement.interval)


def print_report(evaluation: Evaluation, console: Console) -> None:
    """Print tables and remarks. Sentences are in the files only."""
    _say(console, f"{heading(evaluation)}: {extent(evaluation)}\n")
    console.print(_score_table(evaluation.systems))
    for measurement in evaluation.systems[0].measurements:
        _say(console, f"{measurement.name}|{measurement.signature}")
    console.print()
    for comparison in evaluation.comparisons:
        _say(console, comparison.words)
    for system in evaluation.systems:
        for sentence in _remarks(system, len(evaluation.text)):
            _say(console, f"{system.name}: {sentence}" if len(evaluation.systems) > 1 else sentence)
    for note in evaluation.notes:
        _say(console, f"note: {note}")
    console.print()
    console.print(_bucket_table(evaluation.systems, evaluation.length_unit))


def _say(console: Console, sentence: str) -> None:
    """Print a line without breaking it, so that signatures can be copied."""
    console.print(sentence, markup=False, highlight=False, soft_wrap=True)


def heading(evaluation: Evaluation) -> str:
    """Return the systems and languages, as in `mine and other, de → en`."""
    text = evaluation.text
    names = " and ".join(system.name for system in evaluation.systems)
    if text.sources is None:
        return f"{names}, {text.tgt_lang}" if text.tgt_lang else names
    return f"{names}, {text.src_lang or 'source'} → {text.tgt_lang or 'target'}"


def extent(evaluation: Evaluation) -> str:
    """Return the numbers of sentences and of references."""
    sentences = counted(len(evaluation.text), "sentence")
    return f"{sentences}, {counted(len(evaluation.text.references), 'reference')} for each"


def counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def _score_table(systems: Sequence[SystemReport]) -> Table:
    table = Table()
    if len(systems) > 1:
        table.add_column("system", overflow="fold")
    table.add_column("metric", no_wrap=True)
    for heading in ("score", "95 % interval", "mean ±"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("better is", no_wrap=True)
    for system in systems:
        for n, one in enumerate(system.measurements):
            name = [escape(system.name) if n == 0 else ""] if len(systems) > 1 else []
            interval, mean, direction = "–", "–", "lower" if one.lower_is_better else "higher"
            if one.interval is not None:
                interval = f"{one.interval.low:.2f}–{one.interval.high:.2f}"
                mean = f"{one.interval.mean:.2f} ± {one.interval.half_width:.2f}"
            is_last = n == len(system.measurements) - 1
            table.add_row(*name, one.name, f"{one.score:.2f}", interval, mean, direction, end_section=is_last)
    return table


def _bucket_table(systems: Sequence[SystemReport], unit: str) -> Table:
    table = Table()
    table.add_column(unit, justify="right", no_wrap=True)
    table.add_column("sentences", justify="right", no_wrap=True)
    for system in systems:
        heading = "BLEU" if len(systems) == 1 else f"BLEU of {escape(system.name)}"
        table.add_column(heading, justify="right", overflow="fold")
    for row in zip(*(system.buckets for system in systems), strict=True):
        intervals = [f" ± {one.bleu.interval.half_width:4.1f}" if one.bleu.interval else "" for one in row]
        scores = [f"{one.bleu.score:.1f}{interval}" for one, interval in zip(row, intervals, strict=True)]
        shortest, longest = row[0].shortest, row[0].longest
        lengths = f"{shortest}" if shortest == longest else f"{shortest}–{longest}"
        table.add_row(lengths, f"{row[0].num_sentences:,}", *scores)
    return table


def _remarks(system: SystemReport, num_sentences: int) -> list[str]:
    brevity = system.brevity
    lengths = f"{brevity.num_tokens:,} tokens where references have {brevity.num_reference_tokens:,}"
    names = ("exactly a reference", "empty", "left as the source")
    shares = zip(names, (system.num_exact, system.num_empty, system.num_untranslated), strict=True)
    told = [f"{what} {number:,} ({number / num_sentences:.1%})" for what, number in shares if number is not None]
    return [
        f"brevity penalty {brevity.penalty:.3f}: {lengths}, a ratio of {brevity.ratio:.3f}",
        f"translations that are {', '.join(told)}",
    ]
