"""How good translations are."""

import re
from collections.abc import Sequence

from sacrebleu.metrics.bleu import BLEU

# Languages written without spaces, which sacreBLEU's usual tokenizer would take for one word a clause.
BLEU_TOKENIZERS = dict.fromkeys(("zh", "zho", "chi", "cmn", "yue"), "zh")
BLEU_TOKENIZERS |= dict.fromkeys(("ja", "jpn", "th", "tha", "lo", "lao", "km", "khm", "my", "mya"), "char")


def bleu(hypotheses: Sequence[str], references: Sequence[str], tgt_lang: str = "") -> float:
    """sacreBLEU, in points of a hundred."""
    if len(hypotheses) != len(references):
        raise ValueError(f"there are {len(hypotheses)} translations for {len(references)} references")
    language = re.split("[-_]", tgt_lang.lower(), maxsplit=1)[0]
    metric = BLEU(tokenize=BLEU_TOKENIZERS.get(language, "13a"))
    return float(metric.corpus_score(list(hypotheses), [list(references)]).score)
