"""Tests of the command line of `regard bench`."""

import json
from pathlib import Path

import pytest

from tests.commands.process import run

__all__ = ["run"]  # imported by other tests


def test_bench_model_prints_a_table_and_writes_the_numbers(tmp_path: Path) -> None:
    report = tmp_path / "bench.json"
    sizes = ["--preset", "tiny", "--batch", "4", "--length", "5", "--vocab", "50", "--rounds", "3", "--steps", "1"]
    result = run("bench", "model", *sizes, "--json", str(report))
    assert result.returncode == 0, result.stderr
    for words in ("torch.nn.Transformer", "Hugging Face Marian", "matrix-multiply ceiling", "regard trains"):
        assert words in result.stdout
    numbers = json.loads(report.read_text())
    assert numbers["settings"]["batch"] == 4
    assert {name: len(rounds) for name, rounds in numbers["tokens_per_second"].items()} == {
        "regard": 3,
        "torch.nn.Transformer": 3,
        "Hugging Face Marian": 3,
    }


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--preset", "huge"], "regard: there is no preset 'huge'; choose one of tiny, small, base, big\n"),
        (["--device", "abacus"], "regard: the device 'abacus' is not available here; try --device cpu\n"),
        (["--json", "/no/such/folder/x.json"], "regard: there is no folder /no/such/folder to write x.json into\n"),
    ],
)
def test_mistakes_get_one_sentence_and_exit_code_2(arguments: list[str], sentence: str) -> None:
    result = run("bench", "model", "--preset", "tiny", "--vocab", "50", "--rounds", "1", "--steps", "1", *arguments)
    assert (result.returncode, result.stderr) == (2, sentence)


def test_bench_train_prints_a_table_and_writes_the_numbers(tmp_path: Path) -> None:
    for split, count in (("train", 60), ("valid", 5)):
        for side in ("de", "en"):
            lines = [f"{side} {'word ' * (n % 7)}{n}\n" for n in range(count)]
            (tmp_path / f"{split}.{side}").write_text("".join(lines), encoding="utf-8")
    words = [f"--{split}{flag}" for split in ("", "valid-") for flag in ("src", "tgt")]
    files = [str(tmp_path / f"{split}.{side}") for split in ("train", "valid") for side in ("de", "en")]
    prepared = str(tmp_path / "prepared")
    result = run(
        "prepare", *(word for pair in zip(words, files, strict=True) for word in pair), "--vocab-size", "300", "-o", prepared
    )
    assert result.returncode == 0, result.stderr
    sizes = ["--preset", "tiny", "--batch-tokens", "128", "--rounds", "2", "--updates", "1"]
    result = run("bench", "train", prepared, *sizes, "--json", str(tmp_path / "bench.json"))
    assert result.returncode == 0, result.stderr
    assert "times as fast as Hugging Face Marian" in result.stdout and "padding" in result.stdout
    numbers = json.loads((tmp_path / "bench.json").read_text())
    assert numbers["padding"]["regard"] <= numbers["padding"]["Hugging Face Marian"]
    assert {len(rounds) for rounds in numbers["tokens_per_second"].values()} == {2}
    nothing = run("bench", "train", str(tmp_path), *sizes)
    assert (nothing.returncode, nothing.stderr.count("\n")) == (2, 1) and "it has no data.json" in nothing.stderr
