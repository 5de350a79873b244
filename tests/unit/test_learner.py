"""Tests of one update: its gradient does not depend on cutting, non-finite ones are skipped, and state is restored."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from regard.config import TrainConfig
from regard.data.batch import Batch, collate
from regard.machine.device import advice_on_memory
from regard.machine.processes import Processes
from regard.train.learner import Learner
from regard.train.totals import Totals, line_of
from tests.conftest import SYSTEMS, tiny_config

CPU = torch.device("cpu")
CONFIG = TrainConfig(precision="float64", compile="off", steps=100, warmup=4, learning_rate=1e-2, schedule="linear")


def make_learner(config: TrainConfig = CONFIG, **model: Any) -> Learner:
    return Learner(tiny_config(**model), config, CPU, Processes())


def sentences(count: int, longest: int = 9) -> list[tuple[Tensor, Tensor]]:
    return [
        (
            torch.randint(3, 23, (int(torch.randint(1, longest, ())),)),
            torch.randint(3, 23, (int(torch.randint(1, longest, ())),)),
        )
        for _ in range(count)
    ]


def batch_of(pairs: list[tuple[Tensor, Tensor]]) -> Batch:
    return collate([src.numpy() for src, _ in pairs], [tgt.numpy() for _, tgt in pairs])


def gradient_of(batches: list[Batch], **model: Any) -> dict[str, Tensor]:
    """Return the gradient of an update; it does not depend on the learning rate."""
    learner = make_learner(**model)
    learner.update(list(enumerate(batches)), Totals(CPU))
    return {name: p.grad.clone() for name, p in learner.model.named_parameters() if p.grad is not None}


def largest_difference(one: dict[str, Tensor], other: dict[str, Tensor]) -> float:
    assert one.keys() == other.keys()
    return max(float((one[name] - other[name]).abs().max()) for name in one)


@pytest.mark.parametrize("system", SYSTEMS)
def test_the_gradient_does_not_depend_on_how_an_update_is_cut(system: str) -> None:
    """k batches give the gradient of one; so do other neighbours, another order, and more padding."""
    pairs = sentences(24)
    whole = gradient_of([batch_of(pairs)], **SYSTEMS[system])
    assert max(float(gradient.abs().max()) for gradient in whole.values()) > 1e-3
    for size in (1, 5, 8):
        parts = [batch_of(pairs[start : start + size]) for start in range(0, 24, size)]
        assert largest_difference(gradient_of(parts, **SYSTEMS[system]), whole) < 1e-12
    shuffled = [pairs[n] for n in torch.randperm(24).tolist()]
    assert (
        largest_difference(gradient_of([batch_of(shuffled[:7]), batch_of(shuffled[7:])], **SYSTEMS[system]), whole) < 1e-12
    )
    plain = batch_of(pairs)
    padded = Batch(*(torch.nn.functional.pad(ids, (0, 5)) for ids in (plain.src, plain.tgt_in, plain.tgt_out)))
    assert largest_difference(gradient_of([padded], **SYSTEMS[system]), whole) < 1e-12


def test_the_mean_is_over_tokens_not_over_batches() -> None:
    """Batches of 1 and 20 tokens must not have equal weight, a common mistake."""
    short, long = batch_of([(torch.tensor([5]), torch.tensor([], dtype=torch.long))]), batch_of(sentences(8))
    by_batches = [gradient_of([short]), gradient_of([long])]
    together = gradient_of([short, long])
    tokens = torch.tensor([short.num_tokens, long.num_tokens], dtype=torch.float64)
    share = tokens / tokens.sum()
    for name, gradient in together.items():
        expected = share[0] * by_batches[0][name] + share[1] * by_batches[1][name]
        torch.testing.assert_close(gradient, expected, atol=1e-12, rtol=0)


def test_adam_against_torch_by_hand() -> None:
    """Compare two updates with a plain loop: same loss, torch's own unfused Adam, the schedule's learning rates."""
    batches = [batch_of(sentences(6)) for _ in range(2)]
    learner = make_learner()
    plain = make_learner()
    adam = torch.optim.Adam(plain.model.parameters(), betas=(0.9, 0.98), eps=1e-9)
    totals = Totals(CPU)
    losses = []
    for step, batch in enumerate(batches, start=1):
        learner.update([(0, batch)], totals)
        adam.param_groups[0]["lr"] = 1e-2 * step / 4
        adam.zero_grad()
        logits = plain.model(batch.src, batch.tgt_in).flatten(0, 1)
        loss = torch.nn.functional.cross_entropy(
            logits, batch.tgt_out.flatten(), ignore_index=0, label_smoothing=0.1, reduction="sum"
        )
        losses.append(loss.item())
        (loss / batch.num_tokens).backward()
        adam.step()
    for ours, theirs in zip(learner.model.parameters(), plain.model.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-10, rtol=0)
    line = line_of(totals.to_list())
    assert line["tokens"] == sum(batch.num_tokens for batch in batches)
    assert line["loss"] == pytest.approx(sum(losses) / line["tokens"], rel=1e-12)


def test_clipping() -> None:
    batch = batch_of(sentences(6))
    free = gradient_of([batch])
    norm = math.sqrt(sum(float(gradient.square().sum()) for gradient in free.values()))
    learner = make_learner(replace(CONFIG, clip_norm=norm / 3))
    totals = Totals(CPU)
    learner.update([(0, batch)], totals)
    for name, parameter in learner.model.named_parameters():
        assert parameter.grad is not None
        torch.testing.assert_close(parameter.grad, free[name] / 3, atol=1e-6, rtol=1e-4)
    assert line_of(totals.to_list())["gradient_norm"] == pytest.approx(norm, rel=1e-9)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_what_is_not_finite_changes_nothing(bad: float) -> None:
    """Weights and moments stay; the next update continues as if it had not been."""
    batches = [batch_of(sentences(4)) for _ in range(3)]
    learner, untroubled = make_learner(), make_learner()
    totals = Totals(CPU)
    learner.update([(0, batches[0])], totals)
    untroubled.update([(0, batches[0])], Totals(CPU))
    weights, moments = learner.weights(), learner.optimizer_state()
    before = [{name: tensor.clone() for name, tensor in tensors.items()} for tensors in (weights, moments)]
    hook = learner.model.output_weight.register_hook(lambda gradient: gradient * bad)
    learner.update([(0, batches[1])], totals)
    hook.remove()
    for old, new in zip(before, (learner.weights(), learner.optimizer_state()), strict=True):
        for name, tensor in old.items():
            assert torch.equal(tensor, new[name]), name
    line = line_of(totals.to_list())
    first = Totals(CPU)
    make_learner().update([(0, batches[0])], first)
    assert line["skipped"] == 1 and line["tokens"] == batches[0].num_tokens
    assert line["loss"] == line_of(first.to_list())["loss"]
    untroubled.step = learner.step
    for one in (learner, untroubled):
        one.update([(0, batches[2])], totals)
    for ours, theirs in zip(learner.model.parameters(), untroubled.model.parameters(), strict=True):
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize("system", SYSTEMS)
@pytest.mark.parametrize(("precision", "r_drop"), [("float32", 0.0), ("float64", 0.0), ("float32", 2.0), ("bfloat16", 2.0)])
def test_saved_and_restored_it_goes_on_bit_for_bit(precision: Any, r_drop: float, system: str) -> None:
    """With dropout, another learner, which has seen other batches, continues from the state."""
    config = replace(CONFIG, precision=precision, r_drop=r_drop)
    batches = [batch_of(sentences(5)) for _ in range(6)]
    dropout = {"dropout": 0.3, "attention_dropout": 0.2, **SYSTEMS[system]}
    whole = make_learner(config, **dropout)
    for batch in batches[:3]:
        whole.update([(0, batch)], Totals(CPU))
    weights = {name: tensor.clone() for name, tensor in whole.weights().items()}
    moments = {name: tensor.clone() for name, tensor in whole.optimizer_state().items()}
    for batch in batches[3:]:
        whole.update([(0, batch)], Totals(CPU))
    continued = make_learner(replace(config, seed=config.seed), **dropout)
    continued.update([(0, batches[5])], Totals(CPU))
    torch.rand(17)  # another consumer of random numbers
    continued.restore(weights, moments, 3)
    for batch in batches[3:]:
        continued.update([(0, batch)], Totals(CPU))
    for name, tensor in whole.weights().items():
        assert torch.equal(tensor, continued.weights()[name]), name
    for name, tensor in whole.optimizer_state().items():
        assert torch.equal(tensor, continued.optimizer_state()[name]), name


@pytest.mark.parametrize("optimizer", ["adam", "muon"])
def test_bfloat16_follows_float32_on_a_cpu(optimizer: Any) -> None:
    """Compare forty losses; eight bits of mantissa give an error of a few thousandths in a loss of three."""
    batches = [batch_of(sentences(8)) for _ in range(4)]
    losses: dict[str, list[float]] = {}
    for precision in ("float32", "bfloat16"):
        config = replace(CONFIG, precision=precision, optimizer=optimizer, warmup=10, learning_rate=2e-3)
        learner, totals = make_learner(config), Totals(CPU)
        for step in range(40):
            totals.clear()
            learner.update([(0, batches[step % 4])], totals)
            losses.setdefault(precision, []).append(line_of(totals.to_list())["loss"])
    assert losses["float32"][-1] < losses["float32"][0] - 0.2
    assert losses["bfloat16"] == pytest.approx(losses["float32"], abs=0.02)
    assert losses["bfloat16"] != losses["float32"]


@pytest.mark.parametrize("system", SYSTEMS)
def test_r_drop_adds_what_two_passes_disagree_on(system: str) -> None:
    """Without dropout it adds nothing. With dropout it adds α/2 times the mean divergence, in proportion to α."""
    batch = batch_of(sentences(6))

    def line(r_drop: float, dropout: float) -> dict[str, Any]:
        learner = make_learner(replace(CONFIG, r_drop=r_drop), dropout=dropout, **SYSTEMS[system])
        totals = Totals(CPU)
        learner.update([(0, batch)], totals)
        return line_of(totals.to_list())

    alike, once = line(3.0, 0.0), line(0.0, 0.0)
    assert all(alike[name] == pytest.approx(once[name], rel=1e-9) for name in ("loss", "tokens", "gradient_norm"))
    none, some, more = (line(r_drop, 0.3) for r_drop in (1e-9, 1.0, 4.0))
    assert some["loss"] > none["loss"] + 1e-4
    assert more["loss"] - none["loss"] == pytest.approx(4 * (some["loss"] - none["loss"]), rel=1e-5)
    assert some["tokens"] == none["tokens"] == batch.num_tokens


def test_seeds_reproduce_and_differ() -> None:
    batch = batch_of(sentences(5))

    def after(seed: int) -> Tensor:
        learner = make_learner(replace(CONFIG, seed=seed), dropout=0.3)
        learner.update([(0, batch)], Totals(CPU))
        return learner.model.output_weight.detach()

    assert torch.equal(after(1), after(1))
    assert not torch.equal(after(1), after(2))


def test_too_little_memory_is_a_sentence_with_advice() -> None:
    with pytest.raises(ValueError, match="a batch does not fit into memory; try less"), advice_on_memory("try less"):
        torch.empty(2**58)
    with pytest.raises(RuntimeError, match="must match"), advice_on_memory("try less"):
        torch.ones(2) + torch.ones(3)
