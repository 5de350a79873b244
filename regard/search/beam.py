"""Beam search with GNMT's length penalty (section 6.1 of the paper: a beam of 4, α = 0.6).

At each step every beam proposes its best next tokens. The W best proposals that do not end become the new beams; one that
ends is finished, but only if it is among the W best of all. A sentence is done when W hypotheses are finished, or when those
it has cannot be beaten any more.

This early stop changes no result. A beam's log-probability s ≤ 0 only falls as it grows, and its score is s over a penalty
that is largest at one end of the lengths it may still reach; so s over that largest penalty bounds the score of all that it
can become. If the last hypothesis to return scores at least the bound of the best beam, the returned hypotheses are final.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.search.hypothesis import C, Hypothesis, Step, forced_tokens, hypothesis, length_penalty, without

Fate = Literal["kept", "finished", "pruned"]


class Candidate(NamedTuple):
    """A beam's proposal in a step, and its fate."""

    parent: int  # the beam, of those kept in the step before
    token: int
    total: float  # the log-probability of the whole hypothesis so far
    fate: Fate


@dataclass(frozen=True)
class BeamResult:
    """The hypotheses found for one sentence, the best first."""

    hypotheses: tuple[Hypothesis, ...]
    steps: tuple[tuple[Candidate, ...], ...]  # the best 2W proposals of each step; empty if they were not asked for


@dataclass
class _Sentence:
    """The finished hypotheses of a sentence, and its steps."""

    max_length: int
    finished: list[Hypothesis]
    steps: list[tuple[Candidate, ...]]

    def is_done(self, best_total: float, length: int, *, width: int, num_best: int, alpha: float) -> bool:
        assert not math.isnan(best_total), "the model gives probabilities that are not numbers"
        if len(self.finished) >= width or best_total == -math.inf:
            return True
        if len(self.finished) < num_best:
            return False
        largest = max(length_penalty(length + 1, alpha), length_penalty(self.max_length + 1, alpha))
        worst = sorted((hypothesis.score for hypothesis in self.finished), reverse=True)[num_best - 1]
        return worst >= best_total / largest


class Proposals(NamedTuple):
    """The best proposals of a step, in order: at least W of them do not end, if the vocabulary has as many."""

    totals: Float[Tensor, "B P"]
    log_probs: Float[Tensor, "B P"]  # of the token alone
    parents: Int[Tensor, "B P"]
    tokens: Int[Tensor, "B P"]

    def split(self, width: int, eos_id: int) -> tuple[Bool[Tensor, "B P"], Int[Tensor, "B W"], Float[Tensor, "B W"]]:
        """Return which proposals end, and the places and totals of the best that do not, in order."""
        ends = (self.tokens == eos_id) & self.totals.isfinite()
        kept = ends.byte().argsort(dim=1, stable=True)[:, :width]
        return ends, kept, self.totals.masked_fill(ends, -math.inf).gather(1, kept)


def beam(
    step: Step[C],
    cache: C,
    max_lengths: Sequence[int],
    *,
    width: int,
    bos_id: int,
    eos_id: int,
    alpha: float = 0.6,
    num_best: int = 1,
    prefixes: Sequence[Sequence[int]] = (),
    keep_steps: bool = False,
    device: torch.device | None = None,
) -> list[BeamResult]:
    """Return the `num_best` best hypotheses of each sentence (fewer if fewer ended). The cache starts with one beam each."""
    assert 1 <= num_best <= width, f"{num_best} hypotheses from a beam of {width}"
    forced = forced_tokens(prefixes or [()] * len(max_lengths), max_lengths, eos_id=eos_id)
    sentences = [_Sentence(max_length, [], []) for max_length in max_lengths]
    rows = list(range(len(sentences)))  # the sentence of each row of the tensors below
    tokens = torch.full((len(rows), 1, 1), bos_id, device=device)  # (B, W, T), BOS first
    exact = torch.float32 if device is not None and device.type == "mps" else torch.float64  # MPS has no float64
    log_probs = torch.zeros(len(rows), 1, 0, device=device, dtype=exact)
    totals = torch.zeros(len(rows), 1, device=device, dtype=exact)
    while rows:
        length = tokens.shape[2]  # that of a hypothesis that ends now, EOS counted
        next_log_probs = step(tokens[:, :, -1].flatten(), cache).unflatten(0, totals.shape)
        forced_now = forced[rows, length - 1]  # read on the CPU, without a sync
        proposals = propose(
            next_log_probs,
            totals,
            forced_now.to(next_log_probs.device) if int(forced_now.max()) >= 0 else None,
            num_proposals=2 * width,
        )
        ends, kept, totals = proposals.split(width, eos_id)
        finishing = ends[:, :width]
        for row, place in finishing.nonzero().tolist():
            parent = int(proposals.parents[row, place])
            ids = tokens[row, parent, 1:].tolist()
            taken = [*log_probs[row, parent].tolist(), float(proposals.log_probs[row, place])]
            sentences[rows[row]].finished.append(hypothesis(ids, taken, alpha))
        if keep_steps:
            for row, candidates in enumerate(_candidates(proposals, finishing, kept)):
                sentences[rows[row]].steps.append(candidates)
        done = [
            sentences[row].is_done(best, length, width=width, num_best=num_best, alpha=alpha)
            for row, best in zip(rows, totals[:, 0].tolist(), strict=True)
        ]
        order = torch.tensor(without(done), dtype=torch.long, device=device)
        rows = [rows[row] for row in order.tolist()]
        parents = proposals.parents.gather(1, kept)
        tokens = _extended(tokens, parents, proposals.tokens.gather(1, kept))
        log_probs = _extended(log_probs, parents, proposals.log_probs.gather(1, kept))
        cache.select(parents)
        if any(done):
            cache.select_sentences(order)
            tokens, log_probs, totals = tokens[order], log_probs[order], totals[order]
    return [
        BeamResult(tuple(sorted(sentence.finished, key=lambda found: -found.score)[:num_best]), tuple(sentence.steps))
        for sentence in sentences
    ]


def propose(
    log_probs: Float[Tensor, "B W V"],
    totals: Float[Tensor, "B W"],
    forced: Int[Tensor, " B"] | None,
    *,
    num_proposals: int,
) -> Proposals:
    """Return the best proposals of all beams, of which each beam's best are found first. A forced token is a beam's only
    proposal; -1 is none."""
    best, tokens = log_probs.topk(min(num_proposals, log_probs.shape[2]), dim=2)  # (B, W, P)
    if forced is not None:
        is_forced = (forced >= 0)[:, None]
        only = forced.clamp(min=0)[:, None, None].expand(-1, log_probs.shape[1], 1)
        best = best.masked_fill(is_forced[:, :, None], -math.inf)
        best[:, :, 0] = torch.where(is_forced, log_probs.gather(2, only)[:, :, 0], best[:, :, 0])
        tokens[:, :, 0] = torch.where(is_forced, only[:, :, 0], tokens[:, :, 0])
    all_totals = (totals[:, :, None] + best).flatten(1)
    chosen_totals, places = all_totals.topk(min(num_proposals, all_totals.shape[1]), dim=1)
    return Proposals(
        totals=chosen_totals,
        log_probs=best.flatten(1).gather(1, places),
        parents=places // best.shape[2],
        tokens=tokens.flatten(1).gather(1, places),
    )


def _extended(history: Tensor, parents: Int[Tensor, "B W"], new: Tensor) -> Tensor:
    """Return each new beam's history: its parent's, and one more entry."""
    past = history.gather(1, parents[:, :, None].expand(-1, -1, history.shape[2]))
    return torch.cat([past, new[:, :, None].to(past)], dim=2)


def _candidates(proposals: Proposals, finishing: Tensor, kept: Int[Tensor, "B W"]) -> list[tuple[Candidate, ...]]:
    """Return each row's proposals in the order of their totals, without impossible ones."""
    table = zip(*(column.tolist() for column in (*proposals, finishing, kept)), strict=True)
    found = []
    for totals, _, parents, tokens, ends, chosen in table:
        fates: list[Fate] = ["kept" if place in chosen else "pruned" for place in range(len(totals))]
        fates[: len(ends)] = ["finished" if end else fate for end, fate in zip(ends, fates, strict=False)]
        rows = zip(parents, tokens, totals, fates, strict=True)
        found.append(tuple(Candidate(*row) for row in rows if row[2] > -math.inf))
    return found
