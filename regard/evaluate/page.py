"""`evaluation.html`: an evaluation's pictures and sentences in one file that needs no network."""

from regard.evaluate.evaluation import Evaluation
from regard.evaluate.report import extent, heading
from regard.pages.template import filled
from regard.settings import Json
from regard.text.sentences import is_unspaced

MOST_SENTENCES = 5000  # in the table; browsers are slow with more


def page(evaluation: Evaluation, report: Json) -> str:
    """Return the page as HTML; `report` is the evaluation as JSON."""
    data = {
        **report,
        "heading": heading(evaluation),
        "extent": extent(evaluation),
        "by_characters": is_unspaced(evaluation.text.tgt_lang),  # for what differs between two sentences
        "chrf": [[round(score, 2) for score in system.chrf] for system in evaluation.systems],
        "sentences": report["sentences"][:MOST_SENTENCES],
    }
    return filled("regard.evaluate", "evaluation.html", data)
