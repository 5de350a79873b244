"""Check the fused training pass on this GPU, and profile it.

    python scripts/fused_training.py prepared --preset base --batch-tokens 25600

It compares losses with the plain path in float32, then measures updates over the corpus that `regard prepare` wrote, and
prints the kernels that take longest. `--blocks` tries other block sizes of attention.
"""

import argparse
import time
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from regard.bench.model import matmul_ceiling
from regard.config import ModelConfig, TrainConfig, model_preset
from regard.data.batch import Pairs
from regard.data.batching import PairLengths, packed_batches, packed_size
from regard.data.store import PairStore
from regard.fast.kernels import attention
from regard.fast.training.layout import PackedBatch, PackLayout
from regard.fast.training.learner import FusedLearner
from regard.machine.processes import Processes
from regard.text.tokenizer import PAD_ID, Tokenizer
from regard.train.learner import Learner
from regard.train.totals import Totals


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("prepared", type=Path)
    parser.add_argument("--preset", default="base")
    parser.add_argument("--batch-tokens", type=int, default=25_600)
    parser.add_argument("--updates", type=int, default=100)
    parser.add_argument("--agreement", type=int, default=0, help="steps to compare with the plain path in float32")
    parser.add_argument("--blocks", action="store_true")
    parser.add_argument("--profile", action="store_true")
    options = parser.parse_args()
    tokenizer = Tokenizer.load(options.prepared)
    store = PairStore.open(options.prepared, "train")
    lengths = PairLengths.of(store.src.lengths, store.tgt.lengths)
    src, tgt = packed_size(lengths, options.batch_tokens)
    layout = PackLayout(src, tgt, len(tokenizer.src), len(tokenizer.tgt), PAD_ID)
    model = ModelConfig(src_vocab_size=len(tokenizer.src), tgt_vocab_size=len(tokenizer.tgt), **model_preset(options.preset))
    indices = packed_batches(lengths, np.arange(len(store)), room=(src, tgt), seed=1, epoch=0)
    real = sum(int(lengths.tgt[batch].sum()) for batch in indices[:-1]) / (tgt * (len(indices) - 1))
    real_src = sum(int(lengths.src[batch].sum()) for batch in indices[:-1]) / (src * (len(indices) - 1))
    print(f"{options.preset}: room for {src:,} and {tgt:,} tokens, filled to {real_src:.1%} and {real:.1%}", flush=True)

    def batch(number: int) -> Pairs:
        rows = indices[number % (len(indices) - 1)]
        return Pairs(store.src.take(rows), store.tgt.take(rows))

    train = TrainConfig(
        steps=1000, warmup=100, learning_rate=1e-3, schedule="linear", clip_norm=1.0, precision="bfloat16", compile="off",
        device="cuda", accumulation=1, label_smoothing=0.1,
    )  # fmt: skip
    device = torch.device("cuda")
    if options.agreement:
        agree(model, train, layout, [batch(n) for n in range(options.agreement)], device)
    began = time.perf_counter()
    batches = [batch(n) for n in range(32)]
    drawing = time.perf_counter() - began
    learner = FusedLearner(model, train, device, layout)
    print(f"the learner is there after {time.perf_counter() - began - drawing:.1f} s", flush=True)
    began = time.perf_counter()
    ready = [layout.pack(one) for one in batches]
    packing = time.perf_counter() - began
    print(f"drawing {1000 * drawing / 32:.1f} ms and packing {1000 * packing / 32:.1f} ms a batch", flush=True)
    ceiling = matmul_ceiling(device, torch.bfloat16)
    print(f"matrix products: {ceiling / 1e12:.0f} TFLOP/s", flush=True)
    measure(learner, ready, options.updates, device)
    if options.profile:
        profile(learner, ready, device)
    if options.blocks:
        for block, stride, warps in (
            (64, 64, 4),
            (32, 32, 4),
            (32, 32, 2),
            (64, 32, 8),
            (128, 32, 4),
            (128, 64, 8),
            (64, 16, 4),
        ):
            try:
                attention.BLOCK, attention.STRIDE, attention.WARPS = block, stride, warps
                print(f"blocks of {block} × {stride}, {warps} warps:", end=" ", flush=True)
                measure(FusedLearner(model, train, device, layout), ready, options.updates // 2, device)
            except Exception as error:
                print(repr(error)[:200], flush=True)


def measure(learner: FusedLearner, ready: list[PackedBatch], updates: int, device: torch.device) -> None:
    totals = Totals(device)
    for number in range(5):
        learner.update([(0, ready[number])], totals)
    torch.cuda.synchronize()
    began = time.perf_counter()
    tokens = 0
    for number in range(updates):
        one = ready[number % len(ready)]
        learner.update([(0, one)], totals)
        tokens += one.num_tokens
    launched = time.perf_counter() - began
    torch.cuda.synchronize()
    seconds = time.perf_counter() - began
    print(
        f"{tokens / seconds:,.0f} target tokens/s, {1000 * seconds / updates:.2f} ms an update, host "
        f"{1000 * launched / updates:.2f} ms; memory {torch.cuda.max_memory_allocated() / 2**30:.1f} GiB",
        flush=True,
    )


def agree(model: ModelConfig, train: TrainConfig, layout: PackLayout, batches: list[Pairs], device: torch.device) -> None:
    """Compare losses without dropout: the plain path in float32 and in bfloat16, and the fused path."""
    model = replace(model, dropout=0.0, embedding_dropout=0.0)
    lines: dict[str, list[float]] = {}
    start: dict[str, Any] = {}
    for name in ("plain float32", "plain bfloat16", "fused bfloat16", "fused again"):
        torch.manual_seed(1)
        precision: Any = name.split()[1] if name != "fused again" else "bfloat16"
        config = replace(train, precision=precision)
        learner: Any = (
            Learner(model, config, device, Processes()) if "plain" in name else FusedLearner(model, config, device, layout)
        )
        if not start:
            start = learner.weights()
        learner.restore(start, {}, 0)
        losses = []
        for one in batches:
            totals = Totals(device)
            learner.update([(0, one.padded() if "plain" in name else layout.pack(one))], totals)
            sums = totals.to_list()
            losses.append(sums[1] / sums[2])
        lines[name] = losses
        del learner
        torch.cuda.empty_cache()
    reference = lines.pop("plain float32")
    print("losses of", len(batches), "steps, plain float32:", [round(x, 4) for x in reference[:: max(1, len(batches) // 8)]])
    for name, losses in lines.items():
        worst = max(abs(a - b) for a, b in zip(losses, reference, strict=True))
        print(name, [round(a - b, 4) for a, b in zip(losses, reference, strict=True)])
        print(f"{name}: at most {worst:.5f} away, at the end {losses[-1] - reference[-1]:+.5f}", flush=True)
    print(
        "the two fused runs are", "equal" if lines["fused again"] == lines["fused bfloat16"] else "NOT equal", "to the bit"
    )


def profile(learner: FusedLearner, ready: list[PackedBatch], device: torch.device) -> None:
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as recording

    totals = Totals(device)
    with recording(activities=[ProfilerActivity.CUDA]) as seen:
        for number in range(5):
            learner.update([(0, ready[number])], totals)
        torch.cuda.synchronize()
    times: dict[str, list[float]] = defaultdict(list)
    for event in seen.events():
        if str(event.device_type).endswith("CUDA"):
            times[event.name].append(event.device_time)
    total = sum(map(sum, times.values())) / 5
    print(f"kernels of an update: {total / 1000:.2f} ms")
    for name, parts in sorted(times.items(), key=lambda item: -sum(item[1]))[:40]:
        print(f"{sum(parts) / 5000:8.3f} ms {len(parts) // 5:4d} × {sum(parts) / len(parts):8.1f} µs  {name[:110]}")


if __name__ == "__main__":
    main()
