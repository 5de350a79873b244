"""Tests that a failing random test prints how to repeat it."""

import re
from pathlib import Path

import pytest

from tests import conftest

RANDOM = """
def test_it(seed):
    print("drawn", seed)
    assert False

def test_another(seed):
    print("drawn", seed)
    assert False

def test_nothing_random():
    assert False
"""


def test_a_failure_shows_a_seed_that_repeats_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "test_random.py").write_text(RANDOM, encoding="utf-8")

    def failures(*arguments: str) -> tuple[list[str], list[str]]:
        """Return the numbers that each test has drawn, and the seeds that repeat it."""
        pytest.main(["-p", "no:cacheprovider", str(tmp_path / "test_random.py"), *arguments], plugins=[conftest])
        told = capsys.readouterr().out
        assert "3 failed" in told and "random tests: --seed " in told
        return re.findall(r"^drawn (\d+)", told, re.MULTILINE), re.findall(r"^--seed (\d+) repeats it", told, re.MULTILINE)

    drawn, shown = failures()
    assert len(set(drawn)) == 2 and len(shown) == 2 and len(set(shown)) == 1
    assert failures("--seed", shown[0]) == (drawn, shown)
    others, _ = failures()
    assert not set(others) & set(drawn)
