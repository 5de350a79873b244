"""The most probable next token, again and again: what a beam of one does."""

from collections.abc import Callable
from typing import Protocol, TypeVar, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor


@runtime_checkable
class Cache(Protocol):
    """What a model remembers of each sentence; all that search asks of it is to forget some."""

    def select_sentences(self, sentences: Int[Tensor, " B"], /) -> None: ...


C = TypeVar("C", bound=Cache)
Step = Callable[[Tensor, C], Tensor]


def greedy(step: Step[C], cache: C, max_lengths: Int[Tensor, " B"], *, bos_id: int, eos_id: int) -> list[list[int]]:
    """The tokens of each sentence, without BOS and EOS; a sentence that does not end has its `max_lengths` tokens."""
    device = max_lengths.device
    outputs: list[list[int]] = [[] for _ in range(len(max_lengths))]
    rows = torch.arange(len(max_lengths), device=device)  # which sentence each row of the cache is
    last = torch.full_like(rows, bos_id)
    length = 0
    while len(rows):
        log_probs: Float[Tensor, "N V"] = step(last, cache)
        last = log_probs.argmax(-1)
        length += 1
        goes_on = (last != eos_id) & (length <= max_lengths[rows])
        for sentence, token in zip(rows[goes_on].tolist(), last[goes_on].tolist(), strict=True):
            outputs[sentence].append(token)
        goes_on &= length < max_lengths[rows]
        if not bool(goes_on.all()):  # finished sentences leave: the others need not wait for their arithmetic
            staying = goes_on.nonzero()[:, 0]
            cache.select_sentences(staying)
            rows, last = rows[staying], last[staying]
    return outputs
