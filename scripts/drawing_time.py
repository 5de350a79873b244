"""Measure how long the page takes to draw every encoder head of a sentence of 32 positions.

python scripts/drawing_time.py RUN --sentences dev.ja
"""

import shutil
import statistics
from pathlib import Path
from typing import Annotated
from urllib.parse import urlencode

import typer
from playwright.sync_api import sync_playwright

import regard
from regard.text.corpus import read_lines
from scripts.load import serving

PLACES = 32  # including the end sign
TIMES = 10
# The model's answer is cached; only drawing is timed. A second frame begins once the first was painted.
CLICK = """() => new Promise(done => {
  const [html, tabs] = [document.documentElement, document.querySelectorAll("[role=tab]")];
  const drawn = html.dataset.drawn;
  const began = performance.now();
  tabs[5].click();
  const look = () => html.dataset.drawn === drawn ? requestAnimationFrame(look)
    : requestAnimationFrame(() => done(performance.now() - began));
  look();
})"""


def main(
    run: Annotated[Path, typer.Argument(help="a run's folder; of base size it has 48 heads in the encoder")],
    sentences: Annotated[str, typer.Option(help="a file of source text, for a sentence of the right length")],
) -> None:
    translator = regard.load(run)
    encoded = ((line, translator.tokenizer.src.encode([line])[0]) for line in read_lines(sentences))
    text = next((line for line, ids in encoded if len(ids) + 1 == PLACES), None)
    if text is None:
        raise ValueError(f"{sentences} has no sentence of {PLACES - 1} subwords")
    with serving(str(run)) as port, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.goto(f"http://127.0.0.1:{port}/#{urlencode({'view': 'heads', 'site': 'encoder', 'text': text})}")
        page.wait_for_selector("#view[data-view=heads] canvas")
        seconds = []
        for _ in range(TIMES):
            page.click("[role=tab] >> nth=2")
            page.wait_for_selector("#view[data-view=subwords] .body")
            seconds.append(page.evaluate(CLICK))
        heads = page.locator("#view .head canvas").count()
        browser.close()
    print(f"{heads} heads of {PLACES} × {PLACES}: median {statistics.median(seconds):.0f} ms, longest {max(seconds):.0f} ms")


if __name__ == "__main__":
    typer.run(main)
