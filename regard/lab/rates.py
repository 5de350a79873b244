"""Compares the learning rate of each step with its formula (section 5.3)."""

from regard.lab.experiment import Setting
from regard.lab.result import LineData, Result, SeriesData, TableData, Term
from regard.train.schedule import learning_rate, paper_peak

D_MODEL, STEPS = 512, 20_000


def rate(step: int, warmup: int, d_model: int = D_MODEL) -> float:
    """Return the learning rate that training uses."""
    return learning_rate(step, schedule="inverse_sqrt", peak=paper_peak(d_model, warmup), warmup=warmup, steps=STEPS)


def schedule(_: Setting) -> Result:
    warmups = (1000, 2000, 4000, 8000)
    error, peaks = 0.0, {}
    for warmup in warmups:
        rates = {step: rate(step, warmup) for step in range(1, STEPS + 1)}
        by_formula = {step: D_MODEL**-0.5 * min(step**-0.5, step * warmup**-1.5) for step in rates}
        error = max(error, *(abs(rates[step] / by_formula[step] - 1) for step in rates))
        peaks[warmup] = max(rates, key=rates.__getitem__)
    holds = error < 1e-9 and all(peaks[warmup] == warmup for warmup in warmups)
    places = (1, *range(50, STEPS + 1, 50))
    curves = [
        SeriesData(Term("warmup", {"steps": warmup}), [1000 * rate(step, warmup) for step in places], places)
        for warmup in warmups
    ]
    return Result(
        "held" if holds else "did not hold",
        {
            "steps": STEPS,
            "num_warmups": len(warmups),
            "error": error,
            "peaks": list(peaks.values()),
            "warmups": warmups,
            "d_model": D_MODEL,
            "highest": paper_peak(D_MODEL, 4000),
        },
        tables={"peaks": TableData([(warmup, peaks[warmup], rate(peaks[warmup], warmup)) for warmup in warmups])},
        charts={"rate": LineData(curves)},
    )
