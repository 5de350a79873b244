"""The commands of `regard bench`. As in `cli`, nothing is imported before a command needs it."""

from pathlib import Path
from typing import Annotated, Literal

import typer

bench = typer.Typer(
    help="Measure this machine: ours beside its peers, in one run.", no_args_is_help=True, rich_markup_mode=None
)


@bench.command("model", short_help="training steps, beside torch.nn.Transformer and Hugging Face Marian")
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

    \b
    Example:
      regard bench model --preset small --rounds 5
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


@bench.command("train", short_help="whole training loops over a corpus, data loading included")
def bench_train(
    data: Annotated[Path, typer.Argument(help="a folder that `regard prepare` made")],
    preset: Annotated[str | None, typer.Option(help="tiny, small, base or big; default: small, on a GPU base")] = None,
    batch_tokens: Annotated[
        int | None, typer.Option(min=1, help="of an update, on its larger side; default: 4,096, on a GPU 25,600")
    ] = None,
    peer_sentences: Annotated[int, typer.Option(min=0, help="in the others' batches; 0: as many as ours has")] = 0,
    peer_lengths: Annotated[
        Literal["mixed", "similar"] | None,
        typer.Option(help="of the sentences in the others' batches; default: mixed, as in plain loops, on a GPU similar"),
    ] = None,
    compile: Annotated[bool, typer.Option("--compile", help="run the others under torch.compile")] = False,
    rounds: Annotated[int, typer.Option(min=1, help="interleaved rounds; the median counts")] = 5,
    updates: Annotated[int, typer.Option(min=1, help="of each training loop in a round")] = 5,
    device: Annotated[str, typer.Option(help="cpu, cuda or mps")] = "cpu",
    json: Annotated[Path | None, typer.Option(help="also write the numbers to this file")] = None,
) -> None:
    """Train on a corpus as `regard train` does, and in plain loops around Hugging Face Marian and torch.nn.Transformer.

    Data loading is included, and only real tokens count: a plain loop pads its batches to their longest sentence. On a GPU
    the others get batches of similar lengths, as good as padded ones can be.

    \b
    Example:
      regard bench train prepared --rounds 5
    """
    from regard.bench.train import TrainBenchSettings, run

    on_gpu = device.startswith("cuda")
    settings = TrainBenchSettings(
        preset=preset or ("base" if on_gpu else "small"),
        batch_tokens=batch_tokens or (25_600 if on_gpu else 4096),
        peer_sentences=peer_sentences,
        similar=(peer_lengths or ("similar" if on_gpu else "mixed")) == "similar",
        compile=compile,
        rounds=rounds,
        updates=updates,
        device=device,
    )
    run(settings, data, json_path=json)


@bench.command("search", short_help="whether translations depend on their batch")
def bench_search(
    run: Annotated[Path, typer.Argument(help="a run's folder")],
    file: Annotated[str, typer.Argument(help="text to translate, one sentence a line")],
    batch: Annotated[
        list[int] | None, typer.Option(metavar="NUMBER", min=1, help="sentences at once; default: 1, 7 and 64")
    ] = None,
    beam: Annotated[int, typer.Option(min=1, help="the beam")] = 4,
    wide: Annotated[int, typer.Option(min=1, help="a wider one, to compare its scores with")] = 8,
    lines: Annotated[int, typer.Option(min=1, help="of the file, the first ones")] = 2000,
    device: Annotated[str, typer.Option(help="cpu, cuda or mps")] = "cpu",
) -> None:
    """Search the same sentences in batches of several sizes: the outputs must be equal, but for ties.

    A tie is where, at the first step at which two searches keep different hypotheses, those that compete lie within 1e-4.

    \b
    Example:
      regard bench search runs/mine test.de
    """
    from regard.bench.search import SearchBenchSettings
    from regard.bench.search import run as search

    search(SearchBenchSettings(tuple(batch or (1, 7, 64)), (beam, wide), lines, device), run, file)


@bench.command("decode", short_help="translating, beside Hugging Face and CTranslate2")
def bench_decode(
    run: Annotated[Path, typer.Argument(help="a run's folder")],
    file: Annotated[str, typer.Argument(help="text to translate, one sentence a line")],
    batch: Annotated[
        list[int] | None, typer.Option(metavar="NUMBER", min=1, help="sentences at once; default: 1 and 32, on cuda 128")
    ] = None,
    beam: Annotated[
        list[int] | None, typer.Option(metavar="NUMBER", min=1, help="the beam of all; default: 4, on cuda 4 and 1 (greedy)")
    ] = None,
    sentences: Annotated[
        int | None, typer.Option(min=1, help="of the file, in each round; one at a time, only 16; default: 128, on cuda 512")
    ] = None,
    rounds: Annotated[int, typer.Option(min=1, help="interleaved rounds; the median counts")] = 3,
    max_length: Annotated[int, typer.Option(min=1, help="of an output, in tokens")] = 128,
    device: Annotated[str, typer.Option(help="cpu, cuda or mps")] = "cpu",
    json: Annotated[Path | None, typer.Option(help="also write the numbers to this file")] = None,
) -> None:
    """Translate the same sentences with the same weights: regard, Hugging Face `generate` and CTranslate2.

    Outputs are compared, too: equal; ties (others of the same score); better and worse by the model's own log-probability.

    \b
    Example:
      regard bench decode runs/mine test.de
    """
    from regard.bench.decode import DecodeBenchSettings
    from regard.bench.decode import run as decode

    is_cuda = device.startswith("cuda")
    settings = DecodeBenchSettings(
        batches=tuple(batch or (1, 128 if is_cuda else 32)),
        beams=tuple(beam or ((4, 1) if is_cuda else (4,))),
        sentences=sentences or (512 if is_cuda else 128),
        rounds=rounds,
        max_length=max_length,
        device=device,
    )
    decode(settings, run, file, json_path=json)
