"""The three systems the notes compare, trained on the same text with the same number of parameters (claims S1 to S5)."""

from collections.abc import Sequence
from dataclasses import dataclass

from regard.lab.finding import Words
from regard.lab.trials import Trial

SYSTEMS: tuple[tuple[str, Words], ...] = (
    ("rnn", Words("RNN", "RNN")),
    ("rnn-attention", Words("RNN + attention", "RNN + 注意力")),
    ("transformer", Words("Transformer", "Transformer")),
)
NAMES = dict(SYSTEMS)
BINS = 5  # of as many sentences each, by the length of their source
NUM_SEEDS = 3


@dataclass(frozen=True)
class Course:
    """What all systems of one comparison have in common."""

    name: str
    preset: str
    steps: int
    batch_tokens: int
    learning_rates: dict[str, float]  # by system, chosen on the validation text (EXPERIMENTS.md)
    dropout: float


SMALL = Course("multi30k", "small", 1000, 4096, {"rnn": 2e-3, "rnn-attention": 4e-3, "transformer": 2e-3}, dropout=0.1)
BASE = Course("kftt", "base", 1500, 25_600, {"rnn": 1e-3, "rnn-attention": 1e-3, "transformer": 1e-3}, dropout=0.1)


def trials(course: Course, seeds: Sequence[int], steps: int) -> list[Trial]:
    """The slowest system first."""
    steps = steps or course.steps
    plan = {
        "steps": steps,
        "valid_every": steps,
        "save_every": max(1, steps // 10),
        "keep_checkpoints": 3,
        "bleu_sentences": 0,
    }
    common = {"batch_tokens": course.batch_tokens, "schedule": "linear", "warmup": 0, "clip_norm": 1.0}
    dropouts = {"dropout": course.dropout, "embedding_dropout": course.dropout}
    return [
        Trial(
            name=f"{course.name}-{kind}",
            seed=seed,
            settings={
                "preset": course.preset,
                "model": {"kind": kind, **dropouts},
                "train": {**plan, **common, "learning_rate": course.learning_rates[kind]},
            },
        )
        for kind in ("rnn-attention", "transformer", "rnn")
        for seed in seeds
    ]
