"""The search of an ensemble, which averages the probabilities of its models."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.search.hypothesis import C, Cache, Step


@dataclass(frozen=True)
class Caches:
    """The caches of an ensemble, one for each model."""

    members: tuple[Cache, ...]

    def select(self, beams: Int[Tensor, "B W"]) -> None:
        for member in self.members:
            member.select(beams)

    def select_sentences(self, sentences: Int[Tensor, " B"]) -> None:
        for member in self.members:
            member.select_sentences(sentences)


def ensemble(steps: Sequence[Step[C]]) -> Step[Caches]:
    """Return a step that gives log (p₁ + … + pₙ) / n of the models' probabilities."""

    def step(ids: Int[Tensor, " N"], caches: Caches) -> Float[Tensor, "N V"]:
        members = zip(steps, caches.members, strict=True)
        log_probs = torch.stack([member(ids, cache) for member, cache in members])  # type: ignore[arg-type]
        return log_probs.logsumexp(0) - math.log(len(steps))

    return step
