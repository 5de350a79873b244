"""Compares the three systems of the notes, trained on the same text with the same number of parameters (claims S1 to S5)."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from regard.evaluate.metrics import bleu
from regard.lab.experiment import Setting
from regard.lab.result import DataCell, LineData, Result, SeriesData, TableData, Term
from regard.lab.trials import KFTT, MULTI30K, Bench, Outcome, Trial, bench_for, machines, outcomes, plan
from regard.text.cleaning import Pair

KINDS = ("rnn", "rnn-attention", "transformer")
LEARNT = 10.0  # BLEU that both systems with attention must reach for a verdict
SHARE = 0.1  # of the shortest sentences' BLEU
NUM_GROUPS = 5  # of as many sentences each, by the length of their source


@dataclass(frozen=True)
class Course:
    """Training settings that all systems of a comparison share."""

    name: str
    preset: str
    steps: int
    batch_tokens: int
    learning_rate: float  # the Transformer's
    recurrent_rate: float  # the RNNs'
    warmup: int  # 0: a fifth of the steps
    accumulation: int  # 0: as padding has it
    num_seeds: int
    timed_steps: int  # of a run that measures a system's speed; 0: all


# At the small size, one learning rate suits all; EXPERIMENTS.md compares others.
SMALL = Course("multi30k", "small", 1000, 4096, 2e-3, 2e-3, warmup=0, accumulation=0, num_seeds=3, timed_steps=0)
# The time of an RNN's update depends on the length of its sentences, not on their number: one batch, not two.
BASE = Course("kftt", "base", 3000, 12_800, 1e-3, 2e-3, warmup=800, accumulation=1, num_seeds=1, timed_steps=60)


def trials(course: Course, seeds: Sequence[int], steps: int) -> list[Trial]:
    """Return the trials of all systems, the slowest first."""
    steps = steps or course.steps
    train = plan(steps, save=steps > course.timed_steps) | {
        "batch_tokens": course.batch_tokens,
        **({"accumulation": course.accumulation} if course.accumulation else {}),
        "schedule": "linear",
        "warmup": course.warmup,
        "clip_norm": 1.0,
    }
    rates = {"transformer": course.learning_rate}
    return [
        Trial(
            f"{course.name}-{kind}",
            seed,
            {
                "preset": course.preset,
                "model": {"kind": kind},
                "train": train | {"learning_rate": rates.get(kind, course.recurrent_rate)},
            },
        )
        for kind in ("rnn-attention", "transformer", "rnn")
        for seed in seeds
    ]


@dataclass(frozen=True)
class SystemRuns:
    """Runs of one system, and the scores of each seed."""

    kind: str
    runs: tuple[Outcome, ...]
    bleu: tuple[float, ...]
    by_length: tuple[tuple[float, ...], ...]  # of each seed, a score for each group of lengths
    timed: Outcome  # the run whose speed is reported

    @property
    def seconds(self) -> float:
        """Estimate the training time on an otherwise idle machine."""
        run = self.runs[0]
        return run.seconds * run.tokens_per_second / self.timed.tokens_per_second

    @property
    def mean_by_length(self) -> list[float]:
        return [statistics.mean(scores) for scores in zip(*self.by_length, strict=True)]

    @property
    def kept(self) -> float:
        """Return the longest sentences' BLEU as a share of the shortest ones'."""
        return self.mean_by_length[-1] / max(self.mean_by_length[0], 1e-9)


def length_groups(test: Sequence[Pair]) -> list[list[int]]:
    """Group sentences by the number of characters of their source, with equally many in each group."""
    order = sorted(range(len(test)), key=lambda n: len(test[n].src))
    return [group.tolist() for group in np.array_split(np.array(order), NUM_GROUPS)]


def results(course: Course, bench: Bench, setting: Setting) -> list[SystemRuns]:
    """Train and score all systems. If runs train in parallel, train the first seed again by itself to measure its speed."""
    seeds = setting.seeds(course.num_seeds)
    found = {(one.name, one.seed): one for one in outcomes(trials(course, seeds, setting.steps), bench)}
    timed = {name: one for (name, seed), one in found.items() if seed == seeds[0]}
    if bench.jobs > 1:
        alone = replace(bench, work=bench.work / "alone", jobs=1, test=())  # without translating
        for trial in trials(course, seeds[:1], course.timed_steps or setting.steps):
            timed |= {one.name: one for one in outcomes([trial], alone)}
    groups = length_groups(bench.test)
    references = [pair.tgt for pair in bench.test]

    def score(run: Outcome, places: Sequence[int]) -> float:
        return bleu([run.translations[n] for n in places], [references[n] for n in places], bench.tgt_lang)

    systems = []
    for kind in KINDS:
        runs = tuple(found[f"{course.name}-{kind}", seed] for seed in seeds)
        scores = tuple(score(run, range(len(references))) for run in runs)
        by_length = tuple(tuple(score(run, group) for group in groups) for run in runs)
        systems.append(SystemRuns(kind, runs, scores, by_length, timed[f"{course.name}-{kind}"]))
    return systems


def multi30k(setting: Setting) -> Result:
    bench = bench_for(MULTI30K, setting)
    return told("Multi30k en→de, test 2016", bench, results(SMALL, bench, setting))


def kftt(setting: Setting) -> Result:
    bench = bench_for(KFTT, setting)
    return told("KFTT ja→en, tune", bench, results(BASE, bench, setting))


def told(corpus: str, bench: Bench, found: Sequence[SystemRuns]) -> Result:
    rnn, *others = found
    enough = min(statistics.mean(one.bleu) for one in others) >= LEARNT
    holds = all(rnn.kept + SHARE <= one.kept for one in others)
    groups = [[len(bench.test[n].src) for n in group] for group in length_groups(bench.test)]
    seeds = tuple(run.seed for run in rnn.runs)
    mean_lengths = [statistics.mean(lengths) for lengths in groups]
    curves = [SeriesData.over_seeds(Term(one.kind), list(zip(*one.by_length, strict=True)), mean_lengths) for one in found]
    return Result(
        "measured" if not enough else "held" if holds else "did not hold",
        {
            "corpus": corpus,
            "steps": rnn.runs[0].steps,
            "seeds": Term("one-seed") if len(seeds) == 1 else Term("mean-of-seeds", {"count": len(seeds)}),
            "shortest": {one.kind: one.mean_by_length[0] for one in found},
            "longest": {one.kind: one.mean_by_length[-1] for one in found},
            "kept": {one.kind: one.kept for one in found},
            "share": SHARE,
            "learnt": LEARNT,
        },
        tables={
            "summary": TableData([_row(one) for one in found]),
            "lengths": TableData(
                [(Term(one.kind), *(round(score, 1) for score in one.mean_by_length)) for one in found],
                columns=[f"{lengths[0]}–{lengths[-1]}" for lengths in groups],
            ),
        },
        charts={"lengths": LineData(curves)},
        seeds=seeds,
        machine=machines(run for one in found for run in one.runs),
    )


def _row(one: SystemRuns) -> tuple[DataCell, ...]:
    return (
        Term(one.kind),
        one.timed.num_parameters,
        round(statistics.mean(one.bleu), 1),
        ", ".join(f"{score:.1f}" for score in one.bleu),
        round(statistics.mean(run.valid_nll for run in one.runs), 3),
        int(one.timed.tokens_per_second),
        round(one.seconds, 1),
    )
