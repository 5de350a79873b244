"""The model must learn. A new random seed each run: a recipe that works by luck is no recipe."""

import random

import pytest
import torch
from torch import Tensor

from regard.config import ModelConfig, Norm
from regard.model.transformer import Transformer
from regard.train.loss import smoothed_cross_entropy

BOS, EOS, DIGITS = 1, 2, range(3, 13)


def digit_strings(count: int, generator: random.Random) -> tuple[Tensor, Tensor]:
    """Digits of random length, and the same digits in reverse between BOS and EOS."""
    rows = [generator.choices(DIGITS, k=generator.randint(1, 10)) for _ in range(count)]
    src = torch.zeros(count, 10, dtype=torch.long)
    tgt = torch.zeros(count, 12, dtype=torch.long)
    for n, row in enumerate(rows):
        src[n, : len(row)] = torch.tensor(row)
        tgt[n, : len(row) + 2] = torch.tensor([BOS, *reversed(row), EOS])
    return src, tgt


def greedy(model: Transformer, src: Tensor) -> Tensor:
    cache = model.start(src, capacity=11)
    tokens = [torch.full((len(src),), BOS)]
    finished = torch.zeros(len(src), dtype=torch.bool)
    for _ in range(11):
        best = model.step(tokens[-1], cache).argmax(-1).masked_fill(finished, 0)
        tokens.append(best)
        finished |= best == EOS
    return torch.stack(tokens, dim=1)


@pytest.mark.slow
@pytest.mark.parametrize("norm", ["post", "pre"])
def test_reversing_digit_strings_is_learnt_almost_perfectly(norm: Norm) -> None:
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")  # noqa: T201 - shown when the test fails
    torch.manual_seed(seed)
    generator = random.Random(seed)
    config = ModelConfig(
        src_vocab_size=13, tgt_vocab_size=13, encoder_layers=2, decoder_layers=2, d_model=64, num_heads=4, d_ff=128,
        dropout=0.0, embedding_dropout=0.0, norm=norm,
    )  # fmt: skip
    model = Transformer(config).train()
    optimizer = torch.optim.Adam(model.parameters(), betas=(0.9, 0.98), eps=1e-9, fused=True)
    steps = 1000
    for step in range(1, steps + 1):
        src, tgt = digit_strings(128, generator)
        optimizer.param_groups[0]["lr"] = 2e-3 * min(step / 100, (steps - step) / (steps - 100) + 1e-3)
        states = model.decode(tgt[:, :-1], model.encode(src), model.padding_mask(src))
        loss = smoothed_cross_entropy(states, model.output_weight, tgt[:, 1:], pad_id=0, smoothing=0.1)
        optimizer.zero_grad(set_to_none=True)
        (loss.total / loss.num_tokens).backward()
        optimizer.step()
    src, tgt = digit_strings(1000, generator)
    exact = (greedy(model.eval(), src) == tgt).all(-1).double().mean().item()
    assert exact > 0.98, f"{exact:.1%} exact after {steps} steps, seed {seed}"
