"""Tests of a language model on the command line: trained on plain text, stopped and continued, and used to generate."""

import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from regard.run.checkpoint import Run, sha256
from tests.commands.process import run
from tests.commands.test_train import ROOT
from tests.oracles.runs import sentences

STEPS = 12
LANGUAGE = ["--model", "language", "--preset", "tiny"]
SETTINGS = [*LANGUAGE, "--batch-tokens", "256", "--vocab-size", "320", "--steps", str(STEPS)]
SETTINGS += ["--set", "model.context=32", "--set", "train.save_every=3", "--set", "train.valid_every=6"]
SETTINGS += ["--set", "train.log_every=2", "--set", "model.dropout=0.1", "--set", "train.accumulation=2"]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("texts")
    for name, count, seed in (("train.txt", 400, 1), ("more.txt", 50, 2), ("valid.txt", 40, 3)):
        (folder / name).write_text("".join(f"{text}\n" for text in sentences(count, seed=seed)), encoding="utf-8")
    (folder / "empty.txt").write_bytes(b"")
    return folder


def flags(corpus: Path) -> list[str]:
    return [
        "--text",
        str(corpus / "train.txt"),
        "--text",
        str(corpus / "more.txt"),
        "--valid-text",
        str(corpus / "valid.txt"),
    ]


def train(corpus: Path, out: str, *more: str) -> subprocess.CompletedProcess[str]:
    return run("train", *flags(corpus), *SETTINGS, *more, "-o", str(corpus / out))


@pytest.fixture(scope="module")
def whole(corpus: Path) -> Path:
    """Return an uninterrupted run, with another hash seed than the runs that are compared with it."""
    result = run("train", *flags(corpus), *SETTINGS, "-o", str(corpus / "whole"), fresh=True)
    assert result.returncode == 0, result.stderr
    assert "450 texts in windows of 32 tokens" in result.stderr and "what generates is" in result.stderr
    assert "BLEU" not in result.stderr and "Traceback" not in result.stderr
    return corpus / "whole"


def digests(folder: Path) -> dict[str, str]:
    checkpoint = Run(folder).checkpoint_path(STEPS)
    files = [*checkpoint.glob("*.safetensors"), folder / "metrics.jsonl", folder / "model.safetensors"]
    return {path.name: sha256(path) for path in files}


def test_one_command_makes_a_run(whole: Path) -> None:
    names = {path.name for path in whole.iterdir()}
    assert names >= {"config.json", "tokenizer.model", "model.safetensors", "training.html", "checkpoints", "data"}
    the_run = Run(whole)
    config = the_run.read_config()
    assert config.model.kind == "language" and config.train.label_smoothing == 0.0 and config.longest == 32
    assert [Path(corpus.text).name for corpus in config.data.train] == ["train.txt", "more.txt"]
    lines = [json.loads(line) for line in (whole / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    validated = [line for line in lines if "valid_nll" in line]
    assert [line["step"] for line in validated] == [6, 12] and all("valid_bleu" not in line for line in lines)
    assert {layer["site"] for layer in validated[0]["attention"]} == {"decoder"} and len(validated[0]["attention"]) == 4
    assert any("average_nll" in line for line in lines)


def test_stopped_and_continued_it_ends_the_same(corpus: Path, whole: Path) -> None:
    """Stop it once by a signal at any step, then let it finish."""
    command = [sys.executable, "-m", "regard", "train", *flags(corpus), *SETTINGS, "-o", str(corpus / "stopped")]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as process:
        metrics = corpus / "stopped" / "metrics.jsonl"
        while not (metrics.exists() and metrics.stat().st_size) and process.poll() is None:
            time.sleep(0.005)
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=600)
    assert process.returncode in (0, 130), told
    result = train(corpus, "stopped")
    assert result.returncode == 0, result.stderr
    assert digests(corpus / "stopped") == digests(whole)


def test_from_the_middle_it_ends_the_same(corpus: Path, whole: Path) -> None:
    """Train half of the steps with the plan for all of them, as a killed run does."""
    result = train(corpus, "half")
    assert result.returncode == 0, result.stderr
    half = Run(corpus / "half")
    for step in half.saved_steps():
        if step > 6:
            half.delete_checkpoint(step)
    (half.model_path).unlink()
    config, weights = half.read_config(), half.read_weights()
    assert weights is not None
    half.write_config(config, weights._replace(final=False), half.read_version())
    result = train(corpus, "half")
    assert result.returncode == 0 and "continuing from step 6" in result.stderr, result.stderr
    assert digests(corpus / "half") == digests(whole)


def test_it_goes_on(whole: Path, tmp_path: Path) -> None:
    result = run("generate", str(whole), "ab", "--num", "3", "--max-tokens", "10", "--temperature", "0.8", "--top-k", "20")
    assert result.returncode == 0, result.stderr
    assert len(result.stdout.splitlines()) == 3 and all(line.startswith("ab") for line in result.stdout.splitlines())
    again = run("generate", str(whole), "ab", "--num", "3", "--max-tokens", "10", "--temperature", "0.8", "--top-k", "20")
    assert again.stdout == result.stdout
    (tmp_path / "prompts").write_text("ab\n\ncd\n", encoding="utf-8")
    result = run("generate", str(whole), "--file", str(tmp_path / "prompts"), "--greedy", "--max-tokens", "5", "--json")
    found = [json.loads(line) for line in result.stdout.splitlines()]
    assert [text["prompt"] for text in found] == ["ab", "", "cd"]
    assert all(text["text"].startswith(text["prompt"]) and len(text["pieces"]) <= 5 for text in found)
    alone = run("generate", str(whole), "--greedy", "--max-tokens", "5")
    assert alone.stdout.rstrip("\n") == found[1]["text"]
    long = run("generate", str(whole), "--greedy", "--max-tokens", "50", "--json")
    is_long = len(json.loads(long.stdout)["pieces"]) > 32
    assert long.returncode == 0 and ("learnt from 32 tokens at once" in long.stderr) == is_long


def test_what_else_a_run_can_do(corpus: Path, whole: Path) -> None:
    told = run("info", str(whole))
    assert told.returncode == 0 and "SwiGLU" in told.stdout and "450 texts" in told.stdout and "→" not in told.stdout
    assert json.loads(run("info", str(whole), "--json").stdout)["config"]["model"]["kind"] == "language"
    again = train(corpus, "whole")
    assert again.returncode == 0 and "is finished" in again.stderr
    shutil.copytree(whole, corpus / "copy")
    averaged = run("average", str(corpus / "copy"), "--last", "2")
    assert averaged.returncode == 0 and "perplexity" in averaged.stdout
    refined = run(
        "train",
        *flags(corpus),
        "--from",
        str(whole),
        "--steps",
        "2",
        "--set",
        "model.context=16",
        "-o",
        str(corpus / "refined"),
    )
    assert refined.returncode == 0, refined.stderr
    assert "windows of 16 tokens" in refined.stderr and "beginning with the weights and subwords of" in refined.stderr
    prepared = run("train", "--data", str(whole / "data"), *LANGUAGE, "--steps", "2", "-o", str(corpus / "from data"))
    assert prepared.returncode == 0, prepared.stderr
    other = run("train", "--data", str(whole / "data"), "--preset", "tiny", "--steps", "2", "-o", str(corpus / "other"))
    assert other.returncode == 2 and "holds plain text, but a model of kind transformer learns from pairs" in other.stderr


def test_a_toml_file_and_minutes(corpus: Path) -> None:
    (corpus / "run.toml").write_text(
        f"""preset = "tiny"
[model]
kind = "language"
context = 32
[data]
vocab_size = 320
valid = {{ text = "{corpus / "valid.txt"}" }}
[[data.train]]
text = "{corpus / "train.txt"}"
weight = 2
[train]
minutes = 0.02
batch_tokens = 256
""",
        encoding="utf-8",
    )
    result = run("train", "--config", str(corpus / "run.toml"), "-o", str(corpus / "timed"))
    assert result.returncode == 0, result.stderr
    assert "0.02 minutes are about" in result.stderr
    assert Run(corpus / "timed").read_config().data.train[0].weight == 2.0


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--valid-text", "valid.txt", "--model", "language"], "nothing to learn from; give --text"),
        (["--text", "train.txt", "--valid-text", "valid.txt"], "add --model language"),
        (["--text", "train.txt", "--valid-text", "valid.txt", "--model", "rnn"], "add --model language"),
        (["--text", "train.txt", "--src", "train.txt", "--model", "language"], "give one of the two"),
        (
            ["--src", "train.txt", "--tgt", "train.txt", "--valid-src", "valid.txt", "--model", "language"],
            "give it as --text",
        ),
        (["--text", "empty.txt", "--valid-text", "valid.txt", "--model", "language"], "no text in empty.txt"),
        (["--text", "train.txt", "--valid-text", "empty.txt", "--model", "language"], "no text in empty.txt"),
        (["--text", "none.txt", "--valid-text", "valid.txt", "--model", "language"], "there is no file none.txt"),
        (["--text", "train.txt", "--valid-text", "valid.txt", "--model", "langauge"], "did you mean language?"),
        (
            ["--text", "train.txt", "--valid-text", "valid.txt", "--model", "language", "--set", "train.bpe_dropout=0.1"],
            "leave train.bpe_dropout at 0",
        ),
        (
            ["--text", "train.txt", "--valid-text", "valid.txt", "--model", "language", "--set", "model.key_value_heads=3"],
            "a divisor of model.num_heads = 4",
        ),
    ],
)
def test_what_cannot_be_meant_gets_one_sentence(corpus: Path, words: list[str], sentence: str) -> None:
    absolute = [str(corpus / word) if word.endswith(".txt") else word for word in words]
    result = run("train", *absolute, "--preset", "tiny", "-o", str(corpus / "never"))
    assert result.returncode == 2 and "Traceback" not in result.stderr
    assert sentence in result.stderr.replace(f"{corpus}/", "") and result.stderr.count("\n") == 1
    assert not (corpus / "never").exists()


@pytest.mark.parametrize(
    "words",
    [
        ["translate", "RUN", "FILE"],
        ["evaluate", "RUN", "--src", "FILE", "--ref", "FILE"],
        ["score", "RUN", "--src", "FILE", "--tgt", "FILE"],
        ["serve", "RUN"],
        ["look", "RUN", "text"],
        ["export", "RUN", "--to", "ctranslate2", "-o", "out"],
    ],
    ids=lambda words: words[0],
)
def test_what_translators_do_is_refused_in_one_sentence(corpus: Path, whole: Path, words: list[str]) -> None:
    if words[0] == "serve":
        pytest.importorskip("fastapi")
    if words[0] == "export":
        pytest.importorskip("ctranslate2")
    result = run(*({"RUN": str(whole), "FILE": str(corpus / "valid.txt")}.get(word, word) for word in words))
    assert result.returncode == 2 and "is a language model" in result.stderr and "`regard generate`" in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["a", "--file", "empty.txt"], "give one of them"),
        (["--file", "empty.txt"], "no prompt in"),
        (["--greedy", "--temperature", "2"], "which --greedy turns off"),
        (["--greedy", "--num", "2"], "greedy generation gives one text"),
        (["--top-p", "0"], "top-p is 0.0"),
    ],
)
def test_what_cannot_be_generated(corpus: Path, whole: Path, words: list[str], sentence: str) -> None:
    absolute = [str(corpus / word) if word.endswith(".txt") else word for word in words]
    result = run("generate", str(whole), *absolute)
    assert result.returncode == 2 and sentence in result.stderr and result.stderr.count("\n") == 1


def test_to_hugging_face_and_back(whole: Path, tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    exported = run("export", str(whole), "--to", "huggingface", "-o", str(tmp_path / "exported"))
    assert exported.returncode == 0 and "the same subwords" in exported.stdout, exported.stderr
    imported = run("import", str(tmp_path / "exported"), "-o", str(tmp_path / "again"))
    assert imported.returncode == 0, imported.stderr
    one, other = (run("generate", str(folder), "ab", "--num", "2") for folder in (whole, tmp_path / "again"))
    assert one.stdout == other.stdout and one.returncode == 0
