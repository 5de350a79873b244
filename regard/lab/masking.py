"""Order and masks: what a model makes of words that change places, and which inputs an output can depend on."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.config import ModelConfig
from regard.lab.experiment import Setting
from regard.lab.finding import Finding, HeatMap, LineChart, Series, Table, Words
from regard.model.trace import Intervention, Recorder
from regard.model.transformer import Transformer

VOCAB_SIZE, LENGTH = 100, 10


def model_of(seed: int, dtype: torch.dtype = torch.float64) -> Transformer:
    """A tiny one with random weights: what is shown here holds before anything is learnt."""
    torch.manual_seed(seed)
    model = Transformer(ModelConfig.preset("tiny", vocab_size=VOCAB_SIZE))
    return model.to(dtype).eval()


def distinct_ids(seed: int, length: int = LENGTH) -> Int[Tensor, "1 T"]:
    """Tokens of which none occurs twice, and none is padding."""
    return 1 + torch.randperm(VOCAB_SIZE - 1, generator=torch.Generator().manual_seed(seed))[None, :length]


def shuffled_distances(seed: int, *, positions: bool) -> Float[Tensor, "T T"]:
    """How far each output of a sentence is from each output of the same words shuffled. Columns are put back in
    the sentence's order, so that a word is compared with itself on the diagonal."""
    model, ids = model_of(seed), distinct_ids(seed)
    order = torch.randperm(LENGTH, generator=torch.Generator().manual_seed(seed + 1000))
    intervention = Intervention(positions=positions)
    before = model.trace(ids, ids, intervention).memory[0]
    after = model.trace(ids[:, order], ids, intervention).memory[0]
    return torch.cdist(before, after[order.argsort()], compute_mode="donot_use_mm_for_euclid_dist")


def shuffle(setting: Setting) -> Finding:
    seeds = setting.seeds(5)
    without = torch.stack([shuffled_distances(seed, positions=False) for seed in seeds])
    with_them = torch.stack([shuffled_distances(seed, positions=True) for seed in seeds])
    largest, typical = float(without.diagonal(dim1=1, dim2=2).max()), float(with_them.diagonal(dim1=1, dim2=2).mean())
    holds = largest < 1e-9 and typical > 0.1
    rows = [
        (seed, float(a.diagonal().max()), float(b.diagonal().mean()))
        for seed, a, b in zip(seeds, without, with_them, strict=True)
    ]

    def picture(title: Words, distances: Tensor) -> HeatMap:
        return HeatMap(
            title,
            Words("word, after shuffling", "词（打乱后）"),
            Words("word, before", "词（打乱前）"),
            (),
            (),
            _rows(distances),
        )

    return Finding(
        name="shuffle",
        claims=("M15",),
        title=Words("Without positions, order is invisible", "没有位置编码就没有顺序"),
        claim=Words(
            "Notes 000, 001 and 002: self-attention by itself knows no order: shuffle the words and the same vectors come "
            "out, shuffled; positional encodings are what tells orders apart.",
            "笔记 000、001、002：自注意力本身不含顺序信息：打乱词序，得到的向量仍然相同，只是换了位置；位置编码才使模型感"
            "知顺序。",
        ),
        verdict="held" if holds else "did not hold",
        outcome=Words(
            f"Without positions, a word's vector after the encoder differs by at most {largest:.1g} when the sentence is "
            f"shuffled (allowed: 1e-9; {len(seeds)} random models and orders). With positions it moves by {typical:.2f} on "
            "average.",
            f"不加位置编码时，打乱句子后每个词经编码器得到的向量最多相差 {largest:.1g}（容许 1e-9；{len(seeds)} 个随机模型"
            f"与次序）。加上位置编码，平均移动 {typical:.2f}。",
        ),
        tables=(
            Table(
                Words("How far a word's vector moves when the sentence is shuffled", "打乱句子后词向量移动多远"),
                (
                    Words("seed", "种子"),
                    Words("without positions, at most", "无位置编码，最大"),
                    Words("with positions, mean", "有位置编码，平均"),
                ),
                tuple(rows),
            ),
        ),
        charts=(
            picture(
                Words("Distances without positions: nothing on the diagonal", "无位置编码时的距离：对角线为零"), without[0]
            ),
            picture(Words("Distances with positions", "有位置编码时的距离"), with_them[0]),
        ),
        seeds=seeds,
    )


def influence(seed: int, *, causal: bool, length: int = LENGTH) -> Float[Tensor, "T T"]:
    """|∂state_i/∂embedding_j| of the decoder. No token occurs twice, so that a row of the embedding's gradient is that of
    one input; the source has a matrix of its own."""
    torch.manual_seed(seed)
    config = ModelConfig(
        src_vocab_size=VOCAB_SIZE,
        tgt_vocab_size=VOCAB_SIZE,
        encoder_layers=1,
        decoder_layers=2,
        d_model=16,
        num_heads=2,
        d_ff=32,
        shared_embeddings="none",
    )
    model = Transformer(config).double().eval()
    src, tgt_in = distinct_ids(seed, length), distinct_ids(seed + 1, length)
    recorder = None if causal else Recorder(Intervention(causal=False))
    states = model.decode(tgt_in, model.encode(src), model.padding_mask(src), recorder)[0]  # (T, D)
    weight = model.embeddings.target.weight
    rows = []
    for state in states:
        gradients = [torch.autograd.grad(one, weight, retain_graph=True)[0][tgt_in[0]] for one in state]
        rows.append(torch.stack(gradients).norm(dim=(0, 2)))  # of each input
    return torch.stack(rows)


def causality(setting: Setting) -> Finding:
    seeds = setting.seeds(3)
    masked = torch.stack([influence(seed, causal=True) for seed in seeds])
    open_ = influence(setting.seed, causal=False)
    later = float(masked.triu(1).abs().max())
    earlier = float(masked[:, *torch.tril_indices(LENGTH, LENGTH)].min())
    unmasked = float(open_[*torch.triu_indices(LENGTH, LENGTH, 1)].min())
    holds = later == 0.0 and earlier > 0.0 and unmasked > 0.0

    def picture(title: Words, influences: Tensor) -> HeatMap:
        return HeatMap(
            title,
            Words("input position j", "输入位置 j"),
            Words("output position i", "输出位置 i"),
            (),
            (),
            _rows(influences),
        )

    return Finding(
        name="causality",
        claims=("M6",),
        title=Words("Under the mask, no output depends on later inputs", "有掩码时，输出不依赖后面的输入"),
        claim=Words(
            "All notes: the decoder's self-attention is masked, so that position t sees positions up to t only; masked "
            "weights are 0 after softmax.",
            "所有笔记：解码器的自注意力带掩码，位置 t 只能看到不晚于 t 的位置；被掩盖的权重在 softmax 之后为 0。",
        ),
        verdict="held" if holds else "did not hold",
        outcome=Words(
            f"The gradient of output i with respect to input j is exactly {later:g} for every j > i, and never 0 for j ≤ i "
            f"(at least {earlier:.1g}; {len(seeds)} random models). With the mask taken away, every output depends on "
            f"every later input (at least {unmasked:.1g}). The triangle goes on the scores, before softmax; it does not "
            "multiply the inputs, as note 002 puts it.",
            f"对所有 j > i，输出 i 对输入 j 的梯度恰为 {later:g}；对 j ≤ i 则从不为 0（至少 {earlier:.1g}；{len(seeds)} 个"
            f"随机模型）。去掉掩码后，每个输出都依赖后面的所有输入（至少 {unmasked:.1g}）。三角掩码加在 softmax 之前的得分"
            "上，并非如笔记 002 所写去乘输入。",
        ),
        charts=(
            picture(Words("|∂output_i/∂input_j| under the mask", "有掩码时的 |∂输出_i/∂输入_j|"), masked[0]),
            picture(Words("The same without the mask", "没有掩码时"), open_),
        ),
        seeds=seeds,
    )


def _rows(values: Float[Tensor, "R C"]) -> tuple[tuple[float, ...], ...]:
    """Four digits are more than a picture shows."""
    return tuple(tuple(float(f"{value:.4g}") for value in row) for row in values.tolist())


@torch.no_grad()
def step_differences(seed: int, dtype: torch.dtype, length: int) -> tuple[list[float], list[float]]:
    """Of each position, how far the log-probabilities of one pass are from those of steps with a cache, and of the prefix
    alone."""
    model, src, tgt_in = model_of(seed, dtype), distinct_ids(seed, length), distinct_ids(seed + 1, length)
    at_once = model(src, tgt_in).log_softmax(-1)[0]  # (T, V)
    cache = model.start(src)
    steps, prefixes = [], []
    for t in range(length):
        steps.append(float((model.step(tgt_in[:, t], cache)[0] - at_once[t]).abs().max()))
        prefix = model(src, tgt_in[:, : t + 1]).log_softmax(-1)[0, -1]
        prefixes.append(float((prefix - at_once[t]).abs().max()))
    return steps, prefixes


def one_pass(setting: Setting) -> Finding:
    seeds, length = setting.seeds(3), 40
    kinds = {"float32": torch.float32, "float64": torch.float64}
    found = {name: [step_differences(seed, dtype, length) for seed in seeds] for name, dtype in kinds.items()}
    largest = {name: [max(max(one[way]) for one in found[name]) for way in range(2)] for name in kinds}
    holds = max(largest["float64"]) < 1e-9 and max(largest["float32"]) < 1e-3
    lines = [
        Series(
            Words(name, name),
            y=tuple(max(1e-17, *(one[0][t] for one in found[name])) for t in range(length)),
            x=tuple(float(t) for t in range(length)),
        )
        for name in kinds
    ]
    return Finding(
        name="one-pass",
        claims=("M9",),
        title=Words("All positions in one pass, or one at a time: the same", "一次算完所有位置，与逐个计算相同"),
        claim=Words(
            "Notes 000, 002 and 004: in training the decoder is given the target shifted right, and the triangular mask "
            "makes one pass over all positions the same as feeding the prefixes one by one; so training is parallel.",
            "笔记 000、002、004：训练时解码器的输入是右移的目标序列；有了三角掩码，一次算完所有位置与逐个输入前缀相同，因"
            "此训练可以并行。",
        ),
        verdict="held" if holds else "did not hold",
        outcome=Words(
            f"Over {length} positions and {len(seeds)} random models, log-probabilities of one pass differ from those of "
            f"single steps with a cache by at most {largest['float64'][0]:.1g} in float64 (allowed: 1e-9) and "
            f"{largest['float32'][0]:.1g} in float32 (allowed: 1e-3), and from those of every prefix by itself by "
            f"{largest['float64'][1]:.1g} and {largest['float32'][1]:.1g}: rounding.",
            f"{length} 个位置、{len(seeds)} 个随机模型：一次计算的对数概率与带缓存的逐步计算最多相差 "
            f"{largest['float64'][0]:.1g}（float64，容许 1e-9）和 {largest['float32'][0]:.1g}（float32，容许 1e-3），与单独"
            f"计算每个前缀相差 {largest['float64'][1]:.1g} 和 {largest['float32'][1]:.1g}：都是舍入误差。",
        ),
        tables=(
            Table(
                Words("Largest difference from one pass", "与一次计算的最大差"),
                (
                    Words("numbers", "数值类型"),
                    Words("steps with a cache", "带缓存逐步"),
                    Words("each prefix by itself", "单独计算前缀"),
                ),
                tuple((name, *largest[name]) for name in kinds),
            ),
        ),
        charts=(
            LineChart(
                Words("One pass against single steps (0 is drawn as 1e-17)", "一次计算与逐步计算之差（0 画作 1e-17）"),
                Words("position", "位置"),
                Words("largest difference", "最大差"),
                tuple(lines),
                log_y=True,
            ),
        ),
        seeds=seeds,
    )
