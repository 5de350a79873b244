"""Defines `regard prepare`, `regard train` and `regard average`."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from regard.errors import UserError


def prepare(
    output: Annotated[Path, Option("--output", "-o", help="folder to create")],
    src: Annotated[list[str], Option(metavar="FILE", help="source text, .tsv, .jsonl or .tmx; may be repeated")],
    tgt: Annotated[list[str] | None, Option(metavar="FILE", help="target text, line by line as in --src")] = None,
    valid_src: Annotated[str | None, Option(help="validation text; default: some of the pairs")] = None,
    valid_tgt: Annotated[str | None, Option(help="target side of it")] = None,
    test_src: Annotated[str | None, Option(help="test text, which is searched for leakage")] = None,
    test_tgt: Annotated[str | None, Option(help="target side of it")] = None,
    weight: Annotated[list[float] | None, Option(metavar="NUMBER", help="repetitions of each --src in an epoch")] = None,
    src_lang: Annotated[str | None, Option(help="source language; default: the file's suffix")] = None,
    tgt_lang: Annotated[str | None, Option(help="target language; default: the file's suffix")] = None,
    vocab_size: Annotated[int, Option(min=0, help="number of subwords; 0: by the size of the corpus")] = 0,
    separate_vocab: Annotated[bool, Option("--separate-vocab", help="learn subwords for each side")] = False,
    seed: Annotated[int, Option(min=0, help="random seed of the sample that subwords are learnt from")] = 1,
) -> None:
    """Clean parallel text, learn its subwords, store it for training, and report on it.

    Files may be plain, .gz, .xz or pipes.

    \b
    Example:
      regard prepare --src train.de --tgt train.en --valid-src valid.de --valid-tgt valid.en -o prepared
    """
    from regard.config import DataConfig
    from regard.data.command import corpora_of, held_out_corpus, language_of, run

    for split, one, other in (("valid", valid_src, valid_tgt), ("test", test_src, test_tgt)):
        if one is None and other is not None:
            raise UserError(f"--{split}-tgt was given without --{split}-src")
    src_lang = language_of(src[0]) if src_lang is None else src_lang
    tgt_lang = language_of(tgt[0] if tgt else "") if tgt_lang is None else tgt_lang
    run(
        DataConfig(
            train=corpora_of(src, tgt or [], weight or []),
            valid=None if valid_src is None else held_out_corpus(valid_src, valid_tgt, src_lang, tgt_lang),
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
    output: Annotated[Path, Option("--output", "-o", help="the run's folder; if it exists, training continues")],
    src: Annotated[
        list[str] | None, Option(metavar="FILE", help="source text, .tsv, .jsonl or .tmx; may be repeated")
    ] = None,
    tgt: Annotated[list[str] | None, Option(metavar="FILE", help="target text, line by line as in --src")] = None,
    valid_src: Annotated[str | None, Option(help="validation text; default: some of the training text")] = None,
    valid_tgt: Annotated[str | None, Option(help="target side of it")] = None,
    text: Annotated[list[str] | None, Option(metavar="FILE", help="text for a language model; may be repeated")] = None,
    valid_text: Annotated[str | None, Option(metavar="FILE", help="validation text for a language model")] = None,
    weight: Annotated[list[float] | None, Option(metavar="NUMBER", help="repetitions of each text in an epoch")] = None,
    data: Annotated[Path | None, Option(help="folder that `regard prepare` made, instead of text")] = None,
    src_lang: Annotated[str | None, Option(help="source language; default: the file's suffix")] = None,
    tgt_lang: Annotated[str | None, Option(help="target language; default: the file's suffix")] = None,
    vocab_size: Annotated[int | None, Option(min=0, help="number of subwords; default: by the size of the corpus")] = None,
    preset: Annotated[str | None, Option(help="tiny, small (default), base or big")] = None,
    model: Annotated[str | None, Option(help="transformer (default), rnn, rnn-attention or language")] = None,
    from_run: Annotated[Path | None, Option("--from", help="run whose weights and subwords to start from")] = None,
    steps: Annotated[int | None, Option(min=1, help="number of updates; default: about 30 epochs")] = None,
    minutes: Annotated[float | None, Option(min=0.01, help="train for this time instead of --steps")] = None,
    batch_tokens: Annotated[str | None, Option(help="tokens in an update; auto: as the GPU has memory for")] = None,
    seed: Annotated[int | None, Option(min=0, help="random seed; default 1")] = None,
    device: Annotated[str | None, Option(help="cpu, cuda or mps; default: cuda if there is one")] = None,
    deterministic: Annotated[bool, Option("--deterministic", help="bitwise repeatable on CUDA, too; slower")] = False,
    config: Annotated[Path | None, Option(help="TOML file with settings; flags override it")] = None,
    corpora: Annotated[Path | None, Option(metavar="FOLDER", help="folder of the files that --config names")] = None,
    set_: Annotated[list[str] | None, Option("--set", metavar="NAME=VALUE", help="any setting; may be repeated")] = None,
) -> None:
    """Train a model on your own text: prepare the text, train, validate, save.

    Pairs of texts give a translator; plain text, with --model language, gives a language model for `regard generate`.

    The same command continues an existing run. Ctrl-C finishes and saves the current step. With several GPUs:
    torchrun --nproc-per-node=4 -m regard train ...

    \b
    Examples:
      regard train --src train.de --tgt train.en --valid-src valid.de --valid-tgt valid.en -o runs/mine
      regard train --model language --text train.txt --valid-text valid.txt -o runs/language
      regard train --config recipes/multi30k-en-de.toml --corpora corpora -o runs/multi30k
    """
    from regard.cli.training_flags import TextFlags, data_table, overruled, table_of_flags, with_languages, within
    from regard.settings import merged, parse_setting, read_toml
    from regard.train.command import run

    if corpora is not None and (config is None or data is not None):
        raise UserError("--corpora is the folder of the files that --config names; give it with --config, without --data")

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
    run: Annotated[Path, Argument(help="a run's folder")],
    last: Annotated[int | None, Option(min=1, help="number of last checkpoints; default: all that are kept")] = None,
    step: Annotated[list[int] | None, Option(metavar="STEP", help="step of a checkpoint; may be repeated")] = None,
    device: Annotated[str, Option(help="cpu, cuda or mps, for validation")] = "auto",
) -> None:
    """Average checkpoints of a run, validate the result, and use it for translation or generation with the run.

    \b
    Example:
      regard average runs/mine --last 3
    """
    from regard.train.average import average as averaged

    if last is not None and step:
        raise UserError("--last and --step exclude each other; give one of them")
    before, weights, validation = averaged(run, last=last, steps=step or [], device=device)
    steps = ", ".join(map(str, weights.steps))
    print(f"the run now uses the average of the steps {steps}: {validation.described}")
    if before is not None:
        print(f"before: {before.described}")
