"""Tests of the steps of a search state against `beam` and `greedy`, over random tables."""

import random

import pytest
import torch

from regard.fast.decoding.beam_state import BeamState, GreedyState, SearchState
from regard.search.beam import beam
from regard.search.greedy import greedy
from regard.search.hypothesis import Hypothesis, forced_tokens
from tests.oracles.table_model import TableCache, TableModel, random_table

BOS, EOS = 0, 1
NUM_STEPS = 12
CPU = torch.device("cpu")


def searched(
    state: SearchState, model: TableModel, limits: list[int], prefixes: list[list[int]], alpha: float
) -> tuple[list[list[Hypothesis]], list[int]]:
    """Return the hypotheses and the number of steps; stepping goes on after the end."""
    width = state.ids.shape[1]
    forced = torch.full((len(limits), NUM_STEPS + 1), EOS)
    table = forced_tokens(prefixes, limits, eos_id=EOS)
    forced[:, : table.shape[1]] = table
    state.begin(alpha)
    state.fill(torch.arange(len(limits)), torch.tensor(limits), forced)
    cache = TableCache([[()] * width for _ in limits])
    for _ in range(NUM_STEPS + 3):
        parents = state.advance(model.step(state.ids.flatten(), cache))
        if parents is not None:
            cache.select(parents)
    assert state.is_done.all()
    rows = zip(state.notes, state.steps.tolist(), strict=True)
    return [state.read(notes[:num_steps].tolist(), alpha) for notes, num_steps in rows], state.steps.tolist()


def test_steps_of_a_search_state_are_those_of_beam_search_and_end_with_them() -> None:
    """With limits and prefixes per sentence, at many widths and penalties, hypotheses and numbers of steps are equal."""
    chance = random.Random(1)
    for seed in range(60):
        num_sentences = chance.randint(1, 6)
        model = TableModel(random_table(seed, 6, sharpness=chance.choice([0.5, 1.5, 3.0])), num_sentences)
        limits = [chance.randint(0, 9) for _ in range(num_sentences)]
        prefixes = [[chance.randint(2, 5) for _ in range(chance.randint(0, min(3, n)))] for n in limits]
        width, alpha = chance.randint(2, 7), chance.choice([0.0, 0.6, 1.0, 3.0, -1.0])
        num_best = chance.randint(1, min(3, width))
        state = BeamState.empty(
            num_places=num_sentences,
            width=width,
            num_steps=NUM_STEPS,
            num_best=num_best,
            bos_id=BOS,
            eos_id=EOS,
            device=CPU,
        )
        expected = beam(
            model.step,
            model.start(),
            limits,
            width=width,
            bos_id=BOS,
            eos_id=EOS,
            alpha=alpha,
            num_best=num_best,
            prefixes=prefixes,
            keep_steps=True,
        )
        found, num_steps = searched(state, model, limits, prefixes, alpha)
        assert num_steps == [len(result.steps) for result in expected]
        for ours, theirs in zip(found, expected, strict=True):
            assert [one.ids for one in ours] == [one.ids for one in theirs.hypotheses]
            assert [one.score for one in ours] == pytest.approx([one.score for one in theirs.hypotheses], abs=1e-12)


def test_steps_of_a_search_state_are_those_of_greedy_search() -> None:
    chance = random.Random(2)
    for seed in range(20):
        model = TableModel(random_table(seed, 5), 4)
        limits = [chance.randint(0, 9) for _ in range(4)]
        prefixes = [[chance.randint(2, 4) for _ in range(chance.randint(0, min(2, n)))] for n in limits]
        state = GreedyState.empty(num_places=4, num_steps=NUM_STEPS, bos_id=BOS, eos_id=EOS, device=CPU)
        found, _ = searched(state, model, limits, prefixes, 0.6)
        expected = greedy(model.step, model.start(), limits, bos_id=BOS, eos_id=EOS, prefixes=prefixes, alpha=0.6)
        assert [ones[0].ids for ones in found] == [one.ids for one in expected]
        assert [ones[0].score for ones in found] == pytest.approx([one.score for one in expected], abs=1e-12)
