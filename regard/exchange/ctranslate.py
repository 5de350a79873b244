"""Write a run as a folder for CTranslate2, which runs it on CPUs and GPUs without torch, in float32 or in int8.

Its encoder and decoder have the same matrices as ours. The paper's sinusoids are written as a table, because its own differ
in order and in wavelengths; the table's length bounds sources and translations.
"""

import unicodedata
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from regard.config import Activation
from regard.exchange.huggingface import output_bias
from regard.exchange.normaliser import normalising
from regard.exchange.verification import MAX_POSITIONS, Output
from regard.model.embedding import LearnedPositions, sinusoids
from regard.model.transformer import DecoderLayer, EncoderLayer, Transformer
from regard.text.cleaning import normalise
from regard.text.tokenizer import BOS_ID, EOS_ID, UNK_ID, Subwords, Tokenizer

ACTIVATIONS: dict[Activation, str] = {"relu": "RELU", "gelu": "GELU", "silu": "SWISH"}  # names of its enumeration


def write_ctranslate2(model: Transformer, tokenizer: Tokenizer, folder: Path, *, int8: bool = False) -> None:
    """Write the model, its vocabularies, and SentencePiece models that normalise text, source.spm and target.spm."""
    spec = spec_of(model, tokenizer)
    spec.validate()
    spec.optimize(quantization="int8" if int8 else None)
    spec.save(str(folder))
    (folder / "source.spm").write_bytes(normalising(tokenizer.src))
    (folder / "target.spm").write_bytes(normalising(tokenizer.tgt))


def spec_of(model: Transformer, tokenizer: Tokenizer) -> Any:
    """Return CTranslate2's specification of the model: all parameters and options."""
    from ctranslate2.specs import TransformerSpec
    from ctranslate2.specs.common_spec import Activation as TheirActivation

    config = model.config
    spec = TransformerSpec.from_config(
        (config.encoder_layers, config.decoder_layers),
        config.num_heads,
        pre_norm=config.norm == "pre",
        activation=TheirActivation[ACTIVATIONS[config.activation]],
    )
    spec.encoder.embeddings[0].weight = _copy(model.embeddings.source.weight)
    spec.decoder.embeddings.weight = _copy(model.embeddings.target.weight)
    spec.decoder.projection.weight = _copy(model.output_weight)
    spec.decoder.projection.bias = _copy(output_bias(model))
    spec.encoder.position_encodings.encodings = _positions(model.src_positions, config.d_model)
    spec.decoder.position_encodings.encodings = _positions(model.tgt_positions, config.d_model)
    for theirs, encoder_layer in zip(spec.encoder.layer, model.encoder, strict=True):
        _set_layer(theirs, encoder_layer)
    for theirs, decoder_layer in zip(spec.decoder.layer, model.decoder, strict=True):
        _set_layer(theirs, decoder_layer)
        cross = decoder_layer.cross_attention
        for place, linear in enumerate((cross.query, cross.key_value, cross.output)):
            _set_linear(theirs.attention.linear[place], linear)
        _set_norm(theirs.attention.layer_norm, decoder_layer.cross_attention_residual.norm)
    if config.norm == "pre":
        _set_norm(spec.encoder.layer_norm, model.encoder_norm)
        _set_norm(spec.decoder.layer_norm, model.decoder_norm)
    spec.register_source_vocabulary(tokenizer.src.pieces(range(len(tokenizer.src))))
    spec.register_target_vocabulary(tokenizer.tgt.pieces(range(len(tokenizer.tgt))))
    bos, eos, unk = tokenizer.tgt.pieces([BOS_ID, EOS_ID, UNK_ID])
    spec.config.bos_token = spec.config.decoder_start_token = bos
    spec.config.eos_token, spec.config.unk_token = eos, unk
    spec.config.add_source_eos = True
    return spec


def _positions(positions: nn.Module, d_model: int) -> Tensor:
    if isinstance(positions, LearnedPositions):
        return _copy(positions.weight)
    return sinusoids(MAX_POSITIONS, d_model).float()


def _set_layer(theirs: Any, layer: EncoderLayer | DecoderLayer) -> None:
    _set_linear(theirs.self_attention.linear[0], layer.self_attention.query_key_value)
    _set_linear(theirs.self_attention.linear[1], layer.self_attention.output)
    _set_norm(theirs.self_attention.layer_norm, layer.self_attention_residual.norm)
    _set_linear(theirs.ffn.linear_0, layer.feed_forward.inner)
    _set_linear(theirs.ffn.linear_1, layer.feed_forward.outer)
    _set_norm(theirs.ffn.layer_norm, layer.feed_forward_residual.norm)


def _set_linear(theirs: Any, linear: nn.Linear) -> None:
    theirs.weight, theirs.bias = _copy(linear.weight), _copy(linear.bias)


def _set_norm(theirs: Any, norm: nn.Module) -> None:
    assert isinstance(norm, nn.LayerNorm)
    theirs.gamma, theirs.beta = _copy(norm.weight), _copy(norm.bias)


def _copy(parameter: Tensor) -> Tensor:
    """Return a copy, because CTranslate2 quantises to int8 in place."""
    return parameter.detach().float().cpu().clone()


class CTranslate2Model:
    """An exported folder, run by CTranslate2."""

    def __init__(self, folder: Path) -> None:
        import ctranslate2

        self._translator: Any = ctranslate2.Translator(str(folder), device="cpu")
        self._src = Subwords((folder / "source.spm").read_bytes())
        self._tgt = Subwords((folder / "target.spm").read_bytes())

    def translate(self, texts: list[str], max_length: int) -> list[Output]:
        normalised = normalise if self._src.is_marian else partial(unicodedata.normalize, "NFC")
        pieces = [self._src.pieces(ids) for ids in self._src.encode([normalised(text) for text in texts])]
        results = self._translator.translate_batch(
            pieces,
            beam_size=1,
            min_decoding_length=0,  # allow empty outputs, as regard does
            max_decoding_length=max_length,
            max_input_length=0,
        )
        outputs = [self._tgt.ids(result.hypotheses[0]) for result in results]
        return [Output(ids, self._tgt.decode(ids)) for ids in outputs]
