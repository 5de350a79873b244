"""From files of text to a folder that training reads: cleaned, cut into subwords, memory-mapped, and reported on.

The training text is read once and never held: chunks of pairs go through a pool of cleaners into a spool file, the subwords
are learnt from a sample drawn on the way, and the spool is cut into ids chunk by chunk.
"""

import itertools
import json
import os
import random
import shutil
import signal
import sys
import threading
import unicodedata
from bisect import bisect_right
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Generic, TypeVar

from regard.config import CleaningConfig, CorpusConfig, DataConfig
from regard.data.report import DataReport, Leakage, SideReport, SplitReport
from regard.data.store import SIDES, EncodedTexts, PairWriter
from regard.settings import to_table
from regard.text.cleaning import Reason, normalise, reason_to_drop
from regard.text.corpus import Pair, read_pairs
from regard.text.tokenizer import Subwords, Tokenizer, learn_subwords

CHUNK_PAIRS = 5_000
NUM_UNKNOWN = 20

T = TypeVar("T")
R = TypeVar("R")
Track = Callable[[Iterable[T], str], Iterable[T]]


@dataclass(frozen=True)
class CleanPair:
    """A pair that passed the filters, with what finds it again: to the letter, and by the letters and digits of one side."""

    pair: Pair
    exact: int
    near_src: int
    near_tgt: int


@dataclass(frozen=True)
class CleanChunk:
    kept: list[CleanPair]
    dropped: list[tuple[Reason, Pair]]


def key_of(text: str) -> int:
    """Finds a text again."""
    return int.from_bytes(blake2b(text.encode("utf-8"), digest_size=8).digest(), "little")


def near_key_of(text: str) -> int:
    """The same for texts that differ in case, punctuation and spaces only; a text of nothing else is like itself alone."""
    return key_of(text.casefold().translate(_punctuation()) or text)


@cache
def _punctuation() -> dict[int, None]:
    """Punctuation, symbols and spaces, to be deleted. Not all but letters and digits: many scripts write vowels as marks."""
    return {code: None for code in range(sys.maxunicode + 1) if unicodedata.category(chr(code))[0] in "PSZ"}


def clean_chunk(pairs: list[Pair], rules: CleaningConfig, src_lang: str, tgt_lang: str) -> CleanChunk:
    """Pure, and of picklable arguments: it runs in other processes."""
    kept, dropped = [], []
    for raw in pairs:
        pair = Pair(normalise(raw.src), normalise(raw.tgt))
        if reason := reason_to_drop(pair, rules, src_lang, tgt_lang):
            dropped.append((reason, pair))
        else:
            kept.append(CleanPair(pair, key_of("\n".join(pair)), near_key_of(pair.src), near_key_of(pair.tgt)))
    return CleanChunk(kept, dropped)


def chunked(items: Iterable[T], size: int) -> Iterator[list[T]]:
    iterator = iter(items)
    while chunk := list(itertools.islice(iterator, size)):
        yield chunk


def parallel_map(function: Callable[..., R], items: Iterable[T], *arguments: object) -> Iterator[R]:
    """In order, on all cores, never more than a few items ahead: a pool's own map would read the whole corpus first."""
    num_processes = os.cpu_count() or 1
    if num_processes == 1:
        yield from (function(item, *arguments) for item in items)
        return
    waiting: deque[Future[R]] = deque()
    with ProcessPoolExecutor(num_processes, mp_context=get_context("spawn")) as pool:
        try:
            for item in items:
                with _without_interrupts():
                    waiting.append(pool.submit(function, item, *arguments))
                if len(waiting) > 2 * num_processes:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


@contextmanager
def _without_interrupts() -> Iterator[None]:
    """Processes started meanwhile ignore Ctrl-C for good: it is this one's to handle, theirs would be tracebacks."""
    if threading.current_thread() is not threading.main_thread():  # which alone may set handlers
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


class _LeakageCheck:
    """Which held-out texts stand in the training text: asked of every pair that is kept."""

    def __init__(self, held_out: dict[str, list[CleanPair]]) -> None:
        self._held_out = held_out
        self._exact: set[int] = set()
        self._near_src: set[int] = set()
        self._near_tgt: set[int] = set()
        pairs = [clean for split in held_out.values() for clean in split]
        self._wanted = [{getattr(clean, key) for clean in pairs} for key in ("exact", "near_src", "near_tgt")]

    def look_at(self, clean: CleanPair) -> None:
        keys = (clean.exact, clean.near_src, clean.near_tgt)
        for key, wanted, seen in zip(keys, self._wanted, (self._exact, self._near_src, self._near_tgt), strict=True):
            if key in wanted:
                seen.add(key)

    def report(self) -> dict[str, Leakage]:
        reports = {}
        for split, pairs in self._held_out.items():
            leaked = [clean.pair for clean in pairs if clean.exact in self._exact]
            reports[split] = Leakage(
                pairs=len(pairs),
                exact=len(leaked),
                near_src=sum(clean.near_src in self._near_src for clean in pairs),
                near_tgt=sum(clean.near_tgt in self._near_tgt for clean in pairs),
                examples=leaked[:3],
            )
        return reports


class Sample(Generic[T]):
    """A uniform sample of a stream of unknown length (reservoir sampling), the same for the same seed."""

    def __init__(self, size: int, seed: int) -> None:
        self.items: list[T] = []
        self._size = size
        self._seen = 0
        self._random = random.Random(seed)

    def offer(self, item: T) -> None:
        self._seen += 1
        if len(self.items) < self._size:
            self.items.append(item)
        elif (place := self._random.randrange(self._seen)) < self._size:
            self.items[place] = item


def vocab_size_for(num_pairs: int) -> int:
    """Enough merges to pay for themselves, few enough that each is seen often."""
    for limit, size in ((15_000, 2_000), (60_000, 4_000), (300_000, 8_000), (1_000_000, 16_000)):
        if num_pairs < limit:
            return size
    return 32_000


def prepare(
    config: DataConfig, folder: Path, track: Track[Pair] = lambda items, _: items, tokenizer: Tokenizer | None = None
) -> DataReport:
    """Reads, cleans, learns and encodes everything into `folder`, which appears only when it is whole. With a `tokenizer` of
    another run, no subwords are learnt."""
    with prepared_beside(folder) as workshop:
        report = _prepare_into(workshop, config, track, tokenizer)
        write_report(workshop, report.to_json(), config)
    return report


@contextmanager
def prepared_beside(folder: Path) -> Iterator[Path]:
    """A folder to work in, which becomes `folder` when all went well and is gone when not."""
    if folder.exists():
        raise ValueError(f"{folder} is there already; choose another folder, or delete it to prepare anew")
    workshop = folder.with_name(f".{folder.name}.preparing")
    shutil.rmtree(workshop, ignore_errors=True)
    workshop.mkdir(parents=True)
    try:
        yield workshop
        workshop.rename(folder)
    finally:
        shutil.rmtree(workshop, ignore_errors=True)


def write_report(folder: Path, report: dict[str, Any], config: DataConfig) -> None:
    data = json.dumps(report | {"config": to_table(config)}, ensure_ascii=False, indent=2) + "\n"
    (folder / "data.json").write_text(data, encoding="utf-8", errors="backslashreplace")  # names of files may be odd


def _prepare_into(folder: Path, config: DataConfig, track: Track[Pair], tokenizer: Tokenizer | None) -> DataReport:
    held_out = {"valid": _read_held_out(config.valid, config)}
    held_out |= {f"test{n}" if n > 1 else "test": _read_held_out(c, config) for n, c in enumerate(config.test, start=1)}
    leakage_check = _LeakageCheck({name: chunk.kept for name, chunk in held_out.items()})
    sample = Sample[Pair](config.sample_pairs, config.seed)
    train = SplitReport()
    kept_by_corpus = _clean_into_spool(folder, config, train, leakage_check, sample, track)
    _require_pairs(train)
    tokenizer = tokenizer or _learn(sample.items, config, train.kept)
    tokenizer.save(folder)
    splits = {"train": train}
    ends = list(itertools.accumulate(kept_by_corpus))
    for position in _encode_split(folder, "train", _spooled(folder), train, tokenizer, config.cleaning.max_tokens):
        kept_by_corpus[bisect_right(ends, position)] -= 1
    _require_pairs(train)
    for name, chunk in held_out.items():
        splits[name] = SplitReport()
        pairs = [clean.pair for clean in _accounted(chunk, splits[name], seen=None)]
        _encode_split(folder, name, pairs, splits[name], tokenizer, max_tokens=0)
    for side in SIDES:
        (folder / f"spool.{side}").unlink()
    return DataReport(
        splits=splits,
        leakage=leakage_check.report(),
        corpora=[
            {"src": corpus.src, "tgt": corpus.tgt, "weight": corpus.weight, "pairs": count}
            for corpus, count in zip(config.train, kept_by_corpus, strict=True)
        ],
        src_lang=config.src_lang,
        tgt_lang=config.tgt_lang,
        src_vocab_size=len(tokenizer.src),
        tgt_vocab_size=len(tokenizer.tgt),
        shared_vocab=tokenizer.is_shared,
    )


def _require_pairs(train: SplitReport) -> None:
    if train.kept == 0:
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in train.reasons)
        raise ValueError(f"none of the {train.read:,} training pairs was fit to learn from ({reasons})")


def _read_held_out(corpus: CorpusConfig, config: DataConfig) -> CleanChunk:
    """Every pair with text on both sides: what a model is measured on is not chosen by filters."""
    keep_all = CleaningConfig(
        max_characters=0, max_ratio=0.0, drop_copies=False, drop_wrong_script=False, drop_control_characters=False
    )
    pairs = list(read_pairs(corpus, config.src_lang, config.tgt_lang))
    held_out = clean_chunk(pairs, keep_all, config.src_lang, config.tgt_lang)
    if not held_out.kept:
        raise ValueError(f"no pair with text on both sides in {corpus.src}")
    return held_out


def _clean_into_spool(
    folder: Path,
    config: DataConfig,
    report: SplitReport,
    leakage_check: _LeakageCheck,
    sample: Sample[Pair],
    track: Track[Pair],
) -> list[int]:
    """Cleaned training text, one line a text, both sides aligned. Gives how many pairs each corpus has left."""
    seen: set[int] | None = set() if config.cleaning.drop_duplicates else None
    kept_by_corpus = []
    with (folder / "spool.src").open("wb") as src, (folder / "spool.tgt").open("wb") as tgt:
        for corpus in config.train:
            before = report.kept
            pairs = track(read_pairs(corpus, config.src_lang, config.tgt_lang), f"reading {Path(corpus.src).name}")
            chunks = chunked(pairs, CHUNK_PAIRS)
            for chunk in parallel_map(clean_chunk, chunks, config.cleaning, config.src_lang, config.tgt_lang):
                for clean in _accounted(chunk, report, seen):
                    leakage_check.look_at(clean)
                    sample.offer(clean.pair)
                    src.write(clean.pair.src.encode("utf-8") + b"\n")
                    tgt.write(clean.pair.tgt.encode("utf-8") + b"\n")
            kept_by_corpus.append(report.kept - before)
    return kept_by_corpus


def _accounted(chunk: CleanChunk, report: SplitReport, seen: set[int] | None) -> Iterator[CleanPair]:
    """The pairs of a chunk that stay, with all of them counted in the report. `seen` finds duplicates; None keeps them."""
    report.read += len(chunk.kept) + len(chunk.dropped)
    for reason, pair in chunk.dropped:
        report.drop(reason, pair)
    for clean in chunk.kept:
        if seen is not None:
            if clean.exact in seen:
                report.drop("duplicate", clean.pair)
                continue
            seen.add(clean.exact)
        report.kept += 1
        yield clean


def _spooled(folder: Path) -> Iterator[Pair]:
    src, tgt = ((folder / f"spool.{side}").open(encoding="utf-8", newline="\n") for side in SIDES)
    with src, tgt:
        for one, other in zip(src, tgt, strict=True):
            yield Pair(one[:-1], other[:-1])


def _learn(sample: list[Pair], config: DataConfig, num_pairs: int) -> Tokenizer:
    size = config.vocab_size or vocab_size_for(num_pairs)
    if config.shared_vocab:
        shared = Subwords(learn_subwords(itertools.chain.from_iterable(sample), size))
        return Tokenizer(shared, shared)
    return Tokenizer(*(Subwords(learn_subwords((pair[side] for pair in sample), size)) for side in (0, 1)))


def _encode_split(
    folder: Path, name: str, pairs: Iterable[Pair], report: SplitReport, tokenizer: Tokenizer, max_tokens: int
) -> list[int]:
    """Ids and text of a split into its store, lengths and characters into its report. Gives the positions of pairs that
    had more than `max_tokens` (0: no limit) and were left out."""
    left_out: list[int] = []
    position = 0
    characters: tuple[Counter[str], Counter[str]] = (Counter(), Counter())
    with PairWriter(folder, name, src_vocab_size=len(tokenizer.src), tgt_vocab_size=len(tokenizer.tgt)) as writer:
        for chunk in chunked(pairs, 4 * CHUNK_PAIRS):
            fits = []
            for pair, src, tgt in zip(chunk, *_encode(chunk, tokenizer), strict=True):
                if 0 < max_tokens < max(len(src), len(tgt)):
                    left_out.append(position)
                    report.kept -= 1
                    report.drop("too long", pair)
                else:
                    fits.append((pair, (src, tgt)))
                position += 1
            src_texts, tgt_texts = (EncodedTexts([p[n] for p, _ in fits], [ids[n] for _, ids in fits]) for n in (0, 1))
            writer.append(src_texts, tgt_texts)
            for side, counter, encoded in zip(report.sides, characters, (src_texts, tgt_texts), strict=True):
                side.add(encoded.texts, [len(ids) for ids in encoded.ids])
                counter.update("".join(encoded.texts))
    for side, counter, subwords in zip(report.sides, characters, (tokenizer.src, tokenizer.tgt), strict=True):
        find_unknown(side, counter, subwords)
    return left_out


def _encode(chunk: list[Pair], tokenizer: Tokenizer) -> tuple[list[list[int]], list[list[int]]]:
    return tokenizer.src.encode([pair.src for pair in chunk]), tokenizer.tgt.encode([pair.tgt for pair in chunk])


def find_unknown(report: SideReport, characters: Counter[str], subwords: Subwords) -> None:
    unknown = {c: count for c, count in characters.most_common() if not c.isspace() and not subwords.knows(c)}
    report.unknown = dict(itertools.islice(unknown.items(), NUM_UNKNOWN))
    report.num_unknown = sum(unknown.values())
