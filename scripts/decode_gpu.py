"""Compare searches with static shapes, CUDA graphs and our own kernels with plain searches: outputs and time.

    python scripts/decode_gpu.py [RUN] [--sentences 512] [--places 1 128] [--device cuda]

Without a run, it uses a random model of the base size (vocabulary 16,000) and random sources with the lengths of the Kyoto
corpus; outputs end at their limits, about as long as their sources. A part that fails reports its error; the others run.
"""

import argparse
import itertools
import random
import time
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from regard.bench.origin import origin
from regard.config import ModelConfig
from regard.fast.decoding.batching import ContinuousBatching
from regard.fast.decoding.decoder import Extent, StaticDecoder, positions_for
from regard.fast.decoding.search import StaticSearch
from regard.fast.support import runs_kernels
from regard.machine.device import find_device, synchronize
from regard.model.transformer import Transformer
from regard.search.hypothesis import TIE, Hypothesis, Sentence
from regard.text.tokenizer import EOS_ID
from regard.translate.search import Search, Searcher
from regard.translate.translator import load

VOCAB_SIZE = 16_000
BEAMS = (4, 1)  # a width of 1 is greedy search
AGAIN = {"plain": 0, "static": 1, "graphs": 3, "kernels": 3}  # repetitions after the first

Found = list[list[Hypothesis]]


def random_model(device: torch.device) -> Transformer:
    """Return a model of the base size, with weights large enough that probabilities differ and output lengths vary."""
    torch.manual_seed(1)
    config = ModelConfig.preset("base", vocab_size=VOCAB_SIZE)
    model = Transformer(config).eval().requires_grad_(False)
    for name, parameter in model.named_parameters():
        if "embedding" in name:
            parameter.mul_(3.0)
    model.embeddings.output_weight[EOS_ID].mul_(1.5)
    return model.to(device)


def random_sentences(count: int, vocab_size: int) -> list[Sentence]:
    """Return random sentences of 28 tokens on average and up to 120, whose outputs are limited to about as many."""
    chance = random.Random(1)
    sentences = []
    for _ in range(count):
        length = min(120, max(3, round(chance.gammavariate(2.2, 28 / 2.2))))
        ids = [chance.randrange(4, vocab_size) for _ in range(length)]
        sentences.append(Sentence(ids, min(128, max(3, round(length * chance.uniform(0.7, 1.4))))))
    return sentences


def differences(found: Found, expected: Found) -> tuple[int, int]:
    """Count the sentences whose best hypothesis differs and, among these, those whose score differs too."""
    others = [(ours[0], theirs[0]) for ours, theirs in zip(found, expected, strict=True) if ours[0].ids != theirs[0].ids]
    return len(others), sum(abs(one.score - other.score) > TIE for one, other in others)


def timed(work: Callable[[], Found], device: torch.device) -> tuple[float, Found]:
    synchronize(device)
    began = time.perf_counter()
    found = work()
    synchronize(device)
    return time.perf_counter() - began, found


def in_batches(searcher: Searcher, sentences: list[Sentence], width: int, batch: int) -> Found:
    found: Found = [[] for _ in sentences]
    order = sorted(range(len(sentences)), key=lambda number: len(sentences[number].ids))
    for begin in range(0, len(order), batch):
        numbers = order[begin : begin + batch]
        results = searcher.search([sentences[number] for number in numbers], Search(beam=width, alpha=0.0))
        for number, result in zip(numbers, results, strict=True):
            found[number] = result
    return found


def compare(model: Transformer, sentences: list[Sentence], width: int, places: int) -> None:
    """Compare the plain search with static shapes, with and without CUDA graphs and our own kernels: outputs, and tokens a
    second."""
    device = model.output_weight.device
    some = sentences[:: len(sentences) // 16] if places == 1 else sentences
    roads: dict[str, Callable[[], Found]] = {}
    graphs, eager = StaticSearch(model, kernels=False), StaticSearch(model, graphs=False, kernels=False)
    kernels = StaticSearch(model)
    roads["plain"] = lambda: in_batches(Searcher((model,), fast=False), some, width, places)
    roads["static"] = lambda: eager.search(some, width=width, alpha=0.0, num_places=places)
    if device.type == "cuda":
        roads["graphs"] = lambda: graphs.search(some, width=width, alpha=0.0, num_places=places)
        roads["kernels"] = lambda: kernels.search(some, width=width, alpha=0.0, num_places=places)
    expected: Found = []
    for name, work in roads.items():
        try:
            first, found = timed(work, device)
            rounds = [timed(work, device) for _ in range(AGAIN[name])] or [(first, found)]
        except Exception:
            traceback.print_exc()
            continue
        seconds, found = min(rounds, key=lambda one: one[0])
        expected = expected or found
        num_tokens = sum(len(ones[0].ids) + 1 for ones in found)
        other, worse = differences(found, expected)
        print(
            f"  {name:8}{num_tokens / seconds:12,.0f} tokens/s  first time {first:6.2f} s, then {seconds:6.2f} s  "
            f"{other} of {len(some)} outputs are others, {worse} of another score",
            flush=True,
        )
    for decoder in graphs.decoders.values():
        if decoder.graphs is not None:
            print(f"  {tuple(decoder.extent)}: {len(decoder.graphs.captured)} graphs of {len(decoder.graphs.warm)} shapes")


def step_times(model: Transformer, sentences: list[Sentence], width: int, places: int) -> None:
    """Time a single step mid-search without graphs, with them and with our own kernels, and profile the last."""
    device = model.output_weight.device
    roads = {"launched": (False, False)}
    if device.type == "cuda":
        roads |= {"replayed": (True, False), "replayed, our kernels": (True, runs_kernels(device))}
    some = (sentences * places)[:places]
    longest = max(len(sentence.ids) for sentence in some) + 1
    for num_positions in (32, 64, 128):
        window = Extent(places, positions_for(num_positions, 1024), max(32, 1 << (longest - 1).bit_length()))
        for road, (graphs, kernels) in roads.items():
            decoder = StaticDecoder.of(model, window, width=width, num_best=1, graphs=graphs, kernels=kernels)
            decoder.begin(0.0)
            sure = [Sentence(sentence.ids, num_positions - 1) for sentence in some]
            decoder.fill(range(places), decoder.encode(sure), range(places), sure)
            begun = max(0, num_positions - 30)  # 29 steps follow; sizes are multiples of 32: a usual past
            decoder.cache.lengths.fill_(begun)
            ages = torch.full((places,), begun, device=device)
            decoder.cache.ancestry.copy_(descent(ages, width, decoder.cache.num_positions))
            for _ in range(4):
                decoder.step(window)
            synchronize(device)
            began = time.perf_counter()
            for _ in range(20):
                decoder.step(window)
            launched = time.perf_counter() - began
            synchronize(device)
            taken = time.perf_counter() - began
            print(
                f"  {num_positions} positions, {road}: {taken / 20 * 1e3:.3f} ms a step, of which the host takes "
                f"{launched / 20 * 1e3:.3f} ms; in the end {int(decoder.state.is_done.sum())} places are done",
                flush=True,
            )
            if graphs and num_positions == 64:
                profile(partial(decoder.step, window))


def descent(lengths: torch.Tensor, width: int, num_positions: int) -> torch.Tensor:
    """Return the ancestry of beams that have been separate for up to eight positions, and were one beam before that."""
    positions = torch.arange(num_positions, device=lengths.device)
    slots = torch.arange(width, device=lengths.device)
    is_apart = positions >= lengths[:, None] - 8  # (B, T)
    chosen = torch.where(is_apart[:, None], slots[:, None], 0)  # (B, W, T): the slot that each beam reads at each position
    is_past = positions < lengths[:, None]
    return ((chosen[..., None] == slots) & is_past[:, None, :, None]).flatten(2)


def profile(work: Callable[[], None], num_steps: int = 5) -> None:
    """Print the kernels that take longest."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as found:
        for _ in range(num_steps):
            work()
        torch.cuda.synchronize()
    rows = sorted(found.key_averages(), key=lambda row: -row.self_device_time_total)
    print(f"    {sum(row.count for row in rows) / num_steps:.0f} kernels a step, of these take longest:")
    for row in rows[:14]:
        per_step = row.self_device_time_total / num_steps
        print(f"    {per_step:8.1f} µs  {row.count / num_steps:6.1f} ×  {row.key[:100]}")


def kernel_times(device: torch.device) -> None:
    """Time operations over a vocabulary: the best k at once and by groups, argmax and log-softmax."""
    for rows, num_best in ((4, 8), (512, 8), (1, 2), (128, 2)):
        log_probs = torch.randn(rows, VOCAB_SIZE, device=device)
        ways: dict[str, Callable[[], object]] = {
            "at once": partial(log_probs.topk, num_best),
            "by groups": partial(grouped_topk, log_probs, num_best),
            "argmax": partial(log_probs.argmax, -1),
            "log-softmax": partial(log_probs.log_softmax, -1),
        }
        print(f"  best {num_best} of {rows} × {VOCAB_SIZE}: {times_of(ways, device)}", flush=True)


def attention_times(device: torch.device) -> None:
    """Compare one layer's attention by torch's kernels and by ours, for several block sizes and lengths of the past: time
    and largest difference. The time that torch needs to write keys and values is not included."""
    from regard.fast.kernels import decoding

    for places, width, num_positions in itertools.product((128, 1), (4, 1), (32, 64, 128)):
        num_slots = num_positions * width
        lengths = torch.randint(num_positions // 2, num_positions - 1, (places,), device=device)
        ancestry = descent(lengths, width, num_positions)
        q, new_k, new_v = torch.randn(3, places, 8, width, 64, device=device)
        keys, values = torch.randn(2, places, num_slots, 8, 64, device=device)
        own = lengths[:, None] * width + torch.arange(width, device=device)
        past = partial(decoding.attend_to_past, q, new_k, new_v, keys, values, ancestry=ancestry, lengths=lengths)
        source = partial(decoding.attend_to_source, q, keys, values, lengths=lengths)
        ours = {"past": past(), "source": source()}
        is_source = torch.arange(num_slots, device=device) < lengths[:, None]
        masks = {
            "past": ancestry.scatter(2, own[:, :, None], True)[:, None].float().log(),
            "source": is_source[:, None, None].expand(-1, 1, width, -1).float().log(),
        }
        for name, mask in masks.items():
            k, v = keys.transpose(1, 2), values.transpose(1, 2)
            exact = attended(SDPBackend.MATH, q.double(), k.double(), v.double(), mask.double())
            theirs = attended(SDPBackend.EFFICIENT_ATTENTION, q, k, v, mask)
            errors = [
                float((found.double() - exact.transpose(1, 2).flatten(2)).abs().max())
                for found in (ours[name], theirs.transpose(1, 2).flatten(2))
            ]
            ways: dict[str, Callable[[], object]] = {
                "torch's": partial(attended, SDPBackend.EFFICIENT_ATTENTION, q, k, v, mask)
            }
            for scores, warps in ((32, 2), (32, 4), (64, 2), (64, 4), (128, 4), (128, 8)):
                ways[f"{scores}/{warps}"] = partial(with_blocks, scores, warps, past if name == "past" else source)
            print(
                f"  {name}, {places} × {width} queries, {num_slots} slots, largest error {errors[0]:.1e} (torch's "
                f"{errors[1]:.1e}): {times_of(ways, device)}",
                flush=True,
            )


def with_blocks(scores: int, warps: int, work: Callable[[], object]) -> None:
    """Run our kernels with other block sizes than their constants."""
    from regard.fast.kernels import decoding

    kept = decoding.SCORES, decoding.WARPS
    decoding.SCORES, decoding.WARPS = scores, warps
    try:
        work()
    finally:
        decoding.SCORES, decoding.WARPS = kept


def times_of(ways: dict[str, Callable[[], object]], device: torch.device) -> str:
    return ", ".join(f"{name} {microseconds(way, device):.1f} µs" for name, way in ways.items())


def attended(kernel: SDPBackend, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    with sdpa_kernel(kernel):
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


def grouped_topk(log_probs: torch.Tensor, num_best: int, size: int = 128) -> torch.Tensor:
    """Return the top k, which lie within the groups that have the k greatest maxima."""
    groups: torch.Tensor = log_probs.unflatten(1, (-1, size))  # 16,000 = 125 · 128
    places = groups.amax(2).topk(num_best, dim=1).indices
    few = groups.gather(1, places[:, :, None].expand(-1, -1, size)).flatten(1)
    return few.topk(num_best, dim=1).values


def microseconds(work: Callable[[], object], device: torch.device, times: int = 50) -> float:
    """Measure time on the device without launch overhead, by replaying a CUDA graph of many calls."""
    for _ in range(3):
        work()
    synchronize(device)
    if device.type != "cuda":
        began = time.perf_counter()
        work()
        return (time.perf_counter() - began) * 1e6
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(times):
            work()
    graph.replay()
    synchronize(device)
    began = time.perf_counter()
    graph.replay()
    synchronize(device)
    return (time.perf_counter() - began) / times * 1e6


def queue_overhead(model: Transformer, sentences: list[Sentence], width: int, places: int) -> None:
    """Print the host's view of where the time of a whole queue goes."""
    import cProfile
    import pstats

    searcher = StaticSearch(model)
    for _ in range(2):
        searcher.search(sentences, width=width, alpha=0.0, num_places=places)
    [decoder] = searcher.decoders.values()
    queue = ContinuousBatching(decoder, sentences, num_places=min(places, decoder.extent.num_places), alpha=0.0)
    profiler = cProfile.Profile()
    with torch.no_grad(), profiler:
        queue.run()
    print(f"  {queue.step} steps")
    pstats.Stats(profiler).sort_stats("cumulative").print_stats(22)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, nargs="?", help="a run's folder; without one, random weights")
    parser.add_argument("--sentences", type=int, default=512)
    parser.add_argument("--places", type=int, nargs="+", default=[1, 128], help="sentences at once")
    parser.add_argument("--device", default="cuda")
    options = parser.parse_args()
    device = find_device(options.device)
    print(origin(device), flush=True)
    model = random_model(device)
    if options.run is not None:
        [loaded] = load(options.run, device=options.device).models
        assert isinstance(loaded, Transformer)
        model = loaded
    sentences = random_sentences(options.sentences, model.config.src_vocab_size)
    parts: list[tuple[str, Callable[[], None]]] = []
    for width, places in itertools.product(BEAMS, options.places):
        title = f"{'greedy' if width == 1 else f'beam {width}'}, {places} at once"
        parts += [
            (title, partial(compare, model, sentences, width, places)),
            (f"steps: {title}", partial(step_times, model, sentences, width, places)),
        ]
    parts.append(("kernels", partial(kernel_times, device)))
    if runs_kernels(device):
        parts.insert(0, ("attention", partial(attention_times, device)))
    parts.append(("the host, beam 4, 128 at once", partial(queue_overhead, model, sentences, 4, 128)))
    for title, part in parts:
        print(title, flush=True)
        try:
            part()
        except Exception:
            traceback.print_exc()


if __name__ == "__main__":
    main()
