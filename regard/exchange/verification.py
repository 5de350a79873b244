"""Whether an exported model says what the run says: the same greedy text, sentence by sentence.

Two programs round differently, so that two pieces of all but the same probability may change places. Such a tie is looked
at: where the outputs part, our model must give both pieces the same log-probability, to 1e-4.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from typing import NamedTuple, Protocol, runtime_checkable

import torch

from regard.data.batch import collate_sources
from regard.model.transformer import Transformer
from regard.search.greedy import greedy
from regard.search.hypothesis import TIE
from regard.text.cleaning import normalise
from regard.text.tokenizer import BOS_ID, EOS_ID, Tokenizer
from regard.translate.search import MAX_EXTRA

MAX_POSITIONS = 1024  # of sinusoids, which other programs keep in tables
BATCH = 32
BROKEN = "\ufffd"  # what bytes that are no UTF-8 are decoded to


class Output(NamedTuple):
    ids: list[int]  # without BOS and EOS
    text: str


@runtime_checkable
class Exported(Protocol):
    """A model in another program, with its tokenizer."""

    def translate(self, texts: list[str], max_length: int) -> list[Output]: ...


class Source(NamedTuple):
    text: str
    reference: str | None  # its translation, where it is known
    ids: list[int]  # without EOS
    max_length: int  # of an output


@dataclass(frozen=True)
class Comparison:
    """Of as many outputs as there are numbers in all. What is different is neither equal nor a tie."""

    num_equal: int
    num_ties: int
    different: tuple[int, ...]  # places among the sentences

    @property
    def num_sentences(self) -> int:
        return self.num_equal + self.num_ties + len(self.different)


def sources_of(
    texts: Iterable[tuple[str, str | None]], tokenizer: Tokenizer, *, max_positions: int, num_sentences: int
) -> list[Source]:
    """The first texts that are not empty and, like their outputs, fit the other program's positions."""
    return list(islice(_sources(texts, tokenizer, max_positions), num_sentences))


def _sources(texts: Iterable[tuple[str, str | None]], tokenizer: Tokenizer, max_positions: int) -> Iterator[Source]:
    for text, reference in texts:
        ids = tokenizer.src.encode([normalise(text)])[0]
        if ids and len(ids) < max_positions:
            yield Source(text, reference, ids, min(len(ids) + MAX_EXTRA, max_positions - 1))


def our_outputs(model: Transformer, tokenizer: Tokenizer, sources: Sequence[Source]) -> Iterator[tuple[int, Output]]:
    """By greedy search, as they come: the place of a sentence, and its output."""
    device = model.output_weight.device
    for places in _batches(sources):
        rows = [sources[place] for place in places]
        max_lengths = [row.max_length for row in rows]
        cache = model.start(collate_sources([row.ids for row in rows]).to(device))
        found = greedy(model.step, cache, max_lengths, bos_id=BOS_ID, eos_id=EOS_ID, device=device)
        for place, hypothesis in zip(places, found, strict=True):
            ids = list(hypothesis.ids)
            yield place, Output(ids, tokenizer.tgt.decode(ids))


def their_outputs(exported: Exported, sources: Sequence[Source]) -> Iterator[tuple[int, Output]]:
    for places in _batches(sources):
        found = exported.translate([sources[place].text for place in places], sources[places[0]].max_length)
        yield from zip(places, found, strict=True)


def _batches(sources: Sequence[Source]) -> Iterator[list[int]]:
    """Of sentences of one length: other programs have one maximum for all outputs of a batch."""
    order = sorted(range(len(sources)), key=lambda place: len(sources[place].ids))
    for _, group in groupby(order, key=lambda place: len(sources[place].ids)):
        places = list(group)
        yield from (places[start : start + BATCH] for start in range(0, len(places), BATCH))


def compare(model: Transformer, sources: Sequence[Source], ours: Sequence[Output], theirs: Sequence[Output]) -> Comparison:
    num_equal = num_ties = 0
    different = []
    for place, (source, one, other) in enumerate(zip(sources, ours, theirs, strict=True)):
        if _says_the_same(one, other):
            num_equal += 1
        elif one.ids != other.ids and _is_tie(model, source, one.ids, other.ids):
            num_ties += 1
        else:
            different.append(place)
    return Comparison(num_equal, num_ties, tuple(different))


def _says_the_same(one: Output, other: Output) -> bool:
    """Spaces at the ends aside, which some tokenizers take away. Bytes that are no UTF-8 have no text that programs agree
    on: there, the pieces count."""
    return one.text.strip() == other.text.strip() or (one.ids == other.ids and BROKEN in one.text)


@torch.no_grad()
def _is_tie(model: Transformer, source: Source, one: list[int], other: list[int]) -> bool:
    """An output that reached its maximum was not asked whether it would rather end."""
    one, other = ([*ids, EOS_ID] if len(ids) < source.max_length else ids for ids in (one, other))
    common = next((place for place, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1]), None)
    if common is None:
        return False
    device = model.output_weight.device
    src = torch.tensor([[*source.ids, EOS_ID]], device=device)
    tgt_in = torch.tensor([[BOS_ID, *one[:common]]], device=device)
    log_probs = model(src, tgt_in)[0, -1].float().log_softmax(-1)
    return abs(float(log_probs[one[common]] - log_probs[other[common]])) <= TIE
