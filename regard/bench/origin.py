"""Describes the origin of a measurement: machine, versions, date and commit."""

import platform
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import torch

import regard


def origin(device: torch.device) -> str:
    """Return a line such as `NVIDIA H200, torch 2.11.0+cu130; 2026-11-19, regard 0.1.0, commit 9ba5254`."""
    commit = commit_of(Path(regard.__file__).parents[1])
    code = f"regard {regard.__version__}" + (f", commit {commit}" if commit else "")
    return f"{machine(device)}; {datetime.now(UTC):%Y-%m-%d}, {code}"


def machine(device: torch.device) -> str:
    if device.type == "cuda":
        return f"{torch.cuda.get_device_name(device)}, torch {torch.__version__}"
    return f"{platform.machine()} CPU, {torch.get_num_threads()} threads, torch {torch.__version__}"


def commit_of(folder: Path) -> str:
    """Return the commit of a checkout, with a + if its files have changed. Return "" elsewhere, and without git."""
    if not (folder / ".git").exists():
        return ""
    try:
        commit, changes = (
            subprocess.run(["git", "-C", folder, *words], capture_output=True, text=True, check=True).stdout.strip()
            for words in (["rev-parse", "--short", "HEAD"], ["status", "--porcelain", "--untracked-files=no"])
        )
    except (OSError, subprocess.CalledProcessError):
        return ""
    return f"{commit}+" if changes else commit
