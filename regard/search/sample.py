"""Tokens drawn at random, as probable as the model finds them, or only from the more probable ones."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.search.hypothesis import C, Hypothesis, Step, forced_tokens, hypothesis, without


@dataclass(frozen=True)
class Sampling:
    """What to draw from. The defaults are the model's own distribution."""

    temperature: float = 1.0  # below 1 sharpens, above 1 flattens
    top_k: int = 0  # of this many best tokens only; 0: of all
    top_p: float = 1.0  # of the fewest best tokens that have this much of the probability

    def __post_init__(self) -> None:
        if not 0 < self.temperature < math.inf:
            raise ValueError(f"the temperature is {self.temperature}; it must be a number above 0")
        if self.top_k < 0:
            raise ValueError(f"top-k is {self.top_k}; it must be at least 1, or 0 for all tokens")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top-p is {self.top_p}; it must be above 0 and at most 1")


def sample(
    step: Step[C],
    cache: C,
    max_lengths: Sequence[int],
    draws: Float[Tensor, "B W T"],
    *,
    sampling: Sampling,
    bos_id: int | Sequence[int],
    eos_id: int,
    prefixes: Sequence[Sequence[int]] = (),
    alpha: float = 0.0,
) -> list[list[Hypothesis]]:
    """W hypotheses a sentence, in the order drawn. `draws` are numbers from 0 to 1, one for every token that may come:
    chance is the caller's, so that a sentence's share of it need not depend on its neighbours. Log-probabilities are those
    of the model, whatever was drawn from. `bos_id` is what is fed first, to all alike or to each its own."""
    device, width = draws.device, draws.shape[1]
    forced = forced_tokens(prefixes or [()] * len(max_lengths), max_lengths, eos_id=eos_id).to(device)
    outputs: list[list[tuple[list[int], list[float]]]] = [[([], []) for _ in range(width)] for _ in max_lengths]
    going = [[True] * width for _ in max_lengths]
    rows = list(range(len(max_lengths)))
    first = torch.tensor([bos_id] * len(rows) if isinstance(bos_id, int) else bos_id, device=device)
    last = first[:, None].repeat(1, width)
    cache.select(torch.zeros_like(last))
    length = 0
    while rows:
        log_probs = step(last.flatten(), cache).unflatten(0, last.shape)
        chosen = forced[rows, length][:, None]
        last = torch.where(chosen >= 0, chosen, drawn(log_probs, draws[rows, :, length], sampling))
        taken = log_probs.gather(2, last[:, :, None])[:, :, 0]
        length += 1
        for row, tokens, values in zip(rows, last.tolist(), taken.tolist(), strict=True):
            for beam in range(width):
                if going[row][beam]:
                    outputs[row][beam][1].append(values[beam])
                    going[row][beam] = tokens[beam] != eos_id
                    outputs[row][beam][0].extend(tokens[beam : beam + 1] if going[row][beam] else ())
        done = [not any(going[row]) for row in rows]
        if any(done):
            order = without(done)
            cache.select_sentences(torch.tensor(order, dtype=torch.long, device=device))
            rows, last = [rows[n] for n in order], last[order]
    return [[hypothesis(ids, values, alpha) for ids, values in row] for row in outputs]


def drawn(log_probs: Float[Tensor, "B W V"], draws: Float[Tensor, "B W"], sampling: Sampling) -> Int[Tensor, "B W"]:
    """The token at which the sum of probabilities, the largest first, passes what was drawn."""
    best = log_probs.amax(-1, keepdim=True)  # taken away first: a tiny temperature would make all of it infinite
    scaled, order = ((log_probs - best) / sampling.temperature).softmax(-1).sort(-1, descending=True)
    probabilities = scaled * allowed(scaled, sampling)
    sums = probabilities.cumsum(-1)
    places = torch.searchsorted(sums, (draws.to(sums) * sums[..., -1])[..., None], right=True)
    last_allowed = (probabilities > 0).sum(-1, keepdim=True) - 1  # where a draw rounds up to the whole sum
    token: Tensor = order.gather(-1, places.minimum(last_allowed))[..., 0]
    return token


def allowed(probabilities: Float[Tensor, "B W V"], sampling: Sampling) -> Bool[Tensor, "B W V"]:
    """Which of the probabilities, the largest first, may be drawn: always the first."""
    keep = torch.ones_like(probabilities, dtype=torch.bool)
    if sampling.top_p < 1:
        keep = probabilities.cumsum(-1) - probabilities < sampling.top_p  # what the more probable ones have together
    if sampling.top_k:
        keep[..., sampling.top_k :] = False
    keep[..., 0] = True
    return keep
