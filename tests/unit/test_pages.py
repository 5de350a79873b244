"""Tests of templates that become pages of one file, and of the drawing code that all pages share."""

import json
import re
from pathlib import Path

import pytest

import regard
from regard.pages.template import DRAWER, filled, read
from regard.serve.file import PAGE, in_one_file

PACKAGE = Path(regard.__file__).parent
TEMPLATES = (("regard.train", "training.html"), ("regard.evaluate", "evaluation.html"))


@pytest.mark.parametrize(("package", "name"), TEMPLATES)
def test_a_filled_page_holds_the_drawer_and_the_data_as_they_are(package: str, name: str) -> None:
    """Hostile data stay data: they neither end a script nor stand for the drawing code."""
    data = {"a": "</script><!-- /*DRAWING*/ /*DATA*/null \\1 \u2028", "b": [1.5, None]}
    page = filled(package, name, data)
    [written] = re.findall(r"^const data = (.*);$", page, flags=re.MULTILINE)
    assert json.loads(written) == data
    assert page.count("</script>") == 1
    drawer = DRAWER.read_text(encoding="utf-8").replace("\nexport ", "\n")
    assert page.count(drawer) == 1
    assert not re.search(r"^(export|import) ", page, flags=re.MULTILINE)


def test_the_drawer_imports_nothing_and_every_page_draws_with_it() -> None:
    """No other page makes SVG elements or computes ticks; `picture.js` copies a drawing into a file."""
    assert not re.search(r"^import ", DRAWER.read_text(encoding="utf-8"), flags=re.MULTILINE)
    drawing = [
        path.name
        for path in sorted(PACKAGE.rglob("*"))
        if path.suffix in (".js", ".html") and re.search(r"createElementNS|function ticks", path.read_text(encoding="utf-8"))
    ]
    assert drawing == [DRAWER.name, "picture.js"]
    assert all("/*DRAWING*/" in read(*template) for template in TEMPLATES)


def test_what_the_pages_import_from_the_drawer_is_exported() -> None:
    source = DRAWER.read_text(encoding="utf-8")
    exported = set(re.findall(r"^export (?:const|function) (\w+)", source, flags=re.MULTILINE))
    modules = [path.read_text(encoding="utf-8") for path in Path(str(PAGE)).glob("*.js")]
    lines = re.findall(r'import \{([^}]*)\} from "./drawing.js"', "\n".join(modules))
    imported = {name.strip() for line in lines for name in line.split(",")}
    assert {"html", "lines"} <= imported <= exported
    assert 'modules["drawing.js"]' in in_one_file({})
