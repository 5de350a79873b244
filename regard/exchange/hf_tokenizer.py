"""A run's subwords as Hugging Face's tokenizers hold them: the same pieces from the same text, and the same text back.

One vocabulary becomes a `tokenizer.json`, whose normaliser does what `regard.text.cleaning.normalise` does. Two become the
SentencePiece files and vocabularies of a `MarianTokenizer`, which normalises nothing: give it text in NFC.
"""

import json
import sys
from pathlib import Path

from regard.exchange.spm import Piece, PieceType, SpmModel
from regard.text.tokenizer import BOS_ID, EOS_ID, PAD_ID, SPACE, UNK_ID, Subwords, Tokenizer


def write_tokenizer(tokenizer: Tokenizer, folder: Path, *, max_length: int, languages: tuple[str, str]) -> None:
    """Files that `AutoTokenizer` finds. `max_length` is told to who asks; nothing is cut."""
    specials = tokenizer.src.pieces([PAD_ID, BOS_ID, EOS_ID, UNK_ID])
    settings: dict[str, object] = dict(zip(("pad_token", "bos_token", "eos_token", "unk_token"), specials, strict=True))
    settings |= {
        "model_max_length": max_length,
        "model_input_names": ["input_ids", "attention_mask"],
        "padding_side": "right",
        "clean_up_tokenization_spaces": False,
        "split_special_tokens": True,  # a literal </s> in a sentence is text
    }
    if tokenizer.is_shared:
        settings["tokenizer_class"] = "PreTrainedTokenizerFast"
        (folder / "tokenizer.json").write_text(tokenizer_json(tokenizer.src), encoding="utf-8")
    else:
        settings |= {"tokenizer_class": "MarianTokenizer", "separate_vocabs": True}
        settings |= {"source_lang": languages[0] or None, "target_lang": languages[1] or None}
        for subwords, model_name, vocabulary_name in (
            (tokenizer.src, "source.spm", "vocab.json"),
            (tokenizer.tgt, "target.spm", "target_vocab.json"),
        ):
            _model_of(subwords)
            (folder / model_name).write_bytes(subwords.model)
            ids = {piece: n for n, piece in enumerate(subwords.pieces(range(len(subwords))))}
            _write_json(folder / vocabulary_name, ids)
    _write_json(folder / "tokenizer_config.json", settings)


def write_language_tokenizer(tokenizer: Tokenizer, folder: Path, *, max_length: int) -> None:
    """The same for a language model, whose texts begin with BOS; what ends them is the model's to say. Also SentencePiece's
    own file, under the name that Llama's has."""
    names = ("pad_token", "bos_token", "eos_token", "unk_token")
    settings: dict[str, object] = dict(zip(names, tokenizer.tgt.pieces([PAD_ID, BOS_ID, EOS_ID, UNK_ID]), strict=True))
    settings |= {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": max_length,
        "model_input_names": ["input_ids", "attention_mask"],
        "padding_side": "left",  # as generating wants it
        "clean_up_tokenization_spaces": False,
        "split_special_tokens": True,
    }
    (folder / "tokenizer.json").write_text(tokenizer_json(tokenizer.tgt, begins=True), encoding="utf-8")
    (folder / "tokenizer.model").write_bytes(tokenizer.tgt.model)
    _write_json(folder / "tokenizer_config.json", settings)


def _write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")


def _model_of(subwords: Subwords) -> SpmModel:
    model = SpmModel.parse(subwords.model, "the run's tokenizer")
    if not (model.is_bpe and model.has_bytes):
        raise ValueError(
            "only subwords that regard learnt (BPE with bytes) can be exported to Hugging Face, and this run was imported; "
            "use the folder it came from, or export it with --to ctranslate2"
        )
    return model


def tokenizer_json(subwords: Subwords, *, begins: bool = False) -> str:
    """The whole of a `tokenizer.json`. A text gets EOS at its end, or BOS at its beginning."""
    from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, processors
    from tokenizers import Tokenizer as Backend

    pieces = _model_of(subwords).pieces
    backend = Backend(
        models.BPE(
            vocab={piece.text: n for n, piece in enumerate(pieces)},
            merges=merges_of(pieces),
            unk_token=pieces[UNK_ID].text,
            fuse_unk=True,
            byte_fallback=True,
        )
    )
    backend.normalizer = normalizers.Sequence(
        [normalizers.NFC(), normalizers.Replace(Regex(f"[{_spaces()}]+"), " "), normalizers.Strip()]
    )
    backend.pre_tokenizer = pre_tokenizers.Metaspace(replacement=SPACE, prepend_scheme="always", split=True)
    added = BOS_ID if begins else EOS_ID
    name = pieces[added].text
    backend.post_processor = processors.TemplateProcessing(
        single=f"{name} $A" if begins else f"$A {name}",
        pair=f"{name} $A $B" if begins else f"$A $B {name}",
        special_tokens=[(name, added)],
    )
    # SentencePiece takes away all spaces at the beginning, not the first alone.
    many = 2**20
    backend.decoder = decoders.Sequence(
        [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", many, 0)]
    )
    backend.add_special_tokens(
        [AddedToken(pieces[n].text, special=True, normalized=False) for n in (PAD_ID, BOS_ID, EOS_ID, UNK_ID)]
    )
    content: str = backend.to_str(pretty=True)
    return content


def merges_of(pieces: tuple[Piece, ...]) -> list[tuple[str, str]]:
    """The merges that SentencePiece does without listing them: any two pieces whose concatenation is one, the best score
    first. Where two ways to the same piece overlap ("ab·aba·ba"), it takes the left one and a list takes the earlier one;
    that needs a piece which repeats itself."""
    scores = {piece.text: piece.score for piece in pieces if piece.type == PieceType.NORMAL}
    return [
        (text[:cut], text[cut:])
        for text in sorted(scores, key=lambda text: -scores[text])
        for cut in range(1, len(text))
        if text[:cut] in scores and text[cut:] in scores
    ]


def _spaces() -> str:
    """What Python's `\\s` matches, and U+2581: the library's own `\\s` is another set."""
    return SPACE + "".join(f"\\x{{{n:x}}}" for n in range(sys.maxunicode + 1) if chr(n).isspace())
