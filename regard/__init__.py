"""regard: a Transformer translator that you can train, trust and look into."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from regard.evaluate import evaluate
    from regard.generate.generator import Generated, Generation, Generator, load_language
    from regard.model.trace import Head, Intervention, Trace
    from regard.search.sample import Sampling
    from regard.train import train
    from regard.translate.search import BatchSize, Search
    from regard.translate.translation import TracedTranslation, Translation
    from regard.translate.translator import Translator, load

__all__ = [
    "BatchSize",
    "Generated",
    "Generation",
    "Generator",
    "Head",
    "Intervention",
    "Sampling",
    "Search",
    "Trace",
    "TracedTranslation",
    "Translation",
    "Translator",
    "evaluate",
    "load",
    "load_language",
    "train",
]
__version__ = "0.1.0"

_MODULES = {
    "generate.generator": ("Generated", "Generation", "Generator", "load_language"),
    "model.trace": ("Head", "Intervention", "Trace"),
    "search.sample": ("Sampling",),
    "translate.search": ("BatchSize", "Search"),
    "translate.translation": ("TracedTranslation", "Translation"),
    "translate.translator": ("Translator", "load"),
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used, so that `regard --help` does not wait for torch."""
    from regard.machine.load import bound_spinning

    bound_spinning()
    if name in ("evaluate", "train"):
        return import_module(f"regard.{name}")
    for module, names in _MODULES.items():
        if name in names:
            return getattr(import_module(f"regard.{module}"), name)
    raise AttributeError(f"module 'regard' has no attribute {name!r}")
