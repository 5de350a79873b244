"""Draw the loss and BLEU of several runs on the validation text against seconds of training, or updates.

    python scripts/curves.py runs/one runs/other -o docs/pictures/curves.svg
    python scripts/curves.py runs/one runs/other --by updates -o docs/pictures/curves.svg

Seconds include updates, validations and checkpoints, as recorded in each run's timing.jsonl; use updates for runs that
shared their machine. Runs are labelled by their folders, or by --names.
"""

import argparse
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np

from regard.errors import UserError
from regard.pages.charts import ticks
from regard.run.checkpoint import Run
from regard.run.metrics import read_lines
from scripts.pictures import Drawing

COLOURS = ("#134ea8", "#be2828", "#2a8a3e", "#b8860b", "#7a3fa0", "#1f9aa8", "#888888", "#d2691e")
LABELS = {"seconds": "seconds of training", "updates": "updates"}
LEFT, ABOVE, WIDTH, HEIGHT, GAP = 60.0, 26.0, 400.0, 240.0, 56.0

Points = list[tuple[float, float]]


def read_run(folder: Path) -> Run:
    run = Run(folder)
    run.read_config()  # raises if the folder is not a run
    for path in (run.metrics_path, run.timing_path):
        if not path.exists():
            raise UserError(f"{folder} has no {path.name}, in which its curves would be")
    return run


def curve(run: Run, name: str, by: str = "seconds") -> Points:
    """Return (seconds or updates, value) of a number in metrics.jsonl. Times between two known steps are interpolated."""
    found: list[dict[str, Any]] = [line for line in read_lines(run.metrics_path) if name in line]
    if by == "updates":
        return [(float(line["step"]), float(line[name])) for line in found]
    timing = read_lines(run.timing_path)
    times = accumulate(sum(value for key, value in line.items() if key.endswith("seconds")) for line in timing)
    at_step: dict[int, float] = {0: 0.0} | {line["step"]: time for line, time in zip(timing, times, strict=True)}
    seconds = np.interp([line["step"] for line in found], list(at_step), list(at_step.values()))
    return [(float(second), float(line[name])) for second, line in zip(seconds, found, strict=True)]


def draw_panel(drawing: Drawing, x: float, label: str, curves: Sequence[Points], by: str) -> None:
    """Draw one panel of several curves, scaled from their least to their greatest value."""
    points = [point for one in curves for point in one]
    if not points:
        drawing.text(x + LEFT, ABOVE + HEIGHT / 2, f"no {label}")
        return
    furthest = max(second for second, _ in points) or 1.0
    values = [value for _, value in points]
    low, high = min(values), max(values)
    low, high = (0.0 if low <= 0.5 * high else low, high) if low != high else (low - 0.5, high + 0.5)

    def place(second: float, value: float) -> tuple[float, float]:
        return x + LEFT + WIDTH * second / furthest, ABOVE + HEIGHT * (1 - (value - low) / (high - low))

    for tick in ticks(low, high):
        drawing.line([place(0.0, tick), place(furthest, tick)], "#ddd", 1)
        drawing.text(x + LEFT - 8, place(0.0, tick)[1] + 4, f"{tick:g}", size=12, anchor="end")
    for tick in ticks(0.0, furthest):
        drawing.text(place(tick, low)[0], ABOVE + HEIGHT + 18, f"{tick:,.0f}", size=12, anchor="middle")
    drawing.text(x + LEFT + WIDTH / 2, ABOVE + HEIGHT + 38, LABELS[by], size=12, anchor="middle")
    drawing.text(x + LEFT, ABOVE - 9, label, size=12)
    for number, one in enumerate(curves):
        drawing.line([place(*point) for point in one], COLOURS[number % len(COLOURS)], 2)


def draw(path: Path, runs: Sequence[Run], names: Sequence[str], by: str) -> None:
    panels = {"validation loss, nats a token": "valid_nll", "validation BLEU, greedy": "valid_bleu"}
    below = ABOVE + HEIGHT + 52
    drawing = Drawing(len(panels) * (LEFT + WIDTH) + GAP, below + 20 * len(runs) + 8)
    for number, (label, name) in enumerate(panels.items()):
        draw_panel(drawing, number * (LEFT + WIDTH + GAP / 2), label, [curve(run, name, by) for run in runs], by)
    for number, name in enumerate(names):
        y = below + 20 * number + 8
        drawing.line([(LEFT, y), (LEFT + 24, y)], COLOURS[number % len(COLOURS)], 3)
        drawing.text(LEFT + 32, y + 4, name)
    drawing.save(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+")
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--names", nargs="+", help="labels, one for each run")
    parser.add_argument("--by", choices=LABELS, default="seconds", help="horizontal axis")
    options = parser.parse_args()
    names = options.names or [run.resolve().name for run in options.runs]
    if len(names) != len(options.runs):
        parser.error(f"there are {len(names)} names for {len(options.runs)} runs")
    try:
        draw(options.output, [read_run(folder) for folder in options.runs], names, options.by)
    except UserError as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
