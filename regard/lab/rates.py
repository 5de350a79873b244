"""Section 5.3: the learning rate, step by step."""

from regard.lab.experiment import Setting
from regard.lab.finding import Finding, LineChart, Series, Table, Words
from regard.train.schedule import learning_rate, paper_peak

D_MODEL, STEPS = 512, 20_000


def rate(step: int, warmup: int, d_model: int = D_MODEL) -> float:
    """As training gives it."""
    return learning_rate(step, schedule="inverse_sqrt", peak=paper_peak(d_model, warmup), warmup=warmup, steps=STEPS)


def schedule(_: Setting) -> Finding:
    warmups = (1000, 2000, 4000, 8000)
    error, peaks = 0.0, {}
    for warmup in warmups:
        rates = {step: rate(step, warmup) for step in range(1, STEPS + 1)}
        by_formula = {step: D_MODEL**-0.5 * min(step**-0.5, step * warmup**-1.5) for step in rates}
        error = max(error, *(abs(rates[step] / by_formula[step] - 1) for step in rates))
        peaks[warmup] = max(rates, key=rates.__getitem__)
    holds = error < 1e-9 and all(peaks[warmup] == warmup for warmup in warmups)
    places = (1, *range(50, STEPS + 1, 50))
    return Finding(
        name="learning-rate",
        claims=("T4",),
        title=Words("The learning rate warms up, then falls", "学习率先预热，再下降"),
        claim=Words(
            "Note 001: Adam with lr(t) = d_model^-½ · min(t^-½, t · warmup^-1½): it grows at first, step by step, and "
            "falls later.",
            "笔记 001：Adam 优化器，lr(t) = d_model^-½ · min(t^-½, t · warmup^-1½)：初期逐渐增大，后期逐步减小。",
        ),
        verdict="held" if holds else "did not hold",
        outcome=Words(
            f"Over {STEPS:,} steps and {len(warmups)} warm-ups, the rate that training uses is the formula's to within "
            f"{error:.1g} of it (allowed: 1e-9). It is largest at step "
            f"{', '.join(f'{peaks[warmup]:,}' for warmup in warmups)} for warm-ups of "
            f"{', '.join(f'{warmup:,}' for warmup in warmups)} (must be the same). At d_model = {D_MODEL} and 4,000 steps "
            f"of warm-up it reaches {paper_peak(D_MODEL, 4000):.2g}; four times the warm-up halves it.",
            f"{STEPS:,} 步、{len(warmups)} 种预热步数：训练所用的学习率与公式的相对误差不超过 {error:.1g}（容许 1e-9）。预"
            f"热 {'、'.join(f'{warmup:,}' for warmup in warmups)} 步时，最大值分别在第 "
            f"{'、'.join(f'{peaks[warmup]:,}' for warmup in warmups)} 步（应当相同）。d_model = {D_MODEL}、预热 4,000 步时"
            f"最大为 {paper_peak(D_MODEL, 4000):.2g}；预热步数变为四倍，最大值减半。",
        ),
        tables=(
            Table(
                Words("The largest rate", "最大学习率"),
                (Words("warm-up", "预热步数"), Words("at step", "所在步"), Words("rate", "学习率")),
                tuple((warmup, peaks[warmup], rate(peaks[warmup], warmup)) for warmup in warmups),
            ),
        ),
        charts=(
            LineChart(
                Words(f"Learning rate, d_model = {D_MODEL}", f"学习率，d_model = {D_MODEL}"),
                Words("step", "步"),
                Words("learning rate · 1000", "学习率 · 1000"),
                tuple(
                    Series(
                        Words(f"warm-up {warmup:,}", f"预热 {warmup:,}"),
                        y=tuple(1000 * rate(step, warmup) for step in places),
                        x=tuple(map(float, places)),
                    )
                    for warmup in warmups
                ),
            ),
        ),
    )
