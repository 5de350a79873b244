"""Readers of parallel text: two files, TSV, JSONL and TMX, each plain, .gz, .xz or a pipe.

All text is read once, from beginning to end: a pipe cannot be rewound, and a corpus need not fit in memory. Lines end at \\n
and nowhere else. Errors name the file and the line.
"""

import gzip
import io
import itertools
import json
import lzma
import sys
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, cast
from xml.parsers import expat

from regard.config import CorpusConfig
from regard.errors import UserError
from regard.settings import similar_path
from regard.text.cleaning import Pair, require_texts

UNREADABLE = (OSError, EOFError, lzma.LZMAError, zlib.error)  # raised for damaged files
TWO_SIDED = (".tsv", ".jsonl", ".tmx")
STDIN = "-"
MAX_LINE_BYTES = 2**20  # of a sentence; a longer line could take all memory


def read_pairs(corpus: CorpusConfig, src_lang: str = "", tgt_lang: str = "") -> Iterator[Pair]:
    """Yield all pairs of a corpus, in order. A corpus without a single pair is an error."""
    pair = None
    for pair in _read(corpus, src_lang, tgt_lang):
        yield pair
    if pair is None:
        files = corpus.src if corpus.tgt is None else f"{corpus.src} and {corpus.tgt}"
        raise UserError(f"no text in {files}; give at least one line")


def _read(corpus: CorpusConfig, src_lang: str, tgt_lang: str) -> Iterator[Pair]:
    if corpus.tgt is not None:
        for path in (corpus.src, corpus.tgt):
            if content_suffix(path) in TWO_SIDED:
                raise UserError(f"{path} holds both sides by itself; give it as the source alone, without a target")
        return _read_two_files(corpus.src, corpus.tgt)
    kind = content_suffix(corpus.src)
    if kind == ".tsv":
        return _read_tsv(corpus.src)
    if kind == ".jsonl":
        return _read_jsonl(corpus.src, src_lang, tgt_lang)
    if kind == ".tmx":
        return _read_tmx(corpus.src, src_lang, tgt_lang)
    raise UserError(
        f"{corpus.src} has no partner: give its target side, too, or one file for both that ends in .tsv, .jsonl or .tmx "
        "(.gz and .xz may follow)"
    )


def content_suffix(path: str) -> str:
    """Return the lower-cased suffix of a file without .gz and .xz: `.tsv` for a.tsv.gz, `.de` for train.de.xz."""
    name = Path(path.lower())
    return (name.with_suffix("") if name.suffix in (".gz", ".xz") else name).suffix


def open_bytes(path: str) -> io.BufferedIOBase:
    """Open a file or pipe to read its uncompressed bytes; "-" is standard input."""
    if path == STDIN:
        return cast("io.BufferedIOBase", sys.stdin.buffer)
    try:
        if path.lower().endswith(".gz"):
            return gzip.open(path, "rb")
        if path.lower().endswith(".xz"):
            return lzma.open(path, "rb")
        return Path(path).open("rb")
    except FileNotFoundError:
        raise UserError(f"there is no file {path}{similar_path(path)}") from None
    except IsADirectoryError:
        raise UserError(f"{path} is a folder; give a file") from None


def read_lines(path: str) -> Iterator[str]:
    """Yield the lines of a UTF-8 file."""
    with open_bytes(path) as file:
        for number in itertools.count(1):
            try:
                line = file.readline(MAX_LINE_BYTES + 1)
            except UNREADABLE as error:
                raise UserError(f"{path}:{number}: cannot be read on from here: {error}") from error
            if not line:
                return
            if len(line) > MAX_LINE_BYTES:
                raise UserError(
                    f"{path}:{number}: a line of more than {MAX_LINE_BYTES:,} bytes; a text has one sentence a line"
                )
            if b"\0" in line:
                raise UserError(f"{path}:{number}: a zero byte; this is not a text file")
            try:
                text = line.decode("utf-8")
            except UnicodeDecodeError as error:
                raise UserError(
                    f"{path}:{number}: byte {error.start + 1} of the line (0x{line[error.start]:02x}) is not UTF-8; "
                    "convert the file, for example with iconv"
                ) from None
            yield lines_of(text.removeprefix("\ufeff") if number == 1 else text)[0]


def lines_of(text: str) -> list[str]:
    """Return the lines of a text, which end at \\n or \\r\\n only. What follows the last end is one more, possibly empty."""
    return [line.removesuffix("\r") for line in text.split("\n")]


def count_lines(path: str) -> int | None:
    """Count the lines of a plain file; None if it is compressed or a pipe."""
    if path == STDIN or not Path(path).is_file() or path.lower().endswith((".gz", ".xz")):
        return None
    with Path(path).open("rb") as file:
        last, count = b"\n", 0
        while block := file.read(2**20):
            last, count = block[-1:], count + block.count(b"\n")
    return count + (last != b"\n")


def _read_two_files(src: str, tgt: str) -> Iterator[Pair]:
    for number, (one, other) in enumerate(itertools.zip_longest(read_lines(src), read_lines(tgt)), start=1):
        if one is None or other is None:
            short, long = (src, tgt) if one is None else (tgt, src)
            raise UserError(
                f"{short} ends after line {number - 1}, but {long} goes on; the two must have one line for each other's"
            )
        yield Pair(one, other)


def _read_tsv(path: str) -> Iterator[Pair]:
    for number, line in enumerate(read_lines(path), start=1):
        columns = line.split("\t") if line.strip() else ["", ""]
        if len(columns) < 2:
            raise UserError(f"{path}:{number}: no tab; each line must be a source, a tab and a target")
        yield Pair(columns[0], columns[1])


def _read_jsonl(path: str, src_lang: str, tgt_lang: str) -> Iterator[Pair]:
    """Read objects with "src" and "tgt", or with the languages' codes, at the top or under "translation"."""
    names = [("src", "tgt")]
    if src_lang and tgt_lang and src_lang != tgt_lang:  # one name cannot hold two texts
        names.append((src_lang, tgt_lang))
    for number, line in enumerate(read_lines(path), start=1):
        if not line.strip():
            yield Pair("", "")
            continue
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):  # ValueError also if a number has too many digits
            raise UserError(f"{path}:{number}: not JSON; each line must be one object") from None
        try:
            pair = _pair_of(value, names)
        except UserError as error:
            raise UserError(f"{path}:{number}: {error}") from None
        if pair is None:
            keys = ", or ".join(f'"{src}" and "{tgt}"' for src, tgt in names)
            raise UserError(f"{path}:{number}: no two texts under {keys}")
        yield pair


def _pair_of(value: Any, names: list[tuple[str, str]]) -> Pair | None:
    if isinstance(value, dict) and isinstance(value.get("translation"), dict):
        value = value["translation"]
    for keys in names:
        src, tgt = (value.get(key) if isinstance(value, dict) else None for key in keys)
        if isinstance(src, str) and isinstance(tgt, str):
            return Pair(*require_texts((src, tgt), "text"))
    return None


def _read_tmx(path: str, src_lang: str, tgt_lang: str) -> Iterator[Pair]:
    """Read the translation units that hold both languages. `de` also finds de-DE. Entities that the file declares are
    refused: they could name other files, or grow without bound."""
    if not (src_lang and tgt_lang):
        raise UserError(f"{path}: a TMX holds many languages; say which with --src-lang and --tgt-lang")
    if src_lang.lower() == tgt_lang.lower():
        raise UserError(f"{path}: a TMX tells its two sides apart by language, but both are to be {src_lang}; use a .tsv")
    reader = _TmxReader(path, src_lang, tgt_lang)
    with open_bytes(path) as file:
        block = b"more"
        while block:
            try:
                block = file.read(2**16)
                yield from reader.feed(block)
            except UNREADABLE as error:
                raise UserError(f"{path}: cannot be read to its end: {error}") from error
            except expat.ExpatError as error:
                what = expat.errors.messages[error.code]
                raise UserError(f"{path}:{error.lineno}: not well-formed XML: {what}") from None
            except LookupError as error:
                raise UserError(f"{path}:1: {error}; convert the file to UTF-8") from None


TMX_MARKUP = ("bpt", "ept", "ph", "it", "ut")


class _TmxReader:
    """A parser from bytes to pairs: for each <tu>, the <seg> texts of its <tuv>s by language."""

    def __init__(self, path: str, src_lang: str, tgt_lang: str) -> None:
        self._path = path
        self._languages = (src_lang.lower(), tgt_lang.lower())
        self._segments: dict[str, str] = {}
        self._language = ""
        self._text: list[str] | None = None
        self._markup = 0  # depth in elements that hold formatting
        self._ready: list[Pair] = []
        self._parser = expat.ParserCreate(namespace_separator=" ")
        self._parser.StartElementHandler = self._start
        self._parser.EndElementHandler = self._end
        self._parser.CharacterDataHandler = self._characters
        self._parser.EntityDeclHandler = self._refuse
        self._parser.ExternalEntityRefHandler = self._refuse

    def feed(self, block: bytes) -> Iterable[Pair]:
        self._parser.Parse(block, not block)
        ready, self._ready = self._ready, []
        return ready

    def _refuse(self, *_: object) -> int:
        raise UserError(f"{self._path}:{self._parser.CurrentLineNumber}: declares entities of its own, which are not read")

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        name = name.rpartition(" ")[2]  # without its namespace
        if name in TMX_MARKUP:
            self._markup += 1
        elif name == "tu":
            self._segments = {}
        elif name == "tuv":
            language = attributes.get("http://www.w3.org/XML/1998/namespace lang") or attributes.get("lang", "")
            self._language = language.lower()
        elif name == "seg":
            self._text = []

    def _characters(self, text: str) -> None:
        if self._text is not None and not self._markup:
            self._text.append(text)

    def _end(self, name: str) -> None:
        name = name.rpartition(" ")[2]
        if name in TMX_MARKUP:
            self._markup -= 1
        elif name == "seg" and self._text is not None:
            self._segments.setdefault(self._language, "".join(self._text))
            self._text = None
        elif name == "tu":
            src, tgt = map(self._segment, self._languages)
            if src is not None and tgt is not None:
                self._ready.append(Pair(src, tgt))

    def _segment(self, language: str) -> str | None:
        """Return the text in this language, or in a regional variety of it."""
        regional = (text for code, text in self._segments.items() if code.startswith(f"{language}-"))
        return self._segments.get(language, next(regional, None))
