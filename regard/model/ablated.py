"""Transformers that lack one of their parts, for the lab's experiments. Only `model.kinds` imports them."""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.config import Ablation, ModelConfig
from regard.model.attention import CrossAttention, SelfAttention, split_heads
from regard.model.cache import KeyValue
from regard.model.initialisation import initialise
from regard.model.layers import Linear, Residual
from regard.model.transformer import Transformer

# The maps that give queries, keys and values, by number. With (0, 0, 0) there are no maps.
MAPS: dict[Ablation, tuple[int, int, int]] = {"query-key": (0, 0, 1), "key-value": (0, 1, 1), "projections": (0, 0, 0)}


class AblatedTransformer(Transformer):
    """A Transformer without the part that `config.ablation` names, or without positions."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.is_causal = config.ablation != "causal-mask"
        if config.positions == "none":
            self.src_positions = self.tgt_positions = NoPositions(config.d_model)  # type: ignore[assignment]
        for layer in [*self.encoder, *self.decoder]:
            for name, module in list(layer.named_children()):
                if (changed := _without(module, config)) is not None:
                    setattr(layer, name, changed)
        if config.ablation in MAPS:
            initialise(self, config)


def _without(module: nn.Module, config: ModelConfig) -> nn.Module | None:
    """Return the module that replaces this one, or None if it stays."""
    ablation = config.ablation
    if ablation == "scale" and isinstance(module, SelfAttention | CrossAttention):
        module.scale = 1.0
    if ablation == "residual" and isinstance(module, Residual):
        return Disconnected(config.d_model, norm=config.norm, dropout=config.dropout, stack=module.stack)
    if ablation in MAPS and isinstance(module, SelfAttention):
        return SharedSelfAttention(module, config, MAPS[ablation])
    if ablation in MAPS and isinstance(module, CrossAttention):
        return SharedCrossAttention(module, config, MAPS[ablation])
    return None


class Disconnected(Residual):
    """A residual connection without the sum, which returns the sub-layer's output."""

    def connect(self, _x: Float[Tensor, "B T D"], y: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
        return y


class SharedSelfAttention(SelfAttention):
    """Self-attention whose queries, keys and values share maps or have none."""

    def __init__(self, whole: SelfAttention, config: ModelConfig, maps: tuple[int, int, int]) -> None:
        super().__init__(config.d_model, whole.num_heads, dropout=whole.dropout, site=whole.site, layer=whole.layer)
        self.maps = maps
        self.query_key_value = _maps(config.d_model, 0 if not any(maps) else 1 + max(maps))  # type: ignore[assignment]

    def project(self, x: Float[Tensor, "B T D"]) -> tuple[Float[Tensor, "B H T K"], KeyValue]:
        parts = [split_heads(part, self.num_heads) for part in self.query_key_value(x).chunk(1 + max(self.maps), dim=-1)]
        q, k, v = (parts[number] for number in self.maps)
        return q, KeyValue(k, v)


class SharedCrossAttention(CrossAttention):
    """Cross-attention whose queries, keys and values share maps or have none."""

    def __init__(self, whole: CrossAttention, config: ModelConfig, maps: tuple[int, int, int]) -> None:
        super().__init__(config.d_model, whole.num_heads, dropout=whole.dropout, layer=whole.layer)
        self.maps = maps
        self.query = _maps(config.d_model, 1 if any(maps) else 0)  # type: ignore[assignment]
        self.key_value = _maps(config.d_model, max(maps))  # type: ignore[assignment]

    def project_memory(self, memory: Float[Tensor, "B S D"]) -> KeyValue:
        _, key, value = self.maps
        of_memory = self.key_value(memory).chunk(max(1, *self.maps), dim=-1)
        k, v = (self.query(memory) if number == 0 else of_memory[number - 1] for number in (key, value))
        return KeyValue(split_heads(k, self.num_heads), split_heads(v, self.num_heads))


def _maps(d_model: int, num_maps: int) -> nn.Module:
    """Return `num_maps` maps side by side, or the identity if there are none."""
    return Linear(d_model, num_maps * d_model) if num_maps else nn.Identity()


class NoPositions(nn.Module):
    """Zeros in place of positional encodings, so that the model does not know positions (claim M15)."""

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.d_model = d_model

    def forward(self, positions: Int[Tensor, "B T"], _extent: int) -> Float[Tensor, "B T D"]:
        return torch.zeros(*positions.shape, self.d_model, device=positions.device)
