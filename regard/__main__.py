"""`regard` and `python -m regard`, which is also how torchrun starts it."""

import io
import os
import signal
import sys


def main() -> None:
    """What a person did wrong gets one sentence and exit code 2; what we did wrong keeps its traceback."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # an exit like any other: what is half done is cleared away
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a terminal that cannot show a letter is no reason to fail
            stream.reconfigure(errors="backslashreplace")
    try:
        from regard.cli import app  # inside, so that Ctrl-C is no traceback even while this is read

        app()
    except (ValueError, OSError) as error:
        print(f"regard: {error}", file=sys.stderr)
        _exit(2)
    except KeyboardInterrupt:
        _exit(130)
    except SystemExit as ending:
        _exit(ending.code)


def _exit(code: int | str | None) -> None:
    if isinstance(code, int) and "WORLD_SIZE" in os.environ:
        # DistributedDataParallel keeps gloo's threads for ever, and one that still has to give back a tensor would abort a
        # Python that is shutting down; so a process among several ends without that.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


if __name__ == "__main__":
    main()
