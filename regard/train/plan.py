"""Settle the settings that a user left open, once, when a run begins."""

from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch

from regard.config import AUTO, ModelConfig, RunConfig, TrainConfig, train_preset
from regard.data.batch import AnyBatch, Batch, TextBatch
from regard.data.batching import PairLengths, epoch_batches, epoch_pairs, padding_share
from regard.data.report import pair_weights, read_report
from regard.data.store import PairStore, TextStore
from regard.data.stream import BatchStream
from regard.data.windows import Stream, TextStream
from regard.errors import UserError
from regard.machine.device import find_device
from regard.machine.processes import Processes
from regard.run.checkpoint import Run
from regard.settings import Table
from regard.text.tokenizer import PAD_ID, Tokenizer
from regard.train.learner import Learner
from regard.train.schedule import paper_peak
from regard.train.totals import Totals

MAX_PADDING = 0.05
SMALLEST_BATCH = 512  # tokens; smaller batches are inefficient
EPOCHS = 30
FOLLOW_STEPS = ("steps", "warmup", "log_every", "valid_every", "save_every")
FIRST_PLAN_SECONDS = 2.0  # of training, from which a speed can be told
LAST_PLAN = 0.75  # of a run, after which its plan stays
LEAST_CHANGE = 0.03  # of the number of steps; a smaller change is not worth another learning rate
COMPILE_PAYS = 10_000  # updates on a GPU; compiling takes two minutes and saves a quarter of each (EXPERIMENTS.md)


def subwords_of(run: Run, config: RunConfig) -> Tokenizer:
    """Return the subwords of a run, after a check that the text it was begun with is there."""
    folder, tokenizer = run.data_folder(config), Tokenizer.load(run.folder)
    if not (folder / "data.json").exists():
        raise UserError(f"{folder} is missing: it is the prepared text that {run.folder} was begun with; put it back")
    if not tokenizer.is_in(folder):
        raise UserError(f"{folder} is not the text this run was begun with: its subwords differ")
    return tokenizer


def open_stream(folder: Path, config: TrainConfig, tokenizer: Tokenizer, *, longest: int = 2**20) -> BatchStream:
    """The training text of a prepared folder, for a model that takes up to `longest` tokens a side."""
    return BatchStream(
        store=PairStore.open(folder, "train"),
        tokenizer=tokenizer,
        weights=pair_weights(read_report(folder)["corpora"]),
        batch_tokens=batch_tokens(config),
        seed=config.seed,
        bpe_dropout=config.bpe_dropout,
        packed=config.kernels == "on",
        longest=longest,
    )


def open_training_text(folder: Path, model: ModelConfig, config: TrainConfig, tokenizer: Tokenizer) -> Stream:
    """The training text of a prepared folder for any kind of model: pairs, or texts for a language model."""
    if TextStore.is_in(folder) != (model.kind == "language"):
        holds, wants = ("plain text", "pairs") if TextStore.is_in(folder) else ("pairs", "plain text")
        raise UserError(f"{folder} holds {holds}, but a model of kind {model.kind} learns from {wants}")
    if model.kind != "language":
        if model.kind == "transformer" and model.positions == "learned":
            _require_positions(folder, model)
        return open_stream(folder, config, tokenizer, longest=model.longest_sequence)
    return TextStream(
        store=TextStore.open(folder, "train"),
        weights=pair_weights(read_report(folder)["corpora"]),
        context=model.context,
        batch_tokens=max(batch_tokens(config), model.context),  # at least one window
        seed=config.seed,
    )


def _require_positions(folder: Path, model: ModelConfig) -> None:
    """Raise an error if a training or validation text has more tokens than the model has learned positions."""
    for split, name in (("train", "training"), ("valid", "validation")):
        store = PairStore.open(folder, split)
        longest = int(max(store.src.lengths.max(), store.tgt.lengths.max())) + 1
        if longest > model.longest_sequence:
            raise UserError(
                f"the longest {name} text has {longest} tokens, but there are {model.max_positions} learned positions; "
                "set model.max_positions, or data.cleaning.max_tokens"
            )


def settled(config: TrainConfig, stream: Stream, num_processes: int) -> TrainConfig:
    """Settle all settings, except those that depend on the number of steps if that is to be measured, for `minutes`."""
    device = find_device(config.device)
    config = replace(
        config,
        device=device.type if config.device == "auto" else config.device,
        precision=config.precision if config.precision != "auto" else ("bfloat16" if device.type == "cuda" else "float32"),
        accumulation=config.accumulation or accumulation_for(stream, config.batch_tokens, num_processes),
        threads=config.threads or torch.get_num_threads(),
    )
    if config.steps == 0 and config.minutes == 0:
        updates = len(replace(stream, batch_tokens=batch_tokens(config)).epoch(0)) / config.accumulation
        config = replace(config, steps=min(100_000, max(2000, round(EPOCHS * updates))))
    return with_intervals(config) if config.steps else config


def with_intervals(config: TrainConfig) -> TrainConfig:
    """Settle what depends on the number of steps."""
    assert config.steps > 0
    on_gpu = config.device.startswith("cuda")
    compiles = on_gpu and config.kernels != "on" and config.steps >= COMPILE_PAYS and not config.deterministic
    return replace(
        config,
        compile=config.compile if config.compile != "auto" else ("on" if compiles else "off"),
        warmup=config.warmup or min(400, max(1, config.steps // 5)),
        log_every=config.log_every or min(100, max(10, config.steps // 100)),
        valid_every=config.valid_every or min(5000, max(1, config.steps // 10)),
        save_every=config.save_every or min(1000, max(1, config.steps // 20)),
    )


def left_to_the_plan(given: Table) -> tuple[str, ...]:
    """The settings that depend on the number of steps and were not given, or given as 0."""
    return tuple(name for name in FOLLOW_STEPS if not given.get(name))


def default_warmup(config: RunConfig) -> int:
    """The warm-up of a run's preset; 0 if it follows from the number of steps."""
    return TrainConfig(**train_preset(config.preset, config.model.kind, paper=config.paper)).warmup


def with_default_warmup(config: RunConfig) -> RunConfig:
    """Set the preset's warm-up, limited to half of the steps so that the learning rate also falls. Its peak is that of the
    whole warm-up; by equation 3, it would be higher after a shorter one."""
    default, train = default_warmup(config), config.train
    warmup = min(default, max(1, train.steps // 2))
    peak = paper_peak(config.model.d_model, default) if warmup < default else 0.0
    return replace(config, train=replace(train, warmup=warmup, learning_rate=train.learning_rate or peak))


class Pace(NamedTuple):
    """How many steps were done in how many seconds."""

    steps: int
    seconds: float

    def __sub__(self, before: "Pace") -> "Pace":
        return Pace(self.steps - before.steps, self.seconds - before.seconds)


def goes_by_the_clock(config: RunConfig) -> bool:
    return config.train.minutes > 0 and (config.train.steps == 0 or "steps" in config.planned)


def steps_by_the_clock(config: RunConfig, *, done: Pace, recent: Pace, reserve: float) -> int:
    """The number of steps for a run by the clock that has `done` some, the `recent` ones at a speed that is expected to
    last, and which needs `reserve` seconds after the last one. It stays as planned in the last quarter of both steps and
    time."""
    train = config.train
    is_last_quarter = done.steps > LAST_PLAN * train.steps and done.seconds > LAST_PLAN * 60 * train.minutes
    if not goes_by_the_clock(config) or recent.seconds < FIRST_PLAN_SECONDS or is_last_quarter:
        return train.steps
    steps = steps_in(train.minutes, done=done, recent=recent, reserve=reserve)
    return steps if abs(steps - train.steps) > LEAST_CHANGE * train.steps else train.steps


def steps_in(minutes: float, *, done: Pace, recent: Pace, reserve: float = 0.0) -> int:
    """The number of steps that a run will have done after so many minutes."""
    left = 60 * minutes - done.seconds - reserve
    return max(done.steps + 1, round(done.steps + left * recent.steps / recent.seconds))


def with_steps(config: RunConfig, steps: int) -> RunConfig:
    """Set the number of steps and all that follows from it; the number of validations stays."""
    train = config.train
    anew: dict[str, Any] = dict.fromkeys(config.planned, 0)
    if "valid_every" in anew and train.steps:
        anew["valid_every"] = max(1, round(train.valid_every * steps / train.steps))
    config = replace(config, train=replace(train, **anew | {"steps": steps}))
    if "warmup" in config.planned:
        config = with_default_warmup(config)
    return replace(config, train=with_intervals(config.train))


def batch_tokens(config: TrainConfig) -> int:
    """The tokens of each of an update's batches."""
    return max(1, config.batch_tokens // max(1, config.accumulation))


def accumulation_for(stream: Stream, tokens: int, num_processes: int) -> int:
    """The fewest batches into which an update can be cut so that at most 5 % of it is padding: a large batch of a small
    corpus has sentences of many lengths. Windows and packed batches have no padding."""
    assert tokens != AUTO
    if isinstance(stream, TextStream) or stream.packed:
        return num_processes
    lengths = stream.lengths()
    pairs = epoch_pairs(stream.weights, seed=stream.seed, epoch=0)
    accumulation = num_processes
    while tokens // (2 * accumulation) >= SMALLEST_BATCH:
        batches = epoch_batches(lengths, pairs, batch_tokens=tokens // accumulation, seed=stream.seed, epoch=0)
        if padding_share(lengths, batches) <= MAX_PADDING:
            break
        accumulation *= 2
    return accumulation


def largest_batch_tokens(model: ModelConfig, config: TrainConfig, lengths: PairLengths) -> int:
    """The most tokens a side of a batch that fits a GPU, found by trying, minus a tenth. The `lengths` are those of pairs or
    of a language model's windows."""
    device = find_device(config.device)
    if device.type != "cuda":
        raise UserError("--batch-tokens auto looks for what fits a GPU; give a number for a CPU")
    longest = int(max(lengths.src.max(), lengths.tgt.max()))
    total = int(max(lengths.src.sum(), lengths.tgt.sum()))
    trial = replace(config, precision="bfloat16") if config.precision == "auto" else config
    trial = replace(trial, compile="off", steps=1, accumulation=1, warmup=max(1, config.warmup))
    learner = Learner(model, trial, device, Processes())
    fits, tokens = 0, min(max(1024, longest), total)
    while tokens <= total:
        rows = torch.full((tokens // longest, longest), PAD_ID + 1)
        try:
            batch: AnyBatch = TextBatch(rows, rows) if model.kind == "language" else Batch(rows, rows, rows)
            learner.update([(0, batch)], Totals(device))
            torch.cuda.synchronize(device)
        except torch.OutOfMemoryError:
            break
        fits, tokens = tokens, int(1.25 * tokens)
    if not fits:
        raise UserError(f"not even {tokens:,} tokens fit into the memory of {device}; try a smaller --preset")
    del learner
    torch.cuda.empty_cache()
    return int(0.9 * fits)
