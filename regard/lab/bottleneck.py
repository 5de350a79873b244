"""Compares RNN, RNN with attention and Transformer on copying and reversing strings of random symbols (claim S5).

The tasks require memory only, because no symbol can be guessed from the others. All systems have about the same number of
parameters and learn from the same strings for the same number of updates.
"""

import multiprocessing
import random
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import repeat
from statistics import fmean

import torch

from regard.config import ModelConfig, ModelKind, TrainConfig
from regard.data.batch import Batch, collate
from regard.lab.experiment import Setting
from regard.lab.finding import Verdict
from regard.lab.result import DataCell, LineData, Result, SeriesData, TableData, Term
from regard.machine.device import find_device, num_cores
from regard.machine.processes import Processes
from regard.model.sequence import EncoderDecoder
from regard.search.greedy import greedy
from regard.text.tokenizer import BOS_ID, EOS_ID
from regard.train.learner import Learner
from regard.train.totals import Totals
from regard.translate.search import started

TokenRow = list[int]
KINDS: tuple[ModelKind, ...] = ("rnn", "rnn-attention", "transformer")
SYMBOLS = range(4, 20)
VOCAB_SIZE = 20
LENGTHS = (5, 10, 20, 30, 40, 50, 60)
SHORT, LONG = 10, 40  # the longest length that counts as short, and the shortest that counts as long
BATCH_TOKENS = 1536
NUM_TESTED = 64  # strings of each length
MOST_STEPS = 4000
NUM_SEEDS = 2
LEARNT = 0.9  # accuracy on short strings that a comparison of lengths requires
AHEAD, KEPT = 0.2, 0.8  # lead over the RNN on long strings, and share of the short strings' accuracy kept there
GUESSED = 1 / len(SYMBOLS)


def copied(row: TokenRow) -> TokenRow:
    return row


def reversed_(row: TokenRow) -> TokenRow:
    return row[::-1]


TASKS: tuple[tuple[str, Callable[[TokenRow], TokenRow]], ...] = (("copy", copied), ("reverse", reversed_))


@dataclass(frozen=True)
class Contest:
    """A system on one task with one seed."""

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


def strings(length: int, count: int, chance: random.Random) -> list[TokenRow]:
    return [chance.choices(SYMBOLS, k=length) for _ in range(count)]


def batch_of(task: int, chance: random.Random) -> Batch:
    """Return a full batch of strings of one random length."""
    length = chance.randint(LENGTHS[0], LENGTHS[-1])
    rows = strings(length, BATCH_TOKENS // length, chance)
    return collate(rows, [TASKS[task][1](row) for row in rows])


def learn(learner: Learner, contest: Contest, steps: int) -> None:
    chance = random.Random(contest.seed)  # which gives every system the same strings
    totals = Totals(learner.device)
    for _ in range(steps):
        learner.update([(0, batch_of(contest.task, chance))], totals)


def accuracy(learner: Learner, contest: Contest, length: int) -> float:
    """Return the share of symbols that greedy decoding puts in their place."""
    chance = random.Random(f"{contest.seed} {length}")
    rows = strings(length, NUM_TESTED, chance)
    model = learner.model.eval()
    assert isinstance(model, EncoderDecoder)
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
    """Measure the mean time of a few updates, after a warm-up."""
    contest = Contest(kind, 0, 1)
    learner = learner_for(contest, 100, device)
    learn(learner, contest, 2)
    began = time.perf_counter()
    learn(learner, contest, 6)
    return (time.perf_counter() - began) / 6


def affordable_steps(seconds: float, contests: Sequence[Contest], device: torch.device, jobs: int) -> int:
    """Return how many updates of each system fit into 0.7 of the time, since parallel runs slow each other down."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    cost = {kind: seconds_per_update(kind, device) for kind in KINDS}
    torch.set_num_threads(threads)
    total = sum(cost[contest.kind] for contest in contests)
    return max(20, min(MOST_STEPS, int(0.7 * seconds * jobs / total)))


def contend(contest: Contest, steps: int, device: str) -> tuple[tuple[float, ...], int]:
    """Return the accuracy at each of LENGTHS, and the number of parameters."""
    torch.set_num_threads(1)  # because another contest runs on each core
    learner = learner_for(contest, steps, torch.device(device))
    learn(learner, contest, steps)
    num_parameters = sum(parameter.numel() for parameter in learner.model.parameters())
    return tuple(accuracy(learner, contest, length) for length in LENGTHS), num_parameters


def bottleneck(setting: Setting) -> Result:
    """Run one contest on each core."""
    device = find_device(setting.device)
    jobs = max(setting.jobs, num_cores()) if device.type == "cpu" else setting.jobs
    seeds = setting.seeds(NUM_SEEDS)
    contests = [Contest(kind, task, seed) for seed in seeds for task in range(len(TASKS)) for kind in reversed(KINDS)]
    steps = setting.steps or affordable_steps(setting.seconds, contests, device, jobs)
    with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        found = dict(zip(contests, pool.map(contend, contests, repeat(steps), repeat(str(device))), strict=True))
    results = {contest: accuracies for contest, (accuracies, _) in found.items()}
    return told(results, {contest.kind: size for contest, (_, size) in found.items()}, seeds, steps)


def told(
    results: dict[Contest, tuple[float, ...]], num_parameters: dict[ModelKind, int], seeds: Sequence[int], steps: int
) -> Result:
    # For each system and task, and for each length, the percentages of all seeds.
    found = {
        (kind, task): [[100 * results[Contest(kind, task, seed)][n] for seed in seeds] for n in range(len(LENGTHS))]
        for kind in KINDS
        for task in range(len(TASKS))
    }
    short: dict[str, float] = {kind: _mean(results, kind, lambda length: length <= SHORT) for kind in KINDS}
    long: dict[str, float] = {kind: _mean(results, kind, lambda length: length >= LONG) for kind in KINDS}
    rows: list[tuple[DataCell, ...]] = [
        (Term(kind), num_parameters[kind], Term(name), *(round(fmean(of_seeds), 1) for of_seeds in found[kind, task]))
        for task, (name, _) in enumerate(TASKS)
        for kind in KINDS
    ]
    charts = {
        name: LineData([SeriesData.over_seeds(Term(kind), found[kind, task], LENGTHS) for kind in KINDS])
        for task, (name, _) in enumerate(TASKS)
    }
    thresholds = {"learnt": LEARNT, "kept": KEPT, "ahead": AHEAD, "guessed": GUESSED, "at_most": SHORT, "at_least": LONG}
    return Result(
        _verdict(short, long),
        {"short": short, "long": long, "seeds": len(seeds), "steps": steps, "symbols": len(SYMBOLS), **thresholds},
        tables={"accuracy": TableData(rows, columns=list(map(str, LENGTHS)))},
        charts=charts,
        seeds=tuple(seeds),
    )


def _mean(results: dict[Contest, tuple[float, ...]], kind: ModelKind, chosen: Callable[[int], bool]) -> float:
    """Return the mean over both tasks, all seeds and the chosen lengths."""
    places = [n for n, length in enumerate(LENGTHS) if chosen(length)]
    return fmean(of_lengths[n] for contest, of_lengths in results.items() if contest.kind == kind for n in places)


def _verdict(short: dict[str, float], long: dict[str, float]) -> Verdict:
    """Decide nothing if no system with attention has learnt short strings."""
    learnt = [kind for kind in KINDS[1:] if short[kind] >= LEARNT]
    if not learnt:
        return "measured"
    answered = any(long[kind] >= KEPT * short[kind] and long[kind] >= long["rnn"] + AHEAD for kind in learnt)
    return "held" if answered else "did not hold"
