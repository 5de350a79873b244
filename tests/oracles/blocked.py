"""Block `regard.fast` by a finder and a plugin of pytest. This module imports nothing of regard, because the plugin is
loaded before the hook that checks shapes."""

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType


class Blocker(MetaPathFinder):
    """A finder that refuses to import `regard.fast` and its modules."""

    def find_spec(
        self, name: str, _path: Sequence[str] | None = None, _target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name == "regard.fast" or name.startswith("regard.fast."):
            raise ImportError(f"{name} is blocked")
        return None


def pytest_configure() -> None:
    """Block `regard.fast` in a process that takes this module as a plugin."""
    sys.meta_path.insert(0, Blocker())
