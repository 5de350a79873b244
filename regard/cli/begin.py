"""The commands of a first meeting. Nothing is imported before a command needs it."""

from pathlib import Path
from typing import Annotated

import typer


def demo(
    output: Annotated[Path, typer.Option("--output", "-o", help="the run's folder")] = Path("runs/demo"),
    minutes: Annotated[float | None, typer.Option(min=0.01, help="of training; default 4", show_default=False)] = None,
    no_serve: Annotated[bool, typer.Option("--no-serve", help="do not serve the page in the end")] = False,
    seed: Annotated[int | None, typer.Option(min=0, help="of first values, order and dropout; default 1")] = None,
    device: Annotated[str | None, typer.Option(help="cpu, cuda or mps; default: cuda where there is one")] = None,
) -> None:
    """Train a German-English translator on the 40,000 sentence pairs that come with regard, measure it, and look at it.

    Then the page that looks inside is served, until Ctrl-C. Nothing is downloaded. Ctrl-C is safe at any moment: the same
    command goes on where it stopped.

    \b
    Examples:
      regard demo
      regard demo --minutes 1 -o runs/quick --no-serve
    """
    from regard.demo.command import DemoSettings, run

    run(DemoSettings(folder=output, minutes=minutes, serve=not no_serve, seed=seed, device=device))


def doctor(
    json: Annotated[bool, typer.Option("--json", help="as JSON")] = False,
) -> None:
    """Say what machine, devices and versions regard finds here, how fast they are at best, and whether anything is wrong
    (exit code 1 if so).

    \b
    Example:
      regard doctor
    """
    from regard.doctor import as_json, examine, print_findings

    findings = examine()
    if json:
        print(as_json(findings))
    else:
        print_findings(findings)
    raise typer.Exit(1 if findings.problems else 0)
