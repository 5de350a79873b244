"""Export a language model as a folder for Hugging Face's `LlamaForCausalLM`, and import such a folder as a run.

The matrices are the same under other names, and both programs pair the dimensions of a head alike. Llama's tokenizer is also
SentencePiece's, with BOS and EOS where regard has them (1 and 2). Its UNK is 0, which is padding here, and its byte 0 is 3,
which is UNK here. Neither occurs in text, because unknown characters are spelled in bytes and texts have no zero bytes, so
ids and rows of matrices stay the same.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from regard.config import CorpusConfig, DataConfig, ModelConfig, RunConfig, TrainConfig
from regard.errors import UserError
from regard.exchange.folder import StateDict, made_beside, write_imported_run, write_json, write_weights
from regard.exchange.hf_tokenizer import write_language_tokenizer
from regard.exchange.spm import PieceType, SpmModel
from regard.generate.generator import Generation
from regard.model.language import LanguageModel
from regard.settings import read_json, read_table
from regard.text.tokenizer import BOS_ID, EOS_ID, PAD_ID, Subwords, Tokenizer

# Our names and theirs in each layer: `layers.N.` here, `model.layers.N.` there.
OF_A_LAYER = {
    "attention_norm": "input_layernorm",
    "attention.query": "self_attn.q_proj",
    "attention.key": "self_attn.k_proj",
    "attention.value": "self_attn.v_proj",
    "attention.output": "self_attn.o_proj",
    "feed_forward_norm": "post_attention_layernorm",
    "feed_forward.gate": "mlp.gate_proj",
    "feed_forward.inner": "mlp.up_proj",
    "feed_forward.outer": "mlp.down_proj",
}
NUMBERS = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")
# Hugging Face's values for settings that a config.json leaves out.
DEFAULTS: dict[str, Any] = {
    "vocab_size": 32000,
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "hidden_act": "silu",
    "max_position_embeddings": 2048,
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": False,
    "attention_bias": False,
    "mlp_bias": False,
    "attention_dropout": 0.0,
}


def their_names(config: ModelConfig) -> dict[str, str]:
    """Return their name of each of our parameters."""
    names = {"embedding.weight": "model.embed_tokens.weight", "norm.weight": "model.norm.weight"}
    for n in range(config.decoder_layers):
        names |= {f"layers.{n}.{ours}.weight": f"model.layers.{n}.{theirs}.weight" for ours, theirs in OF_A_LAYER.items()}
    return names | ({} if config.shared_embeddings != "none" else {"lm_head.weight": "lm_head.weight"})


def write_llama(model: LanguageModel, tokenizer: Tokenizer, folder: Path) -> None:
    """Write everything that `AutoModelForCausalLM` and `AutoTokenizer` look for."""
    write_language_tokenizer(tokenizer, folder, max_length=model.config.context)
    write_json(folder / "config.json", llama_table(model.config))
    write_json(folder / "generation_config.json", SPECIAL_TOKENS | GENERATION)
    ours = model.state_dict()
    write_weights(folder, {theirs: ours[name] for name, theirs in their_names(model.config).items()})


SPECIAL_TOKENS: dict[str, Any] = {"bos_token_id": BOS_ID, "eos_token_id": EOS_ID, "pad_token_id": PAD_ID}
# The defaults of `regard generate`. Hugging Face's own would stop at 20 tokens, the prompt included.
GENERATION = {"max_new_tokens": Generation().max_tokens, "do_sample": True, "top_k": 0, "suppress_tokens": [PAD_ID, BOS_ID]}


def llama_table(config: ModelConfig) -> dict[str, Any]:
    """Return the contents of config.json."""
    return {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "vocab_size": config.tgt_vocab_size,
        "hidden_size": config.d_model,
        "intermediate_size": config.d_ff,
        "num_hidden_layers": config.decoder_layers,
        "num_attention_heads": config.num_heads,
        "num_key_value_heads": config.key_value_heads or config.num_heads,
        "head_dim": config.d_head,
        "hidden_act": "silu",
        "max_position_embeddings": config.context,
        "rms_norm_eps": config.norm_epsilon,
        "rope_theta": config.rotary_base,  # for versions before 5
        "rope_parameters": {"rope_type": "default", "rope_theta": config.rotary_base},
        "tie_word_embeddings": config.shared_embeddings != "none",
        "attention_bias": False,
        "mlp_bias": False,
        "attention_dropout": config.attention_dropout,
        "dtype": "float32",
        **SPECIAL_TOKENS,
    }


def is_llama(folder: Path) -> bool:
    """Return whether the config.json of a folder says that its model is a Llama."""
    try:
        config = read_json(folder / "config.json")
    except (OSError, UserError):
        return False
    return isinstance(config, dict) and config.get("model_type") == "llama"


def import_llama(folder: Path, output: Path) -> list[str]:
    """Write the run, and return the lines that describe it."""
    theirs = LlamaFolder.open(folder)
    with made_beside(output) as workshop:
        subwords = theirs.subwords()
        config = theirs.model_config(len(subwords))
        weights = fitting(theirs.read_weights(), config, folder)
        data = DataConfig(train=(), valid=CorpusConfig(src=""))  # `regard train --from` has text of its own
        run_config = RunConfig(preset="base", longest=config.context, data=data, model=config, train=TrainConfig())
        size = write_imported_run(workshop, Tokenizer(subwords, subwords), weights, run_config)
    return [f"{output} is {folder}: a language model of {size}"]


@dataclass(frozen=True)
class LlamaFolder:
    """A folder with a Llama, whose config.json is one that regard supports."""

    folder: Path
    config: dict[str, Any]

    @classmethod
    def open(cls, folder: Path) -> "LlamaFolder":
        config = DEFAULTS | {key: value for key, value in read_json(folder / "config.json").items() if value is not None}
        for name in NUMBERS:
            if not isinstance(config.get(name), int) or config[name] < 1:
                raise UserError(f"{folder / 'config.json'} has {name} = {config.get(name)!r}; it must be a number above 0")
        config.setdefault("num_key_value_heads", config["num_attention_heads"])
        rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
        if not isinstance(rope, dict):
            raise UserError(f"{folder} has rope parameters that are not a table: {rope!r}")
        config["rope_theta"] = rope.get("rope_theta", config.get("rope_theta", 10_000.0))
        asked = {
            "hidden_act": config["hidden_act"] == "silu",
            "attention_bias": not config["attention_bias"],
            "mlp_bias": not config["mlp_bias"],
            "rope_parameters": rope.get("rope_type", rope.get("type", "default")) == "default",
            "head_dim": config.get("head_dim", 0) in (0, config["hidden_size"] // config["num_attention_heads"]),
        }
        for name, is_known in asked.items():
            if not is_known:
                raise UserError(f"{folder} has {name} = {config.get(name, rope)}, which regard does not support")
        return cls(folder, config)

    def subwords(self) -> Subwords:
        path = self.folder / "tokenizer.model"
        if not path.exists():
            raise UserError(f"{self.folder} has no tokenizer.model; only Llamas with SentencePiece models can be imported")
        content = path.read_bytes()
        model = SpmModel.parse(content, str(path))
        kinds = [piece.type for piece in model.pieces[: EOS_ID + 1]]
        ours, theirs = ([first, PieceType.CONTROL, PieceType.CONTROL] for first in (PieceType.CONTROL, PieceType.UNKNOWN))
        if not model.has_bytes or kinds not in (ours, theirs):
            raise UserError(
                f"{path} is not like Llama's: BOS and EOS must be 1 and 2, and unknown characters must be spelled in bytes"
            )
        return Subwords(content)

    def model_config(self, num_subwords: int) -> ModelConfig:
        """Return the configuration, without the rows of tokens that programs added after the last subword."""
        config = self.config
        is_shared = config["num_key_value_heads"] != config["num_attention_heads"]
        if config["vocab_size"] < num_subwords:
            raise UserError(f"{self.folder} has {num_subwords} subwords, but its model {config['vocab_size']} rows")
        found = {
            "kind": "language",
            "src_vocab_size": num_subwords,
            "tgt_vocab_size": num_subwords,
            "pad_id": PAD_ID,
            "decoder_layers": config["num_hidden_layers"],
            "d_model": config["hidden_size"],
            "num_heads": config["num_attention_heads"],
            "key_value_heads": config["num_key_value_heads"] if is_shared else 0,
            "d_ff": config["intermediate_size"],
            "rotary_base": config["rope_theta"],
            "norm_epsilon": config["rms_norm_eps"],
            "context": config["max_position_embeddings"],
            "shared_embeddings": "all" if config["tie_word_embeddings"] else "none",
            "dropout": 0.0,
            "embedding_dropout": 0.0,
            "attention_dropout": config["attention_dropout"],
        }
        return read_table(ModelConfig, found, str(self.folder / "config.json"))

    def read_weights(self) -> StateDict:
        """Return all tensors by name, from one file or several."""
        index = self.folder / "model.safetensors.index.json"
        names = ["model.safetensors"]
        if index.exists():
            try:
                names = sorted(map(str, set(read_json(index)["weight_map"].values())))
            except (KeyError, TypeError, AttributeError) as error:
                raise UserError(f"{index} does not say which file has which weights ({error!r})") from error
        state: StateDict = {}
        for name in names:
            if not (self.folder / name).exists():
                raise UserError(f"{self.folder} has no {name}")
            try:
                state |= load_file(self.folder / name)
            except SafetensorError as error:
                raise UserError(f"{self.folder / name} is damaged: {error}") from error
        return state


def fitting(theirs: StateDict, config: ModelConfig, folder: Path) -> StateDict:
    """Return their parameters under our names, in float32; raise a UserError if they do not fit the configuration."""
    with torch.device("meta"):
        expected = LanguageModel(config).state_dict()
    weights: StateDict = {}
    for name, their_name in their_names(config).items():
        if their_name not in theirs:
            raise UserError(f"the weights in {folder} have no {their_name}")
        tensor = theirs[their_name].float()
        if name in ("embedding.weight", "lm_head.weight"):
            tensor = tensor[: config.tgt_vocab_size].contiguous()
        if tensor.shape != (shape := expected[name].shape):
            sizes = f"{their_name} is {tuple(tensor.shape)} and should be {tuple(shape)}"
            raise UserError(f"the weights in {folder} do not fit its config.json: {sizes}")
        weights[name] = tensor
    return weights
