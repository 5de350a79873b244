"""The learning rate of each step (section 5.3)."""

import math

from regard.config import Schedule, TrainConfig


def learning_rate(step: int, *, schedule: Schedule, peak: float, warmup: int, steps: int) -> float:
    """The learning rate of a step, counted from 1: it rises linearly to the `peak` at step `warmup`. Then inverse_sqrt falls
    with 1/√step, which with `paper_peak` is the paper's equation 3; linear and cosine fall to 0 just after the last step."""
    if step <= warmup:
        return peak * step / warmup
    if schedule == "inverse_sqrt":
        return peak * math.sqrt(warmup / step)
    done = (step - warmup) / max(1, steps + 1 - warmup)
    return peak * max(0.0, 1.0 - done if schedule == "linear" else 0.5 * (1.0 + math.cos(math.pi * min(1.0, done))))


def paper_peak(d_model: int, warmup: int) -> float:
    """Equation 3, d_model^-½ · min(step^-½, step · warmup^-1½), where its two branches meet."""
    return 1.0 / math.sqrt(d_model * warmup)


def rate_of(config: TrainConfig, d_model: int, step: int) -> float:
    """The learning rate of one step of a run."""
    peak = config.learning_rate or paper_peak(d_model, config.warmup)
    return learning_rate(step, schedule=config.schedule, peak=peak, warmup=config.warmup, steps=config.steps)
