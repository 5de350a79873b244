"""`regard average`: choose which checkpoints a run translates with."""

from collections.abc import Sequence
from pathlib import Path

from regard.errors import UserError
from regard.machine.device import find_device
from regard.model.kinds import build
from regard.run.checkpoint import Run, Weights
from regard.text.tokenizer import Tokenizer
from regard.train.saving import publish_weights
from regard.train.validation import Validation, open_validation


def average(
    folder: Path, *, last: int | None, steps: Sequence[int], device: str
) -> tuple[Weights | None, Weights, Validation]:
    """Let a run translate with the mean of its last checkpoints, or of those of certain steps. Return its weights before and
    after that, and the validation of the latter."""
    run = Run(folder)
    run.read_config()  # a folder that is no run gets no lock
    with run.lock():
        config, before = run.read_config(), run.read_weights()
        saved = [step for step in run.saved_steps() if step > 0]
        if not saved:
            raise UserError(f"{folder} has no checkpoint to average")
        for step in steps:
            if step not in saved:
                raise UserError(f"{folder} has no checkpoint of step {step}; it has {', '.join(map(str, saved))}")
        chosen = tuple(sorted(steps)) or tuple(saved[-(last or config.train.keep_checkpoints) :])
        tensors, intact = run.averaged_weights(chosen)
        if intact != chosen:
            raise UserError(f"of the checkpoints {chosen} of {folder}, only {intact} are intact; choose among those")
        model = build(config.model).to(find_device(device))
        model.load_state_dict(tensors)
        tokenizer = Tokenizer.load(run.folder)
        validation = open_validation(config, run.data_folder(config), tokenizer, batch_tokens=4096).validate(model)
        weights = Weights("average", chosen, saved[-1], final=before is not None and before.final)
        publish_weights(run, config, tensors, weights)
    return before, weights, validation
