"""Defines the commands that use a trained model."""

import os
from pathlib import Path
from typing import Annotated, Literal

import typer
from typer import Argument, Option

from regard.errors import UserError


def translate(
    run: Annotated[Path, Argument(help="a run's folder")],
    file: Annotated[str, Argument(help="text, one sentence a line, also .gz or .xz; default: standard input")] = "-",
    output: Annotated[Path | None, Option("--output", "-o", help="file to write; default: standard output")] = None,
    beam: Annotated[int, Option(min=1, help="beam width; 1: greedy search")] = 4,
    alpha: Annotated[float, Option(help="exponent of the length penalty; 0: none")] = 0.6,
    nbest: Annotated[int, Option(min=1, help="translations for each line, as `number ||| text ||| ...`")] = 1,
    batch_tokens: Annotated[int, Option(min=0, help="source tokens at once; 0: what suits the device")] = 0,
    batch_size: Annotated[int, Option(min=0, help="lines at once; 0: by --batch-tokens")] = 0,
    sample: Annotated[int, Option(min=0, help="draw this many translations at random; --nbest shows them")] = 0,
    temperature: Annotated[float, Option(help="sampling temperature; below 1 prefers probable tokens")] = 1.0,
    top_k: Annotated[int, Option(min=0, help="draw from this many best tokens; 0: from all")] = 0,
    top_p: Annotated[float, Option(help="draw from the fewest tokens with this probability in total")] = 1.0,
    seed: Annotated[int, Option(min=0, help="random seed of sampling")] = 1,
    mbr: Annotated[bool, Option("--mbr", help="minimum Bayes risk: the candidate most like the others by chrF")] = False,
    ensemble: Annotated[list[Path] | None, Option(metavar="RUN", help="run to average with; may be repeated")] = None,
    prefixes: Annotated[Path | None, Option(help="file of prefixes of the translations, one a line")] = None,
    align: Annotated[Path | None, Option(help="file to write word alignments to, as `0-0 1-2` (Pharaoh)")] = None,
    pieces: Annotated[bool, Option("--pieces", help="write subwords instead of text")] = False,
    json: Annotated[bool, Option("--json", help="write all details as JSON, one object a line")] = False,
    device: Annotated[str, Option(help="cpu, cuda or mps; default: cuda if there is one")] = "auto",
) -> None:
    """Translate text line by line, or correct or shorten it, depending on the pairs that the run was trained on.

    Empty lines stay empty; a line that is too long for the model is translated in parts.

    \b
    Examples:
      echo "Guten Morgen!" | regard translate runs/mine
      regard translate runs/mine test.de -o test.out --beam 8
    """
    from regard.cli.translate import Files
    from regard.cli.translate import translate as translated
    from regard.search.sample import Sampling
    from regard.translate.search import BatchSize, Search

    if not sample and (temperature, top_k, top_p) != (1.0, 0, 1.0):
        raise UserError("--temperature, --top-k and --top-p control sampling; give --sample, too")
    if sum([json, pieces, nbest > 1]) > 1 and not (json and nbest > 1 and not pieces):
        raise UserError("--json, --pieces and --nbest are different formats; give one (--json shows the --nbest)")
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


def generate(
    run: Annotated[Path, Argument(help="a run's folder, of a language model")],
    prompt: Annotated[str | None, Argument(help="beginning of the text; default: none")] = None,
    file: Annotated[str | None, Option(help="file of prompts, one a line; - is standard input")] = None,
    num: Annotated[int, Option(min=1, help="number of texts for each prompt")] = 1,
    max_tokens: Annotated[int, Option(min=1, help="largest number of new subwords")] = 100,
    greedy: Annotated[bool, Option("--greedy", help="take the most probable subword at each step")] = False,
    temperature: Annotated[float, Option(help="sampling temperature; below 1 prefers probable tokens")] = 1.0,
    top_k: Annotated[int, Option(min=0, help="draw from this many best tokens; 0: from all")] = 0,
    top_p: Annotated[float, Option(help="draw from the fewest tokens with this probability in total")] = 1.0,
    seed: Annotated[int, Option(min=0, help="random seed of sampling")] = 1,
    json: Annotated[bool, Option("--json", help="write all details as JSON, one object a line")] = False,
    device: Annotated[str, Option(help="cpu, cuda or mps; default: cuda if there is one")] = "auto",
) -> None:
    """Continue a text with a language model, by sampling or greedily.

    \b
    Examples:
      regard generate runs/language "Once upon a time" --num 3 --temperature 0.8
      regard generate runs/language --file prompts.txt --greedy
    """
    from regard.cli.generate import generate as generated
    from regard.generate.generator import Generation
    from regard.search.sample import Sampling

    if greedy and (temperature, top_k, top_p) != (1.0, 0, 1.0):
        raise UserError("--temperature, --top-k and --top-p control sampling, which --greedy turns off; leave one out")
    how = Generation(num=num, max_tokens=max_tokens, greedy=greedy, sampling=Sampling(temperature, top_k, top_p), seed=seed)
    for line in generated(run, prompt, file, how, as_json=json, device=device):
        print(line)


def score(
    run: Annotated[Path, Argument(help="a run's folder")],
    src: Annotated[str, Option(help="source text")],
    tgt: Annotated[str, Option(help="its translation, line by line")],
    pieces: Annotated[bool, Option("--pieces", help="--tgt is in subwords, as `translate --pieces` writes")] = False,
    tokens: Annotated[bool, Option("--tokens", help="show each subword's log-probability as well")] = False,
    alpha: Annotated[float, Option(help="exponent of a length penalty, as in `translate`; 0: none")] = 0.0,
    align: Annotated[Path | None, Option(help="file to write word alignments to, as `0-0 1-2` (Pharaoh)")] = None,
    output: Annotated[Path | None, Option("--output", "-o", help="file to write; default: standard output")] = None,
    ensemble: Annotated[list[Path] | None, Option(metavar="RUN", help="run to average with; may be repeated")] = None,
    batch_tokens: Annotated[int, Option(min=0, help="tokens at once; 0: what suits the device")] = 0,
    device: Annotated[str, Option(help="cpu, cuda or mps; default: cuda if there is one")] = "auto",
) -> None:
    """Print the log-probability (natural logarithm) of each translation, the end of the sentence included.

    \b
    Example:
      regard score runs/mine --src test.de --tgt test.en
    """
    from regard.cli.translate import score as scored
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


def evaluate(
    system: Annotated[str, Argument(help="a run's folder, or a file of finished translations")],
    ref: Annotated[list[str], Option(metavar="FILE", help="reference translations; may be repeated")],
    src: Annotated[str | None, Option(help="source text, required to translate with a run")] = None,
    versus: Annotated[str | None, Option(help="second run or file, to compare with the first")] = None,
    output: Annotated[str | None, Option("--output", "-o", help="folder to write; default: the run's, or this one")] = None,
    tgt_lang: Annotated[str | None, Option(help="target language; default: the run's, or the suffix of --ref")] = None,
    lowercase: Annotated[bool, Option("--lowercase", help="BLEU that ignores case, as sacrebleu -lc")] = False,
    tokenize: Annotated[str, Option(metavar="NAME", help="BLEU's tokenizer (sacrebleu -tok); default: by language")] = "",
    beam: Annotated[int, Option(min=1, help="beam width; 1: greedy search")] = 4,
    alpha: Annotated[float, Option(min=0.0, help="exponent of the length penalty; 0: none")] = 0.6,
    batch_tokens: Annotated[int, Option(min=0, help="source tokens at once; 0: what suits the device")] = 0,
    device: Annotated[str, Option(help="cpu, cuda or mps; default: cuda if there is one")] = "auto",
    num_resamples: Annotated[int, Option(min=40, max=1_000_000, help="bootstrap resamples for the intervals")] = 1000,
) -> None:
    """Measure translations: BLEU, chrF and TER as in sacreBLEU, by length, and the best and worst sentences.

    Writes evaluation.json and evaluation.html. Files may be plain, .gz, .xz or pipes, one sentence a line.

    \b
    Example:
      regard evaluate runs/mine --src test.de --ref test.en --versus runs/other
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
            tokenize=tokenize,
            lowercase=lowercase,
            num_resamples=num_resamples,
            beam=beam,
            alpha=alpha,
            batch_tokens=batch_tokens,
            device=device,
        )
    )


def look(
    run: Annotated[Path, Argument(help="a run's folder")],
    sentence: Annotated[str, Argument(help="sentence in the source language")],
    output: Annotated[Path, Option("--output", "-o", help="the file to write")] = Path("look.html"),
    beam: Annotated[int, Option(min=1, max=16, help="beam width")] = 4,
    alpha: Annotated[float, Option(help="exponent of the length penalty; 0: none")] = 0.6,
    target: Annotated[str, Option(help="translation to look at instead of the model's own")] = "",
    lang: Annotated[Literal["en", "zh"] | None, Option(help="language of the page; default: the browser's")] = None,
) -> None:
    """Write a page that shows a model's computations for one sentence, with all views of the studio, without a server.

    \b
    Example:
      regard look runs/mine "Guten Morgen!" -o look.html
    """
    from regard.serve.file import LookSettings, write_look

    settings = LookSettings(run=run, text=sentence, output=output, target=target, beam=beam, alpha=alpha, lang=lang or "")
    print(write_look(settings))


def info(
    run: Annotated[Path, Argument(help="a run's folder")],
    json: Annotated[bool, Option("--json", help="as JSON")] = False,
) -> None:
    """Describe a run: sizes, languages, training, data, quality, and whether its files are intact (exit code 1 if not).

    \b
    Example:
      regard info runs/mine
    """
    from regard.info import as_json, print_info, read_info

    found = read_info(run)
    if json:
        print(as_json(found))
    else:
        print_info(found)
    raise typer.Exit(1 if found.damaged else 0)


def export(
    run: Annotated[Path, Argument(help="a run's folder")],
    to: Annotated[Literal["ctranslate2", "huggingface"], Option(help="the program to export for")],
    output: Annotated[Path, Option("--output", "-o", help="folder to create")],
    int8: Annotated[bool, Option("--int8", help="8-bit weights for CTranslate2")] = False,
    src: Annotated[str | None, Option(help="sentences to verify with; default: the run's own")] = None,
    ref: Annotated[str | None, Option(help="their references, for the BLEU of --int8")] = None,
) -> None:
    """Write a folder that CTranslate2 or Hugging Face's transformers loads, and check that it translates as the run does.

    Both translate 1,000 sentences greedily. If any translation differs by more than a tie, the folder is removed.

    \b
    Example:
      regard export runs/mine --to ctranslate2 --int8 -o exported
    """
    from regard.exchange.command import ExportSettings
    from regard.exchange.command import export as exported

    print("\n".join(exported(ExportSettings(run=run, to=to, output=output, int8=int8, src=src, ref=ref))))


def import_(
    folder: Annotated[Path, Argument(help="Hugging Face folder of a Marian model (OPUS-MT) or a Llama")],
    output: Annotated[Path, Option("--output", "-o", help="the run's folder, to create")],
) -> None:
    """Convert a Marian model into a run, which translates, or continues training with --from.

    The folder holds config.json, source.spm, target.spm, vocab.json, and model.safetensors or pytorch_model.bin. A folder
    with a Llama (config.json, tokenizer.model, model.safetensors) becomes a language model.

    \b
    Example:
      regard import opus-mt-de-en -o runs/opus
    """
    from regard.exchange.llama import import_llama, is_llama
    from regard.exchange.marian import import_marian

    print("\n".join((import_llama if is_llama(folder) else import_marian)(folder, output)))


def serve(
    runs: Annotated[list[Path], Argument(metavar="RUN...", help="folders of runs, or of checkpoints")],
    host: Annotated[str, Option(help="address to listen on; 0.0.0.0: all of this machine")] = "127.0.0.1",
    port: Annotated[int, Option(min=0, max=65535, help="port; 0: any free one")] = 8000,
    api_key: Annotated[
        list[str] | None,
        Option(metavar="KEY", help="required key; may be repeated; else $REGARD_API_KEY"),
    ] = None,
    cors: Annotated[list[str] | None, Option(metavar="ORIGIN", help="allowed CORS origin; may be repeated")] = None,
    name: Annotated[list[str] | None, Option(metavar="HOST", help="another host name; may be repeated")] = None,
    device: Annotated[str, Option(help="cpu, cuda or mps; default: cuda if there is one")] = "auto",
    max_body: Annotated[int, Option(min=1, help="largest request, in bytes")] = 2**20,
    max_characters: Annotated[int, Option(min=1, help="largest text, in characters")] = 5000,
    max_texts: Annotated[int, Option(min=1, help="most texts in a request")] = 64,
    max_beam: Annotated[int, Option(min=1, help="largest beam width of a request")] = 16,
    max_alternatives: Annotated[int, Option(min=0, help="most alternatives in a request")] = 10,
    timeout: Annotated[float, Option(min=0.1, help="seconds after which a request fails")] = 30.0,
    wait_ms: Annotated[float, Option(min=0, max=1000, help="milliseconds to wait for requests to batch together")] = 5.0,
    batch_tokens: Annotated[int, Option(min=0, help="source tokens at once; 0: what suits the device")] = 0,
    queue_tokens: Annotated[int, Option(min=0, help="waiting tokens above which requests get 429; 0: 16 batches")] = 0,
    queue_requests: Annotated[int, Option(min=1, help="waiting requests above which others get 429")] = 512,
) -> None:
    """Serve a page that translates and shows the computations, and an API like LibreTranslate's and DeepL's (see /docs).

    SIGTERM and Ctrl-C finish running requests. Needs fastapi and uvicorn: pip install fastapi uvicorn.

    \b
    Examples:
      regard serve runs/mine
      regard serve runs/de-en runs/ja-en --host 0.0.0.0 --api-key SECRET
    """
    if not api_key and "REGARD_API_KEY" in os.environ:
        api_key = [os.environ["REGARD_API_KEY"]]  # an empty one is refused later

    from regard.serve.command import serve as served
    from regard.serve.settings import Limits, Queue, ServeSettings

    served(
        ServeSettings(
            runs=tuple(runs),
            host=host,
            port=port,
            api_keys=tuple(api_key or ()),
            cors=tuple(cors or ()),
            names=tuple(name or ()),
            device=device,
            limits=Limits(
                body_bytes=max_body,
                characters=max_characters,
                texts=max_texts,
                beam=max_beam,
                alternatives=max_alternatives,
                seconds=timeout,
            ),
            queue=Queue(
                wait_seconds=wait_ms / 1000,
                batch_tokens=batch_tokens,
                queue_tokens=queue_tokens,
                queue_requests=queue_requests,
                patience_seconds=timeout / 2,
            ),
        )
    )
