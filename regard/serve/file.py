"""`regard look`: write the page as one file with the answers for one sentence, for any browser.

A file on a disk may not import modules. So each module of the page becomes a function in one script, which returns the names
that it exports; functions are in the order of their imports.
"""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import Literal
from urllib.parse import quote

from regard.config import ModelConfig
from regard.errors import UserError
from regard.inspection.look import Question, describe, look, one_head, passed
from regard.model.trace import AttentionTrace, Head, Intervention, Site, Trace
from regard.pages.template import DRAWER
from regard.run.checkpoint import require_place_for, write_atomically
from regard.serve.runs import ServedRun, load_runs
from regard.settings import Json
from regard.train.page import thinned
from regard.translate.translator import Translator

PAGE = files("regard.serve").joinpath("page")
IMPORT = re.compile(r'^import (\{[^}]*\}|\* as \w+) from "\./([\w.]+)";\n', re.MULTILINE)
EXPORT = re.compile(r"^export (?=(?:async )?(?:function|const|class) (\w+))", re.MULTILINE)
MOST_HEADS = 64  # of a model whose heads are switched off one by one; more would take long
MOST_NUMBERS = 1_500_000  # of heads' queries, keys and values; a file with more opens slowly


@dataclass(frozen=True, kw_only=True)
class LookSettings:
    """The flags of `regard look`."""

    run: Path
    text: str
    output: Path
    target: str = ""
    beam: int = 4
    alpha: float = 0.6
    lang: Literal["", "en", "zh"] = ""  # of the page; empty: the browser's language


def write_look(settings: LookSettings) -> str:
    """Write the file, and return its size in words."""
    path = settings.output
    require_place_for(path)
    [run] = load_runs([settings.run], device="auto")
    page = in_one_file(answers(run, settings)).encode("utf-8", errors="replace")
    write_atomically(path, page)
    return f"{path}: {len(page) / 1e6:.1f} MB, to be opened in any browser"


def answers(run: ServedRun, settings: LookSettings) -> Json:
    """Return the data that `source.js` reads from the file: the answers to all requests of the views when they open."""
    translator, name = run.translator, run.name
    first = Question(text=settings.text, target=settings.target, beam=settings.beam, alpha=settings.alpha)
    seen = {question: look(translator, question) for question in dict.fromkeys([first, replace(first, target="")])}
    config = translator.models[0].config
    asked = dict.fromkeys(one for question, found in seen.items() for one in asked_about(question, found, config))
    seen |= {one: look(translator, one) for one in asked if one not in seen and is_sayable(translator, one)}
    trace = passed(translator, first).trace
    every_head = list(heads(trace))
    same = replace(first, target="", target_pieces=tuple(seen[first]["target"]["pieces"]))
    opening = {"run": name, "text": settings.text, "beam": f"{settings.beam:g}", "alpha": f"{settings.alpha:g}"}
    opening |= {"target": settings.target, "lang": settings.lang}
    return {
        "opening": {key: value for key, value in opening.items() if value},
        "runs": [{"name": name, "src_lang": run.src_lang, "tgt_lang": run.tgt_lang}],
        "models": {name: describe(translator)},
        "training": {name: training(run)},
        "inspect": [
            *({"question": told(name, one), "answer": found} for one, found in seen.items()),
            *(without_heads(translator, name, same, every_head) if is_sayable(translator, same) else ()),
        ],
        "heads": seen_heads(translator, name, first, trace),
    }


def asked_about(question: Question, found: Json, config: ModelConfig) -> Iterator[Question]:
    """Yield the other questions of the views: without positions; word by word; with and without the mask, and with another
    ending. A part that the model does not have cannot be taken away."""
    own = tuple(found["target"]["pieces"])
    others = (one for one in found["search"]["hypotheses"] if one["text"] not in ("", found["target"]["text"]))
    reference = next((tuple(one["pieces"][:-1]) for one in others), own)
    same = replace(question, target="", target_pieces=own)
    if not config.is_recurrent and config.positions != "none":
        yield replace(same, intervention=Intervention(positions=False))
    yield replace(same, target_pieces=None, beam=1)
    yield replace(same, target_pieces=reference, beam=1)
    has_mask = not config.is_recurrent and config.ablation != "causal-mask"
    for causal in ((True, False) if has_mask else (True,)) if own else ():
        for pieces in (own, another_ending(own)):
            yield replace(same, target_pieces=pieces, beam=1, intervention=Intervention(causal=causal))


def is_sayable(translator: Translator, question: Question) -> bool:
    """Return whether the target pieces can be given to the model: an untrained model may output others, and the page does
    not ask about those."""
    try:
        translator.ids_of(question.target_pieces or (), "target")
    except UserError:
        return False
    return True


def told(run: str, question: Question) -> Json:
    """Return a question in the page's format."""
    changes = question.intervention
    asked: Json = {"run": run, "text": question.text, "target": question.target}
    asked |= {"target_pieces": None if question.target_pieces is None else list(question.target_pieces)}
    asked |= {"beam": question.beam, "alpha": question.alpha, "positions": changes.positions, "causal": changes.causal}
    return asked | {"heads_off": [list(head) for head in sorted(changes.heads_off)]}


def another_ending(pieces: tuple[str, ...]) -> tuple[str, ...]:
    """Replace the last subword by the first, or remove it if they are equal, as `masks.js` does."""
    rest = pieces[:-1]
    return (*rest, pieces[0]) if rest and pieces[0] != pieces[-1] else rest


def heads(trace: Trace) -> Iterator[Head]:
    """Yield all heads in the order of interest: the last layer of cross-attention first."""
    sites: dict[Site, tuple[AttentionTrace, ...]] = {
        "cross": trace.decoder.cross_attention,
        "encoder": trace.encoder.self_attention,
        "decoder": trace.decoder.self_attention,
    }
    for site, layers in sites.items():
        for layer in reversed(range(len(layers))):
            for head in range(layers[layer].weights.shape[1]):
                yield Head(site, layer, head)


def without_heads(translator: Translator, run: str, question: Question, every_head: Sequence[Head]) -> Iterator[Json]:
    """Yield the translation without each head, and the log-probability of the original one; the page shows no more."""
    for head in every_head if len(every_head) <= MOST_HEADS else ():
        one = replace(question, intervention=Intervention(heads_off=frozenset([head])))
        found = look(translator, one)
        short = {"log_prob": found["log_prob"], "search": {"hypotheses": found["search"]["hypotheses"][:1]}}
        yield {"question": told(run, one), "answer": short}


def seen_heads(translator: Translator, run: str, question: Question, trace: Trace) -> list[Json]:
    """Return the details of heads, as many as fit into `MOST_NUMBERS`."""
    found: list[Json] = []
    num_numbers = 0
    for head in heads(trace):
        one = one_head(translator.models[0], trace, question, head)
        num_numbers += sum(len(one[part]) * len(one[part][0]) for part in ("queries", "keys", "values", "scores", "weights"))
        if num_numbers > MOST_NUMBERS:
            break
        found.append({"question": told(run, question) | head._asdict(), "answer": one})
    return found


def training(run: ServedRun) -> Json:
    """Return the training curves with fewer points."""
    found = run.training()
    metrics = found["metrics"]
    lines = thinned([line for line in metrics if "valid_nll" not in line])
    lines += [line for line in metrics if "valid_nll" in line]
    return found | {"metrics": lines, "timing": [line for line in found["timing"] if "tokens_per_second" in line][-1:]}


def in_one_file(found: Json) -> str:
    """Return the page with its style, its script and these answers. Escape "<", which could end the script element."""
    data = json.dumps(found, ensure_ascii=False, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
    script = "const modules = {};\n" + "".join(modules("studio.js", set()))
    scripts = f'<script type="application/json" id="look">{data}</script>\n<script type="module">\n{script}</script>'
    parts = {
        '<link rel="icon" href="page/icon.svg">': f'<link rel="icon" href="data:image/svg+xml,{quote(read("icon.svg"))}">',
        '<link rel="stylesheet" href="page/studio.css">': f"<style>\n{read('studio.css')}</style>",
        '<script type="module" src="page/studio.js"></script>': scripts,
    }
    page = read("index.html")
    for old, new in parts.items():
        assert page.count(old) == 1, f"index.html has no {old}"
        page = page.replace(old, new)
    return page


def modules(name: str, done: set[str]) -> Iterator[str]:
    """Yield the modules that a module imports, and then itself, as functions."""
    done.add(name)
    source = read(name)
    for _, needed in IMPORT.findall(source):
        if needed not in done:
            yield from modules(needed, done)
    exported = EXPORT.findall(source)
    body = IMPORT.sub(lambda line: f"const {_names(line[1])} = modules[{json.dumps(line[2])}];\n", source)
    yield f'modules["{name}"] = (() => {{\n{EXPORT.sub("", body)}return {{ {", ".join(exported)} }};\n}})();\n'


def _names(imported: str) -> str:
    """Return the imported names as the pattern of an assignment: `{ draw: map }` for `{ draw as map }`."""
    return imported.removeprefix("* as ") if imported.startswith("*") else imported.replace(" as ", ": ")


def read(name: str) -> str:
    return (DRAWER if name == DRAWER.name else PAGE.joinpath(name)).read_text(encoding="utf-8")
