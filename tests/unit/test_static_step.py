"""Tests of the static decoding step, a separate implementation of `Transformer.step`, in every configuration it serves."""

import random
from itertools import product
from typing import Any, get_args

import pytest
import torch

from regard.config import Ablation
from regard.fast.decoding.decoder import Extent, StaticDecoder
from regard.fast.decoding.step import step
from regard.search.hypothesis import Sentence
from tests.conftest import VOCAB_SIZE, make_model

WHOLE = [
    {
        "norm": norm,
        "activation": activation,
        "positions": positions,
        "shared_embeddings": shared,
        "output_bias": bias,
        "decoder_layers": layers,
        "num_heads": heads,
    }
    for norm, activation, positions, (shared, bias, layers, heads) in product(
        ["post", "pre"],
        ["relu", "gelu", "silu"],
        ["sinusoidal", "learned", "none"],
        [("all", False, 1, 1), ("target", True, 3, 2), ("none", True, 2, 4)],
    )
]
ABLATED = [{"ablation": ablation, "norm": norm} for ablation in get_args(Ablation) for norm in ("post", "pre")]
NUM_STEPS = 6


@pytest.mark.parametrize("width", [1, 3])
@pytest.mark.parametrize("changes", [*WHOLE, *ABLATED], ids=lambda changes: "-".join(map(str, changes.values())))
def test_a_static_step_is_the_models_own(changes: dict[str, Any], width: int, seed: int) -> None:
    """Decode ragged sources, with beams reordered at every step, and a sentence that restarts while others go on."""
    model = make_model(**changes)
    chance = random.Random(seed)
    sources = [[chance.randrange(4, VOCAB_SIZE) for _ in range(length)] for length in (5, 1, 9)]
    sentences = [Sentence(ids, NUM_STEPS) for ids in sources]
    decoder = StaticDecoder.of(model, Extent(3, 32, 32), width=width, num_best=1, graphs=False)
    decoder.begin(0.0)
    encoded = decoder.encode(sentences)
    decoder.fill(range(3), encoded, range(3), sentences)
    src = torch.full((3, 10), model.config.pad_id)
    for row, source in enumerate(sources):
        src[row, : len(source) + 1] = torch.tensor([*source, 2])
    cache = model.start(src, width=width)
    for number in range(NUM_STEPS):
        ids = torch.tensor([chance.randrange(4, VOCAB_SIZE) for _ in range(3 * width)])
        expected = model.step(ids, cache)
        torch.testing.assert_close(step(model, ids, decoder.cache), expected, atol=1e-10, rtol=0)
        parents = torch.tensor([[chance.randrange(width) for _ in range(width)] for _ in range(3)])
        cache.select(parents)
        decoder.cache.select(parents)
        if number == 2:  # the second sentence restarts
            decoder.fill([1], encoded, [1], [sentences[1]])
            cache.replace(torch.tensor([1]), model.start(src[1:2], width=width))
