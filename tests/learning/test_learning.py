"""The model must learn. A new random seed each run: a recipe that works by luck is no recipe."""

import random
from collections.abc import Callable

import pytest
import torch

from regard.config import ModelConfig, ModelKind, Norm, TrainConfig
from regard.data.batch import TextBatch, collate
from regard.machine.processes import Processes
from regard.model.language import LanguageModel
from regard.model.sequence import EncoderDecoder
from regard.search.greedy import greedy
from regard.text.tokenizer import BOS_ID, EOS_ID, PAD_ID
from regard.train.learner import Learner
from regard.train.totals import Totals
from regard.translate.search import started

DIGITS = range(3, 13)
STEPS = 600
Row = list[int]


def digit_strings(count: int, chance: random.Random, longest: int = 10) -> list[Row]:
    return [chance.choices(DIGITS, k=chance.randint(1, longest)) for _ in range(count)]


def reverse(row: Row) -> Row:
    return row[::-1]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("task", "norm", "kind"),
    [
        (list, "post", "transformer"),
        (reverse, "pre", "transformer"),
        (sorted, "post", "transformer"),
        (list, "post", "rnn-attention"),
        (list, "post", "rnn"),
    ],
    ids=["copy", "reverse", "sort", "copy by an RNN with attention", "copy by an RNN"],
)
def test_a_task_on_digit_strings_is_learnt_almost_perfectly(
    task: Callable[[Row], Row], norm: Norm, kind: ModelKind, seed: int
) -> None:
    """Copying, reversing and sorting, in new strings throughout. One fixed vector holds short ones only, so soon."""
    longest = 5 if kind == "rnn" else 10
    chance = random.Random(seed)
    model_config = ModelConfig(
        src_vocab_size=13, tgt_vocab_size=13, encoder_layers=2, decoder_layers=2, d_model=64, num_heads=4, d_ff=128,
        dropout=0.0, embedding_dropout=0.0, norm=norm, kind=kind, d_state=128,
    )  # fmt: skip
    train_config = TrainConfig(
        steps=STEPS, warmup=100, schedule="linear", learning_rate=2e-3, clip_norm=1.0, seed=seed, precision="float32",
        compile="off",
    )  # fmt: skip
    cpu = torch.device("cpu")
    learner, totals = Learner(model_config, train_config, cpu, Processes()), Totals(cpu)
    for _ in range(STEPS):
        rows = digit_strings(128, chance, longest)
        learner.update([(0, collate(rows, [task(row) for row in rows]))], totals)
    rows = digit_strings(1000, chance, longest)
    assert isinstance(learner.model, EncoderDecoder)
    step, cache = started(learner.model.eval(), collate(rows, rows).src)
    outputs = greedy(step, cache, [11] * 1000, bos_id=BOS_ID, eos_id=EOS_ID)
    exact = sum(list(output.ids) == task(row) for output, row in zip(outputs, rows, strict=True)) / 1000
    assert exact > 0.98, f"{exact:.1%} exact after {STEPS} steps, seed {seed}"


SEPARATOR = 13


@pytest.mark.slow
def test_a_language_model_learns_to_say_a_string_again(seed: int) -> None:
    """«digits, a separator, the same digits», of any length: after the separator, nothing is left to chance."""
    chance = random.Random(seed)
    model_config = ModelConfig(
        kind="language", src_vocab_size=14, tgt_vocab_size=14, decoder_layers=2, d_model=64, num_heads=4, key_value_heads=2,
        d_ff=128, dropout=0.0, embedding_dropout=0.0, shared_embeddings="none",
    )  # fmt: skip
    train_config = TrainConfig(
        steps=STEPS, warmup=100, schedule="linear", learning_rate=2e-3, clip_norm=1.0, label_smoothing=0.0, seed=seed,
        precision="float32", compile="off",
    )  # fmt: skip
    cpu = torch.device("cpu")
    learner, totals = Learner(model_config, train_config, cpu, Processes()), Totals(cpu)
    for _ in range(STEPS):
        texts = [[BOS_ID, *row, SEPARATOR, *row, EOS_ID] for row in digit_strings(128, chance)]
        table = torch.full((128, max(map(len, texts))), PAD_ID)
        for place, text in enumerate(texts):
            table[place, : len(text)] = torch.tensor(text)
        learner.update([(0, TextBatch(table[:, :-1], table[:, 1:]))], totals)
    rows = digit_strings(1000, chance)
    prompts = torch.full((1000, 11), PAD_ID)
    for place, row in enumerate(rows):
        prompts[place, : len(row) + 1] = torch.tensor([BOS_ID, *row])
    model = learner.model.eval()
    assert isinstance(model, LanguageModel)
    outputs = greedy(model.step, model.start(prompts), [12] * 1000, bos_id=SEPARATOR, eos_id=EOS_ID)
    exact = sum(list(output.ids) == row for output, row in zip(outputs, rows, strict=True)) / 1000
    assert exact > 0.98, f"{exact:.1%} exact after {STEPS} steps, seed {seed}"
