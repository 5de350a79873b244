"""Copy our parameters into models of other libraries."""

from typing import Any

import torch
from torch import Tensor, nn

from regard.bench.peers import TorchTransformer
from regard.model.transformer import DecoderLayer, EncoderLayer, Transformer


@torch.no_grad()
def copy_into_torch_transformer(model: Transformer, peer: TorchTransformer) -> None:
    peer.embedding.weight.copy_(model.embeddings.source.weight)
    layers: list[EncoderLayer | DecoderLayer] = [*model.encoder, *model.decoder]
    for layer, theirs in zip(layers, _layers_of(peer), strict=True):
        copy: list[tuple[str, nn.Linear, nn.Linear]] = [
            ("self_attn", layer.self_attention.query_key_value, layer.self_attention.output)
        ]
        norms = [layer.self_attention_residual.norm]
        if isinstance(layer, DecoderLayer):
            cross = layer.cross_attention
            stacked = nn.Linear(cross.query.in_features, 3 * cross.query.out_features)
            stacked.weight.copy_(torch.cat([cross.query.weight, cross.key_value.weight]))
            stacked.bias.copy_(torch.cat([cross.query.bias, cross.key_value.bias]))
            copy.append(("multihead_attn", stacked, cross.output))
            norms.append(layer.cross_attention_residual.norm)
        norms.append(layer.feed_forward_residual.norm)
        for name, stacked, output in copy:
            attention: Any = getattr(theirs, name)
            attention.in_proj_weight.copy_(stacked.weight)
            attention.in_proj_bias.copy_(stacked.bias)
            attention.out_proj.load_state_dict(output.state_dict())
        theirs.linear1.load_state_dict(layer.feed_forward.inner.state_dict())
        theirs.linear2.load_state_dict(layer.feed_forward.outer.state_dict())
        for n, norm in enumerate(norms, start=1):
            getattr(theirs, f"norm{n}").load_state_dict(norm.state_dict())
    if model.config.norm == "pre":
        peer.transformer.encoder.norm.load_state_dict(model.encoder_norm.state_dict())
        peer.transformer.decoder.norm.load_state_dict(model.decoder_norm.state_dict())
    else:
        peer.transformer.encoder.norm = None
        peer.transformer.decoder.norm = None


def _layers_of(peer: TorchTransformer) -> list[Any]:
    return [*peer.transformer.encoder.layers, *peer.transformer.decoder.layers]


def sines_first(d_model: int) -> Tensor:
    """Return Marian's hidden dimensions in terms of ours: 0, 2, 4, … hold the sines, 1, 3, 5, … the cosines."""
    return torch.cat([torch.arange(0, d_model, 2), torch.arange(1, d_model, 2)])


@torch.no_grad()
def copy_into_marian(model: Transformer, peer: Any) -> None:
    """Copy weights into Marian. Only axes of the residual stream are permuted, not heads and feed-forward activations."""
    order = sines_first(model.config.d_model)

    def reads_stream(theirs: nn.Linear, weight: Tensor, bias: Tensor) -> None:
        theirs.weight.copy_(weight[:, order])
        theirs.bias.copy_(bias)

    def writes_stream(theirs: nn.Linear, ours: nn.Linear) -> None:
        theirs.weight.copy_(ours.weight[order])
        theirs.bias.copy_(ours.bias[order])

    def norm(theirs: nn.LayerNorm, ours: nn.LayerNorm) -> None:
        theirs.weight.copy_(ours.weight[order])
        theirs.bias.copy_(ours.bias[order])

    def self_attention_and_feed_forward(theirs: Any, layer: EncoderLayer | DecoderLayer) -> None:
        stacked = layer.self_attention.query_key_value
        weights, biases = stacked.weight.chunk(3), stacked.bias.chunk(3)
        for name, weight, bias in zip(("q_proj", "k_proj", "v_proj"), weights, biases, strict=True):
            reads_stream(getattr(theirs.self_attn, name), weight, bias)
        writes_stream(theirs.self_attn.out_proj, layer.self_attention.output)
        norm(theirs.self_attn_layer_norm, layer.self_attention_residual.norm)
        reads_stream(theirs.fc1, layer.feed_forward.inner.weight, layer.feed_forward.inner.bias)
        writes_stream(theirs.fc2, layer.feed_forward.outer)
        norm(theirs.final_layer_norm, layer.feed_forward_residual.norm)

    peer.model.shared.weight.copy_(model.embeddings.source.weight[:, order])
    for encoder_layer, theirs in zip(model.encoder, peer.model.encoder.layers, strict=True):
        self_attention_and_feed_forward(theirs, encoder_layer)
    for decoder_layer, theirs in zip(model.decoder, peer.model.decoder.layers, strict=True):
        self_attention_and_feed_forward(theirs, decoder_layer)
        cross = decoder_layer.cross_attention
        key_weight, value_weight = cross.key_value.weight.chunk(2)
        key_bias, value_bias = cross.key_value.bias.chunk(2)
        reads_stream(theirs.encoder_attn.q_proj, cross.query.weight, cross.query.bias)
        reads_stream(theirs.encoder_attn.k_proj, key_weight, key_bias)
        reads_stream(theirs.encoder_attn.v_proj, value_weight, value_bias)
        writes_stream(theirs.encoder_attn.out_proj, cross.output)
        norm(theirs.encoder_attn_layer_norm, decoder_layer.cross_attention_residual.norm)
