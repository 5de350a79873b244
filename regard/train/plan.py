"""What a run settles when it begins: everything that was left to be chosen, once, so that it never changes again."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import torch

from regard.config import AUTO, ModelConfig, RunConfig, TrainConfig
from regard.data.batch import AnyBatch, Batch, TextBatch
from regard.data.batching import PairLengths, epoch_batches, epoch_pairs, padding_share
from regard.data.report import pair_weights, read_report
from regard.data.store import PairStore, TextStore
from regard.data.stream import BatchStream
from regard.data.windows import Stream, TextStream
from regard.model.packing import Room, unserved
from regard.text.tokenizer import PAD_ID, Tokenizer
from regard.train.device import find_device, runs_kernels
from regard.train.distributed import Processes
from regard.train.learner import Learner
from regard.train.metrics import Totals

if TYPE_CHECKING:
    from regard.train.fused import FusedLearner

AnyLearner: TypeAlias = "Learner | FusedLearner"
MAX_PADDING = 0.05
SMALLEST_BATCH = 512  # tokens of one of an update's batches; below, arithmetic would be done in crumbs
EPOCHS = 30
FOLLOW_STEPS = ("steps", "warmup", "log_every", "valid_every", "save_every")
TELLING_SECONDS = 2.0  # from then on, the time that steps took says something
PLAN_STANDS_FROM = 0.75  # of a run
WORTH_A_PLAN = 0.03  # of the steps; less is not worth another learning rate
COMPILE_PAYS = 10_000  # updates of a GPU; compiling takes two minutes and saves a quarter of each (EXPERIMENTS.md)


def open_stream(folder: Path, config: TrainConfig, tokenizer: Tokenizer) -> BatchStream:
    """The training text of a prepared folder."""
    return BatchStream(
        store=PairStore.open(folder, "train"),
        tokenizer=tokenizer,
        weights=pair_weights(read_report(folder)["corpora"]),
        batch_tokens=batch_tokens(config),
        seed=config.seed,
        bpe_dropout=config.bpe_dropout,
        packed=config.kernels == "on",
    )


def open_training_text(folder: Path, model: ModelConfig, config: TrainConfig, tokenizer: Tokenizer) -> Stream:
    """The same for any kind of model: pairs, or texts for a language model."""
    if TextStore.is_in(folder) != (model.kind == "language"):
        holds, wants = ("plain text", "pairs") if TextStore.is_in(folder) else ("pairs", "plain text")
        raise ValueError(f"{folder} holds {holds}, but a model of kind {model.kind} learns from {wants}")
    if model.kind != "language":
        return open_stream(folder, config, tokenizer)
    return TextStream(
        store=TextStore.open(folder, "train"),
        weights=pair_weights(read_report(folder)["corpora"]),
        context=model.context,
        batch_tokens=max(batch_tokens(config), model.context),  # a window is the least there is
        seed=config.seed,
    )


def with_kernels(config: TrainConfig, model: ModelConfig, num_processes: int) -> TrainConfig:
    """Whether our own kernels train this model, decided."""
    obstacle = _obstacle(config, model, num_processes)
    if config.kernels == "on" and obstacle:
        raise ValueError(f"train.kernels is on, but our own kernels do not serve {obstacle}; leave it at auto")
    return replace(config, kernels="off" if obstacle else "on") if config.kernels == "auto" else config


def _obstacle(config: TrainConfig, model: ModelConfig, num_processes: int) -> str | None:
    device = find_device(config.device)
    if not runs_kernels(device) or (device.type == "cpu" and config.kernels != "on"):
        return f"the device {device}"
    if config.compile == "on":
        return "models under torch.compile"
    if num_processes > 1:
        return "several processes"
    if config.precision not in ("auto", "bfloat16") and not (config.kernels == "on" and config.precision == "float32"):
        return f"arithmetic in {config.precision}"
    return unserved(model)


def room_for(
    model: ModelConfig, config: TrainConfig, device: torch.device, processes: Processes, stream: Stream
) -> Room | None:
    """Of the batches that our own kernels learn from; None where torch's do. What was begun with ours can go on elsewhere,
    over the same batches."""
    if config.kernels != "on" or processes.count > 1 or not runs_kernels(device):
        return None
    assert isinstance(stream, BatchStream)
    copies = 2 if config.r_drop else 1  # whose dropout differs, as their rows do
    return Room(*stream.room(), model.src_vocab_size, model.tgt_vocab_size, model.pad_id, copies)


def learner_for(
    model: ModelConfig, config: TrainConfig, device: torch.device, processes: Processes, room: Room | None
) -> AnyLearner:
    if room is None:
        return Learner(model, config, device, processes)
    from regard.train.fused import FusedLearner

    return FusedLearner(model, config, device, room)


def settled(config: TrainConfig, stream: Stream, num_processes: int) -> TrainConfig:
    """Without `steps` where they come from `minutes`: those need a model to measure with."""
    device = find_device(config.device)
    on_gpu = device.type == "cuda"
    precision = config.precision if config.precision != "auto" else ("bfloat16" if on_gpu else "float32")
    accumulation = config.accumulation or accumulation_for(stream, config.batch_tokens, num_processes)
    config = replace(
        config,
        device=device.type if config.device == "auto" else config.device,
        precision=precision,
        accumulation=accumulation,
        threads=config.threads or torch.get_num_threads(),
    )
    if config.steps == 0 and config.minutes == 0:
        updates = len(replace(stream, batch_tokens=batch_tokens(config)).epoch(0)) / accumulation
        config = replace(config, steps=min(100_000, max(2000, round(EPOCHS * updates))))
    return with_intervals(config) if config.steps else config


def with_intervals(config: TrainConfig) -> TrainConfig:
    """What depends on the number of steps."""
    assert config.steps > 0
    compiles = (
        config.kernels != "on"
        and config.device.startswith("cuda")
        and config.steps >= COMPILE_PAYS
        and not config.deterministic
    )
    return replace(
        config,
        compile=config.compile if config.compile != "auto" else ("on" if compiles else "off"),
        warmup=config.warmup or min(400, max(1, config.steps // 5)),
        log_every=config.log_every or min(100, max(10, config.steps // 100)),
        valid_every=config.valid_every or min(5000, max(1, config.steps // 10)),
        save_every=config.save_every or min(1000, max(1, config.steps // 20)),
    )


def left_to_the_plan(config: TrainConfig) -> tuple[str, ...]:
    """What depends on the number of steps and was not given."""
    return tuple(name for name in FOLLOW_STEPS if getattr(config, name) == 0)


def steps_by_the_clock(config: RunConfig, *, step: int, seconds: float, reserve: float) -> int:
    """How many steps a run of so many minutes will have, now that `step` of them took so many seconds: machines do not keep
    the speed of their first ones. What is left after the last step, `reserve`, counts as well. In the last quarter, of
    steps and of time, the learning rate comes down as planned."""
    train = config.train
    is_last_quarter = step > PLAN_STANDS_FROM * train.steps and seconds > PLAN_STANDS_FROM * 60 * train.minutes
    if "steps" not in config.planned or seconds < TELLING_SECONDS or is_last_quarter:
        return train.steps
    left = 60 * train.minutes - seconds - reserve
    steps = max(step + 1, round(step + left * step / seconds))
    return steps if abs(steps - train.steps) > WORTH_A_PLAN * train.steps else train.steps


def with_steps(config: RunConfig, steps: int) -> RunConfig:
    """The same run with another number of steps, and what follows from it; as many validations as before."""
    train = config.train
    anew: dict[str, Any] = dict.fromkeys(config.planned, 0)
    if "valid_every" in anew:
        anew["valid_every"] = max(1, round(train.valid_every * steps / train.steps))
    return replace(config, train=with_intervals(replace(train, **anew | {"steps": steps})))


def batch_tokens(config: TrainConfig) -> int:
    """Of each of an update's batches."""
    return max(1, config.batch_tokens // max(1, config.accumulation))


def accumulation_for(stream: Stream, tokens: int, num_processes: int) -> int:
    """The fewest batches an update can be cut into, so that no more than 5 % of it is padding: a large batch of a small
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
    """The most tokens a side that a GPU learns from at once, found by trying, with a tenth left free. A language model's
    `lengths` are those of its windows."""
    device = find_device(config.device)
    if device.type != "cuda":
        raise ValueError("--batch-tokens auto looks for what fits a GPU; give a number for a CPU")
    longest = int(max(lengths.src.max(), lengths.tgt.max()))
    total = int(max(lengths.src.sum(), lengths.tgt.sum()))
    trial = replace(config, precision="bfloat16" if config.precision == "auto" else config.precision, compile="off", steps=1)
    learner = Learner(model, replace(trial, accumulation=1, warmup=max(1, config.warmup)), device, Processes())
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
        raise ValueError(f"not even {tokens:,} tokens fit into the memory of {device}; try a smaller --preset")
    del learner
    torch.cuda.empty_cache()
    return int(0.9 * fits)
