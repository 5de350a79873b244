"""Checks of whether a device runs our kernels, and whether these train a model and serve a step of decoding."""

import os
from functools import cache
from importlib.util import find_spec

import torch

from regard.config import ModelConfig

OLDEST_GPU = (8, 0)  # the first whose matrix units support bfloat16
HEAD_SIZES = (16, 32, 64, 128)
DECODED_TYPES = (torch.float32, torch.bfloat16, torch.float16)
MOST_BEAMS = 8


@cache
def runs_kernels(device: torch.device) -> bool:
    """Return whether a device runs the kernels: an NVIDIA GPU of compute capability 8.0 or newer on which Triton can
    compile a small kernel (it needs a C compiler), or, for tests, a CPU with Triton's interpreter, which is slow."""
    if find_spec("triton") is None:
        return False
    if device.type != "cuda":
        return device.type == "cpu" and os.environ.get("TRITON_INTERPRET") == "1"
    if torch.version.hip or torch.cuda.get_device_capability(device) < OLDEST_GPU:
        return False
    from regard.fast.kernels.sums import add_column_sums

    try:
        add_column_sums(torch.ones(1, 8, device=device), torch.zeros(8, device=device))
    except Exception:  # whatever the reason, torch's own kernels run instead
        return False
    return True


def untrained(config: ModelConfig) -> str | None:
    """Return the first property of this model that the packed training pass does not serve, or None if it serves it."""
    reasons = {
        f"models of kind {config.kind}": config.kind != "transformer",
        f"activation {config.activation}": config.activation != "relu",
        "learned positions": config.positions == "learned",
        "an output bias": config.output_bias,
        "dropout on attention weights": config.attention_dropout > 0.0,
        "dropout inside the feed-forward network": config.activation_dropout > 0.0,
        f"ablation {config.ablation}": config.ablation != "none",
        f"heads of {config.d_head}": config.d_head not in HEAD_SIZES,
        f"d_model {config.d_model}": config.d_model % 8 != 0,
    }
    return next((what for what, holds in reasons.items() if holds), None)


def decodes(width: int, d_head: int, dtype: torch.dtype) -> bool:
    """Return whether our own kernels serve this number of beams, size of heads and type of numbers."""
    return width <= MOST_BEAMS and d_head in HEAD_SIZES and dtype in DECODED_TYPES
