"""Figure 1: the Transformer, for whole sequences in one pass and for one step at a time."""

from collections.abc import Sequence
from typing import cast

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from regard.config import Ablation, ModelConfig
from regard.model.attention import CrossAttention, SelfAttention, Shared
from regard.model.cache import DecoderCache, KeyValue, LayerCache
from regard.model.embedding import Embeddings, LearnedPositions, NoPositions, SinusoidalPositions
from regard.model.initialisation import initialise
from regard.model.layers import Dropout, FeedForward, PackedWeight, Residual, linear, pack_linears
from regard.model.static_cache import StaticCache, StaticLayerCache, StaticMemory
from regard.model.trace import Intervention, Recorder, Stack, Trace

MOST_PADDING = 32  # tokens
SHARED: dict[Ablation, Shared] = {"query-key": "query-key", "key-value": "key-value", "projections": "all"}


class EncoderLayer(nn.Module):
    """Section 3.1: self-attention, then the feed-forward network, each in a residual connection."""

    def __init__(self, config: ModelConfig, layer: int) -> None:
        super().__init__()
        self.self_attention = _self_attention(config, "encoder", layer)
        self.feed_forward = _feed_forward(config, "encoder")
        self.self_attention_residual = _residual(config, "encoder")
        self.feed_forward_residual = _residual(config, "encoder")

    def forward(
        self, x: Float[Tensor, "B S D"], *, mask: Bool[Tensor, "B 1 1 S"], recorder: Recorder | None = None
    ) -> Float[Tensor, "B S D"]:
        x = self.self_attention_residual(x, lambda y: self.self_attention(y, mask=mask, recorder=recorder), recorder)
        x = self.feed_forward_residual(x, lambda y: self.feed_forward(y, recorder), recorder)
        return x


class DecoderLayer(nn.Module):
    """Section 3.1: masked self-attention, attention to the encoder's output, the feed-forward network."""

    def __init__(self, config: ModelConfig, layer: int) -> None:
        super().__init__()
        self.self_attention = _self_attention(config, "decoder", layer)
        self.cross_attention = CrossAttention(
            config.d_model,
            config.num_heads,
            dropout=config.attention_dropout,
            layer=layer,
            scale=_scale(config),
            shared=SHARED.get(config.ablation, "none"),
        )
        self.feed_forward = _feed_forward(config, "decoder")
        self.self_attention_residual = _residual(config, "decoder")
        self.cross_attention_residual = _residual(config, "decoder")
        self.feed_forward_residual = _residual(config, "decoder")

    def forward(
        self,
        x: Float[Tensor, "B T D"],
        memory: KeyValue | StaticMemory,
        *,
        memory_mask: Bool[Tensor, "B 1 1 S"] | Float[Tensor, "B 1 1 S"],
        mask: Bool[Tensor, "B 1 #T C"] | Float[Tensor, "B 1 #T C"] | None = None,
        causal: bool = False,
        past: LayerCache | StaticLayerCache | None = None,
        recorder: Recorder | None = None,
    ) -> Float[Tensor, "B T D"]:
        x = self.self_attention_residual(
            x,
            lambda y: self.self_attention(y, mask=mask, causal=causal, past=past, recorder=recorder),
            recorder,
        )
        x = self.cross_attention_residual(
            x, lambda y: self.cross_attention(y, memory, mask=memory_mask, recorder=recorder), recorder
        )
        x = self.feed_forward_residual(x, lambda y: self.feed_forward(y, recorder), recorder)
        return x


class Transformer(nn.Module):
    """The encoder–decoder of Figure 1. Token ids in, logits out; `config.pad_id` marks what is not there.

    Training calls `encode`, `decode` and a loss on the decoder's states; `forward` is the plain way to logits. Inference
    calls `start` once and `step` for every position. `trace` shows what a pass looked like.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.embeddings = Embeddings(
            config.src_vocab_size, config.tgt_vocab_size, config.d_model, shared=config.shared_embeddings
        )
        self.output_bias = nn.Parameter(torch.empty(config.tgt_vocab_size)) if config.output_bias else None
        self.src_positions = _positions(config)
        self.tgt_positions = _positions(config) if config.positions == "learned" else self.src_positions
        self.embedding_dropout = Dropout(config.embedding_dropout)
        # Typed as what they hold, which nn.ModuleList cannot say.
        self.encoder = cast(
            "Sequence[EncoderLayer]", nn.ModuleList(EncoderLayer(config, n) for n in range(config.encoder_layers))
        )
        self.decoder = cast(
            "Sequence[DecoderLayer]", nn.ModuleList(DecoderLayer(config, n) for n in range(config.decoder_layers))
        )
        # Pre-norm leaves the residual stream un-normalised, so each stack ends with a LayerNorm of its own.
        self.encoder_norm = nn.LayerNorm(config.d_model) if config.norm == "pre" else nn.Identity()
        self.decoder_norm = nn.LayerNorm(config.d_model) if config.norm == "pre" else nn.Identity()
        self.packed_output: PackedWeight | None = None
        initialise(self, config)

    def pack(self) -> None:
        """Keeps the matrices a second time, in the order that makes decoding on a CPU fast; elsewhere it does nothing."""
        if PackedWeight.is_possible(self.output_weight):
            self.packed_output = PackedWeight(self.output_weight)
            pack_linears(self)

    @property
    def output_weight(self) -> Float[Tensor, "V D"]:
        """The matrix of the pre-softmax map."""
        return self.embeddings.output_weight

    def forward(self, src: Int[Tensor, "B S"], tgt_in: Int[Tensor, "B T"]) -> Float[Tensor, "B T V"]:
        """Logits of every next token in one pass: position t sees the source and the target up to t."""
        return self.project(self.states(src, tgt_in))

    def states(self, src: Int[Tensor, "B S"], tgt_in: Int[Tensor, "B T"]) -> Float[Tensor, "B T D"]:
        """What `project` makes logits of: training takes the loss from here."""
        return self.decode(tgt_in, self.encode(src), self.padding_mask(src))

    def padding_mask(self, ids: Int[Tensor, "B S"]) -> Bool[Tensor, "B 1 1 S"]:
        """True where there is a token, for every head and every query. Padding stands at the end: positions count from the
        first token on."""
        return (ids != self.config.pad_id)[:, None, None, :]

    def encode(self, src: Int[Tensor, "B S"], recorder: Recorder | None = None) -> Float[Tensor, "B S D"]:
        mask = self.padding_mask(src)
        x = self._embed_sequence(src, "encoder", recorder)
        for layer in self.encoder:
            x = layer(x, mask=mask, recorder=recorder)
        memory: Tensor = self.encoder_norm(x)
        return memory

    def decode(
        self,
        tgt_in: Int[Tensor, "B T"],
        memory: Float[Tensor, "B S D"],
        memory_mask: Bool[Tensor, "B 1 1 S"],
        recorder: Recorder | None = None,
    ) -> Float[Tensor, "B T D"]:
        """The decoder's states, which `project` turns into logits. Padding stands at the end of a target, where the causal
        mask hides it from every token before; only without that mask does it need one of its own."""
        causal = self.config.ablation != "causal-mask" and (recorder is None or recorder.intervention.causal)
        mask = None if causal else self.padding_mask(tgt_in)
        x = self._embed_sequence(tgt_in, "decoder", recorder)
        for layer in self.decoder:
            x = layer(
                x,
                layer.cross_attention.project_memory(memory),
                memory_mask=memory_mask,
                mask=mask,
                causal=causal,
                recorder=recorder,
            )
        states: Tensor = self.decoder_norm(x)
        return states

    def project(self, states: Float[Tensor, "*rows D"]) -> Float[Tensor, "*rows V"]:
        """Section 3.4: the pre-softmax linear map, which shares the target embedding's matrix unless told otherwise."""
        return linear(states, self.output_weight, self.output_bias, self.packed_output)

    @torch.no_grad()
    def start(
        self,
        src: Int[Tensor, "B S"],
        *,
        width: int = 1,
        intervention: Intervention | None = None,
    ) -> DecoderCache:
        """Encodes the sentences, once, for `width` beams each."""
        self._require_eval("decoding")
        groups = [list(range(len(src)))]
        if src.device.type == "cpu":  # where arithmetic is dear and calls are cheap: little of it for padding
            groups = similar_lengths((src != self.config.pad_id).sum(1).tolist()) or groups
        memory = [self.project_source(src[rows], self._recorder(intervention)) for rows in groups]
        return DecoderCache.empty(memory, groups, self.padding_mask(src), width=width)

    @torch.no_grad()
    def project_source(self, src: Int[Tensor, "B S"], recorder: Recorder | None = None) -> KeyValue:
        """Keys and values of every decoder layer's cross-attention, without the padding that all of these have."""
        if src.device.type == "cpu":
            src = src[:, : max([1, *(src != self.config.pad_id).sum(1).tolist()])]
        memory = self.encode(src, recorder)
        layers = [layer.cross_attention.project_memory(memory) for layer in self.decoder]
        return KeyValue(torch.stack([layer.keys for layer in layers]), torch.stack([layer.values for layer in layers]))

    @torch.no_grad()
    def step(
        self, ids: Int[Tensor, " N"], cache: DecoderCache | StaticCache, intervention: Intervention | None = None
    ) -> Float[Tensor, "N V"]:
        """Feeds each row its next token and gives the log-probabilities of the one after. The cache grows by one. With a
        `StaticCache` all shapes and addresses are those of the last step, and nobody waits for the device."""
        self._require_eval("decoding")
        assert len(ids) == cache.num_rows, f"{len(ids)} tokens for {cache.num_rows} rows"
        recorder = self._recorder(intervention)
        # A sentence's W beams stand where a pass has T positions: all at one position, each with a past of its own.
        beams = ids.view(cache.num_sentences, cache.width)
        x = self._embed(beams, cache.lengths[:, None], cache.longest + 1, "decoder", recorder)  # (B, W, D)
        mask = cache.open_slots()
        for index, layer in enumerate(self.decoder):
            x = layer(
                x,
                cache.memory(index),
                memory_mask=cache.memory_mask,
                mask=mask,
                past=cache.layer(index),
                recorder=recorder,
            )
        cache.advance()
        logits = self.project(self.decoder_norm(x).flatten(0, 1))
        return logits.to(torch.promote_types(logits.dtype, torch.float32)).log_softmax(-1)

    @torch.no_grad()
    def trace(self, src: Int[Tensor, "B S"], tgt_in: Int[Tensor, "B T"], intervention: Intervention | None = None) -> Trace:
        """One pass with everything it computed, changed by `intervention` where one is given."""
        self._require_eval("a trace")
        recorder = Recorder(self._checked(intervention or Intervention()))
        memory = self.encode(src, recorder)
        states = self.decode(tgt_in, memory, self.padding_mask(src), recorder)
        return Trace(
            encoder=recorder.stack_trace("encoder"),
            decoder=recorder.stack_trace("decoder"),
            memory=memory,
            states=states,
            logits=self.project(states),
        )

    def _embed_sequence(self, ids: Int[Tensor, "B T"], stack: Stack, recorder: Recorder | None) -> Float[Tensor, "B T D"]:
        positions = torch.arange(ids.shape[1], device=ids.device)[None]
        return self._embed(ids, positions, ids.shape[1], stack, recorder)

    def _embed(
        self,
        ids: Int[Tensor, "B T"],
        positions: Int[Tensor, "#B #T"],
        extent: int,
        stack: Stack,
        recorder: Recorder | None,
    ) -> Float[Tensor, "B T D"]:
        """Sections 3.4 and 3.5: dropout(embedding · √d_model + position)."""
        is_source = stack == "encoder"
        x: Tensor = (self.embeddings.source if is_source else self.embeddings.target)(ids)
        if recorder is None or recorder.intervention.positions:
            x = x + (self.src_positions if is_source else self.tgt_positions)(positions, extent)
        x = self.embedding_dropout(x)
        if recorder is not None:
            recorder.add_residual(stack, x)
        return x

    def _recorder(self, intervention: Intervention | None) -> Recorder | None:
        """The fast path is the one without a recorder."""
        return None if intervention is None else Recorder(self._checked(intervention))

    def _checked(self, intervention: Intervention) -> Intervention:
        num_layers = {"encoder": len(self.encoder), "decoder": len(self.decoder), "cross": len(self.decoder)}
        for head in sorted(intervention.heads_off):
            if not (0 <= head.layer < num_layers[head.site] and 0 <= head.head < self.config.num_heads):
                raise ValueError(
                    f"there is no {head.site} head {head.head} in layer {head.layer}: counting from 0, this model has "
                    f"{num_layers[head.site]} such layers of {self.config.num_heads} heads"
                )
        return intervention

    def _require_eval(self, what: str) -> None:
        if self.training:
            raise ValueError(f"{what} needs a model without dropout; call model.eval() first")


def similar_lengths(lengths: Sequence[int]) -> list[list[int]]:
    """Rows in groups, the longest first, each with little padding: a group costs about as much as so many tokens."""
    groups: list[list[int]] = []
    padding = longest = 0
    for row in sorted(range(len(lengths)), key=lambda row: -lengths[row]):
        padding += longest - lengths[row]
        if not groups or padding > MOST_PADDING:
            groups.append([])
            padding, longest = 0, lengths[row]
        groups[-1].append(row)
    return groups


def _self_attention(config: ModelConfig, stack: Stack, layer: int) -> SelfAttention:
    return SelfAttention(
        config.d_model,
        config.num_heads,
        dropout=config.attention_dropout,
        site=stack,
        layer=layer,
        scale=_scale(config),
        shared=SHARED.get(config.ablation, "none"),
    )


def _scale(config: ModelConfig) -> float | None:
    """What replaces 1/√d_k; None: nothing does."""
    return 1.0 if config.ablation == "scale" else None


def _feed_forward(config: ModelConfig, stack: Stack) -> FeedForward:
    return FeedForward(
        config.d_model, config.d_ff, activation=config.activation, dropout=config.activation_dropout, stack=stack
    )


def _residual(config: ModelConfig, stack: Stack) -> Residual:
    connected = config.ablation != "residual"
    return Residual(config.d_model, norm=config.norm, dropout=config.dropout, stack=stack, connected=connected)


def _positions(config: ModelConfig) -> SinusoidalPositions | LearnedPositions | NoPositions:
    if config.positions == "none":
        return NoPositions(config.d_model)
    if config.positions == "learned":
        return LearnedPositions(config.d_model, config.max_positions)
    return SinusoidalPositions(config.d_model)
