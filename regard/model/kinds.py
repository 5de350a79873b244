"""The kinds of model there are, and one of them from its configuration."""

from regard.config import ModelConfig
from regard.model.cache import DecoderCache
from regard.model.recurrent import Recurrent
from regard.model.recurrent_cache import RecurrentCache
from regard.model.transformer import Transformer

EncoderDecoder = Transformer | Recurrent
EncoderDecoderCache = DecoderCache | RecurrentCache


def require_transformer(model: EncoderDecoder, what: str) -> Transformer:
    """For what others can do with the paper's model alone."""
    if not isinstance(model, Transformer):
        raise ValueError(f"{what} takes Transformers, but this is a model of kind {model.config.kind}")
    if model.config.ablation != "none" or model.config.positions == "none":
        raise ValueError(f"{what} takes whole Transformers; this one was made without something, as an experiment")
    return model


def build(config: ModelConfig) -> EncoderDecoder:
    """With its first values."""
    return Recurrent(config) if config.is_recurrent else Transformer(config)
