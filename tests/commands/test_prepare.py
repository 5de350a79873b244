"""Tests of the command line of `regard prepare`, on good and on hostile text."""

import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.commands.process import run

WORDS = {"Hund": "dog", "Katze": "cat", "läuft": "runs", "schläft": "sleeps", "heute": "today", "gern": "gladly"}


@pytest.fixture
def text(tmp_path: Path) -> Path:
    chance = random.Random(3)
    for split, count in (("train", 500), ("valid", 20)):
        rows = [chance.choices(list(WORDS), k=chance.randint(2, 9)) for _ in range(count)]
        (tmp_path / f"{split}.de").write_text("".join(" ".join(row) + "\n" for row in rows), encoding="utf-8")
        (tmp_path / f"{split}.en").write_text(
            "".join(" ".join(WORDS[w] for w in row) + "\n" for row in rows), encoding="utf-8"
        )
    return tmp_path


def flags(folder: Path, **files: str) -> list[str]:
    names = {"src": "train.de", "tgt": "train.en", "valid-src": "valid.de", "valid-tgt": "valid.en"}
    names |= {name.replace("_", "-"): file for name, file in files.items()}
    return [word for name, file in names.items() for word in (f"--{name}", str(folder / file))]


def test_good_text_becomes_a_folder_and_a_report(text: Path) -> None:
    result = run("prepare", *flags(text), "--vocab-size", "300", "-o", str(text / "prepared"))
    assert result.returncode == 0, result.stderr
    assert "de" in result.stdout and "shared subwords" in result.stdout
    report = json.loads((text / "prepared" / "data.json").read_text(encoding="utf-8"))
    assert (report["src_lang"], report["tgt_lang"]) == ("de", "en")
    assert report["splits"]["train"]["kept"] + report["splits"]["train"]["dropped"].get("duplicate", 0) == 500
    again = run("prepare", *flags(text), "-o", str(text / "prepared"))
    assert again.returncode == 2
    assert "prepared is there already; choose another folder, or delete it to prepare anew\n" in again.stderr


HOSTILE = {
    "empty": b"",
    "misaligned": b"one line\n",
    "binary": bytes(range(256)) * 400,
    "a line of 10 MB": b"a" * 10_000_000,
    "mixed encodings": b"gut\n" * 100 + "Müller\n".encode("latin-1") + "gut\n".encode("utf-16") * 100,
}


@pytest.mark.parametrize("kind", HOSTILE)
@pytest.mark.parametrize("place", ["src", "valid_tgt"])
def test_hostile_text_gets_one_sentence_and_exit_code_2(text: Path, kind: str, place: str) -> None:
    (text / "hostile.de").write_bytes(HOSTILE[kind])
    result = run("prepare", *flags(text, **{place: "hostile.de"}), "-o", str(text / "out" / "prepared"))
    assert result.returncode == 2
    assert result.stderr.startswith("regard: ") and result.stderr.count("\n") == 1, result.stderr
    assert "hostile.de" in result.stderr
    assert not list((text / "out").glob("**/*"))


def test_flags_that_do_not_fit_together(text: Path) -> None:
    result = run("prepare", *flags(text), "--src", "more.de", "-o", str(text / "prepared"))
    assert (result.returncode, result.stderr) == (
        2,
        "regard: --src was given 2 times and --tgt 1 times; give one --tgt for each --src\n",
    )


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        (["--test-tgt", "valid.en"], "regard: --test-tgt was given without --test-src\n"),
        (["--valid-src", "valid.en"], "regard: valid.en looks like en, but de belongs there; are two files swapped?\n"),
        (["--weight", "inf"], "regard: data.weight is inf for train.de; it must be a number above 0\n"),
    ],
)
def test_flags_that_cannot_be_meant(text: Path, more: list[str], sentence: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(text)
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    files = ["--src", "train.de", "--tgt", "train.en", "--valid-src", "valid.de", "--valid-tgt", "valid.en"]
    result = run("prepare", *files, *more, "-o", "prepared")
    assert (result.returncode, result.stderr) == (2, sentence)


def test_names_that_are_no_utf8_and_holes_in_the_validation_text(text: Path) -> None:
    odd = os.fsdecode(b"tr\xffain.de")
    (text / "train.de").rename(text / odd)
    with (text / "valid.de").open("a", encoding="utf-8") as src, (text / "valid.en").open("a", encoding="utf-8") as tgt:
        src.write("\n")
        tgt.write("nothing\n")
    result = run("prepare", *flags(text, src=odd), "--vocab-size", "300", "-o", str(text / "prepared"))
    assert result.returncode == 0, result.stderr
    assert "valid: dropped 1: empty, such as '' | 'nothing'" in result.stdout
    report = json.loads((text / "prepared" / "data.json").read_text(encoding="utf-8"))
    assert report["splits"]["valid"]["read"] == 21


def test_brackets_in_names_are_no_markup(text: Path) -> None:
    out = text / "o[/red]"
    result = run("prepare", *flags(text), "--vocab-size", "300", "-o", str(out))
    assert result.returncode == 0, result.stderr
    assert f"in {out};" in result.stderr


@pytest.mark.parametrize(("name", "exit_code"), [("SIGINT", 130), ("SIGTERM", 143)])
def test_a_stopped_run_leaves_nothing_behind_and_no_traceback(text: Path, name: str, exit_code: int) -> None:
    """Stop it while the cleaners read a pipe that never ends. Ctrl-C goes to the whole group, as from a terminal."""
    os.mkfifo(text / "endless.tsv")
    arguments = ["--src", "endless.tsv", "--valid-src", "valid.de", "--valid-tgt", "valid.en", "-o", "prepared"]
    process = subprocess.Popen(
        [sys.executable, "-m", "regard", "prepare", *arguments],
        cwd=text,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])},
    )
    with (text / "endless.tsv").open("w", encoding="utf-8") as pipe:
        for number in range(40_000):  # enough for several chunks; the pipe stays open
            pipe.write(f"der Hund {number}\tthe dog {number}\n")
        pipe.flush()
        (os.killpg if name == "SIGINT" else os.kill)(process.pid, getattr(signal, name))
        _, stderr = process.communicate(timeout=600)
    assert (process.returncode, stderr) == (exit_code, "")
    assert sorted(path.name for path in text.iterdir()) == ["endless.tsv", "train.de", "train.en", "valid.de", "valid.en"]
