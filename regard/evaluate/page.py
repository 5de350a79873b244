"""`evaluation.html`: an evaluation's pictures and sentences in one file that needs no network."""

import json
from importlib.resources import files

from regard.evaluate.evaluation import Evaluation
from regard.evaluate.report import Json, extent, heading
from regard.text.sentences import is_unspaced

MOST_SENTENCES = 5000  # in the table; a browser is slow with more, and the JSON file has them all


def page(evaluation: Evaluation, report: Json) -> str:
    """`report` is the evaluation as JSON."""
    data = {
        **report,
        "heading": heading(evaluation),
        "extent": extent(evaluation),
        "by_characters": is_unspaced(evaluation.text.tgt_lang),  # for what differs between two sentences
        "chrf": [[round(score, 2) for score in system.chrf] for system in evaluation.systems],
        "sentences": report["sentences"][:MOST_SENTENCES],
    }
    template = files("regard.evaluate").joinpath("evaluation.html").read_text(encoding="utf-8")
    # "<" could end the script it stands in.
    return template.replace("/*DATA*/null", json.dumps(data, ensure_ascii=False).replace("<", "\\u003c"))
