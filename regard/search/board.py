"""What beam and greedy search remember, where every shape and address must stay: a step can be recorded once and replayed.

B sentences have a place each. A step writes down, for each of them, what was kept and what ended, and by itself decides what
is done; the host looks at that when it likes, and reads hypotheses off the notes, from their ends backwards. Rules are those
of `beam.py` and `greedy.py`, which are what the tests compare with; a place whose sentence is done goes on computing, and
what comes of it is thrown away.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.search.beam import propose
from regard.search.hypothesis import Hypothesis, hypothesis, length_penalty

Notes = Sequence[Sequence[Sequence[float]]]  # of one sentence: steps, moves, numbers


@dataclass(frozen=True)
class BeamBoard:
    """Beam search. A move is (token, parent, log-probability); the first W moves of a step are the new beams, the others
    what ended, with parent -1 where nothing did. Notes are float64, which holds each of these as it is; behind the last step
    there is room for what is thrown away."""

    ids: Int[Tensor, "B W"]  # what each beam is fed next
    totals: Float[Tensor, "B W"]
    steps: Int[Tensor, " B"]  # until it was done
    limits: Int[Tensor, " B"]
    forced: Int[Tensor, "B T"]
    num_finished: Int[Tensor, " B"]
    best_scores: Float[Tensor, "B num_best"]  # of what is finished, in their order
    is_done: Bool[Tensor, " B"]
    notes: Float[Tensor, "B T M 3"]
    penalties: Float[Tensor, " _"]  # of each length
    places: Int[Tensor, " B"]
    bos_id: int
    eos_id: int

    @classmethod
    def empty(
        cls, *, num_places: int, width: int, num_steps: int, num_best: int, bos_id: int, eos_id: int, device: torch.device
    ) -> "BeamBoard":
        """Every place is done with nothing."""
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
        """Another search, with a length penalty of its own."""
        table = torch.tensor([length_penalty(length, alpha) for length in range(len(self.penalties))], dtype=torch.float64)
        self.penalties.copy_(table)
        self.is_done.fill_(True)

    def window(self, num_places: int) -> "BeamBoard":
        """The first places: views, so that what is done to them is done here."""
        return BeamBoard(
            ids=self.ids[:num_places],
            totals=self.totals[:num_places],
            steps=self.steps[:num_places],
            limits=self.limits[:num_places],
            forced=self.forced[:num_places],
            num_finished=self.num_finished[:num_places],
            best_scores=self.best_scores[:num_places],
            is_done=self.is_done[:num_places],
            notes=self.notes[:num_places],
            penalties=self.penalties,
            places=self.places[:num_places],
            bos_id=self.bos_id,
            eos_id=self.eos_id,
        )

    def fill(self, places: Int[Tensor, " R"], limits: Int[Tensor, " R"], forced: Int[Tensor, "R T"]) -> None:
        """New sentences, at their beginning: one beam each, for the others are impossible."""
        self.ids.index_fill_(0, places, self.bos_id)
        self.totals.index_fill_(0, places, -math.inf)
        self.totals[:, 0].index_fill_(0, places, 0.0)
        for tensor in (self.steps, self.num_finished, self.is_done):
            tensor.index_fill_(0, places, 0)
        self.best_scores.index_fill_(0, places, -math.inf)
        self.limits[places] = limits
        self.forced[places] = forced

    def move(self, sources: Int[Tensor, " R"], targets: Int[Tensor, " R"]) -> None:
        """Sentences to other places; those they leave are done with nothing."""
        for tensor in (self.ids, self.totals, self.steps, self.limits, self.forced, self.num_finished, self.best_scores):
            tensor[targets] = tensor[sources]
        self.notes[targets] = self.notes[sources]
        self.is_done[targets] = self.is_done[sources]
        self.is_done.index_fill_(0, sources, True)

    def advance(self, log_probs: Float[Tensor, "N V"]) -> Int[Tensor, "B W"]:
        """One step of all sentences: `beam`'s loop, once. Returns each new beam's parent."""
        forced = self.forced.gather(1, self.steps[:, None])[:, 0]
        proposals = propose(log_probs.unflatten(0, self.ids.shape), self.totals, forced, num_proposals=2 * self.width)
        ends, kept, totals = proposals.split(self.width, self.eos_id)
        finishing = ends[:, : self.width]
        self.totals.copy_(totals)
        parents = proposals.parents.gather(1, kept)
        self.ids.copy_(proposals.tokens.gather(1, kept))
        moves = torch.stack(
            [proposals.tokens.double(), proposals.parents.double(), proposals.log_probs.double()], dim=2
        )  # (B, P, 3)
        ended = moves[:, : self.width].clone()
        ended[:, :, 1].masked_fill_(~finishing, -1.0)
        kept_moves = moves.gather(1, kept[:, :, None].expand(-1, -1, 3))
        self.notes[self.places, self.steps] = torch.cat([kept_moves, ended], dim=1)
        lengths = self.steps + 1  # of a hypothesis that ends now, EOS counted
        scores = proposals.totals[:, : self.width] / self.penalties[lengths][:, None]
        scores = torch.cat([self.best_scores, scores.masked_fill(~finishing, -math.inf)], dim=1)
        self.best_scores.copy_(scores.topk(self.best_scores.shape[1], dim=1).values)
        self.num_finished.add_(finishing.sum(1))
        self._close(lengths)
        return parents

    def _close(self, lengths: Int[Tensor, " B"]) -> None:
        """What `beam` asks of each sentence after a step. Probabilities that are no numbers are an end, too."""
        self.steps.add_(~self.is_done)
        best = self.totals[:, 0]
        largest = torch.maximum(self.penalties[lengths + 1], self.penalties[self.limits + 1])
        width, num_best = self.width, self.best_scores.shape[1]
        cannot_be_beaten = (self.num_finished >= num_best) & (self.best_scores[:, -1] >= best / largest)
        self.is_done.logical_or_(cannot_be_beaten | (self.num_finished >= width) | ~best.isfinite())

    def read(self, notes: Notes, alpha: float) -> list[Hypothesis]:
        """What was found for a sentence, by the notes of its steps: the best hypotheses, in their order."""
        found = []
        for step, moves in enumerate(notes):
            for _, parent, log_prob in moves[self.width :]:
                if parent >= 0:
                    found.append(self._traced(notes, step, int(parent), log_prob, alpha))
        assert not any(math.isnan(log_prob) for moves in notes[-1:] for _, _, log_prob in moves), (
            "the model gives probabilities that are no numbers"
        )
        return sorted(found, key=lambda one: -one.score)[: self.best_scores.shape[1]]

    def _traced(self, notes: Notes, step: int, beam: int, log_prob: float, alpha: float) -> Hypothesis:
        """The way back from an end."""
        ids, log_probs = [], [log_prob]
        for moves in reversed(notes[:step]):
            token, parent, taken = moves[beam]
            ids.append(int(token))
            log_probs.append(taken)
            beam = int(parent)
        return hypothesis(ids[::-1], log_probs[::-1], alpha)


@dataclass(frozen=True)
class GreedyBoard:
    """Greedy search. A step's note is (token, log-probability); behind the last there is room for what is thrown away."""

    ids: Int[Tensor, "B 1"]
    steps: Int[Tensor, " B"]
    forced: Int[Tensor, "B T"]
    is_done: Bool[Tensor, " B"]
    notes: Float[Tensor, "B T 1 2"]
    places: Int[Tensor, " B"]
    bos_id: int
    eos_id: int

    @classmethod
    def empty(cls, *, num_places: int, num_steps: int, bos_id: int, eos_id: int, device: torch.device) -> "GreedyBoard":
        """Every place is done with nothing."""
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

    def begin(self, _alpha: float) -> None:
        """Another search; what lengths are worth does not change what is found."""
        self.is_done.fill_(True)

    def window(self, num_places: int) -> "GreedyBoard":
        return GreedyBoard(
            ids=self.ids[:num_places],
            steps=self.steps[:num_places],
            forced=self.forced[:num_places],
            is_done=self.is_done[:num_places],
            notes=self.notes[:num_places],
            places=self.places[:num_places],
            bos_id=self.bos_id,
            eos_id=self.eos_id,
        )

    def fill(self, places: Int[Tensor, " R"], _limits: Int[Tensor, " R"], forced: Int[Tensor, "R T"]) -> None:
        """New sentences, at their beginning."""
        self.ids.index_fill_(0, places, self.bos_id)
        for tensor in (self.steps, self.is_done):
            tensor.index_fill_(0, places, 0)
        self.forced[places] = forced

    def move(self, sources: Int[Tensor, " R"], targets: Int[Tensor, " R"]) -> None:
        """Sentences to other places; those they leave are done with nothing."""
        for tensor in (self.ids, self.steps, self.forced, self.is_done, self.notes):
            tensor[targets] = tensor[sources]
        self.is_done.index_fill_(0, sources, True)

    def advance(self, log_probs: Float[Tensor, "B V"]) -> None:
        """One step of all sentences: `greedy`'s loop, once."""
        forced = self.forced.gather(1, self.steps[:, None])
        torch.where(forced >= 0, forced, log_probs.argmax(-1, keepdim=True), out=self.ids)
        note = torch.stack([self.ids.double(), log_probs.gather(1, self.ids).double()], dim=2)  # (B, 1, 2)
        self.notes[self.places, self.steps] = note
        self.steps.add_(~self.is_done)
        self.is_done.logical_or_(self.ids[:, 0] == self.eos_id)

    def read(self, notes: Notes, alpha: float) -> list[Hypothesis]:
        """What was found for a sentence: one hypothesis, by the notes of its steps."""
        moves = [move for step in notes for move in step]
        return [hypothesis([int(token) for token, _ in moves[:-1]], [log_prob for _, log_prob in moves], alpha)]


Board = BeamBoard | GreedyBoard
