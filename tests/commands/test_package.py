"""Tests that the published package installs into an empty environment and works outside the checkout."""

import os
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

import regard

ROOT = Path(__file__).parents[2]
TEXTS = {f"regard/demo/text/{split}.{language}.xz" for split in ("train", "valid", "test") for language in ("de", "en")}
ENVIRONMENT = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "VIRTUAL_ENV")}
ENVIRONMENT["PIP_CONSTRAINT"] = str(ROOT / "constraints.txt")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the wheel and the sdist."""
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "--directory", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    return folder


@pytest.mark.slow
def test_the_wheel_has_what_it_needs_and_no_more(built: Path) -> None:
    [wheel] = built.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {
        "regard/demo/recipe.toml",
        "regard/demo/ATTRIBUTION.md",
        "regard/train/training.html",
        "regard/lab/lab.html",
        "regard/lab/words.en.toml",
        "regard/lab/words.zh.toml",
        "regard/pages/drawing.js",
        *TEXTS,
    } <= names
    in_checkout = {str(path.relative_to(ROOT)) for path in (ROOT / "regard").rglob("*.py")}
    assert {name for name in names if name.endswith(".py")} == in_checkout
    assert {name.split("/")[0] for name in names} == {"regard", f"regard-{regard.__version__}.dist-info"}


@pytest.mark.slow
def test_the_sdist_has_what_tests_need(built: Path) -> None:
    [sdist] = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"Makefile", "constraints.txt", "README.md", "LICENSE", "tests/commands/test_package.py", *TEXTS} <= names
    assert not any(name.startswith((".venv", "runs/", "data/")) for name in names)


@pytest.mark.slow
def test_the_wheel_works_in_an_empty_environment(built: Path, tmp_path: Path) -> None:
    [wheel] = built.glob("*.whl")
    venv.create(tmp_path / "venv", with_pip=True, symlinks=True)
    python = tmp_path / "venv" / "bin" / "python"
    torch = next(line for line in (ROOT / "constraints.txt").read_text().splitlines() if line.startswith("torch=="))
    for what in (torch, str(wheel)):
        run([str(python), "-m", "pip", "install", "--quiet", what], tmp_path)
    command = str(tmp_path / "venv" / "bin" / "regard")
    problems = [line for line in run([command, "doctor"], tmp_path).splitlines() if line.startswith("problem:")]
    assert all("overloaded" in line for line in problems), "of the wheel, not of a machine that others use"
    output = run([command, "demo", "--minutes", "0.2", "--no-serve"], tmp_path)
    assert "BLEU" in output
    assert (tmp_path / "runs" / "demo" / "model.safetensors").exists()


def run(command: list[str], folder: Path) -> str:
    result = subprocess.run(command, cwd=folder, env=ENVIRONMENT, capture_output=True, text=True, timeout=1200, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout
