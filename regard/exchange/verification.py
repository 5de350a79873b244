"""Compare the greedy outputs of an exported model with ours, for ordinary and for hostile texts.

Programs round differently, so two pieces of almost the same probability may change places. Such a tie is checked: at the
first difference of two outputs, our model must give both pieces the same log-probability, to 1e-4.
"""

import unicodedata
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
from regard.translate.search import MAX_EXTRA, started

MAX_POSITIONS = 1024  # rows of the table of sinusoids in other programs
BATCH = 32
NUM_SPOILT = 10  # sentences that hostile texts are made of
BROKEN = "\ufffd"  # the result of decoding bytes that are not UTF-8


class MismatchError(Exception):
    """An export with other outputs than the run: a fault of regard, or of the other program."""


class Output(NamedTuple):
    """The translation of a text."""

    ids: list[int]  # without BOS and EOS
    text: str


@runtime_checkable
class Exported(Protocol):
    """A model in another program, with its tokenizer."""

    def translate(self, texts: list[str], max_length: int) -> list[Output]: ...


class Source(NamedTuple):
    """A text to translate."""

    text: str
    reference: str | None
    ids: list[int]  # without EOS
    max_length: int  # of the output


@dataclass(frozen=True)
class ExportAgreement:
    """The number of equal outputs and of ties, and the places of all other outputs."""

    num_equal: int
    num_ties: int
    different: tuple[int, ...]


def sources_of(
    texts: Iterable[tuple[str, str | None]], tokenizer: Tokenizer, *, max_positions: int, num_sentences: int
) -> list[Source]:
    """Return the first texts that are not empty and, like their outputs, fit the other program's positions."""
    return list(islice((source for source in _fitting(texts, tokenizer, max_positions) if source.ids), num_sentences))


def _fitting(texts: Iterable[tuple[str, str | None]], tokenizer: Tokenizer, max_positions: int) -> Iterator[Source]:
    for text, reference in texts:
        ids = tokenizer.src.encode([normalise(text)])[0]
        if len(ids) < max_positions:
            yield Source(text, reference, ids, min(len(ids) + MAX_EXTRA, max_positions - 1))


def hostile_sources(sentences: Sequence[str], tokenizer: Tokenizer, *, max_positions: int) -> list[Source]:
    """Return the hostile texts that fit the other program's positions."""
    return list(_fitting(((text, None) for text in hostile_texts(sentences[:NUM_SPOILT])), tokenizer, max_positions))


def hostile_texts(sentences: Sequence[str]) -> list[str]:
    """Return empty and strange texts, and sentences with unusual spaces, case, marks and invisible characters."""
    texts = ["", " ", "\u3000\t\r", "\u200b", "\ufeff", "\x00\x07\x1b\x7f", "\u0301", "x" * 30, "ab" * 100, "😀👩‍👩‍👧🇩🇪"]
    texts += ["a\u0301\u0323 e\u0302\u0323", "\u212b \u1112\u1161\u11ab ﬁ １２", "</s> <s> <unk><pad> ▁ <0x41>"]
    texts += [">>de<< ab", "<<>> %s \\n", "Ab öß Жы 你好 नमस्ते שָׁלוֹם مَرْحَبًا"]
    spaces = ("\xa0", "\u3000", "\t", "  ", "▁", "\u2028", "\u200b", " \xad", " \x07")
    for sentence in sentences:
        texts += [sentence.replace(" ", space) for space in spaces]
        texts += [f"{sentence}\r", f"\ufeff{sentence}", f"{sentence} 😀"]
        texts += [unicodedata.normalize("NFD", sentence), sentence.upper()]
        texts.append("".join(f"{character}\u0301\u0323" for character in sentence[:20]))
    return list(dict.fromkeys(texts))


def our_outputs(model: Transformer, tokenizer: Tokenizer, sources: Sequence[Source]) -> Iterator[tuple[int, Output]]:
    """Translate with greedy search, and yield the place of each text with its output."""
    device = model.output_weight.device
    for places in _batches(sources):
        rows = [sources[place] for place in places]
        if not rows[0].ids:
            yield from ((place, Output([], "")) for place in places)
            continue
        max_lengths = [row.max_length for row in rows]
        step, cache = started(model, collate_sources([row.ids for row in rows]).to(device))
        found = greedy(step, cache, max_lengths, bos_id=BOS_ID, eos_id=EOS_ID, device=device)
        for place, hypothesis in zip(places, found, strict=True):
            ids = list(hypothesis.ids)
            yield place, Output(ids, tokenizer.tgt.decode(ids))


def their_outputs(exported: Exported, sources: Sequence[Source]) -> Iterator[tuple[int, Output]]:
    """Translate with the other program, and yield the place of each text with its output."""
    for places in _batches(sources):
        found = exported.translate([sources[place].text for place in places], sources[places[0]].max_length)
        yield from zip(places, found, strict=True)


def _batches(sources: Sequence[Source]) -> Iterator[list[int]]:
    """Yield the places of texts of one length, because other programs have one maximum length for all outputs of a batch."""
    order = sorted(range(len(sources)), key=lambda place: len(sources[place].ids))
    for _, group in groupby(order, key=lambda place: len(sources[place].ids)):
        places = list(group)
        yield from (places[start : start + BATCH] for start in range(0, len(places), BATCH))


def compare(
    model: Transformer, sources: Sequence[Source], ours: Sequence[Output], theirs: Sequence[Output]
) -> ExportAgreement:
    num_equal = num_ties = 0
    different = []
    for place, (source, one, other) in enumerate(zip(sources, ours, theirs, strict=True)):
        if _says_the_same(one, other):
            num_equal += 1
        elif one.ids != other.ids and _is_tie(model, source, one.ids, other.ids):
            num_ties += 1
        else:
            different.append(place)
    return ExportAgreement(num_equal, num_ties, tuple(different))


def _says_the_same(one: Output, other: Output) -> bool:
    """Return whether two outputs are equal, apart from spaces at the ends, which some tokenizers remove. Programs decode
    bytes that are not UTF-8 differently: compare the ids of those."""
    return one.text.strip() == other.text.strip() or (one.ids == other.ids and BROKEN in one.text)


@torch.no_grad()
def _is_tie(model: Transformer, source: Source, one: list[int], other: list[int]) -> bool:
    """Return whether two outputs first differ in pieces of the same probability. EOS follows an output only if it is shorter
    than the maximum."""
    one, other = ([*ids, EOS_ID] if len(ids) < source.max_length else ids for ids in (one, other))
    common = next((place for place, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1]), None)
    if common is None:
        return False
    device = model.output_weight.device
    src = torch.tensor([[*source.ids, EOS_ID]], device=device)
    tgt_in = torch.tensor([[BOS_ID, *one[:common]]], device=device)
    log_probs = model(src, tgt_in)[0, -1].float().log_softmax(-1)
    return abs(float(log_probs[one[common]] - log_probs[other[common]])) <= TIE
