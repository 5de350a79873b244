"""Tests of the learning rate against the paper's formula and against arithmetic by hand."""

import math

import pytest

from regard.train.schedule import learning_rate, paper_peak


@pytest.mark.parametrize("step", [1, 2, 3999, 4000, 4001, 100_000])
def test_the_papers_equation_3(step: int) -> None:
    """Check claim T4: d_model^-½ · min(step^-½, step · warmup^-1½)."""
    expected = 512**-0.5 * min(step**-0.5, step * 4000**-1.5)
    found = learning_rate(step, schedule="inverse_sqrt", peak=paper_peak(512, 4000), warmup=4000, steps=0)
    assert found == pytest.approx(expected, rel=1e-12)


def test_linear_and_cosine_by_hand() -> None:
    """Warm up to step 2, then fall for four steps; the fifth would be 0."""
    linear = [learning_rate(step, schedule="linear", peak=8.0, warmup=2, steps=5) for step in range(1, 8)]
    assert linear == pytest.approx([4.0, 8.0, 6.0, 4.0, 2.0, 0.0, 0.0])
    cosine = [learning_rate(step, schedule="cosine", peak=8.0, warmup=2, steps=5) for step in range(1, 8)]
    assert cosine == pytest.approx([4.0, 8.0, 4 + 4 * math.sqrt(0.5), 4.0, 4 - 4 * math.sqrt(0.5), 0.0, 0.0])
