"""`regard train`: a run begins, or goes on where it stopped."""

import difflib
import json
import re
import shutil
from contextlib import closing, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import torch

import regard
from regard.checkpoint import Checkpoint, DamagedError, Run, load_weights
from regard.config import AUTO, DataConfig, ModelConfig, ModelKind, RunConfig, TrainConfig, model_preset, train_preset
from regard.data.command import prepare_texts_with_progress, prepare_with_progress
from regard.data.report import read_report
from regard.data.stream import BatchStream
from regard.data.windows import TextStream
from regard.settings import Table, flattened, merged, read_table, to_table
from regard.text.tokenizer import PAD_ID, Tokenizer
from regard.train.device import be_deterministic, find_device
from regard.train.distributed import Processes
from regard.train.loop import StopRequest, Training
from regard.train.plan import (
    largest_batch_tokens,
    left_to_the_plan,
    open_training_text,
    settled,
    with_intervals,
    with_kernels,
)
from regard.train.progress import Display
from regard.train.tensorboard import EventFiles

# What may differ from how a run began without making it another run.
CHANGEABLE = {"train.steps", "train.patience", "train.device", "train.precision", "train.compile"}
# So that the advice of a run that found its memory too small can be taken.
BEFORE_THE_FIRST_STEP = {"train.batch_tokens", "train.accumulation"}
# What a run settles for itself where it is given as one of these.
SETTLED = {"steps", "warmup", "accumulation", "batch_tokens", "threads", "log_every", "valid_every", "save_every"}
SETTLED |= {"device", "precision", "compile", "kernels"}
PLACEHOLDERS = (0, AUTO, "auto")
READY, NOT_READY = range(2)
# All that a beginning which was cut short can have left.
LEFTOVERS = re.compile(r"\.lock|data|\.data\.preparing|tokenizer.*\.model|manifest\.json|\..*\.writing")
OF_THE_TOKENIZER = ("src_vocab_size", "tgt_vocab_size", "pad_id")


def run(given: Table, folder: Path) -> None:
    """`given` is what a person asked for, as nested tables like those of a TOML file."""
    processes = Processes.from_environment()
    the_run = Run(folder)
    with processes.joined(), the_run.lock() if processes.is_main else nullcontext():
        if processes.is_main:
            try:
                _make_ready(the_run, given, processes)
            except BaseException:
                processes.from_main(NOT_READY)
                the_run.forget_if_empty()
                raise
        if processes.from_main(READY) == NOT_READY:  # the others wait here, and the main process has said why
            raise SystemExit(2)
        _train(the_run, processes, Display(silent=not processes.is_main))


def _make_ready(run: Run, given: Table, processes: Processes) -> None:
    if run.config_path.exists():
        _take_up(run, given)
    else:
        _require_new(run)
        _begin(run, given, processes)


def _require_new(run: Run) -> None:
    """Not somebody's documents."""
    for path in sorted(run.folder.iterdir()):
        if not LEFTOVERS.fullmatch(path.name):
            raise ValueError(f"{run.folder} is there already and is no run: it holds {path.name}; choose another folder")
    for path in [*run.folder.glob("tokenizer*.model"), *run.folder.glob("manifest.json")]:
        path.unlink()


def _begin(run: Run, given: Table, processes: Processes) -> None:
    """Prepares the text and settles the configuration; the run exists once its config.json does."""
    source = _source(given)
    if source is not None:
        preset = source.read_config().preset
        if given.get("preset", preset) != preset:
            raise ValueError(
                f"the weights of {source.folder} are of preset {preset}, not {given['preset']}; leave --preset out"
            )
        kind = {"model": {"kind": source.read_config().model.kind}}
        given = merged(kind, given, {"preset": preset})
    data, model, train = _read_settings(given)
    if train.deterministic:
        be_deterministic()
    tokenizer = None if source is None else Tokenizer.load(source.folder)
    if given.get("prepared"):
        prepared = Path(given["prepared"])
    else:
        prepared = run.folder / "data"
        if (prepared / "data.json").exists():  # of a beginning that was cut short before anything was learnt
            shutil.rmtree(prepared)
        assert data is not None
        is_text = model["kind"] == "language"
        (prepare_texts_with_progress if is_text else prepare_with_progress)(data, prepared, tokenizer)
    tokenizer = tokenizer or Tokenizer.load(prepared)
    if not tokenizer.is_in(prepared):
        raise ValueError(
            f"{prepared} was prepared with other subwords than {given['start_from']} has; give its text instead"
        )
    data = read_table(DataConfig, read_report(prepared)["config"], "data")
    if source is not None:
        config = source.read_config().model
        model_config = read_table(ModelConfig, merged(to_table(config), given.get("model", {})), "model")
    else:
        sizes = {"src_vocab_size": len(tokenizer.src), "tgt_vocab_size": len(tokenizer.tgt), "pad_id": PAD_ID}
        shared = {} if tokenizer.is_shared else {"shared_embeddings": "target"}
        model_config = read_table(ModelConfig, merged(shared, model, sizes), "model")
    if train.batch_tokens == AUTO:
        stream = open_training_text(prepared, model_config, replace(train, batch_tokens=1), tokenizer)
        fits = largest_batch_tokens(model_config, train, stream.lengths())  # for each process, at once
        train = replace(train, batch_tokens=fits * processes.count, accumulation=train.accumulation or processes.count)
    train = with_kernels(train, model_config, processes.count)
    stream = open_training_text(prepared, model_config, train, tokenizer)
    train = settled(train, stream, processes.count)
    run.publish(tokenizer.files())
    top = {key: given[key] for key in ("preset", "paper", "prepared", "start_from") if key in given}
    longest = int(stream.store.src.lengths.max()) if isinstance(stream, BatchStream) else model_config.context
    settled_config = RunConfig(**top, longest=longest, data=data, model=model_config, train=train)
    run.write_config(settled_config, None, regard.__version__)


def _source(given: Table) -> Run | None:
    """The run to begin with, intact. Its model is taken as it is, but for dropout and for what it learns from at once."""
    if not given.get("start_from"):
        return None
    source = Run(Path(given["start_from"]))
    if source.read_weights() is None:
        raise ValueError(f"{source.folder} has saved no weights yet")
    source.require_intact()
    kind = source.read_config().model.kind
    for key, value in given.get("model", {}).items():
        if not key.endswith("dropout") and (key, value) != ("kind", kind) and (key, kind) != ("context", "language"):
            raise ValueError(f"model.{key} cannot be changed for weights that come from {source.folder}")
    return source


def _read_settings(given: Table) -> tuple[DataConfig | None, Table, TrainConfig]:
    """All that can be checked before the text is read, so that a mistyped setting costs no time."""
    _check_top(given)
    preset = given.get("preset", "small")
    kind = given.get("model", {}).get("kind", "transformer")
    if kind not in get_args(ModelKind):
        meant = difflib.get_close_matches(str(kind), get_args(ModelKind), n=1)
        advice = f"did you mean {meant[0]}?" if meant else f"choose one of {', '.join(get_args(ModelKind))}"
        raise ValueError(f"there is no kind of model {kind!r}; {advice}")
    model = merged(model_preset(preset, kind), given.get("model", {}))
    for key in OF_THE_TOKENIZER:
        if key in given.get("model", {}):
            raise ValueError(f"model.{key} comes from the tokenizer; set data.vocab_size instead")
    read_table(ModelConfig, merged({"src_vocab_size": 8000, "tgt_vocab_size": 8000}, model), "model")
    defaults = train_preset(preset, kind, paper=bool(given.get("paper")))
    train = read_table(TrainConfig, merged(defaults, given.get("train", {})), "train")
    if kind == "language" and train.bpe_dropout:
        raise ValueError("a language model learns from a stream of subwords, cut once; leave train.bpe_dropout at 0")
    find_device(train.device)
    if given.get("train", {}).get("steps") and train.minutes:
        raise ValueError("both --steps and --minutes were given; give one of them")
    if given.get("prepared"):
        if given.get("data"):
            raise ValueError("both prepared data and text to prepare were given; give one of them")
        read_report(Path(given["prepared"]))  # or it is none
        return None, model, train
    read_table(DataConfig, merged({"train": [], "valid": {"src": ""}}, given.get("data", {})), "data")
    return _text_for(kind, given.get("data", {})), model, train


def _text_for(kind: ModelKind, given: Table) -> DataConfig:
    """What a kind of model learns from: pairs, or plain text."""
    is_text = kind == "language"
    flags = ("--text", "--valid-text") if is_text else ("--src and --tgt", "--valid-src and --valid-tgt")
    if not given.get("train"):
        raise ValueError(f"there is nothing to learn from; give {flags[0]}, or --data with a prepared folder")
    if not given.get("valid"):
        raise ValueError(f"there is nothing to validate on; give {flags[1]}")
    data = read_table(DataConfig, given, "data")
    for corpus in (*data.train, data.valid):
        if is_text and corpus.src:
            raise ValueError(
                f"a language model learns from plain text, but {corpus.src} is given as pairs; give it as --text"
            )
        if not is_text and corpus.text:
            raise ValueError(f"{corpus.text} is plain text, which only a language model learns from; add --model language")
        if not corpus.name:
            raise ValueError("a corpus has no file; every one in data.train and data.valid needs src or text")
    if is_text and data.test:
        raise ValueError("data.test is for pairs; leave it out for a language model")
    return data


def _check_top(given: Table) -> None:
    """Unknown names at the top, before they are looked up."""
    placeholders: dict[str, Any] = {"data": {"train": [], "valid": {"src": ""}}}
    placeholders |= {"model": {"src_vocab_size": 8, "tgt_vocab_size": 8}, "train": {}}
    tables = ("data", "model", "train")
    read_table(RunConfig, placeholders | {key: value for key, value in given.items() if key not in tables})
    for key in tables:
        if not isinstance(given.get(key, {}), dict):
            raise ValueError(f"{key} must be a table of settings, but is {given[key]!r}")


def _take_up(run: Run, given: Table) -> None:
    """A run that exists keeps its configuration; what is given must not contradict it."""
    stored = run.read_config()
    _check_top(given)
    train = {key: value for key, value in given.get("train", {}).items() if key not in SETTLED or value not in PLACEHOLDERS}
    rest = {key: value for key, value in given.items() if key != "train"}
    new = read_table(RunConfig, merged(to_table(stored), rest, {"train": train}))
    before, after = flattened(to_table(stored)), flattened(to_table(new))
    changed = {name for name in after if after[name] != before.get(name)}
    saved = run.saved_steps()
    changeable = CHANGEABLE if any(saved) else CHANGEABLE | BEFORE_THE_FIRST_STEP
    if "float64" in (stored.train.precision, new.train.precision):  # whose weights are of another kind
        changeable = changeable - {"train.precision"}
    for name in sorted(changed - changeable):
        raise ValueError(
            f"{run.folder} was begun with {name} = {_shown(before.get(name))}, not {_shown(after[name])}; choose another "
            "folder with -o, or leave the setting out"
        )
    if new.train.steps and saved and new.train.steps < saved[-1]:
        raise ValueError(f"{run.folder} has done {saved[-1]:,} steps already; --steps {new.train.steps} is less")
    find_device(new.train.device)
    if "train.steps" in changed:
        new = replace(new, planned=())  # whoever counts steps does not go by the clock any more
    if changed:
        weights = run.read_weights()
        run.write_config(new, weights and weights._replace(final=False), regard.__version__)


def _shown(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _train(run: Run, processes: Processes, display: Display) -> None:
    config = run.read_config()
    weights = run.read_weights()
    if weights is not None and weights.final:
        stopped_early = weights.after < config.train.steps
        more = "a greater train.patience" if stopped_early else "more --steps"
        display.say(f"{run.folder} is finished: {weights.after:,} steps; to go on, give {more}")
        return
    if config.train.deterministic:
        be_deterministic()
    if config.train.accumulation < processes.count:
        raise ValueError(
            f"{processes.count} processes need as many batches in an update, but this run has train.accumulation = "
            f"{config.train.accumulation}"
        )
    device = find_device(config.train.device, processes.local_rank)
    stored = config
    if config.train.steps == 0:
        config = replace(config, planned=left_to_the_plan(config.train))
        config = replace(config, train=_with_measured_steps(run, config, device, processes, display))
    else:
        config = replace(config, train=with_intervals(config.train))
    if config != stored and processes.is_main:
        run.write_config(config, weights, regard.__version__)
    with closing(Training(run, config, device, processes)) as training:
        if processes.is_main:
            run.clear_away()
        _restore(training, display)
        _introduce(training, display)
        if training.learner.step == 0:  # later on, it has been tried
            training.try_largest_batches()
        _learn(training, display)


def _learn(training: Training, display: Display) -> None:
    run, step, stop = training.run, training.learner.step, StopRequest()
    events = EventFiles(run.folder / "tensorboard", after_step=step, silent=not training.processes.is_main)
    with events, display.bar(training.config.train.steps, step):
        try:
            with stop.listening(), training.advice_on_memory():
                training.go(display, stop, events)
            training.finish(display)
        except OSError as error:
            saved = run.saved_steps()
            raise ValueError(
                f"{run.folder} could not be written to after step {training.learner.step:,} ({error.strerror}); the last "
                f"checkpoint is that of step {saved[-1]:,}. Put that right, and the same command continues from there"
            ) from error


def _with_measured_steps(
    run: Run, config: RunConfig, device: torch.device, processes: Processes, display: Display
) -> TrainConfig:
    """Minutes as steps."""
    train = config.train
    provisional = replace(train, steps=1000, compile=_off_if_auto(train.compile))
    with closing(Training(run, replace(config, train=with_intervals(provisional)), device, processes)) as training:
        training.try_largest_batches()
        steps, valid_every = training.steps_within(train.minutes)
    display.say(f"{train.minutes:g} minutes are about {steps:,} steps here")
    return with_intervals(replace(train, steps=steps, valid_every=train.valid_every or valid_every))


def _off_if_auto(compile_choice: str) -> Any:
    return "off" if compile_choice == "auto" else compile_choice


def _restore(training: Training, display: Display) -> None:
    """From the last checkpoint that is intact; a run without any is at its beginning."""
    run, processes = training.run, training.processes
    step = -1
    checkpoint: Checkpoint | None = None
    if processes.is_main:
        for step in reversed(run.saved_steps()):
            try:
                checkpoint = run.load_checkpoint(step)
                break
            except DamagedError as error:
                display.warn(f"{error}; going back to the one before it")
        if checkpoint is None and run.saved_steps():
            raise ValueError(f"no checkpoint in {run.checkpoints} is intact; delete {run.folder} to begin anew")
    step = processes.from_main(step if checkpoint else -1)
    if step >= 0:
        checkpoint = checkpoint or run.load_checkpoint(step)
        training.continue_from(checkpoint)
        if complaint := training.complaint_about(checkpoint):
            display.warn(complaint)
        display.say(f"continuing from step {step}")
        return
    if training.config.start_from:
        training.learner.restore(load_weights(Run(Path(training.config.start_from)).model_path), {}, 0)
        display.say(f"beginning with the weights and subwords of {training.config.start_from}")
    training.save()


def _introduce(training: Training, display: Display) -> None:
    config, train = training.config, training.config.train
    stream = training.stream
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
