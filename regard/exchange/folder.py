"""Folders that are made whole or not at all."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def made_beside(folder: Path) -> Iterator[Path]:
    """A folder to work in, which becomes `folder` when all went well and is gone when not."""
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        raise ValueError(f"{folder} is there already; choose another name, or delete it first")
    folder.parent.mkdir(parents=True, exist_ok=True)
    workshop = folder.with_name(f".{folder.name}.making")
    shutil.rmtree(workshop, ignore_errors=True)
    workshop.mkdir()
    try:
        yield workshop
        workshop.rename(folder)  # onto an empty folder, too
    finally:
        shutil.rmtree(workshop, ignore_errors=True)
