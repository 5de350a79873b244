"""The most probable next token, again and again: what a beam of one does, but for the order of what is equally probable."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from regard.search.hypothesis import C, Hypothesis, Step, forced_tokens, hypothesis, without


def greedy(
    step: Step[C],
    cache: C,
    max_lengths: Sequence[int],
    *,
    bos_id: int | Sequence[int],
    eos_id: int,
    prefixes: Sequence[Sequence[int]] = (),
    alpha: float = 0.0,
    device: torch.device | None = None,
) -> list[Hypothesis]:
    """One hypothesis a sentence; after `max_lengths` tokens it has to end. `bos_id` is what is fed first, to all alike or to
    each its own."""
    forced = forced_tokens(prefixes or [()] * len(max_lengths), max_lengths, eos_id=eos_id).to(device)
    outputs: list[tuple[list[int], list[float]]] = [([], []) for _ in max_lengths]
    rows = list(range(len(max_lengths)))  # which sentence each row of the cache is
    last = torch.tensor([bos_id] * len(rows) if isinstance(bos_id, int) else bos_id, device=device)
    length = 0
    while rows:
        log_probs: Float[Tensor, "N V"] = step(last, cache)
        chosen = forced[rows, length]
        last = torch.where(chosen >= 0, chosen, log_probs.argmax(-1))
        taken = log_probs.gather(1, last[:, None])[:, 0]
        length += 1
        ended = []
        for row, token, log_prob in zip(rows, last.tolist(), taken.tolist(), strict=True):
            ended.append(token == eos_id)
            outputs[row][1].append(log_prob)
            if token != eos_id:
                outputs[row][0].append(token)
        if any(ended):  # finished sentences leave: the others need not wait for their arithmetic
            order = without(ended)
            cache.select_sentences(torch.tensor(order, dtype=torch.long, device=device))
            rows, last = [rows[n] for n in order], last[order]
    return [hypothesis(ids, log_probs, alpha) for ids, log_probs in outputs]
