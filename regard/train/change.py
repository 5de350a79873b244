"""Changes of the settings of a run that exists."""

import json
from contextlib import suppress
from dataclasses import replace
from typing import Any

import regard
from regard.config import AUTO, RunConfig
from regard.errors import UserError
from regard.machine.device import find_device
from regard.run.checkpoint import DamagedError, Run
from regard.settings import Table, flattened, merged, read_table, to_table
from regard.train.plan import Pace, goes_by_the_clock, steps_in, subwords_of, with_steps

# Settings of a run that may be changed later; some only before the first step, as its advice on memory says.
CHANGEABLE = {"train.steps", "train.minutes", "train.patience", "train.device", "train.precision", "train.compile"}
BEFORE_THE_FIRST_STEP = {"train.batch_tokens", "train.accumulation"}
# Settings that a run decides itself if they are given as one of the placeholders.
SETTLED = {"steps", "warmup", "accumulation", "batch_tokens", "threads", "log_every", "valid_every", "save_every"}
SETTLED |= {"device", "precision", "compile", "kernels"}
PLACEHOLDERS = (0, AUTO, "auto")


def change(run: Run, given: Table) -> None:
    """Change the few settings of an existing run that may be changed; raise an error for any other that differs."""
    stored = run.read_config()
    train = {key: value for key, value in given.get("train", {}).items() if key not in SETTLED or value not in PLACEHOLDERS}
    rest = {key: value for key, value in given.items() if key != "train"}
    new = read_table(RunConfig, merged(to_table(stored), rest, {"train": train}))
    before, after = flattened(to_table(stored)), flattened(to_table(new))
    changed = {name for name in after if after[name] != before.get(name)}
    saved = run.saved_steps()
    changeable = CHANGEABLE if any(saved) else CHANGEABLE | BEFORE_THE_FIRST_STEP
    if "float64" in (stored.train.precision, new.train.precision):  # its weights are of another type
        changeable = changeable - {"train.precision"}
    for name in sorted(changed - changeable):
        was, would_be = (json.dumps(table.get(name), ensure_ascii=False) for table in (before, after))
        raise UserError(
            f"{run.folder} was begun with {name} = {was}, not {would_be}; choose another folder with -o, or leave the "
            "setting out"
        )
    if new.train.steps and saved and new.train.steps < saved[-1]:
        raise UserError(f"{run.folder} has done {saved[-1]:,} steps already; --steps {new.train.steps} is less")
    find_device(new.train.device)
    if train.get("steps") and train.get("minutes"):
        raise UserError("both --steps and --minutes were given; give one of them")
    if "train.minutes" in changed:
        new = _extended(run, stored, new)
    elif train.get("steps") and ("train.steps" in changed or goes_by_the_clock(stored)):
        new = with_steps(new, new.train.steps) if stored.train.steps == 0 else new
        new = replace(new, planned=())  # from now on by steps, not by the clock
    weights = run.read_weights()
    if weights is not None and not saved and (new != stored or not weights.final):
        raise UserError(
            f"{run.folder} has weights, but no checkpoint to continue from; begin another run with --from {run.folder}"
        )
    if new == stored:
        return
    subwords_of(run, new)
    if weights is not None and weights.final and weights.after < stored.train.steps and "train.patience" not in changed:
        raise UserError(
            f"validation had not improved any more when {run.folder} ended after {weights.after:,} steps; give a greater "
            f"train.patience than {stored.train.patience}"
        )
    run.write_config(new, weights and weights._replace(final=False), regard.__version__)


def _extended(run: Run, stored: RunConfig, new: RunConfig) -> RunConfig:
    """Return the configuration of a run by the clock with other minutes. Its steps are estimated from its speed so far, and
    planned anew while it goes on."""
    minutes = new.train.minutes
    if not goes_by_the_clock(stored):
        raise UserError(f"{run.folder} goes by steps, not by the clock; give more --steps instead of --minutes {minutes:g}")
    done = _done(run)
    if done.steps == 0:  # measure the speed once more
        anew: dict[str, Any] = dict.fromkeys(stored.planned, 0)
        return replace(new, train=replace(new.train, **anew))
    if 60 * minutes <= done.seconds:
        raise UserError(
            f"{run.folder} has trained for {done.seconds / 60:.2g} minutes already; --minutes {minutes:g} is not more"
        )
    return with_steps(new, steps_in(minutes, done=done, recent=done))


def _done(run: Run) -> Pace:
    """Return the steps and seconds of the last checkpoint that is intact."""
    for step in reversed(run.saved_steps()):
        with suppress(DamagedError):
            return Pace(step, run.seconds_until(step))
    return Pace(0, 0.0)
