"""The kinds of model there are, and one of them from its configuration."""

from regard.config import ModelConfig
from regard.model.cache import DecoderCache
from regard.model.language import LanguageModel
from regard.model.recurrent import Recurrent
from regard.model.recurrent_cache import RecurrentCache
from regard.model.transformer import Transformer

EncoderDecoder = Transformer | Recurrent
Model = EncoderDecoder | LanguageModel
EncoderDecoderCache = DecoderCache | RecurrentCache


def require_transformer(model: EncoderDecoder, what: str) -> Transformer:
    """For what others can do with the paper's model alone."""
    if not isinstance(model, Transformer):
        raise ValueError(f"{what} takes Transformers, but this is a model of kind {model.config.kind}")
    if model.config.ablation != "none" or model.config.positions == "none":
        raise ValueError(f"{what} takes whole Transformers; this one was made without something, as an experiment")
    return model


def build(config: ModelConfig) -> Model:
    """With its first values."""
    return LanguageModel(config) if config.kind == "language" else build_encoder_decoder(config)


def build_encoder_decoder(config: ModelConfig) -> EncoderDecoder:
    """The kinds that translate, with their first values."""
    assert config.kind != "language"
    return Recurrent(config) if config.is_recurrent else Transformer(config)
