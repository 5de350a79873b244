"""What attention costs as sentences grow, beside an RNN: training, decoding, and what has to wait for what."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from regard.config import ModelConfig
from regard.lab.experiment import Setting
from regard.lab.finding import Finding, LineChart, Series, Table, Verdict, Words
from regard.model.attention import SelfAttention
from regard.model.trace import Intervention, Recorder
from regard.model.transformer import Transformer
from regard.train.device import synchronize

WIDTH, NUM_HEADS = 64, 1
# Its scores take 16 MiB. From 32 MiB on, most of a CPU's time is that of getting memory from the system, not of arithmetic
# (EXPERIMENTS.md). A GPU has little to do before that, and goes on to eight times the length.
LONGEST = 2048
ENOUGH = 1024  # long enough for what grows with n² to outweigh what grows with n; before, nothing is decided
ENOUGH_TOKENS = 256  # the same, of decoding
MOST_TOKENS = 512  # on a GPU four times as many
ROUNDS = 5  # of which the best counts: what disturbs a measurement only makes it longer
SECONDS = Words("seconds, best of five", "秒（五次中最快）")
Layer = Callable[[Tensor], Tensor]
NEXT_ROUND = 4.5  # times as long as the last: of twice the length, quadratic work takes four


def layers(device: torch.device) -> list[tuple[Words, Layer, tuple[nn.Parameter, ...]]]:
    """Our attention on both paths, and torch's LSTM, of one width."""
    attention = SelfAttention(WIDTH, NUM_HEADS, dropout=0.0, site="encoder", layer=0).to(device)
    lstm = nn.LSTM(WIDTH, WIDTH, batch_first=True).to(device)
    weights = tuple(attention.parameters())
    return [
        (
            Words("attention, explicit", "注意力（显式）"),
            lambda x: attention(x, recorder=Recorder(Intervention())),
            weights,
        ),
        (Words("attention, fused", "注意力（融合）"), attention, weights),
        (Words("LSTM", "LSTM"), lambda x: lstm(x)[0], tuple(lstm.parameters())),
    ]


def kept_bytes(layer: Layer, x: Tensor, parameters: Sequence[Tensor]) -> int:
    """What the forward pass keeps for the backward pass, each storage once, parameters and the input not counted."""
    known = {one.untyped_storage().data_ptr() for one in (*parameters, x)}
    kept: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in known:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        output = layer(x)  # alive until all are counted, so that no address is used twice
    assert output.requires_grad
    return sum(kept.values())


def update(layer: Layer, x: Tensor) -> None:
    """Forward and backward."""
    layer(x).sum().backward()


def seconds_of(work: Callable[[], object], device: torch.device) -> float:
    """The best of some rounds, after one that warms up."""
    taken = []
    for _ in range(ROUNDS + 1):
        synchronize(device)
        began = time.perf_counter()
        work()
        synchronize(device)
        taken.append(time.perf_counter() - began)
    return min(taken[1:])


def slope(lengths: Sequence[int], values: Sequence[float]) -> float:
    """The exponent p of n^p that fits the last three best: the least-squares line through their logarithms."""
    xs, ys = [math.log(one) for one in lengths[-3:]], [math.log(one) for one in values[-3:]]
    x_mean, y_mean = sum(xs) / len(xs), sum(ys) / len(ys)
    return sum((x - x_mean) * (y - y_mean) for x, y in zip(xs, ys, strict=True)) / sum((x - x_mean) ** 2 for x in xs)


@dataclass(frozen=True)
class Curve:
    name: Words
    lengths: tuple[int, ...]
    values: tuple[float, ...]

    @property
    def slope(self) -> float:
        return slope(self.lengths, self.values)

    def series(self) -> Series:
        name = Words(f"{self.name.en}: n^{self.slope:.2f}", f"{self.name.zh}：n^{self.slope:.2f}")
        return Series(name, y=self.values, x=tuple(map(float, self.lengths)))


def training_curves(setting: Setting) -> tuple[list[Curve], list[Curve]]:
    """Seconds and MiB of one layer, forward and backward, for one sentence of each length that there is time for."""
    torch.manual_seed(setting.seed)
    device = torch.device(setting.device)
    end = time.monotonic() + setting.seconds
    measured = layers(device)
    times: list[list[float]] = [[] for _ in measured]
    memory: list[list[float]] = [[] for _ in measured]
    lengths: list[int] = []
    length, last_round = 64, 0.0
    longest = LONGEST if device.type == "cpu" else 8 * LONGEST
    while length <= longest and (len(lengths) < 3 or time.monotonic() + NEXT_ROUND * last_round < end):
        began = time.monotonic()
        x = torch.randn(1, length, WIDTH, device=device, requires_grad=True)
        for number, (_, layer, parameters) in enumerate(measured):
            memory[number].append(kept_bytes(layer, x, parameters) / 2**20)
            times[number].append(seconds_of(partial(update, layer, x), device))
        lengths.append(length)
        length, last_round = 2 * length, time.monotonic() - began
    names = [name for name, _, _ in measured]

    def curves(of_layers: list[list[float]]) -> list[Curve]:
        return [Curve(name, tuple(lengths), tuple(of_layer)) for name, of_layer in zip(names, of_layers, strict=True)]

    return curves(times), curves(memory)


IN_THE_FORMULA = Words(
    ": O(n²) memory is a property of the formula written out, not of attention",
    "：O(n²) 的空间是把公式写开的结果，不是注意力本身的性质",
)


def _chart(title: Words, label: Words, curves: Sequence[Curve]) -> LineChart:
    return LineChart(
        title, Words("length n", "长度 n"), label, tuple(curve.series() for curve in curves), log_x=True, log_y=True
    )


def training(setting: Setting) -> Finding:
    times, memory = training_curves(setting)
    explicit_time, fused_time, lstm_time = (curve.slope for curve in times)
    explicit_memory, fused_memory, lstm_memory = (curve.slope for curve in memory)
    lengths = times[0].lengths
    # The products grow with n², the projections around them with n; past what caches hold, either may grow faster.
    holds = 1.5 < explicit_time < 2.5 and 1.8 < explicit_memory < 2.2
    verdict: Verdict = "measured" if lengths[-1] < ENOUGH else "held" if holds else "did not hold"
    so = IN_THE_FORMULA if fused_memory < 1.5 else Words(" as well", "，同样如此")
    rows = [
        (one.name, f"n^{one.slope:.2f}", one.values[-1] * 1000, f"n^{kept.slope:.2f}", kept.values[-1])
        for one, kept in zip(times, memory, strict=True)
    ]
    return Finding(
        name="cost-training",
        claims=("M21",),
        title=Words("Attention costs n² in the length of a sentence", "注意力的开销与句长的平方成正比"),
        claim=Words(
            "Notes 001, 003 and 004: self-attention has to compute an n × n matrix, so that time and memory are O(n²).",
            "笔记 001、003、004：自注意力需要计算 n × n 的矩阵，时间和空间复杂度均为 O(n²)。",
        ),
        verdict=verdict,
        outcome=Words(
            f"Forward and backward up to n = {lengths[-1]:,}: on the explicit path time grows with n^{explicit_time:.2f} "
            f"(held: 1.5 to 2.5) and the bytes that are kept for the backward pass with n^{explicit_memory:.2f} (held: 1.8 "
            f"to 2.2; below n = {ENOUGH:,} nothing is decided). On the fused path, which training takes, memory grows with "
            f"n^{fused_memory:.2f} and time with n^{fused_time:.2f}{so.en}. The LSTM's time grows with n^{lstm_time:.2f}, "
            f"its memory with n^{lstm_memory:.2f}.",
            f"前向加反向，n 至 {lengths[-1]:,}：显式计算的时间按 n^{explicit_time:.2f} 增长（判据：1.5 至 2.5），为反向保留"
            f"的字节数按 n^{explicit_memory:.2f} 增长（判据：1.8 至 2.2；n 小于 {ENOUGH:,} 时不下结论）。训练所走的融合路"
            f"径，内存按 n^{fused_memory:.2f} 增长，时间按 n^{fused_time:.2f} 增长{so.zh}。LSTM 的时间按 "
            f"n^{lstm_time:.2f}、内存按 n^{lstm_memory:.2f} 增长。",
        ),
        tables=(
            Table(
                Words(
                    f"One layer of width {WIDTH}, one sentence; exponents from the last three lengths, numbers at n = "
                    f"{lengths[-1]:,}",
                    f"一层，宽 {WIDTH}，一个句子；指数取自最后三个长度，数值为 n = {lengths[-1]:,} 时",
                ),
                (
                    Words("layer", "层"),
                    Words("time", "时间"),
                    Words("ms", "毫秒"),
                    Words("memory kept", "保留的内存"),
                    Words("MiB", "MiB"),
                ),
                tuple(rows),
            ),
        ),
        charts=(
            _chart(Words("Time of a forward and a backward pass", "一次前向加反向的时间"), SECONDS, times),
            _chart(Words("What is kept for the backward pass", "为反向传播保留的内存"), Words("MiB", "MiB"), memory),
        ),
        seeds=(setting.seed,),
    )


@torch.no_grad()
def decoded_with_cache(model: Transformer, src: Tensor, length: int) -> Tensor:
    """Greedily, as many tokens as are wanted."""
    cache = model.start(src)
    ids = torch.ones(1, dtype=torch.long, device=src.device)
    written = []
    for _ in range(length):
        ids = model.step(ids, cache).argmax(-1)
        written.append(ids)
    return torch.cat(written)


@torch.no_grad()
def decoded_without(model: Transformer, src: Tensor, length: int) -> Tensor:
    """The same, with the decoder run anew over all that is written, for each token."""
    memory, mask = model.encode(src), model.padding_mask(src)
    ids = torch.ones(1, 1, dtype=torch.long, device=src.device)
    for _ in range(length):
        state = model.decode(ids, memory, mask)[:, -1]
        ids = torch.cat([ids, model.project(state).argmax(-1, keepdim=True)], dim=1)
    return ids[0, 1:]


def decoding(setting: Setting) -> Finding:
    torch.manual_seed(setting.seed)
    device, end = torch.device(setting.device), time.monotonic() + setting.seconds
    model = Transformer(ModelConfig.preset("tiny", vocab_size=100)).to(device).eval()
    src = torch.randint(1, 100, (1, 20), device=device)
    ways = (
        (Words("with a cache", "有缓存"), decoded_with_cache),
        (Words("prefix run anew", "重算前缀"), decoded_without),
    )
    times: list[list[float]] = [[] for _ in ways]
    lengths: list[int] = []
    length, last_round, same = 16, 0.0, True
    most = MOST_TOKENS if device.type == "cpu" else 4 * MOST_TOKENS
    while length <= most and (len(lengths) < 3 or time.monotonic() + NEXT_ROUND * last_round < end):
        began = time.monotonic()
        for number, (_, way) in enumerate(ways):
            times[number].append(seconds_of(partial(way, model, src, length), device))
        same &= torch.equal(*(way(model, src, length) for _, way in ways))
        lengths.append(length)
        length, last_round = 2 * length, time.monotonic() - began
    curves = [Curve(name, tuple(lengths), tuple(of_way)) for (name, _), of_way in zip(ways, times, strict=True)]
    cached, anew = curves
    gain = anew.values[-1] / cached.values[-1]
    holds = same and anew.slope > cached.slope + 0.2 and gain > 1
    verdict: Verdict = "measured" if lengths[-1] < ENOUGH_TOKENS else "held" if holds else "did not hold"
    return Finding(
        name="cost-decoding",
        claims=("M21", "T1"),
        title=Words("Decoding goes step by step; a cache makes the steps cheap", "解码逐步进行；缓存使每步便宜"),
        claim=Words(
            "Note 004: in inference, 20 tokens take 20 rounds, each with an input one token longer. (Keys and values of "
            "what is written do not change, so a cache need not compute them again: the same tokens for less.)",
            "笔记 004：预测阶段，20 个 token 需要重复 20 次循环，每次输入多一个 token。（已写出部分的键和值不会改变，用缓"
            "存就不必重算：结果相同，开销更小。）",
        ),
        verdict=verdict,
        outcome=Words(
            f"Both ways write {'the same tokens' if same else 'different tokens'}, one step for each. Up to n = "
            f"{lengths[-1]} tokens, time grows with n^{cached.slope:.2f} with a cache and n^{anew.slope:.2f} without "
            f"(held: 0.2 more); the last is {gain:.1f} times as fast with it. Steps must wait for each other; within a "
            "step, heads, beams and the sentences of a batch do not.",
            f"两种方式写出的 token {'相同' if same else '不同'}，每个一步。直到 n = {lengths[-1]}，有缓存时时间按 "
            f"n^{cached.slope:.2f} 增长，没有则按 n^{anew.slope:.2f}（判据：大 0.2）；最后一个长度上快 {gain:.1f} 倍。各步"
            "必须依次等待；同一步内，各个头、各条束和同批的句子可以并行。",
        ),
        tables=(
            Table(
                Words("Seconds for n tokens, tiny preset, one sentence", "写出 n 个 token 的秒数，tiny 模型，一个句子"),
                (Words("n", "n"), *(curve.name for curve in curves)),
                tuple((n, *(curve.values[at] for curve in curves)) for at, n in enumerate(lengths)),
            ),
        ),
        charts=(_chart(Words("Time to write n tokens", "写出 n 个 token 的时间"), SECONDS, curves),),
        seeds=(setting.seed,),
    )


def longest_chain(output: Tensor) -> int:
    """How many operations, at most, had to wait for one another: the longest way back through autograd's graph."""
    assert output.grad_fn is not None
    depth: dict[torch.autograd.graph.Node, int] = {}
    waiting = [output.grad_fn]
    while waiting:
        node = waiting[-1]
        before = [one for one, _ in node.next_functions if one is not None]
        if unknown := [one for one in before if one not in depth]:
            waiting += unknown
        else:
            depth[node] = 1 + max((depth[one] for one in before), default=0)
            waiting.pop()
    return depth[output.grad_fn]


def waiting(setting: Setting) -> Finding:
    torch.manual_seed(setting.seed)
    lengths = (2, 4, 8, 16, 32, 64)
    attention = SelfAttention(WIDTH, NUM_HEADS, dropout=0.0, site="encoder", layer=0)
    cell = nn.LSTMCell(WIDTH, WIDTH)

    def recurrent(x: Tensor) -> Tensor:
        state = (torch.zeros(1, WIDTH), torch.zeros(1, WIDTH))
        for t in range(x.shape[1]):
            state = cell(x[:, t], state)
        return state[0]

    inputs = [torch.randn(1, length, WIDTH, requires_grad=True) for length in lengths]
    attended = [longest_chain(attention(x, recorder=Recorder(Intervention()))) for x in inputs]
    recurred = [longest_chain(recurrent(x)) for x in inputs]
    per_step = (recurred[-1] - recurred[0]) / (lengths[-1] - lengths[0])
    holds = len(set(attended)) == 1 and per_step >= 1
    return Finding(
        name="waiting",
        claims=("M21",),
        title=Words(
            "An RNN's steps wait for each other, attention's positions do not", "RNN 的每一步都要等上一步，注意力不必"
        ),
        claim=Words(
            "Notes 001, 003 and 004: an RNN's state at t needs that at t − 1, so that steps cannot be computed in "
            "parallel; attention computes all positions at once.",
            "笔记 001、003、004：RNN 在时刻 t 的状态依赖时刻 t − 1，无法并行；注意力则同时计算所有位置。",
        ),
        verdict="held" if holds else "did not hold",
        outcome=Words(
            f"The longest chain of operations that wait for one another is {attended[0]} in attention at every length, and "
            f"grows by {per_step:.0f} with each word in an LSTM, to {recurred[-1]} at {lengths[-1]} words (counted in "
            "autograd's graph; held: constant, and at least 1 a word).",
            f"必须依次等待的最长运算链：注意力在任何长度都是 {attended[0]}；LSTM 每多一个词增加 {per_step:.0f}，"
            f"{lengths[-1]} 个词时为 {recurred[-1]}（在自动求导图中计数；判据：前者不变，后者每词至少 1）。",
        ),
        charts=(
            LineChart(
                Words("Operations that wait for one another", "必须依次等待的运算"),
                Words("words", "词数"),
                Words("longest chain", "最长链"),
                (
                    Series(Words("attention", "注意力"), y=tuple(map(float, attended)), x=tuple(map(float, lengths))),
                    Series(Words("LSTM", "LSTM"), y=tuple(map(float, recurred)), x=tuple(map(float, lengths))),
                ),
                log_x=True,
                log_y=True,
            ),
        ),
        seeds=(setting.seed,),
    )
