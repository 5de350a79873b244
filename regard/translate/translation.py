"""The values that a translator returns."""

from dataclasses import dataclass
from typing import NamedTuple

from regard.model.trace import Trace
from regard.translate.alignment import Links

END = "</s>"  # never a piece of text: a literal one is spelt in letters


class Token(NamedTuple):
    """A subword, or the end of the text, with the log-probability that the model gave it."""

    piece: str
    log_prob: float


@dataclass(frozen=True)
class Translation:
    """A text's translation. If the text was too long for the model, it was translated in parts, and the tokens are those
    of all parts in order, each part with its end."""

    source: str
    text: str
    tokens: tuple[Token, ...] = ()
    log_prob: float = 0.0
    score: float = 0.0  # log_prob over the length penalty, by which candidates are ranked
    ended: bool = True  # False: it was cut at its maximum length, in one part at least
    num_parts: int = 1
    alternatives: tuple["Translation", ...] = ()  # the next best, or the other samples, if more than one was asked for
    alignment: Links | None = None  # (source word, target word), from 0; None: not asked for

    @property
    def pieces(self) -> tuple[str, ...]:
        """The subwords without the ends."""
        return tuple(token.piece for token in self.tokens if token.piece != END)

    @property
    def pharaoh(self) -> str:
        """The alignment as `0-0 1-2`."""
        return " ".join(f"{src}-{tgt}" for src, tgt in self.alignment or ())


@dataclass(frozen=True, eq=False)
class TracedTranslation:
    """A pass over one source and one target, and the pieces that name the positions of its tensors."""

    trace: Trace
    source_pieces: tuple[str, ...]  # of each source position, the end included
    target_pieces: tuple[str, ...]  # predicted at each target position, the end included; position 0 is fed BOS
