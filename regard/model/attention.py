"""Section 3.2: scaled dot-product attention and its heads.

Two paths compute the same function. `attention` is the fused kernel and what training and translation run;
`inspected_attention` is equation 1 written out, which also returns what it saw. Masks are True where a query may attend.
On a GPU, a step of decoding has a kernel that reads no more than a beam's past (`model.static_cache`).
"""

import math
from typing import Literal, cast

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from regard.model.cache import KeyValue, LayerCache
from regard.model.layers import Linear
from regard.model.static_cache import StaticLayerCache, StaticMemory
from regard.model.trace import AttentionTrace, Recorder, Site

# Not cuDNN's: it gives a query that may attend to nothing something else than zeros, and plans anew for every shape.
CUDA_KERNELS = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]

Shared = Literal["none", "query-key", "key-value", "all"]
# Which of a module's maps gives queries, keys and values. The lab takes maps away; the paper has three.
MAPS: dict[Shared, tuple[int, int, int]] = {
    "none": (0, 1, 2),
    "query-key": (0, 0, 1),
    "key-value": (0, 1, 1),
    "all": (0, 0, 0),  # and that one is no map at all: the input itself
}


def attention(
    q: Float[Tensor, "B H T K"],
    k: Float[Tensor, "B H S K"],
    v: Float[Tensor, "B H S Kv"],
    *,
    mask: Bool[Tensor, "#B #H #T S"] | Float[Tensor, "#B #H #T S"] | None = None,
    causal: bool = False,
    dropout: float = 0.0,
    scale: float | None = None,
) -> Float[Tensor, "B H T Kv"]:
    """Equation 1, softmax(QKᵀ/√d_k)V, by the fused kernel. A query that may attend to nothing gets zeros. A mask of
    numbers is added to the scores. `scale` replaces 1/√d_k."""
    if q.device.type == "cpu" and q.dtype == torch.bfloat16:  # for which a CPU's kernel is ten times as slow
        q, k, v = q.float(), k.float(), v.float()
        mask = mask.float() if mask is not None and mask.is_floating_point() else mask
        with torch.autocast("cpu", enabled=False):
            return attention(q, k, v, mask=mask, causal=causal, dropout=dropout, scale=scale).bfloat16()
    if q.device.type == "cuda":
        with sdpa_kernel(CUDA_KERNELS):
            return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=causal, dropout_p=dropout, scale=scale)
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
    """Equation 1 by its formula, with everything on the way. `scale` replaces 1/√d_k."""
    num_queries, num_keys = q.shape[-2], k.shape[-2]
    if mask is None:
        mask = torch.ones(1, 1, 1, num_keys, dtype=torch.bool, device=q.device)
    if causal:
        mask = mask & causal_mask(num_queries, num_keys, device=q.device)
    scores = q @ k.transpose(-2, -1) * (1.0 / math.sqrt(q.shape[-1]) if scale is None else scale)  # (B, H, T, S)
    # Where nothing may be attended to, softmax over nothing would be 0/0: let it see everything, then take it all away.
    sees_something = mask.any(-1, keepdim=True)
    weights = scores.masked_fill(~mask & sees_something, -math.inf).softmax(-1) * sees_something
    return weights @ v, AttentionTrace(queries=q, keys=k, values=v, scores=scores, mask=mask, weights=weights)


def causal_mask(num_queries: int, num_keys: int, *, device: torch.device | None = None) -> Bool[Tensor, "1 1 T S"]:
    """Section 3.2.3: position t may attend to positions up to and including t."""
    return torch.ones(num_queries, num_keys, dtype=torch.bool, device=device).tril()[None, None]


def split_heads(x: Float[Tensor, "B T HK"], num_heads: int) -> Float[Tensor, "B H T K"]:
    heads: Tensor = x.unflatten(-1, (num_heads, -1)).transpose(1, 2)
    return heads


def merge_heads(x: Float[Tensor, "B H T K"]) -> Float[Tensor, "B T HK"]:
    """Concat(head_1, …, head_h)."""
    return x.transpose(1, 2).flatten(-2)


class MultiHeadAttention(nn.Module):
    """Section 3.2.2: h attentions side by side, concatenated and projected by W_O. `SelfAttention` and `CrossAttention`
    say where queries, keys and values come from; `site` and `layer` say which heads these are. `scale` replaces 1/√d_k, and
    `shared` says which of queries, keys and values are made by the same map."""

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        *,
        dropout: float,
        site: Site,
        layer: int,
        scale: float | None = None,
        shared: Shared = "none",
    ) -> None:
        super().__init__()
        self.output = Linear(d_model, d_model)
        self.dropout = dropout  # applied to the weights inside the fused kernel
        self.scale = scale
        self.maps = MAPS[shared]
        self.num_heads = num_heads
        self.site: Site = site
        self.layer = layer

    def attend(
        self,
        q: Float[Tensor, "B H T K"],
        key_value: KeyValue,
        *,
        mask: Bool[Tensor, "#B 1 #T S"] | Float[Tensor, "#B 1 #T S"] | None,
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
            recorder.add_attention(self.site, seen)
            if heads_off := recorder.heads_off(self.site, self.layer):
                heads = heads.index_fill(1, torch.tensor(heads_off, device=heads.device), 0.0)
        output: Tensor = self.output(merge_heads(heads))
        return output


def _maps(d_model: int, num_maps: int) -> nn.Module:
    """So many maps side by side. None at all is the input itself."""
    return Linear(d_model, num_maps * d_model) if num_maps else nn.Identity()


class SelfAttention(MultiHeadAttention):
    """Queries, keys and values from the same positions, by one fused projection."""

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        *,
        dropout: float,
        site: Site,
        layer: int,
        scale: float | None = None,
        shared: Shared = "none",
    ) -> None:
        super().__init__(d_model, num_heads, dropout=dropout, site=site, layer=layer, scale=scale, shared=shared)
        num_maps = 0 if shared == "all" else 1 + max(self.maps)
        self.query_key_value = cast("Linear", _maps(d_model, num_maps))  # what all but the lab's models have

    def project(self, x: Float[Tensor, "B T D"]) -> tuple[Float[Tensor, "B H T K"], KeyValue]:
        parts = [split_heads(part, self.num_heads) for part in self.query_key_value(x).chunk(1 + max(self.maps), dim=-1)]
        q, k, v = (parts[number] for number in self.maps)
        return q, KeyValue(k, v)

    def forward(
        self,
        x: Float[Tensor, "B T D"],
        *,
        mask: Bool[Tensor, "#B 1 #T S"] | Float[Tensor, "#B 1 #T S"] | None = None,
        causal: bool = False,
        past: LayerCache | StaticLayerCache | None = None,
        recorder: Recorder | None = None,
    ) -> Float[Tensor, "B T D"]:
        """With a `past`, x is the next position of each beam, and keys and values are all beams' past and themselves."""
        q, key_value = self.project(x)
        if isinstance(past, StaticLayerCache) and past.kernels and recorder is None:
            output: Tensor = self.output(past.attend(q, key_value, self.scale))
            return output
        if past is not None:
            key_value = past.append(key_value)
        return self.attend(q, key_value, mask=mask, causal=causal, recorder=recorder)


class CrossAttention(MultiHeadAttention):
    """Queries from the decoder; keys and values from the encoder's output, projected once per sentence."""

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        *,
        dropout: float,
        layer: int,
        scale: float | None = None,
        shared: Shared = "none",
    ) -> None:
        super().__init__(d_model, num_heads, dropout=dropout, site="cross", layer=layer, scale=scale, shared=shared)
        self.query = cast("Linear", _maps(d_model, 0 if shared == "all" else 1))
        self.key_value = cast("Linear", _maps(d_model, max(self.maps)))

    def project_memory(self, memory: Float[Tensor, "B S D"]) -> KeyValue:
        _, key, value = self.maps
        of_memory = self.key_value(memory).chunk(max(1, *self.maps), dim=-1)
        k, v = (self.query(memory) if number == 0 else of_memory[number - 1] for number in (key, value))
        return KeyValue(split_heads(k, self.num_heads), split_heads(v, self.num_heads))

    def forward(
        self,
        x: Float[Tensor, "B T D"],
        memory: KeyValue | StaticMemory,
        *,
        mask: Bool[Tensor, "B 1 1 S"] | Float[Tensor, "B 1 1 S"],
        recorder: Recorder | None = None,
    ) -> Float[Tensor, "B T D"]:
        q = split_heads(self.query(x), self.num_heads)
        if isinstance(memory, StaticMemory):
            if memory.kernels and recorder is None:
                output: Tensor = self.output(memory.attend(q, self.scale))
                return output
            memory = memory.all()
        return self.attend(q, memory, mask=mask, recorder=recorder)
