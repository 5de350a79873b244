"""Tests of the origin that measurements record."""

import subprocess
from pathlib import Path

import pytest
import torch

import regard
from regard.bench.origin import commit_of, origin


def git(folder: Path, *words: str) -> str:
    who = ["-c", "user.name=who", "-c", "user.email=who@where"]
    return subprocess.run(["git", "-C", folder, *who, *words], capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    git(tmp_path, "init", "-q")
    (tmp_path / "code.py").write_text("a = 1\n")
    git(tmp_path, "add", "code.py")
    git(tmp_path, "commit", "-qm", "first")
    return tmp_path


def test_the_commit_is_that_of_the_checkout(checkout: Path) -> None:
    head = git(checkout, "rev-parse", "HEAD")
    assert commit_of(checkout) and head.startswith(commit_of(checkout))


def test_code_that_has_changed_since_says_so_and_a_new_file_is_no_change(checkout: Path) -> None:
    clean = commit_of(checkout)
    (checkout / "result.json").write_text("{}\n")
    assert commit_of(checkout) == clean
    (checkout / "code.py").write_text("a = 2\n")
    assert commit_of(checkout) == f"{clean}+"


def test_below_a_checkout_elsewhere_and_without_git_there_is_none(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package installed below another project's checkout is not that checkout's code."""
    (checkout / "site-packages").mkdir()
    assert commit_of(checkout / "site-packages") == ""
    monkeypatch.setenv("PATH", "")
    assert commit_of(checkout) == ""


def test_an_unreadable_checkout_has_none(tmp_path: Path) -> None:
    (tmp_path / ".git").write_text("gitdir: nowhere\n")
    assert commit_of(tmp_path) == ""


def test_machine_day_and_version_are_told() -> None:
    told = origin(torch.device("cpu"))
    assert f"torch {torch.__version__}" in told and f"regard {regard.__version__}" in told and "threads" in told
