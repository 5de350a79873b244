"""Read and write SentencePiece's model files, which are protocol buffers:

    message ModelProto     { repeated SentencePiece pieces = 1; TrainerSpec trainer_spec = 2;
                             NormalizerSpec normalizer_spec = 3; ... }
    message SentencePiece  { string piece = 1; float score = 2; Type type = 3; }

All other fields are kept byte for byte.
"""

import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum

from regard.errors import UserError

PIECES, TRAINER_SPEC, NORMALIZER_SPEC = 1, 2, 3  # fields of a ModelProto
PIECE, SCORE, TYPE = 1, 2, 3  # of a SentencePiece
MODEL_TYPE, BYTE_FALLBACK = 3, 35  # of a TrainerSpec
UNK_ID, BOS_ID, EOS_ID, PAD_ID, UNK_PIECE, BOS_PIECE, EOS_PIECE, PAD_PIECE = 40, 41, 42, 43, 45, 46, 47, 48
NORMALIZER_NAME, CHARSMAP = 1, 2  # of a NormalizerSpec; the second is the table of replacements
UNIGRAM, BPE = 1, 2  # values of MODEL_TYPE; the first is the default

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5  # wire types
Field = tuple[int, int, int | bytes]  # number, wire type, value


class PieceType(IntEnum):
    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5  # text, but never a result of encoding
    BYTE = 6


@dataclass(frozen=True)
class SpmPiece:
    text: str
    score: float = 0.0
    type: PieceType = PieceType.NORMAL


@dataclass(frozen=True)
class SpmModel:
    """A SentencePiece model: its pieces, and all other fields as they were read."""

    pieces: tuple[SpmPiece, ...]
    rest: tuple[Field, ...]

    @classmethod
    def parse(cls, content: bytes, name: str) -> "SpmModel":
        """Parse a file; `name` is for error messages."""
        try:
            fields = list(_fields(content))
            pieces = tuple(_piece(value) for number, _, value in fields if number == PIECES and isinstance(value, bytes))
            list(_inside(fields, TRAINER_SPEC))
        except (IndexError, ValueError, struct.error) as error:  # not a protocol buffer, or another message
            raise UserError(f"{name} is not a SentencePiece model") from error
        if not pieces:
            raise UserError(f"{name} is not a SentencePiece model: it has no pieces")
        return cls(pieces, tuple(field for field in fields if field[0] != PIECES))

    @property
    def is_bpe(self) -> bool:
        return self._trainer_numbers().get(MODEL_TYPE, UNIGRAM) == BPE

    @property
    def has_bytes(self) -> bool:
        return bool(self._trainer_numbers().get(BYTE_FALLBACK, 0))

    def _trainer_numbers(self) -> dict[int, int]:
        return {number: value for number, _, value in _inside(self.rest, TRAINER_SPEC) if isinstance(value, int)}

    def with_pieces(self, pieces: Sequence[SpmPiece]) -> "SpmModel":
        """Return the model with other pieces, of which the first four are padding, BOS, EOS and UNK."""
        names = {PAD_PIECE: pieces[0].text, BOS_PIECE: pieces[1].text, EOS_PIECE: pieces[2].text, UNK_PIECE: pieces[3].text}
        ids = {PAD_ID: 0, BOS_ID: 1, EOS_ID: 2, UNK_ID: 3}
        return SpmModel(tuple(pieces), tuple(_with_special_tokens(field, names, ids) for field in self.rest))

    def with_normaliser_of(self, other: bytes) -> "SpmModel":
        """Return the model with the normalisation table of another one, which need not have pieces."""
        tables = [field for field in _inside(_fields(other), NORMALIZER_SPEC) if field[0] == CHARSMAP]
        kept = [field for field in _inside(self.rest, NORMALIZER_SPEC) if field[0] not in (NORMALIZER_NAME, CHARSMAP)]
        spec = b"".join(map(_field_bytes, [*tables, *kept]))
        others = (field for field in self.rest if field[0] != NORMALIZER_SPEC)
        return SpmModel(self.pieces, (*others, (NORMALIZER_SPEC, BYTES, spec)))

    def serialise(self) -> bytes:
        pieces: list[Field] = [(PIECES, BYTES, _piece_bytes(piece)) for piece in self.pieces]
        return b"".join(map(_field_bytes, [*pieces, *self.rest]))


def _inside(fields: Iterable[Field], message: int) -> Iterator[Field]:
    """Yield the fields of those fields that are this message."""
    for number, _, content in fields:
        if number == message and isinstance(content, bytes):
            yield from _fields(content)


def _with_special_tokens(field: Field, names: dict[int, str], ids: dict[int, int]) -> Field:
    number, way, spec = field
    if number != TRAINER_SPEC or not isinstance(spec, bytes):
        return field
    kept = [inner for inner in _fields(spec) if inner[0] not in (*names, *ids)]
    kept += [(key, VARINT, value) for key, value in ids.items()]
    kept += [(key, BYTES, name.encode()) for key, name in names.items()]
    return number, way, b"".join(map(_field_bytes, kept))


def _piece(content: bytes) -> SpmPiece:
    text, score, kind = "", 0.0, PieceType.NORMAL
    for number, _, value in _fields(content):
        if number == PIECE and isinstance(value, bytes):
            text = value.decode("utf-8")
        elif number == SCORE and isinstance(value, bytes):
            (score,) = struct.unpack("<f", value)
        elif number == TYPE and isinstance(value, int):
            kind = PieceType(value)
    return SpmPiece(text, score, kind)


def _piece_bytes(piece: SpmPiece) -> bytes:
    fields: list[Field] = [(PIECE, BYTES, piece.text.encode("utf-8")), (SCORE, FIXED32, struct.pack("<f", piece.score))]
    if piece.type != PieceType.NORMAL:  # the default
        fields.append((TYPE, VARINT, int(piece.type)))
    return b"".join(map(_field_bytes, fields))


def _fields(content: bytes) -> Iterator[Field]:
    """Yield the fields of a message in order: numbers as int, all others as bytes."""
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
            raise ValueError(f"field {number} has the unknown wire type {way}")
        if number == 0 or place + length > len(content):
            raise ValueError(f"field {number} ends after the end of its message")
        yield number, way, content[place : place + length]
        place += length


def _field_bytes(field: Field) -> bytes:
    number, way, value = field
    head = _varint_bytes(number << 3 | way)
    if isinstance(value, int):
        return head + _varint_bytes(value)
    return head + (_varint_bytes(len(value)) if way == BYTES else b"") + value


def _varint(content: bytes, place: int) -> tuple[int, int]:
    """Return a number and the place after it: seven bits per byte, the lowest first; the eighth is set if more follow."""
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
