"""One step of a Transformer's decoder over a `StaticCache`: `Transformer.step` with fixed shapes and addresses.

It computes the same as the model's own step, by the same modules except for attention. Where our own kernels serve the
model, they compute attention and read no more than each sentence's past; otherwise, torch's fused kernels attend to every
slot, with masks that are added to the scores. There is no host sync, so that a step can be captured.
"""

from functools import partial

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.attention import sdpa_kernel

from regard.fast.decoding.cache import StaticCache
from regard.model.attention import CUDA_KERNELS, CrossAttention, SelfAttention, merge_heads, split_heads
from regard.model.cache import KeyValue
from regard.model.transformer import Transformer


@torch.no_grad()
def step(model: Transformer, ids: Int[Tensor, " N"], cache: StaticCache) -> Float[Tensor, "N V"]:
    """Feed each row its next token and return the log-probabilities of the one after."""
    x = model.embed(ids.view(cache.shape), cache.lengths[:, None], cache.num_positions, "decoder", None)  # (B, W, D)
    cache.open_slots()
    for layer in model.decoder:
        x = layer.self_attention_residual(x, partial(attend_to_past, layer.self_attention, cache=cache))
        x = layer.cross_attention_residual(x, partial(attend_to_source, layer.cross_attention, cache=cache))
        x = layer.feed_forward_residual(x, layer.feed_forward)
    cache.advance()
    return model.log_probs(model.decoder_norm(x).flatten(0, 1))


def attend_to_past(module: SelfAttention, x: Float[Tensor, "B W D"], cache: StaticCache) -> Float[Tensor, "B W D"]:
    q, new = module.project(x)
    if cache.kernels:
        from regard.fast.kernels import decoding

        keys, values = cache.past[:, module.layer]
        heads = decoding.attend_to_past(
            q, *new, keys, values, ancestry=cache.ancestry, lengths=cache.lengths, scale=module.scale
        )
    else:
        heads = attend_to_all(q, cache.append(module.layer, new), cache.mask, module.scale)
    return module.output(heads)


def attend_to_source(module: CrossAttention, x: Float[Tensor, "B W D"], cache: StaticCache) -> Float[Tensor, "B W D"]:
    q = split_heads(module.query(x), module.num_heads)
    keys, values = cache.memory[:, module.layer]
    if cache.kernels:
        from regard.fast.kernels import decoding

        heads = decoding.attend_to_source(q, keys, values, lengths=cache.memory_lengths, scale=module.scale)
    else:
        key_value = KeyValue(keys.transpose(1, 2), values.transpose(1, 2))
        heads = attend_to_all(q, key_value, cache.memory_mask, module.scale)
    return module.output(heads)


def attend_to_all(
    q: Float[Tensor, "B H W K"], key_value: KeyValue, mask: Float[Tensor, "B 1 #W S"], scale: float | None
) -> Float[Tensor, "B W D"]:
    """Compute attention by torch's kernels, with an additive mask. They would convert a Boolean mask in every layer."""
    k, v = key_value
    if q.device.type != "cuda":
        return merge_heads(F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale))
    with sdpa_kernel(CUDA_KERNELS):
        return merge_heads(F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale))
