"""Tests of attention's health: numbers worked out by hand, and warnings if they are bad."""

import math

import pytest
import torch

from regard.data.batch import collate
from regard.model.attention import inspected_attention
from regard.train.health import LayerHealth, _layer_health, attention_health, complaints
from tests.conftest import make_model


def health_of(scores: list[float], mask: list[bool]) -> LayerHealth:
    """Return the health of one query with these scores: q = 1, the keys are the scores, and d_k = 1."""
    q = torch.ones(1, 1, 1, 1, dtype=torch.float64)
    k = torch.tensor(scores, dtype=torch.float64)[None, None, :, None]
    _, attention = inspected_attention(q, k, k, mask=torch.tensor(mask)[None, None, None])
    return _layer_health("cross", 0, attention, torch.tensor([[True]]))


def test_by_hand() -> None:
    even = health_of([1.0, 1.0, 1.0, 50.0], [True, True, True, False])
    assert even[2:] == pytest.approx((1.0, 1 / 3, 0.0))
    sharp = health_of([0.0, 100.0], [True, True])
    assert sharp[2:] == pytest.approx((0.0, 1.0, 2500.0), abs=1e-12)
    # Softmax (0, log 3) is (1/4, 3/4): Σy² = 10/16.
    mixed = health_of([0.0, math.log(3)], [True, True])
    entropy = (0.25 * math.log(4) + 0.75 * math.log(4 / 3)) / math.log(2)
    assert mixed[2:] == pytest.approx((entropy, 10 / 16, (math.log(3) / 2) ** 2))


def test_saturation_is_one_minus_the_trace_of_softmaxs_derivative() -> None:
    """Check claim M18."""
    scores = torch.randn(5, dtype=torch.float64)
    derivative = torch.autograd.functional.jacobian(lambda x: x.softmax(-1), scores)
    assert health_of(scores.tolist(), [True] * 5).saturation == pytest.approx(1 - float(derivative.trace()))


def test_every_layer_is_told_and_padding_does_not_count() -> None:
    model = make_model(dropout=0.2).train()
    pairs = [([5, 6, 7], [8, 9]), ([5], [9, 9, 9, 9, 9, 9])]
    together = attention_health(model, collate(*zip(*pairs, strict=True)))
    assert model.training
    assert [(layer.site, layer.layer) for layer in together] == [
        (site, n) for site in ("encoder", "decoder", "cross") for n in (0, 1)
    ]
    alone = [attention_health(model, collate([src], [tgt])) for src, tgt in pairs]
    queries = {"encoder": (4, 2), "decoder": (2, 6), "cross": (3, 7)}  # queries with at least two keys
    for n, layer in enumerate(together):
        counts = queries[layer.site]
        expected = sum(count * one[n].saturation for count, one in zip(counts, alone, strict=True)) / sum(counts)
        assert layer.saturation == pytest.approx(expected, rel=1e-9)


def test_warnings_in_words() -> None:
    fine = [LayerHealth("encoder", 0, 0.5, 0.3, 1.0), LayerHealth("cross", 0, 0.7, 0.2, 1.0)]
    assert complaints(fine, warmed_up=True) == []
    collapsed = complaints([*fine, LayerHealth("decoder", 1, 0.001, 0.995, 90.0)], warmed_up=True)
    assert len(collapsed) == 1 and "collapsed in decoder layer 2" in collapsed[0] and "0.995" in collapsed[0]
    blind = [fine[0], LayerHealth("cross", 0, 0.9999, 0.1, 0.0)]
    assert complaints(blind, warmed_up=False) == []
    assert "did not read the source" in complaints(blind, warmed_up=True)[0]
