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
    data: Annotated[
        Path | None, typer.Option(help="the folder in which the corpora are, multi30k and others, for those that need one")
    ] = None,
    work: Annotated[Path, typer.Option(help="where those keep what they train; a second try goes on from there")] = Path(
        "runs/lab"
    ),
    jobs: Annotated[int, typer.Option(min=1, help="runs that these train at a time")] = 1,
    steps: Annotated[int, typer.Option(min=0, help="updates of each; 0: as the experiment has it")] = 0,
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
      regard lab ablations --data corpora --device cuda --jobs 15 -o docs/lab/ablations.json
    """
    from regard.lab.command import LabSettings, run

    run(LabSettings(tuple(names or ()), output, minutes, seed, device, lang, stored, data, work, jobs, steps))
