"""What each part of the Transformer is good for: one thing at a time left out or changed, in the spirit of the paper's Table 3."""

from collections.abc import Sequence
from dataclasses import dataclass

from regard.evaluate.comparison import SIGNIFICANT, p_text, p_value
from regard.evaluate.metrics import Measurement, bleu, measured, metrics_for, sentence_statistics
from regard.lab.finding import Words
from regard.lab.trials import Bench, Outcome, Trial
from regard.settings import Table as Settings
from regard.settings import merged

NUM_SEEDS = 3
STEPS = 1000
NUM_RESAMPLES = 1000
BASELINE: Settings = {
    "preset": "small",
    "model": {"num_heads": 8},
    "train": {"batch_tokens": 4096, "schedule": "linear", "learning_rate": 2e-3, "warmup": 0, "clip_norm": 1.0},
}


@dataclass(frozen=True)
class Variant:
    """One change of the baseline, and what the notes (or the paper) would expect of it."""

    name: str
    words: Words
    settings: Settings


VARIANTS: tuple[Variant, ...] = (
    Variant("baseline", Words("baseline: 8 heads, post-norm", "基线：8 头，后归一化"), {}),
    Variant("no-scale", Words("scores not divided by √d_k", "得分不除以 √d_k"), {"model": {"ablation": "scale"}}),
    Variant("no-positions", Words("no positions", "无位置编码"), {"model": {"positions": "none"}}),
    Variant("learned-positions", Words("learned positions", "可学习的位置"), {"model": {"positions": "learned"}}),
    Variant("heads-1", Words("1 head", "1 头"), {"model": {"num_heads": 1}}),
    Variant("heads-4", Words("4 heads", "4 头"), {"model": {"num_heads": 4}}),
    Variant("heads-16", Words("16 heads", "16 头"), {"model": {"num_heads": 16}}),
    Variant("pre-norm", Words("pre-norm", "前归一化"), {"model": {"norm": "pre"}}),
    Variant("no-smoothing", Words("no label smoothing", "无标签平滑"), {"train": {"label_smoothing": 0.0}}),
    Variant("no-warmup", Words("no warm-up", "无预热"), {"train": {"warmup": 1}}),
    Variant("no-residual", Words("no residual connections", "无残差连接"), {"model": {"ablation": "residual"}}),
    Variant("no-dropout", Words("no dropout", "无 dropout"), {"model": {"dropout": 0.0, "embedding_dropout": 0.0}}),
    Variant(
        "no-causal-mask",
        Words("no causal mask in training", "训练时无因果掩码"),
        {"model": {"ablation": "causal-mask"}},
    ),
    Variant(
        "query-is-key", Words("Q = K: one projection for both", "Q = K：共用一个投影"), {"model": {"ablation": "query-key"}}
    ),
    Variant(
        "key-is-value", Words("K = V: one projection for both", "K = V：共用一个投影"), {"model": {"ablation": "key-value"}}
    ),
    Variant(
        "no-projections",
        Words("no projections: Q, K, V are the input", "无投影：Q、K、V 即输入"),
        {"model": {"ablation": "projections"}},
    ),
)


def trials(seeds: Sequence[int], steps: int) -> list[Trial]:
    """All variants with the first seed, then with the next: what there is after a part of them is worth most."""
    plan = {
        "steps": steps,
        "valid_every": steps,
        "save_every": max(1, steps // 10),
        "keep_checkpoints": 3,
        "bleu_sentences": 0,
    }
    return [
        Trial(variant.name, seed, merged(BASELINE, {"train": plan}, variant.settings))
        for seed in seeds
        for variant in VARIANTS
    ]


@dataclass(frozen=True)
class Verdict:
    """A variant against the baseline, all seeds together."""

    variant: Variant
    bleu: tuple[float, ...]  # of each seed
    valid_nll: tuple[float, ...]
    train_nll: tuple[float, ...]
    num_parameters: int
    difference: float  # of BLEU, over the translations of all seeds
    p: float | None

    @property
    def words(self) -> Words:
        if self.p is None:
            return Words("–", "–")
        if self.p >= SIGNIFICANT:
            return Words(f"no difference found (p = {p_text(self.p)})", f"未发现差异（p = {p_text(self.p)}）")
        if self.difference > 0:
            return Words(f"better (p = {p_text(self.p)})", f"更好（p = {p_text(self.p)}）")
        return Words(f"worse (p = {p_text(self.p)})", f"更差（p = {p_text(self.p)}）")


def verdicts(found: Sequence[Outcome], bench: Bench) -> list[Verdict]:
    """Paired bootstrap over the test sentences of all seeds: the same sentence and seed of variant and baseline."""
    metric = metrics_for(bench.tgt_lang)[0]
    references = [pair.tgt for pair in bench.test]

    by_name = {
        variant.name: sorted((one for one in found if one.name == variant.name), key=lambda one: one.seed)
        for variant in VARIANTS
    }
    measurements: dict[str, Measurement] = {}
    result = []
    for variant in VARIANTS:
        runs = by_name[variant.name]
        rows = [row for run in runs for row in sentence_statistics(metric, run.translations, [references])]
        measurements[variant.name] = measured(metric, rows, NUM_RESAMPLES)
        whole, baseline = measurements[variant.name], measurements["baseline"]
        result.append(
            Verdict(
                variant=variant,
                bleu=tuple(bleu(run.translations, references, bench.tgt_lang) for run in runs),
                valid_nll=tuple(run.valid_nll for run in runs),
                train_nll=tuple(run.train_nll for run in runs),
                num_parameters=runs[0].num_parameters,
                difference=whole.score - baseline.score,
                p=None if variant.name == "baseline" else p_value(baseline, whole),
            )
        )
    return result
