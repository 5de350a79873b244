"""Greedy search: the most probable next token at each step. A beam of one does this, too, but may break ties differently."""

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
    """Return a hypothesis for each sentence; after `max_lengths` tokens it has to end. `bos_id` is the token to begin with,
    one for all sentences or one for each."""
    forced = forced_tokens(prefixes or [()] * len(max_lengths), max_lengths, eos_id=eos_id).to(device)
    outputs: list[tuple[list[int], list[float]]] = [([], []) for _ in max_lengths]
    rows = list(range(len(max_lengths)))  # the sentence of each row of the cache
    last = torch.tensor([bos_id] * len(rows) if isinstance(bos_id, int) else bos_id, device=device)
    length = 0
    while rows:
        log_probs: Float[Tensor, "N V"] = step(last, cache)
        chosen = forced[rows, length]
        last = torch.where(chosen >= 0, chosen, log_probs.argmax(-1))
        taken = log_probs.gather(1, last[:, None])[:, 0]
        length += 1
        tokens = last.tolist()
        for row, token, log_prob in zip(rows, tokens, taken.tolist(), strict=True):
            outputs[row][0].extend([] if token == eos_id else [token])
            outputs[row][1].append(log_prob)
        ended = [token == eos_id for token in tokens]
        if any(ended):  # no more computation for finished sentences
            order = without(ended)
            cache.select_sentences(torch.tensor(order, dtype=torch.long, device=device))
            rows, last = [rows[n] for n in order], last[order]
    return [hypothesis(ids, log_probs, alpha) for ids, log_probs in outputs]
