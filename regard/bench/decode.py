"""Runs `regard bench decode`: regard, Hugging Face `generate` and CTranslate2 on the same weights and sentences.

Since engines differ in their length penalties, all search without one, with the same beam and maximum length. Sentences are
given and returned as ids, sorted by length, in batches; on a GPU, regard uses continuous batching instead.
"""

import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from regard.bench.origin import origin
from regard.bench.search import encoded_lines
from regard.bench.speed import Speed, interleaved_rounds, require_folder_of, table_of, write_report
from regard.data.batch import collate_sources
from regard.errors import UserError
from regard.exchange.ctranslate import write_ctranslate2
from regard.exchange.hf_tokenizer import marian_order, padding_of
from regard.exchange.huggingface import write_huggingface
from regard.machine.device import synchronize
from regard.model.kinds import require_transformer
from regard.model.transformer import Transformer
from regard.search.beam import beam
from regard.search.hypothesis import TIE, Cache, Sentence
from regard.text.tokenizer import BOS_ID, EOS_ID, PAD_ID, Tokenizer
from regard.translate.search import Search, Searcher, started
from regard.translate.translation import Translation
from regard.translate.translator import Translator, load

TokenIds = list[int]
Engine = Callable[[list[TokenIds], int, int], list[TokenIds]]  # sources, beam and batch size to outputs, without EOS
LENGTHS = (50, 400)


@dataclass(frozen=True)
class DecodeBenchSettings:
    batches: tuple[int, ...]
    beams: tuple[int, ...]
    sentences: int  # in a round
    rounds: int
    max_length: int
    device: str


@dataclass(frozen=True)
class Agreement:
    """Numbers of an engine's outputs by how they compare with ours."""

    equal: int
    ties: int  # different, but with the same score, or equally probable first tokens that differ
    better: int  # different, with a higher score
    worse: int


def run(settings: DecodeBenchSettings, folder: Path, source: str, *, json_path: Path | None) -> None:
    require_folder_of(json_path)
    translator = load(folder, device=settings.device)
    sources = chosen_sources(translator, source, settings.sentences)
    console = Console(width=None if Console().is_terminal else 100)
    console.print(f"{folder}: {len(sources)} sentences of {source}, α = 0; {origin(translator.device)}", highlight=False)
    report: dict[str, Any] = {"settings": asdict(settings), "origin": origin(translator.device), "beams": {}}
    with tempfile.TemporaryDirectory() as workshop:
        engines = engines_of(translator, settings, Path(workshop))
        for beam in settings.beams:
            report["beams"][beam] = {
                batch: compare(console, translator, settings, engines, sources, beam=beam, batch=batch)
                for batch in settings.batches
            }
    if translator.searcher.static is None:  # a static cache reads its whole capacity at each step
        report["lengths"] = by_length(translator, sources[: max(settings.batches)], settings.beams[0])
        short, long = (report["lengths"][length] for length in LENGTHS)
        console.print(
            f"{max(settings.batches)} at once, a token of an output of {LENGTHS[1]} takes {long / short:.2f} times as long "
            f"as one of an output of {LENGTHS[0]}, attention to the longer prefix included.",
            highlight=False,
        )
    write_report(json_path, report)


def chosen_sources(translator: Translator, source: str, count: int) -> list[TokenIds]:
    """Return sentences from evenly spaced lines of the text, sorted by length."""
    ids = encoded_lines(translator, source)
    every = max(1, len(ids) // count)
    return sorted(ids[::every][:count], key=len)


def compare(
    console: Console,
    translator: Translator,
    settings: DecodeBenchSettings,
    engines: dict[str, Engine],
    sources: list[TokenIds],
    *,
    beam: int,
    batch: int,
) -> dict[str, Any]:
    """Print a table, and return its numbers."""
    # Without batches, a few sentences are enough.
    texts = sources[:: max(1, len(sources) // 16)] if batch == 1 else sources
    speeds, outputs = interleaved(settings.rounds, engines, texts, translator.device, beam=beam, batch=batch)
    agreements = {name: agreement(translator, texts, outputs["regard"], found) for name, found in outputs.items()}
    search = f"beam {beam}" if beam > 1 else "greedy"
    print_table(console, f"{search}, {batch} at once, {len(texts)} sentences in all", speeds, agreements)
    return {
        "tokens_per_second": {speed.name: speed.rounds for speed in speeds},
        "agreement": {name: asdict(found) for name, found in agreements.items()},
    }


def engines_of(translator: Translator, settings: DecodeBenchSettings, workshop: Path) -> dict[str, Engine]:
    """Return our engine, and those others that are installed and support this model."""
    model = require_transformer(translator.models[0], "regard bench decode")
    parts = model, translator.tokenizer, workshop, settings.max_length
    makers: dict[str, Callable[[], Engine]] = {
        "Hugging Face generate": lambda: hugging_face_engine(*parts),
        "CTranslate2": lambda: ctranslate2_engine(*parts, int8=False),
        "CTranslate2 int8": lambda: ctranslate2_engine(*parts, int8=True),
    }
    engines = {"regard": our_engine(translator.searcher, settings.max_length)}
    for name, make in makers.items():
        try:
            engines[name] = make()
        except (ImportError, UserError) as error:
            Console(stderr=True).print(f"{name} is left out: {error}")
    return engines


def in_batches(decode: Callable[[list[TokenIds], int], list[TokenIds]]) -> Engine:
    return lambda rows, beam, batch: [ids for n in range(0, len(rows), batch) for ids in decode(rows[n : n + batch], beam)]


def our_engine(searcher: Searcher, max_length: int) -> Engine:
    def decode(rows: list[TokenIds], beam: int, batch: int) -> list[TokenIds]:
        sentences = [Sentence(ids, max_length) for ids in rows]
        found = searcher.search(sentences, Search(beam=beam, alpha=0.0), num_places=batch)
        return [list(best.ids) for best, *_ in found]

    def engine(rows: list[TokenIds], beam: int, batch: int) -> list[TokenIds]:
        if searcher.static is not None and batch > 1:
            return decode(rows, beam, batch)
        return in_batches(partial(decode, batch=batch))(rows, beam, batch)

    return engine


def hugging_face_engine(model: Transformer, tokenizer: Tokenizer, workshop: Path, max_length: int) -> Engine:
    from transformers import AutoModelForSeq2SeqLM
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    folder = workshop / "huggingface"
    folder.mkdir()
    write_huggingface(model, tokenizer, folder, languages=("src", "tgt"))
    device = model.output_weight.device
    theirs: Any = AutoModelForSeq2SeqLM.from_pretrained(folder).eval().to(device)
    ids_of = torch.tensor(marian_order(len(tokenizer.tgt), padding_of(tokenizer)), device=device)
    row_of = torch.full((len(tokenizer.src),), padding_of(tokenizer), device=device)
    src_order = torch.tensor(marian_order(len(tokenizer.src), padding_of(tokenizer)), device=device)
    row_of[src_order] = torch.arange(len(src_order), device=device)

    @torch.inference_mode()
    def decode(rows: list[TokenIds], beam: int) -> list[TokenIds]:
        src = collate_sources(rows).to(device)
        found = theirs.generate(
            input_ids=row_of[src],
            attention_mask=(src != PAD_ID).long(),
            num_beams=beam,
            do_sample=False,
            length_penalty=0.0,
            early_stopping=beam > 1,  # as ours
            max_length=max_length + 2,  # with the first token and EOS
        )
        return [[token for token in row[1:] if token not in (BOS_ID, EOS_ID)] for row in ids_of[found].tolist()]

    return in_batches(decode)


def ctranslate2_engine(model: Transformer, tokenizer: Tokenizer, workshop: Path, max_length: int, *, int8: bool) -> Engine:
    import ctranslate2

    compute_type = "int8" if int8 else "float32"
    folder = workshop / compute_type
    folder.mkdir()
    write_ctranslate2(model, tokenizer, folder, int8=int8)
    device = model.output_weight.device.type
    threads = torch.get_num_threads()
    theirs = ctranslate2.Translator(str(folder), device=device, intra_threads=threads, compute_type=compute_type)

    def decode(rows: list[TokenIds], beam: int) -> list[TokenIds]:
        found = theirs.translate_batch(
            [tokenizer.src.pieces(row) for row in rows],
            beam_size=beam,
            length_penalty=0.0,
            min_decoding_length=0,
            max_decoding_length=max_length,
            max_input_length=0,
        )
        return [tokenizer.tgt.ids(result.hypotheses[0]) for result in found]

    return in_batches(decode)


def interleaved(
    num_rounds: int, engines: dict[str, Engine], sources: list[TokenIds], device: torch.device, *, beam: int, batch: int
) -> tuple[list[Speed], dict[str, list[TokenIds]]]:
    """Return target tokens per second, EOS included, and the outputs. On a GPU engines warm up on all sentences, because
    graphs and memory depend on shapes; elsewhere on the last batch."""
    rounds: dict[str, list[float]] = {name: [] for name in engines}
    outputs: dict[str, list[TokenIds]] = {}
    for turn, name in interleaved_rounds(list(engines), num_rounds):
        began = time.perf_counter()
        outputs[name] = engines[name](sources if turn or device.type == "cuda" else sources[-batch:], beam, batch)
        synchronize(device)
        if turn:
            rounds[name].append(sum(len(ids) + 1 for ids in outputs[name]) / (time.perf_counter() - began))
    return [Speed(name, tuple(numbers)) for name, numbers in rounds.items()], outputs


def agreement(
    translator: Translator, sources: Sequence[TokenIds], ours: Sequence[TokenIds], theirs: Sequence[TokenIds]
) -> Agreement:
    """Compare outputs; where they differ, by the model's own log-probabilities."""
    places = [place for place, (one, other) in enumerate(zip(ours, theirs, strict=True)) if one != other]
    texts = [translator.tokenizer.src.decode(sources[place]) for place in places]

    def scored(outputs: Sequence[TokenIds]) -> list[Translation]:
        targets = [" ".join(translator.tokenizer.tgt.pieces(outputs[place])) for place in places]
        return translator.score(texts, targets, pieces=True)

    pairs = list(zip(scored(ours), scored(theirs), strict=True))
    gains = [other.log_prob - one.log_prob for one, other in pairs if not _part_at_a_tie(one, other)]
    better, worse = sum(gain > TIE for gain in gains), sum(gain < -TIE for gain in gains)
    return Agreement(equal=len(ours) - len(pairs), ties=len(pairs) - better - worse, better=better, worse=worse)


def _part_at_a_tie(one: Translation, other: Translation) -> bool:
    """Return whether the first tokens that differ are equally probable, so that rounding decides between the outputs."""
    for token, instead in zip(one.tokens, other.tokens, strict=False):
        if token.piece != instead.piece:
            return abs(token.log_prob - instead.log_prob) <= TIE
    return False


def by_length(translator: Translator, rows: list[TokenIds], width: int) -> dict[int, float]:
    """Return the seconds a token takes in outputs of each length, in the faster of two rounds."""
    [model] = translator.models

    def never_ending(ids: torch.Tensor, cache: Cache) -> torch.Tensor:
        log_probs = step(ids, cache)
        log_probs[:, EOS_ID] = -1e9
        return log_probs

    seconds: dict[int, float] = {}
    src = collate_sources(rows).to(translator.device)
    for length in LENGTHS:
        taken = []
        for _ in range(2):
            step, cache = started(model, src)
            synchronize(translator.device)
            began = time.perf_counter()
            limits = [min(length, model.config.longest_sequence - 1)] * len(rows)
            beam(never_ending, cache, limits, width=width, bos_id=BOS_ID, eos_id=EOS_ID, alpha=0.0, device=translator.device)
            synchronize(translator.device)
            taken.append(time.perf_counter() - began)
        seconds[length] = min(taken) / sum(limits)
    return seconds


def print_table(console: Console, title: str, speeds: list[Speed], agreements: dict[str, Agreement]) -> None:
    table = table_of(title, "engine", "tokens/s", "slowest–fastest", "regard is", "equal", "ties", "better", "worse")
    ours, *_ = speeds
    for speed in speeds:
        ratios = [a / b for a, b in zip(ours.rounds, speed.rounds, strict=True)]
        found = agreements[speed.name]
        is_ours = speed is ours
        numbers = ["", "", "", ""] if is_ours else [f"{n}" for n in (found.equal, found.ties, found.better, found.worse)]
        ratio = "" if is_ours else f"{statistics.median(ratios):.2f} ×"
        table.add_row(speed.name, *speed.in_words, ratio, *numbers)
    console.print(table)
