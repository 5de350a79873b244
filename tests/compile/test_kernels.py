"""Our kernels are compiled for GPUs, though there is none: what the interpreter accepts, a compiler may not.

In a process of its own: in this one, Triton interprets.
"""

import os
import subprocess
import sys

import pytest

# Of the oldest cards they are for, of the card all was measured on, and of small ones, old and new.
CAPABILITIES = ["80", "89", "90", "120"]


@pytest.mark.slow
def test_every_kernel_compiles_for_every_card_and_fits_it() -> None:
    options = ["--presets", "base", "--capabilities", *CAPABILITIES]
    command = [sys.executable, "-m", "scripts.kernel_resources", *options]
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    result = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert result.returncode == 0, result.stderr
    rows = [line.split() for line in result.stdout.splitlines()[1:]]
    kernels = {row[0] for row in rows}
    assert kernels >= {f"attention.{name}" for name in ("forward", "query_gradient", "key_value_gradient")}
    assert kernels >= {"decoding.past", "decoding.source", "adam.update", "embedding.gradient", "cross_entropy.pair_loss"}
    assert {row[1] for row in rows} == {f"sm_{capability}" for capability in CAPABILITIES}
    assert all(int(row[3]) <= 64 for row in rows), f"a kernel keeps in memory what should be in registers:\n{result.stdout}"
