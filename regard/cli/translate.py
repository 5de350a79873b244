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

from regard.errors import UserError
from regard.run.checkpoint import require_place_for
from regard.run.metrics import perplexity
from regard.text.corpus import STDIN, count_lines, read_lines
from regard.translate.search import BatchSize, Search
from regard.translate.translation import Translation
from regard.translate.translator import load

CHUNK = 4096  # lines that are sorted by length and written together
MOST_NOTES = 5  # on lines translated in parts; of further ones, only the number is reported
Form = Literal["text", "pieces", "json", "nbest"]


@dataclass(frozen=True)
class Files:
    """The files to read from and to write to; "-" is standard input, None standard output."""

    source: str
    output: Path | None = None
    alignments: Path | None = None
    prefixes: Path | None = None


def translate(runs: Sequence[Path], files: Files, search: Search, *, batch: BatchSize, form: Form, device: str) -> None:
    """Write a line for each line read, in the same order; with `form` "nbest", a line for each alternative."""
    require_apart([files.source, files.prefixes], [files.output, files.alignments])
    total = count_lines(files.source)
    lines = read_lines(files.source)
    prefixes = None if files.prefixes is None else read_lines(str(files.prefixes))
    translator = load(*runs, device=device)
    stderr = Console(stderr=True)
    # A pipe may be slow, so the first lines do not wait for thousands of others.
    size = 1 if files.source == STDIN else CHUNK
    largest = 1 if files.source == STDIN and sys.stdin.isatty() else CHUNK
    with ExitStack() as stack:
        output = stack.enter_context(_opened(files.output))
        alignments = None if files.alignments is None else stack.enter_context(_opened(files.alignments))
        progress = stack.enter_context(_progress(stderr, disable=largest == 1))
        task = progress.add_task("translating", total=total)
        number = num_in_parts = num_cut = 0
        while chunk := list(islice(lines, size)):
            begins = [] if prefixes is None else list(islice(prefixes, len(chunk)))
            if prefixes is not None and len(begins) < len(chunk):
                raise UserError(
                    f"{files.prefixes} ends after line {number + len(begins)}, but the text to translate goes on"
                )
            done: dict[int, Translation] = {}
            for n, one in translator.translations(chunk, search, batch=batch, prefixes=begins, align=alignments is not None):
                done[n] = one
                progress.advance(task)
            for translation in (done[n] for n in range(len(chunk))):
                number += 1
                num_cut += not translation.ended
                num_in_parts += translation.num_parts > 1
                if translation.num_parts > 1 and num_in_parts <= MOST_NOTES:
                    note = f"line {number:,} is longer than what this model learnt from ({translator.used_to:,} subwords); "
                    _say(stderr, f"{note}it was translated in {translation.num_parts:,} parts")
                output.write(_line(number - 1, translation, form) + "\n")
                if alignments is not None:
                    alignments.write(translation.pharaoh + "\n")
            output.flush()
            size = min(2 * size, largest)
        if prefixes is not None and next(prefixes, None) is not None:
            raise UserError(f"{files.prefixes} goes on after line {number}, where the text to translate ends")
    if num_in_parts > MOST_NOTES:
        _say(stderr, f"and so were {num_in_parts - MOST_NOTES:,} more")
    if num_cut:
        whose = "1 translation reached its" if num_cut == 1 else f"{num_cut:,} translations reached their"
        _say(stderr, f"{whose} maximum length and may be cut")


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
    """Write each pair's log-probability and, on request, those of its tokens."""
    require_apart([src, tgt], [output, alignments])
    sources, targets = list(read_lines(src)), list(read_lines(tgt))
    if len(sources) != len(targets):
        raise UserError(f"{src} has {len(sources)} lines and {tgt} has {len(targets)}; they must be equally many")
    translator = load(*runs, device=device)
    scored = translator.score(sources, targets, pieces=pieces, alpha=alpha, batch=batch, align=alignments is not None)
    with ExitStack() as stack:
        out = stack.enter_context(_opened(output))
        for one in scored:
            details = " ".join(f"{token.piece} {token.log_prob:.6f}" for token in one.tokens)
            out.write(f"{one.score:.6f}" + (f"\t{details}" if tokens else "") + "\n")
        if alignments is not None:
            aligned = stack.enter_context(_opened(alignments))
            aligned.writelines(one.pharaoh + "\n" for one in scored)
    num_tokens = sum(len(one.tokens) for one in scored)
    if num_tokens:
        nll = -sum(one.log_prob for one in scored) / num_tokens
        Console(stderr=True).print(f"pairs: {len(scored):,}, tokens: {num_tokens:,}, perplexity: {perplexity(nll):,.3f}")


def require_apart(read: Sequence[str | Path | None], written: Sequence[Path | None]) -> None:
    """Refuse to write over a file that is read, or twice into the same file."""
    if list(read).count(STDIN) > 1:
        raise UserError("standard input can be read only once; give a file for the other")
    seen = [Path(path).resolve() for path in read if path is not None and path != STDIN]
    for path in filter(None, written):
        if path.resolve() in seen and not path.is_char_device():
            raise UserError(f"{path} is given twice, to read from or to write to; give another file to write to")
        seen.append(path.resolve())


def _line(number: int, translation: Translation, form: Form) -> str:
    if form == "json":
        return json.dumps(_as_table(translation), ensure_ascii=False)
    if form == "pieces":
        return " ".join(translation.pieces)
    if form == "nbest":  # Moses's format: number, text, components of the score, score
        every = (translation, *translation.alternatives)
        return "\n".join(f"{number} ||| {one.text} ||| log_prob= {one.log_prob:.6f} ||| {one.score:.6f}" for one in every)
    return translation.text


def _as_table(translation: Translation) -> dict[str, Any]:
    """Return a translation as JSON."""
    table: dict[str, Any] = {name: getattr(translation, name) for name in ("source", "text", "score", "log_prob", "ended")}
    table["tokens"] = [token._asdict() for token in translation.tokens]
    if translation.num_parts > 1:
        table["num_parts"] = translation.num_parts
    if translation.alignment is not None:
        table["alignment"] = translation.alignment
    if translation.alternatives:
        table["alternatives"] = [_as_table(one) for one in translation.alternatives]
    return table


def _say(console: Console, sentence: str) -> None:
    console.print(sentence, highlight=False, soft_wrap=True)


@contextmanager
def _opened(path: Path | None) -> Iterator[TextIO]:
    """Open a file, or standard output, in UTF-8; a terminal keeps its encoding. A file is written under its name with
    `.part` behind it and renamed when it is whole, so that neither an older file nor finished lines are lost."""
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


def _progress(console: Console, *, disable: bool) -> Progress:
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    return Progress(*columns, console=console, transient=True, disable=disable or not console.is_terminal)
