"""Repeat the GPU measurements of README.md and recipes/README.md, one command after the other.

    python scripts/measurements.py --corpora corpora -o runs/measured --seconds 560
    python scripts/measurements.py --corpora corpora -o runs/measured kftt-1 plain versus
    python scripts/measurements.py --list

A GPU is often available for minutes only. A command is started only if it is expected to end in time; a command that is
still running then is interrupted (training saves, and continues in the next call); a finished command is repeated only if it
has changed. results.json holds each command with its output, and is rewritten after each; the runs lie beside it. The exit
code is 1 if something failed or was interrupted.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard.run.checkpoint import write_atomically

ROOT = Path(__file__).parents[1]
GRACE = 20.0  # seconds that an interrupted command has to save
LAST_LINES = 60  # number of lines of output that are kept

Result = dict[str, Any]


@dataclass(frozen=True)
class Measurement:
    """A shell command, with $CORPORA and $OUT for the two folders, and $PYTHON for the current interpreter."""

    name: str
    seconds: int  # expected duration on one H200
    command: str
    needs: tuple[str, ...] = ()  # measurements that must be done first
    shares: bool = False  # whether several processes share the GPU, none of which would keep it busy


def kftt(name: str, *, src: str = "ja", tgt: str = "en", flags: str = "") -> Measurement:
    """Train by a recipe or a variant, and translate its dev text by beam search. Text from Japanese is prepared once."""
    text = "--data $OUT/text" if src == "ja" else "--corpora $CORPORA"
    train = f"{REGARD} train --config recipes/kftt-{src}-{tgt}.toml {text} {flags} --device cuda -o $OUT/{name}"
    dev = f"--src $CORPORA/kftt-ja-en/dev.{src}.xz --ref $CORPORA/kftt-ja-en/dev.{tgt}.xz"
    needs = ("text",) if src == "ja" else ()
    return Measurement(name, 180, f"{train} && {REGARD} evaluate $OUT/{name} {dev} --device cuda", needs)


def small(name: str, seconds: int, recipe: str, flags: str) -> Measurement:
    """Train small models by a recipe, several at a time."""
    command = f"$PYTHON scripts/recipes.py recipes/{recipe}.toml --corpora $CORPORA -o $OUT/{name} --device cuda {flags}"
    return Measurement(name, seconds, command, shares=True)


REGARD = "$PYTHON -m regard"
FILES = " ".join(
    f"--{flag} $CORPORA/kftt-ja-en/{file}.xz"
    for flag, file in (("src", "train.ja"), ("tgt", "train.en"), ("valid-src", "dev.ja"), ("valid-tgt", "dev.en"))
)
DEV = "--src $CORPORA/kftt-ja-en/dev.ja.xz --ref $CORPORA/kftt-ja-en/dev.en.xz"
TEXT, MODEL = ("text",), ("kftt-1",)
TESTED = ("kernels", "packed", "decoding_kernels", "continuous_batching", "static_step", "learner_devices")
TESTS = " ".join(f"tests/unit/test_{name}.py" for name in TESTED)
TRAINING = f"{REGARD} bench train $OUT/text --device cuda --rounds 3"
DECODING = f"{REGARD} bench decode $OUT/kftt-1 $CORPORA/kftt-ja-en/dev.ja.xz --device cuda --sentences 256 --rounds 2"
VERSUS = f"{REGARD} evaluate $OUT/kftt-1 {DEV} --beam 1 --versus $OUT/plain.en --device cuda"
TRIES = " ".join(
    (
        "as-it-is",
        "steps=12000",
        "steps=12000,bpe_dropout=0.1",
        "steps=12000,r_drop=5",
        "steps=12000,r_drop=3,dropout=0.2,embedding_dropout=0.2",
        "steps=12000,r_drop=5,bpe_dropout=0.1",
        "steps=12000,optimizer=muon",
        "steps=12000,r_drop=5,optimizer=muon",
        "steps=12000,r_drop=5,d_model=256,d_ff=512,learning_rate=3e-3",
        "steps=12000,r_drop=5,bpe_dropout=0.1,d_model=256,d_ff=512,learning_rate=3e-3",
    )
)

# Prerequisites and the most important measurements come first.
MEASUREMENTS = (
    Measurement("tests", 90, f"$PYTHON -m pytest -q -o addopts= {TESTS}"),
    Measurement("text", 60, f"{REGARD} prepare {FILES} --vocab-size 16000 -o $OUT/text"),
    kftt("kftt-1", flags="--seed 1"),
    Measurement("decode", 60, DECODING, MODEL),
    Measurement("decode-steps", 60, "$PYTHON scripts/decode_gpu.py $OUT/kftt-1 --sentences 256 --places 128", MODEL),
    Measurement("agreement", 40, "$PYTHON scripts/fused_training.py $OUT/text --agreement 50 --profile", TEXT),
    Measurement("train-base", 40, f"{TRAINING} --updates 20", TEXT),
    Measurement("train-big", 45, f"{TRAINING} --preset big --updates 10", TEXT),
    Measurement("train-base-compiled", 120, f"{TRAINING} --updates 20 --compile", TEXT),
    Measurement("train-big-compiled", 120, f"{TRAINING} --preset big --updates 10 --compile", TEXT),
    small("multi30k-tries", 300, "multi30k-en-de", f"--jobs 10 --measure valid --beam 5 {TRIES}"),
    kftt("kftt-dropout", flags="--seed 1 --set model.dropout=0.2 --set train.save_every=500"),
    kftt("kftt-muon", flags="--seed 1 --set train.optimizer=muon"),
    kftt("kftt-2", flags="--seed 2"),
    kftt("kftt-3", flags="--seed 3"),
    Measurement("plain", 230, f"$PYTHON recipes/plain_loop.py $OUT/text --minutes 3 {DEV} -o $OUT/plain.en", TEXT),
    Measurement("versus", 20, VERSUS, ("kftt-1", "plain")),
    kftt("kftt-en-ja", src="en", tgt="ja"),
    small("multi30k", 120, "multi30k-en-de", "--seeds 1 2 3 --jobs 3 --measure valid test --beam 5"),
    small("tatoeba-en-de", 150, "tatoeba-en-de", "--seeds 1 2 3 --jobs 3 --measure test --beam 4"),
    small("tatoeba-en-zh", 150, "tatoeba-en-zh", "--seeds 1 2 3 --jobs 3 --measure test --beam 4"),
    Measurement(
        "curves",
        5,
        "$PYTHON scripts/curves.py $OUT/kftt-1 $OUT/kftt-2 $OUT/kftt-3 -o $OUT/curves.svg",
        ("kftt-1", "kftt-2", "kftt-3"),
    ),
)


def measured(one: Measurement, corpora: Path, output: Path, seconds: float, before: Result | None = None) -> Result:
    """Run it for at most `seconds`, or continue one that was interrupted `before`; show and keep its output."""
    print(f"--- {one.name}: {one.command}", flush=True)
    began = time.perf_counter()
    log = output / f"{one.name}.log"
    meant = {"CORPORA": str(corpora), "OUT": str(output), "PYTHON": sys.executable}
    with log.open("wb") as sink, shared_gpu(one.shares):
        process = subprocess.Popen(
            one.command,
            shell=True,
            cwd=ROOT,
            env=os.environ | meant,
            stdout=sink,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            code = process.wait(seconds)
        except subprocess.TimeoutExpired:
            code = stopped(process)
        except BaseException:
            stopped(process)
            raise
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()[-LAST_LINES:]
    all_seconds = [*(before or {}).get("seconds", []), round(time.perf_counter() - began, 1)]
    print(*lines, f"--- {one.name}: exit code {code}, {all_seconds[-1]:.0f} s", sep="\n", flush=True)
    return {"command": one.command, "exit_code": code, "seconds": all_seconds, "output": lines}


def stopped(process: "subprocess.Popen[bytes]") -> int:
    """Interrupt a process and all its children."""
    os.killpg(process.pid, signal.SIGINT)
    try:
        return process.wait(GRACE)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        return process.wait()


@contextmanager
def shared_gpu(wanted: bool) -> Iterator[None]:
    """Let several processes use the GPU at the same time through NVIDIA's MPS, if available."""
    mps = shutil.which("nvidia-cuda-mps-control") if wanted else None
    if mps:
        subprocess.run([mps, "-d"], check=False)
    try:
        yield
    finally:
        if mps:
            subprocess.run([mps], input=b"quit\n", check=False)


def is_done(one: Measurement, results: dict[str, Result]) -> bool:
    return results.get(one.name, {}).get("exit_code") == 0 and results[one.name]["command"] == one.command


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="measurements; default: all, in their order")
    parser.add_argument("--list", action="store_true", help="list all measurements")
    parser.add_argument("--corpora", type=Path, default=Path("corpora"), help="the folder with the recipes' text")
    parser.add_argument("-o", "--output", type=Path, default=Path("runs/measured"))
    parser.add_argument("--seconds", type=float, default=86_400.0, help="time for all; default: a day")
    options = parser.parse_args()
    known = {one.name: one for one in MEASUREMENTS}
    if unknown := [name for name in options.names if name not in known]:
        parser.error(f"there is no measurement {unknown[0]}; there are {', '.join(known)}")
    chosen = [known[name] for name in options.names or known]
    if options.list:
        print(*(f"{one.name} ({one.seconds} s)\n    {one.command}" for one in chosen), sep="\n")
        return
    corpora, output = options.corpora.resolve(), options.output.resolve()
    output.mkdir(parents=True, exist_ok=True)
    end = time.perf_counter() + options.seconds
    kept = output / "results.json"
    results: dict[str, Result] = json.loads(kept.read_text(encoding="utf-8")) if kept.exists() else {}
    codes: list[int] = []
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # also interrupts the running command
    for one in chosen:
        left = end - time.perf_counter() - GRACE
        missing = [name for name in one.needs if not is_done(known[name], results)]
        if is_done(one, results):
            print(f"--- {one.name}: done before")
        elif missing:
            print(f"--- {one.name}: needs {' and '.join(missing)}, not done yet")
        elif one.seconds > left:
            print(f"--- {one.name}: takes about {one.seconds} s, and {max(0.0, left):.0f} s are left")
        else:
            before = results.get(one.name)
            before = before if before and before["command"] == one.command else None
            results[one.name] = measured(one, corpora, output, left, before)
            write_atomically(kept, f"{json.dumps(results, ensure_ascii=False, indent=1)}\n".encode())
            codes.append(results[one.name]["exit_code"])
    if any(codes):
        sys.exit(1)


if __name__ == "__main__":
    main()
