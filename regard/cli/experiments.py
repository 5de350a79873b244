"""The command of the lab. Nothing is imported before it needs it."""

from pathlib import Path
from typing import Annotated, Literal

import typer


def lab(
    names: Annotated[list[str] | None, typer.Argument(help="experiments, or all; none: the list of them")] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="write this too, .html or .json; default for all: lab.html")
    ] = None,
    minutes: Annotated[
        float | None, typer.Option(min=0.01, help="for all together; default: as long as it takes", show_default=False)
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="the first of those that an experiment uses")] = 1,
    device: Annotated[str, typer.Option(help="cpu, cuda or mps, for those that measure it")] = "cpu",
    lang: Annotated[Literal["en", "zh"], typer.Option(help="of the terminal, and that the page opens in")] = "en",
    stored: Annotated[
        Path | None,
        typer.Option(help="a folder of findings from other machines, .json; default: docs/lab where there is one"),
    ] = None,
) -> None:
    """Put what the study notes claim to the test: experiments with numbers, pictures and a verdict.

    Without a name, list them. With `all`, run all, the quick ones first, and write one page that needs no network, in
    English and Chinese. Ctrl-C is safe: what is done is written.

    \b
    Examples:
      regard lab
      regard lab causality
      regard lab all --minutes 5 -o lab.html
      regard lab cost-training --device cuda -o docs/lab/cost.json
    """
    from regard.lab.command import LabSettings, run

    run(LabSettings(tuple(names or ()), output, minutes, seed, device, lang, stored))
