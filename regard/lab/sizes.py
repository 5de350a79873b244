"""Counts the parameters of a model's parts."""

from dataclasses import dataclass

import torch

from regard.config import PRESETS, ModelConfig
from regard.lab.experiment import Setting
from regard.lab.result import BarData, Result, SeriesData, TableData, Term
from regard.model.attention import MultiHeadAttention
from regard.model.layers import FeedForward
from regard.model.transformer import Transformer

VOCAB_SIZE = 32_000


@dataclass(frozen=True)
class Sizes:
    """Numbers of parameters by part."""

    name: str
    feed_forward: int
    attention: int
    total: int  # embeddings and normalisation too

    @property
    def of_layers(self) -> float:
        """Return the feed-forward share of the layers' parameters, leaving out normalisation."""
        return self.feed_forward / (self.feed_forward + self.attention)

    @property
    def of_all(self) -> float:
        return self.feed_forward / self.total


def encoder_decoder(preset: str, vocab_size: int = VOCAB_SIZE) -> Sizes:
    """Count the parameters of our own model, built on the meta device."""
    with torch.device("meta"):
        model = Transformer(ModelConfig.preset(preset, vocab_size=vocab_size))

    def counted(kind: type[torch.nn.Module]) -> int:
        return sum(p.numel() for module in model.modules() if isinstance(module, kind) for p in module.parameters())

    total = sum(p.numel() for p in model.parameters())
    return Sizes(preset, counted(FeedForward), counted(MultiHeadAttention), total)


@dataclass(frozen=True)
class DecoderOnly:
    """A decoder-only model as in note 002: no biases, RMSNorm before sub-layers, an output matrix of its own."""

    name: str
    layers: int
    d_model: int
    d_ff: int
    vocab_size: int = VOCAB_SIZE
    gated: bool = True  # SwiGLU has three matrices, ReLU and GELU two
    keys_share: float = 1.0  # width of keys and values, as a share of d_model

    def sizes(self) -> Sizes:
        square = self.d_model**2
        attention = self.layers * round(square * (2 + 2 * self.keys_share))  # W_Q and W_O, W_K and W_V
        feed_forward = self.layers * (3 if self.gated else 2) * self.d_model * self.d_ff
        norms = (2 * self.layers + 1) * self.d_model
        total = attention + feed_forward + norms + 2 * self.vocab_size * self.d_model
        return Sizes(self.name, feed_forward, attention, total)


# Note 002 prints the first and names 30B; the others are of the same family (Touvron et al. 2023).
OF_THE_NOTE = (
    DecoderOnly("LLaMA 7B", 32, 4096, 11008),
    DecoderOnly("LLaMA 13B", 40, 5120, 13824),
    DecoderOnly("LLaMA 30B", 60, 6656, 17920),
    DecoderOnly("LLaMA 65B", 80, 8192, 22016),
)
# Models of other shapes; in Llama 3, groups of queries share keys and values.
OTHERS = (
    DecoderOnly("GPT-3 175B", 96, 12288, 4 * 12288, vocab_size=50257, gated=False),
    DecoderOnly("Llama 3 8B", 32, 4096, 14336, vocab_size=128256, keys_share=1 / 4),
    DecoderOnly("Llama 3 70B", 80, 8192, 28672, vocab_size=128256, keys_share=1 / 8),
)


def shares(_: Setting) -> Result:
    noted, others = [one.sizes() for one in OF_THE_NOTE], [one.sizes() for one in OTHERS]
    ours = [encoder_decoder(preset) for preset in PRESETS]
    large = [one for one in noted if one.total > 10e9]
    holds = all(abs(one.of_all - 2 / 3) < 0.04 and abs(one.of_layers - 2 / 3) < 0.02 for one in large)
    everything = [*noted, *others, *ours]
    rows = [
        (
            one.name,
            round(one.total / 1e6, 1),
            round(one.feed_forward / 1e6, 1),
            round(one.attention / 1e6, 1),
            f"{one.of_layers:.1%}",
            f"{one.of_all:.1%}",
        )
        for one in everything
    ]
    series = [
        SeriesData(Term("of-layers"), [100 * one.of_layers for one in everything]),
        SeriesData(Term("of-all"), [100 * one.of_all for one in everything]),
    ]
    return Result(
        "held" if holds else "did not hold",
        {
            "low": min(one.of_all for one in large),
            "high": max(one.of_all for one in large),
            "of_all": noted[0].of_all,
            "of_layers": noted[0].of_layers,
            "billions": noted[0].total / 1e9,
            "yi": noted[0].total / 1e8,  # 亿
            "grouped": others[-1].of_layers,
            "ours": [f"{one.name} {one.of_layers:.0%}" for one in ours],
            "vocab_size": VOCAB_SIZE,
        },
        tables={"parameters": TableData(rows)},
        charts={"shares": BarData([one.name for one in everything], series)},
    )
