"""Tests that every type name has one meaning in the whole package."""

import ast
from collections import defaultdict
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "regard"


def type_names(path: Path) -> set[str]:
    """Return the classes of a module and its type aliases: capitalised names that are not constants."""
    found = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ClassDef):
            found.add(node.name)
        targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        found |= {target.id for target in targets if isinstance(target, ast.Name) and not target.id.isupper()}
    return {name for name in found if name[0].isupper() and len(name) > 1}


def test_no_type_name_means_two_things() -> None:
    where = defaultdict(list)
    for path in sorted(PACKAGE.rglob("*.py")):
        for name in type_names(path):
            where[name].append(path.relative_to(PACKAGE).as_posix())
    twice = {name: paths for name, paths in where.items() if len(paths) > 1}
    assert not twice, "\n" + "\n".join(f"{name} in {', '.join(paths)}" for name, paths in sorted(twice.items()))


def test_classes_and_aliases_are_found(tmp_path: Path) -> None:
    source = "class A1:\n    class Inner: ...\nLIMIT = 3\nIds = list[int]\nRow: type = int\nsmall = 1\nT = 2\n"
    (tmp_path / "module.py").write_text(source)
    assert type_names(tmp_path / "module.py") == {"A1", "Ids", "Row"}
