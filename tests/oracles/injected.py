"""Run command lines in which one function of regard is broken, each in its own process.

    python -m tests.oracles.injected < cases.json > outcomes.json

A case is [where, what, arguments]: `where` names a function, such as `regard.model.transformer:Transformer.start`, and
`what` an exception of `FAULTS`. torch is imported once, and every command line is forked from that process.
"""

import json
import os
import sys
import tempfile
from collections.abc import Callable
from functools import reduce
from importlib import import_module
from pathlib import Path
from typing import Any

from regard.errors import UserError

TOLD = "this was done on purpose; do something else"
SECRET = "zq7-never-shown"


def _raise(error: BaseException) -> None:
    raise error


FAULTS: dict[str, Callable[[], object]] = {
    "zip": lambda: list(zip([SECRET], [], strict=True)),
    "value": lambda: _raise(ValueError(SECRET)),
    "key": lambda: _raise(KeyError(SECRET)),
    "runtime": lambda: _raise(RuntimeError(SECRET)),
    "assertion": lambda: _raise(AssertionError(SECRET)),
    "end": lambda: _raise(EOFError(SECRET)),  # which typer takes for the end of a conversation
    "unicode": "\ud800".encode,
    "json": lambda: json.loads(SECRET),
    "descriptor": lambda: os.close(10_000),  # an OSError that no user action causes
    "library": lambda: _raise(OSError(SECRET)),  # an OSError without errno, which the operating system does not raise
    "user": lambda: _raise(UserError(TOLD)),
    "interrupt": lambda: _raise(KeyboardInterrupt()),
    "full": lambda: Path("/dev/full").write_text("x", encoding="utf-8"),
}


def owner_and_name(where: str) -> tuple[Any, str]:
    module, _, path = where.partition(":")
    *owners, name = path.split(".")
    owner = reduce(getattr, owners, import_module(module))
    assert hasattr(owner, name), where
    return owner, name


def broken(what: str) -> Callable[..., object]:
    return lambda *_, **__: FAULTS[what]()


def outcome(where: str, what: str, arguments: list[str]) -> tuple[int, str]:
    """Return the exit code and the standard error."""
    with tempfile.TemporaryFile() as told:
        if (child := os.fork()) == 0:
            os.dup2(told.fileno(), 2)
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            code = 99
            try:
                owner, name = owner_and_name(where)
                setattr(owner, name, broken(what))
                sys.argv = ["regard", *arguments]
                from regard.__main__ import main

                main()
            except SystemExit as ending:
                code = ending.code if isinstance(ending.code, int) else 98
            finally:
                sys.stderr.flush()
                os._exit(code)
        _, status = os.waitpid(child, 0)
        told.seek(0)
        return os.waitstatus_to_exitcode(status), told.read().decode("utf-8")


if __name__ == "__main__":
    import torch

    assert torch.get_num_threads() > 0
    json.dump([outcome(*case) for case in json.load(sys.stdin)], sys.stdout)
