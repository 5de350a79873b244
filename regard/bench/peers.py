"""Defines the models that `regard bench` compares with, each as its users would write it."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from regard.config import ModelConfig
from regard.model.embedding import sinusoids

TrainingStep = Callable[[], object]


def adam(model: nn.Module) -> torch.optim.Optimizer:
    """Return the optimizer of every contestant."""
    return torch.optim.Adam(model.parameters(), lr=1e-4, betas=(0.9, 0.98), eps=1e-9, fused=True)


def training_step(model: nn.Module, loss: Callable[[], Tensor]) -> TrainingStep:
    optimizer = adam(model)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        loss().backward()
        optimizer.step()

    return step


class TorchTransformer(nn.Module):
    """`torch.nn.Transformer` with the embeddings, positions and output projection that it lacks."""

    def __init__(self, config: ModelConfig, max_length: int) -> None:
        super().__init__()
        self.pad_id = config.pad_id
        self.scale = math.sqrt(config.d_model)
        self.embedding = nn.Embedding(config.src_vocab_size, config.d_model)
        self.dropout = nn.Dropout(config.embedding_dropout)
        self.transformer = nn.Transformer(
            config.d_model,
            config.num_heads,
            config.encoder_layers,
            config.decoder_layers,
            config.d_ff,
            config.dropout,
            activation=config.activation,
            batch_first=True,
            norm_first=config.norm == "pre",
        )
        # By default it also drops attention weights and activations, which the others do not.
        for module in self.transformer.modules():
            if isinstance(module, nn.MultiheadAttention):
                module.dropout = config.attention_dropout
            elif isinstance(module, nn.TransformerEncoderLayer | nn.TransformerDecoderLayer):
                module.dropout = nn.Dropout(config.activation_dropout)
        self.positions = nn.Buffer(sinusoids(max_length, config.d_model).float())
        self.causal = nn.Buffer(nn.Transformer.generate_square_subsequent_mask(max_length))

    def embed(self, ids: Tensor) -> Tensor:
        embedded: Tensor = self.dropout(self.embedding(ids) * self.scale + self.positions[: ids.shape[1]])
        return embedded

    def forward(self, src: Tensor, tgt_in: Tensor) -> Tensor:
        padding = src == self.pad_id
        length = tgt_in.shape[1]
        states: Tensor = self.transformer(
            self.embed(src),
            self.embed(tgt_in),
            tgt_mask=self.causal[:length, :length],
            src_key_padding_mask=padding,
            memory_key_padding_mask=padding,
            tgt_is_causal=True,
        )
        return states @ self.embedding.weight.t()


class Marian(nn.Module):
    """Hugging Face's `MarianMTModel`, without a cache."""

    def __init__(self, config: ModelConfig, max_length: int) -> None:
        super().__init__()
        self.pad_id = config.pad_id
        self.model = marian_model(config, max_length)

    def forward(self, src: Tensor, tgt_in: Tensor) -> Tensor:
        mask = (src != self.pad_id).long()
        output = self.model(input_ids=src, attention_mask=mask, decoder_input_ids=tgt_in, use_cache=False)
        logits: Tensor = output.logits
        return logits


def marian_model(config: ModelConfig, max_length: int) -> Any:
    """Return a `MarianMTModel` of the same shape, with random weights."""
    from transformers import MarianConfig, MarianMTModel

    return MarianMTModel(
        MarianConfig(
            vocab_size=config.src_vocab_size,
            decoder_vocab_size=config.tgt_vocab_size,
            max_position_embeddings=max_length,
            d_model=config.d_model,
            encoder_layers=config.encoder_layers,
            decoder_layers=config.decoder_layers,
            encoder_attention_heads=config.num_heads,
            decoder_attention_heads=config.num_heads,
            encoder_ffn_dim=config.d_ff,
            decoder_ffn_dim=config.d_ff,
            dropout=config.dropout,
            attention_dropout=config.attention_dropout,
            activation_dropout=config.activation_dropout,
            activation_function=config.activation,
            scale_embedding=True,
            pad_token_id=config.pad_id,
            decoder_start_token_id=1,
            eos_token_id=2,
        )
    )


PEERS: dict[str, type[TorchTransformer | Marian]] = {
    "torch.nn.Transformer": TorchTransformer,
    "Hugging Face Marian": Marian,
}
