"""Detect which of the served languages a text is in, with naive Bayes over character n-grams.

The n-grams of a language are counted when the server starts: in the training text of a run if it still exists, else in its
subwords. Subwords that both languages share are assigned by the model: those that its decoder finds probable are of the
target language, the others of the source language.
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence

import torch

from regard.data.batch import collate
from regard.data.store import PairStore
from regard.errors import UserError
from regard.run.checkpoint import run_and_step
from regard.serve.runs import ServedRun
from regard.text.cleaning import normalise
from regard.text.tokenizer import NUM_RESERVED, PAD_ID, SPACE, Subwords
from regard.translate.search import Search

NUM_LINES = 2000  # that are counted of each side of a corpus
NUM_WORDS = 400  # that are counted of shared subwords
NUM_SOURCES, AT_ONCE = 100, 50  # of these words, for the model to translate
MOST_CHARACTERS = 300  # that are read of a text
SMOOTHING = 0.5
ORDERS = (1, 2, 3)


def ngrams(text: str) -> Iterable[str]:
    """Yield all sequences of one to three characters of a text, including spaces between words."""
    padded = f" {normalise(text).lower()} "
    for order in ORDERS:
        for start in range(len(padded) - order + 1):
            gram = padded[start : start + order]
            if gram.strip():
                yield gram


class Detector:
    """Counts of n-grams by language."""

    def __init__(self, samples: dict[str, list[str]]) -> None:
        self._counts = {code: Counter(gram for text in texts for gram in ngrams(text)) for code, texts in samples.items()}
        self._totals = {code: sum(counts.values()) for code, counts in self._counts.items()}
        self._num_kinds = len(set().union(*self._counts.values())) + 1

    def detect(self, text: str) -> list[tuple[str, float]]:
        """Return languages and their probabilities, the most probable first. N-grams overlap and are not independent, so
        each has the weight of 1/3."""
        scores = dict.fromkeys(self._counts, 0.0)
        for gram in ngrams(text[:MOST_CHARACTERS]):
            if not any(character.isalpha() for character in gram):
                continue
            for code in scores:
                total = self._totals[code] + SMOOTHING * self._num_kinds
                scores[code] += math.log((self._counts[code][gram] + SMOOTHING) / total) / len(ORDERS)
        best = max(scores.values(), default=0.0)
        weights = {code: math.exp(score - best) for code, score in scores.items()}
        whole = sum(weights.values())
        return sorted(((code, weight / whole) for code, weight in weights.items()), key=lambda one: -one[1])


def learn(runs: Sequence[ServedRun]) -> Detector:
    """Return a detector of the languages of all runs."""
    samples: dict[str, list[str]] = {}
    for run in runs:
        if run.src_lang in samples and run.tgt_lang in samples:
            continue  # both languages are known
        for code, texts in zip((run.src_lang, run.tgt_lang), _samples(run), strict=True):
            samples.setdefault(code, []).extend(texts)
    return Detector(samples)


def _samples(run: ServedRun) -> tuple[list[str], list[str]]:
    """Return text or words of both languages."""
    folder = run_and_step(run.folder)[0].data_folder(run.translator.config)
    try:
        store = PairStore.open(folder, "train")
        rows = range(0, len(store), max(1, len(store) // NUM_LINES))
        return [store.src_text[row] for row in rows], [store.tgt_text[row] for row in rows]
    except (OSError, UserError, UnicodeDecodeError):  # missing or damaged
        tokenizer = run.translator.tokenizer
        if not tokenizer.is_shared:
            return words(tokenizer.src), words(tokenizer.tgt)
        return _samples_of_the_model(run)


def words(subwords: Subwords) -> list[str]:
    """Return the pieces at the beginning of words, the most frequent first."""
    pieces = subwords.pieces(range(NUM_RESERVED, len(subwords)))
    return [piece[1:] for piece in pieces if piece.startswith(SPACE) and piece[1:].isalpha() and len(piece) > 2]


def _samples_of_the_model(run: ServedRun) -> tuple[list[str], list[str]]:
    """Divide shared words between the languages: sort them by their probability in the decoder's outputs, relative to their
    rank; the upper half is the target language."""
    translator = run.translator
    subwords, model = translator.tokenizer.tgt, translator.models[0]
    found = words(subwords)[:NUM_WORDS]
    total = torch.zeros(len(subwords), device=translator.device)
    for start in range(0, min(NUM_SOURCES, len(found)), AT_ONCE):
        sources = found[start : start + AT_ONCE]
        targets = [one.text for one in translator.translate(sources, Search(beam=1, max_extra=8))]
        batch = collate(subwords.encode(sources), subwords.encode(targets))
        with torch.no_grad():
            probs = model(batch.src.to(translator.device), batch.tgt_in.to(translator.device)).softmax(-1)  # (B, T, V)
        total += probs[batch.tgt_out.to(translator.device) != PAD_ID].sum(0)
    ids = subwords.ids([SPACE + word for word in found])
    shares = [float(total[token]) * (token - NUM_RESERVED + 10) for token in ids]  # ids are ranks
    order = sorted(range(len(found)), key=lambda place: shares[place])
    half = len(order) // 2
    return [found[place] for place in order[:half]], [found[place] for place in order[half:]]
