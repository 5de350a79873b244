"""Preparation of text for training: it is cleaned, segmented into subwords, stored as ids, and reported on.

A translator learns from pairs; a language model from plain text, one text a line, kept in its order because each text is
read after the one before it. Both are prepared alike, with two sides or one. The training text is read once and never held:
chunks go through a pool of cleaners into a spool file for each side, the subwords are learnt from a sample of the spool, and
the spool is encoded chunk by chunk.
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
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import cache
from hashlib import blake2b
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np

from regard.config import CleaningConfig, CorpusConfig, DataConfig
from regard.data.held_out import Keys, Mask, description, keep_apart, read_keys, stands_in
from regard.data.report import DataReport, Leakage, SideTexts, SplitReport
from regard.data.store import SIDES, Side, SplitWriter
from regard.errors import UserError
from regard.settings import to_table
from regard.text.cleaning import Pair, Reason, normalise, reason_to_drop, reason_to_drop_text
from regard.text.corpus import read_lines, read_pairs
from regard.text.tokenizer import Subwords, Tokenizer, learn_subwords

CHUNK_PAIRS = 5_000
CHARACTERS_A_PAIR = 100  # roughly, on one side; `vocab_size_for` counts plain text in such pairs
NUM_UNKNOWN = 20
PAIRS = ("pairs", "--valid-src and --valid-tgt")
PLAIN = ("texts", "--valid-text")

T = TypeVar("T")
R = TypeVar("R")
Track = Callable[[Iterable[SideTexts], str], Iterable[SideTexts]]


class CleanTexts(NamedTuple):
    """Texts that passed the filters, with their keys: of all sides to the letter, then of each side's letters and digits."""

    texts: SideTexts
    keys: tuple[int, ...]


class CleanChunk(NamedTuple):
    kept: list[CleanTexts]
    dropped: list[tuple[Reason, SideTexts]]


def key_of(text: str) -> int:
    """Return a hash of a text."""
    return int.from_bytes(blake2b(text.encode("utf-8"), digest_size=8).digest(), "little")


def near_key_of(text: str) -> int:
    """Return a hash of a text without case, punctuation and spaces, or of the whole text if nothing else is left."""
    return key_of(text.casefold().translate(_punctuation()) or text)


@cache
def _punctuation() -> dict[int, None]:
    """Return punctuation, symbols and spaces, to be deleted. Marks stay: many scripts write vowels as marks."""
    return {code: None for code in range(sys.maxunicode + 1) if unicodedata.category(chr(code))[0] in "PSZ"}


def clean_chunk(chunk: list[SideTexts], rules: CleaningConfig, src_lang: str, tgt_lang: str) -> CleanChunk:
    """Clean pairs or plain texts. A pure function of picklable arguments: it runs in other processes."""
    kept, dropped = [], []
    for raw in chunk:
        texts = tuple(map(normalise, raw))
        if len(texts) == 1:
            reason = reason_to_drop_text(texts[0], rules)
        else:
            reason = reason_to_drop(Pair(*texts), rules, src_lang, tgt_lang)
        if reason:
            dropped.append((reason, texts))
        else:
            kept.append(CleanTexts(texts, (key_of("\n".join(texts)), *map(near_key_of, texts))))
    return CleanChunk(kept, dropped)


def chunked(items: Iterable[T], size: int) -> Iterator[list[T]]:
    iterator = iter(items)
    while chunk := list(itertools.islice(iterator, size)):
        yield chunk


def parallel_map(function: Callable[..., R], items: Iterable[T], *arguments: object) -> Iterator[R]:
    """Map in order, on all cores, reading only a few items ahead: a pool's own map would read the whole corpus first."""
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
    """Start processes that ignore Ctrl-C, which this process handles; they would print tracebacks."""
    if threading.current_thread() is not threading.main_thread():  # which alone may set handlers
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def sampled(items: Iterable[T], size: int, seed: int) -> list[T]:
    """Return a uniform sample of a stream of unknown length (reservoir sampling), the same for the same seed."""
    sample: list[T] = []
    draw = random.Random(seed)
    for count, item in enumerate(items, start=1):
        if len(sample) < size:
            sample.append(item)
        elif (place := draw.randrange(count)) < size:
            sample[place] = item
    return sample


def vocab_size_for(num_pairs: int) -> int:
    """Return a vocabulary size with which each subword is seen often."""
    for limit, size in ((15_000, 2_000), (60_000, 4_000), (300_000, 8_000), (1_000_000, 16_000)):
        if num_pairs < limit:
            return size
    return 32_000


def prepare(
    config: DataConfig, folder: Path, track: Track = lambda items, _: items, tokenizer: Tokenizer | None = None
) -> DataReport:
    """Read, clean, segment and encode all text into `folder`, which appears only when it is whole. With a `tokenizer` of
    another run, no subwords are learnt."""
    if folder.exists():
        raise UserError(f"{folder} is there already; choose another folder, or delete it to prepare anew")
    workshop = folder.with_name(f".{folder.name}.preparing")
    shutil.rmtree(workshop, ignore_errors=True)
    workshop.mkdir(parents=True)
    try:
        report = _prepare_into(workshop, config, track, tokenizer)
        data = json.dumps(report.to_json() | {"config": to_table(config)}, ensure_ascii=False, indent=2) + "\n"
        (workshop / "data.json").write_text(data, encoding="utf-8", errors="backslashreplace")  # names of files may be odd
        workshop.rename(folder)
    finally:
        shutil.rmtree(workshop, ignore_errors=True)
    return report


def _prepare_into(folder: Path, config: DataConfig, track: Track, tokenizer: Tokenizer | None) -> DataReport:
    is_plain = any(corpus.text for corpus in config.train)
    sides: tuple[Side, ...] = ("text",) if is_plain else SIDES
    held_out = {} if config.valid is None else {"valid": _read_held_out(config.valid, config)}
    held_out |= {f"test{n}" if n > 1 else "test": _read_held_out(c, config) for n, c in enumerate(config.test, start=1)}
    train = SplitReport.of(sides)
    splits = {"train": train}
    spooled_by_corpus = _clean_into_spool(folder, config, train, track)
    _require_kept(train)
    keys = read_keys(folder / "spool.keys", 1 + len(sides))
    what = PLAIN if is_plain else PAIRS
    valid, stays = np.zeros(len(keys), dtype=np.bool_), np.ones(len(keys), dtype=np.bool_)
    if config.valid is None:
        valid, stays = keep_apart(keys, config.seed, *what)
    num_valid = int(valid.sum())
    train.read, train.kept = train.read - num_valid, train.kept - num_valid
    for texts in _spooled(folder, sides, ~valid & ~stays):
        train.kept -= 1
        train.drop("like validation", texts)
    tokenizer = tokenizer or _learn(lambda: _spooled(folder, sides, stays), config, None if is_plain else train.kept)
    tokenizer.save(folder)
    subwords = [tokenizer.tgt] if is_plain else [tokenizer.src, tokenizer.tgt]
    max_tokens = 0 if is_plain else config.cleaning.max_tokens
    left_out = _encode_split(folder, "train", _spooled(folder, sides, stays), train, subwords, max_tokens)
    is_learnt = stays.copy()
    is_learnt[np.flatnonzero(stays)[left_out]] = False
    _require_kept(train)
    if config.valid is None:
        splits["valid"] = SplitReport.of(sides, num_valid)
        _encode_split(folder, "valid", _spooled(folder, sides, valid), splits["valid"], subwords, max_tokens)
        _require_kept(splits["valid"])
    for name, chunk in held_out.items():
        splits[name] = SplitReport.of(sides)
        kept = [clean.texts for clean in _accounted(chunk, splits[name], seen=None)]
        _encode_split(folder, name, kept, splits[name], subwords, max_tokens=0)
    leakage = {name: _leakage(chunk.kept, keys, stays) for name, chunk in held_out.items()}
    del keys  # mapped from a file that is deleted next
    for suffix in (*sides, "keys"):
        (folder / f"spool.{suffix}").unlink()
    ends = np.cumsum(spooled_by_corpus)
    return DataReport(
        splits=splits,
        leakage=leakage,
        corpora=[
            {
                **({"text": corpus.text} if is_plain else {"src": corpus.src, "tgt": corpus.tgt}),
                "weight": corpus.weight,
                "pairs": int(is_learnt[end - count : end].sum()),
            }
            for corpus, count, end in zip(config.train, spooled_by_corpus, ends, strict=True)
        ],
        src_lang=config.src_lang,
        tgt_lang=config.tgt_lang,
        src_vocab_size=len(tokenizer.src),
        tgt_vocab_size=len(tokenizer.tgt),
        shared_vocab=tokenizer.is_shared,
        kept_apart="" if config.valid else description(valid, stays, config.seed, *what),
    )


def _require_kept(train: SplitReport) -> None:
    if train.kept == 0:
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in train.reasons)
        raise UserError(f"none of the {train.read:,} training pairs was fit to learn from ({reasons})")


def _read(corpus: CorpusConfig, config: DataConfig) -> Iterator[SideTexts]:
    if corpus.text:
        return ((line,) for line in read_lines(corpus.text))
    return iter(read_pairs(corpus, config.src_lang, config.tgt_lang))


def _read_held_out(corpus: CorpusConfig, config: DataConfig) -> CleanChunk:
    """Return all pairs with text on both sides, or all plain texts: filters must not choose what a model is measured on."""
    keep_all = CleaningConfig(
        max_characters=0, max_ratio=0.0, drop_copies=False, drop_wrong_script=False, drop_control_characters=False
    )
    held_out = clean_chunk(list(_read(corpus, config)), keep_all, config.src_lang, config.tgt_lang)
    if not held_out.kept:
        _require_plain_text(0, corpus)
        raise UserError(f"no pair with text on both sides in {corpus.src}")
    return held_out


def _require_plain_text(num_kept: int, corpus: CorpusConfig) -> None:
    if corpus.text and num_kept == 0:
        raise UserError(f"no text in {corpus.text} to learn from or to validate on; give at least one line")


def _clean_into_spool(folder: Path, config: DataConfig, report: SplitReport, track: Track) -> list[int]:
    """Write the cleaned training text, one line a text, and the keys. Return how many of each corpus were written."""
    seen: set[int] | None = set() if config.cleaning.drop_duplicates and "text" not in report.sides else None
    kept_by_corpus = []
    with ExitStack() as stack:
        keys, *files = (stack.enter_context((folder / f"spool.{suffix}").open("wb")) for suffix in ("keys", *report.sides))
        for corpus in config.train:
            before = report.kept
            chunks = chunked(track(_read(corpus, config), f"reading {Path(corpus.name).name}"), CHUNK_PAIRS)
            for chunk in parallel_map(clean_chunk, chunks, config.cleaning, config.src_lang, config.tgt_lang):
                for clean in _accounted(chunk, report, seen):
                    keys.write(np.array(clean.keys, dtype=np.uint64).tobytes())
                    for file, text in zip(files, clean.texts, strict=True):
                        file.write(text.encode("utf-8") + b"\n")
            kept_by_corpus.append(report.kept - before)
            _require_plain_text(kept_by_corpus[-1], corpus)
    return kept_by_corpus


def _accounted(chunk: CleanChunk, report: SplitReport, seen: set[int] | None) -> Iterator[CleanTexts]:
    """Yield what stays of a chunk, and count all of it in the report. `seen` finds duplicates; None keeps them."""
    report.read += len(chunk.kept) + len(chunk.dropped)
    for reason, texts in chunk.dropped:
        report.drop(reason, texts)
    for clean in chunk.kept:
        if seen is not None:
            if clean.keys[0] in seen:
                report.drop("duplicate", clean.texts)
                continue
            seen.add(clean.keys[0])
        report.kept += 1
        yield clean


def _spooled(folder: Path, sides: Sequence[Side], rows: Mask) -> Iterator[SideTexts]:
    with ExitStack() as stack:
        files = [stack.enter_context((folder / f"spool.{side}").open(encoding="utf-8", newline="\n")) for side in sides]
        for lines in itertools.compress(zip(*files, strict=True), rows):
            yield tuple(line[:-1] for line in lines)


def _learn(spooled: Callable[[], Iterator[SideTexts]], config: DataConfig, num_pairs: int | None) -> Tokenizer:
    """Learn subwords from a sample of the spool. Plain text has no `num_pairs`: its size is measured in characters."""
    sample = sampled(spooled(), config.sample_pairs, config.seed)
    is_shared = config.shared_vocab or num_pairs is None
    if num_pairs is None:
        num_pairs = 0 if config.vocab_size else sum(len(text) for (text,) in spooled()) // CHARACTERS_A_PAIR
    size = config.vocab_size or vocab_size_for(num_pairs)
    if is_shared:
        shared = Subwords(learn_subwords(itertools.chain.from_iterable(sample), size))
        return Tokenizer(shared, shared)
    return Tokenizer(*(Subwords(learn_subwords((texts[side] for texts in sample), size)) for side in (0, 1)))


def _encode_split(
    folder: Path, name: str, items: Iterable[SideTexts], report: SplitReport, subwords: Sequence[Subwords], max_tokens: int
) -> list[int]:
    """Write the ids and texts of a split to its store, lengths and characters to its report. Return the positions of items
    that had more than `max_tokens` (0: no limit) and were left out."""
    left_out: list[int] = []
    position = 0
    characters: list[Counter[str]] = [Counter() for _ in subwords]
    with SplitWriter(folder, name, dict(zip(report.sides, map(len, subwords), strict=True))) as writer:
        for chunk in chunked(items, 4 * CHUNK_PAIRS):
            encoded = [one.encode(texts) for one, texts in zip(subwords, zip(*chunk, strict=True), strict=True)]
            fits: list[tuple[SideTexts, tuple[list[int], ...]]] = []
            for texts, ids in zip(chunk, zip(*encoded, strict=True), strict=True):
                if 0 < max_tokens < max(map(len, ids)):
                    left_out.append(position)
                    report.kept -= 1
                    report.drop("too long", texts)
                else:
                    fits.append((texts, ids))
                position += 1
            written = [([texts[n] for texts, _ in fits], [ids[n] for _, ids in fits]) for n in range(len(subwords))]
            writer.append(*written)
            for side, counter, (side_texts, side_ids) in zip(report.sides.values(), characters, written, strict=True):
                side.add(side_texts, list(map(len, side_ids)))
                counter.update("".join(side_texts))
    for side, counter, one in zip(report.sides.values(), characters, subwords, strict=True):
        unknown = {c: count for c, count in counter.most_common() if not c.isspace() and not one.knows(c)}
        side.unknown = dict(itertools.islice(unknown.items(), NUM_UNKNOWN))
        side.num_unknown = sum(unknown.values())
    return left_out


def _leakage(held_out: list[CleanTexts], keys: Keys, rows: Mask) -> Leakage:
    """Count how many items of a split stand in these rows of the training text."""
    wanted = np.array([clean.keys for clean in held_out], dtype=np.uint64)
    exact, *near = (stands_in(wanted[:, column], keys, column, rows) for column in range(wanted.shape[1]))
    return Leakage(
        count=len(held_out),
        exact=int(exact.sum()),
        near=[int(side.sum()) for side in near],
        examples=[clean.texts for clean, leaked in zip(held_out, exact, strict=True) if leaked][:3],
    )
