"""Train a Transformer in a plain loop with torch alone, to compare with regard.

    python recipes/plain_loop.py runs/kftt/data --minutes 3

It learns from the folder data/ that `regard prepare` or `regard train` wrote: its subwords and lines of text, nothing else
of regard. It uses torch.nn.Transformer, eager, in bfloat16 on CUDA; batches of sentences of similar lengths; Adam, with a
warm-up and then a learning rate that falls to 0 at the end of the minutes. These begin with the first update; reading and
encoding text come before, and greedy translation of the validation text after.

The model is pre-norm, because with torch's initial values six post-norm layers hardly learn (EXPERIMENTS.md).
"""

import argparse
import lzma
import math
import random
import time
from collections.abc import Iterator
from pathlib import Path

import sacrebleu
import sentencepiece
import torch
import torch.nn.functional as F
from torch import Tensor, nn

PAD, BOS, EOS = 0, 1, 2  # the ids that regard's subwords use
POOL = 100  # number of batches that are sorted by length together

Pair = tuple[list[int], list[int]]


class Translator(nn.Module):
    """A torch.nn.Transformer with embeddings and output. Where both sides share subwords, all embeddings are one matrix."""

    def __init__(self, options: argparse.Namespace, src_vocab: int, tgt_vocab: int, shared: bool) -> None:
        super().__init__()
        self.width = width = options.width
        self.tgt_embedding = nn.Embedding(tgt_vocab, width, padding_idx=PAD)
        self.src_embedding = self.tgt_embedding if shared else nn.Embedding(src_vocab, width, padding_idx=PAD)
        for embedding in (self.src_embedding, self.tgt_embedding):
            nn.init.normal_(embedding.weight, std=width**-0.5)
        self.dropout = nn.Dropout(options.dropout)
        self.transformer = nn.Transformer(
            d_model=width,
            nhead=options.heads,
            num_encoder_layers=options.layers,
            num_decoder_layers=options.layers,
            dim_feedforward=4 * width,
            dropout=options.dropout,
            batch_first=True,
            norm_first=options.norm == "pre",
        )

    def embedded(self, embedding: nn.Embedding, ids: Tensor) -> Tensor:
        place = torch.arange(ids.shape[1], device=ids.device, dtype=torch.float32)[:, None]
        rate = torch.exp(torch.arange(0, self.width, 2, device=ids.device) * (-math.log(10_000) / self.width))
        positions = torch.stack([torch.sin(place * rate), torch.cos(place * rate)], dim=-1).flatten(1)
        summed: Tensor = self.dropout(embedding(ids) * math.sqrt(self.width) + positions)
        return summed

    def encode(self, src: Tensor) -> Tensor:
        memory: Tensor = self.transformer.encoder(self.embedded(self.src_embedding, src), src_key_padding_mask=src == PAD)
        return memory

    def decode(self, tgt: Tensor, memory: Tensor, src: Tensor) -> Tensor:
        length = tgt.shape[1]
        future = torch.ones(length, length, dtype=torch.bool, device=tgt.device).triu(1)
        states: Tensor = self.transformer.decoder(
            self.embedded(self.tgt_embedding, tgt), memory, tgt_mask=future, memory_key_padding_mask=src == PAD
        )
        return states

    def logits(self, states: Tensor) -> Tensor:
        return F.linear(states, self.tgt_embedding.weight)


def padded(rows: list[list[int]], device: torch.device) -> Tensor:
    tensors = [torch.tensor(row) for row in rows]
    return nn.utils.rnn.pad_sequence(tensors, batch_first=True, padding_value=PAD).to(device)


def batches(pairs: list[Pair], size: int, chance: random.Random) -> Iterator[list[Pair]]:
    """Yield batches forever: pairs are shuffled, sorted by length within pools, cut into batches, and these shuffled."""
    while True:
        order = chance.sample(pairs, len(pairs))
        cut = []
        for start in range(0, len(order), POOL * size):
            pool = sorted(order[start : start + POOL * size], key=lambda pair: (len(pair[1]), len(pair[0])))
            cut += [pool[at : at + size] for at in range(0, len(pool), size)]
        chance.shuffle(cut)
        yield from cut


def train(model: Translator, pairs: list[Pair], options: argparse.Namespace, device: torch.device) -> tuple[int, int, float]:
    """Train, and return the number of updates, of target tokens, and of seconds."""
    optimizer = torch.optim.Adam(model.parameters(), lr=0.0, betas=(0.9, 0.98), eps=1e-9)
    loss, steps, tokens, limit = torch.zeros(()), 0, 0, 60 * options.minutes
    began = said = time.perf_counter()
    for batch in batches(pairs, options.sentences, random.Random(options.seed)):
        seconds = time.perf_counter() - began
        if seconds > limit or steps == (options.steps or -1):
            break
        left = 1 - steps / options.steps if options.steps else 1 - seconds / limit
        rate = options.learning_rate * min((steps + 1) / options.warmup, left)
        for group in optimizer.param_groups:
            group["lr"] = rate
        src = padded([src for src, _ in batch], device)
        tgt = padded([tgt for _, tgt in batch], device)
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            logits = model.logits(model.decode(tgt[:, :-1], model.encode(src), src))
        loss = F.cross_entropy(logits.float().flatten(0, 1), tgt[:, 1:].flatten(), ignore_index=PAD, label_smoothing=0.1)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        steps, tokens = steps + 1, tokens + sum(len(pair[1]) - 1 for pair in batch)
        if time.perf_counter() - said > 10:
            said = time.perf_counter()
            print(f"step {steps:,}: loss {loss.item():.3f}, {tokens / (said - began):,.0f} target tokens/s", flush=True)
    loss.item()  # synchronises with the device
    return steps, tokens, time.perf_counter() - began


@torch.no_grad()
def translated(model: Translator, sources: list[list[int]], device: torch.device) -> list[list[int]]:
    """Translate by greedy search without a cache, with sentences of similar lengths together."""
    found: dict[int, list[int]] = {}
    order = sorted(range(len(sources)), key=lambda row: len(sources[row]))
    for start in range(0, len(order), 128):
        rows = order[start : start + 128]
        src = padded([sources[row] for row in rows], device)
        tgt = torch.full((len(rows), 1), BOS, device=device)
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            memory = model.encode(src)
            while not (tgt == EOS).any(dim=1).all() and tgt.shape[1] <= src.shape[1] + 50:
                logits = model.logits(model.decode(tgt, memory, src)[:, -1])
                tgt = torch.cat([tgt, logits.argmax(dim=-1, keepdim=True)], dim=1)
        for row, ids in zip(rows, tgt[:, 1:].tolist(), strict=True):
            found[row] = ids[: ids.index(EOS)] if EOS in ids else ids
    return [found[row] for row in range(len(sources))]


def lines_of(path: Path) -> list[str]:
    data = lzma.decompress(path.read_bytes()) if path.suffix == ".xz" else path.read_bytes()
    return data.decode("utf-8").removesuffix("\n").split("\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("prepared", type=Path, help="a folder that `regard prepare` made, or the data/ of a run")
    parser.add_argument("--minutes", type=float, default=6.0, help="minutes of training; default 6")
    parser.add_argument("--steps", type=int, default=0, help="largest number of updates; 0: as many as there is time for")
    parser.add_argument("--src", type=Path, help="text to translate at the end; default: the prepared validation text")
    parser.add_argument("--ref", type=Path, help="its reference translation")
    parser.add_argument("--tokenize", default="13a", help="sacreBLEU's tokenizer; default 13a")
    parser.add_argument("-o", "--output", type=Path, help="file to write the translations to")
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--norm", choices=("pre", "post"), default="pre")
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--sentences", type=int, default=512, help="sentences in a batch; default 512")
    parser.add_argument("--longest", type=int, default=128, help="most subwords on a side of a training pair; default 128")
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument("--warmup", type=int, default=800)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options = parser.parse_args()
    if (options.src is None) != (options.ref is None):
        parser.error("--src and --ref belong together")
    torch.manual_seed(options.seed)
    device = torch.device(options.device)
    shared = (options.prepared / "tokenizer.model").exists()
    files = ["tokenizer.model"] * 2 if shared else ["tokenizer.src.model", "tokenizer.tgt.model"]
    src_words, tgt_words = (sentencepiece.SentencePieceProcessor(model_file=str(options.prepared / file)) for file in files)
    sources = src_words.encode(lines_of(options.prepared / "train.src.txt"))
    targets = tgt_words.encode(lines_of(options.prepared / "train.tgt.txt"))
    pairs = [([*src, EOS], [BOS, *tgt, EOS]) for src, tgt in zip(sources, targets, strict=True)]
    pairs = [pair for pair in pairs if max(map(len, pair)) <= options.longest]
    model = Translator(options, src_words.vocab_size(), tgt_words.vocab_size(), shared).to(device)
    print(
        f"{len(pairs):,} pairs, {sum(one.numel() for one in model.parameters()) / 1e6:.1f} M parameters, {device}",
        flush=True,
    )
    steps, tokens, seconds = train(model.train(), pairs, options, device)
    print(f"{steps:,} updates in {seconds:.1f} s, {tokens / seconds:,.0f} target tokens/s")
    texts = [options.src or options.prepared / "valid.src.txt", options.ref or options.prepared / "valid.tgt.txt"]
    to_translate, references = map(lines_of, texts)
    found = translated(model.eval(), [[*ids, EOS] for ids in src_words.encode(to_translate)], device)
    hypotheses = tgt_words.decode(found)
    if options.output:
        options.output.write_text("".join(f"{line}\n" for line in hypotheses), encoding="utf-8")
    metric = sacrebleu.BLEU(tokenize=options.tokenize)
    print(metric.corpus_score(hypotheses, [references]), metric.get_signature(), sep="\n")


if __name__ == "__main__":
    main()
