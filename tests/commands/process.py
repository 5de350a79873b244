"""Run command lines of regard in their own processes, without the seconds in which each of them would import torch.

A process that has imported everything waits for command lines and forks for each. The fork has its own arguments, folder,
environment, streams and signals. It shares only the hash seed with the others, so tests of independence from it compare with
a process that `run` starts with `fresh=True`.
"""

import atexit
import json
import os
import signal
import subprocess
import sys
import threading
import traceback
from functools import cache
from importlib import import_module
from pathlib import Path
from runpy import run_module
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parents[2]
LIMIT = 1800  # seconds after which a command is considered to hang
COMMANDS = """bench.decode bench.doctor bench.model bench.search bench.train cli.generate cli.translate data.command
demo.command evaluate.command exchange.command exchange.llama exchange.marian info lab.command serve.file
train.average train.command""".split()


def run(
    *arguments: str, module: str = "regard", cwd: Path | None = None, text: str = "", fresh: bool = False
) -> "subprocess.CompletedProcess[str]":
    """Run `python -m regard` with these arguments, and with this text as its input."""
    command = [sys.executable, "-m", module, *arguments]
    if fresh:
        return subprocess.run(
            command, input=text, capture_output=True, encoding="utf-8", timeout=LIMIT, check=False, cwd=cwd
        )
    server = _server()
    assert server.stdin is not None and server.stdout is not None
    with TemporaryDirectory() as name:
        streams = [Path(name) / stream for stream in ("stdin", "stdout", "stderr")]
        for stream in streams:
            stream.write_bytes(text.encode() if stream.name == "stdin" else b"")
        task = [command[2:], str(cwd or Path.cwd()), dict(os.environ), [str(stream) for stream in streams]]
        print(json.dumps(task), file=server.stdin, flush=True)
        exit_code = int(server.stdout.readline())
        # As in text mode of subprocess, \r\n becomes \n.
        _, out, err = (stream.read_text(encoding="utf-8") for stream in streams)
    return subprocess.CompletedProcess(command, exit_code, out, err)


@cache
def _server() -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "tests.commands.process"]
    server = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8")
    atexit.register(server.communicate)  # closing its input ends it
    return server


def _serve() -> bool:
    """Answer each command line with its exit code. Return whether this process is the fork that has to execute one."""
    for module in ("torch._dynamo", *(f"regard.{name}" for name in COMMANDS)):
        import_module(module)
    assert threading.active_count() == 1, "a thread would not be in the forks"
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            _become(*json.loads(line))
            return True
        _, status = os.waitpid(child, 0)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(status)}\n")
        sys.stdout.flush()
    return False


def _become(command: list[str], folder: str, environment: dict[str, str], streams: list[str]) -> None:
    signal.alarm(LIMIT)
    for number, path in enumerate(streams):
        opened = os.open(path, os.O_RDWR)
        os.dup2(opened, number)
        os.close(opened)
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 - whatever the parent had read ahead is not its
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = command


def _execute() -> int:
    """Exit as Python does, but skip the teardown of torch, which takes as long as its import."""
    code: object = 0
    try:
        run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    except SystemExit as ending:
        code = ending.code
    except BaseException:
        traceback.print_exc()
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    return code if isinstance(code, int) else 0 if code is None else 1


if __name__ == "__main__" and _serve():
    os._exit(_execute())
