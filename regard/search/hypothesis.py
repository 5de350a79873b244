"""The inputs and outputs of every search, and the score by which outputs of different lengths are compared.

A search knows no model. It takes `step(ids, cache)`, which feeds each row its next token and returns the log-probabilities
of the one after, and a cache whose rows it selects.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeVar, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor


@runtime_checkable
class Cache(Protocol):
    """A model's state for each sentence and its beams; row b · W + w is beam w of sentence b."""

    def select(self, beams: Int[Tensor, "B W"], /) -> None: ...

    def select_sentences(self, sentences: Int[Tensor, " B"], /) -> None: ...


TIE = 1e-4  # between log-probabilities; rounding may decide between closer ones
C = TypeVar("C", bound=Cache)
Step = Callable[[Tensor, C], Tensor]


class Sentence(NamedTuple):
    """A source, the most tokens that its output may have, and the tokens that the output begins with."""

    ids: Sequence[int]
    limit: int
    prefix: Sequence[int] = ()


@dataclass(frozen=True)
class Hypothesis:
    """A finished output."""

    ids: tuple[int, ...]  # without BOS and EOS
    log_probs: tuple[float, ...]  # of each of them, and of EOS
    score: float  # its log-probability over its length penalty, by which it is ranked

    @property
    def log_prob(self) -> float:
        return math.fsum(self.log_probs)


def hypothesis(ids: Sequence[int], log_probs: Sequence[float], alpha: float) -> Hypothesis:
    return Hypothesis(tuple(ids), tuple(log_probs), math.fsum(log_probs) / length_penalty(len(log_probs), alpha))


def length_penalty(length: int, alpha: float) -> float:
    """Equation 14 of Wu et al. 2016 (GNMT), which the paper's section 6.1 uses with α = 0.6. EOS counts."""
    return float(((5 + length) / 6) ** alpha)


def forced_tokens(prefixes: Sequence[Sequence[int]], max_lengths: Sequence[int], *, eos_id: int) -> Int[Tensor, "B T"]:
    """Return the tokens that each sentence has to take at each step (its prefix, and EOS after `max_lengths` tokens) and -1
    where the search chooses. So every output ends, and its log-probability is that of a whole sentence."""
    forced = torch.full((len(prefixes), max(max_lengths, default=0) + 1), -1)
    for row, (prefix, max_length) in enumerate(zip(prefixes, max_lengths, strict=True)):
        assert len(prefix) <= max_length, "a prefix beyond its limit"
        forced[row, : len(prefix)] = torch.tensor(list(prefix), dtype=torch.long)
        forced[row, max_length:] = eos_id
    return forced


def forbid(log_probs: Float[Tensor, "N V"], tokens: Sequence[int]) -> Float[Tensor, "N V"]:
    """Make some tokens impossible, in place. The others are not renormalised: an output's score stays the model's."""
    for token in tokens:  # column by column, without a pass over the vocabulary or a copy to the device
        log_probs[:, token] = -math.inf
    return log_probs


def without(finished: Sequence[bool]) -> list[int]:
    """Return the rows that are not finished, with as few as possible in other places: the last ones fill the gaps."""
    staying = [row for row, done in enumerate(finished) if not done]
    moving = iter(row for row in staying if row >= len(staying))
    return [next(moving) if finished[row] else row for row in range(len(staying))]
