"""`regard` and `python -m regard`, which is also how torchrun starts it."""

import sys


def main() -> None:
    """What a person did wrong gets one sentence and exit code 2; what we did wrong keeps its traceback."""
    try:
        from regard.cli import app  # inside, so that Ctrl-C is no traceback even while this is read

        app()
    except (ValueError, OSError) as error:
        print(f"regard: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
