"""Write docs/file-map.md from the first sentence of each module's docstring.

    python scripts/file_map.py            # write it between its two markers
    python scripts/file_map.py --check    # fail if it is out of date

A JavaScript module is described by its first comment instead. Empty files are left out.
"""

import argparse
import ast
import re
import sys
from itertools import groupby
from pathlib import Path

ROOT = Path(__file__).parents[1]
DOCUMENT = ROOT / "docs" / "file-map.md"
BEGIN = "<!-- map of files: made by scripts/file_map.py -->"
END = "<!-- end of the map -->"
PATTERNS = ("regard/**/*.py", "regard/serve/page/*.js", "scripts/*.py", "recipes/*.py")


def first_sentence(text: str) -> str:
    """Return the first sentence of a text, without its full stop."""
    paragraph = " ".join(text.strip().partition("\n\n")[0].split())
    return re.split(r"\.(?= [^a-z(]|$)", paragraph, maxsplit=1)[0]  # not at "et al. (2017)"


def description(path: Path) -> str:
    """Return the first sentence of a Python module's docstring, or of the comment at the top of a JavaScript module."""
    source = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        text = ast.get_docstring(ast.parse(source)) or ""
    else:
        comment = re.match(r"(?://.*\n)+", source)
        text = re.sub(r"^// ?", "", comment[0], flags=re.MULTILINE) if comment else ""
    if not text.strip():
        sys.exit(f"{path.relative_to(ROOT)} does not say what it is: begin it with a docstring or, in JavaScript, a comment")
    return first_sentence(text).replace("|", "\\|")


def file_map() -> str:
    """Return one table, in which the rows of each folder stand under a row with the folder's name."""
    paths = {path for pattern in PATTERNS for path in ROOT.glob(pattern) if path.stat().st_size}
    rows = ["| file | content |", "|---|---|"]
    for folder, files in groupby(sorted(paths, key=lambda path: (path.parent, path.name)), key=lambda path: path.parent):
        rows.append(f"| **`{folder.relative_to(ROOT).as_posix()}/`** | |")
        rows += [f"| `{path.name}` | {description(path)} |" for path in files]
    return "\n".join(rows)


def with_map(document: str) -> str:
    """Return a document with the current map between its markers."""
    before, begin, rest = document.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        sys.exit(f"there is no map of files: put the lines {BEGIN} and {END} where it belongs")
    return f"{before}{begin}\n\n{file_map()}\n\n{end}{after}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="change nothing, and fail if the map is out of date")
    parser.add_argument("document", nargs="?", type=Path, default=DOCUMENT, help="default: docs/file-map.md")
    options = parser.parse_args()
    old = options.document.read_text(encoding="utf-8")
    new = with_map(old)
    if not options.check:
        options.document.write_text(new, encoding="utf-8")
    elif new != old:
        sys.exit(f"the map of files in {options.document.name} is out of date: run python scripts/file_map.py")


if __name__ == "__main__":
    main()
