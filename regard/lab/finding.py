"""Defines findings: the result of an experiment in words of two languages, tables and charts, stored as JSON."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from regard.errors import UserError
from regard.pages.charts import Chart, Words
from regard.settings import read_table, to_table

# held, did not hold: the numbers agree or disagree with the claim, by a threshold that `outcome` states.
# no difference found: the difference is smaller than the spread over seeds. measured: there was nothing to decide.
Verdict = Literal["held", "did not hold", "no difference found", "measured"]

TableCell = str | int | float | Words  # a string is the same in both languages


@dataclass(frozen=True)
class FindingTable:
    title: Words
    columns: tuple[Words, ...]
    rows: tuple[tuple[TableCell, ...], ...]

    def __post_init__(self) -> None:
        assert all(len(row) == len(self.columns) for row in self.rows), f"{self.title.en!r}: a row does not fit its columns"


@dataclass(frozen=True)
class Finding:
    name: str  # of the experiment, as `regard lab NAME` takes it
    claims: tuple[str, ...]  # their numbers, M17
    title: Words
    claim: Words  # what the notes say
    verdict: Verdict
    outcome: Words  # one to four sentences with numbers
    tables: tuple[FindingTable, ...] = ()
    charts: tuple[Chart, ...] = ()
    seeds: tuple[int, ...] = ()  # empty: nothing was drawn at random
    # `lab.experiment.performed` fills these in.
    seconds: float = 0.0
    command: str = ""
    machine: str = ""
    date: str = ""


def to_json(findings: Sequence[Finding]) -> str:
    """Return the findings as JSON."""
    return json.dumps(to_table(_File(tuple(findings))), ensure_ascii=False, allow_nan=False, indent=1)


def from_json(text: str) -> tuple[Finding, ...]:
    """Read what `to_json` wrote; raise a UserError for anything else."""
    try:
        return read_table(_File, json.loads(text)).findings
    except (json.JSONDecodeError, RecursionError) as error:
        raise UserError(f"this is not JSON: {error}") from error
    except AssertionError as error:
        raise UserError(str(error)) from error


@dataclass(frozen=True)
class _File:
    findings: tuple[Finding, ...]
