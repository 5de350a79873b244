"""The command line. Nothing here imports torch until a command needs it, so that `--help` answers at once."""

import sys
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


def main() -> None:
    """What a person did wrong gets one sentence and exit code 2; what we did wrong keeps its traceback."""
    try:
        app()
    except (ValueError, OSError) as error:
        print(f"regard: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
