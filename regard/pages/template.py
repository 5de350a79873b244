"""Fills the templates of single-file pages with their data and drawing code."""

import json
import re
from importlib.resources import files
from pathlib import Path
from typing import Any

DRAWER = Path(__file__).parent / "drawing.js"  # draws the charts of all pages; the studio imports it as a module


def read(package: str, name: str) -> str:
    """Read a file beside the modules of a package."""
    return files(package).joinpath(name).read_text(encoding="utf-8")


def filled(package: str, name: str, data: Any) -> str:
    """Fill a template: its data in place of `/*DATA*/null`, the drawer in place of `/*DRAWING*/`, without its exports."""
    drawer = re.sub("^export ", "", read("regard.pages", DRAWER.name), flags=re.MULTILINE)
    # An unescaped "<" could end the script element.
    script = json.dumps(data, ensure_ascii=False).replace("<", "\\u003c")
    return read(package, name).replace("/*DRAWING*/", drawer).replace("/*DATA*/null", script)
