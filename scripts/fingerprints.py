"""Print hashes of what regard computes, to compare before and after a change that must not alter it.

    python scripts/fingerprints.py            # every line
    python scripts/fingerprints.py language   # those whose name has this in it

It trains each kind of model for a few updates on a CPU, with one thread, on sentences of the bundled demo, and prints the
SHA-256 of the weights, then that of the stored run's translations by each search. Two versions of the code with the same
output train and translate alike, bit for bit. Lines that begin with `kernels` run the GPU's kernels in Triton's interpreter.
The whole takes four minutes on one core.
"""

import hashlib
import lzma
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
DEMO = ROOT / "regard" / "demo" / "text"
STORED_RUN = ROOT / "tests" / "runs" / "0.1.0"
NUM_PAIRS = 1500
WITH_KERNELS = ("train.kernels=on", "train.precision=float32", "train.batch_tokens=300")
ABLATIONS = ("scale", "residual", "causal-mask", "query-key", "key-value", "projections")
TRAININGS: dict[str, tuple[str, ...]] = {
    "transformer": ("model.dropout=0.1", "model.attention_dropout=0.1", "model.embedding_dropout=0.1"),
    "transformer pre-norm": ("model.norm=pre", "model.activation=gelu", "train.accumulation=2"),
    "transformer learned positions": ("model.positions=learned", "model.shared_embeddings=none"),
    "transformer muon": ("train.optimizer=muon", "train.r_drop=1"),
    "transformer bpe-dropout": ("train.bpe_dropout=0.1", "model.output_bias=true"),
    "transformer bfloat16": ("train.precision=bfloat16",),
    **{f"transformer without {name}": (f"model.ablation={name}",) for name in ABLATIONS},
    "transformer without positions": ("model.positions=none",),
    "rnn": ("model.kind=rnn", "model.cell=gru"),
    "rnn-attention": ("model.kind=rnn-attention", "model.dropout=0.1"),
    "language": ("model.kind=language", "model.dropout=0.1"),
    "kernels": (*WITH_KERNELS, "model.dropout=0.1"),
    "kernels pre-norm": (*WITH_KERNELS, "model.norm=pre", "train.r_drop=1", "train.optimizer=muon"),
}
SEARCHES = {
    "greedy": ("--beam", "1"),
    "beam": ("--beam", "4", "--nbest", "4", "--json"),
    "sample": ("--sample", "2", "--seed", "3", "--json"),
    "ensemble": ("--ensemble", str(STORED_RUN), "--json"),
    "align": ("--json", "--align", os.devnull),
}


def regard(*arguments: str, **environment: str) -> bytes:
    """Run one command and return its standard output."""
    process = subprocess.run(
        [sys.executable, "-m", "regard", *arguments],
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)} | environment,
        stdout=subprocess.PIPE,
        check=False,
    )
    if process.returncode:
        sys.exit(f"regard {' '.join(arguments)} ended with {process.returncode}")
    return process.stdout


def write_corpus(folder: Path) -> None:
    for split in ("train", "valid"):
        for side in ("de", "en"):
            [source] = DEMO.glob(f"{split}.{side}*")
            lines = lzma.decompress(source.read_bytes()).decode("utf-8").splitlines(keepends=True)
            lines = lines[: NUM_PAIRS if split == "train" else 20]
            (folder / f"{split}.{side}").write_text("".join(lines), encoding="utf-8")


def trained(corpus: Path, run: Path, settings: tuple[str, ...]) -> str:
    sets = [word for one in settings if not one.startswith("model.kind") for word in ("--set", one)]
    [kind] = [one.partition("=")[2] for one in settings if one.startswith("model.kind")] or ["transformer"]
    if kind == "language":
        text = ["--text", f"{corpus}/train.en", "--valid-text", f"{corpus}/valid.en"]
    else:
        text = ["--src", f"{corpus}/train.de", "--tgt", f"{corpus}/train.en"]
        text += ["--valid-src", f"{corpus}/valid.de", "--valid-tgt", f"{corpus}/valid.en"]
    uses_kernels = "train.kernels=on" in settings
    steps = "2" if uses_kernels else "12"
    fixed = ["--preset", "tiny", "--model", kind, "--vocab-size", "500", "--steps", steps, "--device", "cpu"]
    more = {"TRITON_INTERPRET": "1"} if uses_kernels else {}
    regard("train", *text, "-o", str(run), *fixed, *sets, **more)
    return hashlib.sha256((run / "model.safetensors").read_bytes()).hexdigest()


def main() -> None:
    wanted = sys.argv[1] if len(sys.argv) > 1 else ""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_corpus(folder)
        for number, (what, settings) in enumerate(TRAININGS.items()):
            if wanted in what:
                print(f"{what}: {trained(folder, folder / f'run-{number}', settings)}", flush=True)
    for what, flags in SEARCHES.items():
        if wanted in f"translate {what}":
            found = regard("translate", str(STORED_RUN), *flags, "--device", "cpu", str(STORED_RUN / "source.de"))
            print(f"translate {what}: {hashlib.sha256(found).hexdigest()}", flush=True)


if __name__ == "__main__":
    main()
