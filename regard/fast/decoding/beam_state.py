"""States of beam and greedy search with fixed shapes and addresses, so that a step can be captured once and replayed.

A place is the row b of every tensor that one sentence of a batch occupies. A step writes notes for each place (which beams
were kept and which hypotheses ended) and decides which sentences are done, without a host sync. Later, the host traces
hypotheses through the notes, from their ends backwards. The rules are those of `search.beam` and `search.greedy`, and tests
compare the results. A place whose sentence is done goes on computing, and its results are discarded.
"""

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.search.beam import propose
from regard.search.hypothesis import Hypothesis, hypothesis, length_penalty

Notes = Sequence[Sequence[Sequence[float]]]  # one sentence's notes: steps × moves × numbers


NOT_BY_PLACE = {"penalties", "bos_id", "eos_id"}


@dataclass(frozen=True)
class SearchState:
    """The tensors that both searches have, with a row for each place. A note has M moves; the additional step at
    the end takes notes that are discarded."""

    ids: Int[Tensor, "B W"]  # the tokens that each beam is fed next
    steps: Int[Tensor, " B"]  # steps until the sentence was done
    forced: Int[Tensor, "B T"]  # the token that each step has to choose, or -1
    is_done: Bool[Tensor, " B"]
    notes: Float[Tensor, "B T M _"]
    places: Int[Tensor, " B"]
    bos_id: int
    eos_id: int

    def begin(self, _alpha: float) -> None:
        """Begin another search, with all places free."""
        self.is_done.fill_(True)

    def window(self, num_places: int) -> "SearchState":
        """Return views of the first places."""
        views: dict[str, Any] = {name: tensor[:num_places] for name, tensor in self._by_place().items()}
        return replace(self, **views)

    def fill(self, places: Int[Tensor, " R"], _limits: Int[Tensor, " R"], forced: Int[Tensor, "R T"]) -> None:
        """Put new sentences into these places, before their first step."""
        self.ids.index_fill_(0, places, self.bos_id)
        for tensor in (self.steps, self.is_done):
            tensor.index_fill_(0, places, 0)
        self.forced[places] = forced

    def move(self, sources: Int[Tensor, " R"], targets: Int[Tensor, " R"]) -> None:
        """Move sentences to other places, and mark the places that they leave as done."""
        for name, tensor in self._by_place().items():
            if name != "places":
                tensor[targets] = tensor[sources]
        self.is_done.index_fill_(0, sources, True)

    @abstractmethod
    def advance(self, log_probs: Float[Tensor, "N V"]) -> Int[Tensor, "B W"] | None:
        """Run one step of all sentences. Return each new beam's parent, or None if there is one beam."""

    @abstractmethod
    def read(self, notes: Notes, alpha: float) -> list[Hypothesis]:
        """Return a sentence's best hypotheses, in their order, from the notes of its steps."""

    def _by_place(self) -> dict[str, Tensor]:
        return {one.name: getattr(self, one.name) for one in fields(self) if one.name not in NOT_BY_PLACE}


@dataclass(frozen=True)
class BeamState(SearchState):
    """The state of beam search. A move is (token, parent, log-probability); the first W moves of a step are the new beams,
    the others are hypotheses that ended, with parent -1 if none ended. Notes are float64, which represents each of these
    numbers exactly."""

    totals: Float[Tensor, "B W"]
    limits: Int[Tensor, " B"]
    num_finished: Int[Tensor, " B"]
    best_scores: Float[Tensor, "B num_best"]  # of finished hypotheses, in descending order
    penalties: Float[Tensor, " _"]  # the penalty of each length

    @classmethod
    def empty(
        cls, *, num_places: int, width: int, num_steps: int, num_best: int, bos_id: int, eos_id: int, device: torch.device
    ) -> "BeamState":
        """Return a state with all places free."""
        assert 1 <= num_best <= width, f"{num_best} hypotheses from a beam of {width}"
        return cls(
            ids=torch.full((num_places, width), bos_id, device=device),
            totals=torch.full((num_places, width), -math.inf, dtype=torch.float64, device=device),
            steps=torch.zeros(num_places, dtype=torch.long, device=device),
            limits=torch.zeros(num_places, dtype=torch.long, device=device),
            forced=torch.full((num_places, num_steps + 1), -1, device=device),
            num_finished=torch.zeros(num_places, dtype=torch.long, device=device),
            best_scores=torch.full((num_places, num_best), -math.inf, dtype=torch.float64, device=device),
            is_done=torch.ones(num_places, dtype=torch.bool, device=device),
            notes=torch.zeros(num_places, num_steps + 1, 2 * width, 3, dtype=torch.float64, device=device),
            penalties=torch.ones(num_steps + 3, dtype=torch.float64, device=device),
            places=torch.arange(num_places, device=device),
            bos_id=bos_id,
            eos_id=eos_id,
        )

    @property
    def width(self) -> int:
        return self.ids.shape[1]

    def begin(self, alpha: float) -> None:
        """Begin another search, with this length penalty."""
        super().begin(alpha)
        table = torch.tensor([length_penalty(length, alpha) for length in range(len(self.penalties))], dtype=torch.float64)
        self.penalties.copy_(table)

    def fill(self, places: Int[Tensor, " R"], limits: Int[Tensor, " R"], forced: Int[Tensor, "R T"]) -> None:
        """Put new sentences into these places, before their first step. Beams after the first have probability 0."""
        super().fill(places, limits, forced)
        self.totals.index_fill_(0, places, -math.inf)
        self.totals[:, 0].index_fill_(0, places, 0.0)
        self.num_finished.index_fill_(0, places, 0)
        self.best_scores.index_fill_(0, places, -math.inf)
        self.limits[places] = limits

    def advance(self, log_probs: Float[Tensor, "N V"]) -> Int[Tensor, "B W"]:
        """Run one iteration of the loop of `search.beam`."""
        forced = self.forced.gather(1, self.steps[:, None])[:, 0]
        proposals = propose(log_probs.unflatten(0, self.ids.shape), self.totals, forced, num_proposals=2 * self.width)
        ends, kept, totals = proposals.split(self.width, self.eos_id)
        finishing = ends[:, : self.width]
        self.totals.copy_(totals)
        parents = proposals.parents.gather(1, kept)
        self.ids.copy_(proposals.tokens.gather(1, kept))
        parts = (proposals.tokens, proposals.parents, proposals.log_probs)
        moves = torch.stack([part.double() for part in parts], dim=2)  # (B, P, 3)
        ended = moves[:, : self.width].clone()
        ended[:, :, 1].masked_fill_(~finishing, -1.0)
        kept_moves = moves.gather(1, kept[:, :, None].expand(-1, -1, 3))
        self.notes[self.places, self.steps] = torch.cat([kept_moves, ended], dim=1)
        lengths = self.steps + 1  # of a hypothesis that ends in this step, EOS included
        scores = proposals.totals[:, : self.width] / self.penalties[lengths][:, None]
        scores = torch.cat([self.best_scores, scores.masked_fill(~finishing, -math.inf)], dim=1)
        self.best_scores.copy_(scores.topk(self.best_scores.shape[1], dim=1).values)
        self.num_finished.add_(finishing.sum(1))
        self._close(lengths)
        return parents

    def _close(self, lengths: Int[Tensor, " B"]) -> None:
        """Decide which sentences are done after a step, as `search.beam` does. A NaN probability ends a sentence, too."""
        self.steps.add_(~self.is_done)
        best = self.totals[:, 0]
        largest = torch.maximum(self.penalties[lengths + 1], self.penalties[self.limits + 1])
        width, num_best = self.width, self.best_scores.shape[1]
        cannot_be_beaten = (self.num_finished >= num_best) & (self.best_scores[:, -1] >= best / largest)
        self.is_done.logical_or_(cannot_be_beaten | (self.num_finished >= width) | ~best.isfinite())

    def read(self, notes: Notes, alpha: float) -> list[Hypothesis]:
        found = []
        for step, moves in enumerate(notes):
            for _, parent, log_prob in moves[self.width :]:
                if parent >= 0:
                    found.append(self._traced(notes, step, int(parent), log_prob, alpha))
        assert not any(math.isnan(log_prob) for moves in notes[-1:] for _, _, log_prob in moves), (
            "the model gives probabilities that are not numbers"
        )
        return sorted(found, key=lambda one: -one.score)[: self.best_scores.shape[1]]

    def _traced(self, notes: Notes, step: int, beam: int, log_prob: float, alpha: float) -> Hypothesis:
        """Return a hypothesis by following its parents back from its end."""
        ids, log_probs = [], [log_prob]
        for moves in reversed(notes[:step]):
            token, parent, taken = moves[beam]
            ids.append(int(token))
            log_probs.append(taken)
            beam = int(parent)
        return hypothesis(ids[::-1], log_probs[::-1], alpha)


@dataclass(frozen=True)
class GreedyState(SearchState):
    """The state of greedy search. A step's note is one move, (token, log-probability)."""

    @classmethod
    def empty(cls, *, num_places: int, num_steps: int, bos_id: int, eos_id: int, device: torch.device) -> "GreedyState":
        """Return a state with all places free."""
        return cls(
            ids=torch.full((num_places, 1), bos_id, device=device),
            steps=torch.zeros(num_places, dtype=torch.long, device=device),
            forced=torch.full((num_places, num_steps + 1), -1, device=device),
            is_done=torch.ones(num_places, dtype=torch.bool, device=device),
            notes=torch.zeros(num_places, num_steps + 1, 1, 2, dtype=torch.float64, device=device),
            places=torch.arange(num_places, device=device),
            bos_id=bos_id,
            eos_id=eos_id,
        )

    def advance(self, log_probs: Float[Tensor, "B V"]) -> None:
        """Run one iteration of the loop of `search.greedy`."""
        forced = self.forced.gather(1, self.steps[:, None])
        torch.where(forced >= 0, forced, log_probs.argmax(-1, keepdim=True), out=self.ids)
        note = torch.stack([self.ids.double(), log_probs.gather(1, self.ids).double()], dim=2)  # (B, 1, 2)
        self.notes[self.places, self.steps] = note
        self.steps.add_(~self.is_done)
        self.is_done.logical_or_(self.ids[:, 0] == self.eos_id)

    def read(self, notes: Notes, alpha: float) -> list[Hypothesis]:
        moves = [move for step in notes for move in step]
        return [hypothesis([int(token) for token, _ in moves[:-1]], [log_prob for _, log_prob in moves], alpha)]
