"""Minimum Bayes risk: the choice of the candidate that is most like all the others.

Likeness is sentence chrF (Popović 2015) as sacreBLEU computes it, with the n-grams of each candidate counted only once.
"""

import math
from collections import Counter
from collections.abc import Sequence

ORDER = 6  # the longest n-grams, in characters
BETA = 2.0  # how much more recall counts than precision

Ngrams = list[Counter[str]]


def least_risky(texts: Sequence[str], log_probs: Sequence[float] | None) -> list[int]:
    """Return the numbers of the candidates, the best first. Samples (`log_probs` is None) have equal weights, for probable
    ones are drawn more often; what a search found is weighted by its probability."""
    log_probs = [0.0] * len(texts) if log_probs is None else log_probs
    largest = max(log_probs)
    weights = [math.exp(log_prob - largest) for log_prob in log_probs]
    counted = {text: ngrams(text) for text in texts}
    likeness = {
        text: math.fsum(weight * chrf(counted[text], counted[other]) for other, weight in zip(texts, weights, strict=True))
        for text in counted
    }
    return sorted(range(len(texts)), key=lambda place: -likeness[texts[place]])


def ngrams(text: str) -> Ngrams:
    """Count a text's n-grams of each order, without its white space."""
    letters = "".join(text.split())
    return [Counter(letters[i : i + n] for i in range(len(letters) - n + 1)) for n in range(1, ORDER + 1)]


def chrf(hypothesis: Ngrams, reference: Ngrams) -> float:
    """Return the F-score of n-gram precision and recall, averaged over the orders that both have; from 0 to 1."""
    precisions, recalls = [], []
    for ours, theirs in zip(hypothesis, reference, strict=True):
        num_ours, num_theirs = ours.total(), theirs.total()
        if num_ours and num_theirs:
            matches = sum(min(count, theirs[ngram]) for ngram, count in ours.items() if ngram in theirs)
            precisions.append(matches / num_ours)
            recalls.append(matches / num_theirs)
    if not any(precisions):
        return 0.0
    precision, recall = sum(precisions) / len(precisions), sum(recalls) / len(recalls)
    return (1 + BETA**2) * precision * recall / (BETA**2 * precision + recall)
