"""Defines `regard lab`."""

from pathlib import Path
from typing import Annotated, Literal

from typer import Argument, Option


def lab(
    names: Annotated[list[str] | None, Argument(help="names of experiments, or all; default: list them")] = None,
    output: Annotated[
        Path | None, Option("--output", "-o", help="also write this .html or .json file; default for all: lab.html")
    ] = None,
    minutes: Annotated[float | None, Option(min=0.01, help="time limit of all; default: none", show_default=False)] = None,
    seed: Annotated[int, Option(min=0, help="the first random seed")] = 1,
    device: Annotated[str, Option(help="cpu, cuda or mps")] = "cpu",
    lang: Annotated[Literal["en", "zh"], Option(help="language of the terminal, and of the page at first")] = "en",
    stored: Annotated[Path | None, Option(help="folder of stored results, .json; default: docs/lab")] = None,
    data: Annotated[Path | None, Option(help="folder of the corpora (multi30k, …) to train on")] = None,
    work: Annotated[Path, Option(help="folder for trained runs, from which it resumes")] = Path("runs/lab"),
    jobs: Annotated[int, Option(min=1, help="runs to train at a time")] = 1,
    steps: Annotated[int, Option(min=0, help="updates of each run; 0: the experiment's default")] = 0,
) -> None:
    """Run experiments that test claims of study notes on Transformers, with numbers, charts and a verdict.

    Without a name, list the experiments. With `all`, run them, the quick ones first, and write a page in English and
    Chinese. After Ctrl-C, finished experiments are written.

    \b
    Examples:
      regard lab
      regard lab causality
      regard lab all --minutes 5 -o lab.html
      regard lab cost-training --device cuda -o docs/lab/cost.json
      regard lab ablations --data corpora --device cuda --jobs 15 -o docs/lab/ablations.json
    """
    from regard.lab.command import LabSettings, run
    from regard.lab.experiment import Setting

    setting = Setting(seed=seed, device=device, data=data, work=work, jobs=jobs, steps=steps)
    run(LabSettings(tuple(names or ()), output, minutes, lang, stored, setting))
