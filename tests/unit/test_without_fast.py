"""Tests of training and translating on a CPU while `regard.fast` cannot be imported; two modules import it if it serves."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from regard.config import TrainConfig
from regard.data.batch import collate
from regard.machine.processes import Processes
from regard.train.road import learner_for, with_kernels
from regard.train.totals import Totals
from regard.translate.translator import load
from tests.conftest import tiny_config
from tests.oracles.blocked import Blocker

ROOT = Path(__file__).parents[2]
RUN = ROOT / "tests" / "runs" / "0.1.0"
FILES = ("attention", "layers", "cache", "trace", "beam", "greedy", "sample", "learner", "recurrent", "language")


@pytest.fixture
def _blocked(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name == "regard.fast" or name.startswith("regard.fast.")]:
        monkeypatch.delitem(sys.modules, name)
    if "regard" in sys.modules and hasattr(sys.modules["regard"], "fast"):
        monkeypatch.delattr(sys.modules["regard"], "fast")
    monkeypatch.setattr(sys, "meta_path", [Blocker(), *sys.meta_path])


@pytest.mark.usefixtures("_blocked")
def test_a_cpu_trains_and_translates_without_the_kernels() -> None:
    with pytest.raises(ImportError, match="blocked"):
        from regard.fast import support  # noqa: F401
    model, cpu = tiny_config(), torch.device("cpu")
    config = with_kernels(TrainConfig(device="cpu", precision="float32", compile="off", steps=3), model, 1)
    learner = learner_for(model, config, cpu, Processes(), None)
    before = {name: weight.clone() for name, weight in learner.weights().items()}
    sentences = [torch.randint(3, 23, (length,)).numpy() for length in (4, 6, 5)]
    for _ in range(3):
        learner.update([(0, collate(sentences, sentences[::-1]))], Totals(cpu))  # type: ignore[list-item]
    assert any(not torch.equal(before[name], after) for name, after in learner.weights().items())
    source = (RUN / "source.de").read_text(encoding="utf-8").splitlines()[0]
    assert load(RUN, device="cpu").translate([source])[0].text


@pytest.mark.slow
def test_the_unit_tests_of_a_cpu_pass_without_the_kernels() -> None:
    files = [f"tests/unit/test_{name}.py" for name in FILES]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.oracles.blocked", "-m", "not slow", *files]
    process = subprocess.run(command, cwd=ROOT, capture_output=True, encoding="utf-8", check=False)
    assert process.returncode == 0, process.stdout[-4000:]
