"""Where a model's parameters are."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from regard.config import PRESETS, ModelConfig
from regard.lab.experiment import Setting
from regard.lab.finding import BarChart, Finding, Series, Table, Words
from regard.model.attention import MultiHeadAttention
from regard.model.layers import FeedForward
from regard.model.transformer import Transformer

VOCAB_SIZE = 32_000


@dataclass(frozen=True)
class Sizes:
    """Parameters by what they belong to."""

    name: Words
    feed_forward: int
    attention: int
    total: int  # embeddings and normalisation too

    @property
    def of_layers(self) -> float:
        """The feed-forward share of what is in layers; normalisation is too little to matter."""
        return self.feed_forward / (self.feed_forward + self.attention)

    @property
    def of_all(self) -> float:
        return self.feed_forward / self.total


def encoder_decoder(preset: str, vocab_size: int = VOCAB_SIZE) -> Sizes:
    """Counted in our own model, which is built without memory for its numbers."""
    with torch.device("meta"):
        model = Transformer(ModelConfig.preset(preset, vocab_size=vocab_size))

    def counted(kind: type[torch.nn.Module]) -> int:
        return sum(p.numel() for module in model.modules() if isinstance(module, kind) for p in module.parameters())

    total = sum(p.numel() for p in model.parameters())
    return Sizes(Words(preset, preset), counted(FeedForward), counted(MultiHeadAttention), total)


@dataclass(frozen=True)
class DecoderOnly:
    """The shape of the module tree that note 002 prints: no biases, RMSNorm before sub-layers, output matrix apart."""

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
        return Sizes(Words(self.name, self.name), feed_forward, attention, total)


# The first is printed in note 002; the next three are its larger sisters (Touvron et al. 2023), of which the note names 30B.
OF_THE_NOTE = (
    DecoderOnly("LLaMA 7B", 32, 4096, 11008),
    DecoderOnly("LLaMA 13B", 40, 5120, 13824),
    DecoderOnly("LLaMA 30B", 60, 6656, 17920),
    DecoderOnly("LLaMA 65B", 80, 8192, 22016),
)
# Another shape each: GPT-3's, and one whose queries share keys and values in groups (Llama 3).
OTHERS = (
    DecoderOnly("GPT-3 175B", 96, 12288, 4 * 12288, vocab_size=50257, gated=False),
    DecoderOnly("Llama 3 8B", 32, 4096, 14336, vocab_size=128256, keys_share=1 / 4),
    DecoderOnly("Llama 3 70B", 80, 8192, 28672, vocab_size=128256, keys_share=1 / 8),
)


def shares(_: Setting) -> Finding:
    noted, others = [one.sizes() for one in OF_THE_NOTE], [one.sizes() for one in OTHERS]
    ours = [encoder_decoder(preset) for preset in PRESETS]
    large = [one for one in noted if one.total > 10e9]
    holds = all(abs(one.of_all - 2 / 3) < 0.04 and abs(one.of_layers - 2 / 3) < 0.02 for one in large)
    everything = [*noted, *others, *ours]
    low, high = min(one.of_all for one in large), max(one.of_all for one in large)
    of_ours = ", ".join(f"{one.name.en} {one.of_layers:.0%}" for one in ours)
    grouped = others[-1]
    return Finding(
        name="feed-forward-share",
        claims=("M19",),
        title=Words("Where the parameters are", "参数都用在哪了"),
        claim=Words(
            "Note 002: above ten billion parameters, about two thirds of a large language model's parameters are in its "
            "feed-forward layers, and nearly all others in attention.",
            "笔记 002：参数量在百亿以上的大语言模型中，约三分之二是前馈层（FFN）的参数，其余基本都是注意力参数。",
        ),
        verdict="held" if holds else "did not hold",
        outcome=Words(
            f"LLaMA 13B to 65B: {low:.1%} to {high:.1%} of all parameters (allowed: 66.7% ± 4). The 7B model of the note's "
            f"printout has {noted[0].of_all:.1%} of all {noted[0].total / 1e9:.2f} billion, and {noted[0].of_layers:.1%} "
            "of those in layers. It does not hold everywhere: where groups of queries share keys, as in Llama 3 70B, it "
            f"is {grouped.of_layers:.0%} of the layers; in an encoder–decoder, whose decoder attends twice, it is less "
            f"than two thirds ({of_ours}).",
            f"LLaMA 13B 至 65B：占全部参数的 {low:.1%} 至 {high:.1%}（容许 66.7% ± 4）。笔记打印的 7B 模型：占全部 "
            f"{noted[0].total / 1e8:.1f} 亿参数的 {noted[0].of_all:.1%}，占各层参数的 {noted[0].of_layers:.1%}。但并非处处"
            f"成立：多个查询共用键和值时（如 Llama 3 70B）占各层的 {grouped.of_layers:.0%}；编码器–解码器的解码器有两处注意"
            f"力，不到三分之二（{of_ours}）。",
        ),
        tables=(_counted(everything),),
        charts=(
            BarChart(
                Words("Feed-forward share of the parameters", "前馈层参数的占比"),
                Words("%", "%"),
                tuple(one.name for one in everything),
                (
                    Series(Words("of those in layers", "占各层参数"), y=tuple(100 * one.of_layers for one in everything)),
                    Series(Words("of all", "占全部参数"), y=tuple(100 * one.of_all for one in everything)),
                ),
            ),
        ),
    )


def _counted(models: Sequence[Sizes]) -> Table:
    return Table(
        Words(
            f"Parameters in millions; ours with a vocabulary of {VOCAB_SIZE:,}, all others from their shapes",
            f"参数量（百万）；我们的模型词表为 {VOCAB_SIZE:,}，其余按形状计算",
        ),
        (
            Words("model", "模型"),
            Words("all", "全部"),
            Words("feed-forward", "前馈"),
            Words("attention", "注意力"),
            Words("feed-forward share of layers", "前馈占各层"),
            Words("of all", "占全部"),
        ),
        tuple(
            (
                one.name,
                round(one.total / 1e6, 1),
                round(one.feed_forward / 1e6, 1),
                round(one.attention / 1e6, 1),
                f"{one.of_layers:.1%}",
                f"{one.of_all:.1%}",
            )
            for one in models
        ),
    )
