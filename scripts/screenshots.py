"""Take the pictures of the studio in docs/ from `regard serve` in Chromium.

python scripts/screenshots.py runs/demo
python scripts/screenshots.py runs/rnn
"""

import shutil
from pathlib import Path
from typing import Annotated
from urllib.parse import urlencode

import typer
from playwright.sync_api import Page, sync_playwright

from regard.config import ModelKind
from regard.run.checkpoint import Run
from scripts.load import serving

DOCS = Path(__file__).parents[1] / "docs" / "pictures"
TEXT = "Die meisten Japaner essen jeden Tag Reis."
# File name, window width, and the contents of the window.
PICTURES: tuple[tuple[str, int, dict[str, str]], ...] = (
    ("translate", 1280, {"view": "translate", "place": "1"}),
    ("map", 1280, {"view": "map", "block": "cross.decoder"}),
    ("subwords", 1280, {"view": "subwords", "word": "2"}),
    ("positions", 1280, {"view": "positions", "positions": "off"}),
    ("masks", 1280, {"view": "masks", "causal": "off"}),
    ("heads", 1280, {"view": "heads", "head": "1", "tried": "yes"}),
    ("head", 1280, {"view": "head", "head": "1", "query": "2"}),
    ("decoding", 1280, {"view": "decoding", "step": "1", "reference": "Most people in Japan eat rice every day."}),
    ("beam", 1280, {"view": "beam"}),
    ("residual", 1280, {"view": "residual"}),
    ("training", 1280, {"view": "training"}),
    ("heads-dark", 1280, {"view": "heads", "site": "encoder", "theme": "dark"}),
    ("translate-zh", 1280, {"view": "translate", "lang": "zh", "theme": "dark", "place": "1"}),
    ("beam-narrow", 400, {"view": "beam", "lang": "zh"}),
)
SHORT = "Ich weiß nicht, was ich tun soll."
PICTURES_OF: dict[ModelKind, tuple[tuple[str, int, dict[str, str]], ...]] = {
    "transformer": PICTURES,
    "rnn": (("map-rnn", 1280, {"view": "map", "text": SHORT}),),
    "rnn-attention": (
        ("map-rnn-attention", 1280, {"view": "map", "text": SHORT}),
        ("head-rnn-attention", 1280, {"view": "head", "text": SHORT, "query": "3"}),
    ),
}


def main(run: Annotated[Path, typer.Argument(help="a run's folder, with checkpoints")]) -> None:
    first, *_ = Run(run).saved_steps()
    pictures = PICTURES_OF[Run(run).read_config().model.kind]
    with serving(str(run), str(Run(run).checkpoint_path(first)), "--port", "8000") as port:  # seen in the pictures
        shoot(f"http://127.0.0.1:{port}/", f"{run.name}@{first}", pictures)


def shoot(address: str, other: str, pictures: tuple[tuple[str, int, dict[str, str]], ...]) -> None:
    """Take the pictures. `other` is the run that Training compares with."""
    DOCS.mkdir(exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for name, width, state in pictures:
            page = browser.new_page(viewport={"width": width, "height": 800})
            told = {"lang": "en", "theme": "light", "text": TEXT, "other": other, **state}
            page.goto(f"{address}#{urlencode(told)}")
            page.wait_for_selector(f"#view[data-view={state['view']}] .body")
            page.wait_for_selector("[aria-busy=true]", state="detached")
            whole(page, DOCS / f"studio-{name}.png")
            page.close()
        browser.close()


def whole(page: Page, path: Path) -> None:
    page.screenshot(path=path, full_page=True)
    print(f"{path.name}: {path.stat().st_size // 1000} kB")


if __name__ == "__main__":
    typer.run(main)
