"""Tests that a run's folder survives failing disks and crashes, or that damage is named."""

import json
import os
from pathlib import Path

import pytest
import torch

from regard.config import RunConfig
from regard.run import checkpoint as checkpoint_module
from regard.run.checkpoint import Checkpoint, DamagedError, Run, Weights, sha256, weights_bytes, write_atomically
from tests.unit.test_settings import RUN


def make_checkpoint(value: float) -> Checkpoint:
    weights = {"a": torch.full((3, 2), value), "b": torch.arange(4.0) * value}
    return Checkpoint(weights, {"exp_avg.a": torch.full((3, 2), -value), "step": torch.tensor(value)}, {"step": int(value)})


@pytest.fixture
def run(tmp_path: Path) -> Run:
    the_run = Run(tmp_path / "run")
    the_run.folder.mkdir()
    for step in (10, 20):
        the_run.save_checkpoint(step, make_checkpoint(float(step)))
    return the_run


def test_what_is_saved_is_loaded(run: Run) -> None:
    assert run.saved_steps() == [10, 20]
    loaded = run.load_checkpoint(20)
    assert loaded.state == {"step": 20}
    for name, tensor in make_checkpoint(20.0).weights.items():
        assert torch.equal(loaded.weights[name], tensor)
    assert torch.equal(loaded.optimizer["step"], torch.tensor(20.0))
    assert sorted(path.name for path in run.checkpoint_path(20).iterdir()) == [
        "manifest.json", "optimizer.safetensors", "state.json", "weights.safetensors",
    ]  # fmt: skip


FILES = ["weights.safetensors", "optimizer.safetensors", "state.json", "manifest.json"]


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("damage", ["a flipped bit", "cut short", "emptied", "removed"])
def test_damage_is_noticed(run: Run, name: str, damage: str) -> None:
    path = run.checkpoint_path(20) / name
    content = bytearray(path.read_bytes())
    if damage == "a flipped bit":
        content[len(content) // 2] ^= 4
        path.write_bytes(content)
    elif damage == "removed":
        path.unlink()
    else:
        path.write_bytes(content[: len(content) // 2] if damage == "cut short" else b"")
    with pytest.raises(DamagedError, match="step-00000020"):
        run.load_checkpoint(20)
    run.load_checkpoint(10)


@pytest.mark.parametrize("fails_at", range(1, 8))
def test_a_save_that_fails_at_any_write_leaves_the_others_whole(
    run: Run, fails_at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the disk is full at the n-th flush, older checkpoints stay, and no incomplete one has the name of a checkpoint."""
    flushes = 0
    flush = os.fsync

    def failing(handle: int) -> None:
        nonlocal flushes
        flushes += 1
        if flushes == fails_at:
            raise OSError(28, "No space left on device")
        flush(handle)

    monkeypatch.setattr(os, "fsync", failing)
    if fails_at <= 6:  # four files, their folder, and the folder that contains the rename
        with pytest.raises(OSError, match="No space"):
            run.save_checkpoint(30, make_checkpoint(30.0))
    else:
        run.save_checkpoint(30, make_checkpoint(30.0))
    for step in run.saved_steps():
        run.load_checkpoint(step)
    assert run.saved_steps() in ([10, 20], [10, 20, 30])
    assert not list(run.checkpoints.glob(".*"))


def test_what_is_not_finite_is_not_saved(run: Run) -> None:
    bad = make_checkpoint(30.0)
    bad.weights["a"][1, 1] = float("nan")
    with pytest.raises(ValueError, match="a is no longer finite after step 30, which is not saved"):
        run.save_checkpoint(30, bad)
    assert run.saved_steps() == [10, 20]


def test_half_written_and_half_deleted_folders_are_no_checkpoints(run: Run) -> None:
    (run.checkpoints / ".step-00000030.saving").mkdir()
    (run.checkpoints / ".step-00000005.deleting").mkdir()
    (run.folder / ".config.json.writing").write_text("{", encoding="utf-8")
    assert run.saved_steps() == [10, 20]
    run.clear_away()
    assert not list(run.checkpoints.glob(".*")) and not list(run.folder.glob(".*"))
    run.delete_checkpoint(10)
    assert run.saved_steps() == [20] and not list(run.checkpoints.glob(".*"))


def test_averages_are_means(run: Run) -> None:
    run.save_checkpoint(60, make_checkpoint(60.0))
    averaged, steps = run.averaged_weights([10, 20, 60])
    assert steps == (10, 20, 60)
    for name, tensor in make_checkpoint(30.0).weights.items():
        torch.testing.assert_close(averaged[name], tensor)
        assert averaged[name].dtype == torch.float32
    (run.checkpoint_path(20) / "weights.safetensors").write_bytes(b"")
    assert run.averaged_weights([10, 20, 60])[1] == (10, 60)
    with pytest.raises(DamagedError, match="none of the checkpoints 20 in"):
        run.averaged_weights([20])


def test_config_and_weights_are_read_back(run: Run) -> None:
    run.write_config(RUN, None, "0.1.0")
    assert run.read_config() == RUN and run.read_weights() is None
    weights = Weights("average", (10, 20), after=20, final=True)
    run.publish({"model.safetensors": weights_bytes(make_checkpoint(1.0).weights)})
    run.write_config(RUN, weights, "0.1.0")
    assert (run.read_config(), run.read_weights()) == (RUN, weights)
    assert run.damaged_files() == []
    run.require_intact()
    run.model_path.write_bytes(run.model_path.read_bytes()[:-1])
    with pytest.raises(DamagedError, match=r"model\.safetensors is missing or not what was written"):
        run.require_intact()
    assert run.damaged_files() == ["model.safetensors"]
    run.config_path.unlink()
    assert run.damaged_files() == ["config.json", "model.safetensors"]


@pytest.mark.parametrize("stops_at", range(5))
def test_publishing_may_stop_anywhere(run: Run, stops_at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every file is either the old or the new one, and the manifest matches it."""
    run.publish({"a.txt": b"old", "b.txt": b"old"})
    writes = 0

    def stopping(path: Path, content: bytes) -> None:
        nonlocal writes
        if writes == stops_at:
            raise KeyboardInterrupt
        writes += 1
        write_atomically(path, content)

    monkeypatch.setattr(checkpoint_module, "write_atomically", stopping)
    if stops_at < 4:
        with pytest.raises(KeyboardInterrupt):
            run.publish({"a.txt": b"new", "b.txt": b"new"})
    else:
        run.publish({"a.txt": b"new", "b.txt": b"new"})
    assert run.damaged_files() == []
    monkeypatch.undo()
    run.publish({"a.txt": b"newer"})
    assert run.damaged_files() == []
    assert json.loads((run.folder / "manifest.json").read_text())["a.txt"] == [sha256(run.folder / "a.txt")]


def test_foreign_and_damaged_runs_are_named(run: Run) -> None:
    with pytest.raises(ValueError, match=r"is not a run: it has no config\.json"):
        run.read_config()
    run.config_path.write_text("{", encoding="utf-8")
    with pytest.raises(ValueError, match=r"config\.json is not JSON"):
        run.read_config()
    run.config_path.write_text(json.dumps({"format": 1, "regard": "0.1.0", "weights": {"what": "best"}}), encoding="utf-8")
    with pytest.raises(DamagedError, match=r"config\.json is damaged: KeyError"):
        run.read_config()
    run.config_path.write_text('{"format": 99}', encoding="utf-8")
    with pytest.raises(ValueError, match="is of format 99, which this version"):
        run.read_config()


def test_one_process_at_a_time(run: Run) -> None:
    with run.lock(), pytest.raises(ValueError, match="another process is training"), run.lock():
        pass
    with run.lock():
        pass


def test_configs_are_typed(run: Run) -> None:
    run.write_config(RUN, None, "0.1.0")
    assert isinstance(run.read_config(), RunConfig)
