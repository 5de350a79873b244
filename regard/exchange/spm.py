"""SentencePiece's model files, read and written: protocol buffers, of which a few fields matter here.

    message ModelProto     { repeated SentencePiece pieces = 1; TrainerSpec trainer_spec = 2; ... }
    message SentencePiece  { string piece = 1; float score = 2; Type type = 3; }

What is not looked at (how text is normalised, above all) is kept byte for byte.
"""

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum

PIECES, TRAINER_SPEC = 1, 2  # fields of a ModelProto
PIECE, SCORE, TYPE = 1, 2, 3  # of a SentencePiece
MODEL_TYPE, BYTE_FALLBACK = 3, 35  # of a TrainerSpec
UNK_ID, BOS_ID, EOS_ID, PAD_ID, UNK_PIECE, BOS_PIECE, EOS_PIECE, PAD_PIECE = 40, 41, 42, 43, 45, 46, 47, 48
UNIGRAM, BPE = 1, 2  # values of MODEL_TYPE, of which the first is what no value means

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5  # the ways a field is written
Field = tuple[int, int, int | bytes]  # its number, the way, the value


class PieceType(IntEnum):
    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5  # never found in text, but is text
    BYTE = 6


@dataclass(frozen=True)
class Piece:
    text: str
    score: float = 0.0
    type: PieceType = PieceType.NORMAL


@dataclass(frozen=True)
class SpmModel:
    """A SentencePiece model: its pieces, and everything else as it was read."""

    pieces: tuple[Piece, ...]
    rest: tuple[Field, ...]

    @classmethod
    def parse(cls, content: bytes, name: str) -> "SpmModel":
        """`name` is for the sentence that says what is wrong with it."""
        try:
            fields = list(_fields(content))
            pieces = tuple(_piece(value) for number, _, value in fields if number == PIECES and isinstance(value, bytes))
        except (IndexError, ValueError, struct.error) as error:
            raise ValueError(f"{name} is no SentencePiece model") from error
        if not pieces:
            raise ValueError(f"{name} is no SentencePiece model: it has no pieces")
        return cls(pieces, tuple(field for field in fields if field[0] != PIECES))

    @property
    def is_bpe(self) -> bool:
        return self._trainer_value(MODEL_TYPE, UNIGRAM) == BPE

    @property
    def has_bytes(self) -> bool:
        return bool(self._trainer_value(BYTE_FALLBACK, 0))

    def _trainer_value(self, number: int, default: int) -> int:
        for field, _, spec in self.rest:
            if field == TRAINER_SPEC and isinstance(spec, bytes):
                for inner, _, value in _fields(spec):
                    if inner == number and isinstance(value, int):
                        default = value
        return default

    def with_pieces(self, pieces: Sequence[Piece]) -> "SpmModel":
        """The same model with other pieces, the first four of which are padding, BOS, EOS and UNK."""
        names = {PAD_PIECE: pieces[0].text, BOS_PIECE: pieces[1].text, EOS_PIECE: pieces[2].text, UNK_PIECE: pieces[3].text}
        ids = {PAD_ID: 0, BOS_ID: 1, EOS_ID: 2, UNK_ID: 3}
        return SpmModel(tuple(pieces), tuple(_with_special_tokens(field, names, ids) for field in self.rest))

    def serialise(self) -> bytes:
        pieces: list[Field] = [(PIECES, BYTES, _piece_bytes(piece)) for piece in self.pieces]
        return b"".join(map(_field_bytes, [*pieces, *self.rest]))


def _with_special_tokens(field: Field, names: dict[int, str], ids: dict[int, int]) -> Field:
    number, way, spec = field
    if number != TRAINER_SPEC or not isinstance(spec, bytes):
        return field
    kept = [inner for inner in _fields(spec) if inner[0] not in (*names, *ids)]
    kept += [(key, VARINT, value) for key, value in ids.items()]
    kept += [(key, BYTES, name.encode()) for key, name in names.items()]
    return number, way, b"".join(map(_field_bytes, kept))


def _piece(content: bytes) -> Piece:
    text, score, kind = "", 0.0, PieceType.NORMAL
    for number, _, value in _fields(content):
        if number == PIECE and isinstance(value, bytes):
            text = value.decode("utf-8")
        elif number == SCORE and isinstance(value, bytes):
            (score,) = struct.unpack("<f", value)
        elif number == TYPE and isinstance(value, int):
            kind = PieceType(value)
    return Piece(text, score, kind)


def _piece_bytes(piece: Piece) -> bytes:
    fields: list[Field] = [(PIECE, BYTES, piece.text.encode("utf-8")), (SCORE, FIXED32, struct.pack("<f", piece.score))]
    if piece.type != PieceType.NORMAL:  # which is what no type means
        fields.append((TYPE, VARINT, int(piece.type)))
    return b"".join(map(_field_bytes, fields))


def _fields(content: bytes) -> Iterator[Field]:
    """The fields of a message, in order: numbers as int, everything else as the bytes that stand there."""
    place = 0
    while place < len(content):
        key, place = _varint(content, place)
        number, way = key >> 3, key & 7
        if way == VARINT:
            value, place = _varint(content, place)
            yield number, way, value
            continue
        if way == BYTES:
            length, place = _varint(content, place)
        elif way in (FIXED32, FIXED64):
            length = 4 if way == FIXED32 else 8
        else:
            raise ValueError(f"field {number} is written in way {way}")
        if number == 0 or place + length > len(content):
            raise ValueError(f"field {number} ends behind the end")
        yield number, way, content[place : place + length]
        place += length


def _field_bytes(field: Field) -> bytes:
    number, way, value = field
    head = _varint_bytes(number << 3 | way)
    if isinstance(value, int):
        return head + _varint_bytes(value)
    return head + (_varint_bytes(len(value)) if way == BYTES else b"") + value


def _varint(content: bytes, place: int) -> tuple[int, int]:
    """Seven bits a byte, the lowest first; the eighth says that more follow. Also the place behind."""
    value = shift = 0
    while True:
        byte = content[place]
        value |= (byte & 0x7F) << shift
        place, shift = place + 1, shift + 7
        if byte < 0x80:
            return value, place


def _varint_bytes(value: int) -> bytes:
    assert value >= 0
    content = bytearray()
    while value >= 0x80:
        content.append(value & 0x7F | 0x80)
        value >>= 7
    content.append(value)
    return bytes(content)
