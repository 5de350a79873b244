"""Defines the command line. Commands import torch only when they run, so that `--help` is fast."""

from typing import Annotated

import typer

import regard
from regard.bench.command import bench
from regard.cli import begin, experiments, learning, using

app = typer.Typer(
    name="regard",
    help="A Transformer translator that you can train, trust and look into.",
    epilog="Begin with `regard demo`. `regard COMMAND --help` explains a command's options, with examples.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain text
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
app.command(short_help="train a German-English translator in five minutes")(begin.demo)
app.command(short_help="train a model on your own text, or continue training")(learning.train)
app.command(short_help="translate text line by line")(using.translate)
app.command(short_help="continue a text with a language model")(using.generate)
app.command(short_help="serve a web page and an API for trained runs")(using.serve)
app.command(short_help="measure translations: BLEU, chrF, TER, with intervals and comparisons")(using.evaluate)
app.command(short_help="write a page that shows how a model translates one sentence")(using.look)
app.command(short_help="run experiments that test claims about Transformers")(experiments.lab)
app.command(short_help="describe a run, and check its files")(using.info)
app.command(short_help="score given translations by their probability")(using.score)
app.command(short_help="clean text and learn its subwords, the first step of `train`")(learning.prepare)
app.command(short_help="average checkpoints of a run")(learning.average)
app.command(short_help="export a run to CTranslate2 or Hugging Face's transformers")(using.export)
app.command("import", short_help="import a Marian model, such as OPUS-MT's, or a Llama")(using.import_)
app.command(short_help="describe this machine, and report problems")(begin.doctor)
app.add_typer(bench, name="bench", short_help="measure the speed of regard and its peers on this machine")


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"regard {regard.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="print the version and exit")
    ] = False,
) -> None:
    pass
