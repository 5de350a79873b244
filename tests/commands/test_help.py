"""Tests of the command line's help: it is fast, and suggests names for unknown ones."""

import subprocess
import sys
from pathlib import Path

import pytest
import typer

import regard
from regard.cli import app
from tests.commands.process import run

ROOT = Path(__file__).parents[2]
HEAVY = ("torch", "numpy", "rich", "sacrebleu", "sentencepiece")  # modules that take longer to import than help to print


def all_commands() -> dict[tuple[str, ...], typer.core.TyperCommand]:
    found: dict[tuple[str, ...], typer.core.TyperCommand] = {}
    for name, command in typer.main.get_command(app).commands.items():  # type: ignore[attr-defined]
        if hasattr(command, "commands"):
            found |= {(name, inner): one for inner, one in command.commands.items()}
        else:
            found[name,] = command
    return found


COMMANDS = all_commands()


def test_version() -> None:
    assert run("--version").stdout == f"regard {regard.__version__}\n"


def test_the_help_of_all_lists_all() -> None:
    listings = [run("--help").stdout, run("bench", "--help").stdout]
    for words in COMMANDS:
        assert f"\n  {words[0]} " in listings[0]
        assert len(words) == 1 or f"\n  {words[1]} " in listings[1]
    assert "regard demo" in listings[0]
    for listing in listings:
        assert "..." not in listing.replace("[ARGS]...", ""), "a summary was cut"


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_help_has_an_example_that_the_command_takes(words: tuple[str, ...]) -> None:
    """Each flag in an example belongs to the command."""
    lines = (COMMANDS[words].help or "").split("Example")[1].splitlines()[1:]
    examples = [line.split(" | ")[-1].strip() for line in lines if line.strip()]
    flags = {flag for parameter in COMMANDS[words].params for flag in (*parameter.opts, *parameter.secondary_opts)}
    assert examples
    for example in examples:
        assert example.startswith(f"regard {' '.join(words)}")
        assert {word for word in example.split() if word.startswith("-")} <= flags


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_every_option_is_explained(words: tuple[str, ...]) -> None:
    for parameter in COMMANDS[words].params:
        assert parameter.help, parameter.name  # type: ignore[attr-defined]


def test_help_imports_nothing_heavy() -> None:
    script = """
import sys
from regard.cli import app
from tests.commands.process import run
for words in {words}:
    try:
        app([*words, "--help"])
    except SystemExit:
        pass
print([name for name in {heavy} if name in sys.modules], file=sys.stderr)
"""
    command = [sys.executable, "-c", script.format(words=[(), *COMMANDS], heavy=HEAVY)]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    assert result.stdout.count("Usage:") == len(COMMANDS) + 1
    assert result.stderr == "[]\n"


@pytest.mark.parametrize(
    ("arguments", "guess"),
    [
        (["trian"], "Did you mean 'train'?"),
        (["bench", "modle"], "Did you mean 'model'?"),
        (["translate", "runs/mien"], "there is no run runs/mien; did you mean runs/mine?"),
        (["info", "run/mine"], "there is no run run/mine; did you mean runs/mine?"),
        (["translate", "runs/mine", "tset.de"], "there is no file tset.de; did you mean test.de?"),
        (["evaluate", "runs/mien", "--ref", "test.de"], "there is no run or file runs/mien; did you mean runs/mine?"),
        (["train", "--config", "mine.tml", "-o", "new"], "there is no file mine.tml; did you mean mine.toml?"),
        (["train", "--set", "train.warmpu=8", "-o", "new"], "there is no setting train.warmpu; did you mean train.warmup?"),
        (["train", "--preset", "smal", "-o", "new"], "there is no preset 'smal'; did you mean small?"),
        (["translate", "/nowhere/at/all"], "regard: there is no run /nowhere/at/all\n"),
    ],
)
def test_mistakes_get_suggestions(tmp_path: Path, arguments: list[str], guess: str) -> None:
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "mine").symlink_to(ROOT / "tests" / "runs" / "0.1.0")
    (tmp_path / "test.de").touch()
    (tmp_path / "mine.toml").touch()
    result = run(*arguments, cwd=tmp_path)
    assert result.returncode == 2
    assert guess in result.stderr
    assert "Traceback" not in result.stderr
    assert not (tmp_path / "new").exists()
