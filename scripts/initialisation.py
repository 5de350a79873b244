"""Compare initialisations of a model by what it learns: the table in EXPERIMENTS.md.

    python scripts/initialisation.py FOLDER --device cuda

FOLDER holds train.de.xz and train.en.xz, one sentence a line. The table lists, for each scheme, norm and depth, the mean
cosine between the decoder's states at different positions of one sentence at the start (1: all equal), and the loss per
token during 300 steps (means of 20) of Adam with a linear warm-up to 7e-4 over 100.
"""

import argparse
import io
import itertools
import lzma
import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import sentencepiece
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.config import ModelConfig
from regard.model.initialisation import depth_factor, glorot
from regard.model.transformer import Transformer
from regard.train.loss import smoothed_cross_entropy

VOCAB_SIZE, PAD, BOS, EOS = 8000, 0, 1, 2
STEPS, WARMUP, PEAK, SMOOTHING, BATCH = 300, 100, 7e-4, 0.1, 256
Batch = tuple[Tensor, Tensor, Tensor]
Scheme = Callable[[str, Tensor, ModelConfig], float]


def full_glorot(name: str, weight: Tensor, config: ModelConfig) -> float:
    return glorot(name, weight)


def half_glorot(name: str, weight: Tensor, config: ModelConfig) -> float:
    return glorot(name, weight) / 2


def shrunk_outputs(name: str, weight: Tensor, config: ModelConfig) -> float:
    """Apply the rule of `initialise` for post-norm models to both norms."""
    return glorot(name, weight) * depth_factor(name, replace(config, norm="post"))


def shrunk_everything(name: str, weight: Tensor, config: ModelConfig) -> float:
    depth = 8 * config.encoder_layers if name.startswith("encoder") else 12 * config.decoder_layers
    return float(glorot(name, weight) * depth**-0.25)


def root_of_width(name: str, weight: Tensor, config: ModelConfig) -> float:
    return float(config.d_model**-0.5)


def small(name: str, weight: Tensor, config: ModelConfig) -> float:
    return 0.02


def small_outputs(name: str, weight: Tensor, config: ModelConfig) -> float:
    """Return 0.02, divided by √(sub-layers in the stack) for maps that write to the residual stream (GPT-2)."""
    writes = name.endswith(("output.weight", "outer.weight"))
    sublayers = 2 * config.encoder_layers if name.startswith("encoder") else 3 * config.decoder_layers
    return 0.02 / math.sqrt(sublayers) if writes else 0.02


SCHEMES: dict[str, Scheme] = {
    "Glorot": full_glorot,
    "half Glorot": half_glorot,
    "Glorot, outputs and feed-forward shrunk with depth": shrunk_outputs,
    "Glorot, all shrunk with depth": shrunk_everything,
    "d_model^-½": root_of_width,
    "0.02": small,
    "0.02, outputs shrunk with depth": small_outputs,
}


@torch.no_grad()
def redraw(model: Transformer, scheme: Scheme) -> None:
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, std=scheme(f"{name}.weight", module.weight, model.config))


def read(folder: Path, device: torch.device) -> list[Batch]:
    """Return shuffled batches of sentences of similar length, as a training run makes them."""
    sides = [lzma.decompress((folder / f"train.{side}.xz").read_bytes()).decode().split("\n")[:-1] for side in ("de", "en")]
    learnt = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=itertools.chain(*sides), model_writer=learnt, vocab_size=VOCAB_SIZE, model_type="bpe",
        byte_fallback=True, pad_id=PAD, bos_id=BOS, eos_id=EOS, unk_id=3, minloglevel=2,
    )  # fmt: skip
    tokenizer = sentencepiece.SentencePieceProcessor(model_proto=learnt.getvalue())
    src, tgt = (tokenizer.encode(side) for side in sides)
    pairs = sorted(zip(src, tgt, strict=True), key=lambda pair: (len(pair[1]), len(pair[0])))
    batches = []
    for start in range(0, len(pairs) - BATCH + 1, BATCH):
        chunk = pairs[start : start + BATCH]
        rows = ([s for s, _ in chunk], [[BOS, *t] for _, t in chunk], [[*t, EOS] for _, t in chunk])
        src_ids, tgt_in, tgt_out = (
            nn.utils.rnn.pad_sequence([torch.tensor(row) for row in side], batch_first=True).to(device) for side in rows
        )
        batches.append((src_ids, tgt_in, tgt_out))
    order = torch.randperm(len(batches), generator=torch.Generator().manual_seed(0)).tolist()
    return [batches[n] for n in order]


@torch.no_grad()
def likeness(model: Transformer, batch: Batch) -> float:
    """Return the mean cosine between the decoder's states at different positions of one sentence."""
    src, tgt_in, _ = batch
    model.eval()
    states = F.normalize(model.decode(tgt_in, model.encode(src), model.padding_mask(src)), dim=-1)
    model.train()
    real = tgt_in != PAD
    pairs = real[:, :, None] & real[:, None, :] & ~torch.eye(tgt_in.shape[1], dtype=torch.bool, device=src.device)
    return float((states @ states.transpose(1, 2))[pairs].mean())


def train(model: Transformer, batches: list[Batch]) -> Iterator[Tensor]:
    optimizer = torch.optim.Adam(model.parameters(), betas=(0.9, 0.98), eps=1e-9, fused=True)
    for step, (src, tgt_in, tgt_out) in enumerate(itertools.islice(itertools.cycle(batches), STEPS), start=1):
        optimizer.param_groups[0]["lr"] = PEAK * min(1.0, step / WARMUP)
        optimizer.zero_grad(set_to_none=True)
        states = model.decode(tgt_in, model.encode(src), model.padding_mask(src))
        loss = smoothed_cross_entropy(states, model.output_weight, tgt_out, pad_id=PAD, smoothing=SMOOTHING)
        (loss.total / loss.num_tokens).backward()
        optimizer.step()
        yield (loss.nll / loss.num_tokens).detach()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--preset", default="base", help="preset with the width to use; the depth is varied")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--norms", nargs="+", default=["post", "pre"])
    parser.add_argument("--schemes", nargs="+", default=list(SCHEMES), choices=SCHEMES)
    arguments = parser.parse_args()
    device = torch.device(arguments.device)
    torch.set_float32_matmul_precision("high")
    batches = read(arguments.folder, device)
    preset = ModelConfig.preset(arguments.preset, vocab_size=VOCAB_SIZE)
    print(f"{arguments.preset} width, {STEPS} steps of {BATCH} pairs, {arguments.seeds} seeds, torch {torch.__version__}")
    print("| norm | layers | weights of linear maps | likeness before | loss at 100 | at 200 | at 300 | likeness after |")
    print("|---|---|---|---|---|---|---|---|")
    for norm, layers, scheme_name in itertools.product(arguments.norms, (3, 6), arguments.schemes):
        rows = []
        for seed in range(arguments.seeds):
            torch.manual_seed(seed)
            config = replace(preset, norm=norm, encoder_layers=layers, decoder_layers=layers)
            model = Transformer(config).to(device)
            redraw(model, SCHEMES[scheme_name])
            before = likeness(model, batches[0])
            losses = torch.stack(list(train(model, batches))).cpu()
            means = [losses[last - 20 : last].mean().item() for last in (100, 200, 300)]
            rows.append([before, *means, likeness(model, batches[0])])
        numbers = " | ".join(f"{number:.3f}" for number in torch.tensor(rows).mean(0).tolist())
        print(f"| {norm} | {layers} | {scheme_name} | {numbers} |", flush=True)


if __name__ == "__main__":
    main()
