"""Tests of what other programs take of the CPU, and of how long threads spin."""

import os
import subprocess
import sys

import pytest

from regard.machine.load import SPINS, CpuTimes, OtherPrograms, bound_spinning, cores_of_others, overload

HERE = CpuTimes.now()


def test_what_others_use_is_what_this_process_does_not() -> None:
    """In 4 seconds the machine worked for 7 core-seconds, of which 3 were ours: others had 4, one core's worth."""
    before, after = CpuTimes(100.0, 50.0, 10.0), CpuTimes(104.0, 57.0, 13.0)
    assert cores_of_others(before, after) == 1.0
    assert cores_of_others(before, CpuTimes(104.0, 52.0, 13.0)) == 0.0, "clocks in hundredths of a second differ a little"


@pytest.mark.parametrize(
    ("taken", "threads", "cores", "is_overloaded"),
    [
        (0.0, 2, 2, False),
        (0.5, 2, 2, False),  # 1.5 of the 2 wanted are left, a quarter less
        (0.6, 2, 2, True),
        (0.6, 1, 2, False),  # one is left for the only thread
        (1.9, 1, 2, True),
        (30.0, 16, 64, False),
        (60.0, 16, 64, True),
        (1.0, 8, 2, True),  # no more than all cores can be wanted
        (0.4, 8, 2, False),
    ],
)
def test_overload_begins_where_a_quarter_of_the_wanted_cores_is_taken(
    taken: float, threads: int, cores: int, is_overloaded: bool
) -> None:
    sentence = overload(taken, threads, cores)
    assert bool(sentence) == is_overloaded
    if is_overloaded:
        assert f"other programs use {taken:.1f} of its {cores} cores" in sentence


@pytest.mark.skipif(HERE is None, reason="there is no /proc/stat here")
def test_busy_programs_are_noticed() -> None:
    cores = os.cpu_count() or 1
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(cores)]
    try:
        others = OtherPrograms()
        while not (complaint := others.complaint(cores)):  # until they have started
            pass
    finally:
        for one in busy:
            one.kill()
            one.wait()
    assert "overloaded" in complaint


def test_nothing_is_said_where_nothing_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CpuTimes, "now", lambda: None)
    assert OtherPrograms().complaint(64) == ""


@pytest.mark.parametrize(
    ("given", "spins"),
    [({}, SPINS), ({"GOMP_SPINCOUNT": "7"}, "7"), ({"OMP_WAIT_POLICY": "active"}, None)],
    ids=["nothing", "a number", "a policy"],
)
def test_what_the_environment_says_of_waiting_stays(
    given: dict[str, str], spins: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GOMP_SPINCOUNT", raising=False)
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    bound_spinning()
    assert os.environ.get("GOMP_SPINCOUNT") == spins


@pytest.mark.skipif(sys.platform != "linux", reason="torch has libgomp on Linux only")
@pytest.mark.parametrize("code", ["import regard; regard.load", "from regard.__main__ import main; main()"])
def test_libgomp_reads_the_number_when_torch_is_imported(code: str) -> None:
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("OMP", "GOMP"))}
    environment |= {"OMP_DISPLAY_ENV": "verbose"}
    command = [sys.executable, "-c", f"import sys; sys.argv = ['regard', 'info', 'nothing']; {code}"]
    found = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert f"GOMP_SPINCOUNT = '{SPINS}'" in found.stderr
