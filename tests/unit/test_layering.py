"""Imports point downwards only (ARCHITECTURE.md draws the layers)."""

import ast
from pathlib import Path

import pytest
import torch
from jaxtyping import TypeCheckError

from regard.model.attention import attention, split_heads

PACKAGE = Path(__file__).parents[2] / "regard"

# From the bottom up. Parts of one layer know nothing of each other; a part is a module or a folder of them.
LAYERS: list[set[str]] = [
    {"config", "settings", "kernels"},
    {"text", "model", "search"},
    {
        "data",
        "checkpoint",
        "train.loss",
        "train.muon",
        "train.schedule",
        "train.device",
        "train.distributed",
        "train.tensorboard",
    },
    {"train.metrics", "train.health"},
    {"translate", "generate", "info"},
    {"evaluate"},
    {"train.learner", "train.fused", "train.validation", "exchange"},
    {"train.plan", "train.progress", "train.page"},
    {"train.keeping", "train.batches"},
    {"train.loop", "train.flags", "inspection"},
    {"train.command", "train.average"},
    {"serve", "lab", "bench"},
    {"demo", "doctor"},
    {"cli"},
    {"__main__"},
]
HEIGHT = {part: height for height, parts in enumerate(LAYERS) for part in parts}


def part_of(module: str) -> str | None:
    """`model` for model.attention, `train.loss` for train.loss; None for what everyone may import (the version)."""
    names = module.split(".")
    for part in (".".join(names[:2]), names[0]):
        if part in HEIGHT:
            return part
    if module in ("", "train"):
        return None
    raise AssertionError(f"regard.{module} stands in no layer; give it one in tests/unit/test_layering.py")


def imported_modules(tree: ast.Module) -> list[tuple[int, str]]:
    """(line, module inside regard) of every import, also those inside functions."""
    found = []
    for node in ast.walk(tree):
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
        module = ".".join(path.relative_to(package).with_suffix("").parts).removesuffix("__init__").rstrip(".")
        importer = part_of(module)
        for line, name in imported_modules(ast.parse(path.read_text(encoding="utf-8"))):
            where = f"regard/{path.relative_to(package)}:{line}"
            if name == "relative":
                found.append(f"{where} has a relative import; write it out")
                continue
            imported = part_of(name if name.split(".")[0] in {part.split(".")[0] for part in HEIGHT} else "")
            if importer is None or imported is None or importer == imported:
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
    below = "config, kernels, settings"
    assert violations(tmp_path) == [
        "regard/evaluate.py:1 has a relative import; write it out",
        f"regard/model/attention.py:3 imports train.loss, but model may only import what lies below it: {below}",
        f"regard/search.py:2 imports model, but search may only import what lies below it: {below}",
    ]


def test_shapes_in_signatures_are_checked_while_testing() -> None:
    """Without the hook in pyproject.toml, every shape in this project would be a comment."""
    with pytest.raises(TypeCheckError, match="split_heads"):
        split_heads(torch.zeros(2, 3), 1)
    with pytest.raises(TypeCheckError, match="attention"):
        attention(torch.zeros(1, 1, 2, 4), torch.zeros(1, 1, 3, 5), torch.zeros(1, 1, 3, 4))
