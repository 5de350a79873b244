"""Tests of reading parallel text in every format, and of messages about broken text."""

import gzip
import json
import lzma
import os
import threading
from pathlib import Path

import pytest

from regard.config import CorpusConfig
from regard.text.cleaning import Pair
from regard.text.corpus import MAX_LINE_BYTES, read_pairs

PAIRS = [
    Pair("Guten Morgen.", "Good morning."),
    Pair("Zeile\u2028zwei\x0b", "form\x0cfeed"),
    Pair("", "empty"),
    Pair("ß", "早"),
]


def write(path: Path, data: bytes) -> str:
    if path.suffix == ".gz":
        data = gzip.compress(data)
    elif path.suffix == ".xz":
        data = lzma.compress(data)
    path.write_bytes(data)
    return str(path)


def lines(texts: list[str], end: str = "\n") -> bytes:
    return "".join(text + end for text in texts).encode()


def read(src: str, tgt: str | None = None) -> list[Pair]:
    return list(read_pairs(CorpusConfig(src=src, tgt=tgt), "de", "en"))


@pytest.mark.parametrize("packing", ["", ".gz", ".xz"])
def test_two_files_split_at_newlines_only(tmp_path: Path, packing: str) -> None:
    src = write(tmp_path / f"a.de{packing}", lines([pair.src for pair in PAIRS]))
    tgt = write(tmp_path / f"a.en{packing}", lines([pair.tgt for pair in PAIRS]))
    assert read(src, tgt) == PAIRS


def test_windows_line_ends_a_byte_order_mark_and_a_missing_last_newline(tmp_path: Path) -> None:
    src = write(tmp_path / "a.de", b"\xef\xbb\xbf" + lines(["eins", "zwei"], "\r\n"))
    tgt = write(tmp_path / "a.en", b"one\ntwo")
    assert read(src, tgt) == [Pair("eins", "one"), Pair("zwei", "two")]


@pytest.mark.parametrize("packing", ["", ".gz", ".xz"])
def test_tsv(tmp_path: Path, packing: str) -> None:
    path = write(tmp_path / f"a.tsv{packing}", b"eins\tone\nzwei\ttwo\ta third column\n")
    assert read(path) == [Pair("eins", "one"), Pair("zwei", "two")]


def test_jsonl(tmp_path: Path) -> None:
    rows = [{"src": "eins", "tgt": "one"}, {"de": "zwei", "en": "two"}, {"translation": {"en": "three", "de": "drei"}}]
    path = write(tmp_path / "a.jsonl", lines([json.dumps(row) for row in rows]))
    assert read(path) == [Pair("eins", "one"), Pair("zwei", "two"), Pair("drei", "three")]


def test_one_language_on_both_sides_is_told_apart_by_name(tmp_path: Path) -> None:
    """With one language, only names tell the sides apart; no text may become its own correction."""
    named = CorpusConfig(src=write(tmp_path / "a.jsonl", b'{"src": "i has", "tgt": "I have"}\n'))
    assert list(read_pairs(named, "en", "en")) == [("i has", "I have")]
    coded = CorpusConfig(src=write(tmp_path / "b.jsonl", b'{"en": "I have"}\n'))
    with pytest.raises(ValueError, match=r'b\.jsonl:1: no two texts under "src" and "tgt"$'):
        list(read_pairs(coded, "en", "en"))
    with pytest.raises(ValueError, match="tells its two sides apart by language, but both are to be en"):
        list(read_pairs(CorpusConfig(src=write(tmp_path / "a.tmx", TMX.encode())), "en", "en"))


TMX = """<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE tmx SYSTEM "tmx14.dtd">
<tmx version="1.4"><header srclang="en"/><body>
<tu><tuv xml:lang="en"><seg>one &amp; all</seg></tuv>
<tuv xml:lang="de-DE"><seg>eins <bpt i="1">&lt;b&gt;</bpt>fett</seg></tuv></tu>
<tu><tuv xml:lang="en"><seg>only English</seg></tuv></tu>
<tu><tuv lang="DE"><seg>zwei</seg></tuv><tuv lang="fr"><seg>deux</seg></tuv><tuv lang="EN"><seg>two</seg></tuv></tu>
</body></tmx>
"""


@pytest.mark.parametrize("packing", ["", ".gz"])
def test_tmx(tmp_path: Path, packing: str) -> None:
    path = write(tmp_path / f"a.tmx{packing}", TMX.encode())
    assert read(path) == [Pair("eins fett", "one & all"), Pair("zwei", "two")]


def test_tmx_of_any_namespace(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tmx", TMX.replace('<tmx version="1.4">', '<tmx xmlns="http://www.lisa.org/tmx14">').encode())
    assert len(read(path)) == 2


def test_blank_lines_are_empty_pairs(tmp_path: Path) -> None:
    assert read(write(tmp_path / "a.tsv", b"a\tb\n\n")) == [Pair("a", "b"), Pair("", "")]
    assert read(write(tmp_path / "a.jsonl", b'{"src": "a", "tgt": "b"}\n\n')) == [Pair("a", "b"), Pair("", "")]


def test_a_file_of_both_sides_wants_no_partner(tmp_path: Path) -> None:
    both, one = write(tmp_path / "a.tsv", b"a\tb\n"), write(tmp_path / "a.en", b"b\n")
    with pytest.raises(ValueError, match=r"a\.tsv holds both sides by itself; give it as the source alone"):
        read(both, one)


def test_a_pipe_can_be_read(tmp_path: Path) -> None:
    fifo = tmp_path / "pipe.tsv"
    os.mkfifo(fifo)
    writer = threading.Thread(target=lambda: fifo.write_bytes(b"eins\tone\n" * 1000))
    writer.start()
    assert len(read(str(fifo))) == 1000
    writer.join()


BOMB = '<?xml version="1.0"?><!DOCTYPE tmx [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]><tmx><tu>&b;</tu></tmx>'
FILE_ENTITY = '<?xml version="1.0"?><!DOCTYPE tmx [<!ENTITY x SYSTEM "file:///etc/passwd">]><tmx><tu>&x;</tu></tmx>'


@pytest.mark.parametrize(
    ("name", "data", "sentence"),
    [
        ("a.tsv", b"", r"no text in .*a\.tsv; give at least one line"),
        ("a.tsv", b"one\ttwo\nno tab\n", r"a\.tsv:2: no tab; each line must be a source, a tab and a target"),
        ("a.tsv", b"\xff\xfe\x00\x01\n", r"a\.tsv:1: a zero byte; this is not a text file"),
        ("a.tsv", b"ok\tok\nM\xfcller\tMiller\n", r"a\.tsv:2: byte 2 of the line \(0xfc\) is not UTF-8; convert the file"),
        ("a.tsv", b"x\ty\n" + b"a" * (MAX_LINE_BYTES + 1), r"a\.tsv:2: a line of more than 1,048,576 bytes"),
        ("a.jsonl", b'{"src": "a"}\n', r'a\.jsonl:1: no two texts under "src" and "tgt", or "de" and "en"'),
        ("a.jsonl", b'{"src": 3, "tgt": "b"}\n', r"a\.jsonl:1: no two texts"),
        ("a.jsonl", b"[" * 100_000 + b"\n", r"a\.jsonl:1: not JSON"),
        ("a.jsonl", b'{"src": "\\ud800", "tgt": "b"}\n', r"a\.jsonl:1: text 1 is not UTF-8 text"),
        ("a.jsonl", b"1" * 5000 + b"\n", r"a\.jsonl:1: not JSON"),
        ("a.jsonl", b'{"": "a"}\n', r"a\.jsonl:1: no two texts"),
        ("a.tsv", b"\xef\xbb\xbfab\xff\n", r"a\.tsv:1: byte 6 of the line \(0xff\)"),
        (
            "a.tmx",
            b'<?xml version="1.0" encoding="foo"?><tmx/>',
            r"a\.tmx:1: unknown encoding: foo; convert the file to UTF-8",
        ),
        ("a.tmx", b"<tmx><tu></tmx>", r"a\.tmx:1: not well-formed XML: mismatched tag"),
        ("a.tmx", BOMB.encode(), r"a\.tmx:1: declares entities of its own, which are not read"),
        ("a.tmx", FILE_ENTITY.encode(), r"a\.tmx:1: declares entities of its own"),
        ("a.txt", b"text\n", r"a\.txt has no partner: give its target side, too, or one file for both"),
    ],
)
def test_a_broken_file_is_named_with_its_line(tmp_path: Path, name: str, data: bytes, sentence: str) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(ValueError, match=sentence):
        read(str(tmp_path / name))


def test_truncated_archives_are_named(tmp_path: Path) -> None:
    for name, data in (("a.tsv.gz", gzip.compress(b"a\tb\n" * 9999)), ("a.tsv.xz", lzma.compress(b"a\tb\n" * 9999))):
        (tmp_path / name).write_bytes(data[: len(data) // 2])
        with pytest.raises(ValueError, match=rf"{name}:\d+: cannot be read on from here"):
            read(str(tmp_path / name))
    damaged = bytearray(gzip.compress("".join(f"{n}\t{n * 7919 % 1000}\n" for n in range(9999)).encode()))
    damaged[500:900] = bytes(400)
    (tmp_path / "c.tsv.gz").write_bytes(damaged)
    with pytest.raises(ValueError, match=r"c\.tsv\.gz:\d+: (cannot be read on from here|no tab|byte|a zero byte)"):
        read(str(tmp_path / "c.tsv.gz"))
    (tmp_path / "b.tsv.gz").write_bytes(b"no archive")
    with pytest.raises(ValueError, match=r"b\.tsv\.gz:1: cannot be read on from here"):
        read(str(tmp_path / "b.tsv.gz"))


def test_files_of_unequal_length_are_told_apart(tmp_path: Path) -> None:
    one, three = write(tmp_path / "one", b"a\n"), write(tmp_path / "three", b"a\nb\nc\n")
    with pytest.raises(ValueError, match=r"one ends after line 1, but .*three goes on"):
        read(one, three)
    with pytest.raises(ValueError, match=r"one ends after line 1, but .*three goes on"):
        read(three, one)


def test_missing_files_and_folders(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"there is no file .*nowhere\.tsv"):
        read(str(tmp_path / "nowhere.tsv"))
    (tmp_path / "folder.tsv").mkdir()
    with pytest.raises(ValueError, match=r"folder\.tsv is a folder; give a file"):
        read(str(tmp_path / "folder.tsv"))
