"""Tests of Muon against singular value decomposition, against torch's own, and within both learners."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from regard.data.batch import Batch
from regard.model.kinds import build
from regard.train.learner import Learner
from regard.train.muon import maps_of, muon_, orthogonal
from regard.train.totals import Totals
from tests.conftest import SYSTEMS, tiny_config
from tests.unit.test_learner import CONFIG, CPU, batch_of, make_learner, sentences

MUON = replace(CONFIG, optimizer="muon")
NO = torch.zeros(())


@pytest.mark.parametrize("shape", [(16, 16), (12, 40), (40, 12), (1, 9)])
def test_directions_stay_and_all_count_about_as_much(shape: tuple[int, int]) -> None:
    """Singular vectors stay, and all singular values become nearly 1."""
    size = min(shape)
    left, right = (torch.linalg.qr(torch.randn(3, side, size, dtype=torch.float64)).Q for side in shape)
    values = torch.logspace(0, -2, size, dtype=torch.float64)
    found = left.mT @ orthogonal(left * values @ right.mT, torch.float64) @ right
    strengths = found.diagonal(dim1=1, dim2=2)
    assert ((strengths > 0.65) & (strengths < 1.25)).all(), strengths
    torch.testing.assert_close(found, strengths.diag_embed(), atol=1e-9, rtol=0)


def test_neither_size_nor_neighbours_matter() -> None:
    x = torch.randn(4, 8, 6, dtype=torch.float64)
    plain = orthogonal(x, torch.float64)
    torch.testing.assert_close(orthogonal(1e-9 * x, torch.float64), plain, atol=1e-9, rtol=0)
    torch.testing.assert_close(orthogonal(x[2:3], torch.float64), plain[2:3], atol=1e-12, rtol=0)
    assert (orthogonal(torch.zeros(2, 3, 3), torch.float32) == 0).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", [(24, 24), (16, 48), (48, 16)])
def test_against_torchs_own(shape: tuple[int, int], dtype: torch.dtype) -> None:
    """torch computes its matrix products in bfloat16."""
    ours, means = torch.randn(2, *shape), torch.zeros(2, *shape)
    theirs = [torch.nn.Parameter(one.clone()) for one in ours]
    begin = ours.clone()
    optimizer = torch.optim.Muon(theirs, lr=0.02, weight_decay=0.0, adjust_lr_fn="match_rms_adamw")
    for _ in range(4):
        grads = torch.randn(2, *shape)
        muon_(ours, grads, means, rate=torch.tensor(0.02), skipped=NO, dtype=dtype)
        for parameter, grad in zip(theirs, grads, strict=True):
            parameter.grad = grad
        optimizer.step()
    moved = torch.stack([one.detach() for one in theirs]) - begin
    assert float((ours - begin - moved).norm() / moved.norm()) < 0.02
    assert float(moved.square().mean().sqrt()) > 0.005


def test_what_is_skipped_changes_neither_values_nor_means() -> None:
    values, means = torch.randn(2, 2, 8, 8)
    before = values.clone(), means.clone()
    bad = torch.full((2, 8, 8), torch.nan)
    muon_(values, bad, means, rate=torch.tensor(0.1), skipped=torch.ones(()), dtype=torch.float32)
    assert torch.equal(values, before[0]) and torch.equal(means, before[1])


def test_linear_maps_are_moved_and_nothing_else() -> None:
    model = build(tiny_config())
    maps = maps_of(model)
    for name, weight in model.named_parameters():
        is_map = weight.ndim == 2 and not name.startswith("embeddings")
        assert (name in maps) == is_map, name
        if is_map:
            is_inner, is_outer = "inner" in name, "outer" in name
            assert maps[name] == ((32, 16) if is_inner else (16, 32) if is_outer else (16, 16)), name
    language = build(tiny_config(kind="language", shared_embeddings="none", num_heads=2))
    assert maps_of(language) and "lm_head.weight" not in maps_of(language)
    assert set(maps_of(build(tiny_config(kind="rnn")))) == {"bridge.weight", "readout.weight"}


def test_stacked_maps_move_as_they_would_one_by_one() -> None:
    """Queries, keys and values are separate matrices, though they are one parameter."""
    learner, batch = make_learner(MUON), batch_of(sentences(6))
    name = "decoder.0.self_attention.query_key_value.weight"
    before = learner.weights()[name].clone()
    learner.update([(0, batch)], Totals(CPU))
    parameter = dict(learner.model.named_parameters())[name]
    assert parameter.grad is not None
    for part, grad, now in zip(before.chunk(3), parameter.grad.chunk(3), parameter.chunk(3), strict=True):
        alone = part.clone()[None]
        muon_(
            alone,
            grad[None],
            torch.zeros_like(alone),
            rate=torch.tensor(learner.learning_rate),
            skipped=NO,
            dtype=torch.float64,
        )
        torch.testing.assert_close(now[None], alone, atol=1e-9, rtol=0)


@pytest.mark.parametrize("system", SYSTEMS)
def test_saved_and_restored_it_goes_on_bit_for_bit(system: str) -> None:
    batches = [batch_of(sentences(5)) for _ in range(4)]
    model = {"dropout": 0.3, **SYSTEMS[system]}
    whole, continued = make_learner(MUON, **model), make_learner(MUON, **model)
    learn(whole, batches[:2])
    weights, means = ({name: tensor.clone() for name, tensor in part.items()} for part in state(whole))
    learn(whole, batches[2:])
    learn(continued, batches[3:])
    continued.restore(weights, means, 2)
    learn(continued, batches[2:])
    for one, other in zip(state(whole), state(continued), strict=True):
        assert one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)
    assert any(name.startswith("mean.") for name in means)


def test_what_is_not_finite_changes_nothing() -> None:
    learner, batch = make_learner(MUON), batch_of(sentences(4))
    learn(learner, [batch])
    before = [{name: tensor.clone() for name, tensor in part.items()} for part in state(learner)]
    hook = learner.model.output_weight.register_hook(lambda gradient: gradient * torch.nan)
    learn(learner, [batch])
    hook.remove()
    for old, new in zip(before, state(learner), strict=True):
        assert all(torch.equal(tensor, new[name]) for name, tensor in old.items())


def learn(learner: Learner, batches: Sequence[Batch]) -> None:
    for batch in batches:
        learner.update([(0, batch)], Totals(CPU))


def state(learner: Learner) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    return learner.weights(), learner.optimizer_state()
