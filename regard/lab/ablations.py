"""Measures what each part of a Transformer contributes, by removing or changing it, as in Table 3 of the paper."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Literal

from regard.evaluate.comparison import SIGNIFICANT, p_text, p_value
from regard.evaluate.metrics import Measurement, bleu, measured, metrics_for, sentence_statistics
from regard.lab.experiment import Setting
from regard.lab.result import BarData, DataCell, Result, SeriesData, TableData, Term
from regard.lab.trials import MULTI30K, Bench, Outcome, Trial, bench_for, machines, outcomes, plan
from regard.settings import Table, merged

NUM_SEEDS = 3
STEPS = 1000
NUM_RESAMPLES = 1000
BASELINE: Table = {
    "preset": "small",
    "model": {"num_heads": 8},
    "train": {"batch_tokens": 4096, "schedule": "linear", "learning_rate": 2e-3, "warmup": 0, "clip_norm": 1.0},
}


@dataclass(frozen=True)
class Variant:
    """A change of the baseline, whose name is the key of its label; `NAME-in-full` is that of its description."""

    name: str
    settings: Table


VARIANTS: tuple[Variant, ...] = (
    Variant("baseline", {}),
    Variant("no-scale", {"model": {"ablation": "scale"}}),
    Variant("no-positions", {"model": {"positions": "none"}}),
    Variant("learned-positions", {"model": {"positions": "learned"}}),
    Variant("heads-1", {"model": {"num_heads": 1}}),
    Variant("heads-4", {"model": {"num_heads": 4}}),
    Variant("heads-16", {"model": {"num_heads": 16}}),
    Variant("pre-norm", {"model": {"norm": "pre"}}),
    Variant("no-smoothing", {"train": {"label_smoothing": 0.0}}),
    Variant("no-warmup", {"train": {"warmup": 1}}),
    Variant("no-residual", {"model": {"ablation": "residual"}}),
    Variant("no-dropout", {"model": {"dropout": 0.0, "embedding_dropout": 0.0}}),
    Variant("no-causal-mask", {"model": {"ablation": "causal-mask"}}),
    Variant("query-is-key", {"model": {"ablation": "query-key"}}),
    Variant("key-is-value", {"model": {"ablation": "key-value"}}),
    Variant("no-projections", {"model": {"ablation": "projections"}}),
)

# Variants without a part that the notes call necessary or better.
NEEDED = ("no-scale", "no-positions", "no-residual", "no-causal-mask", "no-dropout", "no-smoothing", "no-warmup", "heads-1")


def trials(seeds: Sequence[int], steps: int) -> list[Trial]:
    """Return all variants with the first seed, then all with the next, so that an interrupted series can be compared."""
    return [
        Trial(variant.name, seed, merged(BASELINE, {"train": plan(steps)}, variant.settings))
        for seed in seeds
        for variant in VARIANTS
    ]


@dataclass(frozen=True)
class JudgedVariant:
    """Compares a variant with the baseline, over all seeds."""

    name: str
    bleu: tuple[float, ...]  # of each seed
    valid_nll: tuple[float, ...]
    train_nll: tuple[float, ...]
    num_parameters: int
    difference: float  # of BLEU, over the translations of all seeds
    p: float | None  # None: the baseline itself

    @property
    def outcome(self) -> Literal["baseline", "alike", "better", "worse"]:
        if self.p is None:
            return "baseline"
        if self.p >= SIGNIFICANT:
            return "alike"
        return "better" if self.difference > 0 else "worse"


def verdicts(found: Sequence[Outcome], bench: Bench) -> list[JudgedVariant]:
    """Compare variants with the baseline by paired bootstrap over the test sentences of all seeds."""
    metric = metrics_for(bench.tgt_lang)[0]
    references = [pair.tgt for pair in bench.test]
    baseline: Measurement | None = None
    result = []
    for variant in VARIANTS:
        runs = sorted((one for one in found if one.name == variant.name), key=lambda one: one.seed)
        rows = [row for run in runs for row in sentence_statistics(metric, run.translations, [references])]
        whole = measured(metric, rows, NUM_RESAMPLES)
        baseline = baseline or whole  # the first variant
        result.append(
            JudgedVariant(
                name=variant.name,
                bleu=tuple(bleu(run.translations, references, bench.tgt_lang) for run in runs),
                valid_nll=tuple(run.valid_nll for run in runs),
                train_nll=tuple(run.train_nll for run in runs),
                num_parameters=runs[0].num_parameters,
                difference=whole.score - baseline.score,
                p=None if whole is baseline else p_value(baseline, whole),
            )
        )
    return result


def ablations(setting: Setting) -> Result:
    bench = bench_for(MULTI30K, setting)
    seeds, steps = setting.seeds(NUM_SEEDS), setting.steps or STEPS
    found = list(outcomes(trials(seeds, steps), bench))
    return told(verdicts(found, bench), seeds, found[0].steps, machines(found))


def told(judged: Sequence[JudgedVariant], seeds: Sequence[int], steps: int, machine: str) -> Result:
    of = {one.name: one for one in judged}
    spared = [name for name in NEEDED if of[name].outcome != "worse"]
    unmasked = of["no-causal-mask"]
    scores = SeriesData.over_seeds("BLEU", [one.bleu for one in judged])
    return Result(
        "did not hold" if spared else "held",
        {
            "baseline": fmean(of["baseline"].bleu),
            "seeds": len(seeds),
            "steps": steps,
            "significant": SIGNIFICANT,
            **{kind: [Term(one.name) for one in judged if one.outcome == kind] for kind in ("worse", "alike", "better")},
            "unmasked_nll": fmean(unmasked.valid_nll),
            "unmasked_bleu": fmean(unmasked.bleu),
            "spared": [Term(name) for name in spared],
        },
        tables={"variants": TableData([_row(one) for one in judged])},
        charts={"bleu": BarData([Term(one.name) for one in judged], [scores])},
        seeds=tuple(seeds),
        machine=machine,
    )


def _row(one: JudgedVariant) -> tuple[DataCell, ...]:
    return (
        Term(f"{one.name}-in-full"),
        round(fmean(one.bleu), 1),
        ", ".join(f"{score:.1f}" for score in one.bleu),
        round(one.difference, 1),
        "–" if one.p is None else Term(f"is-{one.outcome}", {"p": p_text(one.p)}),
        round(fmean(one.valid_nll), 3),
        round(fmean(one.train_nll), 3),
        one.num_parameters,
    )
