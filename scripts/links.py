"""Update the line numbers in links from the documentation to code.

    python scripts/links.py    # write the current line numbers

In [`attention`](../regard/model/attention.py#L23), the last name in the link's text is a function, class, method or constant
of the file.
"""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
LINK = re.compile(r"\[`(?P<name>[\w.]+)`\]\((?P<path>[^)#]+\.py)#L(?P<line>\d+)\)")


def defined_at(path: Path, name: str) -> int:
    """Return the line, from 1, that defines `name`. In `Class.method`, the method is looked up inside the class."""
    *owners, last = name.split(".")
    lines = path.read_text(encoding="utf-8").splitlines()
    start = defined_at(path, owners[-1]) if owners and re.search(rf"^class {owners[-1]}\b", "\n".join(lines), re.M) else 0
    for number, line in enumerate(lines[start:], start=start + 1):
        if start and re.match(r"[^\s#)]", line):
            break  # end of the class
        if re.match(rf"\s*(?:def|class) {last}\b|{last}\b\s*[:=]", line):
            return number
    raise ValueError(f"{path.relative_to(ROOT)} does not define {name}")


def with_lines(document: Path) -> str:
    def renewed(link: re.Match[str]) -> str:
        target = (document.parent / link["path"]).resolve()
        return f"[`{link['name']}`]({link['path']}#L{defined_at(target, link['name'])})"

    return LINK.sub(renewed, document.read_text(encoding="utf-8"))


def main() -> None:
    for document in sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("recipes/*.md")]):
        document.write_text(with_lines(document), encoding="utf-8")


if __name__ == "__main__":
    main()
