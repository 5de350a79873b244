"""The command line. Nothing here imports torch until a command needs it, so that `--help` answers at once."""

from typing import Annotated

import typer

import regard
from regard.bench.command import bench
from regard.cli import begin, experiments, learning, using

app = typer.Typer(
    name="regard",
    help="A Transformer translator that you can train, trust and look into.",
    epilog="Begin with `regard demo`; `regard COMMAND --help` has what a command takes, with examples.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain text: quick to print, easy to copy from
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
app.command(short_help="train a German-English translator in five minutes, and look at it")(begin.demo)
app.command(short_help="train a model on your own text; run again, it continues")(learning.train)
app.command(short_help="text to text, line by line: translate, or whatever a run has learnt")(using.translate)
app.command(short_help="go on with a text, by a language model")(using.generate)
app.command(short_help="a web page and an API over trained runs")(using.serve)
app.command(short_help="measure translations: BLEU, chrF, TER, with intervals and comparisons")(using.evaluate)
app.command(short_help="look into a model with one sentence: every view in one file")(using.look)
app.command(short_help="the notes' claims put to the test: experiments with pictures")(experiments.lab)
app.command(short_help="what a run is, and whether its files are intact")(using.info)
app.command(short_help="the probability of translations that are there already")(using.score)
app.command(short_help="clean text and learn its subwords, as `train` does first")(learning.prepare)
app.command(short_help="make the average of other checkpoints what a run translates with")(learning.average)
app.command(short_help="make a folder for CTranslate2 or Hugging Face's transformers")(using.export)
app.command("import", short_help="make a run of a Marian model, such as OPUS-MT's")(using.import_)
app.command(short_help="what this machine can do, and whether anything is wrong")(begin.doctor)
app.add_typer(bench, name="bench", short_help="measure this machine: ours beside its peers, in one run")


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
