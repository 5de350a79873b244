"""regard: a Transformer translator that you can train, trust and look into."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from regard.generate.generator import Generated, Generation, Generator, load_language
    from regard.search.sample import Sampling
    from regard.translate.search import BatchSize, Search
    from regard.translate.translation import Translation
    from regard.translate.translator import Translator, load

__all__ = [
    "BatchSize",
    "Generated",
    "Generation",
    "Generator",
    "Sampling",
    "Search",
    "Translation",
    "Translator",
    "load",
    "load_language",
]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """What a program needs, imported when it is asked for: `regard --help` need not wait for torch."""
    if name in ("load", "Translator"):
        from regard.translate import translator

        return getattr(translator, name)
    if name in ("Search", "BatchSize"):
        from regard.translate import search

        return getattr(search, name)
    if name in ("load_language", "Generator", "Generation", "Generated"):
        from regard.generate import generator

        return getattr(generator, name)
    if name == "Sampling":
        from regard.search.sample import Sampling

        return Sampling
    if name == "Translation":
        from regard.translate.translation import Translation

        return Translation
    raise AttributeError(f"module 'regard' has no attribute {name!r}")
