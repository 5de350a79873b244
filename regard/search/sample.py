"""Sampling: tokens are drawn at random, from the model's distribution or from its more probable tokens only."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.errors import UserError
from regard.search.hypothesis import C, Hypothesis, Step, forced_tokens, hypothesis, without

MOST_TEMPERATURE = 1e30  # and the least is its inverse; float32 can hold neither much more nor much less


@dataclass(frozen=True)
class Sampling:
    """The distribution to draw from, by default the model's own."""

    temperature: float = 1.0  # below 1 sharpens, above 1 flattens
    top_k: int = 0  # draw from this many best tokens only; 0: from all
    top_p: float = 1.0  # draw from the fewest best tokens with this much of the probability

    def __post_init__(self) -> None:
        if not 1 / MOST_TEMPERATURE <= self.temperature <= MOST_TEMPERATURE:
            least_and_most = f"{1 / MOST_TEMPERATURE:g} and {MOST_TEMPERATURE:g}"
            raise UserError(f"the temperature is {self.temperature}; it must be a number between {least_and_most}")
        if self.top_k < 0:
            raise UserError(f"top-k is {self.top_k}; it must be at least 1, or 0 for all tokens")
        if not 0 < self.top_p <= 1:
            raise UserError(f"top-p is {self.top_p}; it must be above 0 and at most 1")


MODEL_DISTRIBUTION = Sampling()


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
    """Return W hypotheses for each sentence, in the order drawn, with the model's log-probabilities. `draws` are random
    numbers from 0 to 1, one for every token. `bos_id` is the token to begin with, one for all sentences or one for each."""
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


def own_draws(key: object, num_samples: int, num_tokens: int) -> Float[Tensor, "W T"]:
    """Return random numbers from 0 to 1 that depend on the key alone, such as a seed with a sentence's tokens."""
    digest = hashlib.sha256(repr(key).encode()).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(digest[:8], "little") >> 1)
    return torch.rand(num_samples, num_tokens, generator=generator)


def drawn(log_probs: Float[Tensor, "B W V"], draws: Float[Tensor, "B W"], sampling: Sampling) -> Int[Tensor, "B W"]:
    """Return the tokens at which the sums of probabilities, the largest first, pass the random numbers."""
    best = log_probs.amax(-1, keepdim=True)  # subtracted first, so that a tiny temperature gives no infinity
    scaled, order = ((log_probs - best) / sampling.temperature).softmax(-1).sort(-1, descending=True)
    probabilities = scaled * allowed(scaled, sampling)
    sums = probabilities.cumsum(-1)
    places = torch.searchsorted(sums, (draws.to(sums) * sums[..., -1])[..., None], right=True)
    last_allowed = (probabilities > 0).sum(-1, keepdim=True) - 1  # if a draw rounds up to the whole sum
    token: Tensor = order.gather(-1, places.minimum(last_allowed))[..., 0]
    return token


def allowed(probabilities: Float[Tensor, "B W V"], sampling: Sampling) -> Bool[Tensor, "B W V"]:
    """Return which of the probabilities, the largest first, may be drawn; the first always may."""
    keep = torch.ones_like(probabilities, dtype=torch.bool)
    if sampling.top_p < 1:
        keep = probabilities.cumsum(-1) - probabilities < sampling.top_p  # the sum of the more probable ones
    if sampling.top_k:
        keep[..., sampling.top_k :] = False
    keep[..., 0] = True
    return keep
