"""`regard bench train`: whole training, data loading included, over a prepared corpus: ours beside its peers, in one run."""

import json
import statistics
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from torch import Tensor, nn

from regard.bench.model import SMOOTHING, Speed, machine
from regard.bench.peers import Marian, TorchTransformer, adam
from regard.config import TRAIN_PRESETS, ModelConfig, TrainConfig, model_preset
from regard.data.batching import padding_share
from regard.data.report import read_report
from regard.data.store import PairStore
from regard.data.stream import Place
from regard.text.tokenizer import BOS_ID, EOS_ID, PAD_ID, Tokenizer
from regard.train.device import find_device, synchronize
from regard.train.distributed import Processes
from regard.train.learner import Learner
from regard.train.metrics import Totals
from regard.train.plan import open_stream, settled

Update = Callable[[], int]  # one update; how many real target tokens it learnt from


@dataclass(frozen=True)
class TrainBenchSettings:
    preset: str
    batch_tokens: int
    peer_sentences: int  # in a batch of the others; 0: as many as an update of ours has
    rounds: int
    updates: int
    device: str


@dataclass(frozen=True)
class Contestant:
    name: str
    update: Update
    padding: float  # of all tokens it computes with, both sides together


def run(settings: TrainBenchSettings, data: Path, *, json_path: Path | None) -> None:
    read_report(data)  # or it is no prepared folder
    if json_path is not None and not json_path.parent.is_dir():
        raise ValueError(f"there is no folder {json_path.parent} to write {json_path.name} into")
    device = find_device(settings.device)
    tokenizer = Tokenizer.load(data)
    model = ModelConfig(
        src_vocab_size=len(tokenizer.src),
        tgt_vocab_size=len(tokenizer.tgt),
        shared_embeddings="all" if tokenizer.is_shared else "target",
        **model_preset(settings.preset),
    )
    train = TrainConfig(**TRAIN_PRESETS[settings.preset] | {"batch_tokens": settings.batch_tokens, "steps": 10_000})
    train = settled(replace(train, device=settings.device, compile="off"), open_stream(data, train, tokenizer), 1)
    contestants = [ours(model, train, data, tokenizer, device)]
    store = PairStore.open(data, "train")
    as_ours = max(1, round(settings.batch_tokens * (1 - contestants[0].padding) / mean_length(store)))
    sentences = settings.peer_sentences or as_ours
    for name, peer in {"Hugging Face Marian": Marian, "torch.nn.Transformer": TorchTransformer}.items():
        try:
            contestants.append(plain_loop(name, peer(model, longest(store)), store, sentences, device))
        except ImportError as error:
            Console(stderr=True).print(f"{name} is left out: {error}")
    speeds = interleaved(settings, contestants, device)
    print_table(settings, train, sentences, contestants, speeds, machine(device), len(store))
    if json_path is not None:
        report = {
            "settings": asdict(settings),
            "machine": machine(device),
            "tokens_per_second": {speed.name: speed.rounds for speed in speeds},
            "padding": {contestant.name: contestant.padding for contestant in contestants},
        }
        json_path.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")


def mean_length(store: PairStore) -> float:
    """Of the longer side of a pair, EOS counted: what a budget of tokens is filled with."""
    return float(np.maximum(store.src.lengths, store.tgt.lengths).mean()) + 1


def longest(store: PairStore) -> int:
    return int(max(store.src.lengths.max(), store.tgt.lengths.max())) + 1


def ours(model: ModelConfig, train: TrainConfig, data: Path, tokenizer: Tokenizer, device: torch.device) -> Contestant:
    """As `regard train` does it."""
    learner, totals = Learner(model, train, device, Processes()), Totals(device)
    stream = open_stream(data, train, tokenizer)
    place = Place(0, 0)

    def update() -> int:
        nonlocal place
        places, place = stream.following(place, train.accumulation)
        batches = [(number, stream.batch(at)) for number, at in enumerate(places)]
        learner.update(batches, totals)
        return sum(batch.num_tokens for _, batch in batches)

    return Contestant("regard", update, padding_share(stream.lengths(), stream.epoch(0)))


def plain_loop(name: str, model: nn.Module, store: PairStore, sentences: int, device: torch.device) -> Contestant:
    """The usual one: a shuffled epoch, so many sentences at a time, each batch padded to its longest; the model in bfloat16
    under autocast on a GPU, as ours."""
    model = model.to(device).train()
    optimizer = adam(model)
    random = np.random.default_rng(1)
    order: list[int] = []

    def next_rows() -> list[int]:
        if len(order) < sentences:
            order.extend(random.permutation(len(store)).tolist())
        rows = order[:sentences]
        del order[:sentences]
        return rows

    def update() -> int:
        rows = next_rows()
        src = padded([[*store.src[row].tolist(), EOS_ID] for row in rows]).to(device)
        tgt = padded([[BOS_ID, *store.tgt[row].tolist(), EOS_ID] for row in rows]).to(device)
        tgt_in, tgt_out = tgt[:, :-1], tgt[:, 1:]
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(device.type, dtype=torch.bfloat16) if device.type == "cuda" else nullcontext():
            logits = model(src, tgt_in)
        loss = F.cross_entropy(
            logits.flatten(0, 1).float(), tgt_out.flatten(), ignore_index=PAD_ID, label_smoothing=SMOOTHING
        )
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return sum(len(store.tgt[row]) + 1 for row in rows)

    lengths = store.src.lengths + 1, store.tgt.lengths + 1
    batches = np.array_split(np.random.default_rng(1).permutation(len(store)), max(1, len(store) // sentences))
    real = sum(int(side.sum()) for side in lengths)
    filled = sum(int(side[batch].max()) * len(batch) for side in lengths for batch in batches)
    return Contestant(name, update, 1 - real / filled)


def padded(rows: list[list[int]]) -> Tensor:
    return nn.utils.rnn.pad_sequence([torch.tensor(row) for row in rows], batch_first=True, padding_value=PAD_ID)


def interleaved(settings: TrainBenchSettings, contestants: list[Contestant], device: torch.device) -> list[Speed]:
    """Round by round, each in turn; the first round warms up and does not count."""
    rounds: dict[str, list[float]] = {contestant.name: [] for contestant in contestants}
    stderr = Console(stderr=True)
    with Progress(console=stderr, transient=True, disable=not stderr.is_terminal) as progress:
        task = progress.add_task("warming up", total=len(contestants) * (settings.rounds + 1))
        for turn in range(settings.rounds + 1):
            for contestant in contestants:
                progress.update(task, description=f"round {turn} of {settings.rounds}: {contestant.name}")
                synchronize(device)
                began = time.perf_counter()
                tokens = sum(contestant.update() for _ in range(settings.updates if turn else 2))
                synchronize(device)
                if turn:
                    rounds[contestant.name].append(tokens / (time.perf_counter() - began))
                progress.advance(task)
    return [Speed(name, tuple(numbers)) for name, numbers in rounds.items()]


def print_table(
    settings: TrainBenchSettings,
    train: TrainConfig,
    sentences: int,
    contestants: list[Contestant],
    speeds: list[Speed],
    where: str,
    num_pairs: int,
) -> None:
    console = Console()
    console.print(f"preset {settings.preset}, {num_pairs:,} pairs; {where}")
    title = f"training, data loading included, {train.precision}"
    table = Table(title=title, title_justify="left")
    table.add_column("training loop", no_wrap=True)
    for heading in ("real tokens/s", "slowest–fastest", "regard is", "padding"):
        table.add_column(heading, justify="right", no_wrap=True)
    ours_speed, *peers = speeds
    for speed, contestant in zip(speeds, contestants, strict=True):
        ratio = "" if speed is ours_speed else f"{ours_speed.median / speed.median:.2f} ×"
        spread = f"{min(speed.rounds):,.0f}–{max(speed.rounds):,.0f}"
        table.add_row(speed.name, f"{speed.median:,.0f}", spread, ratio, f"{contestant.padding:.1%}")
    console.print(table)
    console.print(
        f"Real (unpadded) target tokens per second, median of {settings.rounds} interleaved rounds of {settings.updates} "
        f"updates. regard: {train.accumulation} × {train.batch_tokens // train.accumulation:,} tokens of similar lengths; "
        f"the others: {sentences} sentences at random, padded to the longest."
    )
    for peer in peers:
        ratios = [a / b for a, b in zip(ours_speed.rounds, peer.rounds, strict=True)]
        console.print(f"regard trains {statistics.median(ratios):.2f} times as fast as {peer.name}, by round.")
