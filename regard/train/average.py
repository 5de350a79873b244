"""`regard average`: other weights for a run to translate with."""

from collections.abc import Sequence
from pathlib import Path

import regard
from regard.checkpoint import Run, Weights, weights_bytes
from regard.model.kinds import build
from regard.text.tokenizer import Tokenizer
from regard.train.device import find_device
from regard.train.validation import Validation, open_validation


def average(
    folder: Path, *, last: int | None, steps: Sequence[int], device: str
) -> tuple[Weights | None, Weights, Validation]:
    """The mean of the last checkpoints, or of those of certain steps, becomes what the run translates with. Gives what did
    before, what does now, and how that validates."""
    run = Run(folder)
    run.read_config()  # or it is no run, and gets no lock
    with run.lock():
        config, before = run.read_config(), run.read_weights()
        saved = [step for step in run.saved_steps() if step > 0]
        if not saved:
            raise ValueError(f"{folder} has no checkpoint to average")
        for step in steps:
            if step not in saved:
                raise ValueError(f"{folder} has no checkpoint of step {step}; it has {', '.join(map(str, saved))}")
        chosen = tuple(sorted(steps)) or tuple(saved[-(last or config.train.keep_checkpoints) :])
        tensors, intact = run.averaged_weights(chosen)
        if intact != chosen:
            raise ValueError(f"of the checkpoints {chosen} of {folder}, only {intact} are intact; choose among those")
        model = build(config.model).to(find_device(device))
        model.load_state_dict(tensors)
        tokenizer = Tokenizer.load(run.folder)
        validation = open_validation(config, run.data_folder(config), tokenizer, batch_tokens=4096).validate(model)
        weights = Weights("average", chosen, saved[-1], final=before is not None and before.final)
        run.publish({"model.safetensors": weights_bytes(tensors)})
        run.write_config(config, weights, regard.__version__)
    return before, weights, validation
