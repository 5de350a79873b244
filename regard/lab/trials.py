"""Trains models on a corpus for an experiment, several at a time, and translates the test text with each.

The outcome of each finished trial is stored, so that an interrupted experiment resumes with the trials that are missing.
"""

import json
import multiprocessing
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import asdict, dataclass
from pathlib import Path

from regard.config import CorpusConfig, DataConfig
from regard.data.prepare import prepare
from regard.errors import UserError
from regard.lab.experiment import Setting, machine
from regard.run.checkpoint import Run, write_atomically
from regard.run.metrics import read_lines
from regard.settings import Table, merged, read_json, read_table
from regard.text.cleaning import Pair
from regard.text.corpus import read_pairs
from regard.train.command import run as train
from regard.translate.translator import load


@dataclass(frozen=True)
class Trial:
    """Settings of a training run with one seed."""

    name: str
    seed: int
    settings: Table  # as a TOML file has them


@dataclass(frozen=True)
class Outcome:
    """Measurements and translations of a finished trial."""

    name: str
    seed: int
    translations: tuple[str, ...]  # of the test text
    valid_nll: float  # per token
    train_nll: float  # per token, of the last updates
    steps: int
    seconds: float  # of training alone, possibly beside other trials
    tokens_per_second: float
    num_parameters: int
    machine: str


@dataclass(frozen=True)
class Corpus:
    """A folder of files named PART.LANGUAGE.xz."""

    folder: str  # its name in the folder of all corpora
    src: str  # languages
    tgt: str
    valid: str  # parts
    test: str
    vocab_size: int

    def part(self, data: Path, name: str) -> CorpusConfig:
        folder = data / self.folder
        return CorpusConfig(src=str(folder / f"{name}.{self.src}.xz"), tgt=str(folder / f"{name}.{self.tgt}.xz"))


MULTI30K = Corpus(folder="multi30k", src="en", tgt="de", valid="valid", test="test_2016_flickr", vocab_size=8000)
KFTT = Corpus(folder="kftt-ja-en", src="ja", tgt="en", valid="dev", test="tune", vocab_size=16_000)


@dataclass(frozen=True)
class Bench:
    """Text, folder and device of trials, and how many run at a time."""

    prepared: Path  # what `regard prepare` made
    work: Path  # a folder for the runs
    test: tuple[Pair, ...]  # to translate in the end
    tgt_lang: str
    device: str
    jobs: int

    def run(self, trial: Trial) -> Path:
        return self.work / f"{trial.name}-{trial.seed}"


def bench_for(corpus: Corpus, setting: Setting) -> Bench:
    """Prepare the corpus, unless that was done before, and return a bench for trials on it."""
    if setting.data is None:
        raise UserError(f"this experiment trains on a corpus; give the folder in which {corpus.folder} is with --data")
    prepared = setting.work / f"prepared-{corpus.folder}"
    if not prepared.exists():
        config = DataConfig(
            train=(corpus.part(setting.data, "train"),),
            valid=corpus.part(setting.data, corpus.valid),
            test=(corpus.part(setting.data, corpus.test),),
            src_lang=corpus.src,
            tgt_lang=corpus.tgt,
            vocab_size=corpus.vocab_size,
        )
        prepare(config, prepared)
    test = tuple(read_pairs(corpus.part(setting.data, corpus.test), corpus.src, corpus.tgt))
    return Bench(prepared.resolve(), setting.work, test, corpus.tgt, setting.device, setting.jobs)


def plan(steps: int, *, save: bool = True) -> Table:
    """Return what trials have in common: validation at the end, and ten checkpoints or one."""
    save_every = max(1, steps // 10) if save else steps
    return {"steps": steps, "valid_every": steps, "save_every": save_every, "keep_checkpoints": 3, "bleu_sentences": 0}


def machines(found: Iterable[Outcome]) -> str:
    return ", ".join(sorted({one.machine for one in found}))


def outcomes(trials: Sequence[Trial], bench: Bench) -> Iterator[Outcome]:
    """Yield outcomes as they come, stored ones first. If a trial fails, finish and store those that have begun."""
    waiting = [trial for trial in trials if not _path(trial, bench).exists()]
    yield from [_read(trial, bench) for trial in trials if trial not in waiting]
    with ProcessPoolExecutor(bench.jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        futures = [pool.submit(attempt, trial, bench) for trial in waiting]
        try:
            for future in as_completed(futures):
                yield future.result()
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def attempt(trial: Trial, bench: Bench) -> Outcome:
    """Train a model, and translate the test text."""
    folder = bench.run(trial)
    folder.parent.mkdir(parents=True, exist_ok=True)
    threads = {"threads": 1} if bench.jobs > 1 else {}
    own = {"prepared": str(bench.prepared), "train": {"seed": trial.seed, "device": bench.device, **threads}}
    with Path(f"{folder}.log").open("a", encoding="utf-8") as log, redirect_stdout(log), redirect_stderr(log):
        train(merged(trial.settings, own), folder)
        translator = load(folder, device=bench.device)
        translations = tuple(one.text for one in translator.translate([pair.src for pair in bench.test]))
    run = Run(folder)
    metrics, timing = read_lines(run.metrics_path), read_lines(run.timing_path)
    parts = [line for line in timing if "tokens_per_second" in line][1:]  # without the warm-up
    seconds = sum(line["seconds"] for line in parts)
    outcome = Outcome(
        name=trial.name,
        seed=trial.seed,
        translations=translations,
        valid_nll=metrics[-1]["average_nll"],
        train_nll=next(line["nll"] for line in reversed(metrics) if "nll" in line),
        steps=metrics[-1]["step"],
        seconds=round(sum(line.get("seconds", 0.0) for line in timing), 1),
        tokens_per_second=round(sum(line["tokens_per_second"] * line["seconds"] for line in parts) / max(seconds, 1e-9), 1),
        num_parameters=sum(parameter.numel() for parameter in translator.models[0].parameters()),
        machine=machine(bench.device),
    )
    kept = {"settings": trial.settings, "outcome": asdict(outcome)}
    write_atomically(_path(trial, bench), json.dumps(kept, ensure_ascii=False).encode())
    return outcome


def _path(trial: Trial, bench: Bench) -> Path:
    return bench.work / f"{bench.run(trial).name}.json"


def _read(trial: Trial, bench: Bench) -> Outcome:
    """Read a stored outcome, whose settings must be the same."""
    path = _path(trial, bench)
    try:
        kept = read_json(path)
        settings, outcome = kept["settings"], kept["outcome"]
    except (KeyError, TypeError) as error:
        raise UserError(f"{path} is damaged: {error!r}; delete it") from error
    if settings != trial.settings:
        raise UserError(f"{path} came from other settings; choose another folder with --work, or delete it")
    return read_table(Outcome, outcome)
