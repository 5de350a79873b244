"""Measures the alignment error rate (Och and Ney 2003) of cross-attention, by layer and head, against gold alignments.

The gold words are tokenised and lower-cased; the model reads plain text. Gold pairs are found in the text by their letters,
and subwords are assigned to gold words by the letters that they share. A target word is linked to the source word that it
attends to most, both at the step that predicts it and at the step that it is fed in.
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
from regard.errors import UserError
from regard.lab.experiment import Setting
from regard.lab.result import DataCell, HeatData, Result, TableData, Term
from regard.lab.systems import BASE, trials
from regard.lab.trials import KFTT, bench_for, machines, outcomes
from regard.text.cleaning import Pair, normalise
from regard.text.corpus import read_lines
from regard.text.tokenizer import SPACE, Subwords
from regard.translate.alignment import place_for
from regard.translate.translator import Translator, load

GOLD = "word-align-ja-en"  # a folder beside the corpus
GoldLinks = set[tuple[int, int]]
Where = Literal["predicted", "fed-in"]
WHERE: tuple[Where, Where] = ("predicted", "fed-in")
MEAN = -1  # in place of a head's number: the mean of a layer's heads


class Attention(NamedTuple):
    """The attention that links are read from."""

    where: Where
    layer: int
    head: int


@dataclass(frozen=True)
class Gold:
    """A sentence pair with its manual links, counted from 0."""

    src: str  # plain text
    tgt: str
    src_words: list[str]  # tokenised, lower-cased
    tgt_words: list[str]
    sure: GoldLinks
    possible: GoldLinks


@dataclass
class Counts:
    """Numbers of links found, and of gold links among them."""

    links: int = 0
    possible: int = 0
    sure: int = 0
    all_sure: int = 0

    def add(self, links: GoldLinks, gold: Gold) -> None:
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
    """Return the gold pairs that occur in the text."""
    found = {(letters(pair.src), letters(pair.tgt)): pair for pair in text}
    gold = []
    for line, links in zip(read_lines(str(folder / "src-tgt")), read_lines(str(folder / "gold")), strict=True):
        src_words, tgt_words = (side.split() for side in line.split("|||"))
        pair = found.get((letters(" ".join(src_words)), letters(" ".join(tgt_words))))
        if pair is not None:
            sure, possible = gold_links(links, len(src_words), len(tgt_words))
            gold.append(Gold(normalise(pair.src), normalise(pair.tgt), src_words, tgt_words, sure, possible))
    return gold


def gold_links(line: str, num_src: int, num_tgt: int) -> tuple[GoldLinks, GoldLinks]:
    """Return sure and possible links, without those beyond the end of a sentence."""
    found = [(int(i) - 1, kind, int(j) - 1) for i, kind, j in re.findall(r"(\d+)([-p])(\d+)", line)]
    inside = [(i, kind, j) for i, kind, j in found if i < num_src and j < num_tgt]
    return {(i, j) for i, kind, j in inside if kind == "-"}, {(i, j) for i, _, j in inside}


def shares(subwords: Subwords, ids: list[int], words: list[str]) -> Float[Tensor, "pieces words"]:
    """Return how many letters of each word each piece has."""
    word_of = [number for number, word in enumerate(words) for _ in word]
    table = torch.zeros(len(ids), len(words))
    place, rest = 0, b""
    for row, piece in enumerate(subwords.pieces(ids)):
        if byte := re.fullmatch(r"<0x(..)>", piece):
            rest += bytes.fromhex(byte[1])
            table[row, word_of[min(place, len(word_of) - 1)]] += 1
            with suppress(UnicodeDecodeError):  # until the letter is complete
                place, rest = place + len(rest.decode()), b""
            continue
        for _ in piece.replace(SPACE, ""):
            table[row, word_of[min(place, len(word_of) - 1)]] += 1
            place += 1
    return table


def error_rates(translator: Translator, gold: list[Gold]) -> dict[Attention, float]:
    """Return the alignment error rate of every layer and head, and of each layer's mean over heads."""
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


def alignment(setting: Setting) -> Result:
    """Train both systems on the Kyoto Free Translation Task, unless that was done before, and score their alignments."""
    bench = bench_for(KFTT, setting)
    assert setting.data is not None
    gold = read_gold(setting.data / GOLD, list(bench.test))
    if not gold:
        raise UserError(f"none of the pairs in {setting.data / GOLD} is in the {KFTT.test} text of {KFTT.folder}")
    chosen = [trial for trial in trials(BASE, (setting.seed,), setting.steps) if not trial.name.endswith("-rnn")]
    trained_on = machines(outcomes(chosen, bench))
    rates = {
        trial.settings["model"]["kind"]: error_rates(load(bench.run(trial), device=setting.device), gold) for trial in chosen
    }
    return told(rates, len(gold), setting.seed, trained_on)


def told(rates: dict[str, dict[Attention, float]], num_sentences: int, seed: int, machine: str) -> Result:
    transformer, recurrent = rates["transformer"], rates["rnn-attention"]
    best = min(transformer, key=lambda one: transformer[one])
    ours = place_for(1 + max(one.layer for one in transformer))
    rows = [_row(name, rates[name], layer) for name in rates for layer in sorted({one.layer for one in rates[name]})]
    return Result(
        "measured",
        {
            "sentences": num_sentences,
            "heads": Term("one-head" if best.head != MEAN else "mean-of-heads"),
            "layer": best.layer + 1,
            "where": Term(best.where),
            "best": transformer[best],
            "used": transformer[Attention("fed-in" if ours.fed_in else "predicted", ours.layer, MEAN)],
            "rnn": recurrent[Attention("predicted", 0, MEAN)],
            "low": min(transformer.values()),
            "high": max(transformer.values()),
        },
        tables={"rates": TableData(rows)},
        charts={where: _heat_map(transformer, where) for where in WHERE},
        seeds=(seed,),
        machine=machine,
    )


def _row(kind: str, rates: dict[Attention, float], layer: int) -> tuple[DataCell, ...]:
    heads = [rate for one, rate in rates.items() if one.layer == layer and one.head != MEAN]
    means = [round(rates[Attention(where, layer, MEAN)], 3) for where in WHERE]
    return Term(kind), str(layer + 1), *means, round(min(heads), 3), round(max(heads), 3)


def _heat_map(rates: dict[Attention, float], where: Where) -> HeatData:
    layers = sorted({one.layer for one in rates})
    heads = sorted({one.head for one in rates} - {MEAN})
    return HeatData(
        [[round(rates[Attention(where, layer, head)], 4) for head in heads] for layer in layers],
        rows=[str(layer + 1) for layer in layers],
        columns=[str(head + 1) for head in heads],
    )
