"""Tests of scripts/measurements.py: its commands on small data and a CPU, so that none fails on a GPU for a wrong name; and
its time limits."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from regard.settings import merged, read_toml
from regard.train.command import _read_settings
from scripts.measurements import MEASUREMENTS, TRIES, Measurement, measured
from scripts.recipes import settings_of
from tests.commands.process import run
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
        result = measured(replace(one, command=in_small(one.command)), corpora, output, 600.0)
        assert result["exit_code"] == 0, capfd.readouterr().out
    assert "<svg" in (output / "curves.svg").read_text(encoding="utf-8")


def test_what_is_tried_can_be_tried() -> None:
    for way in TRIES.split():
        _read_settings(merged(read_toml(FOLDER / "multi30k-en-de.toml"), settings_of(way)))


def test_every_file_that_a_measurement_names_is_there() -> None:
    for one in MEASUREMENTS:
        for path in re.findall(r"(?:tests|scripts|recipes)/[\w./-]+", one.command):
            assert (FOLDER.parent / path).exists(), f"{one.name} names {path}"


def test_what_is_needed_comes_before() -> None:
    names = list(KNOWN)
    assert len(names) == len(MEASUREMENTS), "two of one name"
    for one in MEASUREMENTS:
        assert all(names.index(needed) < names.index(one.name) for needed in one.needs), one.name


@pytest.mark.parametrize("times", [1, 2])
def test_what_takes_too_long_is_stopped_with_all_it_began_and_may_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    began = tmp_path / "began"
    one = Measurement("long", 1, f"touch {began}; sleep 3600 | cat; touch {began}-and-ended")

    class Begun(subprocess.Popen[bytes]):
        """A process whose time runs from its start, however long a busy machine takes to start it."""

        def wait(self, timeout: float | None = None) -> int:
            while not began.exists():
                time.sleep(0.01)
            return super().wait(timeout)

    monkeypatch.setattr(subprocess, "Popen", Begun)
    result = None
    for _ in range(times):
        result = measured(one, tmp_path, tmp_path, 0.1, result)
    assert result is not None and result["exit_code"] != 0
    assert len(result["seconds"]) == times and sum(result["seconds"]) < 3600
    assert began.exists() and not Path(f"{began}-and-ended").exists()


def called(folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return run("-o", str(folder), "--seconds", "200", *arguments, module="scripts.measurements", cwd=FOLDER.parent)


def test_what_is_done_is_not_done_again_and_what_has_no_time_or_needs_more_is_not_begun(tmp_path: Path) -> None:
    done = {"text": {"exit_code": 0, "command": KNOWN["text"].command}, "tests": {"exit_code": 0, "command": "another"}}
    done["kftt-1"] = {"exit_code": 130, "command": KNOWN["kftt-1"].command}
    (tmp_path / "results.json").write_text(json.dumps(done), encoding="utf-8")
    result = called(tmp_path, "text", "kftt-2", "versus", "decode", "plain")
    assert result.returncode == 0, result.stderr
    text, kftt, versus, decode, plain = result.stdout.splitlines()
    assert text == "--- text: done before"
    assert re.fullmatch(r"--- kftt-2: takes about 180 s, and 1\d\d s are left", kftt)
    assert versus == "--- versus: needs kftt-1 and plain, not done yet"
    assert decode == "--- decode: needs kftt-1, not done yet"
    assert re.fullmatch(r"--- plain: takes about 230 s, and 1\d\d s are left", plain)
    assert json.loads((tmp_path / "results.json").read_text(encoding="utf-8")) == done
    failed = called(tmp_path, "--seconds", "300", "--corpora", str(tmp_path / "absent"), "kftt-en-ja")
    assert failed.returncode == 1 and "there is no folder" in failed.stdout, failed.stdout
    unknown = called(tmp_path, "nonsense")
    assert unknown.returncode == 2 and "there is no measurement nonsense; there are tests, text" in unknown.stderr


def test_whoever_interrupts_it_interrupts_what_it_began(tmp_path: Path) -> None:
    script = (
        "import scripts.measurements as m; from pathlib import Path; wait = m.subprocess.Popen.wait; "
        f"m.subprocess.Popen.wait = lambda *told: (Path('{tmp_path}/waiting').touch(), wait(*told))[1]; "
        f"one = m.Measurement('long', 1, 'echo $$ > {tmp_path}/pid; exec sleep 3600'); "
        f"m.measured(one, Path('.'), Path('{tmp_path}'), 3600.0)"
    )
    process = subprocess.Popen([sys.executable, "-c", script], cwd=FOLDER.parent, stderr=subprocess.DEVNULL)
    while not (tmp_path / "waiting").exists() or not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    assert process.wait(600) != 0
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)
