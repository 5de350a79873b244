"""Section 3.1: why LayerNorm, and not BatchNorm."""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.lab.experiment import Setting
from regard.lab.finding import Finding, LineChart, Series, Table, Words
from regard.model.layers import Residual

WIDTH, LENGTH = 32, 8
Normalisation = Callable[[Float[Tensor, "B T D"]], Float[Tensor, "B T D"]]


def layer_norm(x: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
    """Our own: over the features of each position."""
    residual = Residual(WIDTH, norm="post", dropout=0.0, stack="encoder").double()
    normed: Tensor = residual.norm(x)
    return normed


def batch_norm(x: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
    """As in training: over all positions of all sentences, each feature by itself."""
    normed: Tensor = nn.BatchNorm1d(WIDTH, dtype=x.dtype)(x.flatten(0, 1)).view_as(x)
    return normed


def sample_norm(x: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
    """Over all of a sentence, positions and features together, as one may read note 002."""
    centred = x - x.mean((1, 2), keepdim=True)
    return centred / (x.var((1, 2), correction=0, keepdim=True) + 1e-5).sqrt()


KINDS: tuple[tuple[Words, Normalisation], ...] = (
    (Words("LayerNorm", "LayerNorm"), layer_norm),
    (Words("BatchNorm", "BatchNorm"), batch_norm),
    (Words("one norm for the whole sentence", "整句一起归一化"), sample_norm),
)


@torch.no_grad()
def padding_change(norm: Normalisation, seed: int, padding: int) -> float:
    """By how much a sentence's vectors change, in the mean, when it is filled up with so many zero vectors."""
    x, _ = _sentences(seed)
    padded = torch.cat([x, x.new_zeros(1, padding, WIDTH)], dim=1)
    return float((norm(padded)[:, :LENGTH] - norm(x)).abs().mean())


@torch.no_grad()
def neighbour_change(norm: Normalisation, seed: int) -> float:
    """The same, when other sentences are in the batch."""
    x, others = _sentences(seed)
    return float((norm(torch.cat([x, others]))[:1] - norm(x)).abs().mean())


def _sentences(seed: int) -> tuple[Float[Tensor, "1 T D"], Float[Tensor, "B T D"]]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(4, LENGTH, WIDTH, generator=generator, dtype=torch.float64) + 0.5
    return x[:1], x[1:] * 2


def neighbours(setting: Setting) -> Finding:
    seeds, paddings = setting.seeds(5), (0, 2, 4, 8, 16, 32)
    filled = [[[padding_change(norm, seed, padding) for seed in seeds] for padding in paddings] for _, norm in KINDS]
    joined = [[neighbour_change(norm, seed) for seed in seeds] for _, norm in KINDS]
    ours = max(*joined[0], *(change for of_seeds in filled[0] for change in of_seeds))
    batch = min(*joined[1], *filled[1][-1])
    holds = ours < 1e-12 and batch > 0.01
    at, whole = paddings.index(8), filled[2]
    rows = [(name, _mean(filled[n][at]), _mean(joined[n])) for n, (name, _) in enumerate(KINDS)]
    return Finding(
        name="layer-norm",
        claims=("M3",),
        title=Words("LayerNorm looks at nothing but its own position", "LayerNorm 只看自己的位置"),
        claim=Words(
            "Notes 000, 001 and 002: LayerNorm takes mean and variance over the features, so that it depends neither on "
            "the batch nor on how sentences of different lengths are filled up; BatchNorm does.",
            "笔记 000、001、002：LayerNorm 在特征维度上求均值和方差，因此与 batch 无关，也不受不同长度的句子如何补齐的影"
            "响；BatchNorm 则会受影响。",
        ),
        verdict="held" if holds else "did not hold",
        outcome=Words(
            f"A sentence's vectors after LayerNorm change by {ours:.1g} whatever stands beside it (allowed: 1e-12); after "
            f"BatchNorm in training by {_mean(filled[1][at]):.2f} with 8 zero vectors behind its {LENGTH} words, and by "
            f"{_mean(joined[1]):.2f} with three neighbours ({len(seeds)} seeds). It is each position that is normalised: "
            f"one norm for the whole sentence, as note 002 may be read, would change by {_mean(whole[at]):.2f} with "
            "padding.",
            f"无论旁边有什么，经过 LayerNorm 的词向量只变化 {ours:.1g}（容许 1e-12）；训练时的 BatchNorm，在 {LENGTH} 个词"
            f"后补 8 个零向量变化 {_mean(filled[1][at]):.2f}，同一 batch 有三个邻句变化 "
            f"{_mean(joined[1]):.2f}（{len(seeds)} 个种子）。归一化是对每个位置做的：若如笔记 002 的字面意思对整句一起做，"
            f"补齐就会带来 {_mean(whole[at]):.2f} 的变化。",
        ),
        tables=(
            Table(
                Words("Mean change of a sentence's normalised vectors", "句子归一化后向量的平均变化"),
                (
                    Words("normalisation", "归一化"),
                    Words("8 positions of padding", "补 8 个位置"),
                    Words("3 neighbours in the batch", "batch 中有 3 个邻句"),
                ),
                tuple(rows),
            ),
        ),
        charts=(
            LineChart(
                Words(f"Change under padding, {LENGTH} words", f"补齐带来的变化，{LENGTH} 个词"),
                Words("padded positions", "补齐的位置数"),
                Words("mean change", "平均变化"),
                tuple(_line(name, paddings, filled[n]) for n, (name, _) in enumerate(KINDS)),
            ),
        ),
        seeds=seeds,
    )


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


def _line(name: Words, paddings: tuple[int, ...], changes: list[list[float]]) -> Series:
    return Series(
        name,
        y=tuple(_mean(of_seeds) for of_seeds in changes),
        x=tuple(map(float, paddings)),
        low=tuple(min(of_seeds) for of_seeds in changes),
        high=tuple(max(of_seeds) for of_seeds in changes),
    )
