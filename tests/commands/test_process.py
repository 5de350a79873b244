"""Tests that a forked process behaves like a new one."""

from pathlib import Path

import pytest

from tests.commands.process import run

RUN = Path(__file__).parents[1] / "runs" / "0.1.0"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--version"], ""),
        (["bench", "modle"], ""),
        (["info", "nowhere"], ""),
        (["translate", str(RUN)], "Ich bin müde.\r\nIch"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_forked_and_fresh_processes_say_the_same(tmp_path: Path, arguments: list[str], text: str) -> None:
    forked, fresh = (run(*arguments, cwd=tmp_path, text=text, fresh=fresh) for fresh in (False, True))
    assert (forked.returncode, forked.stdout, forked.stderr) == (fresh.returncode, fresh.stdout, fresh.stderr)


def test_a_fault_has_its_traceback_and_exit_code_1(tmp_path: Path) -> None:
    forked, fresh = (run(module="tests.commands.no_such_module", cwd=tmp_path, fresh=fresh) for fresh in (False, True))
    assert forked.returncode == fresh.returncode == 1
    assert "No module named tests.commands.no_such_module" in forked.stderr and forked.stdout == ""
