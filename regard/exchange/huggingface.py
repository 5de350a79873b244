"""A run as a folder for Hugging Face's transformers: post-norm as `MarianMTModel`, pre-norm as
`PegasusForConditionalGeneration`.

Both put all sines before all cosines, where the paper alternates them. The residual stream has no order of its own, so its
dimensions are permuted, in every map that reads or writes it: another spelling of the same function.
"""

import json
import warnings
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from safetensors.torch import save
from torch import Tensor, nn

from regard.config import Activation, ModelConfig
from regard.exchange.hf_tokenizer import write_tokenizer
from regard.exchange.verification import MAX_POSITIONS, Output
from regard.model.embedding import sinusoids
from regard.model.transformer import DecoderLayer, EncoderLayer, Transformer
from regard.text.cleaning import normalise
from regard.text.tokenizer import BOS_ID, EOS_ID, PAD_ID, Tokenizer

ACTIVATIONS: dict[Activation, str] = {"relu": "relu", "gelu": "gelu", "silu": "silu"}
State = dict[str, Tensor]


def write_huggingface(model: Transformer, tokenizer: Tokenizer, folder: Path, *, languages: tuple[str, str]) -> None:
    """Everything that `AutoModelForSeq2SeqLM` and `AutoTokenizer` look for."""
    require_holdable(model.config, tokenizer)
    write_tokenizer(tokenizer, folder, max_length=MAX_POSITIONS, languages=languages)
    _write_json(folder / "config.json", model_table(model.config))
    _write_json(folder / "generation_config.json", GENERATION)
    state = {name: tensor.detach().float().contiguous() for name, tensor in state_of(model).items()}
    (folder / "model.safetensors").write_bytes(save(state, metadata={"format": "pt"}))


def _write_json(path: Path, table: dict[str, Any]) -> None:
    path.write_text(json.dumps(table, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")


def require_holdable(config: ModelConfig, tokenizer: Tokenizer) -> None:
    """What neither of the two models can be is refused."""
    if config.positions == "learned":
        raise ValueError(
            "Hugging Face's Marian and Pegasus have sinusoidal positions only, and this model has learned ones; export it "
            "with --to ctranslate2"
        )
    if config.norm == "pre" and not (tokenizer.is_shared and config.shared_embeddings == "all"):
        raise ValueError(
            "a pre-norm model is exported as Pegasus, which has one vocabulary and one matrix for source, target and "
            "output, and this model has more; export it with --to ctranslate2"
        )


GENERATION: dict[str, Any] = {
    "decoder_start_token_id": BOS_ID,
    "bos_token_id": BOS_ID,
    "eos_token_id": EOS_ID,
    "pad_token_id": PAD_ID,
    "num_beams": 1,
    "do_sample": False,
    "max_length": MAX_POSITIONS,
}


def model_table(config: ModelConfig) -> dict[str, Any]:
    """The `config.json`."""
    is_pre_norm = config.norm == "pre"
    table = {
        "model_type": "pegasus" if is_pre_norm else "marian",
        "architectures": ["PegasusForConditionalGeneration" if is_pre_norm else "MarianMTModel"],
        "vocab_size": config.src_vocab_size,
        "d_model": config.d_model,
        "encoder_layers": config.encoder_layers,
        "decoder_layers": config.decoder_layers,
        "num_hidden_layers": config.encoder_layers,
        "encoder_attention_heads": config.num_heads,
        "decoder_attention_heads": config.num_heads,
        "encoder_ffn_dim": config.d_ff,
        "decoder_ffn_dim": config.d_ff,
        "activation_function": ACTIVATIONS[config.activation],
        "dropout": config.dropout,
        "attention_dropout": config.attention_dropout,
        "activation_dropout": config.activation_dropout,
        "max_position_embeddings": MAX_POSITIONS,
        "scale_embedding": True,
        "is_encoder_decoder": True,
        "decoder_start_token_id": BOS_ID,
        "bos_token_id": BOS_ID,
        "eos_token_id": EOS_ID,
        "pad_token_id": PAD_ID,
        "forced_eos_token_id": None,
        "tie_word_embeddings": config.shared_embeddings != "none",
        "dtype": "float32",
    }
    if not is_pre_norm:
        table["decoder_vocab_size"] = config.tgt_vocab_size
        table["share_encoder_decoder_embeddings"] = config.shared_embeddings == "all"
    return table


def sines_first(d_model: int) -> Int[Tensor, " D"]:
    """Their dimension in terms of ours: 0, 2, 4, … hold the sines, 1, 3, 5, … the cosines."""
    return torch.cat([torch.arange(0, d_model, 2), torch.arange(1, d_model, 2)])


def state_of(model: Transformer) -> State:
    """Our parameters under their names, in their order of the residual stream."""
    order = sines_first(model.config.d_model)
    state = _embeddings(model, order)
    for n, encoder_layer in enumerate(model.encoder):
        state |= _layer(f"model.encoder.layers.{n}", encoder_layer, order)
    for n, decoder_layer in enumerate(model.decoder):
        state |= _layer(f"model.decoder.layers.{n}", decoder_layer, order)
        state |= _cross_attention(f"model.decoder.layers.{n}", decoder_layer, order)
    if model.config.norm == "pre":
        state |= _norm("model.encoder.layer_norm", model.encoder_norm, order)
        state |= _norm("model.decoder.layer_norm", model.decoder_norm, order)
        for stack in ("encoder", "decoder"):  # which Marian computes, and Pegasus wants to be given
            state[f"model.{stack}.embed_positions.weight"] = sinusoids(MAX_POSITIONS, model.config.d_model)[:, order]
    bias = model.output_weight.new_zeros(model.config.tgt_vocab_size) if model.output_bias is None else model.output_bias
    return state | {"final_logits_bias": bias[None]}


def _embeddings(model: Transformer, order: Int[Tensor, " D"]) -> State:
    """One matrix is saved once, under the name that the others are tied to."""
    src, tgt = model.embeddings.source.weight[:, order], model.embeddings.target.weight[:, order]
    if model.config.shared_embeddings == "all":
        return {"model.shared.weight": src}
    state = {"model.encoder.embed_tokens.weight": src, "model.decoder.embed_tokens.weight": tgt}
    if model.config.shared_embeddings == "none":
        state["lm_head.weight"] = model.output_weight[:, order]
    return state


def _layer(name: str, layer: EncoderLayer | DecoderLayer, order: Int[Tensor, " D"]) -> State:
    """What both kinds of layer have."""
    stacked = layer.self_attention.query_key_value
    state: State = {}
    for map_name, weight, bias in zip("qkv", stacked.weight.chunk(3), stacked.bias.chunk(3), strict=True):
        state |= _reading(f"{name}.self_attn.{map_name}_proj", weight, bias, order)
    inner = layer.feed_forward.inner
    return (
        state
        | _writing(f"{name}.self_attn.out_proj", layer.self_attention.output, order)
        | _norm(f"{name}.self_attn_layer_norm", layer.self_attention_residual.norm, order)
        | _reading(f"{name}.fc1", inner.weight, inner.bias, order)
        | _writing(f"{name}.fc2", layer.feed_forward.outer, order)
        | _norm(f"{name}.final_layer_norm", layer.feed_forward_residual.norm, order)
    )


def _cross_attention(name: str, layer: DecoderLayer, order: Int[Tensor, " D"]) -> State:
    cross = layer.cross_attention
    state = _reading(f"{name}.encoder_attn.q_proj", cross.query.weight, cross.query.bias, order)
    for map_name, weight, bias in zip("kv", cross.key_value.weight.chunk(2), cross.key_value.bias.chunk(2), strict=True):
        state |= _reading(f"{name}.encoder_attn.{map_name}_proj", weight, bias, order)
    return (
        state
        | _writing(f"{name}.encoder_attn.out_proj", cross.output, order)
        | _norm(f"{name}.encoder_attn_layer_norm", layer.cross_attention_residual.norm, order)
    )


def _reading(name: str, weight: Float[Tensor, "O D"], bias: Float[Tensor, " O"], order: Int[Tensor, " D"]) -> State:
    """A map from the residual stream."""
    return {f"{name}.weight": weight[:, order], f"{name}.bias": bias}


def _writing(name: str, linear: nn.Linear, order: Int[Tensor, " D"]) -> State:
    """A map into the residual stream."""
    return {f"{name}.weight": linear.weight[order], f"{name}.bias": linear.bias[order]}


def _norm(name: str, norm: nn.Module, order: Int[Tensor, " D"]) -> State:
    assert isinstance(norm, nn.LayerNorm)
    return {f"{name}.weight": norm.weight[order], f"{name}.bias": norm.bias[order]}


class HuggingFaceModel:
    """An exported folder, loaded as its users would."""

    def __init__(self, folder: Path) -> None:
        from transformers import AutoModelForSeq2SeqLM, AutoTokenizer
        from transformers.utils import logging

        logging.set_verbosity_error()
        logging.disable_progress_bar()
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*sacremoses.*")  # of which MarianTokenizer makes no use here
            self._tokenizer: Any = AutoTokenizer.from_pretrained(folder)
        self._normalises = (folder / "tokenizer.json").exists()
        self._model: Any = AutoModelForSeq2SeqLM.from_pretrained(folder).eval()

    def translate(self, texts: list[str], max_length: int) -> list[Output]:
        texts = texts if self._normalises else [normalise(text) for text in texts]
        inputs = self._tokenizer(texts, return_tensors="pt", padding=True)
        generated = self._model.generate(**inputs, num_beams=1, do_sample=False, max_length=max_length + 1)
        outputs = []
        for row in generated[:, 1:].tolist():  # behind BOS, which its maximum counts
            ids = row[: row.index(EOS_ID)] if EOS_ID in row else row
            outputs.append(Output(ids, self._tokenizer.decode(row, skip_special_tokens=True)))
        return outputs
