"""The commands by which a model learns. Nothing is imported before a command needs it."""

from pathlib import Path
from typing import Annotated

import typer


def prepare(
    output: Annotated[Path, typer.Option("--output", "-o", help="the folder to make")],
    src: Annotated[
        list[str],
        typer.Option(metavar="FILE", help="source text, or a .tsv, .jsonl or .tmx with both sides; may be repeated"),
    ],
    valid_src: Annotated[str, typer.Option(help="text to validate on")],
    tgt: Annotated[list[str] | None, typer.Option(metavar="FILE", help="target text, line by line beside --src")] = None,
    valid_tgt: Annotated[str | None, typer.Option(help="its target side")] = None,
    test_src: Annotated[str | None, typer.Option(help="text to keep apart; looked at for leakage")] = None,
    test_tgt: Annotated[str | None, typer.Option(help="its target side")] = None,
    weight: Annotated[
        list[float] | None, typer.Option(metavar="NUMBER", help="how often each --src is seen in an epoch")
    ] = None,
    src_lang: Annotated[str | None, typer.Option(help="its code; default: the file's suffix")] = None,
    tgt_lang: Annotated[str | None, typer.Option(help="its code; default: the file's suffix")] = None,
    vocab_size: Annotated[int, typer.Option(min=0, help="subwords; 0: by the size of the corpus")] = 0,
    separate_vocab: Annotated[bool, typer.Option("--separate-vocab", help="subwords for each side")] = False,
    seed: Annotated[int, typer.Option(min=0, help="of the sample that subwords are learnt from")] = 1,
) -> None:
    """Clean parallel text, learn its subwords, and store it for training, with a report on what it is like.

    Files may be plain, .gz, .xz or pipes.

    \b
    Example:
      regard prepare --src train.de --tgt train.en --valid-src valid.de --valid-tgt valid.en -o prepared
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


def train(
    output: Annotated[Path, typer.Option("--output", "-o", help="the run's folder; if it is there, training goes on")],
    src: Annotated[
        list[str] | None, typer.Option(metavar="FILE", help="source text, or a .tsv, .jsonl or .tmx; may be repeated")
    ] = None,
    tgt: Annotated[list[str] | None, typer.Option(metavar="FILE", help="target text, line by line beside --src")] = None,
    valid_src: Annotated[str | None, typer.Option(help="text to validate on")] = None,
    valid_tgt: Annotated[str | None, typer.Option(help="its target side")] = None,
    text: Annotated[
        list[str] | None, typer.Option(metavar="FILE", help="plain text, for a language model; may be repeated")
    ] = None,
    valid_text: Annotated[str | None, typer.Option(metavar="FILE", help="plain text to validate on")] = None,
    weight: Annotated[
        list[float] | None, typer.Option(metavar="NUMBER", help="how often each --src or --text is seen in an epoch")
    ] = None,
    data: Annotated[Path | None, typer.Option(help="a folder that `regard prepare` made, instead of text")] = None,
    src_lang: Annotated[str | None, typer.Option(help="its code; default: the file's suffix")] = None,
    tgt_lang: Annotated[str | None, typer.Option(help="its code; default: the file's suffix")] = None,
    vocab_size: Annotated[int | None, typer.Option(min=0, help="subwords; default: by the size of the corpus")] = None,
    preset: Annotated[str | None, typer.Option(help="tiny, small (default), base or big")] = None,
    model: Annotated[str | None, typer.Option(help="transformer (default), rnn, rnn-attention or language")] = None,
    from_run: Annotated[Path | None, typer.Option("--from", help="a run whose weights and subwords to begin with")] = None,
    steps: Annotated[
        int | None, typer.Option(min=1, help="updates, by which the learning rate is planned; default: about 30 epochs")
    ] = None,
    minutes: Annotated[float | None, typer.Option(min=0.01, help="as many updates as that time has room for")] = None,
    batch_tokens: Annotated[
        str | None, typer.Option(help="of an update, on its larger side; auto: what fits the GPU")
    ] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="of first values, order and dropout; default 1")] = None,
    device: Annotated[str | None, typer.Option(help="cpu, cuda or mps; default: cuda where there is one")] = None,
    deterministic: Annotated[bool, typer.Option("--deterministic", help="repeatable on CUDA too, and slower")] = False,
    config: Annotated[Path | None, typer.Option(help="a TOML file with any of these and all other settings")] = None,
    corpora: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="where the files are that --config names; default: here")
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="one setting, as train.warmup=800; may be repeated"),
    ] = None,
) -> None:
    """Train a model on your own text: read and report on it, learn its subwords, train, validate, save.

    From pairs of texts, mostly a translator; from plain text, with --model language, what `regard generate` goes on with.

    Run again, it continues. Ctrl-C is safe: the step is finished and saved. With several GPUs:
    torchrun --nproc-per-node=4 -m regard train ...

    \b
    Examples:
      regard train --src train.de --tgt train.en --valid-src valid.de --valid-tgt valid.en -o runs/mine
      regard train --model language --text train.txt --valid-text valid.txt -o runs/language
      regard train --config recipes/multi30k-en-de.toml --corpora corpora -o runs/multi30k
    """
    from regard.settings import merged, parse_setting, read_toml
    from regard.train.command import run
    from regard.train.flags import TextFlags, data_table, overruled, table_of_flags, with_languages, within

    if corpora is not None and (config is None or data is not None):
        raise ValueError("--corpora is where the files are that --config names; give it with --config, and without --data")

    texts = TextFlags(src or [], tgt or [], valid_src, valid_tgt, weight or [], src_lang, tgt_lang, text or [], valid_text)
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
    from_file = {} if config is None else overruled(read_toml(config), flags)
    if corpora is not None:
        from_file = within(corpora, from_file)
    run(with_languages(merged(from_file, data_table(texts), flags, *map(parse_setting, set_ or []))), output)


def average(
    run: Annotated[Path, typer.Argument(help="a run's folder")],
    last: Annotated[
        int | None, typer.Option(min=1, help="how many of the last checkpoints; default: as the run keeps")
    ] = None,
    step: Annotated[list[int] | None, typer.Option(metavar="STEP", help="a checkpoint by its step; may be repeated")] = None,
    device: Annotated[str, typer.Option(help="to validate on: cpu, cuda or mps")] = "auto",
) -> None:
    """Average checkpoints of a run, validate the result, and make it what the run translates or generates with.

    \b
    Example:
      regard average runs/mine --last 3
    """
    from regard.train.average import average as averaged

    if last is not None and step:
        raise ValueError("--last and --step say different things; give one of them")
    before, weights, validation = averaged(run, last=last, steps=step or [], device=device)
    steps = ", ".join(map(str, weights.steps))
    print(f"what the run uses is now the average of the steps {steps}: {validation.described}")
    if before is not None:
        print(f"before, it was {before.described}")
