"""Runs `regard bench train`: training loops of regard and its peers over a corpus, data loading included."""

import statistics
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from itertools import cycle
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from rich.console import Console
from torch import Tensor, nn

from regard.bench.model import SMOOTHING, matmul_ceiling
from regard.bench.origin import origin
from regard.bench.peers import PEERS, adam
from regard.bench.speed import Speed, interleaved_rounds, require_folder_of, table_of, write_report
from regard.config import TRAIN_PRESETS, ModelConfig, TrainConfig, model_preset
from regard.data.batching import Indices, PairLengths, epoch_batches, padding_share
from regard.data.loader import Loader
from regard.data.report import read_report
from regard.data.store import PairStore
from regard.data.stream import Place
from regard.machine.device import find_device, synchronize
from regard.machine.processes import Processes
from regard.text.tokenizer import BOS_ID, EOS_ID, PAD_ID, Tokenizer
from regard.train.batches import BatchMaker
from regard.train.plan import open_stream, settled
from regard.train.road import layout_for, learner_for, with_kernels
from regard.train.totals import Totals

Update = Callable[[], int]  # performs an update, and returns its number of target tokens


@dataclass(frozen=True)
class TrainBenchSettings:
    preset: str
    batch_tokens: int
    peer_sentences: int  # in a batch of the peers; 0: as many as in an update of ours
    similar: bool  # whether the peers' batches have sentences of similar lengths
    compile: bool  # the peers' models
    rounds: int
    updates: int
    device: str


@dataclass(frozen=True)
class Contestant:
    name: str
    update: Update
    padding: float  # share of all tokens, both sides together
    rest: Callable[[], None] = lambda: None  # stops background work after each round


def run(settings: TrainBenchSettings, data: Path, *, json_path: Path | None) -> None:
    read_report(data)  # which fails if the folder is not prepared
    require_folder_of(json_path)
    device = find_device(settings.device)
    torch.backends.cuda.enable_cudnn_sdp(False)  # it plans for every new shape, which would slow the peers down
    tokenizer = Tokenizer.load(data)
    model = ModelConfig(
        src_vocab_size=len(tokenizer.src),
        tgt_vocab_size=len(tokenizer.tgt),
        shared_embeddings="all" if tokenizer.is_shared else "target",
        **model_preset(settings.preset),
    )
    train = TrainConfig(**TRAIN_PRESETS[settings.preset] | {"batch_tokens": settings.batch_tokens, "steps": 10_000})
    train = with_kernels(replace(train, device=settings.device), model, 1)
    train = settled(replace(train, compile="off"), open_stream(data, train, tokenizer), 1)
    contestants = [ours(model, train, data, tokenizer, device)]
    store = PairStore.open(data, "train")
    as_ours = max(1, round(settings.batch_tokens * (1 - contestants[0].padding) / mean_length(store)))
    sentences = settings.peer_sentences or as_ours
    for name, peer in PEERS.items():
        try:
            network = peer(model, longest(store)).to(device).train()
            batches = similar_batches(store, settings.batch_tokens) if settings.similar else mixed_batches(store, sentences)
            forward = torch.compile(network, dynamic=True) if settings.compile else network
            contestants.append(plain_loop(name, network, forward, store, batches, device))
        except ImportError as error:
            Console(stderr=True).print(f"{name} is left out: {error}")
    speeds = interleaved(settings, contestants, device)
    ceiling = matmul_ceiling(device, torch.bfloat16 if train.precision == "bfloat16" else torch.float32)
    at_ceiling = ceiling / flops_per_token(model, store)
    print_table(settings, train, sentences, contestants, speeds, f"{len(store):,} pairs; {origin(device)}", at_ceiling)
    report = {
        "settings": asdict(settings),
        "origin": origin(device),
        "tokens_per_second": {speed.name: speed.rounds for speed in speeds},
        "padding": {contestant.name: contestant.padding for contestant in contestants},
        "ceiling_flops": ceiling,
        "ceiling_tokens_per_second": at_ceiling,
    }
    write_report(json_path, report)


def mean_length(store: PairStore) -> float:
    """Return the mean length of the longer side of a pair, EOS included."""
    return float(np.maximum(store.src.lengths, store.tgt.lengths).mean()) + 1


def longest(store: PairStore) -> int:
    return int(max(store.src.lengths.max(), store.tgt.lengths.max())) + 1


def ours(model: ModelConfig, train: TrainConfig, data: Path, tokenizer: Tokenizer, device: torch.device) -> Contestant:
    """Return the training loop of `regard train`."""
    stream, totals = open_stream(data, train, tokenizer), Totals(device)
    layout = layout_for(model, train, device, Processes(), stream)
    learner = learner_for(model, train, device, Processes(), layout)
    make = BatchMaker(stream, train.accumulation, Processes(), layout)
    loader = Loader(make)
    place = Place(0, 0)

    def update() -> int:
        nonlocal place
        taken = loader.take(place) if device.type == "cuda" else make(place)
        place = make.after(place)
        learner.update(taken, totals)
        return sum(batch.num_tokens for _, batch in taken)

    return Contestant("regard", update, stream.padding(0), rest=loader.pause)


def flops_per_token(config: ModelConfig, store: PairStore) -> float:
    """Return the operations in matrix products, forward and backward, for each target token of the corpus."""
    src, tgt = (lengths.astype(np.float64) + 1 for lengths in (store.src.lengths, store.tgt.lengths))
    d, feed_forward = config.d_model, 2 * config.d_model * config.d_ff
    encoder = config.encoder_layers * ((4 * d * d + feed_forward) * src + 2 * d * src * src)
    cross = config.decoder_layers * (2 * d * d * src + 2 * d * src * tgt)
    decoder = config.decoder_layers * ((6 * d * d + feed_forward) * tgt + 2 * d * tgt * tgt)
    output = d * config.tgt_vocab_size * tgt
    return float(3 * 2 * (encoder + cross + decoder + output).sum() / tgt.sum())


def mixed_batches(store: PairStore, sentences: int) -> list[Indices]:
    """Return batches of this many sentences from a shuffled epoch."""
    order = np.random.default_rng(1).permutation(len(store))
    return [order[start : start + sentences] for start in range(0, len(store) - sentences + 1, sentences)] or [order]


def similar_batches(store: PairStore, batch_tokens: int) -> list[Indices]:
    """Return batches of similar lengths, as regard makes them where it pads."""
    lengths = PairLengths.of(store.src.lengths, store.tgt.lengths)
    pairs = np.arange(len(store), dtype=np.int64)
    return epoch_batches(lengths, pairs, batch_tokens=batch_tokens, seed=1, epoch=0)


def plain_loop(
    name: str,
    model: nn.Module,
    forward: Callable[[Tensor, Tensor], Tensor],
    store: PairStore,
    batches: list[Indices],
    device: torch.device,
) -> Contestant:
    """Return a loop over padded batches, under bfloat16 autocast on a GPU."""
    optimizer = adam(model)
    waiting = cycle(batches)

    def update() -> int:
        rows = next(waiting).tolist()
        src = padded([[*store.src[row].tolist(), EOS_ID] for row in rows]).to(device)
        tgt = padded([[BOS_ID, *store.tgt[row].tolist(), EOS_ID] for row in rows]).to(device)
        tgt_in, tgt_out = tgt[:, :-1], tgt[:, 1:]
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(device.type, dtype=torch.bfloat16) if device.type == "cuda" else nullcontext():
            logits = forward(src, tgt_in)
        logits = logits.flatten(0, 1).float()
        loss = F.cross_entropy(logits, tgt_out.flatten(), ignore_index=PAD_ID, label_smoothing=SMOOTHING)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return sum(len(store.tgt[row]) + 1 for row in rows)

    return Contestant(name, update, padding_share(PairLengths.of(store.src.lengths, store.tgt.lengths), batches))


def padded(rows: list[list[int]]) -> Tensor:
    return nn.utils.rnn.pad_sequence([torch.tensor(row) for row in rows], batch_first=True, padding_value=PAD_ID)


def interleaved(settings: TrainBenchSettings, contestants: list[Contestant], device: torch.device) -> list[Speed]:
    rounds: dict[str, list[float]] = {contestant.name: [] for contestant in contestants}
    by_name = {contestant.name: contestant for contestant in contestants}
    for turn, name in interleaved_rounds(list(rounds), settings.rounds):
        synchronize(device)
        began = time.perf_counter()
        tokens = sum(by_name[name].update() for _ in range(settings.updates if turn else 2))
        synchronize(device)
        if turn:
            rounds[name].append(tokens / (time.perf_counter() - began))
        by_name[name].rest()
    return [Speed(name, tuple(numbers)) for name, numbers in rounds.items()]


def print_table(
    settings: TrainBenchSettings,
    train: TrainConfig,
    sentences: int,
    contestants: list[Contestant],
    speeds: list[Speed],
    where: str,
    at_ceiling: float,
) -> None:
    console = Console(width=None if Console().is_terminal else 100)
    console.print(f"preset {settings.preset}, {where}")
    headings = ("real tokens/s", "slowest–fastest", "regard is", "padding", "of ceiling")
    table = table_of(f"training, data loading included, {train.precision}", "training loop", *headings)
    ours_speed, *peers = speeds
    for speed, contestant in zip(speeds, contestants, strict=True):
        ratio = "" if speed is ours_speed else f"{ours_speed.median / speed.median:.2f} ×"
        shares = f"{contestant.padding:.1%}", f"{speed.median / at_ceiling:.0%}"
        table.add_row(speed.name, *speed.in_words, ratio, *shares)
    console.print(table)
    similar = f"{settings.batch_tokens:,} tokens of similar lengths"
    theirs = similar if settings.similar else f"{sentences} sentences at random"
    kind = "of any lengths, packed" if train.kernels == "on" else "of similar lengths"
    console.print(
        f"Real (unpadded) target tokens per second, median of {settings.rounds} interleaved rounds of {settings.updates} "
        f"updates. regard: {train.accumulation} × {train.batch_tokens // train.accumulation:,} tokens {kind}; the others"
        f"{', compiled' if settings.compile else ''}: {theirs}, padded to the longest. The matrix-multiply ceiling of this "
        f"machine would allow {at_ceiling:,.0f}."
    )
    for peer in peers:
        ratios = [a / b for a, b in zip(ours_speed.rounds, peer.rounds, strict=True)]
        console.print(f"regard trains {statistics.median(ratios):.2f} times as fast as {peer.name}, by round.")
