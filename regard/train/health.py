"""Health of attention in training: whether gradients pass its softmax, and whether it prefers any keys.

The derivative of softmax is diag(y) - yyᵀ, with the trace 1 - Σy². `saturation` is Σy²: 1 if one key gets all the weight, so
that no gradient passes the softmax (claims M17 and M18). `entropy` is relative: 0 if one key gets all the weight, 1 if all
get the same.
"""

from typing import NamedTuple

from torch import Tensor

from regard.data.batch import AnyBatch
from regard.model.language import LanguageModel
from regard.model.sequence import EncoderDecoder, SequenceModel
from regard.model.trace import AttentionTrace, Site
from regard.train.validation import evaluating

SATURATED, UNIFORM = 0.98, 0.999


class LayerHealth(NamedTuple):
    """Means over heads, sentences and all queries that have a choice of keys."""

    site: Site
    layer: int
    entropy: float
    saturation: float
    score_variance: float  # 1 for independent queries and keys of unit variance (claim M16)


def attention_health(model: SequenceModel, batch: AnyBatch) -> list[LayerHealth]:
    """The health of each layer's attention in one pass over a batch, without dropout."""
    inputs = [ids.to(model.output_weight.device) for ids in batch.inputs]
    with evaluating(model):
        if isinstance(model, EncoderDecoder):
            trace = model.trace(inputs[0], inputs[1])
        else:
            assert isinstance(model, LanguageModel)
            trace = model.trace(inputs[0])
    is_source, is_target = (inputs[n] != model.config.pad_id for n in (0, -1))
    sites: list[tuple[Site, tuple[AttentionTrace, ...], Tensor]] = [
        ("encoder", trace.encoder.self_attention, is_source),
        ("decoder", trace.decoder.self_attention, is_target),
        ("cross", trace.decoder.cross_attention, is_target),
    ]
    return [
        _layer_health(site, number, attention, is_query)
        for site, layers, is_query in sites
        for number, attention in enumerate(layers)
    ]


def _layer_health(site: Site, layer: int, attention: AttentionTrace, is_query: Tensor) -> LayerHealth:
    num_keys = attention.mask.expand(-1, 1, attention.weights.shape[2], -1).sum(-1)  # (B, 1, T)
    counts = ((num_keys > 1) & is_query[:, None]).expand(attention.weights.shape[:3])  # (B, H, T)
    possible = num_keys.clamp(min=2).double().log()
    keys = (attention.mask & counts[..., None]).expand_as(attention.scores)
    scores = attention.scores[keys].double()
    return LayerHealth(
        site=site,
        layer=layer,
        entropy=float((attention.entropy.double() / possible)[counts].mean()),
        saturation=float(attention.weights.double().square().sum(-1)[counts].mean()),
        score_variance=float(scores.var(correction=0)) if scores.numel() else 0.0,
    )


def complaints(layers: list[LayerHealth], *, warmed_up: bool) -> list[str]:
    """Warnings for the user."""
    found = [
        f"attention has collapsed in {health.site} layer {health.layer + 1}: nearly every query looks at one key "
        f"(saturation {health.saturation:.3f}), and almost no gradient passes its softmax; try a lower train.learning_rate, "
        "a longer train.warmup or train.clip_norm=1"
        for health in layers
        if health.saturation > SATURATED
    ]
    cross = [health for health in layers if health.site == "cross"]
    if warmed_up and cross and all(health.entropy > UNIFORM for health in cross):
        found.append(
            "the decoder still looks at all source words alike, as if it did not read the source; try a longer "
            "train.warmup, or see whether the two sides of the training text belong together"
        )
    return found
