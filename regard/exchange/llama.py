"""A language model as a folder for Hugging Face's `LlamaForCausalLM`, and such a folder as a run.

The matrices are the same ones under other names, and both pair the dimensions of a head alike. Llama's tokenizer is
SentencePiece's too, with BOS and EOS where regard has them (1 and 2). Its UNK is 0, which is padding here, and its byte 0 is
3, which is UNK here: neither stands for text, for what is unknown is spelled in bytes, and texts have no zero bytes. So ids
stay what they are, and no row of a matrix is moved.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor

import regard
from regard.checkpoint import Run, Weights, weights_bytes
from regard.config import CorpusConfig, DataConfig, ModelConfig, RunConfig, TrainConfig
from regard.exchange.folder import made_beside
from regard.exchange.hf_tokenizer import write_language_tokenizer
from regard.exchange.spm import PieceType, SpmModel
from regard.model.language import LanguageModel
from regard.text.tokenizer import BOS_ID, EOS_ID, PAD_ID, Subwords, Tokenizer

State = dict[str, Tensor]
# Ours and theirs, in every layer: `layers.N.` here, `model.layers.N.` there.
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
# What Hugging Face takes for what a config.json leaves out.
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
    """The name of each of our parameters in a `LlamaForCausalLM`."""
    names = {"embedding.weight": "model.embed_tokens.weight", "norm.weight": "model.norm.weight"}
    for n in range(config.decoder_layers):
        names |= {f"layers.{n}.{ours}.weight": f"model.layers.{n}.{theirs}.weight" for ours, theirs in OF_A_LAYER.items()}
    return names | ({} if config.shared_embeddings != "none" else {"lm_head.weight": "lm_head.weight"})


def write_llama(model: LanguageModel, tokenizer: Tokenizer, folder: Path) -> None:
    """Everything that `AutoModelForCausalLM` and `AutoTokenizer` look for."""
    write_language_tokenizer(tokenizer, folder, max_length=model.config.context)
    _write_json(folder / "config.json", llama_table(model.config))
    _write_json(folder / "generation_config.json", SPECIAL_TOKENS)
    ours = model.state_dict()
    state = {theirs: ours[name].detach().float().contiguous() for name, theirs in their_names(model.config).items()}
    (folder / "model.safetensors").write_bytes(save(state, metadata={"format": "pt"}))


SPECIAL_TOKENS: dict[str, Any] = {"bos_token_id": BOS_ID, "eos_token_id": EOS_ID, "pad_token_id": PAD_ID}


def llama_table(config: ModelConfig) -> dict[str, Any]:
    """Their config.json."""
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
        "rope_theta": config.rotary_base,  # as versions before 5 read it
        "rope_parameters": {"rope_type": "default", "rope_theta": config.rotary_base},
        "tie_word_embeddings": config.shared_embeddings != "none",
        "attention_bias": False,
        "mlp_bias": False,
        "attention_dropout": config.attention_dropout,
        "dtype": "float32",
        **SPECIAL_TOKENS,
    }


def is_llama(folder: Path) -> bool:
    """Whether a folder says that it holds one."""
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(config, dict) and config.get("model_type") == "llama"


def import_llama(folder: Path, output: Path) -> list[str]:
    """Makes the run; gives the lines that say what was made."""
    theirs = LlamaFolder.open(folder)
    with made_beside(output) as workshop:
        subwords = theirs.subwords()
        config = theirs.model_config(len(subwords))
        weights = fitting(theirs.read_weights(), config, folder)
        run = Run(workshop)
        run.publish(Tokenizer(subwords, subwords).files() | {"model.safetensors": weights_bytes(weights)})
        data = DataConfig(
            train=(), valid=CorpusConfig(src="")
        )  # no text belongs to it: `regard train --from` brings its own
        run_config = RunConfig(preset="base", longest=config.context, data=data, model=config, train=TrainConfig())
        run.write_config(run_config, Weights("imported", (), 0, final=True), regard.__version__)
    num_parameters = sum(tensor.numel() for tensor in weights.values())
    return [f"{output} is {folder}: a language model of {num_parameters / 1e6:.1f} M parameters, {len(subwords):,} subwords"]


@dataclass(frozen=True)
class LlamaFolder:
    folder: Path
    config: dict[str, Any]

    @classmethod
    def open(cls, folder: Path) -> "LlamaFolder":
        try:
            config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        except ValueError as error:
            raise ValueError(f"{folder / 'config.json'} is no JSON: {error}") from error
        config = DEFAULTS | {key: value for key, value in config.items() if value is not None}
        for name in NUMBERS:
            if not isinstance(config.get(name), int) or config[name] < 1:
                raise ValueError(f"{folder / 'config.json'} has {name} = {config.get(name)!r}; it must be a number above 0")
        config.setdefault("num_key_value_heads", config["num_attention_heads"])
        rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
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
                raise ValueError(f"{folder} has {name} = {config.get(name, rope)}, which regard's language model has not")
        return cls(folder, config)

    def subwords(self) -> Subwords:
        path = self.folder / "tokenizer.model"
        if not path.exists():
            raise ValueError(
                f"{self.folder} has no tokenizer.model; only Llamas with SentencePiece's subwords can be imported"
            )
        content = path.read_bytes()
        model = SpmModel.parse(content, str(path))
        kinds = [piece.type for piece in model.pieces[: EOS_ID + 1]]
        ours, theirs = ([first, PieceType.CONTROL, PieceType.CONTROL] for first in (PieceType.CONTROL, PieceType.UNKNOWN))
        if not model.has_bytes or kinds not in (ours, theirs):
            raise ValueError(
                f"{path} is not as Llama's: BOS and EOS must be 1 and 2, and what is unknown must be spelled in bytes"
            )
        return Subwords(content)

    def model_config(self, num_subwords: int) -> ModelConfig:
        """Rows behind the last subword, of tokens that programs added, are left out."""
        config = self.config
        is_shared = config["num_key_value_heads"] != config["num_attention_heads"]
        if config["vocab_size"] < num_subwords:
            raise ValueError(f"{self.folder} has {num_subwords} subwords, but its model {config['vocab_size']} rows")
        return ModelConfig(
            kind="language",
            src_vocab_size=num_subwords,
            tgt_vocab_size=num_subwords,
            pad_id=PAD_ID,
            decoder_layers=config["num_hidden_layers"],
            d_model=config["hidden_size"],
            num_heads=config["num_attention_heads"],
            key_value_heads=config["num_key_value_heads"] if is_shared else 0,
            d_ff=config["intermediate_size"],
            rotary_base=float(config["rope_theta"]),
            norm_epsilon=config["rms_norm_eps"],
            context=config["max_position_embeddings"],
            shared_embeddings="all" if config["tie_word_embeddings"] else "none",
            dropout=0.0,
            embedding_dropout=0.0,
            attention_dropout=config["attention_dropout"],
        )

    def read_weights(self) -> State:
        """All tensors by name, from one file or several."""
        index = self.folder / "model.safetensors.index.json"
        names = ["model.safetensors"]
        if index.exists():
            try:
                names = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise ValueError(f"{index} does not say which file has which weights ({error!r})") from error
        state: State = {}
        for name in names:
            if not (self.folder / name).exists():
                raise ValueError(f"{self.folder} has no {name}")
            try:
                state |= load_file(self.folder / name)
            except SafetensorError as error:
                raise ValueError(f"{self.folder / name} is damaged: {error}") from error
        return state


def fitting(theirs: State, config: ModelConfig, folder: Path) -> State:
    """Their parameters under our names, in float32, or it is not theirs."""
    with torch.device("meta"):
        expected = LanguageModel(config).state_dict()
    weights: State = {}
    for name, their_name in their_names(config).items():
        if their_name not in theirs:
            raise ValueError(f"the weights in {folder} have no {their_name}")
        tensor = theirs[their_name].float()
        if name in ("embedding.weight", "lm_head.weight"):
            tensor = tensor[: config.tgt_vocab_size].contiguous()
        if tensor.shape != (shape := expected[name].shape):
            raise ValueError(
                f"the weights in {folder} do not fit its config.json: {their_name} is {tuple(tensor.shape)} and should be "
                f"{tuple(shape)}"
            )
        weights[name] = tensor
    return weights


def _write_json(path: Path, table: dict[str, Any]) -> None:
    path.write_text(json.dumps(table, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")
