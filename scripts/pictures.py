"""Draw the pictures of README.md and docs/ from a trained run.

    regard demo --no-serve
    python scripts/pictures.py runs/demo -o docs/pictures

Each is an SVG made from numbers that the model computed; none is drawn by hand. (training.png is the run's own training.html
in a browser: chromium --headless --window-size=1300,1000 --screenshot.)
"""

import argparse
from collections.abc import Sequence
from html import escape
from pathlib import Path

import torch
from torch import Tensor

import regard
from regard.data.batch import collate
from regard.model.attention import causal_mask
from regard.model.embedding import sinusoids
from regard.model.trace import Trace
from regard.pages.charts import NUM_SHADES, shades, ticks
from regard.run.checkpoint import Run
from regard.run.metrics import read_lines
from regard.text.tokenizer import SPACE
from regard.train.schedule import learning_rate, paper_peak
from regard.translate.alignment import place_for

SENTENCE = "Die meisten Japaner essen jeden Tag Reis."
END = "</s>"
WHITE, BLUE, RED = (255, 255, 255), (19, 78, 168), (190, 40, 40)


class Drawing:
    """An SVG picture with a white background, so that it can be read on any page."""

    def __init__(self, width: float, height: float) -> None:
        self.width, self.height = width, height
        self._elements: list[str] = []

    def text(
        self, x: float, y: float, words: str, *, size: int = 13, anchor: str = "start", colour: str = "#222", angle: int = 0
    ) -> None:
        turn = f' transform="rotate({angle} {x:g} {y:g})"' if angle else ""
        style = f'font-size="{size}" text-anchor="{anchor}" fill="{colour}"'
        self._elements.append(f'<text x="{x:g}" y="{y:g}" {style}{turn}>{escape(words)}</text>')

    def line(self, points: Sequence[tuple[float, float]], colour: str, width: float = 1.5) -> None:
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        self._elements.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="{width:g}"/>')

    def heat_map(self, x: float, y: float, values: Tensor, cell: tuple[float, float], *, most: float) -> None:
        """Draw rows downwards; white is 0, blue `most`, red -`most`."""
        for level, path in shades(values.tolist(), x, y, cell, most).items():
            self._elements.append(f'<path fill="{_colour(level / NUM_SHADES)}" d="{path}"/>')
        width, height = cell
        rows, columns = values.shape
        frame = f'x="{x:g}" y="{y:g}" width="{columns * width:g}" height="{rows * height:g}"'
        self._elements.append(f'<rect {frame} fill="none" stroke="#888" stroke-width="0.6"/>')

    def save(self, path: Path) -> None:
        head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width:g} {self.height:g}" width="{self.width:g}"'
        style = 'font-family="system-ui, sans-serif" fill="#222"'
        body = "\n".join([f'<rect width="{self.width:g}" height="{self.height:g}" fill="#fff"/>', *self._elements])
        path.write_text(f"{head} {style}>\n{body}\n</svg>\n", encoding="utf-8")


def _colour(share: float) -> str:
    end = BLUE if share > 0 else RED
    return "#" + "".join(f"{round(a + (b - a) * abs(share)):02x}" for a, b in zip(WHITE, end, strict=True))


def traced(translator: regard.Translator, sentence: str) -> tuple[list[str], list[str], Trace]:
    """Return the pieces of the source and of its translation, and the traced pass over both."""
    [translation] = translator.translate([sentence])
    src, tgt = translator.tokenizer.src, translator.tokenizer.tgt
    [src_ids] = src.encode([sentence])
    batch = collate([src_ids], [tgt.ids(list(translation.pieces))])
    [model] = translator.models
    trace = model.trace(batch.src, batch.tgt_in)
    return [*map(_shown, src.pieces(src_ids)), END], [*map(_shown, translation.pieces), END], trace


def _shown(piece: str) -> str:
    """Return a piece without its word marker, or with a leading dash if it does not begin a word."""
    return piece.removeprefix(SPACE) if piece.startswith(SPACE) and piece != SPACE else f"-{piece}"


def attention(path: Path, src: list[str], tgt: list[str], trace: Trace) -> None:
    """Draw the attention weights of each target subword over the source, in the layer that alignments are read from."""
    layer = place_for(len(trace.decoder.cross_attention)).layer
    weights = trace.decoder.cross_attention[layer].weights[0].mean(0)  # (T, S), mean over heads
    left, top, cell = 110, 100, 44
    drawing = Drawing(left + cell * len(src) + 60, top + cell * len(tgt) + 16)
    drawing.heat_map(left, top, weights, (cell, cell), most=float(weights.max()))
    for column, piece in enumerate(src):
        drawing.text(left + (column + 0.45) * cell, top - 8, piece, size=15, angle=-45)
    for row, piece in enumerate(tgt):
        drawing.text(left - 8, top + (row + 0.62) * cell, piece, size=15, anchor="end")
        for column, weight in enumerate(weights[row].tolist()):
            if weight >= 0.1:
                shade = "#fff" if weight > 0.5 * float(weights.max()) else "#222"
                x, y = left + (column + 0.5) * cell, top + (row + 0.6) * cell
                drawing.text(x, y, f"{100 * weight:.0f}", size=12, anchor="middle", colour=shade)
    drawing.save(path)


def heads(path: Path, trace: Trace) -> None:
    """Draw every head of the model on one sentence."""
    rows = [
        (f"{name}, layer {number + 1}", one)
        for name, layers in (
            ("encoder", trace.encoder.self_attention),
            ("decoder", trace.decoder.self_attention),
            ("cross", trace.decoder.cross_attention),
        )
        for number, one in enumerate(layers)
    ]
    size, gap, left = 96, 14, 120
    num_heads = rows[0][1].weights.shape[1]
    drawing = Drawing(left + num_heads * (size + gap), 30 + len(rows) * (size + gap))
    for head in range(num_heads):
        drawing.text(left + head * (size + gap) + size / 2, 20, f"head {head + 1}", anchor="middle")
    for row, (name, one) in enumerate(rows):
        y = 30 + row * (size + gap)
        drawing.text(left - 10, y + size / 2 + 4, name, anchor="end")
        for head in range(num_heads):
            weights = one.weights[0, head]
            cell = (size / weights.shape[1], size / weights.shape[0])
            drawing.heat_map(left + head * (size + gap), y, weights, cell, most=1.0)
    drawing.save(path)


def positions(path: Path) -> None:
    """Draw the sinusoids of section 3.5 for 50 positions and 128 dimensions."""
    values = sinusoids(50, 128)
    left, top, cell = 46, 10, (6, 6)
    drawing = Drawing(left + 128 * 6 + 10, top + 50 * 6 + 40)
    drawing.heat_map(left, top, values, cell, most=1.0)
    for position in (0, 10, 20, 30, 40):
        drawing.text(left - 8, top + position * 6 + 10, str(position), anchor="end", size=12)
    for dimension in (0, 32, 64, 96, 127):
        drawing.text(left + dimension * 6, top + 50 * 6 + 16, str(dimension), size=12, anchor="middle")
    drawing.text(left + 64 * 6, top + 50 * 6 + 34, "dimension", size=12, anchor="middle")
    drawing.save(path)


def masks(path: Path, tgt: list[str]) -> None:
    """Draw the causal and padding masks: blue positions may be attended to."""
    length, cell, padded = len(tgt), 26, 3
    causal = causal_mask(length, length)[0, 0]
    padding = torch.cat([torch.ones(length, length - padded), torch.zeros(length, padded)], dim=1).bool()
    gap, top = 70, 34
    drawing = Drawing(3 * (length * cell + gap), top + length * cell + 16)
    for number, (name, mask) in enumerate(
        (("causal", causal), (f"padding (the last {padded} are none)", padding), ("both", causal & padding))
    ):
        x = 20 + number * (length * cell + gap)
        drawing.text(x, 20, name, size=14)
        drawing.heat_map(x, top, mask.float() * 0.8, (cell, cell), most=1.0)
        for line in range(1, length):
            drawing.line([(x + line * cell, top), (x + line * cell, top + length * cell)], "#ccc", 0.6)
            drawing.line([(x, top + line * cell), (x + length * cell, top + line * cell)], "#ccc", 0.6)
    drawing.save(path)


def curves(
    path: Path, lines: Sequence[tuple[str, Sequence[tuple[float, float]], str]], labels: tuple[str, str], *, digits: int
) -> None:
    """Draw lines over steps, with axes that begin at 0."""
    left, top, width, height = 70, 16, 560, 240
    furthest = max(x for _, points, _ in lines for x, _ in points)
    highest = max(y for _, points, _ in lines for _, y in points)
    drawing = Drawing(left + width + 30, top + height + 44)
    for tick in ticks(0.0, highest):
        y = top + height * (1 - tick / highest)
        drawing.line([(left, y), (left + width, y)], "#ddd", 1)
        drawing.text(left - 8, y + 4, f"{tick:.{digits}f}", size=12, anchor="end")
    for tick in ticks(0.0, furthest):
        drawing.text(left + width * tick / furthest, top + height + 18, f"{tick:,.0f}", size=12, anchor="middle")
    drawing.text(left + width / 2, top + height + 38, labels[0], size=12, anchor="middle")
    drawing.text(left, top - 3, labels[1], size=12)
    for number, (name, points, colour) in enumerate(lines):
        drawing.line([(left + width * x / furthest, top + height * (1 - y / highest)) for x, y in points], colour, 2)
        if len(lines) > 1:
            x, y = left + width - 200, top + 24 + 20 * number
            drawing.line([(x, y), (x + 24, y)], colour, 3)
            drawing.text(x + 32, y + 4, name)
    drawing.save(path)


def schedules(path: Path) -> None:
    """Draw equation 3 for the paper's base model, with three warm-ups."""
    steps, blue = 20_000, ("#134ea8", "#5b8fdc", "#a9c5ef")
    lines = []
    for warmup, colour in zip((2000, 4000, 8000), blue, strict=True):
        peak = paper_peak(512, warmup)
        rates = [
            (float(step), 1000 * learning_rate(step, schedule="inverse_sqrt", peak=peak, warmup=warmup, steps=steps))
            for step in range(50, steps + 1, 50)
        ]
        lines.append((f"warmup {warmup:,}", rates, colour))
    curves(path, lines, ("step", "learning rate · 1000"), digits=2)


def learning(path: Path, run: Path) -> None:
    """Draw the loss of a run during training."""
    metrics = read_lines(Run(run).metrics_path)
    train = [(float(line["step"]), float(line["nll"])) for line in metrics if "nll" in line]
    valid = [(float(line["step"]), float(line["valid_nll"])) for line in metrics if "valid_nll" in line]
    lines = [("training text", train, "#5b8fdc"), ("validation text", valid, "#be2828")]
    curves(path, lines, ("step", "loss, nats a token"), digits=1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--sentence", default=SENTENCE)
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    translator = regard.load(options.run, device="cpu")
    src, tgt, trace = traced(translator, options.sentence)
    print(" ".join(src), "→", " ".join(tgt))
    attention(options.output / "attention.svg", src, tgt, trace)
    heads(options.output / "heads.svg", trace)
    positions(options.output / "positions.svg")
    masks(options.output / "masks.svg", tgt)
    schedules(options.output / "schedule.svg")
    learning(options.output / "learning.svg", options.run)


if __name__ == "__main__":
    main()
