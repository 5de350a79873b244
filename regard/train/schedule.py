"""Section 5.3: the learning rate of each step."""

import math

from regard.config import Schedule, TrainConfig


def learning_rate(step: int, *, schedule: Schedule, peak: float, warmup: int, steps: int) -> float:
    """Up in a straight line until step `warmup`, which has the `peak`; then as the schedule says. Steps count from 1.

    inverse_sqrt falls with 1/√step, and with `paper_peak` is the paper's equation 3; linear and cosine fall to nothing just
    after the last step.
    """
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
    """Of one step of a run."""
    peak = config.learning_rate or paper_peak(d_model, config.warmup)
    return learning_rate(step, schedule=config.schedule, peak=peak, warmup=config.warmup, steps=config.steps)
