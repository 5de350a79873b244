"""`regard import`: convert a Hugging Face folder with a Marian model (OPUS-MT) to a run.

Marian's ids are reordered so that padding, BOS, EOS and UNK are the first four, as everywhere in regard. Its decoder starts
with padding, whose row becomes our BOS's; neither may be output. The dimensions of the residual stream are put into the
paper's order of sines and cosines (the inverse of `regard.exchange.huggingface`).
"""

import math
import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from regard.config import Activation, CleaningConfig, CorpusConfig, DataConfig, ModelConfig, RunConfig, TrainConfig
from regard.errors import UserError
from regard.exchange.folder import StateDict, made_beside, write_imported_run
from regard.exchange.huggingface import FORBIDDEN, layer_maps, sines_first
from regard.exchange.spm import PieceType, SpmModel, SpmPiece
from regard.model.transformer import Transformer
from regard.settings import read_json, read_table
from regard.text.tokenizer import BOS_ID, MARIAN, PAD_ID, Subwords, Tokenizer

ACTIVATIONS: dict[str, Activation] = {"relu": "relu", "gelu": "gelu", "silu": "silu", "swish": "silu"}
IN_TEXT = (PieceType.NORMAL, PieceType.USER_DEFINED, PieceType.UNUSED, PieceType.BYTE)
OF_GENERATION = ("decoder_start_token_id", "eos_token_id")  # generation_config.json overrides these of config.json


def import_marian(folder: Path, output: Path) -> list[str]:
    """Write the run, and return the lines that describe it."""
    theirs = MarianFolder.open(folder)
    with made_beside(output) as workshop:
        tokenizer = Tokenizer(_subwords(folder / "source.spm", theirs.src), _subwords(folder / "target.spm", theirs.tgt))
        config = theirs.model_config()
        weights = fitting(theirs.read_weights(), config, theirs)
        size = write_imported_run(workshop, tokenizer, weights, theirs.run_config(config))
    languages = f"{theirs.src_lang or 'source'} → {theirs.tgt_lang or 'target'}"
    return [f"{output} is {folder}: {languages}, {size}"]


@dataclass(frozen=True)
class Vocabulary:
    """The vocabulary of one side, in our order."""

    pieces: tuple[str, ...]  # the first four are the special tokens
    rows: tuple[int, ...]  # in their matrices

    @classmethod
    def of(cls, ids: dict[str, int], *, pad: int, start: int, eos: int, unk: int) -> "Vocabulary":
        text_of = {row: piece for piece, row in ids.items()}
        others = [row for row in sorted(text_of) if row not in (pad, eos, unk)]
        names = (text_of.get(pad, "<pad>"), "<start>", text_of[eos], text_of[unk])
        return cls((*names, *(text_of[row] for row in others)), (pad, start, eos, unk, *others))


@dataclass(frozen=True)
class MarianFolder:
    """A folder with a Marian model: its settings and its two vocabularies."""

    folder: Path
    config: dict[str, Any]
    src: Vocabulary
    tgt: Vocabulary
    src_lang: str
    tgt_lang: str

    @classmethod
    def open(cls, folder: Path) -> "MarianFolder":
        if not (folder / "config.json").exists():
            raise UserError(f"{folder} is not a Hugging Face folder: it has no config.json")
        config = _read_table(folder / "config.json")
        if "format" in config and "regard" in config:
            raise UserError(f"{folder} is a run already, and needs no importing")
        if config.get("model_type") != "marian":
            raise UserError(
                f"{folder} holds a {config.get('model_type')} model; only marian (OPUS-MT) and llama can be imported"
            )
        for name in ("source.spm", "target.spm", "vocab.json"):
            if not (folder / name).exists():
                raise UserError(f"{folder} has no {name}; give the whole folder, as it is downloaded")
        optional = (folder / name for name in ("generation_config.json", "tokenizer_config.json"))
        generation, settings = (_read_table(path) if path.exists() else {} for path in optional)
        config = DEFAULTS | config | {key: generation[key] for key in OF_GENERATION if generation.get(key) is not None}
        eos, unk = (_token(settings, f"{name}_token", default) for name, default in (("eos", "</s>"), ("unk", "<unk>")))
        tgt_path = folder / ("target_vocab.json" if settings.get("separate_vocabs") else "vocab.json")
        src_ids, tgt_ids = _read_ids(folder / "vocab.json", eos, unk), _read_ids(tgt_path, eos, unk)
        pad, start, tgt_eos = (config[name] for name in ("pad_token_id", "decoder_start_token_id", "eos_token_id"))
        if not (isinstance(pad, int) and isinstance(start, int)):
            raise UserError(f"{folder} has no numbers as pad_token_id and decoder_start_token_id, but {pad!r} and {start!r}")
        tgt_eos = tgt_eos[0] if isinstance(tgt_eos, list) and tgt_eos else tgt_eos
        if tgt_eos not in tgt_ids.values():
            raise UserError(f"{folder} says that {tgt_eos} is the end of a sentence, a number that is not in {tgt_path}")
        return cls(
            folder,
            config,
            Vocabulary.of(src_ids, pad=pad, start=start, eos=src_ids[eos], unk=src_ids[unk]),
            Vocabulary.of(tgt_ids, pad=pad, start=start, eos=tgt_eos, unk=tgt_ids[unk]),
            str(settings.get("source_lang") or ""),
            str(settings.get("target_lang") or ""),
        )

    def read_weights(self) -> StateDict:
        """Return all tensors by name, in float32, without executing anything in the folder."""
        safe, pickled = self.folder / "model.safetensors", self.folder / "pytorch_model.bin"
        try:
            if safe.exists():
                state = load_file(safe)
            elif pickled.exists():
                state = torch.load(pickled, map_location="cpu", weights_only=True)
            else:
                raise UserError(f"{self.folder} has neither model.safetensors nor pytorch_model.bin")
        except pickle.UnpicklingError as error:
            raise UserError(
                f"{pickled} holds more than weights, and loading it would run code; convert it to safetensors first"
            ) from error
        except (SafetensorError, RuntimeError, EOFError) as error:
            raise UserError(f"the weights in {self.folder} are damaged: {error}") from error
        if not isinstance(state, dict):
            raise UserError(f"{pickled} holds no weights but a {type(state).__name__}")
        return {name: tensor.float() for name, tensor in state.items() if isinstance(tensor, Tensor)}

    def model_config(self) -> ModelConfig:
        config = self.config
        for part in ("attention_heads", "ffn_dim"):
            one, other = config[f"encoder_{part}"], config[f"decoder_{part}"]
            if one != other:
                where = f"{self.folder} has encoder_{part} {one} and decoder_{part} {other}"
                raise UserError(f"{where}; regard has one for both")
        if (activation := str(config["activation_function"])) not in ACTIVATIONS:
            known = ", ".join(ACTIVATIONS)
            raise UserError(f"{self.folder} has the activation {activation}; regard knows {known}")
        tied = bool(config["tie_word_embeddings"]) and bool(config["scale_embedding"])  # ours are always scaled
        found = {
            "src_vocab_size": len(self.src.pieces),
            "tgt_vocab_size": len(self.tgt.pieces),
            "pad_id": PAD_ID,
            "encoder_layers": config["encoder_layers"],
            "decoder_layers": config["decoder_layers"],
            "d_model": config["d_model"],
            "num_heads": config["encoder_attention_heads"],
            "d_ff": config["encoder_ffn_dim"],
            "norm": "post",
            "activation": ACTIVATIONS[activation],
            "shared_embeddings": "none" if not tied else "all" if config["share_encoder_decoder_embeddings"] else "target",
            "output_bias": True,
            "dropout": config["dropout"],
            "embedding_dropout": config["dropout"],
            "attention_dropout": config["attention_dropout"],
            "activation_dropout": config["activation_dropout"],
        }
        return read_table(ModelConfig, found, str(self.folder / "config.json"))

    def run_config(self, model: ModelConfig) -> RunConfig:
        """Return the configuration of a run without training text, which `regard train --from` gives."""
        cleaning = read_table(CleaningConfig, {"max_tokens": self.config["max_position_embeddings"]}, "config.json")
        valid, src_lang, tgt_lang = CorpusConfig(src=""), self.src_lang, self.tgt_lang
        data = DataConfig(train=(), valid=valid, src_lang=src_lang, tgt_lang=tgt_lang, shared_vocab=False, cleaning=cleaning)
        return RunConfig(preset="base", data=data, model=model, train=TrainConfig())


# Hugging Face's values for settings that a config.json leaves out.
DEFAULTS: dict[str, Any] = {
    "encoder_layers": 12,
    "decoder_layers": 12,
    "d_model": 1024,
    "encoder_attention_heads": 16,
    "decoder_attention_heads": 16,
    "encoder_ffn_dim": 4096,
    "decoder_ffn_dim": 4096,
    "activation_function": "gelu",
    "dropout": 0.1,
    "attention_dropout": 0.0,
    "activation_dropout": 0.0,
    "scale_embedding": False,
    "max_position_embeddings": 1024,
    "pad_token_id": 58100,
    "decoder_start_token_id": 58100,
    "eos_token_id": 0,
    "share_encoder_decoder_embeddings": True,
    "tie_word_embeddings": True,
}


def _read_table(path: Path) -> dict[str, Any]:
    table = read_json(path)
    if not isinstance(table, dict):
        raise UserError(f"{path} holds no table")
    return table


def _token(settings: dict[str, Any], name: str, default: str) -> str:
    value = settings.get(name) or default
    return str(value.get("content", default) if isinstance(value, dict) else value)


def _read_ids(path: Path, *required: str) -> dict[str, int]:
    if not path.exists():
        raise UserError(f"there is no {path.name} in {path.parent}")
    ids = _read_table(path)
    for token in required:
        if token not in ids:
            raise UserError(f"{path} has no {token}")
    if not all(isinstance(row, int) for row in ids.values()) or len(set(ids.values())) < len(ids):
        raise UserError(f"{path} is not a vocabulary: every piece must have a number of its own")
    return ids


def _subwords(path: Path, vocabulary: Vocabulary) -> Subwords:
    """Return the SentencePiece model of one side with our ids. Pieces of the other side are marked as unused. Pieces that
    are not in the vocabulary come after `MARIAN` and mean UNK."""
    model = SpmModel.parse(path.read_bytes(), str(path))
    if model.is_bpe:
        raise UserError(f"{path} is a BPE model; only unigram models, which OPUS-MT has, can be imported")
    known = {piece.text: piece for piece in model.pieces if piece.type in IN_TEXT}
    pieces = [SpmPiece(name, type=PieceType.CONTROL) for name in vocabulary.pieces[:3]]
    pieces.append(SpmPiece(vocabulary.pieces[3], type=PieceType.UNKNOWN))
    pieces += [known.get(text, SpmPiece(text, type=PieceType.UNUSED)) for text in vocabulary.pieces[4:]]
    pieces.append(SpmPiece(MARIAN, type=PieceType.CONTROL))
    placed = set(vocabulary.pieces)
    pieces += [piece for piece in known.values() if piece.text not in placed]
    names = [piece.text for piece in pieces]
    if "" in names or len(set(names)) < len(names):
        raise UserError(f"the pieces of {path} and of the vocabulary beside it cannot be told apart")
    return Subwords(model.with_pieces(pieces).serialise())


def fitting(theirs: StateDict, config: ModelConfig, folder: MarianFolder) -> StateDict:
    """Return their parameters converted to ours; raise a UserError if they do not fit the configuration."""
    with torch.device("meta"):
        expected = Transformer(config).state_dict()
    try:
        weights = converted(theirs, config, folder)
        for name, tensor in expected.items():
            if weights[name].shape != tensor.shape:
                raise IndexError(f"{name} is {tuple(weights[name].shape)} and should be {tuple(tensor.shape)}")
    except (IndexError, RuntimeError) as error:  # torch raises these if sizes do not match
        raise UserError(f"the weights in {folder.folder} do not fit its config.json: {error}") from error
    return weights


def converted(theirs: StateDict, config: ModelConfig, folder: MarianFolder) -> StateDict:
    """Return their parameters under our names and in our order."""
    source = _TheirTensors(theirs, torch.argsort(sines_first(config.d_model)), folder.folder)
    state = _embeddings(source, config, folder)
    for ours, names, reads in layer_maps(config):
        weight = torch.cat([source.tensor(f"{name}.weight") for name in names])
        bias = torch.cat([source.tensor(f"{name}.bias") for name in names])
        state[f"{ours}.weight"] = weight[:, source.order] if reads else weight[source.order]
        state[f"{ours}.bias"] = bias if reads else bias[source.order]
    return state


def _embeddings(source: "_TheirTensors", config: ModelConfig, folder: MarianFolder) -> StateDict:
    """Return the embeddings and the output bias. If Marian does not scale embeddings, divide them by our scale."""
    is_tied = bool(folder.config["tie_word_embeddings"])
    src_names, tgt_names = ([f"model.{stack}.embed_tokens.weight"] for stack in ("encoder", "decoder"))
    if folder.config["share_encoder_decoder_embeddings"]:  # tied matrices may be stored under any of the names
        src_names, tgt_names = (
            ["model.shared.weight", *names, "lm_head.weight"] if is_tied else [*names, "model.shared.weight"]
            for names in (src_names, tgt_names)
        )
    src, tgt = source.rows(src_names, folder.src), source.rows(tgt_names, folder.tgt)
    scale = 1.0 if folder.config["scale_embedding"] else 1.0 / math.sqrt(config.d_model)
    state = {"embeddings.src.weight": src * scale}
    if config.shared_embeddings != "all":
        state["embeddings.tgt.weight"] = tgt * scale
    if config.shared_embeddings == "none":
        state["embeddings.output.weight"] = tgt if is_tied else source.rows(["lm_head.weight"], folder.tgt)
    bias = source.tensors.get("final_logits_bias", torch.zeros(1, max(folder.tgt.rows) + 1))[0, list(folder.tgt.rows)]
    bias[[PAD_ID, BOS_ID]] = FORBIDDEN
    return state | {"output_bias": bias}


@dataclass(frozen=True)
class _TheirTensors:
    """Their parameters, with the index in their order of each of our dimensions of the residual stream."""

    tensors: StateDict
    order: Tensor
    folder: Path

    def tensor(self, name: str) -> Tensor:
        if name not in self.tensors:
            raise UserError(f"the weights in {self.folder} have no {name}")
        return self.tensors[name]

    def rows(self, names: list[str], vocabulary: Vocabulary) -> Tensor:
        """Return the rows of a vocabulary, from the first of these matrices that exists."""
        matrix = self.tensor(next((name for name in names if name in self.tensors), names[0]))
        if max(vocabulary.rows) >= len(matrix):
            raise UserError(
                f"the vocabulary of {self.folder} has the number {max(vocabulary.rows)}, and its model {len(matrix)} rows"
            )
        return matrix[list(vocabulary.rows)][:, self.order]
