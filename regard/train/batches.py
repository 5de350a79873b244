"""The batches of an update, as its learner takes them: functions of their place, so that anyone may make them."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from regard.config import RunConfig, TrainConfig
from regard.data.batch import Drawn, of_similar_lengths, packed, padded
from regard.data.stream import BatchStream, Place
from regard.data.windows import Stream
from regard.model.packing import Room
from regard.text.tokenizer import Tokenizer
from regard.train.device import num_cores
from regard.train.distributed import Processes
from regard.train.plan import open_training_text

Batches = list[tuple[int, Any]]  # each with its number among those of all processes
MOST_WORKERS = 12


@dataclass(frozen=True)
class BatchMaker:
    """Makes this process's share of the update that begins at a place."""

    stream: Stream
    accumulation: int
    processes: Processes
    room: Room | None  # of packed batches; without one they are padded

    @classmethod
    def opened(cls, run: Path, text: Path, config: RunConfig, processes: Processes, room: Room | None) -> "BatchMaker":
        stream = open_training_text(text, config.model, config.train, Tokenizer.load(run))
        return cls(stream, config.train.accumulation, processes, room)

    def after(self, place: Place) -> Place:
        return self.stream.following(place, self.accumulation)[1]

    def __call__(self, place: Place) -> Batches:
        places, _ = self.stream.following(place, self.accumulation)
        rank, count = self.processes.rank, self.processes.count
        share = list(enumerate(places))[rank::count]
        drawn: list[tuple[int, Drawn]] = [(number, self.stream.batch(at)) for number, at in share]
        if self.room is not None:
            return [(number, packed(one, self.room)) for number, one in drawn]
        if isinstance(self.stream, BatchStream) and self.stream.packed:
            # A run that our own kernels began goes on without them: of sentences of all lengths, those that pad little.
            pieces = [piece for _, one in drawn for piece in of_similar_lengths(one, self.stream.batch_tokens)]
            drawn = [(rank + number * count, piece) for number, piece in enumerate(pieces)]
        return [(number, padded(one)) for number, one in drawn]


def num_workers(config: TrainConfig, device: torch.device, processes: Processes) -> int:
    """Processes that make batches ahead: none, where a thread is fast enough. Words that BPE-dropout cuts anew are cut in
    Python, for which a GPU would wait; a CPU's cores have enough to do."""
    if config.bpe_dropout == 0.0 or device.type != "cuda" or os.name != "posix":
        return 0
    return max(0, min(MOST_WORKERS, num_cores() // processes.count - 1))
