"""The choice between the plain learner and that of the GPU's kernels.

Only this module of training imports `regard.fast`, and only in functions. A run that the kernels began can go on without
them, over the same batches.
"""

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

import torch

from regard.config import ModelConfig, TrainConfig
from regard.data.batch import Drawn
from regard.data.stream import BatchStream
from regard.data.windows import Stream
from regard.errors import UserError
from regard.machine.device import find_device
from regard.machine.processes import Processes
from regard.train.learner import Learner

if TYPE_CHECKING:
    from regard.fast.training.learner import FusedLearner

AnyLearner: TypeAlias = "Learner | FusedLearner"


@runtime_checkable
class Layout(Protocol):
    """The memory layout of batches for the GPU's kernels."""

    def pack(self, drawn: Drawn) -> Any: ...


def with_kernels(config: TrainConfig, model: ModelConfig, num_processes: int) -> TrainConfig:
    """Decide whether the GPU's kernels train a model."""
    obstacle = _obstacle(config, model, num_processes)
    if config.kernels == "on" and obstacle:
        raise UserError(f"train.kernels is on, but our own kernels do not serve {obstacle}; leave it at auto")
    return replace(config, kernels="off" if obstacle else "on") if config.kernels == "auto" else config


def _obstacle(config: TrainConfig, model: ModelConfig, num_processes: int) -> str | None:
    """Return the first reason for which the kernels cannot train this model, or None."""
    device = find_device(config.device)
    if device.type == "cpu" and config.kernels != "on":
        return f"the device {device}"
    from regard.fast.support import runs_kernels, untrained  # only now: a CPU trains without `regard.fast`

    if not runs_kernels(device):
        return f"the device {device}"
    if config.compile == "on":
        return "models under torch.compile"
    if num_processes > 1:
        return "several processes"
    if config.precision not in ("auto", "bfloat16") and not (config.kernels == "on" and config.precision == "float32"):
        return f"arithmetic in {config.precision}"
    return untrained(model)


def layout_for(
    model: ModelConfig, config: TrainConfig, device: torch.device, processes: Processes, stream: Stream
) -> Layout | None:
    """The layout of packed batches for the GPU's kernels; None if batches are padded, for the plain learner."""
    if config.kernels != "on" or processes.count > 1:
        return None
    from regard.fast.support import runs_kernels
    from regard.fast.training.layout import PackLayout

    if not runs_kernels(device):
        return None
    assert isinstance(stream, BatchStream)
    copies = 2 if config.r_drop else 1
    return PackLayout(*stream.packed_size(), model.src_vocab_size, model.tgt_vocab_size, model.pad_id, copies)


def learner_for(
    model: ModelConfig, config: TrainConfig, device: torch.device, processes: Processes, layout: Layout | None
) -> AnyLearner:
    if layout is None:
        return Learner(model, config, device, processes)
    from regard.fast.training.layout import PackLayout
    from regard.fast.training.learner import FusedLearner

    assert isinstance(layout, PackLayout)
    return FusedLearner(model, config, device, layout)
