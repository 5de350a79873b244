"""What a translation is: text, and what stands behind it."""

from dataclasses import dataclass, replace
from typing import NamedTuple

from regard.translate.alignment import Links


class Token(NamedTuple):
    """A subword, or the end of the text, and how probable the model found it."""

    piece: str
    log_prob: float


@dataclass(frozen=True)
class Translation:
    """One text's. A text that was too long for the model is translated in parts: its tokens are those of all parts, in
    order, each part with its end."""

    source: str
    text: str
    tokens: tuple[Token, ...]
    log_prob: float
    score: float  # log_prob over the length penalty: what candidates are ranked by
    num_parts: int = 1
    alternatives: tuple["Translation", ...] = ()  # the next best, or the others drawn, where more were asked for
    alignment: Links | None = None  # (source word, target word), from 0; None: not asked for

    @property
    def pieces(self) -> tuple[str, ...]:
        """Without the ends."""
        return tuple(token.piece for token in self.tokens if token.piece != END)

    @property
    def pharaoh(self) -> str:
        """The alignment as `0-0 1-2`."""
        return " ".join(f"{src}-{tgt}" for src, tgt in self.alignment or ())


END = "</s>"  # never a piece of text: subwords know a literal one as its letters
EMPTY = Translation(source="", text="", tokens=(), log_prob=0.0, score=0.0)


def empty(source: str, *, aligned: bool) -> Translation:
    """Nothing, translated."""
    return replace(EMPTY, source=source, alignment=() if aligned else None)


def with_alternatives(translations: list[Translation]) -> Translation:
    """The first one, with the others as its alternatives."""
    return replace(translations[0], alternatives=tuple(translations[1:]))


def together(source: str, text: str, parts: list[Translation], alignment: Links | None) -> Translation:
    """A text's from those of its parts. The alternatives are then too many to list."""
    if len(parts) == 1:
        alternatives = tuple(replace(one, source=source) for one in parts[0].alternatives)
        return replace(parts[0], source=source, alternatives=alternatives)
    return Translation(
        source=source,
        text=text,
        tokens=tuple(token for part in parts for token in part.tokens),
        log_prob=sum(part.log_prob for part in parts),
        score=sum(part.score for part in parts),
        num_parts=len(parts),
        alignment=alignment,
    )
