"""Tests of a shortened demo: real command lines, outside the checkout."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

from regard.demo import command
from regard.demo.command import DemoSettings
from regard.run.checkpoint import Run
from regard.text.corpus import read_lines
from regard.train.command import _read_settings
from tests.commands.process import run

WITHOUT_BAR = {**os.environ, "TERM": "dumb"}


def demo_command(folder: Path, *arguments: str) -> list[str]:
    return [sys.executable, "-m", "regard", "demo", "-o", str(folder), "--no-serve", *arguments]


def demo(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the demo outside the checkout: all its files are in the package."""
    return subprocess.run(
        demo_command(folder, *arguments),
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
        cwd=folder.parent,
        env=WITHOUT_BAR,
    )


@pytest.mark.parametrize(("split", "count"), [("train", 40_000), ("valid", 1000), ("test", 1000)])
def test_the_sentences_are_there(split: str, count: int) -> None:
    german, english = (list(read_lines(command.text(split, language))) for language in ("de", "en"))
    assert len(german) == len(english) == count
    assert all(german) and all(english)


def test_the_sentences_are_attributed() -> None:
    words = (command.HERE / "ATTRIBUTION.md").read_text(encoding="utf-8")
    assert all(name in words for name in ("tatoeba.org", "CC BY 2.0 FR", "manythings.org"))


def test_the_recipe_is_one_that_training_takes(tmp_path: Path) -> None:
    settings = DemoSettings(folder=tmp_path, minutes=2.0, seed=7)
    data, _, train = _read_settings(command._recipe(settings, is_new=True))
    assert data is not None and (data.src_lang, data.tgt_lang) == ("de", "en")
    assert (train.minutes, train.seed) == (2.0, 7)
    _, _, train = _read_settings(command._recipe(DemoSettings(folder=tmp_path), is_new=True))
    assert train.minutes <= 5.0
    assert f"default {train.minutes:g}" in run("demo", "--help").stdout


def test_a_run_of_other_text_is_left_alone(tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    shutil.copytree(Path(__file__).parents[1] / "runs" / "0.1.0", mine)
    before = sorted(path.name for path in mine.iterdir())
    result = demo(mine)
    assert result.returncode == 2
    assert result.stderr == f"regard: {mine} is a run of other text; give another folder with -o\n"
    assert sorted(path.name for path in mine.iterdir()) == before


@pytest.mark.slow
def test_from_nothing_to_a_measured_translator(tmp_path: Path) -> None:
    folder = tmp_path / "demo"
    result = demo(folder, "--minutes", "0.05")
    assert result.returncode == 0, result.stderr
    assert "a person" in result.stdout and "Es gibt viele" in result.stdout
    report = json.loads((folder / "evaluation.json").read_text(encoding="utf-8"))
    [bleu] = [score for score in report["systems"][0]["scores"] if score["metric"] == "BLEU"]
    line = re.search(r"^BLEU (\S+) \(95 % interval (\S+)–(\S+)\), .* on 1,000 sentences$", result.stdout, re.MULTILINE)
    assert line is not None
    expected = (bleu["score"], bleu["interval"]["low"], bleu["interval"]["high"])
    assert line.groups() == tuple(f"{value:.1f}" for value in expected)
    [translate] = re.findall(r"^  (echo .*?)\s+#", result.stdout, re.MULTILINE)
    said = subprocess.run(translate, shell=True, capture_output=True, check=True, cwd=tmp_path).stdout
    assert said.count(b"\n") == 1  # one line per sentence, though on a busy machine three seconds teach nothing

    sources = tmp_path / "mine.de"
    sources.write_text("Guten Morgen!\n", encoding="utf-8")
    evaluate = [sys.executable, "-m", "regard", "evaluate", str(folder), "--src", str(sources), "--ref", str(sources)]
    subprocess.run(evaluate, capture_output=True, check=True)  # of another text, which is not the demo's result
    again = demo(folder)
    assert again.returncode == 0
    assert "step" not in again.stderr, "it trained again"
    assert line.group() in again.stdout

    other = demo(folder, "--seed", "5")
    assert other.returncode == 2
    assert "was begun with train.seed = 1, not 5" in other.stderr
    less = demo(folder, "--minutes", "0.01")
    assert less.returncode == 2
    assert "--minutes 0.01 is not more" in less.stderr


@pytest.mark.slow
def test_ctrl_c_at_any_moment_is_safe(tmp_path: Path) -> None:
    """Interrupt preparing, training and measuring; the same command then continues to the same result."""
    folder = tmp_path / "demo"
    for moment in (_has_begun, _is_training, _is_trained):
        process = subprocess.Popen(
            demo_command(folder, "--minutes", "0.1"),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        while not moment(Run(folder)) and process.poll() is None:
            time.sleep(0.02)
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to all of its processes
        _, stderr = process.communicate(timeout=600)
        assert process.returncode == 130, stderr
        assert "Traceback" not in stderr
    assert not (folder / "evaluation.json").exists()
    result = demo(folder, "--minutes", "0.1")
    assert result.returncode == 0, result.stderr
    assert "BLEU" in result.stdout


@pytest.mark.slow
def test_in_the_end_there_is_a_page(tmp_path: Path) -> None:
    """A finished run shows the page at once; Ctrl-C ends it with exit code 0."""
    folder = tmp_path / "demo"
    assert demo(folder, "--minutes", "0.02").returncode == 0
    command = [word for word in demo_command(folder) if word != "--no-serve"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            line = next(line for line in process.stderr if "regard serves at" in line)
            address = re.findall(r"http://\S+", line)[0]
            with urllib.request.urlopen(address) as page:
                assert page.status == 200 and b"<html" in page.read()
            with urllib.request.urlopen(f"{address}runs") as runs:
                assert json.loads(runs.read()) == [{"name": "demo", "src_lang": "de", "tgt_lang": "en"}]
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=600)
            assert process.returncode == 0
        finally:
            process.kill()


def _has_begun(run: Run) -> bool:
    return (run.folder / ".lock").exists()


def _is_training(run: Run) -> bool:
    return len(run.saved_steps()) > 1


def _is_trained(run: Run) -> bool:
    weights = run.read_weights() if run.config_path.exists() else None
    return weights is not None and weights.final
