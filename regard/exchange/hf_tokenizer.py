"""Write a run's subwords for Hugging Face's tokenizers, which then encode and decode as the run does.

One vocabulary becomes a `tokenizer.json`, whose normaliser does the same as `regard.text.cleaning.normalise`. Two become the
vocabularies of a `MarianTokenizer` and SentencePiece files that normalise as far as `regard.exchange.normaliser` can. A
`MarianTokenizer` needs text in NFC with a space before it, or it takes >>…<< at the beginning for a language.

A translator's ids are in Marian's order, which other programs rely on: EOS, UNK, the pieces, padding. There is no BOS,
because Marian's decoders begin with padding.
"""

from pathlib import Path

from regard.errors import UserError
from regard.exchange.folder import write_json
from regard.exchange.normaliser import normalising, white_space
from regard.exchange.spm import PieceType, SpmModel, SpmPiece
from regard.text.tokenizer import BOS_ID, EOS_ID, PAD_ID, SPACE, UNK_ID, Subwords, Tokenizer


def marian_order(num_ids: int, padding: int) -> list[int]:
    """Return our ids in Marian's order: BOS in the row of padding, and no PAD."""
    others = [EOS_ID, *range(UNK_ID, num_ids)]
    return [*others[:padding], BOS_ID, *others[padding:]]


def padding_of(tokenizer: Tokenizer) -> int:
    """Return the row of padding: the last row, or the last that two vocabularies both have, because they share its
    number."""
    return min(len(tokenizer.src), len(tokenizer.tgt)) - 2


def _vocabulary(subwords: Subwords, padding: int) -> dict[str, int]:
    order = marian_order(len(subwords), padding)
    names = subwords.pieces([PAD_ID if token == BOS_ID else token for token in order])
    return {name: row for row, name in enumerate(names)}


def _settings(subwords: Subwords, specials: dict[str, int], *, max_length: int, padding_side: str) -> dict[str, object]:
    """Return the settings of any tokenizer. No text is cut to `max_length`."""
    return {name: subwords.pieces([token])[0] for name, token in specials.items()} | {
        "model_max_length": max_length,
        "model_input_names": ["input_ids", "attention_mask"],
        "padding_side": padding_side,
        "clean_up_tokenization_spaces": False,
        "split_special_tokens": True,  # a literal </s> in a sentence is text
    }


def write_tokenizer(tokenizer: Tokenizer, folder: Path, *, max_length: int, languages: tuple[str, str]) -> None:
    """Write the files of a translator's `AutoTokenizer`."""
    padding = padding_of(tokenizer)
    specials = {"pad_token": PAD_ID, "eos_token": EOS_ID, "unk_token": UNK_ID}
    settings = _settings(tokenizer.src, specials, max_length=max_length, padding_side="right")
    if tokenizer.is_shared:
        settings["tokenizer_class"] = "PreTrainedTokenizerFast"
        content = tokenizer_json(tokenizer.src, _vocabulary(tokenizer.src, padding))
        (folder / "tokenizer.json").write_text(content, encoding="utf-8")
    else:
        settings |= {"tokenizer_class": "MarianTokenizer", "separate_vocabs": True}
        settings |= {"source_lang": languages[0] or None, "target_lang": languages[1] or None}
        for subwords, model_name, vocabulary_name in (
            (tokenizer.src, "source.spm", "vocab.json"),
            (tokenizer.tgt, "target.spm", "target_vocab.json"),
        ):
            _model_of(subwords)
            (folder / model_name).write_bytes(normalising(subwords))
            write_json(folder / vocabulary_name, _vocabulary(subwords, padding))
    write_json(folder / "tokenizer_config.json", settings)


def write_language_tokenizer(tokenizer: Tokenizer, folder: Path, *, max_length: int) -> None:
    """Write the files of a language model's `AutoTokenizer`, which puts BOS before texts and no EOS after them. Also write
    SentencePiece's own file, under the name of Llama's."""
    specials = {"pad_token": PAD_ID, "bos_token": BOS_ID, "eos_token": EOS_ID, "unk_token": UNK_ID}
    settings = _settings(tokenizer.tgt, specials, max_length=max_length, padding_side="left")  # for generating
    settings["tokenizer_class"] = "PreTrainedTokenizerFast"
    vocabulary = {piece: n for n, piece in enumerate(tokenizer.tgt.pieces(range(len(tokenizer.tgt))))}
    (folder / "tokenizer.json").write_text(tokenizer_json(tokenizer.tgt, vocabulary, begins=True), encoding="utf-8")
    (folder / "tokenizer.model").write_bytes(tokenizer.tgt.model)
    write_json(folder / "tokenizer_config.json", settings)


def _model_of(subwords: Subwords) -> SpmModel:
    model = SpmModel.parse(subwords.model, "the run's tokenizer")
    if not (model.is_bpe and model.has_bytes):
        raise UserError(
            "only subwords that regard trained (BPE with bytes) can be exported to Hugging Face, and this run was imported; "
            "use the folder it came from, or export it with --to ctranslate2"
        )
    return model


def tokenizer_json(subwords: Subwords, vocabulary: dict[str, int], *, begins: bool = False) -> str:
    """Return the contents of a `tokenizer.json`. A text gets EOS at its end, or BOS at its beginning if `begins`."""
    from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, processors
    from tokenizers import Tokenizer as Backend

    pieces = _model_of(subwords).pieces
    unk, merges = pieces[UNK_ID].text, merges_of(pieces)
    backend = Backend(models.BPE(vocab=vocabulary, merges=merges, unk_token=unk, fuse_unk=True, byte_fallback=True))
    spaces = "".join(f"\\x{{{ord(character):x}}}" for character in white_space())  # its \\s is another set
    backend.normalizer = normalizers.Sequence(
        [normalizers.NFC(), normalizers.Replace(Regex(f"[{spaces}]+"), " "), normalizers.Strip()]
    )
    backend.pre_tokenizer = pre_tokenizers.Metaspace(replacement=SPACE, prepend_scheme="always", split=True)
    name = pieces[BOS_ID if begins else EOS_ID].text
    backend.post_processor = processors.TemplateProcessing(
        single=f"{name} $A" if begins else f"$A {name}",
        pair=f"{name} $A $B" if begins else f"$A $B {name}",
        special_tokens=[(name, vocabulary[name])],
    )
    # SentencePiece removes all spaces at the beginning, not only the first.
    backend.decoder = decoders.Sequence(
        [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 2**20, 0)]
    )
    specials = [piece.text for piece in pieces[: UNK_ID + 1] if piece.text in vocabulary]
    backend.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in specials])
    content: str = backend.to_str(pretty=True)
    return content


def merges_of(pieces: tuple[SpmPiece, ...]) -> list[tuple[str, str]]:
    """Return the merges that SentencePiece does: any two pieces whose concatenation is a piece, the best score first. If two
    ways to the same piece overlap ("ab·aba·ba"), it takes the left one and a list of merges takes the earlier one; this only
    happens with a piece that repeats itself."""
    scores = {piece.text: piece.score for piece in pieces if piece.type == PieceType.NORMAL}
    return [
        (text[:cut], text[cut:])
        for text in sorted(scores, key=lambda text: -scores[text])
        for cut in range(1, len(text))
        if text[:cut] in scores and text[cut:] in scores
    ]
