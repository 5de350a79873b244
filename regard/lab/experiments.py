"""All experiments, in the order of the page. To add one: its function, and a line here."""

from regard.lab import (
    ablations,
    alignment,
    bare,
    bottleneck,
    cost,
    masking,
    norms,
    positions,
    rates,
    scores,
    sizes,
    softmax,
    systems,
)
from regard.lab.experiment import Experiment
from regard.lab.finding import Words

EXPERIMENTS: tuple[Experiment, ...] = (
    Experiment(
        "softmax-by-hand",
        ("M4",),
        Words("softmax(3, 1, −3), as note 002 has it", "笔记 002 的 softmax(3, 1, −3)"),
        1.0,
        softmax.by_hand,
    ),
    Experiment("bare-attention", ("M4",), Words("softmax(XXᵀ)X on 早上好", "早上好：softmax(XXᵀ)X"), 1.0, bare.good_morning),
    Experiment(
        "saturation",
        ("M17",),
        Words("softmax([a, a, 2a]) as a grows", "a 增大时的 softmax([a, a, 2a])"),
        1.0,
        softmax.saturation,
    ),
    Experiment(
        "softmax-gradient",
        ("M18",),
        Words("what gradient a saturated softmax passes on", "饱和的 softmax 传回多少梯度"),
        1.0,
        softmax.gradient,
    ),
    Experiment(
        "score-variance", ("M16",), Words("the variance of q·k against d_k", "q·k 的方差与 d_k"), 3.0, softmax.variance
    ),
    Experiment(
        "scores", ("M20", "M16"), Words("additive, dot and scaled dot scores", "加性、点积与缩放点积得分"), 3.0, scores.kinds
    ),
    Experiment("positions", ("M12",), Words("the table of sinusoids", "正弦位置编码表"), 1.0, positions.table),
    Experiment("shift", ("M13",), Words("k positions on, as a linear map", "后移 k 个位置的线性变换"), 1.0, positions.shift),
    Experiment("distance", ("M13",), Words("PE(p)·PE(p + k) against k", "PE(p)·PE(p + k) 与 k"), 1.0, positions.distance),
    Experiment(
        "shuffle",
        ("M15",),
        Words("words that change places, with and without positions", "打乱词序，有无位置编码"),
        1.0,
        masking.shuffle,
    ),
    Experiment(
        "causality",
        ("M6",),
        Words("which inputs an output's gradient reaches", "输出的梯度能到达哪些输入"),
        3.0,
        masking.causality,
    ),
    Experiment("one-pass", ("M9",), Words("one pass against step by step", "一次计算与逐步计算"), 2.0, masking.one_pass),
    Experiment(
        "layer-norm",
        ("M3",),
        Words("LayerNorm and BatchNorm under padding", "补齐时的 LayerNorm 与 BatchNorm"),
        1.0,
        norms.neighbours,
    ),
    Experiment(
        "feed-forward-share", ("M19",), Words("where a model's parameters are", "模型的参数都用在哪了"), 1.0, sizes.shares
    ),
    Experiment("learning-rate", ("T4",), Words("the learning rate, step by step", "逐步的学习率"), 1.0, rates.schedule),
    Experiment(
        "no-queries", ("002",), Words("attention without queries and keys", "没有查询和键的注意力"), 1.0, bare.no_queries
    ),
    Experiment("rank", ("002",), Words("the rank of attention's weights", "注意力权重矩阵的秩"), 1.0, bare.rank),
    Experiment(
        "waiting", ("M21",), Words("what waits for what: an RNN and attention", "谁等谁：RNN 与注意力"), 1.0, cost.waiting
    ),
    Experiment(
        "cost-training",
        ("M21",),
        Words("time and memory of training against length", "训练的时间和内存与句长"),
        5.0,
        cost.training,
    ),
    Experiment(
        "cost-decoding", ("M21", "T1"), Words("decoding with and without a cache", "有无缓存的解码"), 20.0, cost.decoding
    ),
    Experiment(
        "bottleneck",
        ("S5", "S1", "S2", "S3"),
        Words("copying and reversing, by RNNs and a Transformer", "RNN 与 Transformer 的复制和反转"),
        1200.0,
        bottleneck.bottleneck,
    ),
    Experiment(
        "systems",
        ("S1", "S2", "S3", "S5"),
        Words("three systems of equal size on Multi30k", "Multi30k 上同样大小的三种系统"),
        3600.0,
        systems.multi30k,
        needs_corpus=True,
    ),
    Experiment(
        "systems-kftt",
        ("S1", "S2", "S3", "S5"),
        Words("the same on KFTT", "同上，KFTT"),
        36_000.0,
        systems.kftt,
        needs_corpus=True,
    ),
    Experiment(
        "ablations",
        ("T5", "M6", "M14", "M15", "M16"),
        Words("one part of a Transformer at a time left out", "逐一去掉 Transformer 的一个部分"),
        36_000.0,
        ablations.ablations,
        needs_corpus=True,
    ),
    Experiment(
        "alignment",
        ("S2", "S6"),
        Words("attention against words that people aligned", "注意力与人工词对齐"),
        36_000.0,
        alignment.alignment,
        needs_corpus=True,
    ),
)
