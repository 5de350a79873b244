"""Compile the Triton kernels for GPUs that need not be present, and print the resources that each uses.

    python scripts/kernel_resources.py
    python scripts/kernel_resources.py --presets base big --capabilities 80 90 120

Training and decoding of a few tokens run on a CPU, and every launch of a kernel compiles it for a GPU of that compute
capability; nothing is computed. For the worst launch of each kernel the table shows registers per thread, bytes that a
thread spills from registers to memory, shared memory per program, and how many warps fit on a multiprocessor. Spilling costs
most; a kernel with too much shared memory does not run.
"""

import argparse
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.runtime.driver import driver
from triton.runtime.jit import JITFunction

from regard.config import ModelConfig, TrainConfig
from regard.data.batch import Pairs
from regard.data.store import Ragged
from regard.fast.kernels.decoding import attend_to_past, attend_to_source
from regard.fast.training.layout import PackLayout
from regard.fast.training.learner import FusedLearner
from regard.train.totals import Totals

CUOBJDUMP = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
REGISTERS = 65_536  # per multiprocessor, for all of its threads
# The most shared memory that one program may use, and the total of a multiprocessor (CUDA's programming guide).
SHARED = {80: (163, 164), 86: (99, 100), 89: (99, 100), 90: (227, 228), 100: (227, 228), 120: (99, 100)}
WARPS = {80: 64, 86: 48, 89: 48, 90: 64, 100: 64, 120: 48}
VOCAB_SIZE, TOKENS = 16_000, 48


@dataclass(frozen=True)
class Resources:
    """Resources that one compiled kernel uses."""

    kernel: str
    capability: int
    registers: int  # per thread
    spilled: int  # bytes per thread
    shared: int  # bytes per program
    warps: int  # per program

    @property
    def fits(self) -> bool:
        return self.shared <= SHARED[self.capability][0] * 1024

    @property
    def occupancy(self) -> float:
        """Return the share of a multiprocessor's warps that can be active at once, by registers and shared memory."""
        of_registers = REGISTERS // (-(-self.registers // 8) * 8 * 32 * self.warps)
        of_shared = SHARED[self.capability][1] * 1024 // (self.shared + 1024)
        programs = min(of_registers, of_shared, WARPS[self.capability] // self.warps)
        return programs * self.warps / WARPS[self.capability]


class AbsentGPU:
    """A stand-in for a driver during compilation. Its number is its capability, so that each GPU has its own cache."""

    def __init__(self, capability: int) -> None:
        self.capability = capability

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", self.capability, 32)

    def get_current_device(self) -> int:
        return self.capability

    def get_current_stream(self, _device: int) -> int:
        return 0


@contextmanager
def compiling(capability: int) -> Iterator[dict[str, Any]]:
    """Compile at each launch instead of running, and yield the compiled kernels by hash."""
    compiled: dict[str, Any] = {}
    launch = JITFunction.run

    def compile_only(self: Any, *args: Any, **options: Any) -> None:
        kernel = launch(self, *args, **options | {"warmup": True})
        compiled[kernel.hash] = kernel

    driver.set_active(AbsentGPU(capability))
    JITFunction.run = compile_only
    try:
        yield compiled
    finally:
        JITFunction.run = launch


def resources(kernel: Any, capability: int) -> Resources:
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(kernel.asm["cubin"])
        file.flush()
        said = subprocess.run([CUOBJDUMP, "--dump-resource-usage", file.name], capture_output=True, text=True, check=True)
    used = {name: int(value) for name, value in re.findall(r"(REG|STACK|LOCAL):(\d+)", said.stdout)}
    module = kernel.src.fn.__module__.rpartition(".")[2]
    return Resources(
        kernel=f"{module}.{kernel.metadata.name.lstrip('_')}",
        capability=capability,
        registers=used["REG"],
        spilled=used["STACK"] + used["LOCAL"],
        shared=kernel.metadata.shared,
        warps=kernel.metadata.num_warps,
    )


def train(model: ModelConfig, *, r_drop: float) -> None:
    """Run one update on a few tokens, in bfloat16."""
    config = TrainConfig(steps=1, warmup=1, r_drop=r_drop, precision="bfloat16", kernels="on", device="cpu", clip_norm=1.0)
    layout = PackLayout(TOKENS, TOKENS, VOCAB_SIZE, VOCAB_SIZE, model.pad_id, 2 if r_drop else 1)
    learner = FusedLearner(model, config, torch.device("cpu"), layout)
    rows = Ragged.of([[model.pad_id + 5] * (TOKENS // 3)] * 2)
    learner.update([(0, layout.pack(Pairs(rows, rows)))], Totals(torch.device("cpu")))


def decode(model: ModelConfig, *, width: int) -> None:
    """Run the attention of one step, in float32."""
    heads, d_head = model.num_heads, model.d_head
    q, k, v = torch.zeros(3, 2, width, heads, d_head).transpose(2, 3).unbind(0)
    keys, values = torch.zeros(2, 2, TOKENS * width, heads, d_head).unbind(0)
    ancestry = torch.zeros(2, width, TOKENS * width, dtype=torch.bool)
    lengths = torch.zeros(2, dtype=torch.long)
    attend_to_past(q, k, v, keys, values, ancestry=ancestry, lengths=lengths)
    attend_to_source(q, keys, values, lengths=lengths)


def measured(presets: Sequence[str], capability: int) -> list[Resources]:
    """Return the resources of every launch of every kernel, once for each compiled form."""
    with compiling(capability) as compiled:
        for preset in presets:
            sizes = ModelConfig.preset(preset, vocab_size=VOCAB_SIZE)
            one_layer = {"encoder_layers": 1, "decoder_layers": 1, "dropout": 0.1, "embedding_dropout": 0.1}
            for changes in ({"norm": "post"}, {"norm": "pre"}, {"dropout": 0.0, "embedding_dropout": 0.0}):
                train(ModelConfig(**vars(sizes) | one_layer | changes), r_drop=0.0)
            train(ModelConfig(**vars(sizes) | one_layer), r_drop=1.0)
            for width in (1, 4, 5, 8):
                decode(sizes, width=width)
    return [resources(kernel, capability) for kernel in compiled.values()]


def worst(found: Sequence[Resources]) -> list[Resources]:
    """Return for each kernel and GPU the launch with the least occupancy, kernels that spill first."""
    by_kernel: dict[tuple[str, int], Resources] = {}
    for one in sorted(found, key=lambda one: (-one.spilled, one.occupancy)):
        by_kernel.setdefault((one.kernel, one.capability), one)
    return [by_kernel[key] for key in sorted(by_kernel)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--presets", nargs="+", default=["small", "base", "big"])
    parser.add_argument("--capabilities", nargs="+", type=int, default=[80, 90], choices=sorted(SHARED))
    options = parser.parse_args()
    found = worst([one for capability in options.capabilities for one in measured(options.presets, capability)])
    print(f"{'kernel':<32} {'GPU':<7} registers  spilled bytes  shared KiB  warps  fills")
    for one in found:
        numbers = f"{one.registers:9}  {one.spilled:13}  {one.shared / 1024:10.1f}  {one.warps:5}  {one.occupancy:5.0%}"
        print(f"{one.kernel:<32} sm_{one.capability:<4} {numbers}")
    if problems := [one.kernel for one in found if not one.fits]:
        sys.exit(f"these do not fit: {', '.join(problems)}")


if __name__ == "__main__":
    main()
