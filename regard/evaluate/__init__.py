"""Evaluation of translations. The package is also the function `regard.evaluate`."""

import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from regard.errors import UserError

if TYPE_CHECKING:
    from regard.evaluate.evaluation import Evaluation


def evaluate(
    system: str | Path,
    *,
    refs: Sequence[str | Path],
    src: str | Path | None = None,
    versus: str | Path | None = None,
    tgt_lang: str | None = None,
    beam: int = 4,
    alpha: float = 0.6,
    num_resamples: int = 1000,
    device: str = "auto",
) -> "Evaluation":
    """Measure a system, which is a run's folder or a file of translations, against files of references, and compare it with
    a second system where one is given. A run needs `src`, a file to translate. Nothing is written."""
    from regard.evaluate.command import EvaluationSettings, measure

    if isinstance(refs, str | Path):
        raise UserError(f"refs must be a list of files; give [{str(refs)!r}]")
    return measure(
        EvaluationSettings(
            system=str(system),
            refs=tuple(map(str, refs)),
            src=None if src is None else str(src),
            versus=None if versus is None else str(versus),
            tgt_lang=tgt_lang,
            beam=beam,
            alpha=alpha,
            num_resamples=num_resamples,
            device=device,
        )
    )


class _Package(ModuleType):
    """A module that calls its function of the same name: importing `regard.evaluate.metrics` sets `regard.evaluate` to the
    module."""

    __call__ = staticmethod(evaluate)


sys.modules[__name__].__class__ = _Package
