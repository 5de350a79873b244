"""How well cross-attention aligns words: the alignment error rate (Och and Ney 2003) of every layer against gold alignments.

    python scripts/alignment_error.py RUN --pairs word-align-ja-en/src-tgt --gold word-align-ja-en/gold \
        --src kftt-ja-en/tune.ja.xz --tgt kftt-ja-en/tune.en.xz

The gold words are tokenised and lower-cased; the model reads text as it is. Each gold pair is looked up in the text by its
letters, and subwords belong to gold words by the letters they have in common. A row for each layer: where a target word is
predicted, and where it is fed in; with links only, and without those of words that attend most to the source's end.
"""

import argparse
import re
from collections import Counter
from contextlib import suppress

import torch
from torch import Tensor

from regard.data.batch import collate
from regard.text.cleaning import normalise
from regard.text.corpus import read_lines
from regard.text.tokenizer import SPACE, Subwords
from regard.translate.alignment import Place, place_for
from regard.translate.translator import Translator, load

Links = set[tuple[int, int]]


def letters(text: str) -> str:
    return "".join(text.lower().split())


def gold_links(line: str, num_src: int, num_tgt: int) -> tuple[Links, Links]:
    """Sure and possible links, from 0; those that point past a sentence's end are dropped."""
    found = [(int(i) - 1, kind, int(j) - 1) for i, kind, j in re.findall(r"(\d+)([-p])(\d+)", line)]
    inside = [(i, kind, j) for i, kind, j in found if i < num_src and j < num_tgt]
    return {(i, j) for i, kind, j in inside if kind == "-"}, {(i, j) for i, _, j in inside}


def shares(subwords: Subwords, ids: list[int], words: list[str]) -> Tensor:
    """(pieces, words): how many letters of each word each piece has."""
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


def attention_maps(translator: Translator, src: list[int], tgt: list[int]) -> Tensor:
    """(L, T + 1, S + 1), averaged over heads; the last row and column are EOS's."""
    batch = collate([src], [tgt])
    trace = translator.models[0].trace(batch.src.to(translator.device), batch.tgt_in.to(translator.device))
    return torch.stack([layer.weights[0].mean(0) for layer in trace.decoder.cross_attention]).cpu()


def links_of(attention: Tensor, src_shares: Tensor, tgt_shares: Tensor) -> dict[str, Links]:
    """Each target word with the source word it attends to most: all, and all but those that attend most to the end."""
    spread = torch.block_diag(src_shares / src_shares.sum(1, keepdim=True).clamp(min=1), torch.ones(1, 1))
    by_word = tgt_shares.t() @ attention @ spread  # (target words, source words and the end)
    every = {(src, tgt) for tgt, src in enumerate(by_word[:, :-1].argmax(1).tolist())}
    at_the_end = {tgt for tgt, src in enumerate(by_word.argmax(1).tolist()) if src == by_word.shape[1] - 1}
    return {"all": every, "but ends": {link for link in every if link[1] not in at_the_end}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run")
    for name in ("--pairs", "--gold", "--src", "--tgt"):
        parser.add_argument(name, required=True)
    parser.add_argument("--device", default="auto")
    arguments = parser.parse_args()
    translator = load(arguments.run, device=arguments.device)
    text = {
        (letters(src), letters(tgt)): (normalise(src), normalise(tgt))
        for src, tgt in zip(read_lines(arguments.src), read_lines(arguments.tgt), strict=True)
    }
    counts: Counter[tuple[int, str, str, str]] = Counter()
    found = 0
    for pair, gold in zip(read_lines(arguments.pairs), read_lines(arguments.gold), strict=True):
        src_words, tgt_words = (side.split() for side in pair.split("|||"))
        raw = text.get((letters(" ".join(src_words)), letters(" ".join(tgt_words))))
        if raw is None:
            continue
        found += 1
        sure, possible = gold_links(gold, len(src_words), len(tgt_words))
        src, tgt = translator.tokenizer.src.encode([raw[0]])[0], translator.tokenizer.tgt.encode([raw[1]])[0]
        src_shares = shares(translator.tokenizer.src, src, src_words)
        tgt_shares = shares(translator.tokenizer.tgt, tgt, tgt_words)
        for layer, attention in enumerate(attention_maps(translator, src, tgt)):
            for where, rows in (("predicted", attention[:-1]), ("fed in", attention[1:])):
                for kind, links in links_of(rows, src_shares, tgt_shares).items():
                    counts[layer, where, kind, "links"] += len(links)
                    counts[layer, where, kind, "possible"] += len(links & possible)
                    counts[layer, where, kind, "sure"] += len(links & sure)
                    counts[layer, where, kind, "all sure"] += len(sure)
    print(f"{found} sentences of {arguments.pairs} found in {arguments.src}")
    for layer, where, kind in sorted({key[:3] for key in counts}):
        of = {name: counts[layer, where, kind, name] for name in ("links", "possible", "sure", "all sure")}
        rate = 1 - (of["sure"] + of["possible"]) / (of["links"] + of["all sure"])
        is_ours = Place(layer, where == "fed in") == place_for(translator.models[0].config.decoder_layers) and kind == "all"
        print(
            f"layer {layer + 1}, {where:9}, {kind:8}: AER {rate:.3f}, precision {of['possible'] / of['links']:.3f}, "
            f"recall {of['sure'] / of['all sure']:.3f}{'  (what regard uses)' if is_ours else ''}"
        )


if __name__ == "__main__":
    main()
