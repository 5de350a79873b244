"""How good translations are: BLEU, chrF and TER, to the digit what the sacrebleu command line says of them."""

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from statistics import mean
from typing import Any

import numpy as np
import numpy.typing as npt
from sacrebleu.metrics.base import Metric, Score
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER

from regard.text.sentences import UNSPACED, primary

# Languages written without spaces, which sacreBLEU's usual tokenizer would take for one word a clause.
BLEU_TOKENIZERS = dict.fromkeys(UNSPACED, "char") | dict.fromkeys(("zh", "zho", "chi", "cmn", "yue"), "zh")
JAPANESE = ("ja", "jpn")
UNTOUCHED = "none"  # sacreBLEU's name for text that is cut into words already

SEED = 12345  # sacreBLEU's own; its signatures name it
LOWER_IS_BETTER = ("TER",)

Statistics = list[list[Any]]  # for each sentence, the numbers that a metric adds up before it divides
Scores = npt.NDArray[np.floating]


def bleu(hypotheses: Sequence[str], references: Sequence[str], tgt_lang: str = "") -> float:
    """sacreBLEU, in points of a hundred."""
    if len(hypotheses) != len(references):
        raise ValueError(f"there are {len(hypotheses)} translations for {len(references)} references")
    metric = BLEU(tokenize=bleu_tokenizer(tgt_lang))
    return float(metric.corpus_score(list(hypotheses), [list(references)]).score)


def bleu_tokenizer(tgt_lang: str) -> str:
    """The same on every machine: what a run says of itself while it learns must not depend on what else is installed."""
    return BLEU_TOKENIZERS.get(primary(tgt_lang), "13a")


@dataclass(frozen=True)
class BleuForm:
    """Two options of the sacrebleu command line, which change BLEU alone. The tokenizer "" is the language's."""

    tokenizer: str = ""
    lowercase: bool = False

    def __post_init__(self) -> None:
        if self.tokenizer and self.tokenizer not in BLEU.TOKENIZERS:
            meant = difflib.get_close_matches(self.tokenizer, BLEU.TOKENIZERS, n=1)
            advice = f"did you mean {meant[0]}?" if meant else f"choose one of {', '.join(BLEU.TOKENIZERS)}"
            raise ValueError(f"sacreBLEU has no tokenizer {self.tokenizer!r}; {advice}")

    def tokenizer_for(self, tgt_lang: str) -> str:
        """Japanese words, as sacreBLEU would have them, where that which finds them is installed."""
        if not self.tokenizer and primary(tgt_lang) in JAPANESE and has_mecab():
            return "ja-mecab"
        return self.tokenizer or bleu_tokenizer(tgt_lang)


USUAL_BLEU = BleuForm()


def has_mecab() -> bool:
    return all(find_spec(name) is not None for name in ("MeCab", "ipadic"))


def metrics_for(tgt_lang: str, form: BleuForm = USUAL_BLEU) -> tuple[BLEU, CHRF, TER]:
    """As the sacrebleu command line makes them. TER keeps its defaults for Chinese and Japanese, too: its words lie between
    spaces there as everywhere, for `asian_support` does nothing without `normalized`, and nobody's numbers have both."""
    tokenizer = form.tokenizer_for(tgt_lang)
    try:
        bleu = BLEU(tokenize=tokenizer, lowercase=form.lowercase, force=True)
    except (RuntimeError, ImportError) as error:  # words of several lines, the last of which says what to install
        last_line = str(error).strip().splitlines()[-1].strip()
        raise ValueError(f"sacreBLEU's tokenizer {tokenizer} is not installed: {last_line}") from error
    except OSError as error:
        raise ValueError(f"sacreBLEU could not download what its tokenizer {tokenizer} needs: {error}") from error
    return bleu, CHRF(), TER()


@dataclass(frozen=True)
class Interval:
    """Where 95 % of the scores lie that resampled test sets have. sacreBLEU says it as mean ± half_width."""

    mean: float
    half_width: float
    low: float
    high: float


@dataclass(frozen=True, eq=False)
class Measurement:
    """What one metric says of one system."""

    name: str  # as sacreBLEU has it: BLEU, chrF2, TER
    score: float
    interval: Interval | None  # None: a single sentence has none
    signature: str
    resampled: Scores  # the scores of the resampled test sets, for comparison with another system's

    @property
    def lower_is_better(self) -> bool:
        return self.name in LOWER_IS_BETTER


def sentence_statistics(metric: Metric, translations: Iterable[str], references: Sequence[Sequence[str]]) -> Statistics:
    """`references` are whole files, each with a line for each translation. What sacreBLEU keeps to itself is used here and
    below: with a sentence's counts at hand, resampling, comparing and looking at parts of a text cost almost nothing, and
    TER, which is slow, is computed once."""
    return [
        metric._extract_corpus_statistics([translation], [[reference] for reference in sentence])[0]
        for translation, *sentence in zip(translations, *references, strict=True)
    ]


def measured(metric: Metric, statistics: Statistics, num_resamples: int) -> Measurement:
    """A corpus's score, from its sentences' statistics."""
    score: Score = metric._aggregate_and_compute(statistics)
    resampled = resampled_scores(metric, statistics, num_resamples)
    metric.n_bootstrap, metric.seed = num_resamples, str(SEED)  # for the signature
    return Measurement(
        name=score.name,
        score=float(score.score),
        interval=_interval(resampled) if len(statistics) > 1 else None,
        signature=metric.get_signature().format(),
        resampled=resampled,
    )


def _interval(resampled: Scores) -> Interval:
    """sacreBLEU's arithmetic, in its precision: chrF and TER have theirs in float32."""
    ordered = np.sort(resampled)
    tail = len(ordered) // 40  # 2.5 %
    low, high = ordered[tail], ordered[-1 - tail]
    middle = ordered.dtype.type(mean(ordered.tolist()))
    return Interval(float(middle), float(0.5 * (high - low)), float(low), float(high))


def resampled_scores(metric: Metric, statistics: Statistics, num_resamples: int) -> Scores:
    """Of test sets as large as this one, drawn from it with replacement. The same sentences are drawn for every metric and
    system, which is what pairs them."""
    rows = np.array(statistics, dtype=np.float32)  # so does sacreBLEU, and it shows in the last digits
    chance = np.random.default_rng(SEED)
    # sacreBLEU draws all test sets at once and gets the same ones, but a large text's would not fit in memory.
    resamples = (rows[chance.choice(len(rows), size=len(rows))] for _ in range(num_resamples))
    return np.array([metric._compute_score_from_stats(resample.sum(axis=0)).score for resample in resamples])


def sentence_scores(metric: Metric, statistics: Statistics) -> list[float]:
    return [float(metric._compute_score_from_stats(row).score) for row in statistics]
