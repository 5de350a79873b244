"""Tests that imports point downwards only (ARCHITECTURE.md draws the layers)."""

import ast
from pathlib import Path

import pytest
import torch
from jaxtyping import TypeCheckError

from regard.model.attention import attention, split_heads

PACKAGE = Path(__file__).parents[2] / "regard"

# From the bottom up. Parts of one layer do not import each other; a part is a module or a folder of modules.
LAYERS: list[set[str]] = [
    {"config", "settings", "pages"},
    {"machine", "text", "model", "search"},
    {"run", "data"},
    {"translate", "generate"},
    {"evaluate"},
    {"train"},
    {"fast", "inspection", "exchange", "info"},
    {"serve", "lab", "bench", "demo"},
    {"cli"},
]
EVERYONES = {"", "errors", "__main__"}  # the version and `UserError`, for all to import; and the command line's start
# The two modules that may import the GPU's second implementation, inside functions only.
DOORS = {"train/road.py", "translate/search.py"}
HEIGHT = {part: height for height, parts in enumerate(LAYERS) for part in parts}


def part_of(module: str) -> str | None:
    """Return `model` for model.attention; None for modules that all may import, and for `__main__`."""
    part = module.split(".", maxsplit=1)[0]
    if part in EVERYONES:
        return None
    assert part in HEIGHT, f"regard.{module} stands in no layer; give it one in tests/unit/test_layering.py"
    return part


def imported_modules(tree: ast.AST) -> list[tuple[int, str]]:
    """Return (line, module inside regard) of every import, including those inside functions. For a module's statements, only
    imports that run when the module is imported."""
    found = []
    nodes = ast.walk(tree) if isinstance(tree, ast.Module) else [tree]
    for node in nodes:
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            found += [(node.lineno, f"{node.module}.{alias.name}") for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level > 0:
            found.append((node.lineno, "regard.relative"))
    return [(line, name.removeprefix("regard").removeprefix(".")) for line, name in found if name.split(".")[0] == "regard"]


def violations(package: Path) -> list[str]:
    found = []
    for path in sorted(package.rglob("*.py")):
        file = path.relative_to(package).as_posix()
        module = file.removesuffix(".py").replace("/", ".").removesuffix("__init__").rstrip(".")
        tree = ast.parse(path.read_text(encoding="utf-8"))
        importer = part_of(module)
        at_once = {name for node in tree.body for _, name in imported_modules(node)} if file in DOORS else set()
        for line, name in imported_modules(tree):
            where = f"regard/{file}:{line}"
            if name == "relative":
                found.append(f"{where} has a relative import; write it out")
                continue
            imported = part_of("" if name.split(".")[0] == "__version__" else name)
            if importer is None or imported is None or importer == imported:
                continue
            if imported == "fast" and file in DOORS and name not in at_once:
                continue
            if HEIGHT[imported] >= HEIGHT[importer]:
                below = ", ".join(sorted(part for part, height in HEIGHT.items() if height < HEIGHT[importer]))
                found.append(
                    f"{where} imports {imported}, but {importer} may only import what lies below it: {below or 'nothing'}"
                )
    return found


def test_imports_point_downwards() -> None:
    assert not violations(PACKAGE), "\n" + "\n".join(violations(PACKAGE))


def test_a_broken_layer_is_told_readably(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "attention.py").write_text(
        "from regard.config import ModelConfig\nimport regard\nfrom regard.train.loss import Loss\n"
    )
    (tmp_path / "search.py").write_text("def f():\n    from regard.model import cache\n")
    (tmp_path / "evaluate.py").write_text("from . import translate\nfrom regard.translate import Translator\n")
    below = "config, pages, settings"
    assert violations(tmp_path) == [
        "regard/evaluate.py:1 has a relative import; write it out",
        f"regard/model/attention.py:3 imports train, but model may only import what lies below it: {below}",
        f"regard/search.py:2 imports model, but search may only import what lies below it: {below}",
    ]


def test_shapes_in_signatures_are_checked_while_testing() -> None:
    """Without the hook in pyproject.toml, shapes would not be checked."""
    with pytest.raises(TypeCheckError, match="split_heads"):
        split_heads(torch.zeros(2, 3), 1)
    with pytest.raises(TypeCheckError, match="attention"):
        attention(torch.zeros(1, 1, 2, 4), torch.zeros(1, 1, 3, 5), torch.zeros(1, 1, 3, 4))
