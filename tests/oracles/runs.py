"""Make runs without training: random weights whose outputs depend on the sentence and mostly end."""

import random
from functools import cache
from pathlib import Path
from typing import Any

import torch

import regard
from regard.config import CorpusConfig, DataConfig, ModelConfig, RunConfig, TrainConfig
from regard.data.store import SplitWriter
from regard.model.kinds import build_encoder_decoder
from regard.model.recurrent import Recurrent
from regard.model.sequence import EncoderDecoder
from regard.model.transformer import DecoderLayer, Transformer
from regard.run.checkpoint import Run, Weights, weights_bytes
from regard.text.tokenizer import EOS_ID, Subwords, Tokenizer, learn_subwords


def sentences(count: int, *, letters: str = "abcdefghijöü", seed: int = 1) -> list[str]:
    draw = random.Random(seed)
    words = ["".join(draw.choices(letters, k=draw.randint(1, 7))) for _ in range(200)]
    return [" ".join(draw.choices(words, k=draw.randint(1, 8))) for _ in range(count)]


@cache
def subwords(vocab_size: int, seed: int) -> Subwords:
    return Subwords(learn_subwords(sentences(400, seed=seed), vocab_size))


def make_tokenizer(*, separate: bool = False) -> Tokenizer:
    return Tokenizer(subwords(400, 1), subwords(360, 2) if separate else subwords(400, 1))


def make_translator(tokenizer: Tokenizer, *, ending: float = 0.6, spread: float = 0.3, **changes: Any) -> Transformer:
    """Return a random Transformer. `ending` favours EOS; `spread` scales the outputs of sub-layers."""
    sizes = {"src_vocab_size": len(tokenizer.src), "tgt_vocab_size": len(tokenizer.tgt)}
    small = {"encoder_layers": 2, "decoder_layers": 1, "d_model": 32, "num_heads": 4, "d_ff": 48, "max_positions": 128}
    torch.manual_seed(7)
    model = build_encoder_decoder(ModelConfig(**(sizes | small | changes))).eval().requires_grad_(False)
    assert isinstance(model, Transformer)
    for name, parameter in model.named_parameters():
        if "embedding" in name or "positions" in name:
            parameter.normal_(std=0.3)
        else:
            parameter.normal_(mean=1.0 if "norm.weight" in name else 0.0, std=spread)
    last = model.decoder[-1]
    assert isinstance(last, DecoderLayer)
    norm = model.decoder_norm if model.config.norm == "pre" else last.feed_forward_residual.norm
    assert isinstance(norm, torch.nn.LayerNorm)
    norm.bias.add_(ending * model.output_weight[EOS_ID])
    return model


def make_recurrent(tokenizer: Tokenizer, *, ending: float = 2.0, seed: int = 7, **changes: Any) -> Recurrent:
    """Return a random RNN, without attention by default. It outputs no byte pieces, most of which are not letters."""
    sizes = {"src_vocab_size": len(tokenizer.src), "tgt_vocab_size": len(tokenizer.tgt), "output_bias": True}
    small: dict[str, Any] = {"encoder_layers": 2, "decoder_layers": 1, "d_model": 32, "num_heads": 1, "d_state": 24}
    torch.manual_seed(seed)
    model = Recurrent(ModelConfig(**({"kind": "rnn"} | sizes | small | changes))).eval().requires_grad_(False)
    for parameter in model.parameters():
        parameter.normal_(std=0.4)
    assert model.output_bias is not None
    is_sign = [piece.startswith("<") for piece in tokenizer.tgt.pieces(list(range(len(tokenizer.tgt))))]
    model.output_bias.copy_(-30.0 * torch.tensor(is_sign))
    model.output_bias[EOS_ID] = ending
    return model


def write_run(folder: Path, model: EncoderDecoder, tokenizer: Tokenizer, *, num_pairs: int = 0) -> Run:
    """Write a run with `num_pairs` pairs of validation text, and as many to train on."""
    folder.mkdir(parents=True)
    run = Run(folder)
    data = DataConfig(train=(), valid=CorpusConfig(src=""), src_lang="de", tgt_lang="en")
    run.publish(tokenizer.files() | {"model.safetensors": weights_bytes(model.state_dict())})
    config = RunConfig(data=data, model=model.config, train=TrainConfig())
    run.write_config(config, Weights("average", (1,), 1, final=True), regard.__version__)
    for seed, split in enumerate(("valid", "train") if num_pairs else ()):
        (folder / "data").mkdir(exist_ok=True)
        src, tgt = (sentences(num_pairs, seed=one) for one in (10 + seed, 20 + seed))
        with SplitWriter(folder / "data", split, {"src": len(tokenizer.src), "tgt": len(tokenizer.tgt)}) as writer:
            writer.append((src, tokenizer.src.encode(src)), (tgt, tokenizer.tgt.encode(tgt)))
    return run
