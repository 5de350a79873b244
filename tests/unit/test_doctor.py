"""Tests of the problems that `regard doctor` reports, on simulated machines."""

import os
from dataclasses import replace
from importlib import metadata
from pathlib import Path

import pytest
import torch

from regard.bench import doctor
from regard.model.transformer import Transformer

HEALTHY = doctor.Findings(
    regard="0.1.0",
    system="Linux",
    python="3.12.1",
    packages=(),
    cores=4,
    threads=4,
    free_memory_bytes=2**33,
    free_disk_bytes=2**36,
    disk_bandwidth=1e9,
    devices=(),
    problems=(),
)


OF_DEVELOPERS = ["pytest>=8; extra == 'dev'", "triton>=3.9; (platform_system == 'Linux') and extra == 'dev'"]


def test_a_healthy_machine_has_no_problem() -> None:
    assert doctor._machine_problems(HEALTHY) == []
    assert doctor._arithmetic_error(torch.device("cpu")) < 1e-4


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"threads": 8}, "8 threads, but this process may use only 4 cores"),
        ({"free_memory_bytes": 2**30}, "only 1.0 GiB of memory are free"),
        ({"free_disk_bytes": 2**29}, "only 0.5 GiB are free on this disk"),
    ],
)
def test_what_is_short_is_told(change: dict[str, int], complaint: str) -> None:
    [problem] = doctor._machine_problems(replace(HEALTHY, **change))  # type: ignore[arg-type]
    assert complaint in problem.what
    assert problem.remedy


def test_old_and_missing_packages_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    versions = {"torch": "2.9.1+cpu", "numpy": "1.26.4", "typer": "0.16"}

    def version(name: str) -> str:
        if name not in versions:
            raise metadata.PackageNotFoundError(name)
        return versions[name]

    requirements = ["torch>=2.11", "numpy>=1.26", "typer>=0.15.0", "rich>=13", "fastapi>=0.115; extra == 'serve'"]
    monkeypatch.setattr(metadata, "requires", lambda _: [*requirements, *OF_DEVELOPERS])
    monkeypatch.setattr(metadata, "version", version)
    packages, problems = doctor._packages()
    assert [(one.name, one.version, one.extra) for one in packages] == [
        ("torch", "2.9.1+cpu", ""),
        ("numpy", "1.26.4", ""),
        ("typer", "0.16", ""),
        ("rich", "", ""),
        ("fastapi", "", "serve"),
    ]
    assert [problem.what for problem in problems] == [
        "torch is 2.9.1+cpu, and regard needs 2.11 or newer",
        "rich is not installed",
    ]


def test_a_checkout_that_is_not_installed_is_no_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    def requires(name: str) -> list[str]:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "requires", requires)
    assert doctor._packages() == ((), [])


def test_requirements_are_of_the_form_it_reads() -> None:
    """Check the requirements of the installed package."""
    names = {package.name for package in doctor._packages()[0]}
    assert {"torch", "typer", "fastapi", "ctranslate2"} <= names
    assert "pytest" not in names


def test_wrong_arithmetic_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    right = Transformer.project

    def wrong_in_single_precision(self: Transformer, states: torch.Tensor) -> torch.Tensor:
        logits = right(self, states)
        return logits if logits.dtype == torch.float64 else logits * 1.5

    monkeypatch.setattr(Transformer, "project", wrong_in_single_precision)
    problem = doctor._examined("cpu")
    assert isinstance(problem, doctor.Problem)
    assert "cpu computes wrongly" in problem.what


def test_a_device_that_fails_is_a_problem_and_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: torch.device) -> float:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 256 MiB\nand much more")

    monkeypatch.setattr(doctor, "_bandwidth", full)
    assert doctor._examined("cpu") == doctor.Problem(
        "cpu cannot be used: CUDA out of memory. Tried to allocate 256 MiB", "free its memory, or look at its driver"
    )


def test_a_fault_of_ours_is_no_problem_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: torch.device) -> float:
        raise RuntimeError("mat1 and mat2 shapes cannot be multiplied")

    monkeypatch.setattr(doctor, "_arithmetic_error", broken)
    with pytest.raises(RuntimeError, match="shapes"):
        doctor._examined("cpu")


def test_a_folder_that_cannot_be_written_to_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def full(_: int) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "fsync", full)
    _, _, [problem] = doctor._disk()
    assert problem.what == "this folder cannot be written to (No space left on device)"
    assert list(tmp_path.iterdir()) == []


def test_versions_are_compared_by_number() -> None:
    assert doctor._numbers("2.13.0+cpu") == [2, 13, 0]
    assert doctor._numbers("2.9") < doctor._numbers("2.11")


@pytest.mark.parametrize("times", [0.1, 2.0])
def test_a_cpu_with_units_for_bfloat16_is_told(
    times: float, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(doctor, "matmul_ceiling", lambda _, dtype: 1e11 * (times if dtype == torch.bfloat16 else 1.0))
    doctor.print_findings(doctor.examine())
    advice = "in bfloat16 200 GFLOP/s: --set train.precision=bfloat16 is faster from preset small on"
    assert (advice in " ".join(capsys.readouterr().out.split())) == (times > 1.5)
