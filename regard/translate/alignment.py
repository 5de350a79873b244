"""Which words belong together, read off cross-attention.

Which attention says best what belongs together was measured (EXPERIMENTS.md). In a deep decoder it is the middle layer where
a target word is fed in: there the decoder knows the word, and attends to what it was translated from (Chen et al. 2020). In
a shallow one no layer has the time for that: there it is the last, where the word is predicted.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from regard.text.tokenizer import SPACE

Links = tuple[tuple[int, int], ...]
DEEP = 5  # layers
_BYTE = re.compile("<0x([0-9A-F]{2})>")


class Place(NamedTuple):
    """Where to read: in which layer, and whether in the row in which a word is fed in or in the one that predicts it."""

    layer: int
    fed_in: bool


def place_for(num_layers: int) -> Place:
    """Of so many layers of cross-attention. An RNN's is one, which looks before a word is predicted."""
    return Place((num_layers - 1) // 2, fed_in=True) if num_layers >= DEEP else Place(num_layers - 1, fed_in=False)


def words_of(pieces: Sequence[str], text: str) -> list[int]:
    """The word of the text that each piece belongs to, words being what spaces separate. Pieces are looked up in the text,
    one after the other; what is not there (a space, half a letter, something unknown) belongs to the place reached."""
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
    """For each letter the number of its word; a space belongs to what follows, if anything does."""
    numbers, word, is_inside = [], 0, False
    for letter in text:
        if letter.isspace() and is_inside:
            word += 1
        is_inside = not letter.isspace()
        numbers.append(word)
    last = max(0, len(text.split()) - 1)
    return [min(number, last) for number in numbers]


def word_links(weights: Float[Tensor, "T S"], src_words: Sequence[int], tgt_words: Sequence[int]) -> Links:
    """For each target word the source word that it attends to most, given the words of all pieces: of a word's pieces the
    attention is summed on both sides. The columns beyond the source's pieces, that is EOS, do not count."""
    if not src_words or not tgt_words:
        return ()
    rows = weights.new_zeros(max(tgt_words) + 1, len(src_words))
    rows.index_add_(0, torch.tensor(tgt_words), weights[: len(tgt_words), : len(src_words)])
    by_word = weights.new_zeros(len(rows), max(src_words) + 1)
    by_word.index_add_(1, torch.tensor(src_words), rows)
    best: list[int] = by_word.argmax(1).tolist()
    return tuple(sorted((best[word], word) for word in set(tgt_words)))


def shifted(parts: Sequence[tuple[str, str, Links]], source: str, target: str) -> Links:
    """The links of a whole text, from those of its parts: (source, target, links), in their order."""
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
