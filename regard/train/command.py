"""`regard train`: begin a run, or continue it where it stopped."""

import difflib
import re
import shutil
from contextlib import closing, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import get_args

import torch

import regard
from regard.config import AUTO, DataConfig, ModelConfig, ModelKind, RunConfig, TrainConfig, model_preset, train_preset
from regard.data.command import prepare_with_progress
from regard.data.report import read_report
from regard.data.stream import BatchStream
from regard.data.windows import TextStream
from regard.errors import UserError, sentence_for
from regard.machine.device import be_deterministic, find_device
from regard.machine.processes import Processes
from regard.run.checkpoint import Checkpoint, DamagedError, Run, load_weights
from regard.settings import Table, merged, read_table, to_table
from regard.text.tokenizer import PAD_ID, Tokenizer
from regard.train.change import change
from regard.train.loop import StopRequest, Training
from regard.train.plan import (
    default_warmup,
    goes_by_the_clock,
    largest_batch_tokens,
    left_to_the_plan,
    open_training_text,
    settled,
    with_default_warmup,
    with_intervals,
    with_steps,
)
from regard.train.progress import Display
from regard.train.road import with_kernels
from regard.train.tensorboard import EventFiles

# Files that a run may have left which was interrupted before it had a configuration.
LEFTOVERS = re.compile(r"\.lock|data|\.data\.preparing|tokenizer.*\.model|manifest\.json|\..*\.writing")
OF_THE_RUN = ("planned", "longest", "inherited_limit")
OF_THE_TOKENIZER = ("src_vocab_size", "tgt_vocab_size", "pad_id")


def run(given: Table, folder: Path) -> None:
    """Train in a folder, by settings that are nested tables like those of a TOML file."""
    processes = Processes.from_environment()
    the_run = Run(folder)
    display = Display(silent=not processes.is_main)
    with processes.joined(), the_run.lock() if processes.is_main else nullcontext():
        if processes.is_main:
            try:
                _check_top(given)
                if the_run.config_path.exists():
                    change(the_run, given)
                else:
                    _require_new(the_run)
                    _begin(the_run, given, processes, display)
            except BaseException as error:
                processes.from_main(2 if sentence_for(error) else 1)
                the_run.forget_if_empty()
                raise
        if code := processes.from_main(0):  # the others wait here; the main process reports the error
            raise SystemExit(code)
        _train(the_run, processes, display)


def _require_new(run: Run) -> None:
    """Raise an error if the folder holds anything but the files of an interrupted beginning, and remove those."""
    for path in sorted(run.folder.iterdir()):
        if not LEFTOVERS.fullmatch(path.name):
            raise UserError(f"{run.folder} exists and is not a run: it holds {path.name}; choose another folder")
    for path in [*run.folder.glob("tokenizer*.model"), *run.folder.glob("manifest.json")]:
        path.unlink()


def _begin(run: Run, given: Table, processes: Processes, display: Display) -> None:
    """Prepare the text and settle the configuration. The run exists once its config.json does."""
    source = _source(given)
    parent = None if source is None else source.read_config()
    if parent is not None:
        if given.get("preset", parent.preset) != parent.preset:
            weights = f"the weights of {given['start_from']} are of preset {parent.preset}"
            raise UserError(f"{weights}, not {given['preset']}; leave --preset out")
        given = merged({"model": {"kind": parent.model.kind}}, given, {"preset": parent.preset})
    data, model, train = _read_settings(given)
    if train.deterministic:
        be_deterministic()
    tokenizer = None if source is None else Tokenizer.load(source.folder)
    if train.bpe_dropout and tokenizer is not None and tokenizer.src.is_marian:
        raise UserError(
            f"BPE-dropout needs subwords that regard learnt, and those of {given['start_from']} are imported; leave "
            "train.bpe_dropout at 0"
        )
    prepared = Path(given.get("prepared") or run.folder / "data")
    if data is not None:
        if (prepared / "data.json").exists():  # of an interrupted beginning
            shutil.rmtree(prepared)
        assert data is not None
        prepare_with_progress(data, prepared, tokenizer)
    tokenizer = tokenizer or Tokenizer.load(prepared)
    if not tokenizer.is_in(prepared):
        raise UserError(f"{prepared} was prepared with other subwords than {given['start_from']} has; give its text instead")
    if parent is not None:
        model = merged(to_table(parent.model), given.get("model", {}))
    else:
        sizes = {"src_vocab_size": len(tokenizer.src), "tgt_vocab_size": len(tokenizer.tgt), "pad_id": PAD_ID}
        model = merged({} if tokenizer.is_shared else {"shared_embeddings": "target"}, model, sizes)
    model_config = read_table(ModelConfig, model, "model")
    train, longest = _settled(train, prepared, model_config, tokenizer, processes)
    config = RunConfig(
        **{key: given[key] for key in ("preset", "paper", "prepared", "start_from") if key in given},
        planned=() if train.steps else left_to_the_plan(given.get("train", {})),
        longest=longest,
        data=read_table(DataConfig, read_report(prepared)["config"], "data"),
        model=model_config,
        train=train,
    )
    if parent is not None:
        config = config.inheriting(parent)
    if train.steps and "warmup" not in given.get("train", {}):
        config = with_default_warmup(config)
        _report_short_warmup(config, display)
    run.publish(tokenizer.files())
    run.write_config(config, None, regard.__version__)


def _settled(
    train: TrainConfig, prepared: Path, model: ModelConfig, tokenizer: Tokenizer, processes: Processes
) -> tuple[TrainConfig, int]:
    """The settings that depend on the training text, and the number of subwords of its longest source."""
    if train.batch_tokens == AUTO:
        lengths = open_training_text(prepared, model, train, tokenizer).lengths()
        fits = largest_batch_tokens(model, train, lengths)  # in a batch of one process
        train = replace(train, batch_tokens=fits * processes.count, accumulation=train.accumulation or processes.count)
    train = with_kernels(train, model, processes.count)
    stream = open_training_text(prepared, model, train, tokenizer)
    longest = int(stream.store.src.lengths.max()) if isinstance(stream, BatchStream) else model.context
    return settled(train, stream, processes.count), longest


def _source(given: Table) -> Run | None:
    """Return the run whose weights the new run begins with, if any. Only dropout and a language model's context may differ
    from its model."""
    if not given.get("start_from"):
        return None
    source = Run(Path(given["start_from"]))
    if source.read_weights() is None:
        raise UserError(f"{source.folder} has saved no weights yet")
    source.require_intact()
    kind = source.read_config().model.kind
    for key, value in given.get("model", {}).items():
        if not key.endswith("dropout") and (key, value) != ("kind", kind) and (key, kind) != ("context", "language"):
            raise UserError(f"model.{key} cannot be changed for weights that come from {source.folder}")
    return source


def _read_settings(given: Table) -> tuple[DataConfig | None, Table, TrainConfig]:
    """Check all that can be checked before the text is read, which takes time."""
    preset = given.get("preset", "small")
    kind = given.get("model", {}).get("kind", "transformer")
    if kind not in get_args(ModelKind):
        meant = difflib.get_close_matches(str(kind), get_args(ModelKind), n=1)
        advice = f"did you mean {meant[0]}?" if meant else f"choose one of {', '.join(get_args(ModelKind))}"
        raise UserError(f"there is no kind of model {kind!r}; {advice}")
    model = merged(model_preset(preset, kind), given.get("model", {}))
    for key in OF_THE_TOKENIZER:
        if key in given.get("model", {}):
            raise UserError(f"model.{key} comes from the tokenizer; set data.vocab_size instead")
    read_table(ModelConfig, merged({"src_vocab_size": 8000, "tgt_vocab_size": 8000}, model), "model")
    defaults = train_preset(preset, kind, paper=bool(given.get("paper")))
    train = read_table(TrainConfig, merged(defaults, given.get("train", {})), "train")
    if kind == "language" and train.bpe_dropout:
        raise UserError("a language model learns from a stream of subwords, cut once; leave train.bpe_dropout at 0")
    find_device(train.device)
    if given.get("train", {}).get("steps") and train.minutes:
        raise UserError("both --steps and --minutes were given; give one of them")
    if given.get("prepared"):
        if given.get("data"):
            raise UserError("both prepared data and text to prepare were given; give one of them")
        read_report(Path(given["prepared"]))
        return None, model, train
    read_table(DataConfig, merged({"train": []}, given.get("data", {})), "data")
    return _text_for(kind, given.get("data", {})), model, train


def _text_for(kind: ModelKind, given: Table) -> DataConfig:
    """The text to prepare: plain text for a language model, pairs for any other."""
    is_text = kind == "language"
    flags = "--text" if is_text else "--src and --tgt"
    if not given.get("train"):
        raise UserError(f"there is nothing to learn from; give {flags}, or --data with a prepared folder")
    data = read_table(DataConfig, given, "data")
    for corpus in (*data.train, *([data.valid] if data.valid else [])):
        if is_text and corpus.src:
            raise UserError(
                f"a language model learns from plain text, but {corpus.src} is given as pairs; give it as --text"
            )
        if not is_text and corpus.text:
            raise UserError(f"{corpus.text} is plain text, which only a language model learns from; add --model language")
        if not corpus.name:
            raise UserError("a corpus has no file; every one in data.train and data.valid needs src or text")
    if is_text and data.test:
        raise UserError("data.test is for pairs; leave it out for a language model")
    return data


def _check_top(given: Table) -> None:
    """Raise an error for unknown names at the top, for those that a run decides, and for tables that are none."""
    if not isinstance(given, dict):
        raise UserError(f"the settings must be a table, but are {given!r}")
    for name in OF_THE_RUN:
        if name in given:
            raise UserError(f"{name} is decided by the run itself; leave it out")
    tables: Table = {"data": {"train": []}, "model": {"src_vocab_size": 8, "tgt_vocab_size": 8}, "train": {}}
    read_table(RunConfig, tables | {key: value for key, value in given.items() if key not in tables})
    for key in tables:
        if not isinstance(given.get(key, {}), dict):
            raise UserError(f"{key} must be a table of settings, but is {given[key]!r}")


def _train(run: Run, processes: Processes, display: Display) -> None:
    """Train a run that has a configuration until it is finished."""
    config = run.read_config()
    weights = run.read_weights()
    if weights is not None and weights.final:
        more = "more --minutes or --steps" if goes_by_the_clock(config) else "more --steps"
        more = "a greater train.patience" if weights.after < config.train.steps else more
        display.say(f"{run.folder} is finished: {weights.after:,} steps; to go on, give {more}")
        return
    if config.train.deterministic:
        be_deterministic()
    if config.train.accumulation < processes.count:
        raise UserError(
            f"{processes.count} processes need as many batches in an update, but this run has train.accumulation = "
            f"{config.train.accumulation}"
        )
    device = find_device(config.train.device, processes.local_rank)
    with closing(_opened(run, config, device, processes, display)) as training:
        if training.config != config and processes.is_main:
            run.write_config(training.config, weights, regard.__version__)
        if processes.is_main:
            run.clear_away()
        _restore(training, display)
        _introduce(training, display)
        if training.learner.step == 0 and config.train.steps:  # `_opened` has tried it if there were minutes
            training.try_largest_batches()
        _learn(training, display)


def _learn(training: Training, display: Display) -> None:
    """Train until the end, and turn a full disk into a sentence."""
    run, step, stop = training.run, training.learner.step, StopRequest()
    files = EventFiles(run.folder / "tensorboard", after_step=step, silent=not training.processes.is_main)
    with closing(files) as events, display.bar(training.config.train.steps, step):
        try:
            with stop.listening(), training.advice_on_memory():
                training.go(display, stop, events)
            training.finish(display)
        except OSError as error:
            if sentence_for(error) is None:
                raise
            saved = run.saved_steps()
            raise UserError(
                f"{run.folder} could not be written to after step {training.learner.step:,} ({error.strerror}); the last "
                f"checkpoint is that of step {saved[-1]:,}. Put that right, and the same command continues from there"
            ) from error


def _opened(run: Run, config: RunConfig, device: torch.device, processes: Processes, display: Display) -> Training:
    """The training of a run. If minutes were given, measure how many steps they are by beginning to train; the training then
    returns to its beginning, or is made again if so many steps are worth compiling."""
    if config.train.steps:
        return Training(run, replace(config, train=with_intervals(config.train)), device, processes)
    train = config.train
    config = replace(config, planned=config.planned or left_to_the_plan(to_table(train)))
    provisional = with_intervals(replace(train, steps=1000, compile="off" if train.compile == "auto" else train.compile))
    training = Training(run, replace(config, train=provisional), device, processes)
    try:
        training.try_largest_batches()
        steps, valid_every = training.steps_within(train.minutes)
    except BaseException:
        training.close()
        raise
    display.say(f"{train.minutes:g} minutes are about {steps:,} steps here")
    config = with_steps(config, steps)
    config = replace(config, train=replace(config.train, valid_every=train.valid_every or valid_every))
    if "warmup" in config.planned:
        _report_short_warmup(config, display)
    if config.train.compile != provisional.compile:
        training.close()
        del training  # first, or both would have to fit into memory
        training = Training(run, config, device, processes)
        training.try_largest_batches()
        return training
    training.go_by(config)
    return training


def _report_short_warmup(config: RunConfig, display: Display) -> None:
    """Report a default warm-up that is shorter than the preset's."""
    if config.train.warmup < (default := default_warmup(config)):
        display.say(
            f"warm-up: {config.train.warmup:,} steps, half of the run, instead of the preset's {default:,}, up to the same "
            f"learning rate; train.warmup sets another"
        )


def _restore(training: Training, display: Display) -> None:
    """Restore the last checkpoint that is intact, or save one of the beginning if there is none."""
    run, processes = training.run, training.processes
    checkpoint: Checkpoint | None = None
    saved = run.saved_steps() if processes.is_main else []
    for step in reversed(saved):
        try:
            checkpoint = run.load_checkpoint(step)
            break
        except DamagedError as error:
            display.warn(f"{error}; going back to the one before it")
    if saved and checkpoint is None:
        raise UserError(f"no checkpoint in {run.checkpoints} is intact; delete {run.folder} to begin anew")
    step = processes.from_main(checkpoint.state["step"] if checkpoint else -1)
    if step >= 0:
        checkpoint = checkpoint or run.load_checkpoint(step)
        training.continue_from(checkpoint, display)
        display.say(f"continuing from step {step}")
        return
    if training.config.start_from:
        training.learner.restore(load_weights(Run(Path(training.config.start_from)).model_path), {}, 0)
        display.say(f"beginning with the weights and subwords of {training.config.start_from}")
    training.save()


def _introduce(training: Training, display: Display) -> None:
    """Report text, batches, model and device."""
    config, train, stream = training.config, training.config.train, training.stream
    batches = stream.epoch(training.place.epoch)
    num_parameters = sum(parameter.numel() for parameter in training.learner.model.parameters())
    if isinstance(stream, TextStream):
        text = f"{len(stream.store):,} texts in windows of {stream.context:,} tokens"
        padding = ""
    else:
        languages = f"{config.data.src_lang or 'source'} → {config.data.tgt_lang or 'target'}"
        text = f"{languages}: {len(stream.store):,} pairs"
        padding = f", {stream.padding(training.place.epoch):.1%} padding"
    display.say(
        f"{text}, {len(batches) / train.accumulation:,.0f} updates an epoch of {train.accumulation} × "
        f"{stream.batch_tokens:,} tokens{padding}"
    )
    where = f"{train.threads} threads" if training.device.type == "cpu" else train.precision
    display.say(
        f"{config.preset}: {num_parameters / 1e6:.1f} M parameters, {train.steps:,} steps on {training.device}, {where}"
    )
    if train.warmup >= train.steps > 1:
        display.warn(
            f"a warm-up of {train.warmup:,} steps is not over before the last of {train.steps:,}, and the learning rate "
            "never falls; give a shorter train.warmup, or more --steps"
        )
