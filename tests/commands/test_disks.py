"""Tests of full and read-only disks while a run is saved, on real small file systems in our own mount namespace."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from regard.run.checkpoint import Run
from tests.commands.test_prepare import flags, text
from tests.commands.test_train import SETTINGS, STEPS, digests, train

__all__ = ["text"]  # the fixture

FULL = """
mount -t tmpfs -o size=4m tmpfs disk
{train} -o disk/run 2> full.err; echo $? > full.code
ls -A disk/run/checkpoints > full.checkpoints
mount -o remount,size=100m disk
{train} -o disk/run 2> again.err; echo $? > again.code
cp -r disk/run kept
"""

READ_ONLY = """
mount -t tmpfs -o size=100m tmpfs disk
{train} -o disk/run 2> full.err & process=$!
until ls disk/run/checkpoints/step-00000003 >/dev/null 2>&1; do sleep 0.01; done
until mount -o remount,ro disk 2>/dev/null; do sleep 0.001; done
wait $process; echo $? > full.code
ls -A disk/run/checkpoints > full.checkpoints
mount -o remount,rw disk
{train} -o disk/run 2> again.err; echo $? > again.code
cp -r disk/run kept
"""


def in_a_name_space(script: str, folder: Path) -> None:
    """Run a script as root of a namespace, where it may mount file systems that no other process sees."""
    unshare = shutil.which("unshare")
    if unshare is None or subprocess.run([unshare, "-rm", "true"], check=False, capture_output=True).returncode:
        assert not os.environ.get("CI"), "file systems cannot be mounted here"
        pytest.skip("file systems cannot be mounted here")
    (folder / "disk").mkdir()
    subprocess.run([unshare, "-rm", "sh", "-c", script], cwd=folder, check=True)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "steps", "reason"), [(FULL, STEPS, "No space left on device"), (READ_ONLY, 400, "Read-only")]
)
def test_the_last_checkpoint_survives_and_training_goes_on_from_it(text: Path, script: str, steps: int, reason: str) -> None:
    settings = [*SETTINGS, "--steps", str(steps), "--set", "train.valid_every=200"]
    command = " ".join([sys.executable, "-m", "regard", "train", *flags(text), *settings, ">/dev/null"])
    in_a_name_space(script.format(train=command), text)
    told = (text / "full.err").read_text(encoding="utf-8")
    assert (text / "full.code").read_text(encoding="utf-8") == "2\n", told
    assert told.splitlines()[-1].startswith("regard: disk/run could not be written to after step"), told
    assert reason in told and "the last checkpoint is that of step" in told and "Traceback" not in told
    checkpoints = (text / "full.checkpoints").read_text(encoding="utf-8").split()
    assert checkpoints and all(name.startswith("step-") for name in checkpoints), "nothing half made is left"
    again = (text / "again.err").read_text(encoding="utf-8")
    assert (text / "again.code").read_text(encoding="utf-8") == "0\n", again
    assert f"continuing from step {int(checkpoints[-1].removeprefix('step-'))}\n" in again
    assert train(text, text / "whole", "--steps", str(steps), "--set", "train.valid_every=200").returncode == 0
    assert Run(text / "kept").damaged_files() == []
    assert digests(text / "kept", steps) == digests(text / "whole", steps)
