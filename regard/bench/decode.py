"""`regard bench decode`: the same weights and sentences through regard, Hugging Face `generate` and CTranslate2, in one run.

Engines differ in how they punish length, so all search without: a beam, α = 0, the same maximum length. Sentences go in and
come out as ids, sorted by length. So many are under way at once for all: others take them in batches, and so does regard but
on a GPU, where those that wait take the places of those that are done.
"""

import json
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
from rich.progress import Progress
from rich.table import Table

from regard.bench.model import Speed
from regard.bench.origin import origin
from regard.bench.search import encoded_lines
from regard.data.batch import collate_sources
from regard.exchange.ctranslate import write_ctranslate2
from regard.exchange.huggingface import write_huggingface
from regard.model.kinds import require_transformer
from regard.model.transformer import Transformer
from regard.search.beam import beam
from regard.search.hypothesis import TIE, Cache
from regard.text.tokenizer import BOS_ID, EOS_ID, PAD_ID, Tokenizer
from regard.train.device import synchronize
from regard.translate.rig import Sentence
from regard.translate.search import started
from regard.translate.searcher import Searcher
from regard.translate.translation import Translation
from regard.translate.translator import Translator, load

Ids = list[int]
Engine = Callable[[list[Ids], int], list[Ids]]  # sources, and how many at once, to outputs, without EOS
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
    """How one engine's outputs compare with ours, sentence by sentence."""

    equal: int
    ties: int  # other outputs of the same score, or that part from ours where two tokens are equally probable
    better: int  # other outputs, of a higher score than ours
    worse: int


def run(settings: DecodeBenchSettings, folder: Path, source: str, *, json_path: Path | None) -> None:
    if json_path is not None and not json_path.parent.is_dir():
        raise ValueError(f"there is no folder {json_path.parent} to write {json_path.name} into")
    translator = load(folder, device=settings.device)
    sources = chosen_sources(translator, source, settings.sentences)
    console = Console(width=None if Console().is_terminal else 100)
    console.print(
        f"{folder}: {len(sources)} sentences of {source}, α = 0; {origin(translator.device)}",
        highlight=False,
    )
    report: dict[str, Any] = {"settings": asdict(settings), "origin": origin(translator.device), "beams": {}}
    with tempfile.TemporaryDirectory() as workshop:
        engines = engines_of(translator, settings, Path(workshop))
        for beam in settings.beams:
            report["beams"][beam] = {
                batch: compare(console, translator, settings, engines(beam), sources, beam=beam, batch=batch)
                for batch in settings.batches
            }
    if not translator.searcher.is_static:  # there, what comes before is read as a whole, whoever descends from it
        report["lengths"] = by_length(translator, sources[: max(settings.batches)], settings.beams[0])
        short, long = (report["lengths"][length] for length in LENGTHS)
        console.print(
            f"{max(settings.batches)} at once, a token of an output of {LENGTHS[1]} takes {long / short:.2f} times as long "
            f"as one of an output of {LENGTHS[0]}, attention to all that came before included.",
            highlight=False,
        )
    if json_path is not None:
        json_path.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")


def chosen_sources(translator: Translator, source: str, count: int) -> list[Ids]:
    """Evenly from the text, and then by length, as a translator would batch them."""
    ids = encoded_lines(translator, source)
    every = max(1, len(ids) // count)
    return sorted(ids[::every][:count], key=len)


def compare(
    console: Console,
    translator: Translator,
    settings: DecodeBenchSettings,
    engines: dict[str, Engine],
    sources: list[Ids],
    *,
    beam: int,
    batch: int,
) -> dict[str, Any]:
    """One table, and its numbers."""
    # One at a time, a few sentences say as much as many; in batches, there must be some.
    texts = sources[:: max(1, len(sources) // 16)] if batch == 1 else sources
    speeds, outputs = interleaved(settings, engines, texts, batch, translator.device)
    agreements = {name: agreement(translator, texts, outputs["regard"], found) for name, found in outputs.items()}
    search = f"beam {beam}" if beam > 1 else "greedy"
    print_table(console, f"{search}, {batch} at once, {len(texts)} sentences in all", speeds, agreements)
    return {
        "tokens_per_second": {speed.name: speed.rounds for speed in speeds},
        "agreement": {name: asdict(found) for name, found in agreements.items()},
    }


def engines_of(translator: Translator, settings: DecodeBenchSettings, workshop: Path) -> Callable[[int], dict[str, Engine]]:
    """Ours, and whichever of the others are installed and can hold this model; for a beam."""
    model = require_transformer(translator.models[0], "regard bench decode")
    makers: dict[str, Callable[[], Callable[[int], Engine]]] = {
        "Hugging Face generate": lambda: hugging_face_engine(model, translator.tokenizer, workshop / "hf", settings),
        "CTranslate2": lambda: ctranslate2_engine(model, translator.tokenizer, workshop / "ct2", settings, int8=False),
        "CTranslate2 int8": lambda: ctranslate2_engine(
            model, translator.tokenizer, workshop / "ct2-int8", settings, int8=True
        ),
    }
    engines: dict[str, Callable[[int], Engine]] = {"regard": lambda beam: our_engine(translator.searcher, settings, beam)}
    for name, make in makers.items():
        try:
            engines[name] = make()
        except (ImportError, ValueError) as error:
            Console(stderr=True).print(f"{name} is left out: {error}")
    return lambda beam: {name: engine(beam) for name, engine in engines.items()}


def in_batches(decode: Callable[[list[Ids]], list[Ids]]) -> Engine:
    return lambda rows, batch: [ids for n in range(0, len(rows), batch) for ids in decode(rows[n : n + batch])]


def our_engine(searcher: Searcher, settings: DecodeBenchSettings, beam: int) -> Engine:
    def queue(rows: list[Ids], batch: int) -> list[Ids]:
        sentences = [Sentence(ids, settings.max_length) for ids in rows]
        found = searcher.search(sentences, width=beam, alpha=0.0, num_places=batch)
        return [list(best.ids) for best, *_ in found]

    def engine(rows: list[Ids], batch: int) -> list[Ids]:
        """One at a time means that the next is not known yet."""
        if searcher.is_static and batch > 1:
            return queue(rows, batch)
        return in_batches(lambda some: queue(some, batch))(rows, batch)

    return engine


def hugging_face_engine(
    model: Transformer, tokenizer: Tokenizer, folder: Path, settings: DecodeBenchSettings
) -> Callable[[int], Engine]:
    from transformers import AutoModelForSeq2SeqLM
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    folder.mkdir()
    write_huggingface(model, tokenizer, folder, languages=("src", "tgt"))
    device = model.output_weight.device
    theirs: Any = AutoModelForSeq2SeqLM.from_pretrained(folder).eval().to(device)

    @torch.inference_mode()
    def decode(rows: list[Ids], beam: int) -> list[Ids]:
        src = collate_sources(rows).to(device)
        found = theirs.generate(
            input_ids=src,
            attention_mask=(src != PAD_ID).long(),
            num_beams=beam,
            do_sample=False,
            length_penalty=0.0,
            early_stopping=beam > 1,  # as ours: so many finished hypotheses are enough
            max_length=settings.max_length + 2,  # BOS and EOS counted
        )
        return [[token for token in row[1:] if token not in (PAD_ID, EOS_ID)] for row in found.tolist()]

    return lambda beam: in_batches(partial(decode, beam=beam))


def ctranslate2_engine(
    model: Transformer, tokenizer: Tokenizer, folder: Path, settings: DecodeBenchSettings, *, int8: bool
) -> Callable[[int], Engine]:
    import ctranslate2

    folder.mkdir()
    write_ctranslate2(model, tokenizer, folder, int8=int8)
    device = model.output_weight.device.type
    theirs = ctranslate2.Translator(
        str(folder), device=device, intra_threads=torch.get_num_threads(), compute_type="int8" if int8 else "float32"
    )

    def decode(rows: list[Ids], beam: int) -> list[Ids]:
        found = theirs.translate_batch(
            [tokenizer.src.pieces(row) for row in rows],
            beam_size=beam,
            length_penalty=0.0,
            min_decoding_length=0,
            max_decoding_length=settings.max_length,
            max_input_length=0,
        )
        return [tokenizer.tgt.ids(result.hypotheses[0]) for result in found]

    return lambda beam: in_batches(partial(decode, beam=beam))


def interleaved(
    settings: DecodeBenchSettings, engines: dict[str, Engine], sources: list[Ids], batch: int, device: torch.device
) -> tuple[list[Speed], dict[str, list[Ids]]]:
    """Target tokens per second, EOS counted, round by round with each engine in turn; and what came out. On a GPU all warm
    up on everything, since graphs and memory depend on shapes; elsewhere on the last batch."""
    rounds: dict[str, list[float]] = {name: [] for name in engines}
    outputs: dict[str, list[Ids]] = {}
    stderr = Console(stderr=True)
    with Progress(console=stderr, transient=True, disable=not stderr.is_terminal) as progress:
        task = progress.add_task("warming up", total=settings.rounds * len(engines))
        for engine in engines.values():
            engine(sources if device.type == "cuda" else sources[-batch:], batch)
        for turn in range(settings.rounds):
            for name, engine in engines.items():
                progress.update(task, description=f"round {turn + 1} of {settings.rounds}: {name}")
                began = time.perf_counter()
                found = engine(sources, batch)
                synchronize(device)
                progress.advance(task)
                rounds[name].append(sum(len(ids) + 1 for ids in found) / (time.perf_counter() - began))
                outputs[name] = found
    return [Speed(name, tuple(numbers)) for name, numbers in rounds.items()], outputs


def agreement(translator: Translator, sources: Sequence[Ids], ours: Sequence[Ids], theirs: Sequence[Ids]) -> Agreement:
    """Where outputs differ, the model itself says which it finds more probable, or that rounding decided."""
    places = [place for place, (one, other) in enumerate(zip(ours, theirs, strict=True)) if one != other]
    texts = [translator.tokenizer.src.decode(sources[place]) for place in places]

    def scored(outputs: Sequence[Ids]) -> list[Translation]:
        targets = [" ".join(translator.tokenizer.tgt.pieces(outputs[place])) for place in places]
        return translator.score(texts, targets, pieces=True)

    pairs = list(zip(scored(ours), scored(theirs), strict=True))
    gains = [other.log_prob - one.log_prob for one, other in pairs if not _part_at_a_tie(one, other)]
    better, worse = sum(gain > TIE for gain in gains), sum(gain < -TIE for gain in gains)
    return Agreement(equal=len(ours) - len(pairs), ties=len(pairs) - better - worse, better=better, worse=worse)


def _part_at_a_tie(one: Translation, other: Translation) -> bool:
    """Whether the first tokens that differ are equally probable: which of them is taken, the order of additions decides,
    and all that follows from it."""
    for token, instead in zip(one.tokens, other.tokens, strict=False):
        if token.piece != instead.piece:
            return abs(token.log_prob - instead.log_prob) <= TIE
    return False


def by_length(translator: Translator, rows: list[Ids], width: int) -> dict[int, float]:
    """Seconds a token, of outputs that may not end before they have so many: the faster of two rounds."""
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
    table = Table(title=title, title_justify="left")
    table.add_column("engine", no_wrap=True)
    for heading in ("tokens/s", "slowest–fastest", "regard is", "equal", "ties", "better", "worse"):
        table.add_column(heading, justify="right", no_wrap=True)
    ours, *_ = speeds
    for speed in speeds:
        ratios = [a / b for a, b in zip(ours.rounds, speed.rounds, strict=True)]
        spread = f"{min(speed.rounds):,.0f}–{max(speed.rounds):,.0f}"
        found = agreements[speed.name]
        is_ours = speed is ours
        numbers = ["", "", "", ""] if is_ours else [f"{n}" for n in (found.equal, found.ties, found.better, found.worse)]
        ratio = "" if is_ours else f"{statistics.median(ratios):.2f} ×"
        table.add_row(speed.name, f"{speed.median:,.0f}", spread, ratio, *numbers)
    console.print(table)
