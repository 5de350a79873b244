"""Defines `regard demo` and `regard doctor`."""

from pathlib import Path
from typing import Annotated

import typer
from typer import Option

PORT = 8000


def demo(
    output: Annotated[Path, Option("--output", "-o", help="the run's folder")] = Path("runs/demo"),
    minutes: Annotated[float | None, Option(min=0.01, help="minutes of training; default 4", show_default=False)] = None,
    no_serve: Annotated[bool, Option("--no-serve", help="do not serve the page afterwards")] = False,
    seed: Annotated[int | None, Option(min=0, help="random seed; default 1")] = None,
    device: Annotated[str | None, Option(help="cpu, cuda or mps; default: cuda if there is one")] = None,
) -> None:
    """Train a German-English translator on the 40,000 sentence pairs that come with regard, and evaluate it.

    Afterwards, serve a page that shows the model's computations, until Ctrl-C. Nothing is downloaded. Training can be
    interrupted at any time; the same command resumes it.

    \b
    Examples:
      regard demo
      regard demo --minutes 1 -o runs/quick --no-serve
    """
    from regard.demo.command import DemoSettings, run

    run(DemoSettings(folder=output, minutes=minutes, seed=seed, device=device))
    if not no_serve:
        _serve(output, device or "auto")


def _serve(run: Path, device: str) -> None:
    """Serve the page until Ctrl-C, on another port if the default one is taken."""
    from regard.errors import missing_packages
    from regard.serve.command import PACKAGES, is_free, serve
    from regard.serve.settings import ServeSettings

    if missing := missing_packages("the page that looks inside", *PACKAGES):
        print(f"({missing})")
        return
    serve(ServeSettings(runs=(run,), port=PORT if is_free("127.0.0.1", PORT) else 0, device=device))


def doctor(
    json: Annotated[bool, Option("--json", help="print JSON")] = False,
) -> None:
    """Describe the machine, devices and versions that regard finds, their peak speed, and problems (exit code 1 if any).

    \b
    Example:
      regard doctor
    """
    from regard.bench.doctor import as_json, examine, print_findings

    findings = examine()
    if json:
        print(as_json(findings))
    else:
        print_findings(findings)
    raise typer.Exit(1 if findings.problems else 0)
