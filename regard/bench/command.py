"""Defines the commands of `regard bench`. As in `cli`, a command imports what it needs when it runs."""

from pathlib import Path
from typing import Annotated, Literal

import typer
from typer import Argument, Option

bench = typer.Typer(
    help="Measure the speed of regard and its peers on this machine.", no_args_is_help=True, rich_markup_mode=None
)


@bench.command("model", short_help="training steps, compared with torch.nn.Transformer and Hugging Face Marian")
def bench_model(
    preset: Annotated[str, Option(help="tiny, small, base or big")] = "small",
    batch: Annotated[int, Option(min=1, max=1_000_000, help="sentences in a batch")] = 128,
    length: Annotated[int, Option(min=1, max=1_000_000, help="tokens in each source and each target")] = 16,
    vocab: Annotated[int, Option(min=8, help="entries in the shared vocabulary")] = 8000,
    rounds: Annotated[int, Option(min=1, help="interleaved rounds; the median counts")] = 5,
    steps: Annotated[int, Option(min=1, help="training steps of each model in a round")] = 3,
    device: Annotated[str, Option(help="cpu, cuda or mps")] = "cpu",
    dtype: Annotated[Literal["float32", "bfloat16"], Option(help="type of weights and activations")] = "float32",
    compile: Annotated[bool, Option("--compile", help="run every model under torch.compile")] = False,
    json: Annotated[Path | None, Option(help="also write the numbers to this JSON file")] = None,
) -> None:
    """Train regard's Transformer, torch.nn.Transformer and Hugging Face Marian on one batch, and compare their speed.

    A step is forward, label-smoothed loss, backward and Adam. All models have the same sizes, dropout, fused Adam and one
    shared embedding matrix.

    \b
    Example:
      regard bench model --preset small --rounds 5
    """
    from regard.bench.model import BenchSettings, run

    run(BenchSettings(preset, batch, length, vocab, rounds, steps, device, dtype, compile), json_path=json)


@bench.command("train", short_help="whole training loops over a corpus, data loading included")
def bench_train(
    data: Annotated[Path, Argument(help="folder that `regard prepare` made")],
    preset: Annotated[str | None, Option(help="tiny, small, base or big; default: small, on a GPU base")] = None,
    batch_tokens: Annotated[int | None, Option(min=1, help="tokens in an update; default: 4,096, on a GPU 25,600")] = None,
    peer_sentences: Annotated[int, Option(min=0, help="sentences in a peer's batch; 0: as many as in ours")] = 0,
    peer_lengths: Annotated[
        Literal["mixed", "similar"] | None,
        Option(help="lengths in a peer's batch; default: mixed, on a GPU similar"),
    ] = None,
    compile: Annotated[bool, Option("--compile", help="run the peers under torch.compile")] = False,
    rounds: Annotated[int, Option(min=1, help="interleaved rounds; the median counts")] = 5,
    updates: Annotated[int, Option(min=1, help="updates of each training loop in a round")] = 5,
    device: Annotated[str, Option(help="cpu, cuda or mps")] = "cpu",
    json: Annotated[Path | None, Option(help="also write the numbers to this JSON file")] = None,
) -> None:
    """Train on a corpus as `regard train` does, and in plain loops around Hugging Face Marian and torch.nn.Transformer.

    Data loading is included, and padding does not count as tokens. Plain loops pad batches to their longest sentence; on a
    GPU their batches have sentences of similar lengths.

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


@bench.command("search", short_help="translations in batches of several sizes")
def bench_search(
    run: Annotated[Path, Argument(help="a run's folder")],
    file: Annotated[str, Argument(help="text to translate, one sentence a line")],
    batch: Annotated[list[int] | None, Option(metavar="NUMBER", min=1, help="sentences at once; default: 1, 7, 64")] = None,
    beam: Annotated[int, Option(min=1, help="beam width")] = 4,
    wide: Annotated[int, Option(min=1, help="wider beam, to compare scores with")] = 8,
    lines: Annotated[int, Option(min=1, help="number of first lines to use")] = 2000,
    device: Annotated[str, Option(help="cpu, cuda or mps")] = "cpu",
) -> None:
    """Translate the same sentences in batches of several sizes, and count outputs that differ, except for ties.

    In a tie, at the first step that keeps different hypotheses, the scores of these hypotheses differ by at most 1e-4.

    \b
    Example:
      regard bench search runs/mine test.de
    """
    from regard.bench.search import SearchBenchSettings
    from regard.bench.search import run as search

    search(SearchBenchSettings(tuple(batch or (1, 7, 64)), (beam, wide), lines, device), run, file)


@bench.command("decode", short_help="translation, compared with Hugging Face and CTranslate2")
def bench_decode(
    run: Annotated[Path, Argument(help="a run's folder")],
    file: Annotated[str, Argument(help="text to translate, one sentence a line")],
    batch: Annotated[
        list[int] | None, Option(metavar="NUMBER", min=1, help="sentences at once; default: 1 and 32, on cuda 128")
    ] = None,
    beam: Annotated[list[int] | None, Option(metavar="NUMBER", min=1, help="beam width; default: 4, on cuda 4, 1")] = None,
    sentences: Annotated[int | None, Option(min=1, help="sentences in a round; default: 128, on cuda 512")] = None,
    rounds: Annotated[int, Option(min=1, help="interleaved rounds; the median counts")] = 3,
    max_length: Annotated[int, Option(min=1, help="largest output, in tokens")] = 128,
    device: Annotated[str, Option(help="cpu, cuda or mps")] = "cpu",
    json: Annotated[Path | None, Option(help="also write the numbers to this JSON file")] = None,
) -> None:
    """Translate the same sentences with the same weights: regard, Hugging Face `generate` and CTranslate2.

    Outputs are compared, too: equal, ties (different with the same score), better and worse by the model's log-probability.

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
