"""Measures how the time, memory and sequential steps of attention and of an RNN grow with the length of a sentence."""

import math
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from regard.config import ModelConfig
from regard.lab.experiment import Setting
from regard.lab.result import LineData, Result, SeriesData, TableData, Term
from regard.machine.device import synchronize
from regard.model.attention import SelfAttention
from regard.model.trace import Intervention, Recorder
from regard.model.transformer import Transformer

WIDTH, NUM_HEADS = 64, 1
# Its scores take 16 MiB. From 32 MiB on, a CPU spends most of its time on allocating memory, not on arithmetic
# (EXPERIMENTS.md). A GPU goes on to eight times the length.
LONGEST = 2048
ENOUGH = 1024  # shortest length from which quadratic terms outweigh linear ones; below it, no verdict
ENOUGH_TOKENS = 256  # shortest length from which decoding has a verdict
MOST_TOKENS = 512  # on a GPU four times as many
ROUNDS = 5  # of which the fastest counts, because disturbances only slow a measurement down
NEXT_ROUND = 4.5  # estimated time of a round relative to the last one, which had half the length
Layer = Callable[[Tensor], Tensor]


def layers(device: torch.device) -> list[tuple[str, Layer, tuple[nn.Parameter, ...]]]:
    """Return our attention on both paths, and torch's LSTM, all of the same width."""
    attention = SelfAttention(WIDTH, NUM_HEADS, dropout=0.0, site="encoder", layer=0).to(device)
    lstm = nn.LSTM(WIDTH, WIDTH, batch_first=True).to(device)
    weights = tuple(attention.parameters())
    return [
        ("explicit", lambda x: attention(x, recorder=Recorder(Intervention())), weights),
        ("fused", attention, weights),
        ("lstm", lambda x: lstm(x)[0], tuple(lstm.parameters())),
    ]


def kept_bytes(layer: Layer, x: Tensor, parameters: Sequence[Tensor]) -> int:
    """Count the bytes that the forward pass keeps for the backward pass, without parameters and the input."""
    known = {one.untyped_storage().data_ptr() for one in (*parameters, x)}
    kept: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in known:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        output = layer(x)  # kept alive until all are counted, so that no address is used twice
    assert output.requires_grad
    return sum(kept.values())


def update(layer: Layer, x: Tensor) -> None:
    """Run forward and backward."""
    layer(x).sum().backward()


def seconds_of(work: Callable[[], object], device: torch.device) -> float:
    """Return the fastest time of several rounds, after a warm-up."""
    taken = []
    for _ in range(ROUNDS + 1):
        synchronize(device)
        began = time.perf_counter()
        work()
        synchronize(device)
        taken.append(time.perf_counter() - began)
    return min(taken[1:])


def doubled_lengths(shortest: int, longest: int, seconds: float) -> Iterator[int]:
    """Yield lengths, each twice the last: at least three, and more while the next round is likely to fit into the time."""
    end, last_round = time.monotonic() + seconds, 0.0
    length = shortest
    while length <= longest and (length < 8 * shortest or time.monotonic() + NEXT_ROUND * last_round < end):
        began = time.monotonic()
        yield length
        length, last_round = 2 * length, time.monotonic() - began


def slope(lengths: Sequence[int], values: Sequence[float]) -> float:
    """Return the exponent p of the n^p that fits the last three values, by least squares on their logarithms."""
    return statistics.linear_regression([math.log(n) for n in lengths[-3:]], [math.log(y) for y in values[-3:]]).slope


@dataclass(frozen=True)
class Curve:
    name: str
    lengths: Sequence[int]
    values: Sequence[float]

    @property
    def slope(self) -> float:
        return slope(self.lengths, self.values)

    def series(self) -> SeriesData:
        return SeriesData(Term("growth", {"name": Term(self.name), "slope": self.slope}), self.values, self.lengths)


def chart(curves: Sequence[Curve]) -> LineData:
    return LineData([curve.series() for curve in curves], log_x=True, log_y=True)


def training_curves(setting: Setting) -> tuple[list[Curve], list[Curve]]:
    """Measure seconds and MiB of one layer, forward and backward, for one sentence of each length that there is time for."""
    torch.manual_seed(setting.seed)
    device = torch.device(setting.device)
    measured = layers(device)
    times: list[list[float]] = [[] for _ in measured]
    memory: list[list[float]] = [[] for _ in measured]
    lengths: list[int] = []
    for length in doubled_lengths(64, LONGEST if device.type == "cpu" else 8 * LONGEST, setting.seconds):
        x = torch.randn(1, length, WIDTH, device=device, requires_grad=True)
        for number, (_, layer, parameters) in enumerate(measured):
            memory[number].append(kept_bytes(layer, x, parameters) / 2**20)
            times[number].append(seconds_of(partial(update, layer, x), device))
        lengths.append(length)

    def curves(of_layers: list[list[float]]) -> list[Curve]:
        return [Curve(name, lengths, of_layer) for (name, _, _), of_layer in zip(measured, of_layers, strict=True)]

    return curves(times), curves(memory)


def training(setting: Setting) -> Result:
    times, memory = training_curves(setting)
    time_slopes, memory_slopes = ({curve.name: curve.slope for curve in curves} for curves in (times, memory))
    longest = times[0].lengths[-1]
    # The products grow with n², the projections with n; beyond the size of caches, either may grow faster.
    holds = 1.5 < time_slopes["explicit"] < 2.5 and 1.8 < memory_slopes["explicit"] < 2.2
    rows = [
        (Term(one.name), f"n^{one.slope:.2f}", one.values[-1] * 1000, f"n^{kept.slope:.2f}", kept.values[-1])
        for one, kept in zip(times, memory, strict=True)
    ]
    return Result(
        "measured" if longest < ENOUGH else "held" if holds else "did not hold",
        {
            "longest": longest,
            "enough": ENOUGH,
            "width": WIDTH,
            "time": time_slopes,
            "memory": memory_slopes,
            "so": Term("of-the-formula" if memory_slopes["fused"] < 1.5 else "as-well"),
        },
        tables={"growth": TableData(rows)},
        charts={"time": chart(times), "memory": chart(memory)},
        seeds=(setting.seed,),
    )


@torch.no_grad()
def decoded_with_cache(model: Transformer, src: Tensor, length: int) -> Tensor:
    """Decode greedily for `length` tokens, with a cache."""
    cache = model.start(src)
    ids = torch.ones(1, dtype=torch.long, device=src.device)
    written = []
    for _ in range(length):
        ids = model.step(ids, cache).argmax(-1)
        written.append(ids)
    return torch.cat(written)


@torch.no_grad()
def decoded_without(model: Transformer, src: Tensor, length: int) -> Tensor:
    """Decode greedily for `length` tokens, running the decoder over the whole prefix at each step."""
    memory, mask = model.encode(src), model.padding_mask(src)
    ids = torch.ones(1, 1, dtype=torch.long, device=src.device)
    for _ in range(length):
        state = model.decode(ids, memory, mask)[:, -1]
        ids = torch.cat([ids, model.project(state).argmax(-1, keepdim=True)], dim=1)
    return ids[0, 1:]


def decoding(setting: Setting) -> Result:
    torch.manual_seed(setting.seed)
    device = torch.device(setting.device)
    model = Transformer(ModelConfig.preset("tiny", vocab_size=100)).to(device).eval()
    src = torch.randint(1, 100, (1, 20), device=device)
    ways = (("cached", decoded_with_cache), ("anew", decoded_without))
    times: list[list[float]] = [[] for _ in ways]
    lengths: list[int] = []
    same = True
    for length in doubled_lengths(16, MOST_TOKENS if device.type == "cpu" else 4 * MOST_TOKENS, setting.seconds):
        for number, (_, way) in enumerate(ways):
            times[number].append(seconds_of(partial(way, model, src, length), device))
        same &= torch.equal(*(way(model, src, length) for _, way in ways))
        lengths.append(length)
    curves = [Curve(name, lengths, of_way) for (name, _), of_way in zip(ways, times, strict=True)]
    cached, anew = curves
    gain = anew.values[-1] / cached.values[-1]
    holds = same and anew.slope > cached.slope + 0.2 and gain > 1
    return Result(
        "measured" if lengths[-1] < ENOUGH_TOKENS else "held" if holds else "did not hold",
        {
            "tokens": Term("same" if same else "different"),
            "longest": lengths[-1],
            "slope": {curve.name: curve.slope for curve in curves},
            "gain": gain,
        },
        tables={"seconds": TableData(list(zip(lengths, cached.values, anew.values, strict=True)))},
        charts={"time": chart(curves)},
        seeds=(setting.seed,),
    )


def longest_chain(output: Tensor) -> int:
    """Return the length of the longest path back through autograd's graph, whose operations cannot run in parallel."""
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


def waiting(setting: Setting) -> Result:
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
    series = [SeriesData(Term("attention"), attended, lengths), SeriesData("LSTM", recurred, lengths)]
    return Result(
        "held" if holds else "did not hold",
        {"attended": attended[0], "per_step": per_step, "recurred": recurred[-1], "longest": lengths[-1]},
        charts={"chains": LineData(series, log_x=True, log_y=True)},
        seeds=(setting.seed,),
    )
