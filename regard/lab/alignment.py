"""How well cross-attention aligns words: the alignment error rate (Och and Ney 2003) of every layer and head against gold
alignments, for a Transformer and for an RNN with attention.

The gold words are tokenised and lower-cased; the model reads text as it is. Each gold pair is looked up in the text by its
letters, and subwords belong to gold words by the letters they have in common. A target word is linked to the source word it
attends to most, where it is predicted, and where it is fed in.
"""

import re
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from regard.data.batch import collate
from regard.lab.experiment import Setting
from regard.lab.finding import Finding, HeatMap, Table, Words
from regard.lab.systems import BASE, NAMES, trials
from regard.lab.trials import KFTT, bench_for, outcomes
from regard.text.cleaning import normalise
from regard.text.corpus import Pair, read_lines
from regard.text.tokenizer import SPACE, Subwords
from regard.translate.alignment import place_for
from regard.translate.translator import Translator, load

GOLD = "word-align-ja-en"  # a folder beside the corpus
Links = set[tuple[int, int]]
Where = Literal["predicted", "fed in"]
WHERE: tuple[Where, Where] = ("predicted", "fed in")
MEAN = -1  # instead of a head's number: all heads of a layer averaged


class Attention(NamedTuple):
    """Which attention links are read from."""

    where: Where
    layer: int
    head: int


@dataclass(frozen=True)
class Gold:
    """One sentence pair with the links that people drew, counted from 0."""

    src: str  # as it is
    tgt: str
    src_words: list[str]  # tokenised, lower-cased
    tgt_words: list[str]
    sure: Links
    possible: Links


@dataclass
class Counts:
    """Of links found, and of gold ones among them."""

    links: int = 0
    possible: int = 0
    sure: int = 0
    all_sure: int = 0

    def add(self, links: Links, gold: Gold) -> None:
        self.links += len(links)
        self.possible += len(links & gold.possible)
        self.sure += len(links & gold.sure)
        self.all_sure += len(gold.sure)

    @property
    def error_rate(self) -> float:
        return 1 - (self.sure + self.possible) / (self.links + self.all_sure)


def letters(text: str) -> str:
    return "".join(text.lower().split())


def read_gold(folder: Path, text: list[Pair]) -> list[Gold]:
    """Those of its pairs that are found in the text."""
    found = {(letters(pair.src), letters(pair.tgt)): pair for pair in text}
    gold = []
    for line, links in zip(read_lines(str(folder / "src-tgt")), read_lines(str(folder / "gold")), strict=True):
        src_words, tgt_words = (side.split() for side in line.split("|||"))
        pair = found.get((letters(" ".join(src_words)), letters(" ".join(tgt_words))))
        if pair is not None:
            sure, possible = gold_links(links, len(src_words), len(tgt_words))
            gold.append(Gold(normalise(pair.src), normalise(pair.tgt), src_words, tgt_words, sure, possible))
    return gold


def gold_links(line: str, num_src: int, num_tgt: int) -> tuple[Links, Links]:
    """Sure and possible links; those that point past a sentence's end are dropped."""
    found = [(int(i) - 1, kind, int(j) - 1) for i, kind, j in re.findall(r"(\d+)([-p])(\d+)", line)]
    inside = [(i, kind, j) for i, kind, j in found if i < num_src and j < num_tgt]
    return {(i, j) for i, kind, j in inside if kind == "-"}, {(i, j) for i, _, j in inside}


def shares(subwords: Subwords, ids: list[int], words: list[str]) -> Float[Tensor, "pieces words"]:
    """How many letters of each word each piece has."""
    word_of = [number for number, word in enumerate(words) for _ in word]
    table = torch.zeros(len(ids), len(words))
    place, rest = 0, b""
    for row, piece in enumerate(subwords.pieces(ids)):
        if byte := re.fullmatch(r"<0x(..)>", piece):
            rest += bytes.fromhex(byte[1])
            table[row, word_of[min(place, len(word_of) - 1)]] += 1
            with suppress(UnicodeDecodeError):  # until the letter is whole
                place, rest = place + len(rest.decode()), b""
            continue
        for _ in piece.replace(SPACE, ""):
            table[row, word_of[min(place, len(word_of) - 1)]] += 1
            place += 1
    return table


def error_rates(translator: Translator, gold: list[Gold]) -> dict[Attention, float]:
    """Of every layer and head, and of each layer's mean."""
    counts: dict[Attention, Counts] = defaultdict(Counts)
    for one in gold:
        src, tgt = translator.tokenizer.src.encode([one.src])[0], translator.tokenizer.tgt.encode([one.tgt])[0]
        src_shares = shares(translator.tokenizer.src, src, one.src_words)
        tgt_shares = shares(translator.tokenizer.tgt, tgt, one.tgt_words)
        spread = src_shares / src_shares.sum(1, keepdim=True).clamp(min=1)
        batch = collate([src], [tgt])
        trace = translator.models[0].trace(batch.src.to(translator.device), batch.tgt_in.to(translator.device))
        for layer, seen in enumerate(trace.decoder.cross_attention):
            weights = seen.weights[0].cpu()  # (H, T + 1, S + 1), the last row and column of which are EOS's
            for head, attention in ((MEAN, weights.mean(0)), *enumerate(weights)):
                by_word = tgt_shares.t() @ torch.stack([attention[:-1, :-1], attention[1:, :-1]]) @ spread
                for where, best in zip(WHERE, by_word.argmax(2).tolist(), strict=True):
                    links = {(source, target) for target, source in enumerate(best)}
                    counts[Attention(where, layer, head)].add(links, one)
    return {attention: count.error_rate for attention, count in counts.items()}


def alignment(setting: Setting) -> Finding:
    """Trains both on the Kyoto Free Translation Task first, unless that was done before."""
    bench = bench_for(KFTT, setting)
    assert setting.data is not None
    gold = read_gold(setting.data / GOLD, list(bench.test))
    if not gold:
        raise ValueError(f"none of the pairs in {setting.data / GOLD} is in the {KFTT.test} text of {KFTT.folder}")
    chosen = [trial for trial in trials(BASE, (setting.seed,), setting.steps) if not trial.name.endswith("-rnn")]
    machines = {outcome.machine for outcome in outcomes(chosen, bench)}
    rates = {
        trial.settings["model"]["kind"]: error_rates(load(bench.run(trial), device=setting.device), gold) for trial in chosen
    }
    transformer, recurrent = rates["transformer"], rates["rnn-attention"]
    best = min(transformer, key=lambda one: transformer[one])
    num_layers = 1 + max(one.layer for one in transformer)
    ours = place_for(num_layers)
    used = transformer[Attention("fed in" if ours.fed_in else "predicted", ours.layer, MEAN)]
    of_rnn = recurrent[Attention("predicted", 0, MEAN)]
    rows = [_row(name, rates[name], layer) for name in rates for layer in sorted({one.layer for one in rates[name]})]
    what = "one head" if best.head != MEAN else "a layer's mean"
    return Finding(
        name="alignment",
        claims=("S2", "S6"),
        title=Words("Cross-attention against words that people aligned", "交叉注意力与人工词对齐"),
        claim=Words(
            "Notes 001 and 002: attention looks at the source words that matter for the word to come, and heads look at "
            "different things.",
            "笔记 001、002：注意力关注与将要生成的词相关的源词；不同的头关注不同的东西。",
        ),
        verdict="measured",
        outcome=Words(
            f"On {len(gold)} sentences, the best attention of the Transformer ({what}, layer {best.layer + 1}, where a "
            f"word is {best.where}) has an alignment error rate of {transformer[best]:.3f}; what `--align` reads has "
            f"{used:.3f}. The RNN's one attention, where a word is predicted, has {of_rnn:.3f}. Layers and heads differ "
            f"widely: from {min(transformer.values()):.2f} to {max(transformer.values()):.2f}.",
            f"在 {len(gold)} 个句子上，Transformer 最好的注意力（第 {best.layer + 1} 层，"
            f"{'单个头' if best.head != MEAN else '各头平均'}，"
            f"词{'被预测' if best.where == 'predicted' else '被输入'}之处）的对齐错误率为 {transformer[best]:.3f}；"
            f"`--align` 所用的为 {used:.3f}。RNN 唯一的注意力（词被预测之处）为 {of_rnn:.3f}。各层各头差别很大：从 "
            f"{min(transformer.values()):.2f} 到 {max(transformer.values()):.2f}。",
        ),
        tables=(
            Table(
                Words("Alignment error rate (lower is better)", "对齐错误率（越低越好）"),
                (
                    Words("system", "系统"),
                    Words("layer", "层"),
                    Words("mean of heads, predicted", "各头平均，被预测处"),
                    Words("mean of heads, fed in", "各头平均，被输入处"),
                    Words("best head", "最好的头"),
                    Words("worst head", "最差的头"),
                ),
                tuple(rows),
            ),
        ),
        charts=tuple(_heat_map(transformer, where) for where in WHERE),
        seeds=(setting.seed,),
        machine=", ".join(sorted(machines)),
    )


def _row(kind: str, rates: dict[Attention, float], layer: int) -> tuple[Words | str | float, ...]:
    heads = [rate for one, rate in rates.items() if one.layer == layer and one.head != MEAN]
    means = [round(rates[Attention(where, layer, MEAN)], 3) for where in WHERE]
    return NAMES[kind], str(layer + 1), *means, round(min(heads), 3), round(max(heads), 3)


def _heat_map(rates: dict[Attention, float], where: Where) -> HeatMap:
    layers = sorted({one.layer for one in rates})
    heads = sorted({one.head for one in rates} - {MEAN})
    there = Words("is predicted", "被预测") if where == "predicted" else Words("is fed in", "被输入")
    return HeatMap(
        title=Words(
            f"Transformer: error rate by layer and head where a word {there.en}",
            f"Transformer：词{there.zh}处各层各头的错误率",
        ),
        x_label=Words("head", "头"),
        y_label=Words("layer", "层"),
        rows=tuple(str(layer + 1) for layer in layers),
        columns=tuple(str(head + 1) for head in heads),
        values=tuple(tuple(round(rates[Attention(where, layer, head)], 4) for head in heads) for layer in layers),
    )
