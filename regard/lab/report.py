"""The lab on a terminal: the list of experiments, and what they found. Consoles are without markup: [a, a, 2a] is none."""

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table as Grid
from rich.text import Text

from regard.lab.charts import number
from regard.lab.experiment import Experiment
from regard.lab.finding import VERDICTS, Cell, Finding, Language, Table, Words

COLOURS = {"held": "green", "did not hold": "red", "no difference found": "yellow", "measured": "cyan"}


def shown(cell: Cell, language: Language) -> str:
    if isinstance(cell, Words):
        return cell.text(language)
    if isinstance(cell, str):
        return cell
    return f"{cell:,}" if isinstance(cell, int) else number(cell)


def is_number(cell: Cell) -> bool:
    """Percentages are, too, though they are text."""
    return isinstance(cell, int | float) or (isinstance(cell, str) and cell.replace(".", "").rstrip("%").isdigit())


def duration(seconds: float) -> str:
    return number(seconds) if seconds >= 0.01 else "< 0.01"


def claims_in_words(claims: Sequence[str]) -> Words:
    """M17 is a claim; 002 alone is the note that says what none of the numbered claims does."""
    en = ", ".join(f"note {claim}" if claim.isdigit() else claim for claim in claims)
    return Words(en, en.replace("note", "笔记").replace(", ", "、"))


def _verdict(finding: Finding, language: Language) -> Text:
    return Text(VERDICTS[finding.verdict].text(language), COLOURS[finding.verdict])


def print_list(experiments: Sequence[Experiment], console: Console, language: Language) -> None:
    heads = (Words("experiment", "实验"), Words("claims", "论断"), Words("seconds", "秒"), Words("what it looks at", "内容"))
    grid = Grid(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for at, head in enumerate(heads):
        grid.add_column(head.text(language), justify="right" if at == 2 else "left", no_wrap=at == 0)
    for one in experiments:
        claims = claims_in_words(one.claims).text(language)
        grid.add_row(one.name, claims, f"{one.seconds:g}", one.about.text(language))
    console.print(grid)
    after = Words(
        "`regard lab NAME` runs one, `regard lab all -o lab.html` runs all of them and writes a page",
        "`regard lab 名称` 运行一个实验；`regard lab all -o lab.html` 运行全部并写出网页",
    )
    console.print(f"\n{after.text(language)}", soft_wrap=True)


def print_finding(finding: Finding, console: Console, language: Language) -> None:
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
        details.insert(0, Words("seeds", "种子").text(language) + " " + ", ".join(map(str, finding.seeds)))
    console.print(" · ".join(details), style="dim")


def _grid(table: Table, language: Language) -> Grid:
    grid = Grid(title=table.title.text(language), title_justify="left", title_style="", header_style="")
    for at, column in enumerate(table.columns):
        numbers = all(is_number(row[at]) for row in table.rows)
        grid.add_column(column.text(language), justify="right" if numbers else "left")
    for row in table.rows:
        grid.add_row(*(shown(cell, language) for cell in row))
    return grid


def print_summary(findings: Sequence[Finding], console: Console, language: Language) -> None:
    grid = Grid(box=None, padding=(0, 2, 0, 0), show_header=False)
    for one in findings:
        claims = claims_in_words(one.claims).text(language)
        grid.add_row(one.name, claims, _verdict(one, language), one.title.text(language))
    console.print(grid)
