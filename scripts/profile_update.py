"""Profile a training update.

    python scripts/profile_update.py prepared --device cuda --preset small

It prints the time of each part of an update by itself, on the corpus that `regard prepare` wrote to the folder, and then the
Python functions in which a few updates spend their time.
"""

import argparse
import cProfile
import pstats
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from regard.config import TRAIN_PRESETS, ModelConfig, TrainConfig, model_preset
from regard.data.stream import Place
from regard.fast.training.layout import PackLayout
from regard.machine.device import find_device, synchronize
from regard.machine.processes import Processes
from regard.text.tokenizer import Tokenizer
from regard.train.learner import Learner
from regard.train.plan import open_stream, settled
from regard.train.totals import Totals


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("prepared", type=Path)
    parser.add_argument("--preset", default="small")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--times", type=int, default=20)
    options = parser.parse_args()
    device = find_device(options.device)
    tokenizer = Tokenizer.load(options.prepared)
    train = TrainConfig(**TRAIN_PRESETS[options.preset], steps=1000, device=options.device, accumulation=1, compile="off")
    train = settled(train, open_stream(options.prepared, train, tokenizer), 1)
    model = ModelConfig(
        src_vocab_size=len(tokenizer.src),
        tgt_vocab_size=len(tokenizer.tgt),
        shared_embeddings="all" if tokenizer.is_shared else "target",
        **model_preset(options.preset),
    )
    stream = open_stream(options.prepared, train, tokenizer)
    learner, totals = Learner(model, train, device, Processes()), Totals(device)
    batch = stream.batch(Place(0, 0)).padded()
    of_any_length = replace(stream, packed=True)
    layout = PackLayout(*of_any_length.packed_size(), model.src_vocab_size, model.tgt_vocab_size, model.pad_id)

    def timed(what: str, work: Callable[[], object]) -> None:
        work()
        synchronize(device)
        began = time.perf_counter()
        for _ in range(options.times):
            work()
        synchronize(device)
        print(f"{what:24} {1000 * (time.perf_counter() - began) / options.times:8.2f} ms")

    shapes = f"sources {tuple(batch.src.shape)}, targets {tuple(batch.tgt_in.shape)}"
    print(f"{options.preset} on {device}, {train.precision}; {shapes}")
    timed("padding", lambda: stream.batch(Place(0, 0)).padded())
    timed("packing instead", lambda: layout.pack(of_any_length.batch(Place(0, 0))))
    timed("forward", lambda: learner.loss(batch))
    timed("forward and backward", lambda: learner.loss(batch).total.backward())  # noqa: PLW0108 - a new graph each time
    timed("a whole update", lambda: learner.update([(0, batch)], totals))
    profile = cProfile.Profile()
    profile.enable()
    for position in range(options.times):
        learner.update([(0, stream.batch(Place(0, position % len(stream.epoch(0)))).padded())], totals)
    synchronize(device)
    profile.disable()
    pstats.Stats(profile).sort_stats("tottime").print_stats(15)


if __name__ == "__main__":
    main()
