"""The commands that use a trained model. Nothing is imported before a command needs it."""

import os
from pathlib import Path
from typing import Annotated, Literal

import typer


def translate(
    run: Annotated[Path, typer.Argument(help="a run's folder")],
    file: Annotated[str, typer.Argument(help="text, one sentence a line, also .gz or .xz; default: standard input")] = "-",
    output: Annotated[Path | None, typer.Option("--output", "-o", help="where to write; default: standard output")] = None,
    beam: Annotated[int, typer.Option(min=1, help="hypotheses to go on with at each step; 1: greedy search")] = 4,
    alpha: Annotated[float, typer.Option(help="of the length penalty; 0: none")] = 0.6,
    nbest: Annotated[int, typer.Option(min=1, help="translations for each line, as `number ||| text ||| ...`")] = 1,
    batch_tokens: Annotated[int, typer.Option(min=0, help="source tokens at once; 0: what suits the device")] = 0,
    batch_size: Annotated[int, typer.Option(min=0, help="or so many lines at once")] = 0,
    sample: Annotated[int, typer.Option(min=0, help="draw so many at random; --nbest shows more than the first")] = 0,
    temperature: Annotated[float, typer.Option(help="below 1 sharpens what is drawn from, above 1 flattens it")] = 1.0,
    top_k: Annotated[int, typer.Option(min=0, help="draw from so many best tokens only; 0: from all")] = 0,
    top_p: Annotated[float, typer.Option(help="draw from the fewest tokens with this much of the probability")] = 1.0,
    seed: Annotated[int, typer.Option(min=0, help="of what is drawn")] = 1,
    mbr: Annotated[bool, typer.Option("--mbr", help="of all candidates, the one most like the others (by chrF)")] = False,
    ensemble: Annotated[
        list[Path] | None, typer.Option(metavar="RUN", help="another run, to average with; may be repeated")
    ] = None,
    prefixes: Annotated[Path | None, typer.Option(help="how each translation is to begin, one a line")] = None,
    align: Annotated[Path | None, typer.Option(help="write word alignments there, as `0-0 1-2` (Pharaoh)")] = None,
    pieces: Annotated[bool, typer.Option("--pieces", help="write subwords, not text")] = False,
    json: Annotated[bool, typer.Option("--json", help="write all there is to a translation, one object a line")] = False,
    device: Annotated[str, typer.Option(help="cpu, cuda or mps; default: cuda where there is one")] = "auto",
) -> None:
    """Text to text, line by line: translate, correct, shorten, whatever the run has learnt from its pairs.

    An empty line stays one; a line too long for the model is translated in parts.

    \b
    Examples:
      echo "Guten Morgen!" | regard translate runs/mine
      regard translate runs/mine test.de -o test.out --beam 8
    """
    from regard.search.sample import Sampling
    from regard.translate.command import Files
    from regard.translate.command import translate as translated
    from regard.translate.search import BatchSize, Search

    if not sample and (temperature, top_k, top_p) != (1.0, 0, 1.0):
        raise ValueError("--temperature, --top-k and --top-p say how to draw; give --sample, too")
    if sum([json, pieces, nbest > 1]) > 1 and not (json and nbest > 1 and not pieces):
        raise ValueError("--json, --pieces and --nbest each have a form of their own; give one (--json shows the --nbest)")
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
    run: Annotated[Path, typer.Argument(help="a run's folder, of a language model")],
    prompt: Annotated[str | None, typer.Argument(help="how the text begins; default: nothing yet")] = None,
    file: Annotated[str | None, typer.Option(help="prompts instead, one a line; - is standard input")] = None,
    num: Annotated[int, typer.Option(min=1, help="texts for each prompt")] = 1,
    max_tokens: Annotated[int, typer.Option(min=1, help="subwords beyond the prompt")] = 100,
    greedy: Annotated[bool, typer.Option("--greedy", help="the most probable subword each time; nothing is drawn")] = False,
    temperature: Annotated[float, typer.Option(help="below 1 sharpens what is drawn from, above 1 flattens it")] = 1.0,
    top_k: Annotated[int, typer.Option(min=0, help="draw from so many best tokens only; 0: from all")] = 0,
    top_p: Annotated[float, typer.Option(help="draw from the fewest tokens with this much of the probability")] = 1.0,
    seed: Annotated[int, typer.Option(min=0, help="of what is drawn")] = 1,
    json: Annotated[bool, typer.Option("--json", help="write all there is to a text, one object a line")] = False,
    device: Annotated[str, typer.Option(help="cpu, cuda or mps; default: cuda where there is one")] = "auto",
) -> None:
    """Go on with a text: a language model says what follows its beginning, drawn at random or the most probable.

    \b
    Examples:
      regard generate runs/language "Once upon a time" --num 3 --temperature 0.8
      regard generate runs/language --file prompts.txt --greedy
    """
    from regard.generate.command import generate as generated
    from regard.generate.generator import Generation
    from regard.search.sample import Sampling

    if greedy and (temperature, top_k, top_p) != (1.0, 0, 1.0):
        raise ValueError("--temperature, --top-k and --top-p say how to draw, and --greedy draws nothing; leave one out")
    how = Generation(num=num, max_tokens=max_tokens, greedy=greedy, sampling=Sampling(temperature, top_k, top_p), seed=seed)
    for line in generated(run, prompt, file, how, as_json=json, device=device):
        print(line)


def score(
    run: Annotated[Path, typer.Argument(help="a run's folder")],
    src: Annotated[str, typer.Option(help="source text")],
    tgt: Annotated[str, typer.Option(help="its translation, line by line")],
    pieces: Annotated[
        bool, typer.Option("--pieces", help="the translation is in subwords, as `translate --pieces` has it")
    ] = False,
    tokens: Annotated[bool, typer.Option("--tokens", help="show each subword's log-probability as well")] = False,
    alpha: Annotated[float, typer.Option(help="divide by a length penalty, as `translate` does; 0: none")] = 0.0,
    align: Annotated[Path | None, typer.Option(help="write word alignments there, as `0-0 1-2` (Pharaoh)")] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="where to write; default: standard output")] = None,
    ensemble: Annotated[
        list[Path] | None, typer.Option(metavar="RUN", help="another run, to average with; may be repeated")
    ] = None,
    batch_tokens: Annotated[int, typer.Option(min=0, help="tokens at once; 0: what suits the device")] = 0,
    device: Annotated[str, typer.Option(help="cpu, cuda or mps; default: cuda where there is one")] = "auto",
) -> None:
    """The log-probability (natural logarithm) that a run gives to each pair of lines, the end of the sentence included.

    \b
    Example:
      regard score runs/mine --src test.de --tgt test.en
    """
    from regard.translate.command import score as scored
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
    system: Annotated[str, typer.Argument(help="a run's folder, or a file of finished translations")],
    ref: Annotated[
        list[str], typer.Option(metavar="FILE", help="what translations should be; may be repeated for several references")
    ],
    src: Annotated[str | None, typer.Option(help="what to translate; a file of translations can do without")] = None,
    versus: Annotated[str | None, typer.Option(help="a second run or file, to compare with the first")] = None,
    output: Annotated[
        str | None, typer.Option("--output", "-o", help="where to write; default: the run's folder, else this one")
    ] = None,
    tgt_lang: Annotated[str | None, typer.Option(help="its code; default: the run's, else the suffix of --ref")] = None,
    lowercase: Annotated[bool, typer.Option("--lowercase", help="BLEU without regard to case, as sacrebleu -lc")] = False,
    tokenize: Annotated[
        str, typer.Option(metavar="NAME", help="how BLEU finds words, as sacrebleu -tok; default: by the language")
    ] = "",
    beam: Annotated[int, typer.Option(min=1, help="translations kept at each step of the search")] = 4,
    alpha: Annotated[float, typer.Option(min=0.0, help="of the length penalty; 0: none")] = 0.6,
    batch_tokens: Annotated[int, typer.Option(min=0, help="translated at once; 0: as many as suit the device")] = 0,
    device: Annotated[str, typer.Option(help="cpu, cuda or mps; auto: cuda where there is one")] = "auto",
    num_resamples: Annotated[
        int, typer.Option(min=40, help="test sets drawn for intervals and p; fewer than 40 have no 2.5 % tail")
    ] = 1000,
) -> None:
    """Measure translations: BLEU, chrF and TER as sacreBLEU has them, by length, and the best and worst sentences.

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
    run: Annotated[Path, typer.Argument(help="a run's folder")],
    sentence: Annotated[str, typer.Argument(help="what to look at, in the source language")],
    output: Annotated[Path, typer.Option("--output", "-o", help="the file to write")] = Path("look.html"),
    beam: Annotated[int, typer.Option(min=1, max=16, help="hypotheses to go on with at each step")] = 4,
    alpha: Annotated[float, typer.Option(help="of the length penalty; 0: none")] = 0.6,
    target: Annotated[str, typer.Option(help="a translation to look at instead of the model's own")] = "",
    lang: Annotated[Literal["en", "zh"] | None, typer.Option(help="of the page; default: the browser's")] = None,
) -> None:
    """Look into a model: one sentence's way through it, all views of the studio in one file that needs no server.

    \b
    Example:
      regard look runs/mine "Guten Morgen!" -o look.html
    """
    from regard.serve.file import LookSettings, write_look

    settings = LookSettings(run=run, text=sentence, output=output, target=target, beam=beam, alpha=alpha, lang=lang or "")
    print(write_look(settings))


def info(
    run: Annotated[Path, typer.Argument(help="a run's folder")],
    json: Annotated[bool, typer.Option("--json", help="as JSON")] = False,
) -> None:
    """What a run is: sizes, languages, training, data, quality, and whether its files are intact (exit code 1 if not).

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
    run: Annotated[Path, typer.Argument(help="a run's folder")],
    to: Annotated[Literal["ctranslate2", "huggingface"], typer.Option(help="the program to export for")],
    output: Annotated[Path, typer.Option("--output", "-o", help="the folder to make")],
    int8: Annotated[bool, typer.Option("--int8", help="weights of 8 bits, for CTranslate2: smaller and coarser")] = False,
    src: Annotated[str | None, typer.Option(help="sentences to compare with; default: the run's own")] = None,
    ref: Annotated[str | None, typer.Option(help="their translations, for the BLEU of --int8")] = None,
) -> None:
    """Make a folder that CTranslate2 or Hugging Face's transformers loads, and see that it translates as the run does.

    Both translate 1,000 sentences greedily. If any comes out differently by more than a tie, nothing is left behind.

    \b
    Example:
      regard export runs/mine --to ctranslate2 --int8 -o exported
    """
    from regard.exchange.command import ExportSettings
    from regard.exchange.command import export as exported

    print("\n".join(exported(ExportSettings(run=run, to=to, output=output, int8=int8, src=src, ref=ref))))


def import_(
    folder: Annotated[Path, typer.Argument(help="a Hugging Face folder with a Marian model, such as OPUS-MT's, or a Llama")],
    output: Annotated[Path, typer.Option("--output", "-o", help="the run's folder to make")],
) -> None:
    """Make a run of a Marian model: to translate with, to evaluate, to look into, or to train on with --from.

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
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="folders of runs, or of their checkpoints")],
    host: Annotated[str, typer.Option(help="the address to listen at; 0.0.0.0: all that this machine has")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: any that is free")] = 8000,
    api_key: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY", help="answer only those who send it; may be repeated; default: $REGARD_API_KEY"),
    ] = None,
    cors: Annotated[
        list[str] | None, typer.Option(metavar="ORIGIN", help="whose pages may ask from a browser; may be repeated")
    ] = None,
    name: Annotated[
        list[str] | None, typer.Option(metavar="HOST", help="another name as which it is asked, by a proxy; may be repeated")
    ] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda or mps; default: cuda where there is one")] = "auto",
    max_body: Annotated[int, typer.Option(min=1, help="bytes of a request")] = 2**20,
    max_characters: Annotated[int, typer.Option(min=1, help="of a text")] = 5000,
    max_texts: Annotated[int, typer.Option(min=1, help="in a request")] = 64,
    max_beam: Annotated[int, typer.Option(min=1, help="that a request may ask for")] = 16,
    max_alternatives: Annotated[int, typer.Option(min=0, help="that a request may ask for")] = 10,
    timeout: Annotated[float, typer.Option(min=0.1, help="seconds for a request, after which it is given up")] = 30.0,
    wait_ms: Annotated[float, typer.Option(min=0, max=1000, help="for others, to be translated together")] = 5.0,
    batch_tokens: Annotated[int, typer.Option(min=0, help="source tokens at once; 0: what suits the device")] = 0,
    queue_tokens: Annotated[int, typer.Option(min=0, help="that may wait, before others get 429; 0: 16 batches")] = 0,
    queue_requests: Annotated[int, typer.Option(min=1, help="that may wait, before others get 429")] = 512,
) -> None:
    """Serve a page that translates and looks inside, and an API in the shapes of LibreTranslate and DeepL (see /docs).

    SIGTERM and Ctrl-C finish what is running. Needs fastapi and uvicorn: pip install 'regard[serve]'.

    \b
    Examples:
      regard serve runs/mine
      regard serve runs/de-en runs/ja-en --host 0.0.0.0 --api-key SECRET
    """
    if not api_key and "REGARD_API_KEY" in os.environ:
        api_key = [os.environ["REGARD_API_KEY"]]  # where it is empty, that is a mistake: no reason to answer everyone

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
