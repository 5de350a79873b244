"""Greedy and beam search over one model or several, by the road that suits. Which one that is, is decided here alone.

On a GPU, one Transformer is searched with static shapes, by a `Queue` through a `Rig`. Everything else (CPUs, RNNs,
ensembles) goes through `search.greedy` and `search.beam`, a batch at a time. What is found is the same.
"""

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import cast

import torch
from jaxtyping import Int
from torch import Tensor

from regard.data.batch import collate_sources
from regard.model.kinds import EncoderDecoder
from regard.model.transformer import Transformer
from regard.search.beam import beam
from regard.search.ensemble import Caches, ensemble
from regard.search.greedy import greedy
from regard.search.hypothesis import Cache, Hypothesis, Step
from regard.text.tokenizer import BOS_ID, EOS_ID
from regard.train.device import runs_kernels
from regard.translate.queue import FEWEST_KEYS, Queue
from regard.translate.rig import Extent, Rig, Sentence, positions_for, power_of_two
from regard.translate.search import started

MOST_RIGS = 2  # beam and greedy search
MOST_SHARE = 0.25  # of a GPU's memory, for what a rig remembers
MOST_PLACES = 128  # sentences under way, unless told otherwise
MOST_ROWS = 512  # beams of all of them


@dataclass(eq=False)
class Searcher:
    models: tuple[EncoderDecoder, ...]
    graphs: bool = True  # False: steps of static shapes are launched one by one, which is slower
    kernels: bool = True  # False: torch's attend in them, not our own
    rigs: dict[tuple[int, int], Rig] = field(default_factory=dict)  # by width and number of hypotheses; the latest last
    lock: threading.Lock = field(default_factory=threading.Lock)  # rigs are for one search at a time

    @property
    def device(self) -> torch.device:
        return self.models[0].output_weight.device

    @property
    def is_static(self) -> bool:
        """Whether it takes a queue: many more sentences than are under way at once."""
        return self.device.type == "cuda" and len(self.models) == 1 and isinstance(self.models[0], Transformer)

    def search(
        self, sentences: Sequence[Sentence], *, width: int, alpha: float, num_best: int = 1, num_places: int = 0
    ) -> list[list[Hypothesis]]:
        """The best hypotheses of each sentence. A width of 1 is greedy. `num_places` sentences are under way at once where
        there is a queue, 0: as many as suit; elsewhere all are."""
        if not sentences:
            return []
        if self.is_static:
            return self.search_queue(sentences, width=width, alpha=alpha, num_best=num_best, num_places=num_places)
        return self.search_batch(sentences, width=width, alpha=alpha, num_best=num_best)

    def search_batch(
        self, sentences: Sequence[Sentence], *, width: int, alpha: float, num_best: int = 1
    ) -> list[list[Hypothesis]]:
        """All at once, on any device, over any models."""
        step, cache = self.start(collate_sources([sentence.ids for sentence in sentences]).to(self.device))
        limits = [sentence.limit for sentence in sentences]
        prefixes = [sentence.prefix for sentence in sentences]
        if width == 1:
            found = greedy(
                step,
                cache,
                limits,
                bos_id=BOS_ID,
                eos_id=EOS_ID,
                prefixes=prefixes,
                alpha=alpha,
                device=self.device,
            )
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
            device=self.device,
        )
        return [list(result.hypotheses) for result in results]

    @torch.no_grad()
    def search_queue(
        self, sentences: Sequence[Sentence], *, width: int, alpha: float, num_best: int = 1, num_places: int = 0
    ) -> list[list[Hypothesis]]:
        """A few at a time, with static shapes, over one Transformer."""
        with self.lock:
            rig = self._rig(sentences, width, num_best, num_places or suitable_places(width))
            asked = num_places or rig.extent.num_places
            try:
                return Queue(rig, sentences, num_places=min(asked, rig.extent.num_places), alpha=alpha).run()
            except BaseException:
                self.rigs.clear()  # whatever happened, nothing of it may be left in their memory
                raise

    def start(self, src: Int[Tensor, "B S"]) -> tuple[Step[Cache], Cache]:
        """What the searches of `regard.search` take."""
        if len(self.models) == 1:
            return started(self.models[0], src)
        steps, caches = zip(*(started(model, src) for model in self.models), strict=True)
        return cast("Step[Cache]", ensemble(steps)), Caches(caches)

    def _rig(self, sentences: Sequence[Sentence], width: int, num_best: int, num_places: int) -> Rig:
        """One that has room for these; the last one, if it has."""
        model = self.models[0]
        assert isinstance(model, Transformer)
        assert max(sentence.limit for sentence in sentences) < model.config.longest_sequence
        needed = Extent(
            num_places=min(num_places, power_of_two(len(sentences))),
            num_positions=positions_for(1 + max(sentence.limit for sentence in sentences), model.config.longest_sequence),
            num_keys=max(FEWEST_KEYS, power_of_two(1 + max(len(sentence.ids) for sentence in sentences))),
        )
        needed = needed._replace(num_places=min(needed.num_places, bearable_places(model, width, needed.num_positions)))
        rig = self.rigs.pop((width, num_best), None)
        if rig is None or not rig.is_current or not rig.extent.holds(needed):
            if rig is not None:  # room for those before as well, or searches of two kinds would build anew in turn
                both = Extent(*map(max, rig.extent, needed))
                needed = both if both.num_places <= bearable_places(model, width, both.num_positions) else needed
            del rig  # first, or there would have to be room for it and the next
            while len(self.rigs) >= MOST_RIGS:
                del self.rigs[next(iter(self.rigs))]
            # Deterministic kernels were not made with graphs in mind.
            graphs = self.graphs and self.device.type == "cuda" and not torch.are_deterministic_algorithms_enabled()
            kernels = self.kernels and self.device.type == "cuda" and runs_kernels(self.device)
            rig = Rig.of(model, needed, width=width, num_best=num_best, graphs=graphs, kernels=kernels)
        self.rigs[width, num_best] = rig
        return rig


def bearable_places(model: Transformer, width: int, num_positions: int) -> int:
    """For so many sentences, keys and values of all layers take no more than their share of the device's memory."""
    weight = model.output_weight
    if weight.device.type != "cuda":
        return 2**20
    num_bytes = 2 * len(model.decoder) * width * num_positions * weight.shape[1] * weight.element_size()
    total: int = torch.cuda.get_device_properties(weight.device).total_memory
    return max(1, int(MOST_SHARE * total) // num_bytes)


def suitable_places(width: int) -> int:
    """As many sentences as keep a GPU busy."""
    return max(1, min(MOST_PLACES, MOST_ROWS // width))
