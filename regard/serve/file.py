"""`regard look`: the page in one file, with the answers to one sentence in it. A browser is all it needs.

The page's modules import each other by name, which a file on a disk may not do; so each becomes a function in one script, in
the order in which they need each other, and returns what it exported.
"""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import Literal
from urllib.parse import quote

from regard.checkpoint import require_place_for, write_atomically
from regard.config import ModelConfig
from regard.inspection.look import Json, Question, describe, look, one_head, passed
from regard.model.trace import AttentionTrace, Head, Intervention, Site, Trace
from regard.serve.runs import ServedRun, load_runs
from regard.train.page import thinned
from regard.translate.translator import Translator

PAGE = files("regard.serve").joinpath("page")
IMPORT = re.compile(r'^import (\{[^}]*\}|\* as \w+) from "\./([\w.]+)";\n', re.MULTILINE)
EXPORT = re.compile(r"^export (?=(?:async )?(?:function|const|class) (\w+))", re.MULTILINE)
MOST_HEADS = 64  # of a model, for each to be switched off once: more would take long
MOST_NUMBERS = 1_500_000  # of heads' queries, keys and values; a file with more opens slowly


@dataclass(frozen=True, kw_only=True)
class LookSettings:
    """What to look at, and where to write it."""

    run: Path
    text: str
    output: Path
    target: str = ""
    beam: int = 4
    alpha: float = 0.6
    lang: Literal["", "en", "zh"] = ""  # of the page; empty: the browser's


def write_look(settings: LookSettings) -> str:
    """Writes the file and returns its size in words."""
    path = settings.output
    require_place_for(path)
    [run] = load_runs([settings.run], device="auto")
    page = in_one_file(answers(run, settings)).encode("utf-8", errors="replace")
    write_atomically(path, page)
    return f"{path}: {len(page) / 1e6:.1f} MB, to be opened in any browser"


def answers(run: ServedRun, settings: LookSettings) -> Json:
    """What `source.js` finds in the file: everything that the views ask for when they are opened."""
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
    """What the views ask besides: without positions; word by word; under the mask and without it, with another ending. Only
    what the model has can be taken away."""
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
    """A model that has learnt little may say signs that are no words; the page does not ask about those."""
    try:
        translator.ids_of(question.target_pieces or (), "target")
    except ValueError:
        return False
    return True


def told(run: str, question: Question) -> Json:
    """A question as the page puts it."""
    changes = question.intervention
    asked: Json = {"run": run, "text": question.text, "target": question.target}
    asked |= {"target_pieces": None if question.target_pieces is None else list(question.target_pieces)}
    asked |= {"beam": question.beam, "alpha": question.alpha, "positions": changes.positions, "causal": changes.causal}
    return asked | {"heads_off": [list(head) for head in sorted(changes.heads_off)]}


def another_ending(pieces: tuple[str, ...]) -> tuple[str, ...]:
    """The last subword said otherwise: the first again, or nothing where they are the same. `masks.js` does so, too."""
    rest = pieces[:-1]
    return (*rest, pieces[0]) if rest and pieces[0] != pieces[-1] else rest


def heads(trace: Trace) -> Iterator[Head]:
    """The last cross-attention first: what is looked at most."""
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
    """The translation without each of the heads, and how probable the first one is then. No more than that is shown."""
    for head in every_head if len(every_head) <= MOST_HEADS else ():
        one = replace(question, intervention=Intervention(heads_off=frozenset([head])))
        found = look(translator, one)
        short = {"log_prob": found["log_prob"], "search": {"hypotheses": found["search"]["hypotheses"][:1]}}
        yield {"question": told(run, one), "answer": short}


def seen_heads(translator: Translator, run: str, question: Question, trace: Trace) -> list[Json]:
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
    """As the server tells it, with fewer lines."""
    found = run.training()
    metrics = found["metrics"]
    lines = thinned([line for line in metrics if "valid_nll" not in line])
    lines += [line for line in metrics if "valid_nll" in line]
    return found | {"metrics": lines, "timing": [line for line in found["timing"] if "tokens_per_second" in line][-1:]}


def in_one_file(found: Json) -> str:
    """The page with its style, its script and these answers inside. "<" could end the element it stands in."""
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
    """A module as a function, after those that it imports."""
    done.add(name)
    source = read(name)
    for _, needed in IMPORT.findall(source):
        if needed not in done:
            yield from modules(needed, done)
    exported = EXPORT.findall(source)
    body = IMPORT.sub(lambda line: f"const {_names(line[1])} = modules[{json.dumps(line[2])}];\n", source)
    yield f'modules["{name}"] = (() => {{\n{EXPORT.sub("", body)}return {{ {", ".join(exported)} }};\n}})();\n'


def _names(imported: str) -> str:
    """`{ draw as map }` imports what `{ draw: map }` takes out of an object; `* as source` is all of it."""
    return imported.removeprefix("* as ") if imported.startswith("*") else imported.replace(" as ", ": ")


def read(name: str) -> str:
    return PAGE.joinpath(name).read_text(encoding="utf-8")
