"""Tests that mistakes of users raise `UserError`, and that no handler takes a fault of regard for one."""

import ast
import errno
import os
from pathlib import Path

import pytest

from regard.errors import UserError, sentence_for
from regard.run.checkpoint import DamagedError

PACKAGE = Path(__file__).parents[2] / "regard"
BROAD = {"Exception", "BaseException", "ValueError", "RuntimeError", "LookupError", "ArithmeticError"}
# Other programs raise ValueError: a handler of it may enclose only calls of these.
FOREIGN = {"json.loads", "json.dumps", "tomllib.loads", "ip_address", "urlsplit", "parse_qs"}
METHODS = {"read_text", "decode", "encode", "lower", "strip"}
# Handlers that may catch any exception, and why.
ALLOWED = {
    "__main__.py:Exception": "tells of it",
    "serve/app.py:Exception": "logs and counts it",
    "serve/batcher.py:Exception": "logs and counts it",
    "data/loader.py:Exception": "of a process: what it should have made is made anew, and fails there",
    "data/loader.py:BaseException": "raised by whoever takes the batch",
    "train/saving.py:BaseException": "raised by whoever waits",
    "fast/support.py:Exception": "of Triton and its compiler; torch's kernels serve as well",
    "machine/device.py:RuntimeError": "of torch and its drivers, or of memory; others are raised again",
    "bench/doctor.py:RuntimeError": "of torch and its drivers; what else it was is raised again",
    "evaluate/metrics.py:RuntimeError": "of sacreBLEU's tokenizers",
    "text/tokenizer.py:RuntimeError": "of SentencePiece; what our iterator raised is raised again",
    "exchange/spm.py:ValueError": "of bytes that are not a SentencePiece model",
    "exchange/marian.py:RuntimeError": "of torch, about tensors from elsewhere",
    "demo/command.py:LookupError": "of a torn report, which is made anew",
    "text/corpus.py:LookupError": "of expat, which knows no such encoding",
}


@pytest.mark.parametrize("error", [UserError("a sentence"), DamagedError("a sentence")])
def test_a_users_mistake_is_its_sentence(error: Exception) -> None:
    assert sentence_for(error) == "a sentence"


@pytest.mark.parametrize(
    "error",
    [
        ValueError("a sentence"),
        KeyError("a"),
        AssertionError(),
        RuntimeError("CUDA error"),
        UnicodeDecodeError("utf-8", b"\xff", 0, 1, "no"),
        OSError("told by a library"),
        OSError(errno.EBADF, os.strerror(errno.EBADF)),
        OSError(errno.EINVAL, os.strerror(errno.EINVAL), "/a/file"),
        FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT)),
        FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(PACKAGE / "serve" / "page" / "index.html")),
        ChildProcessError(errno.ECHILD, os.strerror(errno.ECHILD)),
    ],
)
def test_everything_else_is_a_fault(error: Exception) -> None:
    assert sentence_for(error) is None


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EMFILE, errno.EIO])
def test_what_the_machine_lacks_is_told_with_advice(number: int) -> None:
    assert str(sentence_for(OSError(number, os.strerror(number)))).startswith(f"{os.strerror(number)}; ")


def test_what_a_user_named_is_told_with_its_name(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as missing:
        (tmp_path / "missing").read_text()
    assert sentence_for(missing.value) == f"{tmp_path / 'missing'}: No such file or directory; check the name"
    with pytest.raises(IsADirectoryError) as folder:
        tmp_path.read_text()
    assert sentence_for(folder.value) == f"{tmp_path}: Is a directory; give another name"


def handlers() -> list[tuple[str, ast.Try, ast.ExceptHandler]]:
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Try):
                found += [(str(path.relative_to(PACKAGE)), node, handler) for handler in node.handlers]
    return found


def caught(handler: ast.ExceptHandler) -> set[str]:
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type] if handler.type else []
    return {ast.unparse(kind) for kind in kinds} or {"BaseException"}


def raises_again(handler: ast.ExceptHandler) -> bool:
    return any(isinstance(one, ast.Raise) and one.exc is None for one in handler.body)


def is_foreign(guarded: ast.Try) -> bool:
    """Return whether no function of regard is called."""
    calls = [node for one in guarded.body for node in ast.walk(one) if isinstance(node, ast.Call)]
    names = [(ast.unparse(call.func), call.func) for call in calls]
    return bool(calls) and all(
        name in FOREIGN or (isinstance(function, ast.Attribute) and function.attr in METHODS) for name, function in names
    )


def test_no_handler_takes_a_fault_of_ours_for_a_users_mistake() -> None:
    used = set()
    for path, guarded, handler in handlers():
        for kind in caught(handler) & BROAD:
            if raises_again(handler) or is_foreign(guarded):
                continue
            assert f"{path}:{kind}" in ALLOWED, f"regard/{path}:{handler.lineno} takes any {kind} of ours; take UserError"
            used.add(f"{path}:{kind}")
    assert used == set(ALLOWED), f"no longer needed: {set(ALLOWED) - used}"


def test_no_error_of_a_user_is_raised_as_a_plain_one() -> None:
    """A plain ValueError is a fault: it is raised only for misuse of a model by a program, and inside parsers."""
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and ast.unparse(node.exc.func) == "ValueError":
                found.append(str(path.relative_to(PACKAGE)))
    assert set(found) <= {"exchange/spm.py", "model/sequence.py"}
