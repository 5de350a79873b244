"""Prints the list of experiments, and findings, on a terminal. Consoles have no markup, because texts have brackets."""

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table as Grid
from rich.text import Text

from regard.lab.experiment import Experiment
from regard.lab.finding import Finding, FindingTable, TableCell
from regard.lab.words import words
from regard.pages.charts import PageLanguage, Words, number

COLOURS = {"held": "green", "did not hold": "red", "no difference found": "yellow", "measured": "cyan"}


def shown(cell: TableCell, language: PageLanguage) -> str:
    if isinstance(cell, Words):
        return cell.text(language)
    if isinstance(cell, str):
        return cell
    return f"{cell:,}" if isinstance(cell, int) else number(cell)


def is_number(cell: TableCell) -> bool:
    """Return whether a cell is a number or a percentage."""
    return isinstance(cell, int | float) or (isinstance(cell, str) and cell.replace(".", "").rstrip("%").isdigit())


def duration(seconds: float) -> str:
    return number(seconds) if seconds >= 0.01 else "< 0.01"


def claims_in_words(claims: Sequence[str]) -> Words:
    """Name the claims. A number such as 002 is that of a note whose statement has no number."""
    note = words("page", "note")
    en, zh = ([f"{text} {claim}" if claim.isdigit() else claim for claim in claims] for text in (note.en, note.zh))
    return Words(", ".join(en), "、".join(zh))


def _verdict(finding: Finding, language: PageLanguage) -> Text:
    return Text(words("verdicts", finding.verdict).text(language), COLOURS[finding.verdict])


def print_list(experiments: Sequence[Experiment], console: Console, language: PageLanguage) -> None:
    grid = Grid(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for at, head in enumerate(("experiment", "claims", "seconds", "about")):
        heading = words("page", head).text(language)
        grid.add_column(heading, justify="right" if at == 2 else "left", no_wrap=at == 0)
    for one in experiments:
        claims = claims_in_words(one.claims).text(language)
        grid.add_row(one.name, claims, f"{one.seconds:g}", words("experiments", one.name, "about").text(language))
    console.print(grid)
    console.print(f"\n{words('page', 'usage').text(language)}", soft_wrap=True)


def print_finding(finding: Finding, console: Console, language: PageLanguage) -> None:
    heading = Text.assemble(
        (f"\n{finding.title.text(language)}: ", "bold"),
        _verdict(finding, language),
        f" ({claims_in_words(finding.claims).text(language)})",
    )
    console.print(heading)
    console.print(finding.claim.text(language), style="italic")
    console.print(finding.outcome.text(language))
    for table in finding.tables:
        console.print(_grid(table, language))
    details = [f"{duration(finding.seconds)} s", finding.machine]
    if finding.seeds:
        details.insert(0, words("page", "seeds").text(language) + " " + ", ".join(map(str, finding.seeds)))
    console.print(" · ".join(details), style="dim")


def _grid(table: FindingTable, language: PageLanguage) -> Grid:
    grid = Grid(title=table.title.text(language), title_justify="left", title_style="", header_style="")
    for at, column in enumerate(table.columns):
        numbers = all(is_number(row[at]) for row in table.rows)
        grid.add_column(column.text(language), justify="right" if numbers else "left")
    for row in table.rows:
        grid.add_row(*(shown(cell, language) for cell in row))
    return grid


def print_summary(findings: Sequence[Finding], console: Console, language: PageLanguage) -> None:
    grid = Grid(box=None, padding=(0, 2, 0, 0), show_header=False)
    for one in findings:
        claims = claims_in_words(one.claims).text(language)
        grid.add_row(one.name, claims, _verdict(one, language), one.title.text(language))
    console.print(grid)
