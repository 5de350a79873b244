"""Measures speeds in interleaved rounds, and reports them as a table and as JSON."""

import json
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from regard.errors import UserError


@dataclass(frozen=True)
class Speed:
    """Target tokens per second, one number for each round."""

    name: str
    rounds: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.rounds)

    @property
    def in_words(self) -> tuple[str, str]:
        """Return the median, and the slowest and fastest round."""
        return f"{self.median:,.0f}", f"{min(self.rounds):,.0f}–{max(self.rounds):,.0f}"


def interleaved_rounds(names: Sequence[str], num_rounds: int) -> Iterator[tuple[int, str]]:
    """Yield every name in each round, so that disturbances of the machine affect all alike. Round 0 is a warm-up."""
    stderr = Console(stderr=True)
    with Progress(console=stderr, transient=True, disable=not stderr.is_terminal) as progress:
        task = progress.add_task("warming up", total=len(names) * (num_rounds + 1))
        for turn in range(num_rounds + 1):
            for name in names:
                label = f"round {turn} of {num_rounds}" if turn else "warming up"
                progress.update(task, description=f"{label}: {name}")
                yield turn, name
                progress.advance(task)


def table_of(title: str, first: str, *headings: str) -> Table:
    """Return an empty table of names and numbers."""
    table = Table(title=title, title_justify="left")
    table.add_column(first, no_wrap=True)
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    return table


def require_folder_of(path: Path | None) -> None:
    if path is not None and not path.parent.is_dir():
        raise UserError(f"there is no folder {path.parent} to write {path.name} into")


def write_report(path: Path | None, report: dict[str, Any]) -> None:
    if path is not None:
        path.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
