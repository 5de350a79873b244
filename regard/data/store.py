"""Encoded pairs on disk: as memory-mapped arrays, so that two million pairs open as fast as two.

A split (`train`, `valid`, …) of pairs is eight files, one of plain text four: for each side its ids one after the other,
where each sentence begins among them, its text, and where each line begins in that. The text is kept for BPE-dropout, which
segments it anew each epoch, and for people, who may want to read what a model was trained on.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Literal, TypeVar

import numpy as np
import numpy.typing as npt

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
        """These rows, in this order, without a look at each by itself."""
        starts = self.offsets[rows]
        lengths = self.offsets[rows + 1] - starts
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        places = np.repeat(starts - offsets[:-1], lengths) + np.arange(offsets[-1])
        return Ragged(self.values[places], offsets)


@dataclass(frozen=True)
class Lines:
    """The lines of a text file, found without reading it."""

    text: npt.NDArray[np.uint8]
    offsets: Offsets

    def __getitem__(self, row: int) -> str:
        return self.text[self.offsets[row] : self.offsets[row + 1] - 1].tobytes().decode("utf-8")


@dataclass(frozen=True)
class PairStore:
    """One split's pairs."""

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
    """One split's texts: what a language model learns from."""

    ids: Ragged
    text: Lines

    def __len__(self) -> int:
        return len(self.ids)

    @classmethod
    def open(cls, folder: Path, split: str) -> "TextStore":
        return cls(_ragged(folder, split, "text"), _lines(folder, split, "text"))

    @staticmethod
    def is_in(folder: Path) -> bool:
        """Whether a prepared folder holds texts; others hold pairs."""
        return _path(folder, "train", "text", "starts").exists()


def _ragged(folder: Path, split: str, side: Side) -> Ragged:
    return Ragged(_ids(folder, split, side), _map(_path(folder, split, side, "starts"), np.int64))


def _lines(folder: Path, split: str, side: Side) -> Lines:
    return Lines(_map(_path(folder, split, side, "txt"), np.uint8), _map(_path(folder, split, side, "lines"), np.int64))


def _path(folder: Path, split: str, side: Side, what: str) -> Path:
    return folder / f"{split}.{side}.{what}"


def _ids(folder: Path, split: str, side: Side) -> Ids:
    narrow = _path(folder, split, side, "u16")
    return _map(narrow, np.uint16) if narrow.exists() else _map(_path(folder, split, side, "u32"), np.uint32)


def _map(path: Path, dtype: type[T]) -> npt.NDArray[T]:
    if path.stat().st_size == 0:  # which cannot be mapped
        return np.zeros(0, dtype=dtype)
    return np.memmap(path, dtype=dtype, mode="r").view(np.ndarray)  # rows of a memmap are memmaps, each slow to make


class _SideWriter:
    """One side's four files, written from front to back."""

    def __init__(self, folder: Path, split: str, side: Side, vocab_size: int) -> None:
        self._dtype = id_type(vocab_size)
        names = ("u16" if self._dtype is np.uint16 else "u32", "starts", "txt", "lines")
        self._ids, self._starts, self._text, self._lines = (_path(folder, split, side, name).open("wb") for name in names)
        self._num_ids = self._num_bytes = 0
        self._write(self._starts, [0], np.int64)
        self._write(self._lines, [0], np.int64)

    @staticmethod
    def _write(file: IO[bytes], values: Sequence[int], dtype: type[np.generic]) -> None:
        np.asarray(values, dtype=dtype).tofile(file)

    def append(self, texts: Sequence[str], rows: Sequence[Sequence[int]]) -> None:
        lines = [text.encode("utf-8") + b"\n" for text in texts]
        starts = self._num_ids + np.cumsum([len(row) for row in rows], dtype=np.int64)
        ends = self._num_bytes + np.cumsum([len(line) for line in lines], dtype=np.int64)
        self._write(self._ids, [token for row in rows for token in row], self._dtype)
        self._text.write(b"".join(lines))
        starts.tofile(self._starts)
        ends.tofile(self._lines)
        if len(rows):
            self._num_ids, self._num_bytes = int(starts[-1]), int(ends[-1])

    def close(self) -> None:
        for file in (self._ids, self._starts, self._text, self._lines):
            file.close()


class TextWriter(_SideWriter):
    """Writes a split of texts, chunk by chunk. What it wrote is complete once it is closed."""

    def __init__(self, folder: Path, split: str, *, vocab_size: int) -> None:
        super().__init__(folder, split, "text", vocab_size)

    def __enter__(self) -> "TextWriter":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


class PairWriter:
    """Writes a split of pairs, in the same way."""

    def __init__(self, folder: Path, split: str, *, src_vocab_size: int, tgt_vocab_size: int) -> None:
        self._src = _SideWriter(folder, split, "src", src_vocab_size)
        self._tgt = _SideWriter(folder, split, "tgt", tgt_vocab_size)

    def append(self, src: "EncodedTexts", tgt: "EncodedTexts") -> None:
        assert len(src.texts) == len(src.ids) == len(tgt.texts) == len(tgt.ids)
        self._src.append(src.texts, src.ids)
        self._tgt.append(tgt.texts, tgt.ids)

    def __enter__(self) -> "PairWriter":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._src.close()
        self._tgt.close()


@dataclass(frozen=True)
class EncodedTexts:
    """One side of a few pairs: texts, and the ids of each without BOS or EOS."""

    texts: Sequence[str]
    ids: Sequence[Sequence[int]]
