"""Tests of beam search against tables worked by hand, brute force, and a plain search that never stops early."""

import itertools
import math
import random
from collections.abc import Sequence

import pytest
import torch

from regard.search.beam import beam
from regard.search.greedy import greedy
from regard.search.hypothesis import length_penalty, without
from tests.conftest import make_model
from tests.oracles.table_model import Prefix, TableModel, random_table

BOS, EOS = 0, 1  # in these tables, 2 and above are words


def score(model: TableModel, sentence: int, ids: Sequence[int], alpha: float) -> float:
    return model.log_prob(sentence, BOS, [*ids, EOS]) / length_penalty(len(ids) + 1, alpha)


def every_sequence(words: Sequence[int], max_length: int) -> list[tuple[int, ...]]:
    return [ids for length in range(max_length + 1) for ids in itertools.product(words, repeat=length)]


def test_the_length_penalty_is_gnmts() -> None:
    assert length_penalty(1, 0.6) == 1.0
    assert length_penalty(7, 0.6) == pytest.approx((12 / 6) ** 0.6)
    assert length_penalty(7, 0.0) == 1.0


def hand_table(_: int, prefix: Prefix) -> list[float]:
    """Greedy search takes word 2 (0.5), then 2 again (0.4), and ends; the best hypothesis is word 3, end: 0.4 · 0.9."""
    return {
        (0,): [0.0, 0.1, 0.5, 0.4],
        (0, 2): [0.0, 0.3, 0.4, 0.3],
        (0, 3): [0.0, 0.9, 0.05, 0.05],
        (0, 2, 2): [0.0, 0.8, 0.1, 0.1],
    }.get(prefix, [0.0, 1.0, 0.0, 0.0])


def test_a_table_worked_by_hand() -> None:
    model = TableModel(hand_table)
    [best] = greedy(model.step, model.start(), [5], bos_id=BOS, eos_id=EOS)
    assert best.ids == (2, 2)
    assert best.log_probs == pytest.approx([math.log(0.5), math.log(0.4), math.log(0.8)])
    [found] = beam(model.step, model.start(), [5], width=2, bos_id=BOS, eos_id=EOS, alpha=0.0, num_best=2, keep_steps=True)
    # Step 1: the best two of {2: 0.5, 3: 0.4, end: 0.1} are words.
    # Step 2: of {3 end: 0.36, 2 2: 0.2, 2 end: 0.15, 2 3: 0.15}, "3" ends, and "2 2" and the unfinished "2 3" stay.
    # Step 3: {2 2 end: 0.16, 2 3 end: 0.15}.
    assert [hypothesis.ids for hypothesis in found.hypotheses] == [(3,), (2, 2)]
    assert [hypothesis.log_prob for hypothesis in found.hypotheses] == pytest.approx([math.log(0.36), math.log(0.16)])
    assert [
        [(candidate.parent, candidate.token, candidate.fate) for candidate in step if candidate.fate != "pruned"]
        for step in found.steps[:2]
    ] == [[(0, 2, "kept"), (0, 3, "kept")], [(1, 1, "finished"), (0, 2, "kept"), (0, 3, "kept")]]
    assert found.steps[1][0].total == pytest.approx(math.log(0.36))


def test_the_search_stops_once_nothing_can_be_better() -> None:
    """With α = 0 and "3, end" at 0.36, the best beam has 0.2 after step 2, so that there is no third step."""
    model = TableModel(hand_table)
    [found] = beam(model.step, model.start(), [5], width=2, bos_id=BOS, eos_id=EOS, alpha=0.0, keep_steps=True)
    assert [hypothesis.ids for hypothesis in found.hypotheses] == [(3,)]
    assert len(found.steps) == 2


def test_a_length_penalty_can_turn_the_order_round() -> None:
    """Compare 0.36 at length 2 with 0.16 at length 3: log 0.36 / (7/6)^α = log 0.16 / (8/6)^α at α = log(log 0.16 / log
    0.36) / log(8/7) = 4.4."""
    model = TableModel(hand_table)
    for alpha, best in ((4.0, (3,)), (5.0, (2, 2))):
        [found] = beam(model.step, model.start(), [5], width=2, bos_id=BOS, eos_id=EOS, alpha=alpha, num_best=1)
        assert found.hypotheses[0].ids == best


def test_an_end_that_is_not_among_the_best_finishes_nothing() -> None:
    """A beam of 1 never takes EOS at 0.4 beside a word at 0.6, though the finished hypothesis would have the best score."""

    def table(_: int, prefix: Prefix) -> list[float]:
        return [0.0, 0.4, 0.6] if len(prefix) == 1 else [0.0, 0.1, 0.9] if len(prefix) < 4 else [0.0, 1.0, 0.0]

    model = TableModel(table)
    [narrow] = beam(model.step, model.start(), [9], width=1, bos_id=BOS, eos_id=EOS, alpha=0.0, keep_steps=True)
    assert narrow.hypotheses[0].ids == (2, 2, 2)
    assert all(candidate.fate != "finished" for step in narrow.steps[:-1] for candidate in step)


def test_after_the_longest_length_a_hypothesis_has_to_end() -> None:
    model = TableModel(lambda *_: [0.0, 0.01, 0.99])
    for length in (1, 3):
        [found] = beam(model.step, model.start(), [length], width=1, bos_id=BOS, eos_id=EOS)
        assert found.hypotheses[0].ids == (2,) * length
        assert found.hypotheses[0].log_probs[-1] == pytest.approx(math.log(0.01))


def test_with_room_for_everything_it_finds_the_best_there_is() -> None:
    """Find the best sequences of a thousand random models in order, against all sequences up to their length."""
    chance = random.Random(1)
    for seed in range(1000):
        vocab_size, max_length = chance.choice([(5, 3), (4, 3), (3, 5)])
        model, alpha = TableModel(random_table(seed, vocab_size)), chance.choice([0.0, 0.6, 1.0, 2.0, -0.5])
        words = [token for token in range(vocab_size) if token != EOS]  # BOS is a word for this search
        ranked = sorted(every_sequence(words, max_length), key=lambda ids: -score(model, 0, ids, alpha))
        width = len(ranked)
        [found] = beam(model.step, model.start(), [max_length], width=width, bos_id=BOS, eos_id=EOS, alpha=alpha, num_best=3)
        assert [hypothesis.ids for hypothesis in found.hypotheses] == ranked[:3]
        for hypothesis in found.hypotheses:
            assert hypothesis.score == pytest.approx(score(model, 0, hypothesis.ids, alpha))


def plain_beam(
    model: TableModel, sentence: int, max_length: int, *, width: int, alpha: float, prefix: Sequence[int]
) -> list[tuple[int, ...]]:
    """Search by the same rules with one hypothesis at a time in Python lists, and without early stop."""
    beams: list[tuple[tuple[int, ...], float]] = [((BOS,), 0.0)]
    finished: list[tuple[int, ...]] = []
    for length in range(max_length + 1):
        proposals: list[tuple[tuple[int, ...], float]] = []
        for ids, total in beams:
            probabilities = model.table(sentence, ids)
            allowed = (
                [prefix[length]] if length < len(prefix) else [EOS] if length == max_length else range(len(probabilities))
            )
            proposals += [((*ids, token), total + math.log(probabilities[token])) for token in allowed]
        proposals.sort(key=lambda proposal: -proposal[1])
        finished += [ids for ids, _ in proposals[:width] if ids[-1] == EOS]
        beams = [proposal for proposal in proposals if proposal[0][-1] != EOS][:width]
        if len(finished) >= width:
            break
    return sorted((ids[1:-1] for ids in finished), key=lambda ids: -score(model, sentence, ids, alpha))


@pytest.mark.parametrize("num_best", [1, 2])
def test_stopping_early_changes_nothing_and_neighbours_do_not_matter(num_best: int) -> None:
    """Search batches of random models with their own limits and prefixes, at many widths and penalties."""
    chance = random.Random(num_best)
    for seed in range(60):
        num_sentences = chance.randint(1, 6)
        model = TableModel(random_table(seed, 6, sharpness=chance.choice([0.5, 1.5, 3.0])), num_sentences)
        max_lengths = [chance.randint(1, 9) for _ in range(num_sentences)]
        prefixes = [[chance.randint(2, 5) for _ in range(chance.randint(0, min(3, n)))] for n in max_lengths]
        width, alpha = chance.randint(num_best, 7), chance.choice([0.0, 0.6, 1.0, 3.0, -1.0])
        found = beam(
            model.step,
            model.start(),
            max_lengths,
            width=width,
            bos_id=BOS,
            eos_id=EOS,
            alpha=alpha,
            num_best=num_best,
            prefixes=prefixes,
        )
        for sentence, result in enumerate(found):
            expected = plain_beam(
                model, sentence, max_lengths[sentence], width=width, alpha=alpha, prefix=prefixes[sentence]
            )
            assert [hypothesis.ids for hypothesis in result.hypotheses] == expected[:num_best]


@pytest.mark.parametrize("alpha", [0.0, 0.6, 2.0])
def test_a_beam_of_one_is_greedy(alpha: float) -> None:
    model = make_model()
    src = torch.randint(3, 23, (30, 6))
    max_lengths = torch.randint(1, 40, (30,)).tolist()
    found = beam(model.step, model.start(src), max_lengths, width=1, bos_id=1, eos_id=2, alpha=alpha)
    expected = greedy(model.step, model.start(src), max_lengths, bos_id=1, eos_id=2, alpha=alpha)
    assert [result.hypotheses for result in found] == [(hypothesis,) for hypothesis in expected]


def test_kept_candidates_lead_to_what_was_found() -> None:
    """The parents of each finished candidate spell a hypothesis."""
    model = TableModel(random_table(3, 6, sharpness=1.0))
    [found] = beam(model.step, model.start(), [6], width=4, bos_id=BOS, eos_id=EOS, num_best=4, keep_steps=True)
    beams: list[tuple[int, ...]] = [()]
    finished = set()
    for step in found.steps:
        assert [candidate.total for candidate in step] == sorted((candidate.total for candidate in step), reverse=True)
        finished |= {beams[candidate.parent] for candidate in step if candidate.fate == "finished"}
        beams = [(*beams[candidate.parent], candidate.token) for candidate in step if candidate.fate == "kept"]
    assert {hypothesis.ids for hypothesis in found.hypotheses} <= finished


def test_ties_and_forced_ends_leave_steps_that_can_be_followed() -> None:
    """With many proposals of equal probability, the candidates in their order are still the beams of the next step."""
    for seed in range(50):
        chance = random.Random(seed)
        tables: dict[Prefix, list[float]] = {}

        def table(
            _: int, prefix: Prefix, tables: dict[Prefix, list[float]] = tables, chance: random.Random = chance
        ) -> list[float]:
            return tables.setdefault(prefix, chance.choice([[0.0, 0.25, 0.25, 0.25, 0.25], [0.0, 0.1, 0.3, 0.3, 0.3]]))

        model = TableModel(table)
        [found] = beam(model.step, model.start(), [4], width=3, bos_id=BOS, eos_id=EOS, num_best=3, keep_steps=True)
        beams: list[tuple[int, ...]] = [()]
        finished = set()
        for step in found.steps:
            assert all((candidate.token == EOS) <= (candidate.fate != "kept") for candidate in step)
            for candidate in step:
                ids = (*beams[candidate.parent], candidate.token)
                assert candidate.total == pytest.approx(model.log_prob(0, BOS, ids))
            finished |= {beams[candidate.parent] for candidate in step if candidate.fate == "finished"}
            beams = [(*beams[candidate.parent], candidate.token) for candidate in step if candidate.fate == "kept"]
        assert {hypothesis.ids for hypothesis in found.hypotheses} <= finished


def test_those_that_stay_keep_their_places_where_they_can() -> None:
    assert without([False, True, False, False, True]) == [0, 3, 2]
    assert without([True, True]) == []
    assert without([False, False]) == [0, 1]
    assert sorted(without([True, False, True, False, False])) == [1, 3, 4]
