"""The comparison of two systems by paired bootstrap resampling, in numbers and in words."""

from dataclasses import dataclass

import numpy as np

from regard.evaluate.metrics import Measurement

SIGNIFICANT = 0.05


@dataclass(frozen=True)
class Comparison:
    """The comparison of two systems by one metric."""

    metric: str
    difference: float  # the second's score less the first's
    p_value: float | None  # None: no test is possible
    words: str


def compare(names: tuple[str, str], first: Measurement, second: Measurement) -> Comparison:
    """Compare two measurements by the same metric on the same text, with the same resamples."""
    difference = second.score - first.score
    p = p_value(first, second)
    return Comparison(first.name, difference, p, _words(names, first, difference, p))


def p_value(first: Measurement, second: Measurement) -> float | None:
    """Return sacreBLEU's p-value: how often resampling gives as great a difference by chance. It is None for a single
    sentence, and if no resample shows a difference (sacreBLEU finds p = 0.001 for a system and itself)."""
    differences = np.abs(second.resampled - first.resampled)
    if first.interval is None or not differences.any():
        return None
    by_chance = differences - differences.mean()
    num_as_great = int((by_chance > abs(second.score - first.score)).sum())
    return (num_as_great + 1) / (len(differences) + 1)


def _words(names: tuple[str, str], first: Measurement, difference: float, p: float | None) -> str:
    metric = first.name
    second_leads = (difference < 0) == first.lower_is_better
    better, other = reversed(names) if second_leads else names
    if p is None and difference == 0:
        return f"no difference between {names[0]} and {names[1]} in {metric}: both have {first.score:.1f}"
    if p is None:
        return f"{better} has the better {metric} by {points(difference)}, but one sentence allows no test"
    if p < SIGNIFICANT:
        lower = f" ({metric} is better when lower)" if first.lower_is_better else ""
        return f"{better} is better than {other} by {points(difference)} {metric}{lower}, p = {p_text(p)}"
    sign = "+" if difference >= 0 else "−"
    change = f"{sign}{points(difference)} {metric} for {names[1]}"
    return f"no difference found between {names[0]} and {names[1]}: {change}, p = {p_text(p)}"


def points(difference: float) -> str:
    """Return the size of a difference, without rounding a small one to 0."""
    size = abs(difference)
    return f"{size:.1f}" if size >= 0.05 or size == 0 else f"{size:.1g}"


def p_text(p: float) -> str:
    """Return p with two digits, or with more if rounding would move it across the threshold."""
    text = f"{p:.2g}"
    return text if (float(text) < SIGNIFICANT) == (p < SIGNIFICANT) else f"{p:.4g}"
