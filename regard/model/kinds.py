"""Build a model from its configuration, and import only the module of its kind."""

from regard.config import ModelConfig
from regard.errors import UserError
from regard.model.sequence import EncoderDecoder, SequenceModel
from regard.model.transformer import Transformer


def build(config: ModelConfig) -> SequenceModel:
    """Return a model with its first values."""
    if config.kind != "language":
        return build_encoder_decoder(config)
    from regard.model.language import LanguageModel

    return LanguageModel(config)


def build_encoder_decoder(config: ModelConfig) -> EncoderDecoder:
    """Return a model of a kind that translates, with its first values."""
    assert config.kind != "language"
    if config.is_recurrent:
        from regard.model.recurrent import Recurrent

        return Recurrent(config)
    if config.ablation == "none" and config.positions != "none":
        return Transformer(config)
    from regard.model.ablated import AblatedTransformer

    return AblatedTransformer(config)


def require_transformer(model: EncoderDecoder, what: str) -> Transformer:
    """Return the model if it is the paper's, and refuse other kinds and Transformers that lack a part."""
    if not isinstance(model, Transformer):
        raise UserError(f"{what} takes Transformers, but this is a model of kind {model.config.kind}")
    if type(model) is not Transformer:
        raise UserError(f"{what} takes whole Transformers; this one was trained without a part, as an experiment")
    return model
