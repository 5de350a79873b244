"""Long texts in parts that a model can take, and parts put together again."""

import itertools
import re
from collections.abc import Callable, Iterator, Sequence

Count = Callable[[Sequence[str]], list[int]]  # how many subwords each of some texts has

# Languages whose sentences stand beside each other without a space.
UNSPACED = {"zh", "zho", "chi", "cmn", "yue", "ja", "jpn", "th", "tha", "lo", "lao", "km", "khm", "my", "mya"}

_CLOSING = "[\"'”’»)\\]」』）】]*"
# After . ! ? …, perhaps in quotes, where a space and then no lower-case letter follow; and after 。！？ anywhere. This
# matches wherever such letters stand, so that it need not try again at each of a thousand dots.
_SENTENCE_ENDS = re.compile(rf"[.!?…]+{_CLOSING}(\s*)|[。！？｡]+{_CLOSING}\s*")
_ABBREVIATION = re.compile(
    r"(?:^|[\s(])(?:\w|Mr|Mrs|Ms|Dr|St|Jr|Sr|No|Nr|Prof|Abb|Fig|bzw|vgl|ca|vs|etc|Vol|pp|Inc|Ltd|Co|Corp)\.\s+$"
)
_CLAUSE_ENDS = re.compile(r"[,;:–—]\s+|[，；：、]\s*")
_SPACES = re.compile(r"\s+")
LONGEST_PIECE = 16  # characters; a text of more than so many times n has more than n subwords, which need not be counted


def sentences(text: str) -> list[str]:
    """Cut after sentence ends. Where it is not clear that one ends, it goes on: better too long than torn."""
    parts, start = [], 0
    for end in _SENTENCE_ENDS.finditer(text):
        needs_space = end[1] is not None
        if needs_space and (not end[1] or text[end.end() : end.end() + 1].islower()):
            continue
        if needs_space and _ABBREVIATION.search(text, max(start, end.end() - 12), end.end()):
            continue
        parts.append(text[start : end.end()].strip())
        start = end.end()
    return [part for part in (*parts, text[start:].strip()) if part]


def parts_for(text: str, count: Count, *, used_to: int, bearable: int) -> list[str]:
    """The text itself, if it has at most `used_to` subwords; otherwise its sentences, and of a sentence with more than is
    `bearable` its clauses, words, or at worst any pieces, as few of them as fit."""
    if _fits(text, count, used_to):
        return [text]
    parts = []
    for sentence in sentences(text):
        parts += [sentence] if _fits(sentence, count, bearable) else _cut(sentence, count, used_to)
    return parts


def joined(parts: Sequence[str], language: str) -> str:
    return ("" if is_unspaced(language) else " ").join(part for part in parts if part)


def is_unspaced(language: str) -> bool:
    return primary(language) in UNSPACED


def primary(language: str) -> str:
    """`zh` for zh-TW."""
    return re.split("[-_]", language.lower(), maxsplit=1)[0]


def _fits(text: str, count: Count, limit: int) -> bool:
    return len(text) <= LONGEST_PIECE * limit and count([text])[0] <= limit


def _cut(text: str, count: Count, limit: int) -> list[str]:
    if _fits(text, count, limit):
        return [text]
    for ends in (_CLAUSE_ENDS, _SPACES):
        packed = list(_packed(_split_after(ends, text), count, limit))
        if len(packed) > 1:  # one is the text itself, for which its units together have too few subwords: cut it otherwise
            return [part for text in packed for part in _cut(text, count, limit)]
    half = len(text) // 2
    return [text] if half == 0 else [*_cut(text[:half], count, limit), *_cut(text[half:], count, limit)]


def _split_after(ends: re.Pattern[str], text: str) -> list[str]:
    places = [0, *(end.end() for end in ends.finditer(text)), len(text)]
    return [text[start:end] for start, end in itertools.pairwise(places) if start < end]


def _packed(units: Sequence[str], count: Count, limit: int) -> Iterator[str]:
    """Neighbours together, as long as they fit."""
    start, total = 0, 0
    for place, length in enumerate(count(units)):
        if total and total + length > limit:
            yield "".join(units[start:place]).strip()
            start, total = place, 0
        total += length
    yield "".join(units[start:]).strip()
