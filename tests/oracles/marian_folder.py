"""Make a folder like OPUS-MT's with the libraries that read it: unigram SentencePiece models, a vocabulary in an order of
its own, and a Marian model with random weights."""

import io
import json
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sentencepiece
import torch

CODES = (">>fra<<", ">>deu<<")


@dataclass(frozen=True, kw_only=True)
class Variant:
    separate: bool = False  # whether the vocabularies are separate
    tied: bool = True
    scaled: bool = True
    activation: str = "swish"
    safetensors: bool = True
    encoder_layers: int = 2
    decoder_layers: int = 1
    eos_bias: float = 4.0  # added to the logits of EOS, so that most sentences end, but not all at once


def sentences(letters: str, count: int, seed: int) -> list[str]:
    draw = random.Random(seed)
    words = ["".join(draw.choices(letters, k=draw.randint(1, 7))) for _ in range(150)]
    return [" ".join(draw.choices(words, k=draw.randint(1, 9))) for _ in range(count)]


SOURCES = sentences("abcdefghij", 300, seed=1)
TARGETS = sentences("defghijklmnöü", 300, seed=2)


def unigram_model(texts: list[str]) -> bytes:
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(texts),
        model_writer=model,
        model_type="unigram",
        vocab_size=120,
        hard_vocab_limit=False,
        character_coverage=1.0,
        num_threads=1,
        minloglevel=2,
    )
    return model.getvalue()


def write_marian_folder(folder: Path, variant: Variant) -> Any:
    """Write the folder and return the Hugging Face model."""
    folder.mkdir()
    spm = {"source": unigram_model(SOURCES), "target": unigram_model(TARGETS)}
    for side, content in spm.items():
        (folder / f"{side}.spm").write_bytes(content)
    pieces = {side: _text_pieces(content) for side, content in spm.items()}
    # One piece of each side is missing, because real vocabularies leave out rare pieces.
    src, tgt = pieces["source"][:-3] + list(CODES), pieces["target"][:-3]
    if variant.separate:
        vocabularies = {"vocab.json": _numbered(src), "target_vocab.json": _numbered(tgt)}
    else:
        vocabularies = {"vocab.json": _numbered(sorted({*src, *tgt}))}
    for name, ids in vocabularies.items():
        (folder / name).write_text(json.dumps(ids), encoding="utf-8")
    settings = {"separate_vocabs": variant.separate, "source_lang": "en", "target_lang": "de"}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")
    sizes = [len(ids) for ids in vocabularies.values()]
    model = marian_model(variant, sizes[0], sizes[-1])
    model.save_pretrained(folder)
    if not variant.safetensors:
        (folder / "model.safetensors").unlink()
        torch.save(model.state_dict(), folder / "pytorch_model.bin")
    return model


def _text_pieces(content: bytes) -> list[str]:
    processor = sentencepiece.SentencePieceProcessor(model_proto=content)
    return [processor.id_to_piece(n) for n in range(3, processor.get_piece_size())]


def _numbered(pieces: list[str]) -> dict[str, int]:
    """Number the pieces, with padding at the same id on both sides, because config.json has one id for it."""
    ordered = ["</s>", "<unk>", "<pad>", *pieces]
    return {piece: n for n, piece in enumerate(ordered)}


def marian_model(variant: Variant, src_vocab_size: int, tgt_vocab_size: int) -> Any:
    from transformers import MarianConfig, MarianMTModel

    config = MarianConfig(
        vocab_size=src_vocab_size,
        decoder_vocab_size=tgt_vocab_size,
        share_encoder_decoder_embeddings=not variant.separate,
        tie_word_embeddings=variant.tied,
        scale_embedding=variant.scaled,
        activation_function=variant.activation,
        d_model=32,
        encoder_layers=variant.encoder_layers,
        decoder_layers=variant.decoder_layers,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=48,
        decoder_ffn_dim=48,
        max_position_embeddings=200,
        pad_token_id=2,
        decoder_start_token_id=2,
        eos_token_id=0,
        forced_eos_token_id=0,
    )
    torch.manual_seed(5)
    model = MarianMTModel(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "embed_positions" not in name:
                parameter.normal_(mean=1.0 if "norm.weight" in name else 0.0, std=0.3)
        model.final_logits_bias.normal_()
        model.final_logits_bias[0, 0] = variant.eos_bias
    model.generation_config.bad_words_ids = [[2]]
    model.generation_config.renormalize_logits = True
    model.generation_config.max_length = 200
    return model
