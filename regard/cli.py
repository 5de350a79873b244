"""The command line. Nothing here imports torch until a command needs it, so that `--help` answers at once."""

from pathlib import Path
from typing import Annotated, Literal

import typer

import regard

app = typer.Typer(
    name="regard",
    help="A Transformer translator that you can train, trust and look into.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
bench = typer.Typer(help="Measure this machine: ours beside its peers, in one run.", no_args_is_help=True)
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


@bench.command("model")
def bench_model(
    preset: Annotated[str, typer.Option(help="tiny, small, base or big")] = "small",
    batch: Annotated[int, typer.Option(min=1, help="sentences in a batch")] = 128,
    length: Annotated[int, typer.Option(min=1, help="tokens in each source and each target")] = 16,
    vocab: Annotated[int, typer.Option(min=8, help="entries in the shared vocabulary")] = 8000,
    rounds: Annotated[int, typer.Option(min=1, help="interleaved rounds; the median counts")] = 5,
    steps: Annotated[int, typer.Option(min=1, help="training steps of each model in a round")] = 3,
    device: Annotated[str, typer.Option(help="cpu, cuda or mps")] = "cpu",
    dtype: Annotated[Literal["float32", "bfloat16"], typer.Option(help="of weights and activations")] = "float32",
    compile: Annotated[bool, typer.Option("--compile", help="run every model under torch.compile")] = False,
    json: Annotated[Path | None, typer.Option(help="also write the numbers to this file")] = None,
) -> None:
    """Train ours, torch.nn.Transformer and Hugging Face Marian on the same batch, and compare their speed.

    One step is forward, label-smoothed loss, backward and Adam; every model has the same sizes and dropout, the same fused
    Adam and one shared embedding matrix.

    Example: regard bench model --preset small --rounds 5
    """
    from regard.bench.model import BenchSettings, run

    run(
        BenchSettings(
            preset=preset,
            batch=batch,
            length=length,
            vocab=vocab,
            rounds=rounds,
            steps=steps,
            device=device,
            dtype=dtype,
            compile=compile,
        ),
        json_path=json,
    )


@bench.command("train")
def bench_train(
    data: Annotated[Path, typer.Argument(help="a folder that `regard prepare` made")],
    preset: Annotated[str, typer.Option(help="tiny, small, base or big")] = "small",
    batch_tokens: Annotated[int, typer.Option(min=1, help="of an update, on its larger side")] = 4096,
    peer_sentences: Annotated[int, typer.Option(min=0, help="in the others' batches; 0: as many as ours has")] = 0,
    rounds: Annotated[int, typer.Option(min=1, help="interleaved rounds; the median counts")] = 5,
    updates: Annotated[int, typer.Option(min=1, help="of each training loop in a round")] = 5,
    device: Annotated[str, typer.Option(help="cpu, cuda or mps")] = "cpu",
    json: Annotated[Path | None, typer.Option(help="also write the numbers to this file")] = None,
) -> None:
    """Train on a corpus as `regard train` does, and in plain loops around Hugging Face Marian and torch.nn.Transformer.

    Data loading is included, and only real tokens count: a plain loop pads its batches to their longest sentence.

    Example: regard bench train prepared --rounds 5
    """
    from regard.bench.train import TrainBenchSettings, run

    settings = TrainBenchSettings(
        preset=preset,
        batch_tokens=batch_tokens,
        peer_sentences=peer_sentences,
        rounds=rounds,
        updates=updates,
        device=device,
    )
    run(settings, data, json_path=json)
