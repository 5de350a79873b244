"""The batches of an update, each a function of its place, so that any process can make them."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from regard.config import RunConfig, TrainConfig
from regard.data.batch import Drawn, of_similar_lengths, padded
from regard.data.stream import BatchStream, Place
from regard.data.windows import Stream
from regard.machine.device import num_cores
from regard.machine.processes import Processes
from regard.text.tokenizer import Tokenizer
from regard.train.plan import open_training_text
from regard.train.road import Layout

Batches = list[tuple[int, Any]]  # each with its number among those of all processes
MOST_WORKERS = 12


@dataclass(frozen=True)
class BatchMaker:
    """Makes the share of this process in the update that begins at a place."""

    stream: Stream
    accumulation: int
    processes: Processes
    layout: Layout | None  # of packed batches; None: they are padded

    @classmethod
    def opened(cls, run: Path, text: Path, config: RunConfig, processes: Processes, layout: Layout | None) -> "BatchMaker":
        stream = open_training_text(text, config.model, config.train, Tokenizer.load(run))
        return cls(stream, config.train.accumulation, processes, layout)

    def after(self, place: Place) -> Place:
        return self.stream.following(place, self.accumulation)[1]

    def __call__(self, place: Place) -> Batches:
        places, _ = self.stream.following(place, self.accumulation)
        rank, count = self.processes.rank, self.processes.count
        share = list(enumerate(places))[rank::count]
        drawn: list[tuple[int, Drawn]] = [(number, self.stream.batch(at)) for number, at in share]
        if self.layout is not None:
            return [(number, self.layout.pack(one)) for number, one in drawn]
        if isinstance(self.stream, BatchStream) and self.stream.packed:
            # A run that the kernels began goes on without them: cut its batches into pieces that need little padding.
            pieces = [piece for _, one in drawn for piece in of_similar_lengths(one, self.stream.batch_tokens)]
            drawn = [(rank + number * count, piece) for number, piece in enumerate(pieces)]
        return [(number, padded(one)) for number, one in drawn]


def num_workers(config: TrainConfig, device: torch.device, processes: Processes) -> int:
    """The number of processes that make batches ahead: none if a thread is fast enough, which it is unless a GPU would wait
    for BPE-dropout."""
    if config.bpe_dropout == 0.0 or device.type != "cuda" or os.name != "posix":
        return 0
    return max(0, min(MOST_WORKERS, num_cores() // processes.count - 1))
