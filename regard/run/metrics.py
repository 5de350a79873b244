"""The logs of training: files with one JSON object a line."""

import json
import math
import os
from pathlib import Path
from typing import Any

from regard.errors import UserError


def perplexity(nll: float) -> float:
    return math.exp(min(nll, 700.0))


def append_line(path: Path, line: dict[str, Any]) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line, allow_nan=False) + "\n")


def read_lines(path: Path) -> list[dict[str, Any]]:
    """All complete lines of a log."""
    if not path.exists():
        return []
    try:
        return [json.loads(line) for line in path.read_bytes().decode("utf-8").split("\n")[:-1]]
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{path} is damaged: {error}; restore it, or delete the run and begin anew") from error


def size_on_disk(path: Path) -> int:
    """Flush a log to the disk and return its length."""
    if not path.exists():
        return 0
    with path.open("rb") as file:
        os.fsync(file.fileno())
    return path.stat().st_size


def cut_back(path: Path, size: int, *, is_needed: bool) -> None:
    """Remove what was written to a log after it had this size; raise an error if a log that is needed is shorter."""
    found = path.stat().st_size if path.exists() else 0
    if is_needed and found < size:
        raise UserError(f"{path} has lost lines since it was saved; restore it, or delete the run and begin anew")
    if found > size:
        os.truncate(path, size)
