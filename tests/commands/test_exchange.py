"""Tests of the command lines of `regard export` and `regard import`."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.commands.process import run
from tests.oracles.marian_folder import SOURCES, Variant, write_marian_folder
from tests.oracles.runs import make_tokenizer, make_translator, write_run


def test_what_export_prints_is_python_that_works(tmp_path: Path) -> None:
    tokenizer = make_tokenizer()
    write_run(tmp_path / "mine", make_translator(tokenizer, ending=1.5), tokenizer, num_pairs=10)
    result = run("export", str(tmp_path / "mine"), "--to", "ctranslate2", "-o", str(tmp_path / "out"))
    assert result.returncode == 0, result.stderr
    told, code = result.stdout.split("\n\n")
    assert re.search(r"greedy text of 20 sentences: (19|20) equal, [01] ties .* 0 different", told)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    again = run("export", str(tmp_path / "mine"), "--to", "ctranslate2", "-o", str(tmp_path / "out"))
    assert again.returncode == 2 and "is there already" in again.stderr and again.stderr.count("\n") == 1


@pytest.mark.slow
def test_a_marian_folder_becomes_a_run_that_can_be_exported(tmp_path: Path) -> None:
    write_marian_folder(tmp_path / "theirs", Variant())
    imported = run("import", str(tmp_path / "theirs"), "-o", str(tmp_path / "ours"))
    assert imported.returncode == 0, imported.stderr
    assert "en → de" in imported.stdout
    (tmp_path / "text").write_text("\n".join(SOURCES[:10]) + "\n", encoding="utf-8")
    flags = ["--src", str(tmp_path / "text"), "-o", str(tmp_path / "out")]
    exported = run("export", str(tmp_path / "ours"), "--to", "ctranslate2", "--int8", *flags)
    assert exported.returncode == 0, exported.stderr
    assert "no BLEU without references" in exported.stdout
    refused = run("export", str(tmp_path / "ours"), "--to", "huggingface", *flags[:2], "-o", str(tmp_path / "other"))
    assert refused.returncode == 2 and refused.stderr.count("\n") == 1 and not (tmp_path / "other").exists()
