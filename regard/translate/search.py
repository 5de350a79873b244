"""The settings of a search, and the choice between the two implementations of search, which find the same translations.

On a GPU, `regard.fast.decoding` searches one Transformer with static shapes. Everything else (CPUs, RNNs, ensembles,
samples) goes through `regard.search`, a batch at a time.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.data.batch import collate_sources
from regard.errors import UserError
from regard.model.sequence import EncoderDecoder
from regard.model.trace import Intervention
from regard.model.transformer import Transformer
from regard.search.beam import beam
from regard.search.ensemble import Caches, ensemble
from regard.search.greedy import greedy
from regard.search.hypothesis import Cache, Hypothesis, Sentence, Step, forbid
from regard.search.sample import MODEL_DISTRIBUTION, Sampling, own_draws, sample
from regard.text.tokenizer import BOS_ID, EOS_ID, NEVER_OUTPUT

if TYPE_CHECKING:
    from regard.fast.decoding.search import StaticSearch

MAX_EXTRA = 50
MOST_CANDIDATES = 10_000  # of a text
MOST_ALPHA = 10  # 1 is division by length; far beyond, numbers overflow


def started(
    model: EncoderDecoder, src: Int[Tensor, "B S"], intervention: Intervention | None = None
) -> tuple[Step[Cache], Cache]:
    """Encode the sources once and return the step and the cache that a search takes."""

    def step(ids: Int[Tensor, " N"], cache: Cache) -> Float[Tensor, "N V"]:
        return forbid(model.step(ids, cache, intervention=intervention), NEVER_OUTPUT)

    return cast("Step[Cache]", step), cast("Cache", model.start(src, intervention=intervention))


def require_alpha(alpha: float) -> None:
    if not -MOST_ALPHA <= alpha <= MOST_ALPHA:
        raise UserError(f"the length penalty's α is {alpha}; it must lie between -{MOST_ALPHA} and {MOST_ALPHA}")


@dataclass(frozen=True, kw_only=True)
class Search:
    """The settings of a search, by default the paper's (section 6.1). A beam of 1 is greedy search."""

    beam: int = 4
    alpha: float = 0.6  # of the length penalty; 0: none
    num_best: int = 1  # translations to return for each text
    samples: int = 0  # number of translations to draw at random instead of searching
    sampling: Sampling = MODEL_DISTRIBUTION
    seed: int = 1  # of the samples; a text's samples do not depend on the other texts
    minimum_risk: bool = False  # return the candidate most like all the others (by chrF)
    max_extra: int = MAX_EXTRA  # tokens that an output may have beyond its input

    def __post_init__(self) -> None:
        if not 1 <= self.beam <= MOST_CANDIDATES:
            raise UserError(f"a beam of {self.beam}; it must be at least 1 and at most {MOST_CANDIDATES:,}")
        if not 0 <= self.samples <= MOST_CANDIDATES:
            raise UserError(f"{self.samples} samples; it must be at most {MOST_CANDIDATES:,}, or 0 to search instead")
        if not 1 <= self.num_best <= self.num_candidates:
            source = f"{self.samples} samples" if self.samples else f"a beam of {self.beam}"
            raise UserError(f"{self.num_best} translations cannot come from {source}; ask for fewer, or widen it")
        if self.minimum_risk and self.num_candidates < 2:
            raise UserError("minimum risk needs candidates to compare; give a beam or samples of 2 or more")
        require_alpha(self.alpha)
        if self.max_extra < 0:
            raise UserError(f"an output cannot be {self.max_extra} tokens longer than its input; give at least 0")

    @property
    def num_candidates(self) -> int:
        return self.samples or self.beam


@dataclass(frozen=True, kw_only=True)
class BatchSize:
    """The size of a batch, in source tokens (padding counted) or in sentences. It changes the speed only. By default, as
    many tokens as suit the device."""

    tokens: int = 0
    sentences: int = 0

    def __post_init__(self) -> None:
        if self.tokens and self.sentences:
            raise UserError("a batch is measured in tokens or in sentences; give one of them")
        if min(self.tokens, self.sentences) < 0:
            raise UserError("a batch has at least 1 token or sentence")


@dataclass(frozen=True, eq=False)
class Searcher:
    """A search with one model or with an ensemble, which keeps the static buffers of a GPU from one call to the next."""

    models: tuple[EncoderDecoder, ...]
    fast: bool = True  # False: never by static shapes

    @property
    def device(self) -> torch.device:
        return self.models[0].output_weight.device

    @cached_property
    def static(self) -> "StaticSearch | None":
        """The search with static shapes, which keeps a queue of sentences; None where it does not serve."""
        [*others, model] = self.models
        if not self.fast or self.device.type != "cuda" or others or not isinstance(model, Transformer):
            return None
        from regard.fast.decoding.search import StaticSearch

        return StaticSearch(model)

    def num_places(self, width: int) -> int | None:
        """Return the most sentences that are worth searching at once; None where there is no such number."""
        if self.static is None:
            return None
        from regard.fast.decoding.search import suitable_places

        return suitable_places(width)

    def search(self, sentences: Sequence[Sentence], search: Search, *, num_places: int = 0) -> list[list[Hypothesis]]:
        """Return each sentence's candidates, the best first, or in the order drawn. With static shapes, `num_places`
        sentences are searched at once, or as many as suit the device (0); otherwise all are."""
        if not sentences:
            return []
        width, alpha, device = search.beam, search.alpha, self.device
        num_best = width if search.minimum_risk else search.num_best  # minimum risk chooses among the whole beam
        if self.static is not None and not search.samples:
            return self.static.search(sentences, width=width, alpha=alpha, num_best=num_best, num_places=num_places)
        src = collate_sources([sentence.ids for sentence in sentences]).to(device)
        limits, prefixes = [sentence.limit for sentence in sentences], [sentence.prefix for sentence in sentences]
        steps, caches = zip(*(started(model, src) for model in self.models), strict=True)
        step, cache = (steps[0], caches[0]) if len(steps) == 1 else (cast("Step[Cache]", ensemble(steps)), Caches(caches))
        if search.samples:
            draws = _draws(sentences, search).to(device)
            return sample(
                step,
                cache,
                limits,
                draws,
                sampling=search.sampling,
                bos_id=BOS_ID,
                eos_id=EOS_ID,
                prefixes=prefixes,
                alpha=alpha,
            )
        if width == 1:
            found = greedy(step, cache, limits, bos_id=BOS_ID, eos_id=EOS_ID, prefixes=prefixes, alpha=alpha, device=device)
            return [[one] for one in found]
        results = beam(
            step,
            cache,
            limits,
            width=width,
            bos_id=BOS_ID,
            eos_id=EOS_ID,
            alpha=alpha,
            num_best=num_best,
            prefixes=prefixes,
            device=device,
        )
        return [list(result.hypotheses) for result in results]


def _draws(sentences: Sequence[Sentence], search: Search) -> Float[Tensor, "B W T"]:
    """Return each sentence's own random numbers, which depend on the seed and on its tokens alone."""
    num_tokens = max(sentence.limit for sentence in sentences) + 1
    draws = torch.zeros(len(sentences), search.samples, num_tokens)
    for row, sentence in enumerate(sentences):
        own = len(sentence.ids) + search.max_extra + 1  # does not depend on the longest sentence of the batch
        numbers = own_draws((search.seed, list(sentence.ids)), search.samples, own)
        draws[row, :, :own] = numbers[:, :num_tokens]
    return draws
