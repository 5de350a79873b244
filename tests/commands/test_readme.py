"""What the README shows must run, and its map must name every file."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
ARCHITECTURE = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")


@pytest.fixture
def workplace(tmp_path: Path) -> Path:
    """A folder in which runs/mine is a run."""
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "mine").symlink_to(ROOT / "tests" / "runs" / "0.1.0")
    return tmp_path


def test_python_examples_run(workplace: Path) -> None:
    blocks = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    assert blocks
    for block in blocks:
        command = [sys.executable, "-c", block]
        result = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, cwd=workplace)
        assert result.returncode == 0, result.stderr


def test_shapes_in_the_python_examples_are_true(workplace: Path) -> None:
    """A comment that starts with a shape is the shape of the value on its line."""
    block = "".join(re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL))
    checked = []
    for line in block.splitlines():
        if match := re.search(r"^(.*?)\s+# (\(\d[\d, ]*\))", line):
            expression, shape = match.groups()
            value = expression.split(" = ")[-1].strip()
            name = expression.split(" = ")[0].strip() if " = " in expression else value
            checked.append(f"assert tuple(({name}).shape) == {shape}, '{name}'")
    assert len(checked) >= 4
    command = [sys.executable, "-c", block + "\n" + "\n".join(checked)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, cwd=workplace)
    assert result.returncode == 0, result.stderr


def test_the_file_map_names_every_module() -> None:
    listed = set(re.findall(r"^\| `((?:regard|scripts)/[\w/]+\.py)`", ARCHITECTURE, flags=re.MULTILINE))
    found = {str(path.relative_to(ROOT)) for folder in ("regard", "scripts") for path in (ROOT / folder).rglob("*.py")}
    assert listed == {name for name in found if not name.endswith(("__init__.py", "__main__.py"))}
