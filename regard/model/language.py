"""A decoder alone: the language model that grew out of the right half of Figure 1, as LLaMA (Touvron et al. 2023) has it.

    embed → N × (RMSNorm, rotary attention, residual; RMSNorm, SwiGLU, residual) → RMSNorm → lm_head

Without an encoder there is no cross-attention. LayerNorm is RMSNorm (Zhang & Sennrich 2019) before each sub-layer, positions
turn queries and keys instead of being added (Su et al. 2021), the feed-forward network has a gate (Shazeer 2020), several
heads may share their keys and values (Ainslie et al. 2023), and no map has a bias.
"""

from typing import NamedTuple, cast

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from regard.config import ModelConfig
from regard.model.attention import MultiHeadAttention, split_heads
from regard.model.cache import DecoderCache, KeyValue, LayerCache
from regard.model.embedding import Embedding
from regard.model.initialisation import initialise
from regard.model.layers import Dropout, Linear, PackedWeight, linear, pack_linears
from regard.model.trace import Intervention, Recorder, Trace


class Rotation(NamedTuple):
    """By what angles a head's pairs of dimensions are turned at each position."""

    cos: Float[Tensor, "#B 1 T Kh"]
    sin: Float[Tensor, "#B 1 T Kh"]

    @classmethod
    def at(cls, positions: Int[Tensor, "#B T"], d_head: int, *, base: float, dtype: torch.dtype) -> "Rotation":
        """Pair i of position p is turned by p · base^(-2i/d_head)."""
        precise = torch.promote_types(dtype, torch.float32)
        frequencies = base ** (-torch.arange(0, d_head, 2, dtype=precise, device=positions.device) / d_head)
        angles = positions[:, None, :, None].to(precise) * frequencies  # (B, 1, T, K/2)
        return cls(angles.cos(), angles.sin())

    def of(self, x: Float[Tensor, "B H T K"]) -> Float[Tensor, "B H T K"]:
        """Dimension i makes a pair with dimension i + K/2, as in Hugging Face's weights; LLaMA's own pair neighbours."""
        one, other = x.chunk(2, dim=-1)
        return torch.cat([one * self.cos - other * self.sin, other * self.cos + one * self.sin], dim=-1).to(x.dtype)


class RotaryAttention(MultiHeadAttention):
    """Self-attention without biases, whose queries and keys are turned by their positions: what two of them have in common
    depends on their distance alone. `key_value_heads` is how many different keys and values there are among the heads."""

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
        key_value = KeyValue(k, v) if past is None else past.append(KeyValue(k, v))  # turned already: a position stays
        return self.attend(q, self._for_every_head(key_value), mask=mask, causal=causal, recorder=recorder)

    def _for_every_head(self, shared: KeyValue) -> KeyValue:
        """Heads 0 to g-1 look at the first keys and values, the next g at the second …"""
        group = self.num_heads // self.key_value_heads
        return shared if group == 1 else KeyValue(*(part.repeat_interleave(group, dim=1) for part in shared))


class GatedFeedForward(nn.Module):
    """SwiGLU: (SiLU(xW_g) ⊙ xW₁)W₂, the same at every position."""

    def __init__(self, d_model: int, d_ff: int, *, dropout: float) -> None:
        super().__init__()
        self.gate = Linear(d_model, d_ff, bias=False)
        self.inner = Linear(d_model, d_ff, bias=False)
        self.outer = Linear(d_ff, d_model, bias=False)
        self.dropout = Dropout(dropout)

    def forward(self, x: Float[Tensor, "B T D"], recorder: Recorder | None = None) -> Float[Tensor, "B T D"]:
        hidden = F.silu(self.gate(x)) * self.inner(x)  # (B, T, F)
        if recorder is not None:
            recorder.add_activation("decoder", hidden)
        output: Tensor = self.outer(self.dropout(hidden))
        return output


class LanguageLayer(nn.Module):
    """Attention, then the feed-forward network; each sees the stream normalised and adds to it."""

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
        x = x + self.dropout(seen)
        if recorder is not None:
            recorder.add_residual("decoder", x)
        x = x + self.dropout(self.feed_forward(self.feed_forward_norm(x), recorder))
        if recorder is not None:
            recorder.add_residual("decoder", x)
        return x


class LanguageModel(nn.Module):
    """What the next token is, given those before it. Its matrices are those of a LlamaForCausalLM, under the names of the
    other models here; `regard.exchange.llama` has both names side by side."""

    output_bias: None = None  # which other kinds of model may have

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        assert config.kind == "language"
        self.config = config
        self.embedding = Embedding(config.tgt_vocab_size, config.d_model, scaled=False)
        self.embedding_dropout = Dropout(config.embedding_dropout)
        self.layers = nn.ModuleList(LanguageLayer(config, layer) for layer in range(config.decoder_layers))
        self.norm = nn.RMSNorm(config.d_model, eps=config.norm_epsilon)
        is_tied = config.shared_embeddings != "none"
        self.lm_head = None if is_tied else Linear(config.d_model, config.tgt_vocab_size, bias=False)
        self.packed_output: PackedWeight | None = None
        initialise(self, config)

    def pack(self) -> None:
        """Keeps the matrices a second time, in the order that makes decoding on a CPU fast; elsewhere it does nothing."""
        if PackedWeight.is_possible(self.output_weight):
            self.packed_output = PackedWeight(self.output_weight)
            pack_linears(self.layers)

    @property
    def output_weight(self) -> Float[Tensor, "V D"]:
        """The matrix of the pre-softmax map."""
        return self.embedding.weight if self.lm_head is None else self.lm_head.weight

    def forward(self, ids_in: Int[Tensor, "B T"]) -> Float[Tensor, "B T V"]:
        """Logits of every next token, given those up to there."""
        return self.project(self.states(ids_in))

    def states(self, ids_in: Int[Tensor, "B T"]) -> Float[Tensor, "B T D"]:
        """What `project` makes logits of: training takes the loss from here."""
        return self._states(ids_in, None)

    def _states(self, ids_in: Int[Tensor, "B T"], recorder: Recorder | None) -> Float[Tensor, "B T D"]:
        positions = torch.arange(ids_in.shape[1], device=ids_in.device)[None]
        x = self._embed(ids_in, recorder)
        rotation = self._rotation(positions, x.dtype, recorder)
        is_causal = recorder is None or recorder.intervention.causal
        for layer in self.layers:
            x = layer(x, rotation, causal=is_causal, recorder=recorder)
        states: Tensor = self.norm(x)
        return states

    def project(self, states: Float[Tensor, "*rows D"]) -> Float[Tensor, "*rows V"]:
        """lm_head: the pre-softmax linear map."""
        return linear(states, self.output_weight, None, self.packed_output)

    @torch.no_grad()
    def start(self, prompt: Int[Tensor, "B P"], *, width: int = 1, intervention: Intervention | None = None) -> DecoderCache:
        """Reads the prompts, which may be of no tokens at all, in one pass, for `width` beams each; padding stands at their
        ends. The first step feeds what follows them."""
        self._require_eval("decoding")
        recorder = self._recorder(intervention)
        config, (num_rows, num_tokens) = self.config, prompt.shape
        num_heads = config.key_value_heads or config.num_heads
        nothing = self.output_weight.new_zeros(config.decoder_layers, num_rows, num_heads, 0, config.d_head)
        no_memory = torch.zeros(num_rows, 1, 1, 0, dtype=torch.bool, device=prompt.device)
        cache = DecoderCache.empty([KeyValue(nothing, nothing)], [list(range(num_rows))], no_memory, width=width)
        if num_tokens:
            cache.reserve(num_tokens)
            positions = torch.arange(num_tokens, device=prompt.device)[None]
            x = self._embed(prompt, recorder)
            rotation = self._rotation(positions, x.dtype, recorder)
            for index, layer in enumerate(self.layers):
                x = layer(x, rotation, causal=True, past=cache.layer(index), recorder=recorder)
            cache.begin_with(prompt != config.pad_id)
        return cache

    @torch.no_grad()
    def step(
        self, ids: Int[Tensor, " N"], cache: DecoderCache, intervention: Intervention | None = None
    ) -> Float[Tensor, "N V"]:
        """Feeds each row its next token and gives the log-probabilities of the one after. The cache grows by one."""
        self._require_eval("decoding")
        assert len(ids) == cache.num_rows, f"{len(ids)} tokens for {cache.num_rows} rows"
        recorder = self._recorder(intervention)
        # As in the Transformer, a text's W beams stand where a pass has T positions, all at one position.
        x = self._embed(ids.view(cache.num_sentences, cache.width), recorder)  # (B, W, D)
        positions = cache.lengths[:, None].expand(-1, cache.width)
        rotation = self._rotation(positions, x.dtype, recorder)
        mask = cache.open_slots()
        for index, layer in enumerate(self.layers):
            x = layer(x, rotation, mask=mask, past=cache.layer(index), recorder=recorder)
        cache.advance()
        logits = self.project(self.norm(x).flatten(0, 1))
        return logits.to(torch.promote_types(logits.dtype, torch.float32)).log_softmax(-1)

    @torch.no_grad()
    def trace(self, ids_in: Int[Tensor, "B T"], intervention: Intervention | None = None) -> Trace:
        """One pass with everything it computed; the half that encodes is empty."""
        self._require_eval("a trace")
        recorder = Recorder(self._checked(intervention or Intervention()))
        states = self._states(ids_in, recorder)
        return Trace(
            encoder=recorder.stack_trace("encoder"),
            decoder=recorder.stack_trace("decoder"),
            memory=states[:, :0],
            states=states,
            logits=self.project(states),
        )

    def _embed(self, ids: Int[Tensor, "B T"], recorder: Recorder | None) -> Float[Tensor, "B T D"]:
        x = cast("Tensor", self.embedding_dropout(self.embedding(ids)))
        if recorder is not None:
            recorder.add_residual("decoder", x)
        return x

    def _rotation(self, positions: Int[Tensor, "#B T"], dtype: torch.dtype, recorder: Recorder | None) -> Rotation | None:
        if recorder is not None and not recorder.intervention.positions:
            return None
        return Rotation.at(positions, self.config.d_head, base=self.config.rotary_base, dtype=dtype)

    def _recorder(self, intervention: Intervention | None) -> Recorder | None:
        """The fast path is the one without a recorder."""
        return None if intervention is None else Recorder(self._checked(intervention))

    def _checked(self, intervention: Intervention) -> Intervention:
        num_layers, num_heads = len(self.layers), self.config.num_heads
        for head in sorted(intervention.heads_off):
            if head.site != "decoder" or not (0 <= head.layer < num_layers and 0 <= head.head < num_heads):
                raise ValueError(
                    f"there is no {head.site} head {head.head} in layer {head.layer}: counting from 0, this model has "
                    f"{num_layers} decoder layers of {num_heads} heads"
                )
        return intervention

    def _require_eval(self, what: str) -> None:
        if self.training:
            raise ValueError(f"{what} needs a model without dropout; call model.eval() first")
