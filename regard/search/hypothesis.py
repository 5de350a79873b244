"""What every search has in common: what it takes, what it returns, and how outputs of different lengths are compared.

A search knows no model. It takes `step(ids, cache)`, which feeds each row its next token and gives the log-probabilities of
the one after, and a cache of which it only asks to keep other rows than it did.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar, runtime_checkable

import torch
from jaxtyping import Int
from torch import Tensor


@runtime_checkable
class Cache(Protocol):
    """What a model remembers of each sentence and its beams; row b · W + w is beam w of sentence b."""

    def select(self, beams: Int[Tensor, "B W"], /) -> None: ...

    def select_sentences(self, sentences: Int[Tensor, " B"], /) -> None: ...


TIE = 1e-4  # between log-probabilities; what lies closer, rounding may decide
C = TypeVar("C", bound=Cache)
Step = Callable[[Tensor, C], Tensor]


@dataclass(frozen=True)
class Hypothesis:
    """One output, ended."""

    ids: tuple[int, ...]  # without BOS and EOS
    log_probs: tuple[float, ...]  # of each of them, and of EOS
    score: float  # what it is ranked by: its log-probability over its length penalty

    @property
    def log_prob(self) -> float:
        return math.fsum(self.log_probs)


def hypothesis(ids: Sequence[int], log_probs: Sequence[float], alpha: float) -> Hypothesis:
    return Hypothesis(tuple(ids), tuple(log_probs), math.fsum(log_probs) / length_penalty(len(log_probs), alpha))


def length_penalty(length: int, alpha: float) -> float:
    """Equation 14 of Wu et al. 2016 (GNMT), which the paper's section 6.1 uses with α = 0.6. EOS counts."""
    return float(((5 + length) / 6) ** alpha)


def forced_tokens(prefixes: Sequence[Sequence[int]], max_lengths: Sequence[int], *, eos_id: int) -> Int[Tensor, "B T"]:
    """What the search may not choose itself, sentence by sentence and step by step; -1 where it may: first the prefix, in
    the end, after `max_lengths` tokens, EOS. So every output ends, and its log-probability is that of a whole sentence."""
    assert all(len(prefix) <= limit for prefix, limit in zip(prefixes, max_lengths, strict=True)), (
        "a prefix beyond its limit"
    )
    forced = torch.full((len(prefixes), max(max_lengths, default=0) + 1), -1)
    for row, (prefix, max_length) in enumerate(zip(prefixes, max_lengths, strict=True)):
        forced[row, : len(prefix)] = torch.tensor(list(prefix), dtype=torch.long)
        forced[row, max_length:] = eos_id
    return forced


def without(finished: Sequence[bool]) -> list[int]:
    """The rows that stay when finished ones leave, with as few as possible in other places: the last fill the gaps."""
    staying = [row for row, done in enumerate(finished) if not done]
    gaps = [row for row in range(len(staying)) if finished[row]]
    order = list(range(len(staying)))
    for gap, row in zip(gaps, staying[len(staying) - len(gaps) :], strict=True):
        order[gap] = row
    return order
