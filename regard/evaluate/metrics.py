"""BLEU, chrF and TER, with the same digits as the sacrebleu command line."""

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

from regard.errors import UserError
from regard.text.sentences import UNSPACED, primary

# For languages written without spaces, where sacreBLEU's usual tokenizer finds one word in a clause.
BLEU_TOKENIZERS = dict.fromkeys(UNSPACED, "char") | dict.fromkeys(("zh", "zho", "chi", "cmn", "yue"), "zh")
JAPANESE = ("ja", "jpn")
UNTOUCHED = "none"  # sacreBLEU's name for text that is cut into words already

SEED = 12345  # sacreBLEU's own; its signatures name it

Statistics = list[list[Any]]  # for each sentence, the counts that a metric adds up
Scores = npt.NDArray[np.floating]


def bleu(hypotheses: Sequence[str], references: Sequence[str], tgt_lang: str = "") -> float:
    """Return sacreBLEU's BLEU, from 0 to 100."""
    assert len(hypotheses) == len(references), "sacreBLEU does not check this"
    metric = BLEU(tokenize=bleu_tokenizer(tgt_lang))
    return float(metric.corpus_score(list(hypotheses), [list(references)]).score)


def bleu_tokenizer(tgt_lang: str) -> str:
    """Return a tokenizer that needs nothing else installed, so that training logs are the same on every machine."""
    return BLEU_TOKENIZERS.get(primary(tgt_lang), "13a")


@dataclass(frozen=True)
class BleuForm:
    """Two options of the sacrebleu command line for BLEU. The tokenizer "" is chosen by the language."""

    tokenizer: str = ""
    lowercase: bool = False

    def __post_init__(self) -> None:
        if self.tokenizer and self.tokenizer not in BLEU.TOKENIZERS:
            meant = difflib.get_close_matches(self.tokenizer, BLEU.TOKENIZERS, n=1)
            advice = f"did you mean {meant[0]}?" if meant else f"choose one of {', '.join(BLEU.TOKENIZERS)}"
            raise UserError(f"sacreBLEU has no tokenizer {self.tokenizer!r}; {advice}")

    def tokenizer_for(self, tgt_lang: str) -> str:
        """Return the chosen tokenizer or the language's: for Japanese sacreBLEU's MeCab, if it is installed."""
        if not self.tokenizer and primary(tgt_lang) in JAPANESE and has_mecab():
            return "ja-mecab"
        return self.tokenizer or bleu_tokenizer(tgt_lang)


USUAL_BLEU = BleuForm()


def has_mecab() -> bool:
    return all(find_spec(name) is not None for name in ("MeCab", "ipadic"))


def metrics_for(tgt_lang: str, form: BleuForm = USUAL_BLEU) -> tuple[BLEU, CHRF, TER]:
    """Make the metrics as the sacrebleu command line does. TER takes words from between spaces in Chinese and Japanese, too:
    `asian_support` does nothing without `normalized`, and published numbers have neither."""
    tokenizer = form.tokenizer_for(tgt_lang)
    try:
        bleu = BLEU(tokenize=tokenizer, lowercase=form.lowercase, force=True)
    except (RuntimeError, ImportError) as error:  # the last of several lines says what to install
        last_line = str(error).strip().splitlines()[-1].strip()
        raise UserError(f"sacreBLEU's tokenizer {tokenizer} is not installed: {last_line}") from error
    except OSError as error:
        raise UserError(f"sacreBLEU could not download what its tokenizer {tokenizer} needs: {error}") from error
    return bleu, CHRF(), TER()


@dataclass(frozen=True)
class Interval:
    """The range of 95 % of the scores of resampled test sets. sacreBLEU prints mean ± half_width."""

    mean: float
    half_width: float
    low: float
    high: float


@dataclass(frozen=True, eq=False)
class Measurement:
    """A system's score by one metric."""

    name: str  # sacreBLEU's: BLEU, chrF2, TER
    score: float
    interval: Interval | None  # None: a single sentence has none
    signature: str
    resampled: Scores  # the scores of the resampled test sets, for comparison with another system's

    @property
    def lower_is_better(self) -> bool:
        return self.name == "TER"


def sentence_statistics(metric: Metric, translations: Iterable[str], references: Sequence[Sequence[str]]) -> Statistics:
    """Count what the metric needs of each sentence, given files of references. With these private functions of sacreBLEU,
    resampling and parts of a text cost little, and TER, which is slow, is computed only once."""
    return [
        metric._extract_corpus_statistics([translation], [[reference] for reference in sentence])[0]
        for translation, *sentence in zip(translations, *references, strict=True)
    ]


def measured(metric: Metric, statistics: Statistics, num_resamples: int) -> Measurement:
    """Compute a corpus's score from its sentences' statistics."""
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
    """Return sacreBLEU's interval in its precision, which is float32 for chrF and TER."""
    ordered = np.sort(resampled)
    tail = len(ordered) // 40  # 2.5 %
    low, high = ordered[tail], ordered[-1 - tail]
    middle = ordered.dtype.type(mean(ordered.tolist()))
    return Interval(float(middle), float(0.5 * (high - low)), float(low), float(high))


def resampled_scores(metric: Metric, statistics: Statistics, num_resamples: int) -> Scores:
    """Return the scores of test sets of the same size drawn with replacement, the same ones for every metric and system."""
    rows = np.array(statistics, dtype=np.float32)  # sacreBLEU's precision, which shows in the last digits
    chance = np.random.default_rng(SEED)
    # sacreBLEU draws the same test sets at once, which may not fit in memory.
    resamples = (rows[chance.choice(len(rows), size=len(rows))] for _ in range(num_resamples))
    return np.array([metric._compute_score_from_stats(resample.sum(axis=0)).score for resample in resamples])


def sentence_scores(metric: Metric, statistics: Statistics) -> list[float]:
    return [float(metric._compute_score_from_stats(row).score) for row in statistics]
