"""Section 3.2: scaled dot-product attention and its heads.

Two functions compute it. `attention` calls torch's fused kernel, for training and translation; `inspected_attention` writes
equation 1 out and also returns the intermediate results. Masks are True where a query may attend.
"""

import math
from contextlib import nullcontext

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from regard.model.cache import KeyValue, LayerCache
from regard.model.layers import Linear
from regard.model.trace import AttentionTrace, Recorder, Site

# cuDNN's is left out: it does not return zeros for a query that may attend to nothing, and plans anew for every shape.
CUDA_KERNELS = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]


def attention(
    q: Float[Tensor, "B H T K"],
    k: Float[Tensor, "B H S K"],
    v: Float[Tensor, "B H S Kv"],
    *,
    mask: Bool[Tensor, "#B #H #T S"] | None = None,
    causal: bool = False,
    dropout: float = 0.0,
    scale: float | None = None,
) -> Float[Tensor, "B H T Kv"]:
    """Compute equation 1, softmax(QKᵀ/√d_k)V, by the fused kernel. A query that may attend to nothing gets zeros. `scale`
    replaces 1/√d_k."""
    if q.device.type == "cpu" and q.dtype == torch.bfloat16:  # its CPU kernel takes ten times as long as float32's
        with torch.autocast("cpu", enabled=False):
            return attention(
                q.float(), k.float(), v.float(), mask=mask, causal=causal, dropout=dropout, scale=scale
            ).bfloat16()
    with sdpa_kernel(CUDA_KERNELS) if q.device.type == "cuda" else nullcontext():
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=causal, dropout_p=dropout, scale=scale)


def inspected_attention(
    q: Float[Tensor, "B H T K"],
    k: Float[Tensor, "B H S K"],
    v: Float[Tensor, "B H S Kv"],
    *,
    mask: Bool[Tensor, "#B #H #T S"] | None = None,
    causal: bool = False,
    scale: float | None = None,
) -> tuple[Float[Tensor, "B H T Kv"], AttentionTrace]:
    """Compute equation 1 by its formula, and return the intermediate results too. `scale` replaces 1/√d_k."""
    num_queries, num_keys = q.shape[-2], k.shape[-2]
    if mask is None:
        mask = torch.ones(1, 1, 1, num_keys, dtype=torch.bool, device=q.device)
    if causal:
        mask = mask & causal_mask(num_queries, num_keys, device=q.device)
    scores = q @ k.transpose(-2, -1) * (1.0 / math.sqrt(q.shape[-1]) if scale is None else scale)  # (B, H, T, S)
    # Softmax over nothing is 0/0, so a query that may attend to nothing gets a softmax over all keys, multiplied by zero.
    sees_something = mask.any(-1, keepdim=True)
    weights = scores.masked_fill(~mask & sees_something, -math.inf).softmax(-1) * sees_something
    return weights @ v, AttentionTrace(queries=q, keys=k, values=v, scores=scores, mask=mask, weights=weights)


def causal_mask(num_queries: int, num_keys: int, *, device: torch.device | None = None) -> Bool[Tensor, "1 1 T S"]:
    """Return section 3.2.3's mask, by which position t may attend to positions up to and including t."""
    return torch.ones(num_queries, num_keys, dtype=torch.bool, device=device).tril()[None, None]


def split_heads(x: Float[Tensor, "B T HK"], num_heads: int) -> Float[Tensor, "B H T K"]:
    heads: Tensor = x.unflatten(-1, (num_heads, -1)).transpose(1, 2)
    return heads


def merge_heads(x: Float[Tensor, "B H T K"]) -> Float[Tensor, "B T HK"]:
    """Return Concat(head_1, …, head_h)."""
    return x.transpose(1, 2).flatten(-2)


class MultiHeadAttention(nn.Module):
    """Section 3.2.2: h heads of attention, concatenated and projected by W_O. `SelfAttention` and `CrossAttention` define
    where queries, keys and values come from; `site` and `layer` say where in the model the heads are."""

    def __init__(self, d_model: int, num_heads: int, *, dropout: float, site: Site, layer: int) -> None:
        super().__init__()
        self.output = Linear(d_model, d_model)
        self.dropout = dropout  # applied to the weights inside the fused kernel
        self.scale: float | None = None  # None: 1/√d_k
        self.num_heads = num_heads
        self.site: Site = site
        self.layer = layer

    def attend(
        self,
        q: Float[Tensor, "B H T K"],
        key_value: KeyValue,
        *,
        mask: Bool[Tensor, "#B 1 #T S"] | None,
        causal: bool = False,
        recorder: Recorder | None = None,
    ) -> Float[Tensor, "B T D"]:
        k, v = key_value
        if recorder is None:
            dropout = self.dropout if self.training else 0.0
            heads = attention(q, k, v, mask=mask, causal=causal, dropout=dropout, scale=self.scale)  # (B, H, T, K)
        else:
            asked = recorder.intervention.score_scale
            scale = self.scale if asked is None else asked
            heads, seen = inspected_attention(q, k, v, mask=mask, causal=causal, scale=scale)
            recorder.attention[self.site].append(seen)
            if heads_off := recorder.heads_off(self.site, self.layer):
                heads = heads.index_fill(1, torch.tensor(heads_off, device=heads.device), 0.0)
        return self.output(merge_heads(heads))


class SelfAttention(MultiHeadAttention):
    """Attention with queries, keys and values from the same positions, by one fused projection."""

    def __init__(self, d_model: int, num_heads: int, *, dropout: float, site: Site, layer: int) -> None:
        super().__init__(d_model, num_heads, dropout=dropout, site=site, layer=layer)
        self.query_key_value = Linear(d_model, 3 * d_model)

    def project(self, x: Float[Tensor, "B T D"]) -> tuple[Float[Tensor, "B H T K"], KeyValue]:
        q, k, v = (split_heads(part, self.num_heads) for part in self.query_key_value(x).chunk(3, dim=-1))
        return q, KeyValue(k, v)

    def forward(
        self,
        x: Float[Tensor, "B T D"],
        *,
        mask: Bool[Tensor, "#B 1 #T S"] | None = None,
        causal: bool = False,
        past: LayerCache | None = None,
        recorder: Recorder | None = None,
    ) -> Float[Tensor, "B T D"]:
        """Attend to the positions of x. With a `past`, x is the next position of each beam, and the mask says which slots of
        the past it attends to."""
        q, key_value = self.project(x)
        if past is not None:
            key_value = past.append(key_value)
        return self.attend(q, key_value, mask=mask, causal=causal, recorder=recorder)


class CrossAttention(MultiHeadAttention):
    """Attention with queries from the decoder, and keys and values from the encoder's output, projected once a sentence."""

    def __init__(self, d_model: int, num_heads: int, *, dropout: float, layer: int) -> None:
        super().__init__(d_model, num_heads, dropout=dropout, site="cross", layer=layer)
        self.query = Linear(d_model, d_model)
        self.key_value = Linear(d_model, 2 * d_model)

    def project_memory(self, memory: Float[Tensor, "B S D"]) -> KeyValue:
        k, v = self.key_value(memory).chunk(2, dim=-1)
        return KeyValue(split_heads(k, self.num_heads), split_heads(v, self.num_heads))

    def forward(
        self,
        x: Float[Tensor, "B T D"],
        memory: KeyValue,
        *,
        mask: Bool[Tensor, "B 1 1 S"],
        recorder: Recorder | None = None,
    ) -> Float[Tensor, "B T D"]:
        return self.attend(split_heads(self.query(x), self.num_heads), memory, mask=mask, recorder=recorder)
