"""A decoder-only language model, derived from the right half of Figure 1, as in LLaMA (Touvron et al. 2023).

    embed → N × (RMSNorm, rotary attention, residual; RMSNorm, SwiGLU, residual) → RMSNorm → lm_head

Without an encoder there is no cross-attention. RMSNorm (Zhang & Sennrich 2019) before each sub-layer replaces LayerNorm,
positions rotate queries and keys instead of being added (Su et al. 2021), the feed-forward network has a gate (Shazeer
2020), several heads may share their keys and values (Ainslie et al. 2023), and no map has a bias.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from regard.config import ModelConfig
from regard.model.attention import MultiHeadAttention, split_heads
from regard.model.cache import DecoderCache, KeyValue, LayerCache
from regard.model.embedding import Embedding
from regard.model.initialisation import initialise
from regard.model.layers import Dropout, Linear
from regard.model.sequence import SequenceModel
from regard.model.trace import Intervention, Recorder, Site, Trace, recorded


class Rotation(NamedTuple):
    """The angles by which a head's pairs of dimensions are rotated at each position."""

    cos: Float[Tensor, "#B 1 T Kh"]
    sin: Float[Tensor, "#B 1 T Kh"]

    @classmethod
    def at(cls, positions: Int[Tensor, "#B T"], d_head: int, *, base: float, dtype: torch.dtype) -> "Rotation":
        """Return angles that rotate pair i of position p by p · base^(-2i/d_head)."""
        precise = torch.promote_types(dtype, torch.float32)
        frequencies = base ** (-torch.arange(0, d_head, 2, dtype=precise, device=positions.device) / d_head)
        angles = positions[:, None, :, None].to(precise) * frequencies  # (B, 1, T, K/2)
        return cls(angles.cos(), angles.sin())

    def of(self, x: Float[Tensor, "B H T K"]) -> Float[Tensor, "B H T K"]:
        """Rotate x. Dimension i makes a pair with dimension i + K/2, as in Hugging Face's weights; LLaMA's own weights pair
        neighbours."""
        one, other = x.chunk(2, dim=-1)
        return torch.cat([one * self.cos - other * self.sin, other * self.cos + one * self.sin], dim=-1).to(x.dtype)


class RotaryAttention(MultiHeadAttention):
    """Self-attention without biases, whose queries and keys are rotated by their positions, so that their products depend
    only on the distance of positions. The heads share `key_value_heads` different keys and values."""

    def __init__(self, d_model: int, num_heads: int, *, key_value_heads: int, dropout: float, layer: int) -> None:
        super().__init__(d_model, num_heads, dropout=dropout, site="decoder", layer=layer)
        self.key_value_heads = key_value_heads
        d_shared = d_model // num_heads * key_value_heads
        self.query = Linear(d_model, d_model, bias=False)
        self.key = Linear(d_model, d_shared, bias=False)
        self.value = Linear(d_model, d_shared, bias=False)
        self.output = Linear(d_model, d_model, bias=False)

    def forward(
        self,
        x: Float[Tensor, "B T D"],
        rotation: Rotation | None,
        *,
        mask: Bool[Tensor, "#B 1 #T S"] | None,
        causal: bool,
        past: LayerCache | None,
        recorder: Recorder | None,
    ) -> Float[Tensor, "B T D"]:
        q = split_heads(self.query(x), self.num_heads)
        k, v = (split_heads(map_(x), self.key_value_heads) for map_ in (self.key, self.value))
        if rotation is not None:
            q, k = rotation.of(q), rotation.of(k)
        key_value = KeyValue(k, v) if past is None else past.append(KeyValue(k, v))  # keys are cached rotated
        return self.attend(q, self._for_every_head(key_value), mask=mask, causal=causal, recorder=recorder)

    def _for_every_head(self, shared: KeyValue) -> KeyValue:
        """Repeat keys and values: heads 0 to g-1 attend to the first, the next g to the second, and so on."""
        group = self.num_heads // self.key_value_heads
        return shared if group == 1 else KeyValue(*(part.repeat_interleave(group, dim=1) for part in shared))


class GatedFeedForward(nn.Module):
    """SwiGLU at every position: (SiLU(xW_g) ⊙ xW₁)W₂."""

    def __init__(self, d_model: int, d_ff: int, *, dropout: float) -> None:
        super().__init__()
        self.gate = Linear(d_model, d_ff, bias=False)
        self.inner = Linear(d_model, d_ff, bias=False)
        self.outer = Linear(d_ff, d_model, bias=False)
        self.dropout = Dropout(dropout)

    def forward(self, x: Float[Tensor, "B T D"], recorder: Recorder | None = None) -> Float[Tensor, "B T D"]:
        hidden = F.silu(self.gate(x)) * self.inner(x)  # (B, T, F)
        if recorder is not None:
            recorder.activations["decoder"].append(hidden)
        return self.outer(self.dropout(hidden))


class LanguageLayer(nn.Module):
    """Attention, then the feed-forward network; each sees the normalised residual stream and adds to it."""

    def __init__(self, config: ModelConfig, layer: int) -> None:
        super().__init__()
        self.attention_norm = nn.RMSNorm(config.d_model, eps=config.norm_epsilon)
        self.attention = RotaryAttention(
            config.d_model,
            config.num_heads,
            key_value_heads=config.key_value_heads or config.num_heads,
            dropout=config.attention_dropout,
            layer=layer,
        )
        self.feed_forward_norm = nn.RMSNorm(config.d_model, eps=config.norm_epsilon)
        self.feed_forward = GatedFeedForward(config.d_model, config.d_ff, dropout=config.activation_dropout)
        self.dropout = Dropout(config.dropout)

    def forward(
        self,
        x: Float[Tensor, "B T D"],
        rotation: Rotation | None,
        *,
        mask: Bool[Tensor, "#B 1 #T S"] | None = None,
        causal: bool = False,
        past: LayerCache | None = None,
        recorder: Recorder | None = None,
    ) -> Float[Tensor, "B T D"]:
        seen = self.attention(self.attention_norm(x), rotation, mask=mask, causal=causal, past=past, recorder=recorder)
        x = recorded(x + self.dropout(seen), "decoder", recorder)
        return recorded(x + self.dropout(self.feed_forward(self.feed_forward_norm(x), recorder)), "decoder", recorder)


class LanguageModel(SequenceModel):
    """A model of the next token, given those before it. Its matrices are those of a LlamaForCausalLM;
    `regard.exchange.llama` maps their names."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        assert config.kind == "language"
        self.output_bias = None
        self.embedding = Embedding(config.tgt_vocab_size, config.d_model, scaled=False)
        self.layers = nn.ModuleList(LanguageLayer(config, layer) for layer in range(config.decoder_layers))
        self.norm = nn.RMSNorm(config.d_model, eps=config.norm_epsilon)
        is_tied = config.shared_embeddings != "none"
        self.lm_head = None if is_tied else Linear(config.d_model, config.tgt_vocab_size, bias=False)
        initialise(self, config)

    @property
    def output_weight(self) -> Float[Tensor, "V D"]:
        return self.embedding.weight if self.lm_head is None else self.lm_head.weight

    @property
    def heads(self) -> dict[Site, tuple[int, int]]:
        return {"decoder": (len(self.layers), self.config.num_heads)}

    def forward(self, ids_in: Int[Tensor, "B T"]) -> Float[Tensor, "B T V"]:
        """Return the logits of the next token at every position."""
        return self.project(self.states(ids_in))

    def states(self, *inputs: Int[Tensor, "B T"]) -> Float[Tensor, "B T D"]:
        [ids_in] = inputs
        return self._states(ids_in, None)

    def _states(
        self,
        ids: Int[Tensor, "B T"],
        recorder: Recorder | None,
        *,
        positions: Int[Tensor, "B T"] | None = None,
        cache: DecoderCache | None = None,
        mask: Bool[Tensor, "B 1 T C"] | None = None,
    ) -> Float[Tensor, "B T D"]:
        """Return the states of whole sequences, whose keys and values go to the cache if there is one; or, given positions
        and a mask, of the next token of each beam."""
        if positions is None:
            positions = torch.arange(ids.shape[1], device=ids.device)[None]
        causal = mask is None and (cache is not None or recorder is None or recorder.intervention.causal)
        x = recorded(self.embedding_dropout(self.embedding(ids)), "decoder", recorder)
        rotation = None
        if recorder is None or recorder.intervention.positions:
            rotation = Rotation.at(positions, self.config.d_head, base=self.config.rotary_base, dtype=x.dtype)
        for index, layer in enumerate(self.layers):
            past = None if cache is None else cache.layer(index)
            x = layer(x, rotation, mask=mask, causal=causal, past=past, recorder=recorder)
        states: Tensor = self.norm(x)
        return states

    def _start(self, src: Int[Tensor, "B P"], width: int, recorder: Recorder | None) -> DecoderCache:
        """Read prompts, which may be empty, in one pass; padding stands at their ends. The first step feeds the token after
        the prompt."""
        config, (num_rows, num_tokens) = self.config, src.shape
        num_heads = config.key_value_heads or config.num_heads
        no_memory = self.output_weight.new_zeros(2, config.decoder_layers, num_rows, num_heads, 0, config.d_head)
        no_mask = torch.zeros(num_rows, 1, 1, 0, dtype=torch.bool, device=src.device)
        cache = DecoderCache.empty([no_memory], [list(range(num_rows))], no_mask, width=width, num_slots=num_tokens)
        if num_tokens:
            self._states(src, recorder, cache=cache)
            cache.begin_with(src != config.pad_id)
        return cache

    def _step(self, ids: Int[Tensor, "B W"], cache: DecoderCache, recorder: Recorder | None) -> Float[Tensor, "B W D"]:
        positions = cache.lengths[:, None].expand(ids.shape)
        states = self._states(ids, recorder, positions=positions, cache=cache, mask=cache.open_slots())
        cache.advance()
        return states

    @torch.no_grad()
    def trace(self, ids_in: Int[Tensor, "B T"], intervention: Intervention | None = None) -> Trace:
        """Run one pass and return all its intermediate results; the encoder's part is empty."""
        self.require_eval("a trace")
        recorder = self.recorder(intervention or Intervention())
        states = self._states(ids_in, recorder)
        return recorder.trace(memory=states[:, :0], states=states, logits=self.project(states))
