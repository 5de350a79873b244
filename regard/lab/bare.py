"""Attention without anything around it: note 002's softmax(XXᵀ)X, attention without queries, and the rank of its weights."""

import torch
from jaxtyping import Float
from torch import Tensor

from regard.lab.experiment import Setting
from regard.lab.finding import Finding, HeatMap, LineChart, Series, Table, Words
from regard.model.attention import inspected_attention

CHARACTERS = ("早", "上", "好")
# The note has its vectors in a picture only. These are ours: small whole numbers whose scores give the weights it names.
VECTORS = ((2.0, 1.0, 1.0), (1.0, 2.0, 2.0), (1.0, 1.0, 2.0))
NOTED = (0.4, 0.4, 0.2)


def bare_attention(x: Float[Tensor, "T D"]) -> tuple[Float[Tensor, "T D"], Float[Tensor, "T T"], Float[Tensor, "T T"]]:
    """softmax(XXᵀ)X, its weights, and XXᵀ."""
    output, seen = inspected_attention(x[None, None], x[None, None], x[None, None], scale=1.0)
    return output[0, 0], seen.weights[0, 0], seen.scores[0, 0]


def good_morning(_: Setting) -> Finding:
    x = torch.tensor(VECTORS, dtype=torch.float64)
    output, weights, scores = bare_attention(x)
    first = weights[0].tolist()
    by_hand = [sum(first[j] * VECTORS[j][n] for j in range(3)) for n in range(3)]
    error = max(abs(a - b) for a, b in zip(output[0].tolist(), by_hand, strict=True))
    sums = float((weights.sum(1) - 1).abs().max())
    holds = tuple(round(weight, 1) for weight in first) == NOTED and sums < 1e-12 and error < 1e-12
    rows = [
        (CHARACTERS[n], _listed(x[n], 0), _listed(scores[n], 0), _listed(weights[n], 2), _listed(output[n], 2))
        for n in range(3)
    ]
    listed = ", ".join(f"{weight:.3f}" for weight in first)
    return Finding(
        name="bare-attention",
        claims=("M4",),
        title=Words("softmax(XXᵀ)X on 早上好", "早上好：softmax(XXᵀ)X"),
        claim=Words(
            "Note 002: the barest self-attention is softmax(XXᵀ)X. XXᵀ holds the inner products of the words; softmax "
            "makes each row sum to 1, so that 早 gives 0.4 of its attention to itself, 0.4 to 上 and 0.2 to 好; the new "
            "vector of 早 is the three vectors' sum with these weights.",
            "笔记 002：自注意力最原始的形态是 softmax(XXᵀ)X。XXᵀ 是各词向量的内积；softmax 使每行之和为 1，于是“早”分配 "
            "0.4 的注意力给自己，0.4 给“上”，0.2 给“好”；“早”的新向量就是三个词向量的加权和。",
        ),
        verdict="held" if holds else "did not hold",
        outcome=Words(
            f"With the vectors below (ours: the note's are in a picture), 早 attends with {listed}, which rounds to the "
            f"note's 0.4, 0.4, 0.2; rows sum to 1 to within {sums:.1g}, and the new vector is the sum by hand to within "
            f"{error:.1g}. Such weights need scores s, s and about s − ln 2: an inner product that is only 0.7 larger "
            "doubles the attention.",
            f"用下表的向量（笔记的向量只在图中，这里另取），“早”的注意力为 {listed}，四舍五入即笔记的 0.4、0.4、0.2；每行之"
            f"和与 1 相差不超过 {sums:.1g}，新向量与手算的加权和相差不超过 {error:.1g}。这样的权重要求得分为 s、s 和约 s − "
            "ln 2：内积只大 0.7，注意力就加倍。",
        ),
        tables=(
            Table(
                Words("Step by step", "逐步计算"),
                (
                    Words("word", "词"),
                    Words("X", "X"),
                    Words("XXᵀ", "XXᵀ"),
                    Words("softmax", "softmax"),
                    Words("softmax(XXᵀ)X", "softmax(XXᵀ)X"),
                ),
                tuple(rows),
            ),
        ),
        charts=(
            HeatMap(
                Words("Who attends to whom", "谁关注谁"),
                Words("attended to", "被关注"),
                Words("attends", "关注"),
                CHARACTERS,
                CHARACTERS,
                tuple(tuple(round(value, 4) for value in row) for row in weights.tolist()),
            ),
        ),
    )


def _listed(numbers: Float[Tensor, " N"], digits: int) -> str:
    return ", ".join(f"{one:.{digits}f}" for one in numbers.tolist())


def no_queries(setting: Setting) -> Finding:
    seeds, length, width = setting.seeds(5), 12, 16
    distances: list[tuple[int, float, float]] = []  # seed, from the average of all values, from a position's own value
    between = 0.0
    for seed in seeds:
        values = torch.randn(1, 1, length, width, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        nothing = torch.zeros_like(values)
        output = inspected_attention(nothing, nothing, values)[0]
        from_mean = float((output - values.mean(2, keepdim=True)).norm() / values.norm())
        distances.append((seed, from_mean, float((output - values).norm() / values.norm())))
        between = max(between, float((output - output[:, :, :1]).abs().max()))
    from_mean, from_values = max(one[1] for one in distances), min(one[2] for one in distances)
    becomes_ffn = from_values < 1e-9
    return Finding(
        name="no-queries",
        claims=("002",),
        title=Words("Attention without queries and keys", "没有查询和键的注意力"),
        claim=Words(
            "Note 002: if W_Q and W_K are set to zero, self-attention becomes a feed-forward layer, Z = V·X, so that the "
            "latter is a special case of the former.",
            "笔记 002：如果把 Q、K 矩阵设为零，自注意力就变成了 FFN，即 Z = V·X，FFN 是自注意力的特例。",
        ),
        verdict="held" if becomes_ffn else "did not hold",
        outcome=Words(
            "All scores are 0 then, so that every position attends to all alike: each output is the average of the "
            f"values, to within {from_mean:.1g}, and all positions get the same vector (they differ by {between:.1g}). A "
            f"feed-forward layer would give each position its own value; the outputs are {from_values:.0%} or more of the "
            f"values' size away from that (allowed: 1e-9; {len(seeds)} seeds).",
            f"此时所有得分为 0，每个位置平均地关注所有位置：输出就是各个值的平均（误差不超过 {from_mean:.1g}），所有位置得"
            f"到同一个向量（相差 {between:.1g}）。前馈层则应给每个位置它自己的值；输出与之相差不小于其大小的 "
            f"{from_values:.0%}（容许 1e-9；{len(seeds)} 个种子）。",
        ),
        tables=(
            Table(
                Words("Distance of the outputs, as a share of the values' size", "输出的距离，与值的大小之比"),
                (
                    Words("seed", "种子"),
                    Words("from the average of all values", "与所有值的平均"),
                    Words("from a position's own value", "与该位置自己的值"),
                ),
                tuple(distances),
            ),
        ),
        seeds=seeds,
    )


def ranks_of(length: int, width: int, seed: int) -> tuple[int, int]:
    """Of scores and of weights."""
    q, k = torch.randn(2, 1, 1, length, width, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    seen = inspected_attention(q, k, k)[1]
    return int(torch.linalg.matrix_rank(seen.scores[0, 0])), int(torch.linalg.matrix_rank(seen.weights[0, 0]))


def rank(setting: Setting) -> Finding:
    length, widths, seeds = 64, (1, 2, 4, 8, 16, 32), setting.seeds(5)
    found = [[ranks_of(length, width, seed) for seed in seeds] for width in widths]
    of_scores, of_weights = ([[ranks[which] for ranks in of_width] for of_width in found] for which in (0, 1))
    bounded = all(max(ranks) <= width for ranks, width in zip(of_weights, widths, strict=True))
    above = sum(rank > width for ranks, width in zip(of_scores, widths, strict=True) for rank in ranks)
    cases = len(widths) * len(seeds)
    at = widths.index(4)
    spread = "–".join(map(str, sorted({min(of_weights[at]), max(of_weights[at])})))

    def line(name: Words, ranks: list[list[int]]) -> Series:
        means = tuple(sum(one) / len(one) for one in ranks)
        least, most = tuple(float(min(one)) for one in ranks), tuple(float(max(one)) for one in ranks)
        return Series(name, y=means, x=tuple(map(float, widths)), low=least, high=most)

    return Finding(
        name="rank",
        claims=("002",),
        title=Words("The rank of attention's weights", "注意力权重矩阵的秩"),
        claim=Words(
            "Note 002: for Q and K of n × d, softmax(QKᵀ/√d_k) is a matrix of rank at most d.",
            "笔记 002：若 Q、K 为 n × d 矩阵，则 softmax(QKᵀ/√d_k) 是秩至多为 d 的方阵。",
        ),
        verdict="held" if bounded else "did not hold",
        outcome=Words(
            f"The rank of QKᵀ is above d in {above} of {cases} cases. Softmax is not linear and raises it: for n = "
            f"{length} and d = 4, the weights have rank {spread} ({len(seeds)} seeds, float64, torch's numerical rank).",
            f"QKᵀ 的秩在 {cases} 例中有 {above} 例大于 d。softmax 不是线性的，会把秩提高：n = {length}、d = 4 时，权重矩阵"
            f"的秩为 {spread}（{len(seeds)} 个种子，float64，torch 的数值秩）。",
        ),
        tables=(
            Table(
                Words(f"Mean rank, n = {length}", f"平均秩，n = {length}"),
                (Words("d", "d"), Words("QKᵀ", "QKᵀ"), Words("softmax(QKᵀ/√d)", "softmax(QKᵀ/√d)")),
                tuple(
                    (width, sum(a) / len(a), sum(b) / len(b))
                    for width, a, b in zip(widths, of_scores, of_weights, strict=True)
                ),
            ),
        ),
        charts=(
            LineChart(
                Words(f"Rank against width, n = {length}", f"秩与宽度，n = {length}"),
                Words("d", "d"),
                Words("rank", "秩"),
                (
                    line(Words("scores QKᵀ", "得分 QKᵀ"), of_scores),
                    line(Words("weights softmax(QKᵀ/√d)", "权重 softmax(QKᵀ/√d)"), of_weights),
                ),
                log_x=True,
                log_y=True,
            ),
        ),
        seeds=seeds,
    )
