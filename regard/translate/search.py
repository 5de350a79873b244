"""How to look for a translation: what the searches of `regard.search` are told."""

from dataclasses import dataclass
from functools import partial
from typing import cast

from jaxtyping import Int
from torch import Tensor

from regard.model.kinds import EncoderDecoder
from regard.model.trace import Intervention
from regard.search.hypothesis import Cache, Step
from regard.search.sample import Sampling

AS_THE_MODEL_SAYS = Sampling()
MAX_EXTRA = 50
MOST_ALPHA = 10  # 1 is division by length; far beyond, numbers overflow


def started(
    model: EncoderDecoder, src: Int[Tensor, "B S"], intervention: Intervention | None = None
) -> tuple[Step[Cache], Cache]:
    """What a search takes: a step, and the cache that goes with it. The sources are encoded, once."""
    step = partial(model.step, intervention=intervention)
    return cast("Step[Cache]", step), cast("Cache", model.start(src, intervention=intervention))


def require_alpha(alpha: float) -> None:
    if not -MOST_ALPHA <= alpha <= MOST_ALPHA:
        raise ValueError(f"the length penalty's α is {alpha}; it must lie between -{MOST_ALPHA} and {MOST_ALPHA}")


@dataclass(frozen=True, kw_only=True)
class Search:
    """The defaults are the paper's (section 6.1). A beam of 1 is greedy search."""

    beam: int = 4
    alpha: float = 0.6  # of the length penalty; 0: none
    num_best: int = 1  # translations to return for each text
    samples: int = 0  # draw so many at random instead of searching
    sampling: Sampling = AS_THE_MODEL_SAYS
    seed: int = 1  # of what is drawn; a text's draws do not depend on its neighbours
    minimum_risk: bool = False  # of the candidates, take the one most like all the others (by chrF)
    max_extra: int = MAX_EXTRA  # tokens that an output may have beyond its input

    def __post_init__(self) -> None:
        if self.beam < 1:
            raise ValueError(f"a beam of {self.beam}; it must be at least 1")
        if self.samples < 0:
            raise ValueError(f"{self.samples} samples; it must be at least 1, or 0 to search instead")
        if not 1 <= self.num_best <= self.num_candidates:
            source = f"{self.samples} samples" if self.samples else f"a beam of {self.beam}"
            raise ValueError(f"{self.num_best} translations cannot come from {source}; ask for fewer, or widen it")
        if self.minimum_risk and self.num_candidates < 2:
            raise ValueError("minimum risk needs candidates to compare; give a beam or samples of 2 or more")
        require_alpha(self.alpha)
        if self.max_extra < 0:
            raise ValueError(f"an output cannot be {self.max_extra} tokens longer than its input; give at least 0")

    @property
    def num_candidates(self) -> int:
        return self.samples or self.beam


@dataclass(frozen=True, kw_only=True)
class BatchSize:
    """How much is translated at once, which changes the speed and nothing else: so many sentences, or so many source tokens,
    padding counted. 0 and 0: as many tokens as suit the device."""

    tokens: int = 0
    sentences: int = 0

    def __post_init__(self) -> None:
        if self.tokens and self.sentences:
            raise ValueError("a batch is measured in tokens or in sentences; give one of them")
        if min(self.tokens, self.sentences) < 0:
            raise ValueError("a batch has at least 1 token or sentence")
