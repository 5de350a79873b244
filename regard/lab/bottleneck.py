"""One vector for a whole sentence: how far RNN, RNN with attention and Transformer get on copying and reversing (claim S5).

Nothing but memory is asked for: the symbols are drawn at random, so that none can be guessed from the others. All three have
as many parameters and learn from the same strings, for as many updates.
"""

import multiprocessing
import random
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import repeat
from typing import NamedTuple

import torch

from regard.config import ModelConfig, ModelKind, TrainConfig
from regard.data.batch import Batch, collate
from regard.lab.experiment import Setting
from regard.lab.finding import Finding, LineChart, Series, Table, Verdict, Words
from regard.lab.systems import NAMES
from regard.model.language import LanguageModel
from regard.search.greedy import greedy
from regard.text.tokenizer import BOS_ID, EOS_ID
from regard.train.device import find_device, num_cores
from regard.train.distributed import Processes
from regard.train.learner import Learner
from regard.train.metrics import Totals
from regard.translate.search import started

Row = list[int]
KINDS: tuple[ModelKind, ...] = ("rnn", "rnn-attention", "transformer")
SYMBOLS = range(4, 20)
VOCAB_SIZE = 20
LENGTHS = (5, 10, 20, 30, 40, 50, 60)
SHORT, LONG = 10, 40  # what is called short (up to) and long (from)
BATCH_TOKENS = 1536
NUM_TESTED = 64  # strings of each length
MOST_STEPS = 4000
NUM_SEEDS = 2
LEARNT = 0.9  # of the short symbols: before, a comparison of lengths says nothing
# Of the symbols: what attention must be ahead by on long strings, and the share of its short ones that it must keep there.
AHEAD, KEPT = 0.2, 0.8
GUESSED = 1 / len(SYMBOLS)


def copied(row: Row) -> Row:
    return row


def reversed_(row: Row) -> Row:
    return row[::-1]


TASKS: tuple[tuple[Words, Callable[[Row], Row]], ...] = (
    (Words("copy", "复制"), copied),
    (Words("reverse", "反转"), reversed_),
)


@dataclass(frozen=True)
class Contest:
    """One system on one task with one seed."""

    kind: ModelKind
    task: int
    seed: int


def learner_for(contest: Contest, steps: int, device: torch.device) -> Learner:
    model = ModelConfig.preset("tiny", vocab_size=VOCAB_SIZE, kind=contest.kind)
    train = TrainConfig(
        steps=steps,
        warmup=max(1, min(200, steps // 5)),
        schedule="linear",
        learning_rate=2e-3,
        label_smoothing=0.0,
        clip_norm=1.0,
        seed=contest.seed,
        precision="float32",
        compile="off",
    )
    return Learner(model, train, device, Processes())


def strings(length: int, count: int, chance: random.Random) -> list[Row]:
    return [chance.choices(SYMBOLS, k=length) for _ in range(count)]


def batch_of(task: int, chance: random.Random) -> Batch:
    """Strings of one length, as many as a batch has room for."""
    length = chance.randint(LENGTHS[0], LENGTHS[-1])
    rows = strings(length, BATCH_TOKENS // length, chance)
    return collate(rows, [TASKS[task][1](row) for row in rows])


def learn(learner: Learner, contest: Contest, steps: int) -> None:
    chance = random.Random(contest.seed)  # the same strings for every system
    totals = Totals(learner.device)
    for _ in range(steps):
        learner.update([(0, batch_of(contest.task, chance))], totals)


def accuracy(learner: Learner, contest: Contest, length: int) -> float:
    """The share of symbols that stand where they should, each string written out by the model itself."""
    chance = random.Random(f"{contest.seed} {length}")
    rows = strings(length, NUM_TESTED, chance)
    model = learner.model.eval()
    assert not isinstance(model, LanguageModel)
    step, cache = started(model, collate(rows, rows).src.to(learner.device))
    outputs = greedy(step, cache, [length] * len(rows), bos_id=BOS_ID, eos_id=EOS_ID, device=learner.device)
    wanted = [TASKS[contest.task][1](row) for row in rows]
    right = sum(
        one == other
        for output, row in zip(outputs, wanted, strict=True)
        for one, other in zip(output.ids, row, strict=False)
    )
    return right / (length * len(rows))


def seconds_per_update(kind: ModelKind, device: torch.device) -> float:
    """Of a few updates, after some that warm up."""
    contest = Contest(kind, 0, 1)
    learner = learner_for(contest, 100, device)
    learn(learner, contest, 2)
    began = time.perf_counter()
    learn(learner, contest, 6)
    return (time.perf_counter() - began) / 6


def affordable_steps(seconds: float, contests: Sequence[Contest], device: torch.device, jobs: int) -> int:
    """Updates of each, so that all of them fit into the time, tests included. Those that run beside each other slow each
    other down, hence no more than 0.7 of it."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    cost = {kind: seconds_per_update(kind, device) for kind in KINDS}
    torch.set_num_threads(threads)
    total = sum(cost[contest.kind] for contest in contests)
    return max(20, min(MOST_STEPS, int(0.7 * seconds * jobs / total)))


class Record(NamedTuple):
    """How a contest ended."""

    contest: Contest
    accuracies: tuple[float, ...]  # for each of LENGTHS
    num_parameters: int


def contend(contest: Contest, steps: int, device: str) -> Record:
    torch.set_num_threads(1)  # so small a model has no work for two, and another contest runs beside this one
    learner = learner_for(contest, steps, torch.device(device))
    learn(learner, contest, steps)
    num_parameters = sum(parameter.numel() for parameter in learner.model.parameters())
    return Record(contest, tuple(accuracy(learner, contest, length) for length in LENGTHS), num_parameters)


def bottleneck(setting: Setting) -> Finding:
    """On all cores, one contest on each."""
    device = find_device(setting.device)
    jobs = max(setting.jobs, num_cores()) if device.type == "cpu" else setting.jobs
    seeds = setting.seeds(NUM_SEEDS)
    contests = [Contest(kind, task, seed) for seed in seeds for task in range(len(TASKS)) for kind in reversed(KINDS)]
    steps = setting.steps or affordable_steps(setting.seconds, contests, device, jobs)
    with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        records = list(pool.map(contend, contests, repeat(steps), repeat(str(device))))
    results = {record.contest: record.accuracies for record in records}
    return told(results, {record.contest.kind: record.num_parameters for record in records}, seeds, steps)


def told(
    results: dict[Contest, tuple[float, ...]], num_parameters: dict[ModelKind, int], seeds: Sequence[int], steps: int
) -> Finding:
    means = {
        (kind, task): [
            sum(results[Contest(kind, task, seed)][n] for seed in seeds) / len(seeds) for n in range(len(LENGTHS))
        ]
        for kind in KINDS
        for task in range(len(TASKS))
    }
    long = {kind: _mean(means, kind, [n for n, length in enumerate(LENGTHS) if length >= LONG]) for kind in KINDS}
    short = {kind: _mean(means, kind, [n for n, length in enumerate(LENGTHS) if length <= SHORT]) for kind in KINDS}
    listed_en, listed_zh = (
        "; ".join(f"{NAMES[kind].text(language)} {short[kind]:.0%} → {long[kind]:.0%}" for kind in KINDS)
        for language in ("en", "zh")
    )
    return Finding(
        name="bottleneck",
        claims=("S5", "S1", "S2", "S3"),
        title=Words("One fixed vector is a bottleneck", "一个固定长度的向量是瓶颈"),
        claim=Words(
            "Notes 001 and 004: an RNN encoder–decoder has to press the whole source into one vector and loses what is "
            "long; attention lets each step look at the source itself.",
            "笔记 001、004：RNN 编码器-解码器要把整个源序列压缩成一个向量，序列一长就丢失信息；"
            "注意力让每一步都能直接看源序列。",
        ),
        verdict=_verdict(short, long),
        outcome=Words(
            f"Symbols in their place, strings of up to {SHORT} → of {LONG} and more, both tasks and {len(seeds)} seeds "
            f"together, after {steps:,} updates each: {listed_en} (guessing: {GUESSED:.0%}). It holds where a system with "
            f"attention has learnt short strings ({LEARNT:.0%}), keeps {KEPT:.0%} of that on long ones and is {AHEAD:.0%} "
            "ahead of the RNN there.",
            f"放对位置的符号，长度至多 {SHORT} → {LONG} 以上，两个任务与 {len(seeds)} 个种子合计，各 {steps:,} 次更新："
            f"{listed_zh}（猜测：{GUESSED:.0%}）。判断标准：某个带注意力的系统学会短串（{LEARNT:.0%}），在长串上保持其 "
            f"{KEPT:.0%}，并领先 RNN {AHEAD:.0%}。",
        ),
        tables=(_table(means, num_parameters),),
        charts=tuple(_chart(task, results, means, seeds) for task in range(len(TASKS))),
        seeds=tuple(seeds),
    )


def _mean(means: dict[tuple[ModelKind, int], list[float]], kind: ModelKind, places: Sequence[int]) -> float:
    values = [means[kind, task][n] for task in range(len(TASKS)) for n in places]
    return sum(values) / len(values)


def _verdict(short: dict[ModelKind, float], long: dict[ModelKind, float]) -> Verdict:
    """Too few updates for anybody to learn even what is short decide nothing."""
    learnt = [kind for kind in KINDS[1:] if short[kind] >= LEARNT]
    if not learnt:
        return "measured"
    answered = any(long[kind] >= KEPT * short[kind] and long[kind] >= long["rnn"] + AHEAD for kind in learnt)
    return "held" if answered else "did not hold"


def _table(means: dict[tuple[ModelKind, int], list[float]], num_parameters: dict[ModelKind, int]) -> Table:
    columns = (Words("system", "系统"), Words("parameters", "参数"), Words("task", "任务"))
    return Table(
        Words("Symbols in their place, by length (%)", "各长度下放对位置的符号（%）"),
        (*columns, *(Words(str(length), str(length)) for length in LENGTHS)),
        tuple(
            (NAMES[kind], num_parameters[kind], TASKS[task][0], *(round(100 * value, 1) for value in means[kind, task]))
            for task in range(len(TASKS))
            for kind in KINDS
        ),
    )


def _chart(
    task: int,
    results: dict[Contest, tuple[float, ...]],
    means: dict[tuple[ModelKind, int], list[float]],
    seeds: Sequence[int],
) -> LineChart:
    def spread(kind: ModelKind, which: Callable[[list[float]], float]) -> tuple[float, ...]:
        return tuple(100 * which([results[Contest(kind, task, seed)][n] for seed in seeds]) for n in range(len(LENGTHS)))

    name = TASKS[task][0]
    return LineChart(
        title=Words(f"To {name.en} strings of {len(SYMBOLS)} symbols", f"{name.zh} {len(SYMBOLS)} 种符号的字符串"),
        x_label=Words("length", "长度"),
        y_label=Words("symbols in their place, %", "放对位置的符号，%"),
        series=tuple(
            Series(
                NAMES[kind],
                y=tuple(100 * value for value in means[kind, task]),
                x=tuple(map(float, LENGTHS)),
                low=spread(kind, min),
                high=spread(kind, max),
            )
            for kind in KINDS
        ),
    )
