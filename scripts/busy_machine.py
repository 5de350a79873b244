"""Measure how fast training and translating on a CPU are beside programs that keep all cores busy, and on an idle machine.

    python scripts/busy_machine.py
    python scripts/busy_machine.py --spins default 1000 10000 100000 --rounds 3 --seconds 17

It trains the preset tiny on the text of the demo for some seconds, alone and beside one busy program for each core, in turn,
with each number of times that waiting threads of libgomp spin ("ours": as regard sets it; "default": libgomp's own). A fair
scheduler would give training half of a machine that it shares so.
"""

import argparse
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from regard.machine.load import SPINS

ROOT = Path(__file__).parents[1]
DEMO = ROOT / "regard" / "demo" / "text"
TRAINING = "--preset tiny --steps 1000000 --device cpu --set train.log_every=1 --set train.save_every=1000000".split()
LIBGOMP = 300_000  # spins, by default
COMMAND = [sys.executable, "-m", "regard"]


@contextmanager
def busy(count: int) -> Iterator[None]:
    """Keep this many cores busy."""
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for one in others:
            one.kill()
            one.wait()


def prepare(folder: Path) -> Path:
    sides = [f"--{flag}={DEMO / name}.xz" for flag, name in FILES.items()]
    command = [*COMMAND, "prepare", *sides, "--vocab-size", "4000", "-o", str(folder / "prepared")]
    subprocess.run(command, check=True, capture_output=True, env=environment("ours"))
    return folder / "prepared"


FILES = {"src": "train.de", "tgt": "train.en", "valid-src": "valid.de", "valid-tgt": "valid.en"}


def environment(spins: str) -> dict[str, str]:
    number = {"ours": SPINS, "default": str(LIBGOMP)}.get(spins, spins)
    return os.environ | {"GOMP_SPINCOUNT": number, "PYTHONPATH": str(ROOT)}


def updates_per_second(prepared: Path, run: Path, seconds: float, spins: str) -> float:
    """Train for some seconds, and return the speed after the first update."""
    command = [*COMMAND, "train", "--data", str(prepared), *TRAINING, "-o", str(run), "--set", "train.valid_every=1000000"]
    process = subprocess.Popen(command, env=environment(spins), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    timing = run / "timing.jsonl"
    while process.poll() is None and not (timing.exists() and timing.stat().st_size):
        time.sleep(0.01)
    began = time.perf_counter()
    before = timing.read_bytes().count(b'"seconds"')
    time.sleep(seconds)
    after, spent = timing.read_bytes().count(b'"seconds"'), time.perf_counter() - began
    process.send_signal(signal.SIGKILL)
    process.wait()
    return (after - before) / spent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--spins", nargs="+", default=["default", "ours"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=17.0)
    parser.add_argument("--busy", type=int, default=os.cpu_count(), help="programs beside; default: one for each core")
    options = parser.parse_args()
    found: dict[str, dict[str, list[float]]] = {spins: {"idle": [], "busy": []} for spins in options.spins}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prepared = prepare(folder)
        for number in range(options.rounds):
            for spins, speeds in found.items():
                for state, count in (("idle", 0), ("busy", options.busy)):
                    with busy(count):
                        run = folder / f"{number}-{spins}-{state}"
                        speeds[state].append(updates_per_second(prepared, run, options.seconds, spins))
    best = max(statistics.median(speeds["idle"]) for speeds in found.values())
    print(f"updates a second, median of {options.rounds} rounds; busy: beside {options.busy} programs")
    for spins, speeds in found.items():
        idle, shared = (statistics.median(speeds[state]) for state in ("idle", "busy"))
        print(f"{spins:>8} spins: idle {idle:6.1f} ({idle / best:.0%} of the fastest), busy {shared:6.1f}", end=" ")
        print(f"({shared / (best / 2):.0%} of half of it; from {min(speeds['busy']):.1f} to {max(speeds['busy']):.1f})")


if __name__ == "__main__":
    main()
