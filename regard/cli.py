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
