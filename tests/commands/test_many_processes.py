"""Tests of two processes connected through gloo, against one with the same global batch."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from regard.run.checkpoint import Run, sha256
from tests.commands.process import run
from tests.commands.test_prepare import flags, text

__all__ = ["text"]  # the fixture

ROOT = Path(__file__).parents[2]
STEPS = 20


def torchrun(*arguments: str) -> subprocess.CompletedProcess[str]:
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "--standalone"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.run([*launcher, *arguments], capture_output=True, text=True, env=environment, check=False)


def settings(text: Path, precision: str) -> list[str]:
    words = [*flags(text), "--preset", "tiny", "--batch-tokens", "400", "--steps", str(STEPS), "--vocab-size", "300"]
    for setting in (f"train.precision={precision}", "train.accumulation=3", "train.log_every=1", "train.save_every=5"):
        words += ["--set", setting]
    return words


@pytest.mark.slow
@pytest.mark.parametrize("dropout", [0.0, 0.2])
def test_two_processes_learn_what_one_does(text: Path, dropout: float) -> None:
    """Run 20 updates in float64, of three batches each: one process takes two of them, the other one. Dropout gives the same
    result, because its masks belong to the batch, not to the process."""
    arguments = [*settings(text, "float64"), "--set", f"model.dropout={dropout}"]
    alone = run("train", *arguments, "-o", str(text / "alone"))
    assert alone.returncode == 0, alone.stderr
    together = torchrun("-m", "regard", "train", *arguments, "-o", str(text / "together"))
    assert together.returncode == 0, together.stderr
    assert together.stderr.count("what translates is") == 1, "only the main process talks"
    one, two = (Run(text / name).load_checkpoint(STEPS) for name in ("alone", "together"))
    for name, tensor in one.weights.items():
        assert tensor.dtype == torch.float64
        torch.testing.assert_close(two.weights[name], tensor, atol=1e-8, rtol=0, msg=name)
    assert two.state["place"] == one.state["place"]
    losses = [
        [json.loads(line).get("loss") for line in (text / name / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
        for name in ("alone", "together")
    ]
    assert losses[1] == pytest.approx(losses[0], abs=1e-9)


@pytest.mark.slow
def test_two_processes_continue_bit_for_bit_and_say_a_mistake_once(text: Path) -> None:
    arguments = [*settings(text, "float32"), "--set", "model.dropout=0.2"]
    out = text / "run"
    first = torchrun("-m", "regard", "train", *arguments, "-o", str(out))
    assert first.returncode == 0, first.stderr
    weights = sha256(Run(out).checkpoint_path(STEPS) / "weights.safetensors")
    metrics = (out / "metrics.jsonl").read_bytes()
    oldest, *newer = Run(out).saved_steps()
    assert newer
    for step in newer:
        Run(out).delete_checkpoint(step)
    config = json.loads((out / "config.json").read_text(encoding="utf-8"))
    (out / "config.json").write_text(json.dumps(config | {"weights": None}), encoding="utf-8")
    again = torchrun("-m", "regard", "train", *arguments, "-o", str(out))
    assert again.returncode == 0, again.stderr
    assert f"continuing from step {oldest}\n" in again.stderr
    assert sha256(Run(out).checkpoint_path(STEPS) / "weights.safetensors") == weights
    assert (out / "metrics.jsonl").read_bytes() == metrics
    mistaken = torchrun("-m", "regard", "train", *arguments, "--set", "train.wramup=3", "-o", str(text / "other"))
    assert mistaken.returncode != 0
    assert mistaken.stderr.count("regard: there is no setting train.wramup; did you mean train.warmup?") == 1
    assert "gloo" not in mistaken.stderr


WORKER = """
import sys
import torch
from safetensors.torch import save_file
from regard.config import TrainConfig
from regard.data.batch import collate
from regard.machine.processes import Processes
from regard.train.learner import Learner
from regard.train.totals import Totals, line_of
from tests.conftest import tiny_config

processes = Processes.from_environment()
random = torch.Generator().manual_seed(5)
def ids():
    return torch.randint(3, 23, (int(torch.randint(1, 12, (), generator=random)),), generator=random).numpy()
with processes.joined():
    config = TrainConfig(precision="float32", compile="off", steps=100, warmup=10, learning_rate=1e-3, schedule="linear")
    cpu = torch.device("cpu")
    learner, totals, losses = Learner(tiny_config(), config, cpu, processes), Totals(cpu), []
    for _ in range(20):
        batches = [collate(*zip(*[(ids(), ids()) for _ in range(6)])) for _ in range(2)]
        learner.update(list(enumerate(batches))[processes.rank :: processes.count], totals)
        processes.sum(totals.sums[:2])
        losses.append(line_of(totals.to_list())["loss"])
        totals.clear()
    if processes.is_main:
        gradients = {name: p.grad.clone() for name, p in learner.model.named_parameters()}
        save_file({"losses": torch.tensor(losses, dtype=torch.float64), **gradients}, sys.argv[1])
"""


@pytest.mark.slow
def test_losses_and_gradients_in_float32(tmp_path: Path) -> None:
    """Biases of keys are left out: their gradient is zero in exact arithmetic, and Adam magnifies its rounding."""
    from safetensors.torch import load_file

    (tmp_path / "worker.py").write_text(WORKER, encoding="utf-8")
    arguments = [str(tmp_path / "worker.py"), str(tmp_path / "two")]
    two = torchrun(*arguments)
    assert two.returncode == 0, two.stderr
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, arguments[0], str(tmp_path / "one")], env=environment, check=True)
    expected, found = load_file(tmp_path / "one"), load_file(tmp_path / "two")
    torch.testing.assert_close(found["losses"], expected["losses"], atol=1e-5, rtol=0)
    assert expected["losses"][-1] < expected["losses"][0]
    for name, gradient in expected.items():
        if name.endswith("query_key_value.bias"):
            is_key = torch.arange(len(gradient)) // (len(gradient) // 3) == 1
            torch.testing.assert_close(found[name][~is_key], gradient[~is_key], atol=1e-5, rtol=0, msg=name)
        elif name.endswith("key_value.bias"):
            values = slice(len(gradient) // 2, None)
            torch.testing.assert_close(found[name][values], gradient[values], atol=1e-5, rtol=0, msg=name)
        else:
            torch.testing.assert_close(found[name], gradient, atol=1e-5, rtol=0, msg=name)


@pytest.mark.parametrize("arguments", [["--version"], ["train", "nowhere.toml"]])
def test_a_process_among_several_ends_before_python_shuts_down(arguments: list[str]) -> None:
    """gloo's threads may still hold a tensor and abort at shutdown: this is rare, so the test checks for the cause."""
    program = f"import atexit, sys; atexit.register(print, 'shutting down'); sys.argv = {['regard', *arguments]}\n"
    program += "from regard.__main__ import main; main()"
    results = []
    for told in ({}, {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1"}):
        environment = os.environ | {"PYTHONPATH": str(ROOT)} | told
        command = [sys.executable, "-c", program]
        results.append(subprocess.run(command, capture_output=True, text=True, env=environment, check=False))
    alone, among = results
    assert alone.returncode == among.returncode == (0 if arguments == ["--version"] else 2), among.stderr
    assert alone.stdout == among.stdout + "shutting down\n"
    assert alone.stderr == among.stderr
