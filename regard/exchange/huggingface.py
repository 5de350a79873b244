"""Write a run as a folder for Hugging Face's transformers: post-norm as `MarianMTModel`, pre-norm as
`PegasusForConditionalGeneration`.

Both put all sines before all cosines, where the paper alternates them. The dimensions of the residual stream have no order
of their own, so they are permuted in every matrix that reads or writes it; the function stays the same.

Rows of embeddings are in Marian's order (`marian_order`), and the decoder's first input is padding. Programs that run Marian
models take zeros for its embedding, so the parameters of a post-norm model are changed such that it is zero
(`_begin_with_zeros`). The logit of padding is `FORBIDDEN`.
"""

import math
import unicodedata
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.config import Activation, ModelConfig
from regard.errors import UserError
from regard.exchange.folder import StateDict, write_json, write_weights
from regard.exchange.hf_tokenizer import marian_order, padding_of, write_tokenizer
from regard.exchange.verification import MAX_POSITIONS, Output
from regard.model.embedding import sinusoids
from regard.model.transformer import Transformer
from regard.text.tokenizer import BOS_ID, EOS_ID, PAD_ID, Tokenizer
from regard.translate.search import MAX_EXTRA

ACTIVATIONS: dict[Activation, str] = {"relu": "relu", "gelu": "gelu", "silu": "silu"}
FORBIDDEN = -1e4  # the logit of tokens that are never output: far below all others, and harmless to the loss in training


def write_huggingface(
    model: Transformer, tokenizer: Tokenizer, folder: Path, *, languages: tuple[str, str], longest: int = 0
) -> None:
    """Write everything that `AutoModelForSeq2SeqLM` and `AutoTokenizer` look for. `longest` is the number of subwords of the
    longest training source, or 0 if unknown: an output has up to `MAX_EXTRA` more, unless `generate` is given another
    limit."""
    require_holdable(model.config, tokenizer)
    write_tokenizer(tokenizer, folder, max_length=MAX_POSITIONS, languages=languages)
    padding = padding_of(tokenizer)
    eos = marian_order(padding + 2, padding).index(EOS_ID)
    special_tokens: dict[str, Any] = {"decoder_start_token_id": padding, "pad_token_id": padding}
    special_tokens |= {"eos_token_id": eos, "bos_token_id": None}
    write_json(folder / "config.json", model_table(model.config) | special_tokens)
    max_length = min(1 + longest + MAX_EXTRA, MAX_POSITIONS) if longest else MAX_POSITIONS  # counts the first input
    generation = {"num_beams": 1, "do_sample": False, "max_length": max_length}
    write_json(folder / "generation_config.json", special_tokens | generation)
    write_weights(folder, state_of(model, padding))


def require_holdable(config: ModelConfig, tokenizer: Tokenizer) -> None:
    """Refuse a model that neither Marian nor Pegasus can represent."""
    if config.positions == "learned":
        raise UserError(
            "Hugging Face's Marian and Pegasus have sinusoidal positions only, and this model has learned ones; export it "
            "with --to ctranslate2"
        )
    if config.norm == "pre" and not (tokenizer.is_shared and config.shared_embeddings == "all"):
        raise UserError(
            "a pre-norm model is exported as Pegasus, which has one vocabulary and one matrix for source, target and "
            "output, and this model has more; export it with --to ctranslate2"
        )


def model_table(config: ModelConfig) -> dict[str, Any]:
    """Return the contents of `config.json`."""
    is_pre_norm = config.norm == "pre"
    table = {
        "model_type": "pegasus" if is_pre_norm else "marian",
        "architectures": ["PegasusForConditionalGeneration" if is_pre_norm else "MarianMTModel"],
        "vocab_size": config.src_vocab_size - 1,
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
        "forced_eos_token_id": None,
        "tie_word_embeddings": config.shared_embeddings != "none",
        "dtype": "float32",
    }
    if is_pre_norm:  # Pegasus is always so, but CTranslate2's converter asks for it
        return table | {"normalize_before": True, "normalize_embedding": False}
    is_shared = config.shared_embeddings == "all"
    return table | {"decoder_vocab_size": config.tgt_vocab_size - 1, "share_encoder_decoder_embeddings": is_shared}


def sines_first(d_model: int) -> Int[Tensor, " D"]:
    """Return the index in our order of each of their dimensions: sines are 0, 2, 4, … and cosines 1, 3, 5, …"""
    return torch.cat([torch.arange(0, d_model, 2), torch.arange(1, d_model, 2)])


class LayerMap(NamedTuple):
    """A module of a layer that reads the residual stream (or else writes it, or normalises it), in both programs."""

    ours: str
    theirs: tuple[str, ...]  # several if ours is their matrices stacked
    reads: bool = False


ENCODER_LAYER = (
    LayerMap("self_attention.query_key_value", ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"), reads=True),
    LayerMap("self_attention.output", ("self_attn.out_proj",)),
    LayerMap("self_attention_residual.norm", ("self_attn_layer_norm",)),
    LayerMap("feed_forward.inner", ("fc1",), reads=True),
    LayerMap("feed_forward.outer", ("fc2",)),
    LayerMap("feed_forward_residual.norm", ("final_layer_norm",)),
)
DECODER_LAYER = (
    *ENCODER_LAYER,
    LayerMap("cross_attention.query", ("encoder_attn.q_proj",), reads=True),
    LayerMap("cross_attention.key_value", ("encoder_attn.k_proj", "encoder_attn.v_proj"), reads=True),
    LayerMap("cross_attention.output", ("encoder_attn.out_proj",)),
    LayerMap("cross_attention_residual.norm", ("encoder_attn_layer_norm",)),
)


def layer_maps(config: ModelConfig) -> Iterator[LayerMap]:
    """Yield the modules of all layers, with their full names."""
    stacks = {"encoder": (config.encoder_layers, ENCODER_LAYER), "decoder": (config.decoder_layers, DECODER_LAYER)}
    for stack, (num_layers, layer) in stacks.items():
        for n in range(num_layers):
            for ours, theirs, reads in layer:
                yield LayerMap(f"{stack}.{n}.{ours}", tuple(f"model.{stack}.layers.{n}.{name}" for name in theirs), reads)


def state_of(model: Transformer, padding: int) -> StateDict:
    """Return our parameters under their names, in their orders of the residual stream and of the vocabulary."""
    order = sines_first(model.config.d_model)
    state = _embeddings(model, order, padding)
    ours = model.state_dict()
    for module, theirs, reads in layer_maps(model.config):
        weights, biases = (ours[f"{module}.{kind}"].chunk(len(theirs)) for kind in ("weight", "bias"))
        for name, weight, bias in zip(theirs, weights, biases, strict=True):
            state[f"{name}.weight"] = weight[:, order] if reads else weight[order]
            state[f"{name}.bias"] = bias if reads else bias[order]
    if model.config.norm == "post":
        return _begin_with_zeros(state, model.config, padding)
    for stack in ("encoder", "decoder"):
        for kind in ("weight", "bias"):
            state[f"model.{stack}.layer_norm.{kind}"] = ours[f"{stack}_norm.{kind}"][order]
        # Marian computes its positions; Pegasus reads them from the file.
        state[f"model.{stack}.embed_positions.weight"] = sinusoids(MAX_POSITIONS, model.config.d_model)[:, order]
    return state


def _embeddings(model: Transformer, order: Int[Tensor, " D"], padding: int) -> StateDict:
    """Return the embeddings and the output bias. A tied matrix is saved once, under the name that the others are tied to."""
    src_rows, tgt_rows = (marian_order(size, padding) for size in (model.config.src_vocab_size, model.config.tgt_vocab_size))
    bias = output_bias(model)[tgt_rows][None]
    src, tgt = model.embeddings.source.weight[src_rows][:, order], model.embeddings.target.weight[tgt_rows][:, order]
    if model.config.shared_embeddings == "all":
        return {"model.shared.weight": src, "final_logits_bias": bias}
    state = {"model.encoder.embed_tokens.weight": src, "model.decoder.embed_tokens.weight": tgt, "final_logits_bias": bias}
    if model.config.shared_embeddings == "none":
        state["lm_head.weight"] = model.output_weight[tgt_rows][:, order]
    return state


def output_bias(model: Transformer) -> Float[Tensor, " V"]:
    """Return the bias of the logits, which rules out padding and BOS."""
    bias = model.output_weight.new_zeros(model.config.tgt_vocab_size) if model.output_bias is None else model.output_bias
    bias = bias.detach().clone()
    bias[[PAD_ID, BOS_ID]] = FORBIDDEN
    return bias


def _begin_with_zeros(state: StateDict, config: ModelConfig, padding: int) -> StateDict:
    """Return parameters of the same post-norm function in which the embedding of padding is zero. It is subtracted from
    every row, and the first layer adds it again: to queries, keys and values, and to the residual. All logits of a tied
    matrix change by the same number, which does not change the softmax."""
    is_shared = config.shared_embeddings == "all"
    name = "model.shared.weight" if is_shared else "model.decoder.embed_tokens.weight"
    moved = dict(state)
    moved[name] = state[name] - state[name][padding]
    offset = math.sqrt(config.d_model) * state[name][padding]
    for stack in ("encoder", "decoder") if is_shared else ("decoder",):
        attention = f"model.{stack}.layers.0.self_attn"
        for projection in (f"{attention}.{one}_proj" for one in "qkv"):
            moved[f"{projection}.bias"] = state[f"{projection}.bias"] + state[f"{projection}.weight"] @ offset
        moved[f"{attention}.out_proj.bias"] = state[f"{attention}.out_proj.bias"] + offset
    return moved


def load_exported(folder: Path, task: Literal["Seq2SeqLM", "CausalLM"]) -> tuple[Any, Any]:
    """Load the tokenizer and the model of an exported folder with transformers' `Auto` classes."""
    import transformers

    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*sacremoses.*")  # MarianTokenizer does not use it here
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    return tokenizer, getattr(transformers, f"AutoModelFor{task}").from_pretrained(folder).eval()


class HuggingFaceModel:
    """An exported translation model, run by transformers."""

    def __init__(self, folder: Path) -> None:
        self._tokenizer, self._model = load_exported(folder, "Seq2SeqLM")
        self._normalises = (folder / "tokenizer.json").exists()
        num_rows = self._model.final_logits_bias.shape[1]
        self._order = marian_order(num_rows + 1, self._model.config.pad_token_id)

    def translate(self, texts: list[str], max_length: int) -> list[Output]:
        texts = texts if self._normalises else [" " + unicodedata.normalize("NFC", text) for text in texts]
        inputs = self._tokenizer(texts, return_tensors="pt", padding=True)
        if inputs["input_ids"].shape[1] == 1:  # only EOS
            return [Output([], "")] * len(texts)
        generated = self._model.generate(**inputs, num_beams=1, do_sample=False, max_length=max_length + 1)
        outputs = []
        for row in generated[:, 1:].tolist():  # without the first input, which `max_length` counts
            ids = [self._order[n] for n in row]
            ids = ids[: ids.index(EOS_ID)] if EOS_ID in ids else ids
            outputs.append(Output(ids, self._tokenizer.decode(row, skip_special_tokens=True)))
        return outputs
