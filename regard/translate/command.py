"""`regard translate` and `regard score`: from files or a pipe to lines of text."""

import gzip
import io
import json
import lzma
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Literal, TextIO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from regard.checkpoint import require_place_for
from regard.text.corpus import STDIN, count_lines, read_lines
from regard.train.metrics import perplexity
from regard.translate.search import BatchSize, Search
from regard.translate.translation import Translation
from regard.translate.translator import Translator, load

CHUNK = 4096  # lines that are sorted by length together, and so written together
MOST_NOTES = 5  # on long lines; after these only their number is told
Form = Literal["text", "pieces", "json", "nbest"]


@dataclass(frozen=True)
class Files:
    """Where lines come from and go to; "-" is standard input, None standard output."""

    source: str
    output: Path | None = None
    alignments: Path | None = None
    prefixes: Path | None = None


def translate(runs: Sequence[Path], files: Files, search: Search, *, batch: BatchSize, form: Form, device: str) -> None:
    """One line out for each line in, in their order; with `form` "nbest" as many as there are translations."""
    require_apart([files.source, files.prefixes], [files.output, files.alignments])
    total = count_lines(files.source)
    lines = read_lines(files.source)
    prefixes = None if files.prefixes is None else read_lines(str(files.prefixes))
    translator = load(*runs, device=device)
    stderr = Console(stderr=True)
    notes = _LongLines(stderr)
    # What comes through a pipe may come slowly: the first lines are not to wait for thousands of others.
    at_once = 1 if files.source == STDIN else CHUNK
    most = 1 if files.source == STDIN and sys.stdin.isatty() else CHUNK
    with ExitStack() as stack:
        output = stack.enter_context(_opened(files.output))
        alignments = None if files.alignments is None else stack.enter_context(_opened(files.alignments))
        progress = stack.enter_context(_progress(stderr, most))
        task = progress.add_task("translating", total=total)
        number = 0
        while chunk := list(islice(lines, at_once)):
            begins = [] if prefixes is None else _beginnings(prefixes, files.prefixes, len(chunk), number)
            done: dict[int, Translation] = {}
            found = translator.translations(chunk, search, batch=batch, prefixes=begins, align=alignments is not None)
            for place, translation in found:
                done[place] = translation
                progress.advance(task)
            for place in range(len(chunk)):
                notes.look_at(number + place + 1, done[place], translator)
                output.write(_line(number + place, done[place], form) + "\n")
                if alignments is not None:
                    alignments.write(done[place].pharaoh + "\n")
            output.flush()
            number += len(chunk)
            at_once = min(2 * at_once, most)
        if prefixes is not None and next(prefixes, None) is not None:
            raise ValueError(f"{files.prefixes} goes on after line {number}, where the text to translate ends")
    notes.finish()


def score(
    runs: Sequence[Path],
    src: str,
    tgt: str,
    *,
    pieces: bool,
    tokens: bool,
    alpha: float,
    output: Path | None,
    alignments: Path | None,
    batch: BatchSize,
    device: str,
) -> None:
    """A line for each pair: its log-probability, and on request those of its tokens."""
    require_apart([src, tgt], [output, alignments])
    sources, targets = list(read_lines(src)), list(read_lines(tgt))
    if len(sources) != len(targets):
        raise ValueError(f"{src} has {len(sources)} lines and {tgt} has {len(targets)}; they must be equally many")
    scored = load(*runs, device=device).score(
        sources, targets, pieces=pieces, alpha=alpha, batch=batch, align=alignments is not None
    )
    with ExitStack() as stack:
        out = stack.enter_context(_opened(output))
        for one in scored:
            details = "".join(f" {token.piece} {token.log_prob:.6f}" for token in one.tokens) if tokens else ""
            out.write(f"{one.score:.6f}" + (f"\t{details.strip()}" if tokens else "") + "\n")
        if alignments is not None:
            aligned = stack.enter_context(_opened(alignments))
            aligned.writelines(one.pharaoh + "\n" for one in scored)
    num_tokens = sum(len(one.tokens) for one in scored)
    if num_tokens:
        nll = -sum(one.log_prob for one in scored) / num_tokens
        Console(stderr=True).print(f"pairs: {len(scored):,}, tokens: {num_tokens:,}, perplexity: {perplexity(nll):,.3f}")


def require_apart(read: Sequence[str | Path | None], written: Sequence[Path | None]) -> None:
    """Nothing is written over what is read, or twice into one file."""
    if list(read).count(STDIN) > 1:
        raise ValueError("standard input can be read only once; give a file for the other")
    seen = [Path(path).resolve() for path in read if path is not None and path != STDIN]
    for path in written:
        if path is not None and path.resolve() in seen and not path.is_char_device():
            raise ValueError(f"{path} is given twice, to read from or to write to; give another file to write to")
        seen += [] if path is None else [path.resolve()]


def _line(number: int, translation: Translation, form: Form) -> str:
    if form == "json":
        return json.dumps(as_table(translation), ensure_ascii=False)
    if form == "pieces":
        return " ".join(translation.pieces)
    if form == "nbest":  # Moses' form: number, text, what the score is made of, score
        every = (translation, *translation.alternatives)
        return "\n".join(f"{number} ||| {one.text} ||| log_prob= {one.log_prob:.6f} ||| {one.score:.6f}" for one in every)
    return translation.text


def as_table(translation: Translation) -> dict[str, Any]:
    """For JSON."""
    table: dict[str, Any] = {
        "source": translation.source,
        "text": translation.text,
        "score": translation.score,
        "log_prob": translation.log_prob,
        "tokens": [{"piece": token.piece, "log_prob": token.log_prob} for token in translation.tokens],
    }
    if translation.num_parts > 1:
        table["num_parts"] = translation.num_parts
    if translation.alignment is not None:
        table["alignment"] = [list(link) for link in translation.alignment]
    if translation.alternatives:
        table["alternatives"] = [as_table(one) for one in translation.alternatives]
    return table


class _LongLines:
    """What is said about texts that had to be translated in parts."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.count = 0

    def look_at(self, number: int, translation: Translation, translator: Translator) -> None:
        if translation.num_parts > 1:
            self.count += 1
            if self.count <= MOST_NOTES:
                self.console.print(
                    f"line {number:,} is longer than what this model learnt from ({translator.used_to:,} subwords); "
                    f"it was translated in {translation.num_parts:,} parts",
                    highlight=False,
                    soft_wrap=True,
                )

    def finish(self) -> None:
        if self.count > MOST_NOTES:
            self.console.print(f"and so were {self.count - MOST_NOTES:,} more", highlight=False)


def _beginnings(prefixes: Iterator[str], path: Path | None, count: int, before: int) -> list[str]:
    found = list(islice(prefixes, count))
    if len(found) < count:
        raise ValueError(f"{path} ends after line {before + len(found)}, but the text to translate goes on")
    return found


@contextmanager
def _opened(path: Path | None) -> Iterator[TextIO]:
    """A file, or standard output, which stays open; in UTF-8, but for a terminal, which knows best. A file has its name when
    it is whole, and until then `.part` behind it: what was there stays, and what was translated is not lost."""
    if path is None:
        if isinstance(sys.stdout, io.TextIOWrapper) and not sys.stdout.isatty():
            sys.stdout.reconfigure(encoding="utf-8")
        yield sys.stdout
        return
    require_place_for(path)
    is_special = path.exists() and not path.is_file()  # such as /dev/null
    part = path if is_special else path.with_name(f"{path.name}.part")
    openers: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".xz": lzma.open}
    opened = openers.get(path.suffix.lower(), io.open)
    try:
        with opened(part, "wt", encoding="utf-8", newline="\n") as file:
            yield file
        if not is_special:
            part.rename(path)
    finally:
        if part != path and part.exists() and part.stat().st_size == 0:
            part.unlink()


def _progress(console: Console, at_once: int) -> Progress:
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal or at_once == 1)
