"""`regard export`: convert a run for another program, load it there, and compare the outputs."""

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rich.progress import Progress

from regard.config import CorpusConfig, RunConfig
from regard.data.command import bar_on_terminals
from regard.data.store import PairStore
from regard.errors import UserError, missing_packages
from regard.evaluate.metrics import bleu
from regard.exchange.ctranslate import CTranslate2Model, write_ctranslate2
from regard.exchange.folder import made_beside
from regard.exchange.huggingface import HuggingFaceModel, write_huggingface
from regard.exchange.language import compare_language, language_texts
from regard.exchange.llama import write_llama
from regard.exchange.verification import (
    MAX_POSITIONS,
    Exported,
    MismatchError,
    Output,
    Source,
    compare,
    hostile_sources,
    our_outputs,
    sources_of,
    their_outputs,
)
from regard.generate.generator import load_language
from regard.model.kinds import require_transformer
from regard.model.transformer import Transformer
from regard.run.checkpoint import Run
from regard.text.corpus import read_lines, read_pairs
from regard.text.tokenizer import Tokenizer
from regard.translate.search import MAX_EXTRA
from regard.translate.translator import load

Target = Literal["ctranslate2", "huggingface"]
LIBRARIES: dict[Target, str] = {"ctranslate2": "ctranslate2", "huggingface": "transformers"}
NUM_SENTENCES = 1000


@dataclass(frozen=True)
class ExportSettings:
    """The flags of `regard export`."""

    run: Path
    to: Target
    output: Path
    int8: bool = False
    src: str | None = None  # a file of texts to compare with; default: the run's own text
    ref: str | None = None  # its translations

    def __post_init__(self) -> None:
        if self.int8 and self.to != "ctranslate2":
            raise UserError("--int8 is CTranslate2's; leave it out, or export with --to ctranslate2")
        if self.ref is not None and self.src is None:
            raise UserError("--ref was given without --src")


def export(settings: ExportSettings) -> list[str]:
    """Write the folder, and return the lines that describe it."""
    if missing := missing_packages("regard export", LIBRARIES[settings.to]):
        raise UserError(missing)
    run = Run(settings.run)
    if run.read_config().model.kind == "language":
        return _export_language(settings)
    translator = load(run.folder, device="cpu")
    config, tokenizer = translator.config, translator.tokenizer
    model = require_transformer(translator.models[0], "regard export")
    sources = verification_text(run, config, tokenizer, settings)
    with made_beside(settings.output) as workshop:
        _write(settings, config, model, tokenizer, workshop, int8=False)
        lines = _verify(settings, config, model, tokenizer, sources, workshop)
    made = f"{settings.output} is {run.folder} for {settings.to}{', in int8' if settings.int8 else ''}"
    limit = f"it has {_max_positions(config):,} positions; longer sentences must be split"
    if config.longest:
        limit = f"its longest training source has {config.longest:,} subwords; longer texts should be split into sentences"
    beams = "beam search may give other results than regard's, because length penalties differ"
    return [made, *lines, limit, beams, *usage(settings, tokenizer)]


def _export_language(settings: ExportSettings) -> list[str]:
    """Export a language model, and compare its probabilities."""
    if settings.to != "huggingface":
        raise UserError(f"{settings.run} is a language model; export it with --to huggingface, or use `regard generate`")
    if settings.ref is not None:
        raise UserError("--ref is for translations; leave it out for a language model")
    generator = load_language(settings.run, device="cpu")
    with made_beside(settings.output) as workshop:
        write_llama(generator.model, generator.tokenizer, workshop)
        compared = compare_language(generator, workshop, language_texts(Run(settings.run), generator, settings.src))
    return [
        f"{settings.output} is {settings.run} for {settings.to}",
        compared,
        "",
        "from transformers import AutoModelForCausalLM, AutoTokenizer",
        f"folder = {str(settings.output)!r}",
        "tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModelForCausalLM.from_pretrained(folder)",
        "output = model.generate(**tokenizer('…', return_tensors='pt'))",
        "print(tokenizer.batch_decode(output, skip_special_tokens=True))",
    ]


def verification_text(run: Run, config: RunConfig, tokenizer: Tokenizer, settings: ExportSettings) -> list[Source]:
    """Return the sentences that both programs translate: from --src, or from the run's validation and training text."""
    texts, max_positions = _texts(run, config, settings), _max_positions(config)
    sources = sources_of(texts, tokenizer, max_positions=max_positions, num_sentences=NUM_SENTENCES)
    if not sources:
        raise UserError(
            f"no sentence in {settings.src or run.data_folder(config)} fits the model; give other text with --src"
        )
    return sources


def _texts(run: Run, config: RunConfig, settings: ExportSettings) -> Iterator[tuple[str, str | None]]:
    """Yield sentences with their reference translations, if there are any."""
    if settings.src is not None and settings.ref is not None:
        yield from read_pairs(CorpusConfig(src=settings.src, tgt=settings.ref))
        return
    if settings.src is not None:
        yield from ((text, None) for text in read_lines(settings.src))
        return
    folder = run.data_folder(config)
    for split in ("valid", "train"):
        if not (folder / f"{split}.src.txt").exists():
            raise UserError(f"the training text of {run.folder} is not in {folder}; give sentences to compare with --src")
        store = PairStore.open(folder, split)
        yield from ((store.src_text[row], store.tgt_text[row]) for row in range(len(store)))


def _max_positions(config: RunConfig) -> int:
    return config.model.max_positions if config.model.positions == "learned" else MAX_POSITIONS


def _write(
    settings: ExportSettings, config: RunConfig, model: Transformer, tokenizer: Tokenizer, folder: Path, *, int8: bool
) -> None:
    if settings.to == "ctranslate2":
        write_ctranslate2(model, tokenizer, folder, int8=int8)
    else:
        languages = (config.data.src_lang, config.data.tgt_lang)
        write_huggingface(model, tokenizer, folder, languages=languages, longest=config.longest)


def _load(settings: ExportSettings, folder: Path) -> Exported:
    return CTranslate2Model(folder) if settings.to == "ctranslate2" else HuggingFaceModel(folder)


def _verify(
    settings: ExportSettings,
    config: RunConfig,
    model: Transformer,
    tokenizer: Tokenizer,
    sources: Sequence[Source],
    folder: Path,
) -> list[str]:
    """Compare the exported model with ours, and return the result in words. Write the int8 model after the float32 one has
    been found equal."""
    hostile = hostile_sources([source.text for source in sources], tokenizer, max_positions=_max_positions(config))
    with bar_on_terminals() as progress:
        exported, lines, kept = _load(settings, folder), [], []
        for some, kind in ((sources, "sentences"), (hostile, "hostile texts")):
            ours = _collected(our_outputs(model, tokenizer, some), len(some), "regard", progress)
            theirs = _collected(their_outputs(exported, some), len(some), settings.to, progress)
            agreement = compare(model, some, ours, theirs)
            if agreement.different:
                first = agreement.different[0]
                raise MismatchError(
                    f"{settings.to} gives other outputs than {settings.run} for {len(agreement.different):,} of "
                    f"{len(some):,} {kind}, so nothing was kept; the first is {some[first].text!r}: "
                    f"{theirs[first].text!r} instead of {ours[first].text!r}"
                )
            ties = f"{agreement.num_ties:,} ties (two pieces of the same probability, to 1e-4)"
            lines.append(f"greedy text of {len(some):,} {kind}: {agreement.num_equal:,} equal, {ties}, 0 different")
            kept.append(ours)
        if not settings.int8:
            return lines
        shutil.rmtree(folder)
        folder.mkdir()
        _write(settings, config, model, tokenizer, folder, int8=True)
        coarse = _collected(their_outputs(_load(settings, folder), sources), len(sources), "in int8", progress)
    references = [source.reference for source in sources if source.reference is not None]
    return [*(f"float32, {line}" for line in lines), *int8_lines(kept[0], coarse, references, config.data.tgt_lang)]


def _collected(outputs: Iterator[tuple[int, Output]], num_sentences: int, who: str, progress: Progress) -> list[Output]:
    collected = dict(progress.track(outputs, total=num_sentences, description=f"translating: {who}"))
    return [collected[place] for place in range(num_sentences)]


def int8_lines(ours: Sequence[Output], coarse: Sequence[Output], references: Sequence[str], tgt_lang: str) -> list[str]:
    same = sum(one.text.strip() == other.text.strip() for one, other in zip(ours, coarse, strict=True))
    lines = [f"int8: {same / len(ours):.1%} of the translations are the same as in float32"]
    if not references:
        return [*lines, "no BLEU without references: give them with --ref"]
    before, after = (round(bleu([output.text for output in outputs], references, tgt_lang), 2) for outputs in (ours, coarse))
    return [*lines, f"BLEU {before:.2f} in float32, {after:.2f} in int8: {after - before:+.2f} (greedy)"]


def usage(settings: ExportSettings, tokenizer: Tokenizer) -> list[str]:
    """Return Python code that loads the model, and normalises and bounds a text as the run does."""
    folder = str(settings.output)
    if settings.to == "ctranslate2":
        text = "unicodedata.normalize('NFC', '…')"
        if tokenizer.src.is_marian:  # its SentencePiece models normalise by themselves
            text = f"' '.join({text}.replace('▁', ' ').split())"
        return [
            "",
            "import ctranslate2, sentencepiece, unicodedata",
            f"folder, load = {folder!r}, sentencepiece.SentencePieceProcessor",
            "src, tgt = load(f'{folder}/source.spm'), load(f'{folder}/target.spm')",
            f"pieces = src.encode({text}, out_type=str)",
            *(["# a language code, as >>fra<<, is a piece of its own: [code, *pieces]"] if tokenizer.src.is_marian else []),
            f"limits = dict(max_input_length=0, min_decoding_length=0, max_decoding_length=len(pieces) + {MAX_EXTRA})",
            "[result] = ctranslate2.Translator(folder).translate_batch([pieces], beam_size=4, **limits)",
            "print(tgt.decode(result.hypotheses[0]))",
        ]
    # `MarianTokenizer`, used for two vocabularies, takes >>…<< at the beginning of a text for a language.
    text = "'…'" if tokenizer.is_shared else "' ' + unicodedata.normalize('NFC', '…')"
    return [
        "",
        *([] if tokenizer.is_shared else ["import unicodedata"]),
        "from transformers import AutoModelForSeq2SeqLM, AutoTokenizer",
        f"tokenizer, model = (auto.from_pretrained({folder!r}) for auto in (AutoTokenizer, AutoModelForSeq2SeqLM))",
        f"source = tokenizer({text}, return_tensors='pt')",
        "length = source['input_ids'].shape[1] - 1  # without the end",
        f"output = model.generate(**source, num_beams=4, max_length=1 + length + {MAX_EXTRA}) if length else [[]]",
        "print(tokenizer.decode(output[0], skip_special_tokens=True))",
    ]
