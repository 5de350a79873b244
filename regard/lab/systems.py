"""The three systems the notes compare, trained on the same text with the same number of parameters (claims S1 to S5)."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from regard.evaluate.metrics import bleu
from regard.lab.experiment import Setting
from regard.lab.finding import Finding, LineChart, Series, Table, Verdict, Words
from regard.lab.trials import KFTT, MULTI30K, Bench, Outcome, Trial, bench_for, outcomes
from regard.text.corpus import Pair

SYSTEMS: tuple[tuple[str, Words], ...] = (
    ("rnn", Words("RNN", "RNN")),
    ("rnn-attention", Words("RNN + attention", "RNN + 注意力")),
    ("transformer", Words("Transformer", "Transformer")),
)
NAMES = dict(SYSTEMS)
LEARNT = 10.0  # BLEU that those with attention must have, before lengths are compared
SHARE = 0.1  # of the shortest sentences' BLEU
NUM_GROUPS = 5  # of as many sentences each, by the length of their source


@dataclass(frozen=True)
class Course:
    """What all systems of one comparison have in common."""

    name: str
    preset: str
    steps: int
    batch_tokens: int
    learning_rate: float  # the Transformer's
    recurrent_rate: float  # the RNNs'
    warmup: int  # 0: a fifth of the steps
    accumulation: int  # 0: as padding has it
    num_seeds: int
    timed_steps: int  # of a run that tells how fast a system is; 0: all


# One learning rate for all at the small size; EXPERIMENTS.md has others.
SMALL = Course("multi30k", "small", 1000, 4096, 2e-3, 2e-3, warmup=0, accumulation=0, num_seeds=3, timed_steps=0)
# An RNN's update takes as long as its sentences have words, however many of them there are: one batch, not two.
BASE = Course("kftt", "base", 3000, 12_800, 1e-3, 2e-3, warmup=800, accumulation=1, num_seeds=1, timed_steps=60)


def trials(course: Course, seeds: Sequence[int], steps: int) -> list[Trial]:
    """The slowest system first."""
    steps = steps or course.steps
    train = {
        "steps": steps,
        "batch_tokens": course.batch_tokens,
        **({"accumulation": course.accumulation} if course.accumulation else {}),
        "schedule": "linear",
        "warmup": course.warmup,
        "clip_norm": 1.0,
        "valid_every": steps,
        "save_every": max(1, steps // 10) if steps > course.timed_steps else steps,
        "keep_checkpoints": 3,
        "bleu_sentences": 0,
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
class Result:
    """One system's runs, and the scores of each seed."""

    kind: str
    runs: tuple[Outcome, ...]
    bleu: tuple[float, ...]
    by_length: tuple[tuple[float, ...], ...]  # of each seed, a score for each group of lengths
    timed: Outcome  # whose speed is told

    @property
    def seconds(self) -> float:
        """That training takes where nothing else runs."""
        run = self.runs[0]
        return run.seconds * run.tokens_per_second / self.timed.tokens_per_second

    @property
    def mean_by_length(self) -> list[float]:
        return [statistics.mean(scores) for scores in zip(*self.by_length, strict=True)]

    @property
    def kept(self) -> float:
        """What share of the shortest sentences' BLEU the longest have."""
        return self.mean_by_length[-1] / max(self.mean_by_length[0], 1e-9)


def length_groups(test: Sequence[Pair]) -> list[list[int]]:
    """Sentences by the number of characters of their source, in groups of as many each."""
    order = sorted(range(len(test)), key=lambda n: len(test[n].src))
    return [group.tolist() for group in np.array_split(np.array(order), NUM_GROUPS)]


def results(course: Course, bench: Bench, setting: Setting) -> list[Result]:
    """Where several runs train beside each other, the first seed is trained once more by itself, for its speed; as far as
    that takes."""
    seeds = setting.seeds(course.num_seeds)
    found = {(one.name, one.seed): one for one in outcomes(trials(course, seeds, setting.steps), bench)}
    timed = {name: one for (name, seed), one in found.items() if seed == seeds[0]}
    if bench.jobs > 1:
        alone = replace(bench, work=bench.work / "alone", jobs=1, test=())  # which nobody asks for its translations
        for trial in trials(course, seeds[:1], course.timed_steps or setting.steps):
            timed |= {one.name: one for one in outcomes([trial], alone)}
    groups = length_groups(bench.test)
    references = [pair.tgt for pair in bench.test]

    def score(run: Outcome, places: Sequence[int]) -> float:
        return bleu([run.translations[n] for n in places], [references[n] for n in places], bench.tgt_lang)

    systems = []
    for kind in NAMES:
        runs = tuple(found[f"{course.name}-{kind}", seed] for seed in seeds)
        systems.append(
            Result(
                kind=kind,
                runs=runs,
                bleu=tuple(score(run, range(len(references))) for run in runs),
                by_length=tuple(tuple(score(run, group) for group in groups) for run in runs),
                timed=timed[f"{course.name}-{kind}"],
            )
        )
    return systems


def multi30k(setting: Setting) -> Finding:
    bench = bench_for(MULTI30K, setting)
    return told("systems", "Multi30k en→de, test 2016", bench, results(SMALL, bench, setting))


def kftt(setting: Setting) -> Finding:
    bench = bench_for(KFTT, setting)
    return told("systems-kftt", "KFTT ja→en, tune", bench, results(BASE, bench, setting))


def told(name: str, corpus: str, bench: Bench, found: Sequence[Result]) -> Finding:
    rnn, *others = found
    enough = min(statistics.mean(one.bleu) for one in others) >= LEARNT
    holds = all(rnn.kept + SHARE <= one.kept for one in others)
    verdict: Verdict = "measured" if not enough else "held" if holds else "did not hold"
    en, zh = (
        "; ".join(
            f"{NAMES[one.kind].text(language)} {one.mean_by_length[0]:.1f} → {one.mean_by_length[-1]:.1f} ({one.kept:.0%})"
            for one in found
        )
        for language in ("en", "zh")
    )
    seeds, steps = tuple(run.seed for run in rnn.runs), rnn.runs[0].steps
    return Finding(
        name=name,
        claims=("S1", "S2", "S3", "S5"),
        title=Words(f"Three systems of equal size: {corpus}", f"同样大小的三种系统：{corpus}"),
        claim=Words(
            "Notes 001 and 004: with one fixed vector between encoder and decoder, quality falls as sentences grow; "
            "attention, and the Transformer, answer that.",
            "笔记 001、004：编码器与解码器之间只有一个固定向量时，句子越长质量越差；注意力机制和 Transformer 解决了这一点。",
        ),
        verdict=verdict,
        outcome=Words(
            f"BLEU of the shortest → the longest fifth of the sentences, after {steps:,} updates, mean of {len(seeds)} "
            f"seed{'s' if len(seeds) > 1 else ''}: {en}. It holds if the share that the RNN keeps is smaller than both "
            f"others' by {SHARE:.0%} or more, and nothing is decided before the others have a BLEU of {LEARNT:g}.",
            f"最短五分之一 → 最长五分之一句子的 BLEU，{steps:,} 次更新后，{len(seeds)} 个种子平均：{zh}。判断标准：RNN "
            f"保持的比例比另外两者都小 {SHARE:.0%} 以上；另外两者的 BLEU 未到 {LEARNT:g} 时不作判断。",
        ),
        tables=(_summary(found), _lengths(found, bench)),
        charts=(_chart(found, bench, corpus),),
        seeds=seeds,
        machine=", ".join(sorted({run.machine for one in found for run in one.runs})),
    )


def _summary(found: Sequence[Result]) -> Table:
    columns = (
        Words("system", "系统"),
        Words("parameters", "参数"),
        Words("BLEU, mean", "BLEU 平均"),
        Words("of each seed", "各种子"),
        Words("validation loss", "验证损失"),
        Words("target tokens/s", "目标词元/秒"),
        Words("training, s", "训练用时（秒）"),
    )
    rows = (
        (
            NAMES[one.kind],
            one.timed.num_parameters,
            round(statistics.mean(one.bleu), 1),
            ", ".join(f"{score:.1f}" for score in one.bleu),
            round(statistics.mean(run.valid_nll for run in one.runs), 3),
            int(one.timed.tokens_per_second),
            round(one.seconds, 1),
        )
        for one in found
    )
    title = Words(
        "The same text, updates and number of parameters; speed and time with the machine to itself",
        "同样的文本、更新次数与参数量；速度与用时为独占机器时的",
    )
    return Table(title, columns, tuple(rows))


def _lengths(found: Sequence[Result], bench: Bench) -> Table:
    spans = [[len(bench.test[group[end]].src) for end in (0, -1)] for group in length_groups(bench.test)]
    return Table(
        Words("BLEU by the length of the source, in characters", "按源句字符数的 BLEU"),
        (Words("system", "系统"), *(Words(f"{low}–{high}", f"{low}–{high}") for low, high in spans)),
        tuple((NAMES[one.kind], *(round(score, 1) for score in one.mean_by_length)) for one in found),
    )


def _chart(found: Sequence[Result], bench: Bench, corpus: str) -> LineChart:
    groups = length_groups(bench.test)
    middles = tuple(float(statistics.mean(len(bench.test[n].src) for n in group)) for group in groups)
    return LineChart(
        title=Words(f"BLEU against length: {corpus}", f"BLEU 与句长：{corpus}"),
        x_label=Words("characters of the source", "源句字符数"),
        y_label=Words("BLEU", "BLEU"),
        series=tuple(
            Series(
                NAMES[one.kind],
                y=tuple(one.mean_by_length),
                x=middles,
                low=tuple(map(min, zip(*one.by_length, strict=True))),
                high=tuple(map(max, zip(*one.by_length, strict=True))),
            )
            for one in found
        ),
    )
