"""`regard export`: a run for another program, made, loaded there and compared before it is called done."""

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from rich.progress import Progress

from regard.checkpoint import Run
from regard.config import CorpusConfig, RunConfig
from regard.data.command import bar_on_terminals
from regard.data.store import PairStore
from regard.evaluate.metrics import bleu
from regard.exchange.folder import made_beside
from regard.exchange.language import compare_language, language_texts
from regard.exchange.verification import (
    MAX_POSITIONS,
    Comparison,
    Exported,
    Output,
    Source,
    compare,
    our_outputs,
    sources_of,
    their_outputs,
)
from regard.generate.generator import load_language
from regard.model.kinds import require_transformer
from regard.model.transformer import Transformer
from regard.text.corpus import read_lines, read_pairs
from regard.text.tokenizer import Tokenizer
from regard.translate.translator import load

Target = Literal["ctranslate2", "huggingface"]
LIBRARIES: dict[Target, str] = {"ctranslate2": "ctranslate2", "huggingface": "transformers"}
NUM_SENTENCES = 1000


@dataclass(frozen=True)
class ExportSettings:
    run: Path
    to: Target
    output: Path
    int8: bool = False
    src: str | None = None  # what to verify with; otherwise the run's own text
    ref: str | None = None  # its translations

    def __post_init__(self) -> None:
        if self.int8 and self.to != "ctranslate2":
            raise ValueError("--int8 is CTranslate2's; leave it out, or export with --to ctranslate2")
        if self.ref is not None and self.src is None:
            raise ValueError("--ref was given without --src")


def export(settings: ExportSettings) -> list[str]:
    """Makes the folder; gives the lines that say what was made."""
    require_library(LIBRARIES[settings.to])
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
    beams = "beams may differ from regard's: programs do not punish length alike"
    return [made, *lines, limit, beams, *usage(settings)]


def _export_language(settings: ExportSettings) -> list[str]:
    """A language model's run; there are no translations to compare, but probabilities."""
    from regard.exchange.llama import write_llama

    if settings.to != "huggingface":
        raise ValueError(f"{settings.run} is a language model; export it with --to huggingface, or use `regard generate`")
    if settings.ref is not None:
        raise ValueError("--ref is for translations; leave it out for a language model")
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
        "output = model.generate(**tokenizer('…', return_tensors='pt'), max_new_tokens=100, do_sample=True)",
        "print(tokenizer.batch_decode(output, skip_special_tokens=True))",
    ]


def require_library(name: str) -> None:
    if find_spec(name) is None:
        raise ValueError(f"{name} is not installed; install it with: pip install 'regard[export]'")


def verification_text(run: Run, config: RunConfig, tokenizer: Tokenizer, settings: ExportSettings) -> list[Source]:
    """What both programs translate: from --src, or from what the run was validated and trained on."""
    sources = sources_of(
        _texts(run, config, settings), tokenizer, max_positions=_max_positions(config), num_sentences=NUM_SENTENCES
    )
    if not sources:
        where = settings.src or run.data_folder(config)
        raise ValueError(f"no sentence in {where} fits the model; give other text with --src")
    return sources


def _texts(run: Run, config: RunConfig, settings: ExportSettings) -> Iterator[tuple[str, str | None]]:
    """Sentences with their translations, where those are known."""
    if settings.src is not None and settings.ref is None:
        yield from ((text, None) for text in read_lines(settings.src))
        return
    if settings.src is not None:
        yield from read_pairs(CorpusConfig(src=settings.src, tgt=settings.ref))
        return
    folder = run.data_folder(config)
    for split in ("valid", "train"):
        if not (folder / f"{split}.src.txt").exists():
            raise ValueError(
                f"the text that {run.folder} was trained on is not in {folder}; give sentences to compare with --src"
            )
        store = PairStore.open(folder, split)
        yield from ((store.src_text[row], store.tgt_text[row]) for row in range(len(store)))


def _max_positions(config: RunConfig) -> int:
    return config.model.max_positions if config.model.positions == "learned" else MAX_POSITIONS


def _write(
    settings: ExportSettings, config: RunConfig, model: Transformer, tokenizer: Tokenizer, folder: Path, *, int8: bool
) -> None:
    if settings.to == "ctranslate2":
        from regard.exchange.ctranslate import write_ctranslate2

        write_ctranslate2(model, tokenizer, folder, int8=int8)
    else:
        from regard.exchange.huggingface import write_huggingface

        write_huggingface(model, tokenizer, folder, languages=(config.data.src_lang, config.data.tgt_lang))


def _load(settings: ExportSettings, folder: Path) -> Exported:
    if settings.to == "ctranslate2":
        from regard.exchange.ctranslate import CTranslate2Model

        return CTranslate2Model(folder)
    from regard.exchange.huggingface import HuggingFaceModel

    return HuggingFaceModel(folder)


def _verify(
    settings: ExportSettings,
    config: RunConfig,
    model: Transformer,
    tokenizer: Tokenizer,
    sources: Sequence[Source],
    folder: Path,
) -> list[str]:
    """int8 is no other model but a coarser one: it is made when the float32 one has been found right."""
    with bar_on_terminals() as progress:
        ours = _collected(our_outputs(model, tokenizer, sources), len(sources), "regard", progress)
        theirs = _collected(their_outputs(_load(settings, folder), sources), len(sources), settings.to, progress)
        comparison = compare(model, sources, ours, theirs)
        if comparison.different:
            first = comparison.different[0]
            raise ValueError(
                f"{settings.to} says something else than {settings.run} for {len(comparison.different):,} of "
                f"{len(sources):,} sentences, so nothing was kept; the first is {sources[first].text!r}: "
                f"{theirs[first].text!r} instead of {ours[first].text!r}"
            )
        if not settings.int8:
            return [described(comparison)]
        shutil.rmtree(folder)
        folder.mkdir()
        _write(settings, config, model, tokenizer, folder, int8=True)
        coarse = _collected(their_outputs(_load(settings, folder), sources), len(sources), "in int8", progress)
    references = [source.reference for source in sources if source.reference is not None]
    return [f"float32, {described(comparison)}", *int8_lines(ours, coarse, references, config.data.tgt_lang)]


def _collected(outputs: Iterator[tuple[int, Output]], num_sentences: int, who: str, progress: Progress) -> list[Output]:
    task = progress.add_task(f"translating: {who}", total=num_sentences)
    collected: dict[int, Output] = {}
    for place, output in outputs:
        collected[place] = output
        progress.advance(task)
    return [collected[place] for place in range(num_sentences)]


def described(comparison: Comparison) -> str:
    return (
        f"greedy text of {comparison.num_sentences:,} sentences: {comparison.num_equal:,} equal, {comparison.num_ties:,} "
        "ties (two pieces of the same probability, to 1e-4), 0 different"
    )


def int8_lines(ours: Sequence[Output], coarse: Sequence[Output], references: Sequence[str], tgt_lang: str) -> list[str]:
    same = sum(one.text.strip() == other.text.strip() for one, other in zip(ours, coarse, strict=True))
    lines = [f"int8: {same / len(ours):.1%} of the sentences are what float32 makes of them"]
    if not references:
        return [*lines, "no BLEU without references: give them with --ref"]
    before, after = (round(bleu([output.text for output in outputs], references, tgt_lang), 2) for outputs in (ours, coarse))
    return [*lines, f"BLEU {before:.2f} in float32, {after:.2f} in int8: {after - before:+.2f} (greedy)"]


def usage(settings: ExportSettings) -> list[str]:
    """How it is loaded."""
    folder = str(settings.output)
    if settings.to == "ctranslate2":
        return [
            "",
            "import ctranslate2, sentencepiece",
            f"folder, load = {folder!r}, sentencepiece.SentencePieceProcessor",
            "src, tgt = load(f'{folder}/source.spm'), load(f'{folder}/target.spm')",
            "result = ctranslate2.Translator(folder).translate_batch([src.encode('…', out_type=str)], beam_size=4)",
            "print(tgt.decode(result[0].hypotheses[0]))",
        ]
    return [
        "",
        "from transformers import AutoModelForSeq2SeqLM, AutoTokenizer",
        f"tokenizer, model = (auto.from_pretrained({folder!r}) for auto in (AutoTokenizer, AutoModelForSeq2SeqLM))",
        "output = model.generate(**tokenizer(['…'], return_tensors='pt'), num_beams=4)",
        "print(tokenizer.batch_decode(output, skip_special_tokens=True))",
    ]
