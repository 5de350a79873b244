"""Encoded text on disk as memory-mapped arrays, so that millions of pairs open at once.

A split (`train`, `valid`, …) has four files for each side: the ids of all texts, where each text begins among them, the
text, and where each line of it begins. The text is kept for BPE-dropout, which segments it anew each epoch, and for people.
"""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
import numpy.typing as npt

from regard.errors import UserError

Side = Literal["src", "tgt", "text"]
SIDES: tuple[Side, Side] = ("src", "tgt")
T = TypeVar("T", bound=np.generic)
Offsets = npt.NDArray[np.int64]
Ids = npt.NDArray[np.uint16] | npt.NDArray[np.uint32]
Row = Sequence[int] | npt.NDArray[np.integer[Any]]

assert sys.byteorder == "little", "the files of a store are little-endian, and so must the machine be"


def id_type(vocab_size: int) -> type[np.uint16] | type[np.uint32]:
    return np.uint16 if vocab_size <= 2**16 else np.uint32


@dataclass(frozen=True)
class Ragged:
    """Rows of different lengths, end to end: row i is values[offsets[i] : offsets[i + 1]]."""

    values: Ids
    offsets: Offsets

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, row: int) -> Ids:
        return self.values[self.offsets[row] : self.offsets[row + 1]]

    @property
    def lengths(self) -> Offsets:
        return np.diff(self.offsets)

    @classmethod
    def of(cls, rows: Sequence[Row]) -> "Ragged":
        offsets = np.zeros(len(rows) + 1, dtype=np.int64)
        np.cumsum([len(row) for row in rows], out=offsets[1:])
        values = np.concatenate(rows) if len(rows) else np.zeros(0)
        return cls(values.astype(np.uint32), offsets)

    def take(self, rows: npt.NDArray[np.int64]) -> "Ragged":
        """Return these rows, in this order, without a loop over them."""
        starts = self.offsets[rows]
        lengths = self.offsets[rows + 1] - starts
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        places = np.repeat(starts - offsets[:-1], lengths) + np.arange(offsets[-1])
        return Ragged(self.values[places], offsets)


@dataclass(frozen=True)
class Lines:
    """The lines of a text file, found without reading all of it."""

    text: npt.NDArray[np.uint8]
    offsets: Offsets

    def __getitem__(self, row: int) -> str:
        return self.text[self.offsets[row] : self.offsets[row + 1] - 1].tobytes().decode("utf-8")


@dataclass(frozen=True)
class PairStore:
    """The pairs of a split."""

    src: Ragged
    tgt: Ragged
    src_text: Lines
    tgt_text: Lines

    def __len__(self) -> int:
        return len(self.src)

    @classmethod
    def open(cls, folder: Path, split: str) -> "PairStore":
        src, tgt = (_ragged(folder, split, side) for side in SIDES)
        return cls(src, tgt, *(_lines(folder, split, side) for side in SIDES))


@dataclass(frozen=True)
class TextStore:
    """The plain texts of a split, for a language model."""

    ids: Ragged
    text: Lines

    def __len__(self) -> int:
        return len(self.ids)

    @classmethod
    def open(cls, folder: Path, split: str) -> "TextStore":
        return cls(_ragged(folder, split, "text"), _lines(folder, split, "text"))

    @staticmethod
    def is_in(folder: Path) -> bool:
        """Return whether a prepared folder holds plain texts; others hold pairs."""
        return _path(folder, "train", "text", "starts").exists()


def _ragged(folder: Path, split: str, side: Side) -> Ragged:
    narrow = _path(folder, split, side, "u16")
    ids: Ids = _map(narrow, np.uint16) if narrow.exists() else _map(_path(folder, split, side, "u32"), np.uint32)
    return Ragged(ids, _offsets(_path(folder, split, side, "starts"), len(ids)))


def _lines(folder: Path, split: str, side: Side) -> Lines:
    text = _map(_path(folder, split, side, "txt"), np.uint8)
    return Lines(text, _offsets(_path(folder, split, side, "lines"), len(text)))


def _path(folder: Path, split: str, side: Side, what: str) -> Path:
    return folder / f"{split}.{side}.{what}"


def _offsets(path: Path, num_values: int) -> Offsets:
    """Map the offsets of `num_values` values; raise an error if a full disk or an interrupted copy cut the files short."""
    offsets = _map(path, np.int64)
    if not len(offsets) or offsets[-1] != num_values:
        raise UserError(f"{path} and the files beside it do not belong together; prepare the text again")
    return offsets


def _map(path: Path, dtype: type[T]) -> npt.NDArray[T]:
    if path.stat().st_size == 0:  # an empty file cannot be mapped
        return np.zeros(0, dtype=dtype)
    if path.stat().st_size % np.dtype(dtype).itemsize:
        raise UserError(f"{path} was cut short; prepare the text again")
    return np.memmap(path, dtype=dtype, mode="r").view(np.ndarray)  # rows of a memmap are memmaps, each slow to make


class _SideWriter:
    """Writes the four files of one side."""

    def __init__(self, folder: Path, split: str, side: Side, vocab_size: int) -> None:
        self._dtype = id_type(vocab_size)
        names = ("u16" if self._dtype is np.uint16 else "u32", "starts", "txt", "lines")
        self._ids, self._starts, self._text, self._lines = (_path(folder, split, side, name).open("wb") for name in names)
        self._num_ids = self._num_bytes = 0
        for file in (self._starts, self._lines):
            np.zeros(1, dtype=np.int64).tofile(file)

    def append(self, texts: Sequence[str], rows: Sequence[Sequence[int]]) -> None:
        lines = [text.encode("utf-8") + b"\n" for text in texts]
        starts = self._num_ids + np.cumsum([len(row) for row in rows], dtype=np.int64)
        ends = self._num_bytes + np.cumsum([len(line) for line in lines], dtype=np.int64)
        np.array([token for row in rows for token in row], dtype=self._dtype).tofile(self._ids)
        self._text.write(b"".join(lines))
        starts.tofile(self._starts)
        ends.tofile(self._lines)
        if len(rows):
            self._num_ids, self._num_bytes = int(starts[-1]), int(ends[-1])

    def close(self) -> None:
        for file in (self._ids, self._starts, self._text, self._lines):
            file.close()


class SplitWriter:
    """Writes a split, chunk by chunk: its sides are the keys of `vocab_sizes`. It is complete once the writer is closed."""

    def __init__(self, folder: Path, split: str, vocab_sizes: Mapping[Side, int]) -> None:
        self._sides = [_SideWriter(folder, split, side, vocab_size) for side, vocab_size in vocab_sizes.items()]

    def append(self, *sides: tuple[Sequence[str], Sequence[Sequence[int]]]) -> None:
        """Append the texts of each side, and the ids of each text without BOS or EOS."""
        assert len({len(rows) for side in sides for rows in side}) == 1
        for writer, (texts, ids) in zip(self._sides, sides, strict=True):
            writer.append(texts, ids)

    def __enter__(self) -> "SplitWriter":
        return self

    def __exit__(self, *_: object) -> None:
        for writer in self._sides:
            writer.close()
