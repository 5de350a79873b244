"""Tests that commands in README and docs/ run, that links lead somewhere, and that generated text is current."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from regard.demo.command import text
from regard.text.corpus import read_lines
from regard.train.command import _read_settings
from scripts import file_map
from scripts.configuration import TABLES, document, settings
from scripts.links import LINK, with_lines
from tests.commands import process
from tests.commands.test_recipes import make_corpora

ROOT = Path(__file__).parents[2]
STORED_RUN = ROOT / "tests" / "runs" / "0.1.0"
DOCUMENTS = sorted([ROOT / "README.md", *ROOT.glob("docs/*.md"), *ROOT.glob("recipes/*.md")])
ALL_DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("recipes/*.md")])

# Replacements of slow commands by shorter ones, by how a command line begins.
SMALLER = {
    "regard train": "--preset tiny --steps 4 --device cpu",
    "torchrun": "--preset tiny --steps 4 --device cpu",
    "regard demo": "--minutes 0.02 --device cpu",
    "regard bench model": "--preset tiny --batch 2 --length 5 --vocab 50 --rounds 1 --steps 1",
    "regard bench train": "--preset tiny --rounds 1 --updates 1",
    "regard bench decode": "--sentences 2 --rounds 1 --max-length 8",
    "regard export": "--src test.de",
    "regard lab all": "--minutes 0.1",
    "python recipes/plain_loop.py": "--steps 2 --layers 1 --width 32 --heads 2 --device cpu",
    "python scripts/recipes.py": "--preset tiny --steps 2 --device cpu",
    "python scripts/measurements.py --corpora": "--seconds 5",
}
INSTEAD = {
    "make demo": "regard demo --no-serve",
    "--nproc-per-node=4": "--nproc-per-node=2",
    "make install": "true",  # the tests run in the installed environment
    "make test": "true",  # this test
}


def name_of(document: Path) -> str:
    return str(document.relative_to(ROOT))


def blocks(path: Path, *languages: str) -> list[str]:
    found = re.findall(r"^```([^\n]*)\n(.*?)^```$", path.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    assert all(language for language, _ in found), f"a block in {path.name} does not say what it is"
    return [block for language, block in found if language in languages]


def commands(path: Path) -> list[str]:
    """Return the lines of sh blocks, and those after a prompt in sessions."""
    lines = [line for block in blocks(path, "sh") for line in block.splitlines()]
    lines += [line[2:] for block in blocks(path, "console") for line in block.splitlines() if line.startswith("$ ")]
    return [line.partition("  #")[0].strip() for line in lines if line.strip()]


def as_run(command: str) -> str:
    for old, new in INSTEAD.items():
        command = command.replace(old, new)
    last = command.split(" | ")[-1]
    return command + "".join(f" {flags}" for start, flags in SMALLER.items() if last.startswith(start))


@pytest.fixture
def workplace(tmp_path: Path) -> Path:
    """Return a folder with the files that documents name: a few sentences of the demo under many names."""
    for language in ("de", "en"):
        train = list(read_lines(text("train", language)))[:300]
        held_out = list(read_lines(text("test", language)))[:12]
        for name, lines in (("train", train), ("special", train), ("valid", held_out), ("test", held_out)):
            (tmp_path / f"{name}.{language}").write_text("\n".join(lines) + "\n", encoding="utf-8")
    for name, source in (("good", "train"), ("more", "train"), ("valid", "valid")):
        sides = [(tmp_path / f"{source}.{language}").read_text("utf-8").splitlines() for language in ("de", "en")]
        rows = ["\t".join(row) for row in zip(*sides, strict=True)]
        (tmp_path / f"{name}.tsv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    for name, source in (("wrong", "train"), ("wrong-valid", "valid")):
        rows = [f"{line.lower()}\t{line}" for line in (tmp_path / f"{source}.en").read_text("utf-8").splitlines()]
        (tmp_path / f"{name}.tsv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    (tmp_path / "dev.ja").symlink_to(tmp_path / "test.de")
    (tmp_path / "runs").mkdir()
    make_corpora(tmp_path / "corpora")
    for name in ("recipes", "scripts"):
        (tmp_path / name).symlink_to(ROOT / name)
    return tmp_path


def with_runs(workplace: Path, typed: str = "") -> Path:
    """Add trained runs and prepared text under the documents' names, except for those that the commands make themselves."""
    made = set(re.findall(r"-o (\S+)", typed)) | ({"runs/demo"} if "demo --no-serve" in typed else set())
    for name in {"runs/mine", "runs/other", "runs/kftt", "runs/demo"} - made:
        (workplace / name).symlink_to(STORED_RUN)
    if "prepared" not in made:
        sides = "--src train.de --tgt train.en --valid-src valid.de --valid-tgt valid.en"
        regard(f"regard prepare {sides} -o prepared", workplace)
    return workplace


def regard(command: str, folder: Path) -> None:
    """Run a command that a test requires."""
    result = process.run(*command.split()[1:], cwd=folder)
    assert result.returncode == 0, f"{command}\n{result.stdout}{result.stderr}"


def run(command: str, folder: Path) -> str:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    result = subprocess.run(
        command,
        shell=True,
        capture_output=True,
        text=True,
        timeout=1800,
        check=False,
        cwd=folder,
        env={**os.environ, "PATH": path, "PYTHONPATH": str(ROOT)},
    )
    assert result.returncode == 0, f"{command}\n{result.stdout}{result.stderr}"
    return result.stdout


@pytest.mark.slow
@pytest.mark.parametrize("path", [path for path in DOCUMENTS if commands(path)], ids=name_of)
def test_commands_run(path: Path, workplace: Path) -> None:
    """Run all commands of a document in one folder, one after the other, as a reader would."""
    every = list(map(as_run, commands(path)))
    folder = with_runs(workplace, "\n".join(every))
    for command in every:
        run(command, folder)


@pytest.mark.parametrize("path", [path for path in DOCUMENTS if blocks(path, "python")], ids=name_of)
def test_python_examples_run(path: Path, workplace: Path) -> None:
    folder = with_runs(workplace)
    script = "\n".join(blocks(path, "python"))
    if "exported" in script:
        regard(as_run("regard export runs/mine --to ctranslate2 -o exported"), folder)
    if "runs/language" in script:
        regard(as_run("regard train --model language --text train.en --valid-text valid.en -o runs/language"), folder)
    checks = [f"assert tuple(({name}).shape) == {shape}, {name!r}" for name, shape in shapes(script)]
    (folder / "example.py").write_text(script + "\n" + "\n".join(checks), encoding="utf-8")
    run(f"{sys.executable} example.py", folder)


def shapes(script: str) -> list[tuple[str, str]]:
    """Return (name, shape) for each assignment whose comment begins with a shape."""
    found = re.findall(r"^(.*?)\s+# (\(\d[\d, ]*\))", script, flags=re.MULTILINE)
    return [(line.split(" = ")[0].strip(), shape) for line, shape in found]


def test_shapes_are_found() -> None:
    assert len(shapes("\n".join(blocks(ROOT / "docs" / "python.md", "python")))) >= 4


def test_every_command_in_the_documents_is_known() -> None:
    """The tests above must find commands and know them all."""
    every = [command for path in DOCUMENTS for command in commands(path)]
    assert len(every) >= 15
    assert {command.split()[0] for command in every} <= {"regard", "make", "echo", "torchrun", "python"}


def test_toml_examples_are_settings() -> None:
    every = [block for path in DOCUMENTS for block in blocks(path, "toml")]
    assert every
    for block in every:
        data, _, _ = _read_settings(tomllib.loads(block))
        assert data is not None


@pytest.mark.parametrize("path", ALL_DOCUMENTS, ids=name_of)
def test_links_lead_somewhere(path: Path) -> None:
    words = path.read_text(encoding="utf-8")
    targets = re.findall(r"\]\(([^)\s]+)\)", words) + re.findall(r'<img\s[^>]*src="([^"]+)"', words)
    for target in targets:
        if target.startswith(("http:", "https:")):
            continue
        name, _, anchor = target.partition("#")
        file = (path.parent / name).resolve() if name else path
        assert file.exists(), target
        if anchor and file.suffix == ".md":
            headings = re.findall(r"^#+ (.*)$", file.read_text(encoding="utf-8"), flags=re.MULTILINE)
            assert anchor in {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}, target


@pytest.mark.parametrize("path", ALL_DOCUMENTS, ids=name_of)
def test_links_to_code_lead_to_their_lines(path: Path) -> None:
    assert with_lines(path) == path.read_text(encoding="utf-8"), "run python scripts/links.py"


def test_there_are_links_to_code() -> None:
    assert len(LINK.findall((ROOT / "docs" / "how-it-works.md").read_text(encoding="utf-8"))) >= 20


def test_the_configuration_reference_is_current_and_complete() -> None:
    assert (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8") == document(), (
        "run python scripts/configuration.py"
    )
    for _, kind in TABLES.values():
        for name, _, _, meaning in settings(kind):
            assert meaning, f"{kind.__name__}.{name} says nothing of what it means"


def test_the_chinese_readme_says_the_same() -> None:
    """Code, links and numbers are equal; texts are about as long."""
    english, chinese = ROOT / "README.md", ROOT / "README.zh.md"
    for language in ("sh", "python", "text"):
        assert blocks(english, language) == blocks(chinese, language)
    one, other = (path.read_text(encoding="utf-8") for path in (english, chinese))
    for pattern in (r"\]\(([^)\s]+)\)", r'src="([^"]+)"', r"^(#+|\|)", r"\b\d+\.\d+\b"):
        assert sorted(re.findall(pattern, one, re.MULTILINE)) == sorted(re.findall(pattern, other, re.MULTILINE))
    assert set(re.findall(r"`([^`\n]+)`", one)) == set(re.findall(r"`([^`\n]+)`", other))


def check_file_map(document: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "scripts/file_map.py", "--check", str(document)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_the_file_map_is_current() -> None:
    result = check_file_map(ROOT / "docs" / "file-map.md")
    assert result.returncode == 0, result.stderr


def test_an_old_file_map_is_noticed(tmp_path: Path) -> None:
    document = tmp_path / "map.md"
    document.write_text(f"before\n{file_map.BEGIN}\n{file_map.END}\nafter\n", encoding="utf-8")
    assert "out of date" in check_file_map(document).stderr
    current = file_map.with_map(document.read_text(encoding="utf-8"))
    document.write_text(current, encoding="utf-8")
    assert check_file_map(document).returncode == 0
    rows = current.splitlines()
    assert rows[0] == "before" and rows[-1] == "after"
    assert {"| **`regard/model/`** | |", "| **`regard/serve/page/`** | |"} <= set(rows)
    assert any(row.startswith("| `transformer.py` |") for row in rows)
    document.write_text(current.replace("| `transformer.py` |", "| `old_name.py` |"), encoding="utf-8")
    assert check_file_map(document).returncode == 1


def test_nobody_is_told_to_install_regard_by_name() -> None:
    """This project publishes no package of that name, so `pip install regard[...]` would install another one."""
    files = [*ALL_DOCUMENTS, *(path for path in (ROOT / "regard").rglob("*") if path.suffix in {".py", ".js", ".html"})]
    told = [
        name_of(path) for path in files if re.search(r"pip install (-\S+ )*'?regard\b", path.read_text(encoding="utf-8"))
    ]
    assert not told


def prose(path: Path) -> list[tuple[int, str]]:
    """Return the numbered lines of a document outside code blocks, tables, pictures and HTML."""
    found: list[tuple[int, str]] = []
    in_code = False
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        if line.startswith("```"):
            in_code = not in_code
        elif not in_code and not line.startswith(("|", "<", "![")):
            found.append((number, line))
    return found


@pytest.mark.parametrize("path", ALL_DOCUMENTS, ids=name_of)
def test_prose_is_wrapped(path: Path) -> None:
    wide = [number for number, line in prose(path) if len(line) > 130]
    assert not wide, f"lines {wide} of {path.name} have more than 130 characters"
