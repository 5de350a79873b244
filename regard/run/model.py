"""Load the model that a run trained, to decode with it."""

from pathlib import Path
from typing import NamedTuple

import torch

from regard.config import RunConfig
from regard.errors import UserError
from regard.model.kinds import build
from regard.model.sequence import SequenceModel
from regard.run.checkpoint import load_weights, run_and_step
from regard.text.tokenizer import Tokenizer


class TrainedRun(NamedTuple):
    """A run's settings, subwords and model."""

    folder: Path
    config: RunConfig
    tokenizer: Tokenizer
    model: SequenceModel


def load_run(folder: str | Path, device: torch.device) -> TrainedRun:
    """Load the weights with which a run translates, or those of a checkpoint from its folder."""
    run, step = run_and_step(Path(folder))
    config = run.read_config()
    if step is None and run.read_weights() is None:
        raise UserError(f"{run.folder} has no weights yet: its training has not come to a first checkpoint")
    if step is None:
        run.require_intact()
    tokenizer = Tokenizer.load(run.folder)
    model = build(config.model)
    model.load_state_dict(load_weights(run.model_path) if step is None else run.load_weights_of(step))
    model.to(device).eval().requires_grad_(False)
    model.pack()
    return TrainedRun(run.folder, config, tokenizer, model)
