"""Runs `regard bench model`: training steps of our Transformer and its peers at the same shapes."""

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import torch
import torch.nn.functional as F
from rich.console import Console
from torch import Tensor, nn

from regard.bench.origin import origin
from regard.bench.peers import PEERS, TrainingStep, training_step
from regard.bench.speed import Speed, interleaved_rounds, require_folder_of, table_of, write_report
from regard.config import ModelConfig
from regard.machine.device import find_device, synchronize
from regard.model.onednn import linear
from regard.model.transformer import Transformer
from regard.train.loss import smoothed_cross_entropy

SMOOTHING = 0.1


@dataclass(frozen=True)
class BenchSettings:
    preset: str
    batch: int
    length: int
    vocab: int
    rounds: int
    steps: int
    device: str
    dtype: str
    compile: bool


def run(settings: BenchSettings, *, json_path: Path | None) -> None:
    config = ModelConfig.preset(settings.preset, vocab_size=settings.vocab)
    device = find_device(settings.device)
    require_folder_of(json_path)
    contestants = _contestants(settings, config, device)
    ceiling = matmul_ceiling(device, getattr(torch, settings.dtype))
    speeds = interleaved(settings, contestants, device)
    flops_per_token = step_flops(config, settings.batch, settings.length) / (settings.batch * settings.length)
    print_table(settings, speeds, ceiling, ceiling / flops_per_token)
    report = {
        "settings": asdict(settings),
        "origin": origin(device),
        "ceiling_flops": ceiling,
        "tokens_per_second": {speed.name: speed.rounds for speed in speeds},
    }
    write_report(json_path, report)


def our_step(
    config: ModelConfig, src: Tensor, tgt_in: Tensor, tgt_out: Tensor, dtype: torch.dtype, compiled: bool
) -> TrainingStep:
    model = Transformer(config).to(src.device, dtype).train()

    def decoder_states() -> Tensor:
        return model.decode(tgt_in, model.encode(src), model.padding_mask(src))

    states = torch.compile(decoder_states) if compiled else decoder_states

    def mean_loss() -> Tensor:
        loss = smoothed_cross_entropy(states(), model.output_weight, tgt_out, pad_id=config.pad_id, smoothing=SMOOTHING)
        return loss.total / loss.num_tokens

    return training_step(model, mean_loss)


def peer_step(network: nn.Module, src: Tensor, tgt_in: Tensor, tgt_out: Tensor, pad_id: int, compiled: bool) -> TrainingStep:
    forward = torch.compile(network) if compiled else network

    def mean_loss() -> Tensor:
        logits = forward(src, tgt_in).flatten(0, 1)
        return F.cross_entropy(logits, tgt_out.flatten(), ignore_index=pad_id, label_smoothing=SMOOTHING)

    return training_step(network, mean_loss)


def _contestants(settings: BenchSettings, config: ModelConfig, device: torch.device) -> dict[str, TrainingStep]:
    """Return a training step of every model on the same batch, which has no padding."""
    generator = torch.Generator().manual_seed(0)
    shape = (settings.batch, settings.length)
    src, tgt_in, tgt_out = (torch.randint(3, settings.vocab, shape, generator=generator).to(device) for _ in range(3))
    dtype = getattr(torch, settings.dtype)
    contestants = {"regard": our_step(config, src, tgt_in, tgt_out, dtype, settings.compile)}
    for name, peer in PEERS.items():
        try:
            network = peer(config, settings.length).to(device, dtype).train()
        except ImportError as error:
            Console(stderr=True).print(f"{name} is left out: {error}")
        else:
            contestants[name] = peer_step(network, src, tgt_in, tgt_out, config.pad_id, settings.compile)
    return contestants


def interleaved(settings: BenchSettings, contestants: dict[str, TrainingStep], device: torch.device) -> list[Speed]:
    num_tokens = settings.steps * settings.batch * settings.length
    rounds: dict[str, list[float]] = {name: [] for name in contestants}
    for turn, name in interleaved_rounds(list(contestants), settings.rounds):
        seconds = seconds_of(contestants[name], device, times=settings.steps)
        if turn:
            rounds[name].append(num_tokens / seconds)
    return [Speed(name, tuple(numbers)) for name, numbers in rounds.items()]


def print_table(settings: BenchSettings, speeds: list[Speed], ceiling: float, tokens_at_ceiling: float) -> None:
    mode = "compiled" if settings.compile else "eager"
    title = f"forward + loss + backward + Adam, {settings.dtype}, {mode}"
    table = table_of(title, "model", "tokens/s", "slowest–fastest", "regard is", "of ceiling")
    ours, *peers = speeds
    for speed in speeds:
        ratio = "" if speed is ours else f"{ours.median / speed.median:.2f} ×"
        table.add_row(speed.name, *speed.in_words, ratio, f"{speed.median / tokens_at_ceiling:.0%}")
    console = Console()
    console.print(
        f"preset {settings.preset}, {settings.batch} sentences of {settings.length} tokens, vocabulary {settings.vocab:,}; "
        f"{origin(torch.device(settings.device))}"
    )
    console.print(table)
    console.print(
        f"Target tokens per second, median of {settings.rounds} interleaved rounds of {settings.steps} steps. "
        f"The matrix-multiply ceiling of {ceiling / 1e9:,.0f} GFLOP/s would allow {tokens_at_ceiling:,.0f}."
    )
    if peers:
        fastest = max(peers, key=lambda speed: speed.median)
        console.print(f"regard trains {ours.median / fastest.median:.2f} times as fast as the faster peer, {fastest.name}.")


def seconds_of(work: Callable[[], object], device: torch.device, times: int = 1) -> float:
    synchronize(device)
    start = time.perf_counter()
    for _ in range(times):
        work()
    synchronize(device)
    return time.perf_counter() - start


def matmul_ceiling(device: torch.device, dtype: torch.dtype) -> float:
    """Return the most floating-point operations a second that a matrix product reaches, over a few sizes and kernels."""
    best = 0.0
    for size in (512, 1024, 2048) if device.type == "cpu" else (4096, 8192):
        x = torch.randn(size, size, device=device).to(dtype)
        for product in (partial(torch.mm, x, x), partial(linear, x, x, None)):
            product()
            seconds = min(seconds_of(product, device) for _ in range(10))
            best = max(best, 2 * size**3 / seconds)
    return best


def step_flops(config: ModelConfig, batch: int, length: int) -> int:
    """Return the operations in matrix products of one training step, with sources and targets of one length: forward, and
    twice that for backward."""
    attention_products = 2 * length * config.d_model  # scores, and the weighted sum, for one token
    feed_forward = 2 * config.d_model * config.d_ff
    encoder_layer = 4 * config.d_model**2 + attention_products + feed_forward
    decoder_layer = 8 * config.d_model**2 + 2 * attention_products + feed_forward
    output = config.d_model * config.tgt_vocab_size
    per_token = config.encoder_layers * encoder_layer + config.decoder_layers * decoder_layer + output
    return 3 * 2 * per_token * batch * length
