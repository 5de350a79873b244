"""Training. The package is also the function `regard.train`."""

import multiprocessing
import sys
from pathlib import Path
from types import ModuleType

from regard.errors import UserError
from regard.settings import Table


def train(settings: Table, folder: str | Path) -> Path:
    """Train a run, or continue it if it is there, and return its folder. The settings are nested dictionaries with the
    content of a TOML file."""
    from regard.train.command import run

    if getattr(multiprocessing.current_process(), "_inheriting", False):  # a worker that imports the main module
        raise UserError("training starts processes, which import the script again; train under `if __name__ == '__main__':`")
    run(settings, Path(folder))
    return Path(folder)


class _Package(ModuleType):
    """A module that calls its function of the same name: importing `regard.train.loop` sets `regard.train` to the module."""

    __call__ = staticmethod(train)


sys.modules[__name__].__class__ = _Package
