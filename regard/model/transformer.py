"""Figure 1: the Transformer, for whole sequences in one pass and for one step at a time."""

from collections.abc import Sequence
from typing import cast

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from regard.config import ModelConfig
from regard.model.attention import CrossAttention, SelfAttention
from regard.model.cache import DecoderCache, KeyValue, LayerCache
from regard.model.embedding import LearnedPositions, SinusoidalPositions
from regard.model.initialisation import initialise
from regard.model.layers import FeedForward, Residual
from regard.model.sequence import EncoderDecoder
from regard.model.trace import Recorder, Site, Stack, recorded

MOST_PADDING = 32  # tokens of padding in a group of sources


class EncoderLayer(nn.Module):
    """Section 3.1: self-attention, then the feed-forward network, each in a residual connection."""

    def __init__(self, config: ModelConfig, layer: int) -> None:
        super().__init__()
        self.self_attention = SelfAttention(
            config.d_model, config.num_heads, dropout=config.attention_dropout, site="encoder", layer=layer
        )
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
        self.self_attention = SelfAttention(
            config.d_model, config.num_heads, dropout=config.attention_dropout, site="decoder", layer=layer
        )
        self.cross_attention = CrossAttention(
            config.d_model, config.num_heads, dropout=config.attention_dropout, layer=layer
        )
        self.feed_forward = _feed_forward(config, "decoder")
        self.self_attention_residual = _residual(config, "decoder")
        self.cross_attention_residual = _residual(config, "decoder")
        self.feed_forward_residual = _residual(config, "decoder")

    def forward(
        self,
        x: Float[Tensor, "B T D"],
        memory: KeyValue,
        *,
        memory_mask: Bool[Tensor, "B 1 1 S"],
        mask: Bool[Tensor, "B 1 #T C"] | None = None,
        causal: bool = False,
        past: LayerCache | None = None,
        recorder: Recorder | None = None,
    ) -> Float[Tensor, "B T D"]:
        x = self.self_attention_residual(
            x, lambda y: self.self_attention(y, mask=mask, causal=causal, past=past, recorder=recorder), recorder
        )
        x = self.cross_attention_residual(
            x, lambda y: self.cross_attention(y, memory, mask=memory_mask, recorder=recorder), recorder
        )
        x = self.feed_forward_residual(x, lambda y: self.feed_forward(y, recorder), recorder)
        return x


class Transformer(EncoderDecoder):
    """The encoder–decoder of Figure 1. It maps token ids to logits; `config.pad_id` marks padding.

    Training calls `encode`, `decode` and a loss on the decoder's states; `forward` returns logits. Inference calls `start`
    once and `step` for every position. `trace` records a pass.
    """

    is_causal = True  # whether a target position sees only those before it

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.src_positions = _positions(config)
        self.tgt_positions = _positions(config) if config.positions == "learned" else self.src_positions
        # Typed by their elements, which nn.ModuleList cannot express.
        self.encoder = cast(
            "Sequence[EncoderLayer]", nn.ModuleList(EncoderLayer(config, n) for n in range(config.encoder_layers))
        )
        self.decoder = cast(
            "Sequence[DecoderLayer]", nn.ModuleList(DecoderLayer(config, n) for n in range(config.decoder_layers))
        )
        # Pre-norm leaves the residual stream un-normalised, so each stack ends with a LayerNorm of its own.
        self.encoder_norm = nn.LayerNorm(config.d_model) if config.norm == "pre" else nn.Identity()
        self.decoder_norm = nn.LayerNorm(config.d_model) if config.norm == "pre" else nn.Identity()
        initialise(self, config)

    @property
    def heads(self) -> dict[Site, tuple[int, int]]:
        num_heads = self.config.num_heads
        decoder = len(self.decoder), num_heads
        return {"encoder": (len(self.encoder), num_heads), "decoder": decoder, "cross": decoder}

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
        """Return the decoder's states, which `project` turns into logits. Padding stands at the end of a target, where the
        causal mask hides it from every token before; a pass without that mask needs one for padding."""
        causal = self.is_causal and (recorder is None or recorder.intervention.causal)
        mask = None if causal else self.padding_mask(tgt_in)
        x = self._embed_sequence(tgt_in, "decoder", recorder)
        for layer in self.decoder:
            key_value = layer.cross_attention.project_memory(memory)
            x = layer(x, key_value, memory_mask=memory_mask, mask=mask, causal=causal, recorder=recorder)
        states: Tensor = self.decoder_norm(x)
        return states

    @torch.no_grad()
    def project_source(self, src: Int[Tensor, "B S"], recorder: Recorder | None = None) -> Float[Tensor, "2 L B H _ K"]:
        """Encode sources, and return the keys and values of every decoder layer's cross-attention. On a CPU, padding
        that all sources have is left out."""
        if src.device.type == "cpu":
            src = src[:, : max([1, *(src != self.config.pad_id).sum(1).tolist()])]
        memory = self.encode(src, recorder)
        layers = [layer.cross_attention.project_memory(memory) for layer in self.decoder]
        parts = [part for kind in zip(*layers, strict=True) for part in kind]  # keys of all layers, then values
        return torch.stack(parts).view(2, len(layers), *parts[0].shape)

    def _start(self, src: Int[Tensor, "B S"], width: int, recorder: Recorder | None) -> DecoderCache:
        groups = [list(range(len(src)))]
        if src.device.type == "cpu":  # arithmetic on padding costs more there than additional calls
            groups = similar_lengths((src != self.config.pad_id).sum(1).tolist()) or groups
        memory = [self.project_source(src[rows], recorder) for rows in groups]
        return DecoderCache.empty(memory, groups, self.padding_mask(src), width=width)

    def _step(self, ids: Int[Tensor, "B W"], cache: DecoderCache, recorder: Recorder | None) -> Float[Tensor, "B W D"]:
        x = self.embed(ids, cache.lengths[:, None], cache.longest + 1, "decoder", recorder)
        mask, memory_mask = cache.open_slots(), cache.memory_mask
        for index, layer in enumerate(self.decoder):
            past, memory = cache.layer(index), cache.layer_memory(index)
            x = layer(x, memory, memory_mask=memory_mask, mask=mask, past=past, recorder=recorder)
        cache.advance()
        states: Tensor = self.decoder_norm(x)
        return states

    def _embed_sequence(self, ids: Int[Tensor, "B T"], stack: Stack, recorder: Recorder | None) -> Float[Tensor, "B T D"]:
        positions = torch.arange(ids.shape[1], device=ids.device)[None]
        return self.embed(ids, positions, ids.shape[1], stack, recorder)

    def embed(
        self,
        ids: Int[Tensor, "B T"],
        positions: Int[Tensor, "#B #T"],
        extent: int,
        stack: Stack,
        recorder: Recorder | None,
    ) -> Float[Tensor, "B T D"]:
        """Return dropout(embedding · √d_model + position), as in sections 3.4 and 3.5."""
        is_source = stack == "encoder"
        x = (self.embeddings.source if is_source else self.embeddings.target)(ids)
        if recorder is None or recorder.intervention.positions:
            x = x + (self.src_positions if is_source else self.tgt_positions)(positions, extent)
        return recorded(self.embedding_dropout(x), stack, recorder)


def similar_lengths(lengths: Sequence[int]) -> list[list[int]]:
    """Return rows in groups of similar lengths, the longest first. A group costs about as much as `MOST_PADDING` tokens."""
    groups: list[list[int]] = []
    padding = longest = 0
    for row in sorted(range(len(lengths)), key=lambda row: -lengths[row]):
        padding += longest - lengths[row]
        if not groups or padding > MOST_PADDING:
            groups.append([])
            padding, longest = 0, lengths[row]
        groups[-1].append(row)
    return groups


def _feed_forward(config: ModelConfig, stack: Stack) -> FeedForward:
    return FeedForward(
        config.d_model, config.d_ff, activation=config.activation, dropout=config.activation_dropout, stack=stack
    )


def _residual(config: ModelConfig, stack: Stack) -> Residual:
    return Residual(config.d_model, norm=config.norm, dropout=config.dropout, stack=stack)


def _positions(config: ModelConfig) -> SinusoidalPositions | LearnedPositions:
    if config.positions == "learned":
        return LearnedPositions(config.d_model, config.max_positions)
    return SinusoidalPositions(config.d_model)
