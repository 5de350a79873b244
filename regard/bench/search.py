"""Runs `regard bench search`: compares translations between batch sizes, and scores between beam widths."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rich.console import Console
from rich.progress import Progress

from regard.bench.origin import origin
from regard.data.batch import collate_sources
from regard.errors import UserError
from regard.search.beam import BeamResult, Candidate, beam
from regard.search.hypothesis import TIE
from regard.text.cleaning import normalise
from regard.text.corpus import read_lines
from regard.text.tokenizer import BOS_ID, EOS_ID
from regard.translate.search import MAX_EXTRA, started
from regard.translate.translator import Translator, load

SearchVerdict = Literal["equal", "tie", "different"]
Chosen = dict[tuple[int, ...], float]  # hypotheses that a step keeps or finishes, and their totals


@dataclass(frozen=True)
class SearchBenchSettings:
    batches: tuple[int, ...]  # sentences at once; the first is compared with the others
    beams: tuple[int, int]  # a narrow and a wide one
    max_lines: int
    device: str


def run(settings: SearchBenchSettings, folder: Path, source: str) -> None:
    translator = load(folder, device=settings.device)
    ids = encoded_lines(translator, source)[: settings.max_lines]
    narrow, wide = settings.beams
    stderr, console = Console(stderr=True), Console()
    with Progress(console=stderr, transient=True, disable=not stderr.is_terminal) as progress:
        results = {}
        for batch in settings.batches:
            found = searched(translator, ids, width=narrow, batch=batch)
            results[batch] = list(progress.track(found, total=len(ids), description=f"{batch} at once"))
        found = searched(translator, ids, width=wide, batch=settings.batches[-1])
        wider = list(progress.track(found, total=len(ids), description=f"beam {wide}"))
    console.print(f"{len(ids):,} sentences of {source}, beam {narrow}, float32; {origin(translator.device)}")
    first, *others = settings.batches
    for batch in others:
        verdicts = [compare(*pair) for pair in zip(results[first], results[batch], strict=True)]
        console.print(
            f"{batch} at once against {first}: {verdicts.count('equal'):,} equal, {verdicts.count('tie'):,} ties, "
            f"{verdicts.count('different'):,} different",
            highlight=False,
        )
    pairs = list(zip(results[settings.batches[-1]], wider, strict=True))
    lower = sum(b.hypotheses[0].score < a.hypotheses[0].score - TIE for a, b in pairs)
    higher = sum(b.hypotheses[0].score > a.hypotheses[0].score + TIE for a, b in pairs)
    console.print(f"beam {wide} against {narrow}: {lower:,} score lower, {higher:,} higher", highlight=False)


def encoded_lines(translator: Translator, source: str) -> list[list[int]]:
    """Return the lines of a file that are neither empty nor too long, as ids."""
    texts = [normalise(line) for line in read_lines(source)]
    ids = [row for row in translator.tokenizer.src.encode(texts) if 0 < len(row) <= translator.limit]
    if not ids:
        raise UserError(f"no text in {source}; give at least one line")
    return ids


def searched(translator: Translator, ids: Sequence[list[int]], *, width: int, batch: int) -> Iterator[BeamResult]:
    """Yield the searches of all sentences, in batches in the order of the text, with their steps."""
    [model] = translator.models
    for start in range(0, len(ids), batch):
        rows = ids[start : start + batch]
        step, cache = started(model, collate_sources(rows).to(translator.device))
        yield from beam(
            step,
            cache,
            [min(len(row) + MAX_EXTRA, model.config.longest_sequence - 1) for row in rows],
            width=width,
            bos_id=BOS_ID,
            eos_id=EOS_ID,
            keep_steps=True,
            device=translator.device,
        )


def compare(one: BeamResult, other: BeamResult) -> SearchVerdict:
    """Compare two searches. In a tie, at the first step that keeps different hypotheses, their scores are within TIE."""
    if one.hypotheses[0].ids == other.hypotheses[0].ids:
        return "equal"
    ours: list[tuple[int, ...]] = [()]
    theirs: list[tuple[int, ...]] = [()]
    for our_step, their_step in zip(one.steps, other.steps, strict=False):
        our_choice, their_choice = _chosen(our_step, ours), _chosen(their_step, theirs)
        if our_choice.keys() != their_choice.keys():
            totals = [total for ids, total in our_choice.items() if ids not in their_choice]
            totals += [total for ids, total in their_choice.items() if ids not in our_choice]
            return "tie" if max(totals) - min(totals) <= TIE else "different"
        ours, theirs = (_kept(step, beams) for step, beams in ((our_step, ours), (their_step, theirs)))
    scores = one.hypotheses[0].score, other.hypotheses[0].score  # the same candidates, in a different final order
    return "tie" if abs(scores[0] - scores[1]) <= TIE else "different"


def _chosen(step: Sequence[Candidate], beams: list[tuple[int, ...]]) -> Chosen:
    return {(*beams[candidate.parent], candidate.token): candidate.total for candidate in step if candidate.fate != "pruned"}


def _kept(step: Sequence[Candidate], beams: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
    return [(*beams[candidate.parent], candidate.token) for candidate in step if candidate.fate == "kept"]
