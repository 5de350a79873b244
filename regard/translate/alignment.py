"""Which words belong together, read off cross-attention.

Which attention says best what belongs together was measured (EXPERIMENTS.md). In a deep decoder it is the middle layer where
a target word is fed in: there the decoder knows the word, and attends to what it was translated from (Chen et al. 2020). In
a shallow one no layer has the time for that: there it is the last, where the word is predicted.
"""

from collections.abc import Sequence
from typing import NamedTuple

from jaxtyping import Float
from torch import Tensor

from regard.text.tokenizer import SPACE

Links = tuple[tuple[int, int], ...]
DEEP = 5  # layers


class Place(NamedTuple):
    """Where to read: in which layer, and whether in the row in which a word is fed in or in the one that predicts it."""

    layer: int
    fed_in: bool


def place_for(num_layers: int) -> Place:
    return Place((num_layers - 1) // 2, fed_in=True) if num_layers >= DEEP else Place(num_layers - 1, fed_in=False)


def words_of(pieces: Sequence[str]) -> list[int]:
    """The word that each piece belongs to, words being what spaces separate."""
    word, starts, words = -1, True, []
    for piece in pieces:
        for letter in piece:
            if letter == SPACE:
                starts = True
            elif starts:
                word, starts = word + 1, False
        words.append(max(word, 0) if not starts else word + 1)  # a lone space belongs to what follows
    return words


def word_links(weights: Float[Tensor, "T S"], src_pieces: Sequence[str], tgt_pieces: Sequence[str]) -> Links:
    """For each target word the source word that it attends to most: of a word's pieces the attention is averaged on the
    target side and summed on the source side. The columns beyond the source's pieces, that is EOS, do not count."""
    src_words, tgt_words = words_of(src_pieces), words_of(tgt_pieces)
    if not src_words or not tgt_words:
        return ()
    by_word = weights.new_zeros(max(tgt_words) + 1, max(src_words) + 1)
    rows = weights.new_zeros(len(by_word), len(src_words))
    rows.index_add_(0, weights.new_tensor(tgt_words).long(), weights[: len(tgt_words), : len(src_words)])
    by_word.index_add_(1, weights.new_tensor(src_words).long(), rows)
    return tuple(sorted((src, tgt) for tgt, src in enumerate(by_word.argmax(1).tolist())))


def shifted(parts: Sequence[tuple[str, str, Links]], source: str, target: str) -> Links:
    """The links of a whole text, from those of its parts: (source, target, links), in their order."""
    links: list[tuple[int, int]] = []
    src_place = tgt_place = 0
    for part_source, part_target, part_links in parts:
        src_place = source.index(part_source, src_place)
        tgt_place = target.index(part_target, tgt_place)
        src_word, tgt_word = _word_at(source, src_place), _word_at(target, tgt_place)
        links += [(src_word + src, tgt_word + tgt) for src, tgt in part_links]
        src_place += len(part_source)
        tgt_place += len(part_target)
    return tuple(sorted(set(links)))


def _word_at(text: str, place: int) -> int:
    """The number of the word that stands at a place, or begins there."""
    is_inside = place > 0 and not text[place - 1].isspace()
    return len(text[:place].split()) - is_inside
