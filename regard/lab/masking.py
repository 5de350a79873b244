"""Examines how outputs depend on the order of words and, under a causal mask, on later inputs."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.config import ModelConfig
from regard.lab.experiment import Setting
from regard.lab.result import HeatData, LineData, Result, SeriesData, TableData
from regard.model.trace import Intervention, Recorder
from regard.model.transformer import Transformer

VOCAB_SIZE, LENGTH = 100, 10


def model_of(seed: int, dtype: torch.dtype = torch.float64) -> Transformer:
    """Return a tiny model with random weights."""
    torch.manual_seed(seed)
    return Transformer(ModelConfig.preset("tiny", vocab_size=VOCAB_SIZE)).to(dtype).eval()


def distinct_ids(seed: int, length: int = LENGTH) -> Int[Tensor, "1 T"]:
    """Return distinct random tokens without padding."""
    return 1 + torch.randperm(VOCAB_SIZE - 1, generator=torch.Generator().manual_seed(seed))[None, :length]


def shuffled_distances(seed: int, *, positions: bool) -> Float[Tensor, "T T"]:
    """Return the distance of each output of a sentence from each output of the same words shuffled, in the sentence's order,
    so that the diagonal compares each word with itself."""
    model, ids = model_of(seed), distinct_ids(seed)
    order = torch.randperm(LENGTH, generator=torch.Generator().manual_seed(seed + 1000))
    intervention = Intervention(positions=positions)
    before = model.trace(ids, ids, intervention).memory[0]
    after = model.trace(ids[:, order], ids, intervention).memory[0]
    return torch.cdist(before, after[order.argsort()], compute_mode="donot_use_mm_for_euclid_dist")


def shuffle(setting: Setting) -> Result:
    seeds = setting.seeds(5)
    without = torch.stack([shuffled_distances(seed, positions=False) for seed in seeds])
    with_them = torch.stack([shuffled_distances(seed, positions=True) for seed in seeds])
    largest, typical = float(without.diagonal(dim1=1, dim2=2).max()), float(with_them.diagonal(dim1=1, dim2=2).mean())
    rows = [
        (seed, float(a.diagonal().max()), float(b.diagonal().mean()))
        for seed, a, b in zip(seeds, without, with_them, strict=True)
    ]
    return Result(
        "held" if largest < 1e-9 and typical > 0.1 else "did not hold",
        {"largest": largest, "typical": typical, "seeds": len(seeds)},
        tables={"moves": TableData(rows)},
        charts={"without": _picture(without[0]), "with": _picture(with_them[0])},
        seeds=seeds,
    )


def influence(seed: int, *, causal: bool, length: int = LENGTH) -> Float[Tensor, "T T"]:
    """Return |∂state_i/∂embedding_j| of the decoder. Since tokens are distinct, each row of the embedding's gradient is that
    of one input."""
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


def causality(setting: Setting) -> Result:
    seeds = setting.seeds(3)
    masked = torch.stack([influence(seed, causal=True) for seed in seeds])
    open_ = influence(setting.seed, causal=False)
    later = float(masked.triu(1).abs().max())
    earlier = float(masked[:, *torch.tril_indices(LENGTH, LENGTH)].min())
    unmasked = float(open_[*torch.triu_indices(LENGTH, LENGTH, 1)].min())
    return Result(
        "held" if later == 0.0 and earlier > 0.0 and unmasked > 0.0 else "did not hold",
        {"later": later, "earlier": earlier, "unmasked": unmasked, "seeds": len(seeds)},
        charts={"masked": _picture(masked[0]), "open": _picture(open_)},
        seeds=seeds,
    )


def _picture(values: Float[Tensor, "R C"]) -> HeatData:
    """Return a heat map of the values, rounded to four digits."""
    return HeatData([[float(f"{value:.4g}") for value in row] for row in values.tolist()])


@torch.no_grad()
def step_differences(seed: int, dtype: torch.dtype, length: int) -> tuple[list[float], list[float]]:
    """Return the largest difference of log-probabilities at each position: of one pass from steps with a cache, and from a
    pass over the prefix alone."""
    model, src, tgt_in = model_of(seed, dtype), distinct_ids(seed, length), distinct_ids(seed + 1, length)
    at_once = model(src, tgt_in).log_softmax(-1)[0]  # (T, V)
    cache = model.start(src)
    steps, prefixes = [], []
    for t in range(length):
        steps.append(float((model.step(tgt_in[:, t], cache)[0] - at_once[t]).abs().max()))
        prefix = model(src, tgt_in[:, : t + 1]).log_softmax(-1)[0, -1]
        prefixes.append(float((prefix - at_once[t]).abs().max()))
    return steps, prefixes


def one_pass(setting: Setting) -> Result:
    seeds, length = setting.seeds(3), 40
    kinds = {"float32": torch.float32, "float64": torch.float64}
    found = {name: [step_differences(seed, dtype, length) for seed in seeds] for name, dtype in kinds.items()}
    largest = {name: [max(max(one[way]) for one in found[name]) for way in range(2)] for name in kinds}
    curves = [
        SeriesData(name, [max(1e-17, *(one[0][t] for one in found[name])) for t in range(length)], range(length))
        for name in kinds
    ]
    return Result(
        "held" if max(largest["float64"]) < 1e-9 and max(largest["float32"]) < 1e-3 else "did not hold",
        {
            "length": length,
            "seeds": len(seeds),
            "steps": {name: largest[name][0] for name in kinds},
            "prefixes": {name: largest[name][1] for name in kinds},
        },
        tables={"largest": TableData([(name, *largest[name]) for name in kinds])},
        charts={"steps": LineData(curves, log_y=True)},
        seeds=seeds,
    )
