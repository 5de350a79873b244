"""Tests of sampling against the intended probabilities, and of ensembles against the mean of their members."""

import math

import pytest
import torch

from regard.search.beam import beam
from regard.search.ensemble import Caches, ensemble
from regard.search.sample import MOST_TEMPERATURE, Sampling, allowed, drawn, sample
from tests.oracles.table_model import TableCache, TableModel, random_table

BOS, EOS = 0, 1


def test_what_is_drawn_comes_as_often_as_it_is_probable() -> None:
    probabilities = torch.tensor([0.5, 0.2, 0.3])
    evenly = (torch.arange(1000) + 0.5) / 1000
    tokens = drawn(probabilities.log().expand(1, 1000, 3), evenly[None], Sampling())[0]
    assert tokens.bincount().tolist() == [500, 200, 300]


def test_temperature_sharpens_and_flattens() -> None:
    probabilities = torch.tensor([0.64, 0.36])
    evenly = (torch.arange(1000) + 0.5) / 1000
    for temperature, expected in ((0.5, 0.64**2 / (0.64**2 + 0.36**2)), (2.0, 0.8 / (0.8 + 0.6))):
        tokens = drawn(probabilities.log().expand(1, 1000, 2), evenly[None], Sampling(temperature=temperature))[0]
        assert abs(int((tokens == 0).sum()) - 1000 * expected) <= 1


@pytest.mark.parametrize(
    ("sampling", "expected"),
    [
        (Sampling(top_k=2), [True, True, False, False]),
        (Sampling(top_p=0.5), [True, False, False, False]),  # the first has 0.5 already
        (Sampling(top_p=0.51), [True, True, False, False]),
        (Sampling(top_p=0.9, top_k=1), [True, False, False, False]),
        (Sampling(top_p=1e-9), [True, False, False, False]),
        (Sampling(), [True, True, True, True]),
    ],
)
def test_only_the_more_probable_may_be_drawn(sampling: Sampling, expected: list[bool]) -> None:
    probabilities = torch.tensor([[[0.5, 0.25, 0.15, 0.1]]], dtype=torch.float64)
    assert allowed(probabilities, sampling)[0, 0].tolist() == expected


def test_the_largest_draw_still_finds_a_token_that_may_be_drawn() -> None:
    log_probs = torch.tensor([[[0.7, 0.3, 0.0]]]).log()
    assert drawn(log_probs, torch.tensor([[1.0]]), Sampling()).item() == 1
    assert drawn(log_probs, torch.tensor([[1.0]]), Sampling(top_k=1)).item() == 0


def test_a_tiny_temperature_is_greedy() -> None:
    log_probs = torch.tensor([[[0.3, 0.4, 0.3]]]).log()
    assert drawn(log_probs, torch.tensor([[0.999]]), Sampling(temperature=1 / MOST_TEMPERATURE)).item() == 1


def test_samples_are_as_probable_as_the_model_says() -> None:
    """Compare the share of each whole sequence among 4,000 with its probability: within five standard deviations."""
    model, count = TableModel(random_table(5, 4, sharpness=1.0)), 4000
    torch.manual_seed(0)
    [found] = sample(model.step, model.start(), [2], torch.rand(1, count, 3), sampling=Sampling(), bos_id=BOS, eos_id=EOS)
    drawn_ids = [hypothesis.ids for hypothesis in found]
    for ids in set(drawn_ids):
        # After two tokens EOS is forced: the tokens before it decide.
        probability = math.exp(model.log_prob(0, BOS, ids if len(ids) == 2 else [*ids, EOS]))
        assert abs(drawn_ids.count(ids) - count * probability) <= 5 * math.sqrt(count * probability)
    for hypothesis in found[:50]:
        assert hypothesis.log_prob == pytest.approx(model.log_prob(0, BOS, [*hypothesis.ids, EOS]))


def test_a_sentences_samples_depend_on_its_own_draws_alone() -> None:
    table = random_table(7, 6, sharpness=1.0)
    draws = torch.rand(4, 3, 9, generator=torch.Generator().manual_seed(1))
    limits = [8, 3, 5, 8]
    together = sample(
        TableModel(table, 4).step,
        TableModel(table, 4).start(),
        limits,
        draws,
        sampling=Sampling(top_p=0.9),
        bos_id=BOS,
        eos_id=EOS,
    )
    for number in range(4):
        alone = TableModel(lambda _, prefix, number=number: table(number, prefix))  # type: ignore[misc]
        [expected] = sample(
            alone.step,
            alone.start(),
            limits[number : number + 1],
            draws[number : number + 1],
            sampling=Sampling(top_p=0.9),
            bos_id=BOS,
            eos_id=EOS,
        )
        assert together[number] == expected


@pytest.mark.parametrize(
    ("settings", "what"),
    [({"temperature": value}, "temperature is .* between 1e-30 and") for value in (0.0, 1e-46, 1e39, math.nan)]
    + [({"top_k": -1}, "top-k"), ({"top_p": 0.0}, "top-p"), ({"top_p": 1.1}, "top-p")],
)
def test_impossible_settings_are_refused(settings: dict[str, float], what: str) -> None:
    with pytest.raises(ValueError, match=what):
        Sampling(**settings)  # type: ignore[arg-type]


def test_an_ensemble_has_the_mean_of_its_members_probabilities() -> None:
    """Two models searched together find the same as one whose table is their mean."""
    one, other = random_table(1, 6), random_table(2, 6)
    mean = TableModel(lambda n, prefix: [(p + q) / 2 for p, q in zip(one(n, prefix), other(n, prefix), strict=True)], 3)
    members = [TableModel(one, 3), TableModel(other, 3)]
    caches = Caches(tuple(member.start() for member in members))
    step = ensemble([member.step for member in members])
    found = beam(step, caches, [6, 2, 4], width=3, bos_id=BOS, eos_id=EOS, num_best=2)
    expected = beam(mean.step, mean.start(), [6, 2, 4], width=3, bos_id=BOS, eos_id=EOS, num_best=2)
    for ours, theirs in zip(found, expected, strict=True):
        assert [hypothesis.ids for hypothesis in ours.hypotheses] == [hypothesis.ids for hypothesis in theirs.hypotheses]
        for a, b in zip(ours.hypotheses, theirs.hypotheses, strict=True):
            assert a.log_probs == pytest.approx(b.log_probs)
    assert isinstance(caches.members[0], TableCache)
