"""Measure the time and memory of `regard prepare` on millions of pairs, and the time until a run on them continues.

    python scripts/large_corpus.py SRC TGT --pairs 2000000

SRC and TGT are aligned texts (plain, .gz or .xz), repeated and perturbed (words swapped, copies numbered) until there are
enough pairs. It prints the wall-clock time, the peak resident memory of the command and its workers together, and the time
to open the prepared folder and to continue a run on it.
"""

import argparse
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from regard.config import CorpusConfig
from regard.data.store import PairStore
from regard.text.cleaning import Pair
from regard.text.corpus import read_pairs


def perturbed(text: str, chance: random.Random, number: int) -> str:
    words = text.split(" ")
    here, there = chance.randrange(len(words)), chance.randrange(len(words))
    words[here], words[there] = words[there], words[here]
    return f"{' '.join(words)} {number}"


def write(folder: Path, pairs: list[Pair], count: int) -> None:
    chance = random.Random(0)
    with (
        (folder / "train.src").open("w", encoding="utf-8") as src,
        (folder / "train.tgt").open("w", encoding="utf-8") as tgt,
    ):
        for number in range(count):
            pair = pairs[number % len(pairs)]
            src.write(perturbed(pair.src, chance, number) + "\n")
            tgt.write(perturbed(pair.tgt, chance, number) + "\n")
    for side in (0, 1):
        text = "".join(pair[side] + "\n" for pair in pairs[:1000])
        (folder / f"valid.{('src', 'tgt')[side]}").write_text(text, encoding="utf-8")


def resident_bytes(root: int) -> int:
    """Return the memory of a process and its descendants. Shared pages count once per process, so this is an upper bound."""
    children: dict[int, list[int]] = {}
    resident: dict[int, int] = {}
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            lines = dict(line.split(":", 1) for line in status.read_text().splitlines() if ":" in line)
        except OSError:
            continue
        process = int(status.parent.name)
        children.setdefault(int(lines["PPid"]), []).append(process)
        resident[process] = int(lines.get("VmRSS", "0 kB").split()[0]) * 1024
    family, total = [root], 0
    while family:
        process = family.pop()
        total += resident.get(process, 0)
        family += children.get(process, [])
    return total


def train(folder: Path, steps: int) -> float:
    """Return the seconds from the command until the last step's line is printed."""
    words = ["--data", str(folder / "prepared"), "-o", str(folder / "run"), "--preset", "tiny", "--steps", str(steps)]
    words += ["--set", "train.log_every=1", "--set", "train.save_every=1", "--set", "train.valid_every=1000"]
    words += ["--set", "train.accumulation=1", "--set", "train.bleu_sentences=0"]
    began = time.perf_counter()
    with subprocess.Popen([sys.executable, "-m", "regard", "train", *words], stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if line.startswith(f"step {steps}/{steps} "):
                return time.perf_counter() - began
    raise SystemExit("training did not get that far")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("src")
    parser.add_argument("tgt")
    parser.add_argument("--pairs", type=int, default=2_000_000)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write(folder, list(read_pairs(CorpusConfig(src=arguments.src, tgt=arguments.tgt))), arguments.pairs)
        flags = [f"--{split}{side}" for split in ("", "valid-") for side in ("src", "tgt")]
        files = [str(folder / f"{split}.{side}") for split in ("train", "valid") for side in ("src", "tgt")]
        words = [word for pair in zip(flags, files, strict=True) for word in pair]
        started, most = time.perf_counter(), 0
        process = subprocess.Popen([sys.executable, "-m", "regard", "prepare", *words, "-o", str(folder / "prepared")])
        while process.poll() is None:
            most = max(most, resident_bytes(process.pid))
            time.sleep(0.1)
        seconds = time.perf_counter() - started
        opened = time.perf_counter()
        store = PairStore.open(folder / "prepared", "train")
        num_tokens = int(store.tgt.lengths.sum())
        opened = time.perf_counter() - opened
        print(f"{len(store):,} pairs, {num_tokens:,} target tokens: prepared in {seconds:.0f} s")
        print(f"largest resident memory {most / 2**20:,.0f} MiB; the prepared folder opens in {opened:.2f} s", flush=True)
        train(folder, steps=2)
        print(f"a run on it is continued, and its next update done, {train(folder, steps=3):.1f} s after the command")


if __name__ == "__main__":
    main()
