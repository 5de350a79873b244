"""scripts/measurements.py: its commands in small and on a CPU, for on a GPU that is lent for minutes nothing shall fail
because a word is spelt wrong; and what it does about time."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from regard.settings import merged, read_toml
from regard.train.command import _read_settings
from scripts.measurements import MEASUREMENTS, TRIES, Measurement, measured
from scripts.recipes import settings_of
from tests.commands.test_recipes import FOLDER, make_corpora

SMALLER = {
    "--device cuda": "--device cpu",
    "--vocab-size 16000": "--vocab-size 300",
    "regard train": "regard train --preset tiny --steps 2",
    "regard evaluate": "regard evaluate --num-resamples 40",
    "--rounds 3 --updates 20": "--preset tiny --rounds 1 --updates 1",
    "--sentences 256 --rounds 2": "--sentences 2 --rounds 1 --max-length 8",
    "--minutes 3": "--steps 2 --layers 1 --width 32 --heads 2 --device cpu",
    "--seeds 1 2 3 --jobs 3": "--preset tiny --steps 2",
    "$OUT/kftt-2 $OUT/kftt-3": "",
}
AS_ON_A_GPU = (
    "text",
    "kftt-1",
    "decode",
    "train-base",
    "kftt-dropout",
    "plain",
    "versus",
    "kftt-en-ja",
    "multi30k",
    "curves",
)
KNOWN = {one.name: one for one in MEASUREMENTS}


def in_small(command: str) -> str:
    for large, small in SMALLER.items():
        command = command.replace(large, small)
    return command


@pytest.mark.slow
def test_the_commands_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    corpora, output = make_corpora(tmp_path / "corpora"), tmp_path / "out"
    output.mkdir()
    for name in AS_ON_A_GPU:
        one = KNOWN[name]
        assert not one.needs or (output / one.needs).exists(), f"nothing before {name} makes {one.needs}"
        result = measured(replace(one, command=in_small(one.command)), corpora, output, 600.0)
        assert result["exit_code"] == 0, capfd.readouterr().out
    assert "<svg" in (output / "curves.svg").read_text(encoding="utf-8")


def test_what_is_tried_can_be_tried() -> None:
    for way in TRIES.split():
        _read_settings(merged(read_toml(FOLDER / "multi30k-en-de.toml"), settings_of(way)))
    assert len(KNOWN) == len(MEASUREMENTS), "two of one name"


def test_what_takes_too_long_is_stopped_with_all_it_began(tmp_path: Path) -> None:
    began = tmp_path / "began"
    one = Measurement("long", 1, f"touch {began}; sleep 60 | cat; touch {began}-and-ended")
    result = measured(one, tmp_path, tmp_path, 1.0)
    assert result["exit_code"] != 0 and result["seconds"] < 30
    assert began.exists() and not Path(f"{began}-and-ended").exists()


def test_what_is_done_is_not_done_again_and_what_has_no_time_or_needs_more_is_not_begun(tmp_path: Path) -> None:
    done = {"text": {"exit_code": 0}}
    (tmp_path / "results.json").write_text(json.dumps(done), encoding="utf-8")
    command = [sys.executable, "-m", "scripts.measurements", "-o", str(tmp_path), "--seconds", "100"]
    result = subprocess.run(
        [*command, "text", "kftt-1", "versus"], capture_output=True, text=True, check=False, cwd=FOLDER.parent
    )
    assert result.returncode == 0, result.stderr
    told = result.stdout.splitlines()
    assert told[0] == "--- text: done before"
    assert told[1].startswith("--- kftt-1: takes about 180 s, and 7") or told[1].startswith(
        "--- kftt-1: takes about 180 s, and 8"
    )
    assert told[2] == f"--- versus: needs {tmp_path / 'plain.en'}, which is not there"
    assert json.loads((tmp_path / "results.json").read_text(encoding="utf-8")) == done
    unknown = subprocess.run([*command, "nonsense"], capture_output=True, text=True, check=False, cwd=FOLDER.parent)
    assert unknown.returncode == 2 and "there is no measurement nonsense; there are tests, text" in unknown.stderr
