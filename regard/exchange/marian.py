"""`regard import`: a Hugging Face folder with a Marian model (OPUS-MT) becomes a run.

Marian's ids are reordered so that padding, BOS, EOS and UNK are the first four, as everywhere in regard. Its decoder starts
with padding, whose row is therefore our BOS's; neither may be said. The residual stream is put into the paper's order of
sines and cosines (`regard.exchange.huggingface` does the same the other way).
"""

import json
import math
import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

import regard
from regard.checkpoint import Run, Weights, weights_bytes
from regard.config import Activation, CleaningConfig, CorpusConfig, DataConfig, ModelConfig, RunConfig, TrainConfig
from regard.exchange.folder import made_beside
from regard.exchange.huggingface import sines_first
from regard.exchange.spm import Piece, PieceType, SpmModel
from regard.model.transformer import Transformer
from regard.text.tokenizer import BOS_ID, MARIAN, PAD_ID, Subwords, Tokenizer

ACTIVATIONS: dict[str, Activation] = {"relu": "relu", "gelu": "gelu", "silu": "silu", "swish": "silu"}
FORBIDDEN = -1e4  # the logit of what is never said: far below all others, and no strain for the loss if it is trained on
IN_TEXT = (PieceType.NORMAL, PieceType.USER_DEFINED, PieceType.UNUSED, PieceType.BYTE)
OF_GENERATION = ("decoder_start_token_id", "eos_token_id")  # what generation_config.json says last
State = dict[str, Tensor]


def import_marian(folder: Path, output: Path) -> list[str]:
    """Makes the run; gives the lines that say what was made."""
    theirs = MarianFolder.open(folder)
    with made_beside(output) as workshop:
        state = theirs.read_weights()
        tokenizer = Tokenizer(_subwords(folder / "source.spm", theirs.src), _subwords(folder / "target.spm", theirs.tgt))
        config = theirs.model_config()
        weights = fitting(state, config, theirs)
        run = Run(workshop)
        run.publish(tokenizer.files() | {"model.safetensors": weights_bytes(weights)})
        run.write_config(theirs.run_config(config), Weights("imported", (), 0, final=True), regard.__version__)
    num_parameters = sum(tensor.numel() for tensor in weights.values())
    languages = f"{theirs.src_lang or 'source'} → {theirs.tgt_lang or 'target'}"
    return [f"{output} is {folder}: {languages}, {num_parameters / 1e6:.1f} M parameters, {len(tokenizer.tgt):,} subwords"]


@dataclass(frozen=True)
class Vocabulary:
    """One side's: our order, in terms of theirs."""

    pieces: tuple[str, ...]  # the first four are the special tokens
    rows: tuple[int, ...]  # of their matrices

    @classmethod
    def of(cls, ids: dict[str, int], *, pad: int, start: int, eos: int, unk: int) -> "Vocabulary":
        text_of = {row: piece for piece, row in ids.items()}
        others = [row for row in sorted(text_of) if row not in (pad, eos, unk)]
        names = (text_of.get(pad, "<pad>"), "<start>", text_of[eos], text_of[unk])
        return cls((*names, *(text_of[row] for row in others)), (pad, start, eos, unk, *others))


@dataclass(frozen=True)
class MarianFolder:
    folder: Path
    config: dict[str, Any]
    src: Vocabulary
    tgt: Vocabulary
    src_lang: str
    tgt_lang: str

    @classmethod
    def open(cls, folder: Path) -> "MarianFolder":
        if not (folder / "config.json").exists():
            raise ValueError(f"{folder} is no Hugging Face folder: it has no config.json")
        config = _read_json(folder / "config.json")
        if "format" in config and "regard" in config:
            raise ValueError(f"{folder} is a run already, and needs no importing")
        if config.get("model_type") != "marian":
            raise ValueError(
                f"{folder} holds a {config.get('model_type')} model; only marian (OPUS-MT) and llama can be imported"
            )
        for name in ("source.spm", "target.spm", "vocab.json"):
            if not (folder / name).exists():
                raise ValueError(f"{folder} has no {name}; give the whole folder, as it is downloaded")
        generation = _optional_json(folder / "generation_config.json")
        config = DEFAULTS | config | {key: generation[key] for key in OF_GENERATION if generation.get(key) is not None}
        settings = _optional_json(folder / "tokenizer_config.json")
        eos, unk = (_token(settings, f"{name}_token", default) for name, default in (("eos", "</s>"), ("unk", "<unk>")))
        src_path, tgt_path = folder / "vocab.json", folder / "vocab.json"
        if settings.get("separate_vocabs"):
            tgt_path = folder / "target_vocab.json"
        src_ids, tgt_ids = _read_ids(src_path, eos, unk), _read_ids(tgt_path, eos, unk)
        pad, start = int(config["pad_token_id"]), int(config["decoder_start_token_id"])
        tgt_eos = config["eos_token_id"][0] if isinstance(config["eos_token_id"], list) else int(config["eos_token_id"])
        if tgt_eos not in tgt_ids.values():
            raise ValueError(f"{folder} says that {tgt_eos} is the end of a sentence, a number that {tgt_path} has not")
        return cls(
            folder,
            config,
            Vocabulary.of(src_ids, pad=pad, start=start, eos=src_ids[eos], unk=src_ids[unk]),
            Vocabulary.of(tgt_ids, pad=pad, start=start, eos=tgt_eos, unk=tgt_ids[unk]),
            str(settings.get("source_lang") or ""),
            str(settings.get("target_lang") or ""),
        )

    @property
    def shares_embeddings(self) -> bool:
        return bool(self.config["share_encoder_decoder_embeddings"])

    def read_weights(self) -> State:
        """All tensors by name, in float32. Nothing in the folder is executed."""
        safe, pickled = self.folder / "model.safetensors", self.folder / "pytorch_model.bin"
        try:
            if safe.exists():
                state = load_file(safe)
            elif pickled.exists():
                state = torch.load(pickled, map_location="cpu", weights_only=True)
            else:
                raise ValueError(f"{self.folder} has neither model.safetensors nor pytorch_model.bin")
        except pickle.UnpicklingError as error:
            raise ValueError(
                f"{pickled} holds more than weights, and to load it would be to run it; convert it to safetensors first"
            ) from error
        except (SafetensorError, RuntimeError, EOFError) as error:
            raise ValueError(f"the weights in {self.folder} are damaged: {error}") from error
        if not isinstance(state, dict):
            raise ValueError(f"{pickled} holds no weights but a {type(state).__name__}")
        return {name: tensor.float() for name, tensor in state.items() if isinstance(tensor, Tensor)}

    def model_config(self) -> ModelConfig:
        config = self.config
        for what in ("attention_heads", "ffn_dim"):
            one, other = config[f"encoder_{what}"], config[f"decoder_{what}"]
            if one != other:
                raise ValueError(
                    f"{self.folder} has encoder_{what} {one} and decoder_{what} {other}; regard has one for both"
                )
        if config["activation_function"] not in ACTIVATIONS:
            known = ", ".join(ACTIVATIONS)
            raise ValueError(f"{self.folder} has the activation {config['activation_function']}; regard knows {known}")
        tied = bool(config["tie_word_embeddings"]) and bool(config["scale_embedding"])  # ours always are scaled
        return ModelConfig(
            src_vocab_size=len(self.src.pieces),
            tgt_vocab_size=len(self.tgt.pieces),
            pad_id=PAD_ID,
            encoder_layers=config["encoder_layers"],
            decoder_layers=config["decoder_layers"],
            d_model=config["d_model"],
            num_heads=config["encoder_attention_heads"],
            d_ff=config["encoder_ffn_dim"],
            norm="post",
            activation=ACTIVATIONS[config["activation_function"]],
            shared_embeddings="none" if not tied else "all" if self.shares_embeddings else "target",
            output_bias=True,
            dropout=config["dropout"],
            embedding_dropout=config["dropout"],
            attention_dropout=config["attention_dropout"],
            activation_dropout=config["activation_dropout"],
        )

    def run_config(self, model: ModelConfig) -> RunConfig:
        """No text belongs to it: `regard train --from` brings its own."""
        data = DataConfig(
            train=(),
            valid=CorpusConfig(src=""),
            src_lang=self.src_lang,
            tgt_lang=self.tgt_lang,
            shared_vocab=False,
            cleaning=CleaningConfig(max_tokens=self.config["max_position_embeddings"]),
        )
        return RunConfig(preset="base", data=data, model=model, train=TrainConfig())


# What Hugging Face takes for what a config.json leaves out.
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


def _read_json(path: Path) -> dict[str, Any]:
    try:
        table = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is no JSON: {error}") from error
    if not isinstance(table, dict):
        raise ValueError(f"{path} holds no table")
    return table


def _optional_json(path: Path) -> dict[str, Any]:
    return _read_json(path) if path.exists() else {}


def _token(settings: dict[str, Any], name: str, default: str) -> str:
    value = settings.get(name) or default
    return str(value["content"] if isinstance(value, dict) else value)


def _read_ids(path: Path, *required: str) -> dict[str, int]:
    if not path.exists():
        raise ValueError(f"there is no {path.name} in {path.parent}")
    ids = _read_json(path)
    for token in required:
        if token not in ids:
            raise ValueError(f"{path} has no {token}")
    if not all(isinstance(row, int) for row in ids.values()) or len(set(ids.values())) < len(ids):
        raise ValueError(f"{path} is no vocabulary: every piece must have a number of its own")
    return ids


def _subwords(path: Path, vocabulary: Vocabulary) -> Subwords:
    """This side's SentencePiece model with our ids. Pieces of the other side are text, but are not looked for; pieces that
    the vocabulary has not are looked for, and mean UNK: they stand behind `MARIAN`."""
    model = SpmModel.parse(path.read_bytes(), str(path))
    if model.is_bpe:
        raise ValueError(f"{path} is a BPE model; only unigram models, which OPUS-MT has, can be imported")
    known = {piece.text: piece for piece in model.pieces if piece.type in IN_TEXT}
    pad, start, eos, unk = vocabulary.pieces[:4]
    pieces = [Piece(name, type=PieceType.CONTROL) for name in (pad, start, eos)]
    pieces.append(Piece(unk, type=PieceType.UNKNOWN))
    pieces += [known.get(text, Piece(text, type=PieceType.UNUSED)) for text in vocabulary.pieces[4:]]
    pieces.append(Piece(MARIAN, type=PieceType.CONTROL))
    placed = set(vocabulary.pieces)
    pieces += [piece for piece in known.values() if piece.text not in placed]
    names = [piece.text for piece in pieces]
    if "" in names or len(set(names)) < len(names):
        raise ValueError(f"the pieces of {path} and of the vocabulary beside it cannot be told apart")
    return Subwords(model.with_pieces(pieces).serialise())


def fitting(theirs: State, config: ModelConfig, folder: MarianFolder) -> State:
    """Their parameters as a model of this configuration has them, or it is not theirs."""
    with torch.device("meta"):
        expected = Transformer(config).state_dict()
    try:
        weights = converted(theirs, config, folder)
        for name, tensor in expected.items():
            if weights[name].shape != tensor.shape:
                raise IndexError(f"{name} is {tuple(weights[name].shape)} and should be {tuple(tensor.shape)}")
    except (IndexError, RuntimeError) as error:  # torch's own words for sizes that do not match
        raise ValueError(f"the weights in {folder.folder} do not fit its config.json: {error}") from error
    return weights


def converted(theirs: State, config: ModelConfig, folder: MarianFolder) -> State:
    """Their parameters under our names and in our order."""
    source = _Source(theirs, torch.argsort(sines_first(config.d_model)), folder.folder)
    state = _embeddings(source, config, folder)
    for stack, num_layers in (("encoder", config.encoder_layers), ("decoder", config.decoder_layers)):
        for n in range(num_layers):
            name = f"model.{stack}.layers.{n}"
            state |= source.attention(f"{name}.self_attn", "qkv", f"{stack}.{n}.self_attention.query_key_value")
            state |= source.writing(f"{name}.self_attn.out_proj", f"{stack}.{n}.self_attention.output")
            state |= source.norm(f"{name}.self_attn_layer_norm", f"{stack}.{n}.self_attention_residual.norm")
            state |= source.reading(f"{name}.fc1", f"{stack}.{n}.feed_forward.inner")
            state |= source.writing(f"{name}.fc2", f"{stack}.{n}.feed_forward.outer")
            state |= source.norm(f"{name}.final_layer_norm", f"{stack}.{n}.feed_forward_residual.norm")
            if stack == "decoder":
                state |= source.attention(f"{name}.encoder_attn", "q", f"{stack}.{n}.cross_attention.query")
                state |= source.attention(f"{name}.encoder_attn", "kv", f"{stack}.{n}.cross_attention.key_value")
                state |= source.writing(f"{name}.encoder_attn.out_proj", f"{stack}.{n}.cross_attention.output")
                state |= source.norm(f"{name}.encoder_attn_layer_norm", f"{stack}.{n}.cross_attention_residual.norm")
    return state


def _embeddings(source: "_Source", config: ModelConfig, folder: MarianFolder) -> State:
    """Where Marian scales nothing, the scale is taken out of what we multiply by it."""
    is_tied = bool(folder.config["tie_word_embeddings"])
    src_names, tgt_names = ([f"model.{stack}.embed_tokens.weight"] for stack in ("encoder", "decoder"))
    if folder.shares_embeddings:  # tied ones are all what the shared one is, and may be stored under any of the names
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
class _Source:
    """Their tensors, and what our order of the residual stream is in theirs."""

    tensors: State
    order: Tensor
    folder: Path

    def tensor(self, name: str) -> Tensor:
        if name not in self.tensors:
            raise ValueError(f"the weights in {self.folder} have no {name}")
        return self.tensors[name]

    def rows(self, names: list[str], vocabulary: Vocabulary) -> Tensor:
        """Of the first matrix that is there, those of our vocabulary."""
        matrix = self.tensor(next((name for name in names if name in self.tensors), names[0]))
        if max(vocabulary.rows) >= len(matrix):
            raise ValueError(
                f"the vocabulary of {self.folder} has the number {max(vocabulary.rows)}, and its model {len(matrix)} rows"
            )
        return matrix[list(vocabulary.rows)][:, self.order]

    def attention(self, name: str, maps: str, ours: str) -> State:
        """Projections that we keep stacked in one matrix."""
        weights = [self.tensor(f"{name}.{one}_proj.weight")[:, self.order] for one in maps]
        biases = [self.tensor(f"{name}.{one}_proj.bias") for one in maps]
        return {f"{ours}.weight": torch.cat(weights), f"{ours}.bias": torch.cat(biases)}

    def reading(self, name: str, ours: str) -> State:
        """A map from the residual stream."""
        return {f"{ours}.weight": self.tensor(f"{name}.weight")[:, self.order], f"{ours}.bias": self.tensor(f"{name}.bias")}

    def writing(self, name: str, ours: str) -> State:
        """A map into it."""
        weight, bias = self.tensor(f"{name}.weight"), self.tensor(f"{name}.bias")
        return {f"{ours}.weight": weight[self.order], f"{ours}.bias": bias[self.order]}

    norm = writing  # whose gain and bias lie along the stream, too
