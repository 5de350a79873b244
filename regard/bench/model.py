"""`regard bench model`: training steps of ours and its peers at the same shapes, interleaved in one run."""

import json
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import torch
import torch.nn.functional as F
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from torch import Tensor

from regard.bench.origin import origin
from regard.bench.peers import Step, adam, marian_step, torch_transformer_step
from regard.config import ModelConfig
from regard.model.layers import linear
from regard.model.transformer import Transformer
from regard.train.device import find_device, synchronize
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


@dataclass(frozen=True)
class Speed:
    """Target tokens per second: one number for each round."""

    name: str
    rounds: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.rounds)


def run(settings: BenchSettings, *, json_path: Path | None) -> None:
    config = ModelConfig.preset(settings.preset, vocab_size=settings.vocab)
    device = find_device(settings.device)
    if json_path is not None and not json_path.parent.is_dir():
        raise ValueError(f"there is no folder {json_path.parent} to write {json_path.name} into")
    contestants = _contestants(settings, config, device)
    ceiling = matmul_ceiling(device, getattr(torch, settings.dtype))
    speeds = interleaved(settings, contestants, device)
    flops_per_token = step_flops(config, settings.batch, settings.length) / (settings.batch * settings.length)
    print_table(settings, speeds, ceiling, ceiling / flops_per_token)
    if json_path is not None:
        report = {
            "settings": asdict(settings),
            "origin": origin(device),
            "ceiling_flops": ceiling,
            "tokens_per_second": {speed.name: speed.rounds for speed in speeds},
        }
        json_path.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")


def our_step(config: ModelConfig, src: Tensor, tgt_in: Tensor, tgt_out: Tensor, dtype: torch.dtype, compiled: bool) -> Step:
    model = Transformer(config).to(src.device, dtype).train()
    optimizer = adam(model)

    def decoder_states() -> Tensor:
        return model.decode(tgt_in, model.encode(src), model.padding_mask(src))

    states = torch.compile(decoder_states) if compiled else decoder_states

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        loss = smoothed_cross_entropy(states(), model.output_weight, tgt_out, pad_id=config.pad_id, smoothing=SMOOTHING)
        (loss.total / loss.num_tokens).backward()
        optimizer.step()

    return step


def _contestants(settings: BenchSettings, config: ModelConfig, device: torch.device) -> dict[str, Step]:
    """Every model learns the same batch: real tokens only, but with the padding mask that real batches need."""
    generator = torch.Generator().manual_seed(0)

    def ids() -> Tensor:
        return torch.randint(3, settings.vocab, (settings.batch, settings.length), generator=generator).to(device)

    src, tgt_in, tgt_out = ids(), ids(), ids()
    dtype = getattr(torch, settings.dtype)

    def peer_loss(logits: Tensor) -> Tensor:
        return F.cross_entropy(
            logits.flatten(0, 1), tgt_out.flatten(), ignore_index=config.pad_id, label_smoothing=SMOOTHING
        )

    contestants = {"regard": our_step(config, src, tgt_in, tgt_out, dtype, settings.compile)}
    for name, make in {"torch.nn.Transformer": torch_transformer_step, "Hugging Face Marian": marian_step}.items():
        try:
            contestants[name] = make(config, src, tgt_in, peer_loss, dtype, settings.compile)
        except ImportError as error:
            Console(stderr=True).print(f"{name} is left out: {error}")
    return contestants


def interleaved(settings: BenchSettings, contestants: dict[str, Step], device: torch.device) -> list[Speed]:
    """Round by round, each contestant in turn: whatever else the machine does meets all of them alike."""
    num_tokens = settings.steps * settings.batch * settings.length
    rounds: dict[str, list[float]] = {name: [] for name in contestants}
    stderr = Console(stderr=True)
    with Progress(console=stderr, transient=True, disable=not stderr.is_terminal) as progress:
        task = progress.add_task("warming up", total=len(contestants) * (settings.rounds + 1))
        for turn in range(settings.rounds + 1):
            for name, step in contestants.items():
                label = "warming up" if turn == 0 else f"round {turn} of {settings.rounds}"
                progress.update(task, description=f"{label}: {name}")
                seconds = _seconds(step, device, times=settings.steps)
                if turn > 0:
                    rounds[name].append(num_tokens / seconds)
                progress.advance(task)
    return [Speed(name, tuple(numbers)) for name, numbers in rounds.items()]


def _seconds(work: Callable[[], object], device: torch.device, times: int = 1) -> float:
    synchronize(device)
    start = time.perf_counter()
    for _ in range(times):
        work()
    synchronize(device)
    return time.perf_counter() - start


def matmul_ceiling(device: torch.device, dtype: torch.dtype) -> float:
    """The most floating-point operations a second that a matrix product reaches here, over a few sizes and kernels."""
    best = 0.0
    for size in (512, 1024, 2048) if device.type == "cpu" else (4096, 8192):
        x = torch.randn(size, size, device=device).to(dtype)
        for product in (partial(torch.mm, x, x), partial(linear, x, x, None)):
            product()
            seconds = min(_seconds(product, device) for _ in range(10))
            best = max(best, 2 * size**3 / seconds)
    return best


def step_flops(config: ModelConfig, batch: int, length: int) -> int:
    """Operations of one training step in matrix products, sources and targets of one length: forward, and twice that
    for backward."""
    attention_products = 2 * length * config.d_model  # scores, and the weighted sum, for one token
    feed_forward = 2 * config.d_model * config.d_ff
    encoder_layer = 4 * config.d_model**2 + attention_products + feed_forward
    decoder_layer = 8 * config.d_model**2 + 2 * attention_products + feed_forward
    output = config.d_model * config.tgt_vocab_size
    per_token = config.encoder_layers * encoder_layer + config.decoder_layers * decoder_layer + output
    return 3 * 2 * per_token * batch * length


def print_table(settings: BenchSettings, speeds: list[Speed], ceiling: float, tokens_at_ceiling: float) -> None:
    mode = "compiled" if settings.compile else "eager"
    table = Table(title=f"forward + loss + backward + Adam, {settings.dtype}, {mode}", title_justify="left")
    table.add_column("model", no_wrap=True)
    for heading in ("tokens/s", "slowest–fastest", "regard is", "of ceiling"):
        table.add_column(heading, justify="right", no_wrap=True)
    ours, *peers = speeds
    for speed in speeds:
        ratio = "" if speed is ours else f"{ours.median / speed.median:.2f} ×"
        spread = f"{min(speed.rounds):,.0f}–{max(speed.rounds):,.0f}"
        table.add_row(speed.name, f"{speed.median:,.0f}", spread, ratio, f"{speed.median / tokens_at_ceiling:.0%}")
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
