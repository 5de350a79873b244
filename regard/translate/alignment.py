"""Word alignments, read off cross-attention.

The choice of layer was measured (EXPERIMENTS.md). In a deep decoder it is the middle layer, in the row where a target word
is fed in: there the decoder knows the word, and attends to what it was translated from (Chen et al. 2020). In a shallow
decoder it is the last layer, in the row where the word is predicted.
"""

import re
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from regard.text.tokenizer import SPACE

Links = tuple[tuple[int, int], ...]
DEEP = 5  # layers
_BYTE = re.compile("<0x([0-9A-F]{2})>")


class AttentionPlace(NamedTuple):
    """The attention to read: a layer, and the row in which a word is fed in or the one that predicts it."""

    layer: int
    fed_in: bool


def place_for(num_layers: int) -> AttentionPlace:
    """Return the place to read, given the number of layers of cross-attention."""
    is_deep = num_layers >= DEEP
    return AttentionPlace((num_layers - 1) // 2 if is_deep else num_layers - 1, fed_in=is_deep)


def words_of(pieces: Sequence[str], text: str) -> list[int]:
    """Return the number of the word (words are separated by spaces) that each piece belongs to. Pieces are looked up in the
    text one after the other; a piece that is not found (a space, half a letter, UNK) belongs to the place reached."""
    if not text.strip():
        return []
    word_at = _words(text)
    words, place, rest = [], 0, b""
    for piece in pieces:
        surface = piece.replace(SPACE, "")
        if byte := _BYTE.fullmatch(piece):
            rest += bytes.fromhex(byte[1])
            surface = rest.decode("utf-8", errors="ignore")
        found = text.find(surface, place) if surface else -1
        words.append(word_at[min(max(found, place), len(text) - 1)])
        if found >= 0:
            place, rest = found + len(surface), b""
    return words


def _words(text: str) -> list[int]:
    """Return the number of each letter's word; a space belongs to the word after it, or to the last."""
    ends = [int(letter.isspace() and not before.isspace()) for before, letter in pairwise(f" {text}")]
    last = max(0, len(text.split()) - 1)
    return [min(number, last) for number in accumulate(ends)]


def word_links(weights: Float[Tensor, "T S"], src_words: Sequence[int], tgt_words: Sequence[int]) -> Links:
    """Return for each target word the source word that it attends to most, given the words of all pieces. Attention is
    summed over the pieces of a word, on both sides. The columns beyond the source's pieces, that is EOS, do not count."""
    if not src_words or not tgt_words:
        return ()
    rows = weights.new_zeros(max(tgt_words) + 1, len(src_words))
    rows.index_add_(0, torch.tensor(tgt_words), weights[: len(tgt_words), : len(src_words)])
    by_word = weights.new_zeros(len(rows), max(src_words) + 1)
    by_word.index_add_(1, torch.tensor(src_words), rows)
    best: list[int] = by_word.argmax(1).tolist()
    return tuple(sorted((best[word], word) for word in set(tgt_words)))


def shifted(parts: Sequence[tuple[str, str, Links]], source: str, target: str) -> Links:
    """Return the links of a whole text, given its parts in order as (source, target, links)."""
    links: set[tuple[int, int]] = set()
    src_words, tgt_words = _words(source), _words(target)
    src_place = tgt_place = 0
    for part_source, part_target, part_links in parts:
        src_place = source.index(part_source, src_place)
        tgt_place = target.index(part_target, tgt_place)
        links |= {(src_words[src_place] + src, tgt_words[tgt_place] + tgt) for src, tgt in part_links}
        src_place += len(part_source)
        tgt_place += len(part_target)
    return tuple(sorted(links))
