"""What the parts of a Transformer are good for: one at a time left out or changed, in the spirit of the paper's Table 3."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from regard.evaluate.comparison import SIGNIFICANT, p_text, p_value
from regard.evaluate.metrics import Measurement, bleu, measured, metrics_for, sentence_statistics
from regard.lab.experiment import Setting
from regard.lab.finding import BarChart, Finding, Language, Series, Table, Words
from regard.lab.trials import MULTI30K, Bench, Outcome, Trial, bench_for, outcomes
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

    @property
    def label(self) -> Words:
        """What stands before the colon, for where there is little room."""
        return Words(self.words.en.split(":")[0], self.words.zh.split("：")[0])


VARIANTS: tuple[Variant, ...] = (
    Variant("baseline", Words("baseline: 8 heads, post-norm", "基线：8 头，后归一化"), {}),
    Variant("no-scale", Words("no √d_k: scores are not scaled", "无 √d_k：得分不缩放"), {"model": {"ablation": "scale"}}),
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

# What the notes say is needed, or better than its lack.
NEEDED = ("no-scale", "no-positions", "no-residual", "no-causal-mask", "no-dropout", "no-smoothing", "no-warmup", "heads-1")


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


def ablations(setting: Setting) -> Finding:
    bench = bench_for(MULTI30K, setting)
    seeds, steps = setting.seeds(NUM_SEEDS), setting.steps or STEPS
    found = list(outcomes(trials(seeds, steps), bench))
    return told(verdicts(found, bench), seeds, found[0].steps, ", ".join(sorted({one.machine for one in found})))


def told(judged: Sequence[Verdict], seeds: Sequence[int], steps: int, machine: str) -> Finding:
    of = {one.variant.name: one for one in judged}
    worse = [one for one in judged if one.p is not None and one.p < SIGNIFICANT and one.difference < 0]
    alike = [one for one in judged if one.p is not None and one.p >= SIGNIFICANT]
    better = [one for one in judged if one.p is not None and one.p < SIGNIFICANT and one.difference > 0]
    spared = [of[name] for name in NEEDED if of[name] not in worse]
    unmasked = of["no-causal-mask"]

    def names(chosen: Sequence[Verdict], language: Language) -> str:
        return (", " if language == "en" else "、").join(one.variant.label.text(language) for one in chosen) or "–"

    return Finding(
        name="ablations",
        claims=("T5", "M6", "M14", "M15", "M16"),
        title=Words("What each part is good for: Multi30k en→de", "各部分的作用：Multi30k en→de"),
        claim=Words(
            "Notes 000 to 004: √d_k, positions, several heads, residuals, warm-up, dropout, label smoothing and the "
            "causal mask are each needed for training to go well; learned positions and pre-norm are alternatives. Note "
            "004 asks what happens where Q, K and V share projections, or have none.",
            "笔记 000–004：√d_k、位置编码、多头、残差、预热、dropout、标签平滑和因果掩码都有助于训练；"
            "可学习的位置与前归一化是替代方案。笔记 004 还问：Q、K、V 共用投影或没有投影会怎样。",
        ),
        verdict="did not hold" if spared else "held",
        outcome=Words(
            f"Against the baseline ({_mean(of['baseline'].bleu):.1f} BLEU on test 2016, beam 4, {len(seeds)} seeds, "
            f"{steps:,} updates; paired bootstrap over all seeds' sentences, p < {SIGNIFICANT}) worse: "
            f"{names(worse, 'en')}. No difference found: {names(alike, 'en')}. Better: {names(better, 'en')}. Without the "
            f"causal mask the loss falls to {_mean(unmasked.valid_nll):.2f} nats a token, for the answer can be copied, "
            f"and what is then written word by word has a BLEU of {_mean(unmasked.bleu):.1f}. The claim holds if all are "
            f"worse that leave out what is said to be needed; not worse: {names(spared, 'en')}.",
            f"与基线（test 2016 上 BLEU {_mean(of['baseline'].bleu):.1f}，束宽 4，{len(seeds)} 个种子，{steps:,} 次更新；"
            f"对所有种子的句子做配对自助法，p < {SIGNIFICANT}）相比，更差：{names(worse, 'zh')}。未发现差异："
            f"{names(alike, 'zh')}。更好：{names(better, 'zh')}。没有因果掩码时损失降到每词元 "
            f"{_mean(unmasked.valid_nll):.2f} 纳特，因为答案可以照抄，而逐词生成的译文 BLEU 为 "
            f"{_mean(unmasked.bleu):.1f}。若去掉每个被认为必要的部分都变差，则说法成立；没有变差的："
            f"{names(spared, 'zh')}。",
        ),
        tables=(_table(judged),),
        charts=(_chart(judged),),
        seeds=tuple(seeds),
        machine=machine,
    )


def _mean(values: Sequence[float]) -> float:
    return statistics.mean(values)


def _table(judged: Sequence[Verdict]) -> Table:
    columns = (
        Words("variant", "变体"),
        Words("BLEU, mean", "BLEU 平均"),
        Words("of each seed", "各种子"),
        Words("difference", "差"),
        Words("against the baseline", "与基线相比"),
        Words("validation loss", "验证损失"),
        Words("training loss", "训练损失"),
        Words("parameters", "参数"),
    )
    rows = (
        (
            one.variant.words,
            round(_mean(one.bleu), 1),
            ", ".join(f"{score:.1f}" for score in one.bleu),
            round(one.difference, 1),
            one.words,
            round(_mean(one.valid_nll), 3),
            round(_mean(one.train_nll), 3),
            one.num_parameters,
        )
        for one in judged
    )
    return Table(Words("One change at a time", "每次只改一处"), columns, tuple(rows))


def _chart(judged: Sequence[Verdict]) -> BarChart:
    return BarChart(
        title=Words(
            "BLEU on test 2016: mean, smallest and largest of the seeds", "test 2016 的 BLEU：各种子的平均、最小与最大"
        ),
        y_label=Words("BLEU", "BLEU"),
        groups=tuple(one.variant.label for one in judged),
        series=(
            Series(
                Words("BLEU", "BLEU"),
                y=tuple(_mean(one.bleu) for one in judged),
                low=tuple(min(one.bleu) for one in judged),
                high=tuple(max(one.bleu) for one in judged),
            ),
        ),
    )
