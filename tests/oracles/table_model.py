"""A model defined by a table: the next token's probabilities depend on the whole prefix, at random or as given."""

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

Prefix = tuple[int, ...]  # begins with BOS
Table = Callable[[int, Prefix], Sequence[float]]  # maps a sentence and a prefix to probabilities


@dataclass
class TableCache:
    """A cache with every beam's prefix in plain lists. If search selects wrong rows, later probabilities are wrong."""

    beams: list[list[Prefix]]
    numbers: list[int] = field(default_factory=list)  # the sentence of each row

    def __post_init__(self) -> None:
        self.numbers = self.numbers or list(range(len(self.beams)))

    def select(self, beams: Tensor) -> None:
        self.beams = [[row[n] for n in chosen] for row, chosen in zip(self.beams, beams.tolist(), strict=True)]

    def select_sentences(self, sentences: Tensor) -> None:
        self.beams = [list(self.beams[n]) for n in sentences.tolist()]
        self.numbers = [self.numbers[n] for n in sentences.tolist()]


@dataclass(frozen=True)
class TableModel:
    table: Table
    num_sentences: int = 1

    def start(self) -> TableCache:
        return TableCache([[()] for _ in range(self.num_sentences)])

    def step(self, ids: Tensor, cache: TableCache) -> Tensor:
        tokens = iter(ids.tolist())
        cache.beams = [[(*beam, next(tokens)) for beam in row] for row in cache.beams]
        rows = [self.table(n, beam) for n, row in zip(cache.numbers, cache.beams, strict=True) for beam in row]
        return torch.tensor(rows, dtype=torch.float64).log()

    def log_prob(self, sentence: int, bos_id: int, ids: Sequence[int]) -> float:
        """Return the log-probability of a whole sequence by the table itself."""
        prefix: Prefix = (bos_id,)
        total = 0.0
        for token in ids:
            total += math.log(self.table(sentence, prefix)[token])
            prefix = (*prefix, token)
        return total


def random_table(seed: int, vocab_size: int, *, sharpness: float = 2.0) -> Table:
    def table(sentence: int, prefix: Prefix) -> list[float]:
        chance = random.Random(repr((seed, sentence, prefix)))
        weights = [math.exp(sharpness * chance.gauss(0, 1)) for _ in range(vocab_size)]
        return [weight / sum(weights) for weight in weights]

    return table
