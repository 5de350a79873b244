"""Which of the served languages a text is in: naive Bayes over characters and their neighbours.

What a language looks like is learnt when the server starts: from the text that a run was trained on, where that is still
there; else from its subwords. Subwords that both languages share tell nothing about either, but the model does: the words
that its decoder finds probable are of its target language, the others of its source language.
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence

import torch

from regard.checkpoint import run_and_step
from regard.data.batch import collate
from regard.data.store import PairStore
from regard.serve.runs import ServedRun
from regard.text.cleaning import normalise
from regard.text.tokenizer import NUM_RESERVED, PAD_ID, SPACE, Subwords
from regard.translate.search import Search

NUM_LINES = 2000  # of each side of a corpus
NUM_WORDS = 400  # of shared subwords
NUM_SOURCES, AT_ONCE = 100, 50  # of them, for the model to translate
MOST_CHARACTERS = 300  # of a text; more would not change the answer
SMOOTHING = 0.5
ORDERS = (1, 2, 3)


def ngrams(text: str) -> Iterable[str]:
    """Runs of one to three characters, those at the ends of words with the space beside them."""
    padded = f" {normalise(text).lower()} "
    for order in ORDERS:
        for start in range(len(padded) - order + 1):
            gram = padded[start : start + order]
            if gram.strip():
                yield gram


class Detector:
    """Counts of n-grams, by language."""

    def __init__(self, samples: dict[str, list[str]]) -> None:
        self._counts = {code: Counter(gram for text in texts for gram in ngrams(text)) for code, texts in samples.items()}
        self._totals = {code: sum(counts.values()) for code, counts in self._counts.items()}
        self._num_kinds = len(set().union(*self._counts.values())) + 1

    def detect(self, text: str, among: Sequence[str] = ()) -> list[tuple[str, float]]:
        """Languages and their probabilities, the most probable first. N-grams overlap and are no independent witnesses, so
        each counts for the third that it is."""
        codes = [code for code in self._counts if not among or code in among]
        scores = dict.fromkeys(codes, 0.0)
        for gram in ngrams(text[:MOST_CHARACTERS]):
            if not any(character.isalpha() for character in gram):
                continue
            for code in codes:
                total = self._totals[code] + SMOOTHING * self._num_kinds
                scores[code] += math.log((self._counts[code][gram] + SMOOTHING) / total) / len(ORDERS)
        best = max(scores.values(), default=0.0)
        weights = {code: math.exp(score - best) for code, score in scores.items()}
        whole = sum(weights.values())
        return sorted(((code, weight / whole) for code, weight in weights.items()), key=lambda one: -one[1])


def learn(runs: Sequence[ServedRun]) -> Detector:
    samples: dict[str, list[str]] = {}
    for run in runs:
        if run.src_lang in samples and run.tgt_lang in samples:
            continue  # what is known already takes no more time
        for code, texts in zip((run.src_lang, run.tgt_lang), _samples(run), strict=True):
            samples.setdefault(code, []).extend(texts)
    return Detector(samples)


def _samples(run: ServedRun) -> tuple[list[str], list[str]]:
    """Text of both sides, as well as it is to be had."""
    folder = run_and_step(run.folder)[0].data_folder(run.translator.config)
    try:
        store = PairStore.open(folder, "train")
        rows = range(0, len(store), max(1, len(store) // NUM_LINES))
        return [store.src_text[row] for row in rows], [store.tgt_text[row] for row in rows]
    except (OSError, ValueError):  # not there, or no longer whole
        tokenizer = run.translator.tokenizer
        if not tokenizer.is_shared:
            return words(tokenizer.src), words(tokenizer.tgt)
        return _samples_of_the_model(run)


def words(subwords: Subwords) -> list[str]:
    """Pieces that are whole words or begin one, the most frequent first."""
    pieces = subwords.pieces(range(NUM_RESERVED, len(subwords)))
    return [piece[1:] for piece in pieces if piece.startswith(SPACE) and piece[1:].isalpha() and len(piece) > 2]


def _samples_of_the_model(run: ServedRun) -> tuple[list[str], list[str]]:
    """The words that both languages share, sorted by how much more, or less, the decoder has to do with each than a word of
    its rank would have; the half that it says most is its language."""
    translator = run.translator
    subwords, model = translator.tokenizer.tgt, translator.models[0]
    found = words(subwords)[:NUM_WORDS]
    said = torch.zeros(len(subwords), device=translator.device)
    for start in range(0, min(NUM_SOURCES, len(found)), AT_ONCE):
        sources = found[start : start + AT_ONCE]
        targets = [one.text for one in translator.translate(sources, Search(beam=1, max_extra=8))]
        batch = collate(subwords.encode(sources), subwords.encode(targets))
        with torch.no_grad():
            probs = model(batch.src.to(translator.device), batch.tgt_in.to(translator.device)).softmax(-1)  # (B, T, V)
        said += probs[batch.tgt_out.to(translator.device) != PAD_ID].sum(0)
    ids = subwords.ids([SPACE + word for word in found])
    shares = [float(said[token]) * (token - NUM_RESERVED + 10) for token in ids]  # ids are in the order of ranks
    order = sorted(range(len(found)), key=lambda place: shares[place])
    half = len(order) // 2
    return [found[place] for place in order[:half]], [found[place] for place in order[half:]]
