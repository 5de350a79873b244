"""Beam and greedy search of a Transformer on a GPU with static shapes, with the results of `regard.search`."""

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from regard.fast.decoding.batching import FEWEST_KEYS, ContinuousBatching
from regard.fast.decoding.decoder import Extent, StaticDecoder, positions_for, power_of_two
from regard.fast.support import runs_kernels
from regard.model.transformer import Transformer
from regard.search.hypothesis import Hypothesis, Sentence

MOST_DECODERS = 2  # beam and greedy search
MOST_SHARE = 0.25  # of a GPU's memory that the cache of a decoder may take
MOST_PLACES = 128  # sentences in a batch, by default
MOST_ROWS = 512  # beams of all sentences in a batch


@dataclass(eq=False)
class StaticSearch:
    """A model with its decoders. A decoder is kept from one search to the next while it is large enough, and while the
    weights stay at their addresses (their values may change)."""

    model: Transformer
    graphs: bool = True  # False: steps are launched kernel by kernel, which is slower
    kernels: bool = True  # False: attention uses torch's kernels, not our own
    decoders: dict[tuple[int, int], StaticDecoder] = field(default_factory=dict)  # by width and number of hypotheses
    lock: threading.Lock = field(default_factory=threading.Lock)  # a decoder serves one search at a time

    @torch.no_grad()
    def search(
        self, sentences: Sequence[Sentence], *, width: int, alpha: float, num_best: int = 1, num_places: int = 0
    ) -> list[list[Hypothesis]]:
        """Return the best hypotheses of each sentence. A batch has `num_places` sentences or, if that is 0, as many as
        suit the device. A width of 1 is greedy search."""
        self.model.require_eval("decoding")
        if not sentences:
            return []
        with self.lock:
            decoder = self._decoder(sentences, width, num_best, num_places or suitable_places(width))
            asked = min(num_places or decoder.extent.num_places, decoder.extent.num_places)
            try:
                return ContinuousBatching(decoder, sentences, num_places=asked, alpha=alpha).run()
            except BaseException:
                self.decoders.clear()  # their state may hold parts of the broken search
                raise

    def _decoder(self, sentences: Sequence[Sentence], width: int, num_best: int, num_places: int) -> StaticDecoder:
        """Return a decoder that is large enough for these sentences: the last one if it is, else a new one."""
        model = self.model
        device = model.output_weight.device
        assert max(sentence.limit for sentence in sentences) < model.config.longest_sequence
        needed = Extent(
            num_places=min(num_places, power_of_two(len(sentences))),
            num_positions=positions_for(1 + max(sentence.limit for sentence in sentences), model.config.longest_sequence),
            num_keys=max(FEWEST_KEYS, power_of_two(1 + max(len(sentence.ids) for sentence in sentences))),
        )
        needed = needed._replace(num_places=min(needed.num_places, bearable_places(model, width, needed.num_positions)))
        decoder = self.decoders.pop((width, num_best), None)
        if decoder is None or not decoder.is_current or not decoder.extent.holds(needed):
            if decoder is not None:  # hold both extents, or alternating searches would build a new one each time
                both = Extent(*map(max, decoder.extent, needed))
                needed = both if both.num_places <= bearable_places(model, width, both.num_positions) else needed
            del decoder  # before the new one is built, so that only one has to fit into memory
            while len(self.decoders) >= MOST_DECODERS:
                del self.decoders[next(iter(self.decoders))]
            # Deterministic kernels do not support graphs.
            graphs = self.graphs and device.type == "cuda" and not torch.are_deterministic_algorithms_enabled()
            kernels = self.kernels and device.type == "cuda" and runs_kernels(device)
            decoder = StaticDecoder.of(model, needed, width=width, num_best=num_best, graphs=graphs, kernels=kernels)
        self.decoders[width, num_best] = decoder
        return decoder


def bearable_places(model: Transformer, width: int, num_positions: int) -> int:
    """Return how many sentences' keys and values, in all layers, fit into their share of the device's memory."""
    weight = model.output_weight
    if weight.device.type != "cuda":
        return 2**20
    num_bytes = 2 * len(model.decoder) * width * num_positions * weight.shape[1] * weight.element_size()
    total: int = torch.cuda.get_device_properties(weight.device).total_memory
    return max(1, int(MOST_SHARE * total) // num_bytes)


def suitable_places(width: int) -> int:
    """Return how many sentences keep a GPU busy."""
    return max(1, min(MOST_PLACES, MOST_ROWS // width))
