"""A run is a folder, written so that a crash, a full disk or a flipped bit is noticed and costs little.

    config.json          the whole configuration, and which weights translate
    tokenizer.model      the subwords (tokenizer.src.model and tokenizer.tgt.model where they are separate)
    model.safetensors    the weights that translate
    manifest.json        the SHA-256 of the three
    data/                the prepared text
    checkpoints/         one folder for each: weights.safetensors, optimizer.safetensors, state.json, manifest.json
    metrics.jsonl        metrics that a rerun would repeat exactly
    timing.jsonl         speed and memory, which it would not
    training.html        the curves of both

Checkpoints and the files of the manifest are written under other names, flushed to the disk and renamed; the two logs are
flushed when a checkpoint records their length. Nothing is pickled.
"""

import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from regard.config import RunConfig
from regard.errors import UserError
from regard.settings import Json, read_json, read_table, similar_path, to_table

FORMAT = 1
MANIFEST = "manifest.json"
PREFIX = "step-"


class DamagedError(UserError):
    """Raised for files that are not what was written."""


class Weights(NamedTuple):
    """The origin of `model.safetensors`: one checkpoint, the average of several, or another program."""

    what: str  # "average", "best" or "imported"
    steps: tuple[int, ...]  # the checkpoints they come from
    after: int  # the step training had reached when they were chosen
    final: bool  # chosen at the end, by validation

    @property
    def described(self) -> str:
        if self.what == "average" and len(self.steps) > 1:
            return f"the average of the last {len(self.steps)} checkpoints"
        if not self.steps:
            return "the weights it was imported with"
        return f"the checkpoint of step {self.steps[0]:,}"


@dataclass(frozen=True)
class Checkpoint:
    """All that training needs to continue."""

    weights: dict[str, Tensor]
    optimizer: dict[str, Tensor]
    state: Json


@dataclass(frozen=True)
class Run:
    """The folder of a run."""

    folder: Path

    @property
    def config_path(self) -> Path:
        return self.folder / "config.json"

    @property
    def model_path(self) -> Path:
        return self.folder / "model.safetensors"

    @property
    def metrics_path(self) -> Path:
        return self.folder / "metrics.jsonl"

    @property
    def timing_path(self) -> Path:
        return self.folder / "timing.jsonl"

    @property
    def checkpoints(self) -> Path:
        return self.folder / "checkpoints"

    def data_folder(self, config: RunConfig) -> Path:
        return Path(config.prepared) if config.prepared else self.folder / "data"

    def read_config(self) -> RunConfig:
        return read_table(RunConfig, {key: value for key, value in self._read_json().items() if key not in OURS})

    def read_weights(self) -> Weights | None:
        """The origin of the weights that translate; None before the first are saved."""
        weights: Weights | None = self._read_json()["weights"]
        return weights

    def read_version(self) -> str:
        """The version of regard that wrote the configuration."""
        version: str = self._read_json()["regard"]
        return version

    def _read_json(self) -> Json:
        if not self.folder.exists():
            raise UserError(f"there is no run {self.folder}{similar_path(self.folder)}")
        if not self.config_path.exists():
            raise UserError(f"{self.folder} is not a run: it has no config.json")
        try:
            table: Json = read_json(self.config_path)
            if (stored_format := table["format"]) != FORMAT:
                raise UserError(f"{self.folder} is of format {stored_format}, which this version of regard cannot read")
            stored = table["weights"]
            weights = stored and Weights(stored["what"], tuple(stored["steps"]), stored["after"], stored["final"])
            return table | {"regard": str(table["regard"]), "weights": weights}
        except (KeyError, TypeError) as error:
            raise DamagedError(f"{self.config_path} is damaged: {error!r}") from error

    def write_config(self, config: RunConfig, weights: Weights | None, version: str) -> None:
        table = {"format": FORMAT, "regard": version, "weights": weights and weights._asdict(), **to_table(config)}
        self.publish({"config.json": _json_bytes(table)})

    def publish(self, files: Mapping[str, bytes]) -> None:
        """Replace files of the run and their digests in the manifest. In between, the manifest allows the old and the new
        files, so that they are intact after a crash at any time."""
        before = self._manifest()
        new = _digests(files)
        both = {name: [*before.get(name, []), digest] for name, digest in new.items()}
        write_atomically(self.folder / MANIFEST, _json_bytes(before | both))
        for name, content in files.items():
            write_atomically(self.folder / name, content)
        write_atomically(self.folder / MANIFEST, _json_bytes(before | {name: [digest] for name, digest in new.items()}))

    def _manifest(self) -> dict[str, list[str]]:
        path = self.folder / MANIFEST
        if not path.exists():
            return {}
        try:
            return {name: list(digests) for name, digests in read_json(path).items()}
        except (UserError, AttributeError, TypeError) as error:
            raise DamagedError(f"{path} is damaged: {error}") from error

    def require_intact(self) -> None:
        """Raise an error if a file that the manifest names is damaged."""
        for name in self.damaged_files():
            raise DamagedError(f"{self.folder / name} is missing or not what was written")

    def damaged_files(self) -> list[str]:
        """The names of files that are missing or not what was written; the manifest's own if there is none."""
        manifest = self._manifest()
        if not manifest:
            return [MANIFEST]
        return [
            name
            for name, digests in manifest.items()
            if not (self.folder / name).exists() or sha256(self.folder / name) not in digests
        ]

    def saved_steps(self) -> list[int]:
        """The steps of all checkpoints, intact or not, the oldest first."""
        names = [path.name for path in self.checkpoints.glob(f"{PREFIX}*") if path.is_dir()]
        return sorted(int(name.removeprefix(PREFIX)) for name in names if name.removeprefix(PREFIX).isdecimal())

    def checkpoint_path(self, step: int) -> Path:
        return self.checkpoints / f"{PREFIX}{step:08d}"

    def save_checkpoint(self, step: int, checkpoint: Checkpoint) -> None:
        """Save a checkpoint completely or not at all; raise an error if a number in it is not finite."""
        for name, tensor in [*checkpoint.weights.items(), *checkpoint.optimizer.items()]:
            if not bool(tensor.isfinite().all()):
                raise UserError(
                    f"{name} is no longer finite after step {step:,}, which is not saved; try a lower train.learning_rate"
                )
        files = {
            "weights.safetensors": save(checkpoint.weights),
            "optimizer.safetensors": save(checkpoint.optimizer),
            "state.json": _json_bytes(checkpoint.state),
        }
        files[MANIFEST] = _json_bytes(_digests(files))
        target = self.checkpoint_path(step)
        workshop = self.checkpoints / f".{target.name}.saving"
        try:
            shutil.rmtree(workshop, ignore_errors=True)
            workshop.mkdir(parents=True)
            for name, content in files.items():
                _write_durably(workshop / name, content)
            _flush_folder(workshop)
            if target.exists():  # it is damaged, or training would have continued from it
                shutil.rmtree(target)
            workshop.rename(target)
            _flush_folder(self.checkpoints)
        finally:
            shutil.rmtree(workshop, ignore_errors=True)

    def load_checkpoint(self, step: int) -> Checkpoint:
        """Load a checkpoint; raise DamagedError if it is not what was saved."""
        return Checkpoint(
            weights=self.load_weights_of(step),
            optimizer=load(self._read_verified(step, "optimizer.safetensors")),
            state=json.loads(self._read_verified(step, "state.json")),
        )

    def is_scheduled(self, step: int) -> bool:
        """Whether a checkpoint was saved by plan, not because of a signal; False if it is damaged."""
        with suppress(OSError, UserError):
            return bool(read_json(self.checkpoint_path(step) / "state.json").get("scheduled", True))
        return False

    def seconds_until(self, step: int) -> float:
        """Return how long training had taken when it saved this checkpoint."""
        return float(json.loads(self._read_verified(step, "state.json"))["seconds"])

    def load_weights_of(self, step: int) -> dict[str, Tensor]:
        """Load the weights of a checkpoint; raise DamagedError if they are not what was saved."""
        return load(self._read_verified(step, "weights.safetensors"))

    def _read_verified(self, step: int, name: str) -> bytes:
        path = self.checkpoint_path(step)
        try:
            digest = read_json(path / MANIFEST)[name]
            content = (path / name).read_bytes()
        except (OSError, UserError, KeyError, TypeError) as error:
            raise DamagedError(f"the checkpoint {path} is damaged: {error}") from error
        if hashlib.sha256(content).hexdigest() != digest:
            raise DamagedError(f"{path / name} is not what was saved")
        return content

    def delete_checkpoint(self, step: int) -> None:
        """Delete a checkpoint; it is renamed first, so that a half-deleted one is not taken for a checkpoint."""
        path = self.checkpoint_path(step)
        grave = path.with_name(f".{path.name}.deleting")
        shutil.rmtree(grave, ignore_errors=True)
        path.rename(grave)
        shutil.rmtree(grave)

    def clear_away(self) -> None:
        """Remove what a crash left half written or half deleted."""
        for path in [*self.checkpoints.glob(".*.saving"), *self.checkpoints.glob(".*.deleting")]:
            shutil.rmtree(path, ignore_errors=True)
        for path in self.folder.glob(".*.writing"):
            path.unlink(missing_ok=True)

    def averaged_weights(self, steps: Sequence[int]) -> tuple[dict[str, Tensor], tuple[int, ...]]:
        """The mean of the weights of those checkpoints that are intact, summed in float64 in the order given, and their
        steps."""
        sums: dict[str, Tensor] = {}
        dtypes, intact = {}, []
        for step in steps:
            with suppress(DamagedError):
                for name, tensor in self.load_weights_of(step).items():
                    sums[name] = sums[name] + tensor.double() if name in sums else tensor.double()
                    dtypes[name] = tensor.dtype
                intact.append(step)
        if not intact:
            raise DamagedError(f"none of the checkpoints {', '.join(map(str, steps))} in {self.checkpoints} is intact")
        return {name: (total / len(intact)).to(dtypes[name]) for name, total in sums.items()}, tuple(intact)

    def forget_if_empty(self) -> None:
        """Remove the folder of a run that could not begin."""
        if [path.name for path in self.folder.iterdir()] == [".lock"]:
            (self.folder / ".lock").unlink()
            self.folder.rmdir()

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Let only one process train in a folder. The system releases the lock if its holder is killed."""
        if self.folder.exists() and not self.folder.is_dir():
            raise UserError(f"{self.folder} is a file; a run needs a folder")
        self.folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(self.folder / ".lock", os.O_RDONLY | os.O_CREAT)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(handle)
            raise UserError(f"another process is training in {self.folder}; wait, or choose another folder") from error
        try:
            yield
        finally:
            os.close(handle)


OURS = ("format", "regard", "weights")  # keys of config.json that are no settings


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _digests(files: Mapping[str, bytes]) -> dict[str, str]:
    return {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}


def weights_bytes(weights: dict[str, Tensor]) -> bytes:
    return save(on_cpu(weights), {"format": "pt"})


def load_weights(path: Path) -> dict[str, Tensor]:
    try:
        return load(path.read_bytes())
    except SafetensorError as error:
        raise DamagedError(f"{path} is damaged: {error}") from error


def on_cpu(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.detach().to("cpu", copy=False).contiguous() for name, tensor in tensors.items()}


def run_and_step(path: Path) -> tuple[Run, int | None]:
    """The run and the step of a checkpoint's folder, or the run of its own folder."""
    run, name = Run(path.parent.parent), path.name.removeprefix(PREFIX)
    if path.parent.name == run.checkpoints.name and name.isdecimal() and path.is_dir():
        return run, int(name)
    return Run(path), None


def require_place_for(path: Path) -> None:
    """Raise an error if a file cannot be written here, before its content is computed."""
    if not path.parent.is_dir():
        raise UserError(f"there is no folder {path.parent} to write {path.name} into")
    if path.is_dir():
        raise UserError(f"{path} is a folder; give a file to write to")


def write_atomically(path: Path, content: bytes) -> None:
    workshop = path.with_name(f".{path.name}.writing")
    try:
        _write_durably(workshop, content)
        workshop.rename(path)
        _flush_folder(path.parent)
    finally:
        workshop.unlink(missing_ok=True)


def _write_durably(path: Path, content: bytes) -> None:
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _flush_folder(folder: Path) -> None:
    """Flush the names in a folder, and thereby renames, to the disk."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _json_bytes(value: object) -> bytes:
    return (json.dumps(value, ensure_ascii=False, indent=2) + "\n").encode("utf-8", errors="backslashreplace")
