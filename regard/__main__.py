"""Runs the command line, as `regard` or, under torchrun, `python -m regard`."""

import io
import os
import signal
import sys
import traceback
from pathlib import Path

from regard import __version__
from regard.errors import sentence_for
from regard.machine.load import bound_spinning

REPORT = (
    "regard: this is a fault of regard, not a mistake of yours. Please report it to the people who gave you regard, with "
    f"the command, the version ({__version__}) and the traceback above."
)


def main() -> None:
    """Run the command line. The exit code is 2 after a user's mistake, and 1 after a fault of regard."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # runs the usual clean-up
    bound_spinning()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # do not fail on letters that a terminal cannot show
            stream.reconfigure(errors="backslashreplace")
    try:
        code = _run()
        sys.stdout.flush()  # while an error can still be reported
    except KeyboardInterrupt:
        code = 130
    except SystemExit as ending:
        code = ending.code
    except BrokenPipeError:
        code = _after_broken_pipe()
    except Exception as error:
        code = _told(error)
    _exit(code)


def _run() -> int | str | None:
    try:
        from regard.cli import app  # here, so that Ctrl-C during the import prints no traceback

        app()
    except SystemExit as ending:
        if isinstance(ending.__context__, BrokenPipeError):  # which typer turns into exit code 1
            return _after_broken_pipe()
        aborted_by = getattr(ending.__context__, "__cause__", None)
        if isinstance(aborted_by, EOFError):  # which typer takes for the end of a conversation
            raise aborted_by from None
        return ending.code
    return 0


def _after_broken_pipe() -> int:
    """Suppress further output, and return the exit code of SIGPIPE."""
    sys.stdout = Path(os.devnull).open("w")  # noqa: SIM115 (it is needed to the end)
    return 141


def _told(error: Exception) -> int:
    """Print an error, and return the exit code."""
    if sentence := sentence_for(error):
        print(f"regard: {sentence}", file=sys.stderr)
        return 2
    traceback.print_exception(error)
    print(REPORT, file=sys.stderr)
    return 1


def _exit(code: int | str | None) -> None:
    if isinstance(code, int) and "WORLD_SIZE" in os.environ:
        # DistributedDataParallel's gloo threads never end, and may abort the interpreter while it shuts down.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


if __name__ == "__main__":
    main()
