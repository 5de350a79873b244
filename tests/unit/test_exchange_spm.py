"""Tests of reading and writing SentencePiece's files, against the library itself."""

import pytest
import sentencepiece

from regard.exchange.spm import PieceType, SpmModel, SpmPiece
from tests.oracles.marian_folder import SOURCES, unigram_model
from tests.oracles.runs import subwords


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_what_is_read_is_written_byte_for_byte(kind: str) -> None:
    content = subwords(400, 1).model if kind == "bpe" else unigram_model(SOURCES)
    model = SpmModel.parse(content, "x")
    assert model.serialise() == content
    assert model.is_bpe == model.has_bytes == (kind == "bpe")
    processor = sentencepiece.SentencePieceProcessor(model_proto=content)
    assert [piece.text for piece in model.pieces] == [processor.id_to_piece(n) for n in range(processor.get_piece_size())]
    assert [piece.score for piece in model.pieces] == [processor.get_score(n) for n in range(processor.get_piece_size())]
    assert [piece.type == PieceType.CONTROL for piece in model.pieces] == [
        processor.is_control(n) for n in range(processor.get_piece_size())
    ]


def test_other_pieces_keep_the_normalisation_and_get_the_special_ids() -> None:
    model = SpmModel.parse(unigram_model(SOURCES), "x")
    controls = [SpmPiece(name, type=PieceType.CONTROL) for name in ("<pad>", "<start>", "</s>")]
    letters = [SpmPiece(letter, -1.0) for letter in "▁abfi"]
    changed = model.with_pieces([*controls, SpmPiece("<unk>", type=PieceType.UNKNOWN), *letters]).serialise()
    processor = sentencepiece.SentencePieceProcessor(model_proto=changed)
    assert (processor.pad_id(), processor.bos_id(), processor.eos_id(), processor.unk_id()) == (0, 1, 2, 3)
    assert processor.encode("ﬁ ａ", out_type=str) == ["▁", "f", "i", "▁", "a"]  # NFKC, which the file holds as a table


@pytest.mark.parametrize("content", [b"", b"\xff" * 20, b"no model at all", b"\x0a\x7f\x0a", b"\x12\x00"])
def test_what_is_no_model_is_told_in_a_sentence(content: bytes) -> None:
    with pytest.raises(ValueError, match="some file is not a SentencePiece model"):
        SpmModel.parse(content, "some file")


def test_a_model_that_was_cut_off() -> None:
    with pytest.raises(ValueError, match="is not a SentencePiece model"):
        SpmModel.parse(subwords(400, 1).model[:-7], "x")
