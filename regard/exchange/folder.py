"""Read and write folders of other programs, whole or not at all."""

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from safetensors.torch import save
from torch import Tensor

import regard
from regard.config import RunConfig
from regard.errors import UserError
from regard.run.checkpoint import Run, Weights, weights_bytes
from regard.text.tokenizer import Tokenizer

StateDict = dict[str, Tensor]


@contextmanager
def made_beside(folder: Path) -> Iterator[Path]:
    """Yield a temporary folder; rename it to `folder` if no exception occurs, else delete it."""
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        raise UserError(f"{folder} is there already; choose another name, or delete it first")
    folder.parent.mkdir(parents=True, exist_ok=True)
    workshop = folder.with_name(f".{folder.name}.making")
    shutil.rmtree(workshop, ignore_errors=True)
    workshop.mkdir()
    try:
        yield workshop
        workshop.rename(folder)  # works if `folder` is an empty folder
    finally:
        shutil.rmtree(workshop, ignore_errors=True)


def write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")


def write_weights(folder: Path, state: StateDict) -> None:
    """Write `model.safetensors` for Hugging Face's transformers, in float32."""
    state = {name: tensor.detach().float().contiguous() for name, tensor in state.items()}
    (folder / "model.safetensors").write_bytes(save(state, metadata={"format": "pt"}))


def write_imported_run(folder: Path, tokenizer: Tokenizer, weights: StateDict, config: RunConfig) -> str:
    """Write a run of imported weights, and return its size in words."""
    run = Run(folder)
    run.publish(tokenizer.files() | {"model.safetensors": weights_bytes(weights)})
    run.write_config(config, Weights("imported", (), 0, final=True), regard.__version__)
    num_parameters = sum(tensor.numel() for tensor in weights.values())
    return f"{num_parameters / 1e6:.1f} M parameters, {len(tokenizer.tgt):,} subwords"
