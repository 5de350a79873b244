"""Tests of a decoding step's attention by our own kernels against torch's; on a GPU if there is one, else interpreted."""

import math
import random

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from regard.fast.decoding.batching import ContinuousBatching
from regard.fast.decoding.decoder import Extent, StaticDecoder
from regard.fast.kernels.decoding import attend_to_past, attend_to_source
from regard.fast.support import decodes
from tests.unit.test_continuous_batching import assert_same, ending_model, random_sentences

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
TOLERANCES = {torch.float32: 1e-5, torch.bfloat16: 2e-2}
SHAPES = [(1, 16, torch.float32), (4, 64, torch.float32), (5, 16, torch.float32), (4, 16, torch.bfloat16)]
NUM_HEADS = 2


def projected(num_places: int, width: int, d_head: int, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """Return queries, keys and values as a fused projection gives them: slices of longer rows."""
    rows = torch.randn(num_places, width, 3, NUM_HEADS, d_head, device=DEVICE).to(dtype)
    q, k, v = (part.transpose(1, 2) for part in rows.unbind(2))
    return q, k, v


def room(num_places: int, num_slots: int, d_head: int, dtype: torch.dtype) -> Tensor:
    """Return an uninitialised cache of a layer as a view of a larger tensor."""
    whole = torch.full((3, num_places + 1, num_slots + 7, NUM_HEADS, d_head), math.nan, device=DEVICE, dtype=dtype)
    return whole[1, :num_places, :num_slots]


def expected(q: Tensor, k: Tensor, v: Tensor, mask: Tensor, scale: float | None = None) -> Tensor:
    """Compute by torch in float64. Masked values must not be NaN here, because they are multiplied by zero."""
    k, v = (part.double().nan_to_num().transpose(1, 2) for part in (k, v))
    heads = F.scaled_dot_product_attention(q.double(), k, v, attn_mask=mask[:, None], scale=scale)
    return heads.transpose(1, 2).flatten(2)


@pytest.mark.parametrize(("width", "d_head", "dtype"), SHAPES)
@pytest.mark.parametrize("scale", [None, 1.0])
def test_beams_attend_to_their_past_and_themselves(width: int, d_head: int, dtype: torch.dtype, scale: float | None) -> None:
    """Use pasts of all lengths, over several blocks of slots; slots that are unwritten or without descendants are NaN."""
    lengths = torch.tensor([0, 1, 2, 70 // width + 3, 9], device=DEVICE)
    num_places, num_slots = len(lengths), (int(lengths.max()) + 2) * width
    q, new_k, new_v = projected(num_places, width, d_head, dtype)
    keys, values = (room(num_places, num_slots, d_head, dtype) for _ in range(2))
    ancestry = torch.rand(num_places, width + 1, num_slots + 5, device=DEVICE)[:, :width, :num_slots] < 0.4
    ancestry[4] = False  # a past without descendants
    is_past = torch.arange(num_slots, device=DEVICE) < lengths[:, None] * width
    seen = ancestry.any(1) & is_past
    for tensor in (keys, values):
        tensor[seen] = torch.randn(int(seen.sum()), NUM_HEADS, d_head, device=DEVICE).to(dtype)
    before = keys.clone(), values.clone()
    found = attend_to_past(q, new_k, new_v, keys, values, ancestry=ancestry, lengths=lengths, scale=scale)

    slots = lengths[:, None] * width + torch.arange(width, device=DEVICE)  # (B, W)
    places = torch.arange(num_places, device=DEVICE)[:, None]
    for tensor, old, new in zip((keys, values), before, (new_k, new_v), strict=True):
        old[places, slots] = new.transpose(1, 2)
        torch.testing.assert_close(tensor, old, rtol=0, atol=0, equal_nan=True)  # exactly these, and no others, are written
        around = tensor._base
        assert around is not None and around.isfinite().sum() == tensor.isfinite().sum()
    itself = torch.zeros_like(ancestry).scatter_(2, slots[:, :, None], True)
    theirs = expected(q, keys, values, (ancestry & is_past[:, None]) | itself, scale)
    torch.testing.assert_close(found.double(), theirs, atol=TOLERANCES[dtype], rtol=TOLERANCES[dtype])


@pytest.mark.parametrize(("width", "d_head", "dtype"), SHAPES)
@pytest.mark.parametrize("scale", [None, 1.0])
def test_beams_attend_to_their_source(width: int, d_head: int, dtype: torch.dtype, scale: float | None) -> None:
    lengths = torch.tensor([3, 0, 71, 1, 16], device=DEVICE)
    q, _, _ = projected(len(lengths), width, d_head, dtype)
    keys, values = (room(len(lengths), 80, d_head, dtype) for _ in range(2))
    is_token = torch.arange(80, device=DEVICE) < lengths[:, None]
    for tensor in (keys, values):
        tensor[is_token] = torch.randn(int(lengths.sum()), NUM_HEADS, d_head, device=DEVICE).to(dtype)
    found = attend_to_source(q, keys, values, lengths=lengths, scale=scale)
    assert (found[1] == 0).all(), "where there is nothing to attend to"
    theirs = expected(q, keys, values, is_token[:, None].expand(-1, width, -1), scale)
    torch.testing.assert_close(
        found.double()[lengths > 0], theirs[lengths > 0], atol=TOLERANCES[dtype], rtol=TOLERANCES[dtype]
    )


def test_scores_beyond_all_reason_stay_numbers() -> None:
    q, k, v = (1e3 * part for part in projected(2, 4, 16, torch.float32))
    keys, values = (room(2, 64, 16, torch.float32) for _ in range(2))
    keys[:, :40], values[:, :40] = 1e3, 1.0
    ancestry = torch.ones(2, 4, 64, dtype=torch.bool, device=DEVICE)
    lengths = torch.tensor([10, 0], device=DEVICE)
    assert attend_to_past(q, k, v, keys, values, ancestry=ancestry, lengths=lengths).isfinite().all()
    assert attend_to_source(q, keys, values, lengths=lengths).isfinite().all()


def test_what_the_kernels_serve() -> None:
    assert decodes(4, 64, torch.float32) and decodes(1, 16, torch.bfloat16)
    assert not decodes(9, 64, torch.float32) and not decodes(4, 48, torch.float32) and not decodes(4, 64, torch.float64)


@pytest.mark.parametrize(("width", "ablation"), [(1, "none"), (3, "none"), (4, "scale"), (2, "projections")])
def test_a_search_with_the_kernels_finds_what_one_without_them_finds(width: int, ablation: str) -> None:
    """Use more sentences than places, so that places are refilled, and finished ones compute on beside the others."""
    model = ending_model(torch.float32, decoder_layers=1, d_model=32, num_heads=2, ablation=ablation).to(DEVICE)
    sentences = random_sentences(random.Random(width), 5, longest=8, most_extra=4)
    found = []
    for kernels in (False, True):
        decoder = StaticDecoder.of(model, Extent(2, 32, 32), width=width, num_best=width, graphs=False, kernels=kernels)
        assert decoder.cache.kernels == kernels
        with torch.no_grad():
            found.append(ContinuousBatching(decoder, sentences, num_places=2, alpha=0.6).run())
    assert_same(found[1], found[0], 1e-5)
    assert len({len(one.ids) for ones in found[0] for one in ones}) > 2, "all alike would prove little"


def test_without_a_kernel_for_it_a_model_is_searched_as_ever() -> None:
    decoder = StaticDecoder.of(
        ending_model(torch.float64), Extent(4, 32, 32), width=3, num_best=1, graphs=False, kernels=True
    )
    assert not decoder.cache.kernels
