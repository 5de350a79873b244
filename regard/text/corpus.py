"""Parallel text in: file pairs, TSV, JSONL and TMX, each plain, .gz, .xz or a pipe.

Everything is read once, from beginning to end, in chunks: a pipe cannot be rewound, and a corpus need not fit in memory.
Lines end at \\n and nowhere else. What is wrong with a file is told with its name and line.
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
from typing import Any, NamedTuple, cast
from xml.parsers import expat

from regard.config import CorpusConfig
from regard.settings import similar_path

UNREADABLE = (OSError, EOFError, lzma.LZMAError, zlib.error)  # what a damaged or vanished file may raise
TWO_SIDED = (".tsv", ".jsonl", ".tmx")
STDIN = "-"
MAX_LINE_BYTES = 2**20  # longer ones are no sentences; reading one whole could take all memory


class Pair(NamedTuple):
    """One source text and what it is to become, as read: nothing normalised, nothing dropped."""

    src: str
    tgt: str


def read_pairs(corpus: CorpusConfig, src_lang: str = "", tgt_lang: str = "") -> Iterator[Pair]:
    """All pairs of a corpus, in order. A corpus without a single pair is an error."""
    pairs = _read(corpus, src_lang, tgt_lang)
    first = next(pairs, None)
    if first is None:
        files = corpus.src if corpus.tgt is None else f"{corpus.src} and {corpus.tgt}"
        raise ValueError(f"no text in {files}; give at least one line")
    yield first
    yield from pairs


def _read(corpus: CorpusConfig, src_lang: str, tgt_lang: str) -> Iterator[Pair]:
    if corpus.tgt is not None:
        for path in (corpus.src, corpus.tgt):
            if content_suffix(path) in TWO_SIDED:
                raise ValueError(f"{path} holds both sides by itself; give it as the source alone, without a target")
        return _read_two_files(corpus.src, corpus.tgt)
    kind = content_suffix(corpus.src)
    if kind == ".tsv":
        return _read_tsv(corpus.src)
    if kind == ".jsonl":
        return _read_jsonl(corpus.src, src_lang, tgt_lang)
    if kind == ".tmx":
        return _read_tmx(corpus.src, src_lang, tgt_lang)
    raise ValueError(
        f"{corpus.src} has no partner: give its target side, too, or one file for both that ends in .tsv, .jsonl or .tmx "
        "(.gz and .xz may follow)"
    )


def content_suffix(path: str) -> str:
    """`.tsv` for a.tsv and a.tsv.gz, lower-cased; `.de` for train.de.xz."""
    name = Path(path.lower())
    return (name.with_suffix("") if name.suffix in (".gz", ".xz") else name).suffix


def open_bytes(path: str) -> io.BufferedIOBase:
    """The uncompressed bytes of a file or pipe; "-" is standard input."""
    if path == STDIN:
        return cast("io.BufferedIOBase", sys.stdin.buffer)
    try:
        if path.lower().endswith(".gz"):
            return gzip.open(path, "rb")
        if path.lower().endswith(".xz"):
            return lzma.open(path, "rb")
        return Path(path).open("rb")
    except FileNotFoundError:
        raise ValueError(f"there is no file {path}{similar_path(path)}") from None
    except IsADirectoryError:
        raise ValueError(f"{path} is a folder; give a file") from None


def read_lines(path: str) -> Iterator[str]:
    """The lines of a UTF-8 text, without their \\n (and without the \\r of Windows before it)."""
    with open_bytes(path) as file:
        for number in itertools.count(1):
            line = _next_line(file, path, number)
            if not line:
                return
            yield _decode(line.removesuffix(b"\n").removesuffix(b"\r"), path, number)


def count_lines(path: str) -> int | None:
    """How many lines a plain file has; None where to count would be to read for good."""
    if path == STDIN or not Path(path).is_file() or path.lower().endswith((".gz", ".xz")):
        return None
    with Path(path).open("rb") as file:
        last, count = b"\n", 0
        while block := file.read(2**20):
            last, count = block[-1:], count + block.count(b"\n")
    return count + (last != b"\n")


def _next_line(file: io.BufferedIOBase, path: str, number: int) -> bytes:
    try:
        line = file.readline(MAX_LINE_BYTES + 1)
    except UNREADABLE as error:
        raise ValueError(f"{path}:{number}: cannot be read on from here: {error}") from error
    if len(line) > MAX_LINE_BYTES:
        raise ValueError(f"{path}:{number}: a line of more than {MAX_LINE_BYTES:,} bytes; a text has one sentence a line")
    return line


def _decode(line: bytes, path: str, number: int) -> str:
    if b"\0" in line:
        raise ValueError(f"{path}:{number}: a zero byte; this is no text file")
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path}:{number}: byte {error.start + 1} of the line (0x{line[error.start]:02x}) is not UTF-8; "
            "convert the file, for example with iconv"
        ) from None
    return text.removeprefix("\ufeff") if number == 1 else text


def _read_two_files(src: str, tgt: str) -> Iterator[Pair]:
    missing = object()
    lines = itertools.zip_longest(read_lines(src), read_lines(tgt), fillvalue=missing)
    for number, (one, other) in enumerate(lines, start=1):
        if one is missing or other is missing:
            short, long = (src, tgt) if one is missing else (tgt, src)
            raise ValueError(
                f"{short} ends after line {number - 1}, but {long} goes on; the two must have one line for each other's"
            )
        yield Pair(one, other)  # type: ignore[arg-type]


def _read_tsv(path: str) -> Iterator[Pair]:
    for number, line in enumerate(read_lines(path), start=1):
        columns = line.split("\t") if line.strip() else ["", ""]
        if len(columns) < 2:
            raise ValueError(f"{path}:{number}: no tab; each line must be a source, a tab and a target")
        yield Pair(columns[0], columns[1])


def _read_jsonl(path: str, src_lang: str, tgt_lang: str) -> Iterator[Pair]:
    """Objects with "src" and "tgt", or with the languages' codes, at the top or under "translation"."""
    for number, line in enumerate(read_lines(path), start=1):
        if not line.strip():
            yield Pair("", "")
            continue
        try:
            pair = _pair_of(json.loads(line), src_lang, tgt_lang)
        except (ValueError, RecursionError):
            raise ValueError(f"{path}:{number}: not JSON; each line must be one object") from None
        if pair is None:
            by_language = bool(src_lang and tgt_lang) and src_lang != tgt_lang
            keys = '"src" and "tgt"' + (f', or "{src_lang}" and "{tgt_lang}"' if by_language else "")
            raise ValueError(f"{path}:{number}: no two texts under {keys}")
        yield pair


def _pair_of(value: Any, src_lang: str, tgt_lang: str) -> Pair | None:
    if isinstance(value, dict) and isinstance(value.get("translation"), dict):
        value = value["translation"]
    by_language = [] if src_lang == tgt_lang else [(src_lang, tgt_lang)]  # one name cannot hold two texts
    for src_key, tgt_key in [("src", "tgt"), *by_language]:
        src, tgt = (value.get(key) if key and isinstance(value, dict) else None for key in (src_key, tgt_key))
        if isinstance(src, str) and isinstance(tgt, str):
            (src + tgt).encode("utf-8")  # raises ValueError where half a surrogate pair is no text
            return Pair(src, tgt)
    return None


def _read_tmx(path: str, src_lang: str, tgt_lang: str) -> Iterator[Pair]:
    """Translation units that hold both languages, streamed. `de` also finds de-DE. Entities of a file's own are refused:
    they could name other files, or grow without bound."""
    if not (src_lang and tgt_lang):
        raise ValueError(f"{path}: a TMX holds many languages; say which with --src-lang and --tgt-lang")
    if src_lang.lower() == tgt_lang.lower():
        raise ValueError(f"{path}: a TMX tells its two sides apart by language, but both are to be {src_lang}; use a .tsv")
    reader = _TmxReader(src_lang, tgt_lang)
    with open_bytes(path) as file:
        for block in _blocks(file, path):
            try:
                yield from reader.feed(block)
            except expat.ExpatError as error:
                what = expat.errors.messages[error.code]
                raise ValueError(f"{path}:{error.lineno}: not well-formed XML: {what}") from None
            except LookupError as error:
                raise ValueError(f"{path}:1: {error}; convert the file to UTF-8") from None
            except _EntityError:
                raise ValueError(f"{path}:{reader.line}: declares entities of its own, which are not read") from None


def _blocks(file: io.BufferedIOBase, path: str) -> Iterator[bytes]:
    while True:
        try:
            block = file.read(2**16)
        except UNREADABLE as error:
            raise ValueError(f"{path}: cannot be read to its end: {error}") from error
        yield block
        if not block:
            return


TMX_MARKUP = ("bpt", "ept", "ph", "it", "ut")


class _EntityError(Exception):
    pass


class _TmxReader:
    """Takes bytes, gives pairs: for each <tu>, the <seg> texts of its <tuv>s by language."""

    def __init__(self, src_lang: str, tgt_lang: str) -> None:
        self._languages = (src_lang.lower(), tgt_lang.lower())
        self._segments: dict[str, str] = {}
        self._language = ""
        self._text: list[str] | None = None
        self._markup = 0  # how deep in elements that hold formatting, not text
        self._ready: list[Pair] = []
        self._parser = expat.ParserCreate(namespace_separator=" ")
        self._parser.StartElementHandler = self._start
        self._parser.EndElementHandler = self._end
        self._parser.CharacterDataHandler = self._characters
        self._parser.EntityDeclHandler = self._refuse
        self._parser.ExternalEntityRefHandler = self._refuse

    @property
    def line(self) -> int:
        return self._parser.CurrentLineNumber

    def feed(self, block: bytes) -> Iterable[Pair]:
        self._parser.Parse(block, not block)
        ready, self._ready = self._ready, []
        return ready

    def _refuse(self, *_: object) -> int:
        raise _EntityError

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        name = name.rpartition(" ")[2]  # whatever its namespace
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
            texts = [self._segment(language) for language in self._languages]
            if texts[0] is not None and texts[1] is not None:
                self._ready.append(Pair(texts[0], texts[1]))

    def _segment(self, language: str) -> str | None:
        """The text in just this language, or in a regional kind of it."""
        regional = (text for code, text in self._segments.items() if code.startswith(f"{language}-"))
        return self._segments.get(language, next(regional, None))
