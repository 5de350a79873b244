"""Errors of users and machines, which are reported in a sentence, unlike faults of regard."""

import errno
from importlib.util import find_spec
from pathlib import Path

ON_A_NAME = {  # errors on a file that a user named, with advice
    errno.ENOENT: "check the name",
    errno.ENOTDIR: "give another name",
    errno.EISDIR: "give another name",
    errno.EEXIST: "give another name",
    errno.ENOTEMPTY: "give another name",
    errno.ENAMETOOLONG: "give a shorter name",
    errno.ELOOP: "give another name",
    errno.EACCES: "ask for permission, or give another place",
    errno.EPERM: "ask for permission, or give another place",
}
ON_THE_MACHINE = {  # errors that no program can prevent, with advice
    errno.EROFS: "give a place that can be written to",
    errno.ENOSPC: "free some space, or give a place on another disk",
    errno.EDQUOT: "free some space, or give a place on another disk",
    errno.EFBIG: "give a place on another file system",
    errno.EIO: "look at the disk",
    errno.ESTALE: "look at the network disk",
    errno.EMFILE: "allow more open files, with ulimit -n",
    errno.ENFILE: "close other programs",
    errno.ENOMEM: "close other programs, or ask for less at once",
    errno.EADDRINUSE: "give another address",
    errno.EADDRNOTAVAIL: "give another address",
}
OURS = Path(__file__).parent


class UserError(ValueError):
    """A mistake in what a user gave, told in one sentence: what is wrong, where, and what to do.

    Only this is shown as a sentence (exit code 2, or an answer of 4xx), and on a command line the few errors of the
    operating system that `sentence_for` knows. Any other exception is a fault of regard: it keeps its traceback (exit
    code 1), and a server logs it and answers 500.
    """


def missing_packages(purpose: str, *names: str) -> str:
    """Return a sentence on those of the packages that are not installed; empty if none is missing.

    It names the packages and not an extra of regard, so that its command works wherever regard was installed from.
    """
    missing = [name for name in names if find_spec(name) is None]
    return f"{purpose} needs {' and '.join(missing)}: pip install {' '.join(missing)}" if missing else ""


def sentence_for(error: BaseException) -> str | None:
    """Return a sentence for the user on this error; None for a fault of regard."""
    if isinstance(error, UserError):
        return str(error)
    if isinstance(error, MemoryError):
        return "there is too little memory; close other programs, or ask for less at once"
    if not isinstance(error, OSError) or error.errno is None:
        return None
    if error.errno in ON_THE_MACHINE:
        advice = ON_THE_MACHINE[error.errno]
    elif error.errno in ON_A_NAME and _is_theirs(error.filename):
        advice = ON_A_NAME[error.errno]
    else:
        return None
    where = "" if error.filename is None else f"{error.filename}: "
    return f"{where}{error.strerror}; {advice}"


def _is_theirs(name: object) -> bool:
    """Return whether a file was named by the user, and does not belong to regard."""
    return isinstance(name, str | Path) and not Path(name).absolute().is_relative_to(OURS)
