"""Check that a run that is killed repeatedly ends with the same weights as one that is not.

    python scripts/kill_and_resume.py 20

It trains a small model with dropout, BPE-dropout and accumulation twice. The second training is killed (SIGKILL) at random
moments, from reading the text to the last checkpoint, and started again with the same command. Then weights, optimizer state
and metrics.jsonl must have the same SHA-256, every continuation must have printed where it continues, and none may have
repeated more than one save interval (on a GPU, where training goes on while a checkpoint is written, two). Arguments after
`--` go to `regard train`, such as `--device cuda --deterministic`.
"""

import argparse
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from regard.run.checkpoint import Run, sha256

SAVE_EVERY = 4
WORDS = {
    "Hund": "dog",
    "Katze": "cat",
    "läuft": "runs",
    "schläft": "sleeps",
    "heute": "today",
    "gern": "gladly",
    "oft": "often",
}


def write_corpus(folder: Path) -> None:
    chance = random.Random(3)
    for split, count in (("train", 600), ("valid", 20)):
        rows = [chance.choices(list(WORDS), k=chance.randint(2, 12)) for _ in range(count)]
        lines = {"de": [" ".join(row) for row in rows], "en": [" ".join(WORDS[word] for word in row) for row in rows]}
        for language, texts in lines.items():
            (folder / f"{split}.{language}").write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")


def command(corpus: Path, run: Path, steps: int, more: list[str]) -> list[str]:
    files = ["--src", "train.de", "--tgt", "train.en", "--valid-src", "valid.de", "--valid-tgt", "valid.en"]
    settings = {
        "train.accumulation": 2,
        "train.bpe_dropout": 0.1,
        "train.save_every": SAVE_EVERY,
        "train.valid_every": 4 * SAVE_EVERY,
        "train.log_every": 3,
        "model.dropout": 0.1,
        "model.attention_dropout": 0.1,
        "data.vocab_size": 300,
    }
    sets = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
    paths = [word if word.startswith("--") else str(corpus / word) for word in files]
    choice = ["--preset", "tiny", "--batch-tokens", "512", "--steps", str(steps), "-o", str(run)]
    return [sys.executable, "-m", "regard", "train", *paths, *choice, *sets, *more]


def last_step(run: Path) -> int:
    """Return the last step in the log, even if it was not saved."""
    path = run / "timing.jsonl"
    lines = path.read_text(encoding="utf-8").split("\n")[:-1] if path.exists() else []
    return max([0, *(int(json.loads(line)["step"]) for line in lines)])


def digests(run: Path, steps: int) -> dict[str, str]:
    checkpoint = Run(run).checkpoint_path(steps)
    files = [checkpoint / "weights.safetensors", checkpoint / "optimizer.safetensors"]
    files += [run / "metrics.jsonl", run / "model.safetensors"]
    return {path.name: sha256(path) for path in files}


def started(arguments: list[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True)


def run_to_the_end(arguments: list[str]) -> tuple[str, float]:
    began = time.monotonic()
    process = started(arguments)
    _, stderr = process.communicate()
    if process.returncode:
        sys.exit(f"the command failed with exit code {process.returncode}: {stderr}")
    return stderr, time.monotonic() - began


def continued_from(stderr: str, before: int, saved: list[int], *, most: int) -> str:
    """Check the line that a continuation prints, if it ran long enough to print it."""
    told = re.search(r"^continuing from step (\d+)$", stderr, re.MULTILINE)
    if "is finished" in stderr:
        return "had finished already"
    if told is None:
        return "had not begun" if not saved else ("was killed before it could say" if "steps on" not in stderr else "SILENT")
    step = int(told[1])
    repeats = before - step
    return f"continued from step {step}" if repeats <= most else f"continued from step {step}, REPEATING {repeats}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kills", type=int)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32), help="seed of the moments")
    own, _, more = " ".join(sys.argv[1:]).partition(" -- ")
    options = parser.parse_args(own.split())
    options.more = more.split()
    folder = Path(tempfile.mkdtemp(prefix="kill-and-resume-"))
    write_corpus(folder)
    whole, killed = folder / "whole", folder / "killed"
    _, seconds = run_to_the_end(command(folder, whole, options.steps, options.more))
    print(f"never killed: {seconds:.1f} s; moments by seed {options.seed}", flush=True)
    chance = random.Random(options.seed)
    arguments = command(folder, killed, options.steps, options.more)
    device = Run(whole).read_config().train.device
    most = SAVE_EVERY if device == "cpu" else 2 * SAVE_EVERY
    faults = kills = 0
    while kills < options.kills:
        before, saved = last_step(killed), Run(killed).saved_steps()
        process = started(arguments)
        time.sleep(chance.uniform(0.0, 0.8 * seconds))
        if process.poll() is None:
            kills += 1
            os.killpg(process.pid, signal.SIGKILL)
        _, stderr = process.communicate()
        story = continued_from(stderr, before, saved, most=most)
        faults += "REPEATING" in story or "SILENT" in story or process.returncode not in (0, -signal.SIGKILL)
        if process.returncode == 0:  # it finished before the kill: start over for the remaining kills
            faults += digests(whole, options.steps) != digests(killed, options.steps)
            shutil.rmtree(killed)
            story += " and finished; once more from the beginning"
        print(f"kill {kills}: {story}; at step {last_step(killed)}", flush=True)
    before, saved = last_step(killed), Run(killed).saved_steps()
    stderr, _ = run_to_the_end(arguments)
    print(f"to the end: {continued_from(stderr, before, saved, most=most)}")
    expected, found = digests(whole, options.steps), digests(killed, options.steps)
    for name, digest in expected.items():
        same = digest == found[name]
        faults += not same
        print(f"{name:22} {digest[:16]} {found[name][:16]} {'the same' if same else 'DIFFERENT'}")
    if faults:
        sys.exit(f"{faults} faults; everything is in {folder}")
    shutil.rmtree(folder)
    print(f"{kills} kills, and not a bit of difference")


if __name__ == "__main__":
    main()
