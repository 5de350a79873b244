"""The command line. Nothing here imports torch until a command needs it, so that `--help` answers at once."""

from pathlib import Path
from typing import Annotated, Literal

import typer

import regard
from regard.bench.command import bench

app = typer.Typer(
    name="regard",
    help="A Transformer translator that you can train, trust and look into.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(bench, name="bench")


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"regard {regard.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


@app.command()
def prepare(
    output: Annotated[Path, typer.Option("--output", "-o", help="the folder to make")],
    src: Annotated[list[str], typer.Option(help="source text, or a .tsv, .jsonl or .tmx with both sides; may be repeated")],
    valid_src: Annotated[str, typer.Option(help="text to validate on")],
    tgt: Annotated[list[str] | None, typer.Option(help="target text, line by line beside --src")] = None,
    valid_tgt: Annotated[str | None, typer.Option(help="its target side")] = None,
    test_src: Annotated[str | None, typer.Option(help="text to keep apart; looked at for leakage")] = None,
    test_tgt: Annotated[str | None, typer.Option(help="its target side")] = None,
    weight: Annotated[list[float] | None, typer.Option(help="how often each --src is seen in an epoch")] = None,
    src_lang: Annotated[str | None, typer.Option(help="its code; default: the file's suffix")] = None,
    tgt_lang: Annotated[str | None, typer.Option(help="its code; default: the file's suffix")] = None,
    vocab_size: Annotated[int, typer.Option(min=0, help="subwords; 0: by the size of the corpus")] = 0,
    separate_vocab: Annotated[bool, typer.Option("--separate-vocab", help="subwords for each side")] = False,
    seed: Annotated[int, typer.Option(min=0, help="of the sample that subwords are learnt from")] = 1,
) -> None:
    """Clean parallel text, learn its subwords, and store it for training, with a report on what it is like.

    Files may be plain, .gz, .xz or pipes.

    Example: regard prepare --src train.de --tgt train.en --valid-src valid.de --valid-tgt valid.en -o prepared
    """
    from regard.config import DataConfig
    from regard.data.command import corpora_of, held_out_corpus, language_of, run

    if test_src is None and test_tgt is not None:
        raise ValueError("--test-tgt was given without --test-src")
    src_lang = language_of(src[0]) if src_lang is None else src_lang
    tgt_lang = language_of(tgt[0] if tgt else "") if tgt_lang is None else tgt_lang
    run(
        DataConfig(
            train=corpora_of(src, tgt or [], weight or []),
            valid=held_out_corpus(valid_src, valid_tgt, src_lang, tgt_lang),
            test=() if test_src is None else (held_out_corpus(test_src, test_tgt, src_lang, tgt_lang),),
            src_lang=src_lang,
            tgt_lang=tgt_lang,
            vocab_size=vocab_size,
            shared_vocab=not separate_vocab,
            seed=seed,
        ),
        output,
    )


@app.command()
def train(
    output: Annotated[Path, typer.Option("--output", "-o", help="the run's folder; if it is there, training goes on")],
    src: Annotated[list[str] | None, typer.Option(help="source text, or a .tsv, .jsonl or .tmx; may be repeated")] = None,
    tgt: Annotated[list[str] | None, typer.Option(help="target text, line by line beside --src")] = None,
    valid_src: Annotated[str | None, typer.Option(help="text to validate on")] = None,
    valid_tgt: Annotated[str | None, typer.Option(help="its target side")] = None,
    weight: Annotated[list[float] | None, typer.Option(help="how often each --src is seen in an epoch")] = None,
    data: Annotated[Path | None, typer.Option(help="a folder that `regard prepare` made, instead of text")] = None,
    src_lang: Annotated[str | None, typer.Option(help="its code; default: the file's suffix")] = None,
    tgt_lang: Annotated[str | None, typer.Option(help="its code; default: the file's suffix")] = None,
    vocab_size: Annotated[int | None, typer.Option(min=0, help="subwords; default: by the size of the corpus")] = None,
    preset: Annotated[str | None, typer.Option(help="tiny, small (default), base or big")] = None,
    model: Annotated[str | None, typer.Option(help="the kind of model: transformer")] = None,
    from_run: Annotated[Path | None, typer.Option("--from", help="a run whose weights and subwords to begin with")] = None,
    steps: Annotated[
        int | None, typer.Option(min=1, help="updates, by which the learning rate is planned; default: about 30 epochs")
    ] = None,
    minutes: Annotated[float | None, typer.Option(min=0.01, help="as many updates as that time has room for")] = None,
    batch_tokens: Annotated[
        str | None, typer.Option(help="of an update, on its larger side; auto: what fits the GPU")
    ] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="of first values, order and dropout; default 1")] = None,
    device: Annotated[str | None, typer.Option(help="cpu, cuda or mps; default: a GPU where there is one")] = None,
    deterministic: Annotated[bool, typer.Option("--deterministic", help="repeatable on CUDA too, and slower")] = False,
    config: Annotated[Path | None, typer.Option(help="a TOML file with any of these and all other settings")] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="one setting, as train.warmup=800; may be repeated")
    ] = None,
) -> None:
    """Train a translator: read and report on the text, learn its subwords, train, validate, save. Run again, it continues.

    Ctrl-C is safe: the step is finished and saved. With several GPUs: torchrun --nproc-per-node=4 -m regard train ...

    Example: regard train --src train.de --tgt train.en --valid-src valid.de --valid-tgt valid.en -o runs/mine
    """
    from regard.settings import merged, parse_setting, read_toml
    from regard.train.command import run
    from regard.train.flags import TextFlags, data_table, table_of_flags, with_languages

    texts = TextFlags(src or [], tgt or [], valid_src, valid_tgt, weight or [], src_lang, tgt_lang)
    flags = table_of_flags(
        {
            "preset": preset,
            "start_from": None if from_run is None else str(from_run.resolve()),
            "prepared": None if data is None else str(data.resolve()),
            "data.vocab_size": vocab_size,
            "model.kind": model,
            "train.steps": steps,
            "train.minutes": minutes,
            "train.batch_tokens": batch_tokens,
            "train.seed": seed,
            "train.device": device,
            "train.deterministic": deterministic or None,
        }
    )
    from_file = {} if config is None else read_toml(config)
    run(with_languages(merged(from_file, data_table(texts), flags, *map(parse_setting, set_ or []))), output)


@app.command()
def translate(
    run: Annotated[Path, typer.Argument(help="a run's folder")],
    file: Annotated[str, typer.Argument(help="text, one sentence a line, also .gz or .xz; default: standard input")] = "-",
    output: Annotated[Path | None, typer.Option("--output", "-o", help="where to write; default: standard output")] = None,
    beam: Annotated[int, typer.Option(min=1, help="hypotheses to go on with at each step; 1: greedy search")] = 4,
    alpha: Annotated[float, typer.Option(help="of the length penalty; 0: none")] = 0.6,
    nbest: Annotated[int, typer.Option(min=1, help="translations for each line, as `number ||| text ||| ...`")] = 1,
    batch_tokens: Annotated[int, typer.Option(min=0, help="source tokens at once; 0: what suits the device")] = 0,
    batch_size: Annotated[int, typer.Option(min=0, help="or so many lines at once")] = 0,
    sample: Annotated[int, typer.Option(min=0, help="draw so many at random; --nbest shows more than the first")] = 0,
    temperature: Annotated[float, typer.Option(help="below 1 sharpens what is drawn from, above 1 flattens it")] = 1.0,
    top_k: Annotated[int, typer.Option(min=0, help="draw from so many best tokens only; 0: from all")] = 0,
    top_p: Annotated[float, typer.Option(help="draw from the fewest tokens with this much of the probability")] = 1.0,
    seed: Annotated[int, typer.Option(min=0, help="of what is drawn")] = 1,
    mbr: Annotated[bool, typer.Option("--mbr", help="of all candidates, the one most like the others (by chrF)")] = False,
    ensemble: Annotated[list[Path] | None, typer.Option(help="another run, to average with; may be repeated")] = None,
    prefixes: Annotated[Path | None, typer.Option(help="how each translation is to begin, one a line")] = None,
    align: Annotated[Path | None, typer.Option(help="write word alignments there, as `0-0 1-2` (Pharaoh)")] = None,
    pieces: Annotated[bool, typer.Option("--pieces", help="write subwords, not text")] = False,
    json: Annotated[bool, typer.Option("--json", help="write all there is to a translation, one object a line")] = False,
    device: Annotated[str, typer.Option(help="cpu, cuda or mps; default: a GPU where there is one")] = "auto",
) -> None:
    """Translate text, line by line. An empty line stays one; a line too long for the model is translated in parts.

    Example: echo "Guten Morgen!" | regard translate runs/mine

    Example: regard translate runs/mine test.de -o test.out --beam 8
    """
    from regard.search.sample import Sampling
    from regard.translate.command import Files
    from regard.translate.command import translate as translated
    from regard.translate.search import BatchSize, Search

    if not sample and (temperature, top_k, top_p) != (1.0, 0, 1.0):
        raise ValueError("--temperature, --top-k and --top-p say how to draw; give --sample, too")
    if sum([json, pieces, nbest > 1]) > 1 and not (json and nbest > 1 and not pieces):
        raise ValueError("--json, --pieces and --nbest each have a form of their own; give one (--json shows the --nbest)")
    translated(
        [run, *(ensemble or [])],
        Files(file, output, align, prefixes),
        Search(
            beam=beam,
            alpha=alpha,
            num_best=nbest,
            samples=sample,
            sampling=Sampling(temperature, top_k, top_p),
            seed=seed,
            minimum_risk=mbr,
        ),
        batch=BatchSize(tokens=batch_tokens, sentences=batch_size),
        form="json" if json else "pieces" if pieces else "nbest" if nbest > 1 else "text",
        device=device,
    )


@app.command()
def score(
    run: Annotated[Path, typer.Argument(help="a run's folder")],
    src: Annotated[str, typer.Option(help="source text")],
    tgt: Annotated[str, typer.Option(help="its translation, line by line")],
    pieces: Annotated[
        bool, typer.Option("--pieces", help="the translation is in subwords, as `translate --pieces` has it")
    ] = False,
    tokens: Annotated[bool, typer.Option("--tokens", help="show each subword's log-probability as well")] = False,
    alpha: Annotated[float, typer.Option(help="divide by a length penalty, as `translate` does; 0: none")] = 0.0,
    align: Annotated[Path | None, typer.Option(help="write word alignments there, as `0-0 1-2` (Pharaoh)")] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="where to write; default: standard output")] = None,
    ensemble: Annotated[list[Path] | None, typer.Option(help="another run, to average with; may be repeated")] = None,
    batch_tokens: Annotated[int, typer.Option(min=0, help="tokens at once; 0: what suits the device")] = 0,
    device: Annotated[str, typer.Option(help="cpu, cuda or mps; default: a GPU where there is one")] = "auto",
) -> None:
    """The log-probability (natural logarithm) that a run gives to each pair of lines, the end of the sentence included.

    Example: regard score runs/mine --src test.de --tgt test.en
    """
    from regard.translate.command import score as scored
    from regard.translate.search import BatchSize

    scored(
        [run, *(ensemble or [])],
        src,
        tgt,
        pieces=pieces,
        tokens=tokens,
        alpha=alpha,
        output=output,
        alignments=align,
        batch=BatchSize(tokens=batch_tokens),
        device=device,
    )


@app.command()
def info(
    run: Annotated[Path, typer.Argument(help="a run's folder")],
    json: Annotated[bool, typer.Option("--json", help="as JSON")] = False,
) -> None:
    """What a run is: sizes, languages, training, data, quality, and whether its files are intact (exit code 1 if not).

    Example: regard info runs/mine
    """
    from regard.info import as_json, print_info, read_info

    found = read_info(run)
    if json:
        print(as_json(found))
    else:
        print_info(found)
    raise typer.Exit(1 if found.damaged else 0)


@app.command()
def average(
    run: Annotated[Path, typer.Argument(help="a run's folder")],
    last: Annotated[
        int | None, typer.Option(min=1, help="how many of the last checkpoints; default: as the run keeps")
    ] = None,
    step: Annotated[list[int] | None, typer.Option(help="a checkpoint by its step; may be repeated")] = None,
    device: Annotated[str, typer.Option(help="to validate on: cpu, cuda or mps")] = "auto",
) -> None:
    """Average checkpoints of a run, validate the result, and make it what the run translates with.

    Example: regard average runs/mine --last 3
    """
    from regard.train.average import average as averaged

    if last is not None and step:
        raise ValueError("--last and --step say different things; give one of them")
    before, weights, validation = averaged(run, last=last, steps=step or [], device=device)
    steps = ", ".join(map(str, weights.steps))
    print(f"what translates is now the average of the steps {steps}: {validation.described}")
    if before is not None:
        print(f"before, it was {before.described}")


@app.command()
def evaluate(
    system: Annotated[str, typer.Argument(help="a run's folder, or a file of finished translations")],
    ref: Annotated[list[str], typer.Option(help="what translations should be; may be repeated for several references")],
    src: Annotated[str | None, typer.Option(help="what to translate; a file of translations can do without")] = None,
    versus: Annotated[str | None, typer.Option(help="a second run or file, to compare with the first")] = None,
    output: Annotated[
        str | None, typer.Option("--output", "-o", help="where to write; default: the run's folder, else this one")
    ] = None,
    tgt_lang: Annotated[str | None, typer.Option(help="its code; default: the run's, else the suffix of --ref")] = None,
    beam: Annotated[int, typer.Option(min=1, help="translations kept at each step of the search")] = 4,
    alpha: Annotated[float, typer.Option(min=0.0, help="of the length penalty; 0: none")] = 0.6,
    batch_tokens: Annotated[int, typer.Option(min=0, help="translated at once; 0: as many as suit the device")] = 0,
    device: Annotated[str, typer.Option(help="cpu, cuda or mps; auto: a GPU where there is one")] = "auto",
    num_resamples: Annotated[
        int, typer.Option(min=40, help="test sets drawn for intervals and p; fewer than 40 have no 2.5 % tail")
    ] = 1000,
) -> None:
    """Measure translations: BLEU, chrF and TER as sacreBLEU has them, by length, and the best and worst sentences.

    Writes evaluation.json and evaluation.html. Files may be plain, .gz, .xz or pipes, one sentence a line.

    Example: regard evaluate runs/mine --src test.de --ref test.en --versus runs/other
    """
    from regard.evaluate.command import EvaluationSettings, run

    run(
        EvaluationSettings(
            system=system,
            refs=tuple(ref),
            src=src,
            versus=versus,
            output=output,
            tgt_lang=tgt_lang,
            num_resamples=num_resamples,
            beam=beam,
            alpha=alpha,
            batch_tokens=batch_tokens,
            device=device,
        )
    )


@app.command()
def export(
    run: Annotated[Path, typer.Argument(help="a run's folder")],
    to: Annotated[Literal["ctranslate2", "huggingface"], typer.Option(help="the program to export for")],
    output: Annotated[Path, typer.Option("--output", "-o", help="the folder to make")],
    int8: Annotated[bool, typer.Option("--int8", help="weights of 8 bits, for CTranslate2: smaller and coarser")] = False,
    src: Annotated[str | None, typer.Option(help="sentences to compare with; default: the run's own")] = None,
    ref: Annotated[str | None, typer.Option(help="their translations, for the BLEU of --int8")] = None,
) -> None:
    """Make a folder that CTranslate2 or Hugging Face's transformers loads, and see that it translates as the run does.

    Both translate 1,000 sentences greedily. If any comes out differently by more than a tie, nothing is left behind.

    Example: regard export runs/mine --to ctranslate2 --int8 -o exported
    """
    from regard.exchange.command import ExportSettings
    from regard.exchange.command import export as exported

    print("\n".join(exported(ExportSettings(run=run, to=to, output=output, int8=int8, src=src, ref=ref))))


@app.command("import")
def import_(
    folder: Annotated[Path, typer.Argument(help="a Hugging Face folder with a Marian model, such as OPUS-MT's")],
    output: Annotated[Path, typer.Option("--output", "-o", help="the run's folder to make")],
) -> None:
    """Make a run of a Marian model: to translate with, to evaluate, to look into, or to train on with --from.

    The folder holds config.json, source.spm, target.spm, vocab.json, and model.safetensors or pytorch_model.bin.

    Example: regard import opus-mt-de-en -o runs/opus
    """
    from regard.exchange.marian import import_marian

    print("\n".join(import_marian(folder, output)))
