"""Tests of the command line of `regard train`: from text to a run, stopped and continued, damaged, extended, fine-tuned."""

import json
import multiprocessing
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import defaultdict
from pathlib import Path

import pytest
from safetensors.numpy import load_file

from regard.config import RunConfig
from regard.data.stream import Place
from regard.machine.load import OtherPrograms
from regard.run.checkpoint import Checkpoint, Run, sha256
from regard.run.metrics import read_lines
from regard.train import learner, loop
from regard.train.batches import Batches, BatchMaker
from regard.train.command import run as train_command
from regard.train.loop import Training
from regard.train.plan import Pace
from regard.train.saving import Writer
from tests.commands.process import run
from tests.commands.test_prepare import HOSTILE, flags, text

__all__ = ["text"]  # the fixture

ROOT = Path(__file__).parents[2]
STEPS = 12
SETTINGS = ["--preset", "tiny", "--batch-tokens", "256", "--steps", str(STEPS), "--vocab-size", "300"]
SETTINGS += ["--set", "train.save_every=3", "--set", "train.valid_every=6", "--set", "train.log_every=2"]
SETTINGS += ["--set", "model.dropout=0.1", "--set", "train.bpe_dropout=0.1", "--set", "train.accumulation=2"]
LONGER = ["--steps", "100", "--set", "train.valid_every=25"]  # enough steps to be stopped before the end


def train(text: Path, out: Path, *more: str) -> subprocess.CompletedProcess[str]:
    return run("train", *flags(text), *SETTINGS, *more, "-o", str(out))


def text_of(corpus: Path) -> dict[str, object]:
    """Return the settings of `data` for the text of `flags(corpus)`."""
    sides = {side: {"src": f"{corpus}/{side}.de", "tgt": f"{corpus}/{side}.en"} for side in ("train", "valid")}
    return {"train": [sides["train"]], "valid": sides["valid"], "vocab_size": 300}


def digests(folder: Path, steps: int = STEPS) -> dict[str, str]:
    checkpoint = Run(folder).checkpoint_path(steps)
    files = [*checkpoint.glob("*.safetensors"), folder / "metrics.jsonl", folder / "model.safetensors"]
    return {path.name: sha256(path) for path in files}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return text.__wrapped__(tmp_path_factory.mktemp("corpus"))  # type: ignore[attr-defined, no-any-return]


@pytest.fixture(scope="module")
def whole(corpus: Path) -> Path:
    """Return an uninterrupted run, with another hash seed than the runs that are compared with it."""
    result = run("train", *flags(corpus), *SETTINGS, "-o", str(corpus / "whole"), fresh=True)
    assert result.returncode == 0, result.stderr
    (corpus / "whole" / "stderr").write_text(result.stderr, encoding="utf-8")
    return corpus / "whole"


@pytest.fixture(scope="module")
def whole_of_100(corpus: Path) -> Path:
    result = train(corpus, corpus / "whole of 100", *LONGER)
    assert result.returncode == 0, result.stderr
    return corpus / "whole of 100"


def test_one_command_makes_a_run(whole: Path) -> None:
    told = (whole / "stderr").read_text(encoding="utf-8")
    assert "de → en" in told and f"step {STEPS}/{STEPS}" in told and "what translates is" in told and "Traceback" not in told
    names = {path.name for path in whole.iterdir()}
    assert names >= {"config.json", "tokenizer.model", "model.safetensors", "manifest.json", "metrics.jsonl", "timing.jsonl"}
    assert names >= {"training.html", "checkpoints", "data"}
    the_run = Run(whole)
    assert the_run.damaged_files() == []
    manifest = json.loads((whole / "manifest.json").read_text(encoding="utf-8"))
    assert manifest.keys() == {"config.json", "tokenizer.model", "model.safetensors"}
    config = the_run.read_config()
    assert (config.data.src_lang, config.data.tgt_lang, config.train.steps, config.model.dropout) == ("de", "en", STEPS, 0.1)
    assert config.model.src_vocab_size == 300 and config.train.threads > 0 and config.train.device == "cpu"
    weights = the_run.read_weights()
    assert weights is not None and weights.final and set(weights.steps) <= {3, 6, 9, 12}
    assert not [path for path in whole.rglob("*") if path.suffix in (".pt", ".pkl", ".bin", ".pickle")]


def test_metrics_are_lines_that_add_up(whole: Path) -> None:
    lines = [json.loads(line) for line in (whole / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    training = [line for line in lines if "loss" in line]
    assert [line["step"] for line in training] == list(range(2, STEPS + 1, 2))
    assert all(line["skipped"] == 0 and line["gradient_norm"] > 0 and line["tokens"] > 100 for line in training)
    validations = [line for line in lines if "valid_nll" in line]
    assert [line["step"] for line in validations] == [6, 12]
    assert {"valid_perplexity", "valid_bleu", "attention"} <= validations[0].keys()
    assert lines[-1]["averaged"] == [3, 6, 9, 12]
    page = (whole / "training.html").read_text(encoding="utf-8")
    assert json.loads(re.search(r"const data = (.*);\n", page)[1])["steps"] == STEPS  # type: ignore[index]
    assert not re.search(r"""(src|href|url|import)\s*[=(]\s*["']?\s*(https?:)?//""", page)


@pytest.mark.parametrize(("name", "exit_code"), [("SIGINT", 130), ("SIGTERM", 143)])
def test_stopped_and_continued_it_ends_the_same(corpus: Path, whole_of_100: Path, name: str, exit_code: int) -> None:
    out = corpus / name
    process = subprocess.Popen(
        [sys.executable, "-m", "regard", "train", *flags(corpus), *SETTINGS, *LONGER, "-o", str(out)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    while not any(Run(out).saved_steps()):  # other than step 0
        assert process.poll() is None
        time.sleep(0.01)
    (os.killpg if name == "SIGINT" else os.kill)(process.pid, getattr(signal, name))
    _, stderr = process.communicate(timeout=600)
    assert process.returncode == exit_code, stderr
    assert "Traceback" not in stderr
    told = re.search(r"stopped after step (\d+), which is saved; the same command continues from there", stderr)
    assert told is not None, stderr
    assert int(told[1]) in Run(out).saved_steps()
    result = train(corpus, out, *LONGER)
    assert result.returncode == 0, result.stderr
    assert f"continuing from step {told[1]}\n" in result.stderr
    assert digests(out, 100) == digests(whole_of_100, 100)


def test_a_damaged_checkpoint_is_told_and_the_one_before_it_used(corpus: Path, whole: Path) -> None:
    out = corpus / "damaged"
    assert train(corpus, out).returncode == 0
    path = Run(out).checkpoint_path(STEPS) / "weights.safetensors"
    content = bytearray(path.read_bytes())
    content[-5] ^= 1
    path.write_bytes(content)
    config = json.loads((out / "config.json").read_text(encoding="utf-8"))
    config["weights"]["final"] = False  # as if it had been killed just before the end
    (out / "config.json").write_text(json.dumps(config), encoding="utf-8")
    result = train(corpus, out)
    assert result.returncode == 0, result.stderr
    assert "weights.safetensors is not what was saved; going back to the one before it" in result.stderr
    assert "continuing from step 9\n" in result.stderr
    assert digests(out) == digests(whole)


def test_run_again_extended_contradicted_averaged_and_refined(corpus: Path, whole: Path) -> None:
    out = corpus / "again"
    subprocess.run(["cp", "-r", str(whole), str(out)], check=True)
    again = train(corpus, out)
    assert again.returncode == 0 and "is finished: 12 steps; to go on, give more --steps" in again.stderr
    assert digests(out) == digests(whole)
    other = train(corpus, out, "--set", "model.d_model=128")
    assert (other.returncode, other.stderr) == (
        2,
        f"regard: {out} was begun with model.d_model = 64, not 128; choose another folder with -o, or leave the setting "
        "out\n",
    )
    more = run("train", "-o", str(out), "--steps", "15")
    assert more.returncode == 0, more.stderr
    assert "continuing from step 12\n" in more.stderr and Run(out).saved_steps()[-1] == 15
    fewer = run("train", "-o", str(out), "--steps", "5")
    assert fewer.returncode == 2 and "has done 15 steps already; --steps 5 is less" in fewer.stderr
    assert Run(out).read_config().train.steps == 15, "what is refused changes nothing"
    averaged = run("average", str(out), "--step", "12", "--step", "15")
    assert averaged.returncode == 0, averaged.stderr
    assert averaged.stdout.startswith("the run now uses the average of the steps 12, 15: validation perplexity")
    one, other_weights = (load_file(Run(out).checkpoint_path(step) / "weights.safetensors") for step in (12, 15))
    for name, tensor in load_file(out / "model.safetensors").items():
        assert abs(tensor - (one[name] + other_weights[name]) / 2).max() < 1e-6
    assert Run(out).damaged_files() == []
    missing = run("average", str(out), "--step", "13")
    assert missing.returncode == 2 and "has no checkpoint of step 13; it has" in missing.stderr
    slowly = ["--steps", "2", "--preset", "tiny", "--set", "train.learning_rate=1e-9"]
    refined = run("train", *flags(corpus), "--from", str(out), *slowly, "-o", str(corpus / "refined"))
    assert refined.returncode == 0, refined.stderr
    weights = Run(corpus / "refined").load_checkpoint(2).weights
    for name, tensor in load_file(out / "model.safetensors").items():
        assert abs(weights[name].numpy() - tensor).max() < 1e-8, name
    assert (corpus / "refined" / "tokenizer.model").read_bytes() == (out / "tokenizer.model").read_bytes()


@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_text_gets_one_sentence_and_exit_code_2(corpus: Path, kind: str) -> None:
    (corpus / "hostile.de").write_bytes(HOSTILE[kind])
    out = corpus / f"from {kind}"
    result = run("train", *flags(corpus, src="hostile.de"), *SETTINGS, "-o", str(out))
    assert result.returncode == 2
    assert result.stderr.startswith("regard: ") and result.stderr.count("\n") == 1, result.stderr
    assert "hostile.de" in result.stderr
    assert not out.exists()


@pytest.mark.slow
def test_killed_again_and_again_it_ends_the_same() -> None:
    """Kill it three times at random moments; `scripts/kill_and_resume.py 20` is the complete test."""
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    script = [sys.executable, str(ROOT / "scripts" / "kill_and_resume.py"), "3", "--steps", "60"]
    result = subprocess.run(script, capture_output=True, text=True, env=environment, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "3 kills, and not a bit of difference" in result.stdout


def test_early_stopping_separate_subwords_and_prepared_text(corpus: Path) -> None:
    """With a learning rate near 0 nothing is learnt, and two validations without improvement end the run."""
    prepared = corpus / "prepared"
    result = run("prepare", *flags(corpus), "--vocab-size", "300", "--separate-vocab", "-o", str(prepared))
    assert result.returncode == 0, result.stderr
    settings = {"patience": 2, "valid_every": 2, "keep_checkpoints": 1, "learning_rate": 1e-30, "bleu_sentences": 0}
    sets = [word for name, value in settings.items() for word in ("--set", f"train.{name}={value}")]
    arguments = ["--preset", "tiny", "--data", str(prepared), "--steps", "50", *sets, "-o", str(corpus / "early")]
    result = run("train", *arguments)
    assert result.returncode == 0, result.stderr
    the_run = Run(corpus / "early")
    assert the_run.saved_steps()[-1] == 6 and len(the_run.saved_steps()) >= 2
    assert the_run.read_config().model.shared_embeddings == "target"
    again = run("train", *arguments)
    assert again.returncode == 0 and "6 steps; to go on, give a greater train.patience" in again.stderr
    longer = run("train", "-o", str(corpus / "early"), "--steps", "1000")
    assert longer.returncode == 2
    assert longer.stderr.endswith("ended after 6 steps; give a greater train.patience than 2\n")
    more = run("train", "-o", str(corpus / "early"), "--set", "train.patience=3")
    assert more.returncode == 0 and the_run.saved_steps()[-1] == 8, more.stderr
    other = run(
        "train", *flags(corpus), "--from", str(corpus / "early"), "--set", "model.d_model=32", "-o", str(corpus / "x")
    )
    assert other.returncode == 2 and "model.d_model cannot be changed for weights that come from" in other.stderr
    assert run("prepare", *flags(corpus), "--vocab-size", "290", "-o", str(corpus / "others")).returncode == 0
    mixed = run("train", "--data", str(corpus / "others"), "--from", str(corpus / "early"), "-o", str(corpus / "y"))
    assert mixed.returncode == 2 and "was prepared with other subwords than" in mixed.stderr


DATA = {"train": [{"src": "a.de", "tgt": "a.en"}], "valid": {"src": "v.de", "tgt": "v.en"}}


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({}, "there is nothing to learn from; give --src and --tgt, or --data with a prepared folder"),
        ({"data": {"trian": []}}, "there is no setting data.trian; did you mean data.train?"),
        ({"data": DATA, "train": {"steps": 3, "minutes": 1.0}}, "both --steps and --minutes were given; give one of them"),
        ({"data": DATA, "trian": {}}, "there is no setting trian; did you mean train?"),
        ({"data": DATA, "train": {"warmpu": 3}}, "there is no setting train.warmpu; did you mean train.warmup?"),
        ({"data": DATA, "model": {"d_modle": 3}}, "there is no setting model.d_modle; did you mean model.d_model?"),
        ({"data": DATA, "model": {"pad_id": 3}}, "model.pad_id comes from the tokenizer; set data.vocab_size instead"),
        ({"data": DATA, "model": {"kind": "rnnn"}}, "there is no kind of model 'rnnn'; did you mean rnn?"),
        ({"data": DATA, "preset": "smal"}, "there is no preset 'smal'; did you mean small?"),
        ({"data": DATA, "train": 3}, "train must be a table of settings, but is 3"),
        ({"data": DATA, "longest": 5}, "longest is decided by the run itself; leave it out"),
        ({"data": DATA, "train": {"device": "gpu"}}, "the device 'gpu' is not available here; try --device cpu"),
        ({"data": DATA, "prepared": "x"}, "both prepared data and text to prepare were given; give one of them"),
        ({"prepared": "nowhere"}, "nowhere was not made by `regard prepare`: it has no data.json"),
        ({"data": DATA, "start_from": "nowhere"}, "there is no run nowhere"),
    ],
)
def test_settings_that_cannot_be_meant(given: dict[str, object], sentence: str, tmp_path: Path) -> None:
    """They are refused before any text is read: the files do not exist."""
    with pytest.raises(ValueError) as raised:  # noqa: PT011 - the whole sentence is compared
        train_command(given, tmp_path / "run")
    assert str(raised.value) == sentence


def test_a_toml_file_says_it_all_and_minutes_become_steps(corpus: Path) -> None:
    (corpus / "mine.toml").write_text(
        f"""
        preset = "tiny"
        [data]
        src_lang = "de"
        tgt_lang = "en"
        vocab_size = 300
        train = [{{ src = "{corpus}/train.de", tgt = "{corpus}/train.en" }}]
        valid = {{ src = "{corpus}/valid.de", tgt = "{corpus}/valid.en" }}
        [train]
        minutes = 0.02
        batch_tokens = 128
        """,
        encoding="utf-8",
    )
    out = corpus / "from-toml"
    result = run("train", "--config", str(corpus / "mine.toml"), "--set", "train.warmup=7", "-o", str(out))
    assert result.returncode == 0, result.stderr
    train_config = Run(out).read_config().train
    told = re.search(r"^0\.02 minutes are about ([\d,]+) steps here$", result.stderr, flags=re.MULTILINE)
    assert told is not None and told[1] != "0", result.stderr  # a machine that slows down plans again
    assert train_config.minutes == 0.02 and train_config.steps == read_lines(Run(out).metrics_path)[-1]["step"]
    assert train_config.batch_tokens == 128
    again = run("train", "--config", str(corpus / "mine.toml"), "--set", "train.warmup=7", "-o", str(out))
    assert again.returncode == 0 and "is finished" in again.stderr, again.stderr


@pytest.mark.usefixtures("unchecked")
def test_planned_anew_and_stopped_it_ends_as_it_would_have(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After its checkpoint of step 4, a run by the clock finds time for 60 steps rather than 40. If it is stopped just then,
    it continues by the new plan, and ends with the same bits as an uninterrupted run."""

    def clock(config: RunConfig, *, done: Pace, **_: object) -> int:
        return 60 if done.steps == 4 else config.train.steps

    def given() -> dict[str, object]:
        train = {"minutes": 0.1, "learning_rate": 0.0, "batch_tokens": 256, "device": "cpu"}
        return {"preset": "tiny", "data": text_of(corpus), "train": train}

    monkeypatch.setattr(Training, "steps_within", lambda *_: (40, 20))
    monkeypatch.setattr(loop, "steps_by_the_clock", clock)
    undisturbed, stopped = corpus / "by the clock", corpus / "by the clock, stopped"
    train_command(given(), undisturbed)
    config = Run(undisturbed).read_config()
    assert config.planned == ("steps", "warmup", "log_every", "valid_every", "save_every")
    assert (config.train.steps, config.train.warmup, config.train.valid_every, config.train.save_every) == (60, 12, 30, 3)
    assert Run(undisturbed).saved_steps()[-5:] == [48, 51, 54, 57, 60]
    update = Training._update

    def interrupted(self: Training, place: Place) -> Place:
        if self.learner.step == 5:
            raise SystemExit(1)  # as a kill would: step 5 was done, but not saved
        return update(self, place)

    monkeypatch.setattr(Training, "_update", interrupted)
    with pytest.raises(SystemExit):
        train_command(given(), stopped)
    monkeypatch.setattr(Training, "_update", update)
    monkeypatch.setattr(loop, "steps_by_the_clock", lambda config, **_: config.train.steps)  # the plan was made before
    train_command({}, stopped)
    assert digests(stopped, 60) == digests(undisturbed, 60)
    longer = run("train", "-o", str(stopped), "--steps", "66")
    assert longer.returncode == 0, longer.stderr
    assert Run(stopped).saved_steps()[-1] == 66, "whoever counts steps does not go by the clock"
    assert Run(stopped).read_config().planned == ()
    refused = run("train", "-o", str(stopped), "--minutes", "9")
    assert refused.returncode == 2
    assert refused.stderr.endswith("goes by steps, not by the clock; give more --steps instead of --minutes 9\n")


@pytest.mark.usefixtures("unchecked")
def test_more_minutes_continue_a_run_by_the_clock(corpus: Path) -> None:
    """A finished run goes on for the time it is given, and no time can be taken back."""
    out = corpus / "more minutes"
    given = ["--preset", "tiny", "--batch-tokens", "256", "--vocab-size", "300", "-o", str(out)]
    assert run("train", *flags(corpus), *given, "--minutes", "0.06").returncode == 0
    first = Run(out).read_config().train
    again = run("train", "-o", str(out), "--minutes", "0.06")
    assert "is finished" in again.stderr
    assert again.stderr.endswith("to go on, give more --minutes or --steps\n")
    less = run("train", "-o", str(out), "--minutes", "0.01")
    assert less.returncode == 2
    assert re.search(r"has trained for [\d.]+ minutes already; --minutes 0\.01 is not more", less.stderr)
    before = (out / "config.json").read_bytes()
    both = run("train", "-o", str(out), "--minutes", "0.2", "--steps", str(first.steps))
    assert both.stderr == "regard: both --steps and --minutes were given; give one of them\n"
    (out / "data").rename(corpus / "moved away")
    missing = run("train", "-o", str(out), "--minutes", "0.2")
    assert missing.stderr.endswith(f"is missing: it is the prepared text that {out} was begun with; put it back\n")
    (corpus / "moved away").rename(out / "data")
    assert (out / "config.json").read_bytes() == before, "a refusal changes nothing"
    state = Run(out).checkpoint_path(Run(out).saved_steps()[-1]) / "state.json"
    state.write_bytes(state.read_bytes() + b"x")
    more = run("train", "-o", str(out), "--minutes", "0.2")
    assert more.returncode == 0, more.stderr
    assert "going back to the one before it" in more.stderr
    last, reached = Run(out).read_config().train, Run(out).saved_steps()[-1]
    assert last.minutes == 0.2
    assert reached == last.steps > first.steps
    assert read_lines(Run(out).metrics_path)[-1]["step"] == last.steps


@pytest.mark.usefixtures("unchecked")
def test_steps_end_a_plan_even_if_they_are_what_was_planned(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    train = {"minutes": 0.1, "batch_tokens": 256, "device": "cpu"}
    monkeypatch.setattr(Training, "steps_within", lambda *_: (40, 20))
    monkeypatch.setattr(loop, "steps_by_the_clock", lambda config, **_: config.train.steps)
    out = corpus / "planned for 40"
    train_command({"preset": "tiny", "data": text_of(corpus), "train": train}, out)
    train_command({"train": {"steps": 40}}, out)
    config = Run(out).read_config()
    assert (config.train.steps, config.planned) == (40, ())


@pytest.mark.usefixtures("unchecked")
def test_before_its_first_step_a_run_by_the_clock_is_planned_from_nothing(
    corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other minutes set all that was planned for the first ones anew."""
    train = {"minutes": 30.0, "batch_tokens": 256, "device": "cpu"}
    plans = iter([(10_000, 1000), (12, 6)])
    monkeypatch.setattr(Training, "steps_within", lambda *_: next(plans))
    monkeypatch.setattr(loop, "steps_by_the_clock", lambda config, **_: config.train.steps)
    update, out = Training._update, corpus / "planned from nothing"

    def killed(_: Training, __: Place) -> Place:
        raise SystemExit(1)

    monkeypatch.setattr(Training, "_update", killed)
    with pytest.raises(SystemExit):
        train_command({"preset": "tiny", "data": text_of(corpus), "train": train}, out)
    monkeypatch.setattr(Training, "_update", update)
    train_command({"train": {"minutes": 0.2}}, out)
    train_config = Run(out).read_config().train
    assert (train_config.steps, train_config.valid_every, train_config.save_every) == (12, 6, 1)


def test_weights_without_a_checkpoint_are_not_trained_over(corpus: Path) -> None:
    out = corpus / "without checkpoints"
    assert train(corpus, out).returncode == 0
    shutil.rmtree(Run(out).checkpoints)
    before = sha256(out / "model.safetensors"), sha256(out / "config.json")
    result = run("train", "-o", str(out), "--steps", str(2 * STEPS))
    assert result.returncode == 2
    assert result.stderr.endswith(f"no checkpoint to continue from; begin another run with --from {out}\n")
    assert (sha256(out / "model.safetensors"), sha256(out / "config.json")) == before


@pytest.mark.usefixtures("unchecked")
def test_an_overloaded_machine_is_reported_once(
    corpus: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = list[int]()

    def complaint(_: OtherPrograms, threads: int) -> str:
        asked.append(threads)
        return "" if len(asked) == 1 else "this machine is overloaded"

    monkeypatch.setattr(OtherPrograms, "complaint", complaint)
    settings = {"steps": 6, "log_every": 1, "batch_tokens": 256, "device": "cpu", "threads": 1}
    train_command({"preset": "tiny", "data": text_of(corpus), "train": settings}, corpus / "overloaded")
    assert asked == [1, 1]
    assert capsys.readouterr().err.count("warning: this machine is overloaded; training is slower") == 1


@pytest.mark.usefixtures("unchecked")
def test_written_beside_the_updates_it_ends_the_same(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a GPU, weights are copied before a thread writes them. Here an update runs while each is being written."""
    settings = {"steps": STEPS, "save_every": 3, "valid_every": 6, "log_every": 2, "batch_tokens": 256, "device": "cpu"}
    given = {"preset": "tiny", "data": text_of(corpus), "train": settings}
    train_command(given, corpus / "written in between")
    begun, updated = defaultdict[int, threading.Event](threading.Event), defaultdict[int, threading.Event](threading.Event)
    beside = range(3, STEPS, 3)  # the checkpoints that are followed by an update
    save, update = Run.save_checkpoint, Training._update

    def slowly(self: Run, step: int, checkpoint: Checkpoint) -> None:
        begun[step].set()
        assert step not in beside or updated[step].wait(600)
        save(self, step, checkpoint)

    def watched(self: Training, place: Place) -> Place:
        step = self.learner.step
        assert step not in beside or begun[step].wait(600)
        place = update(self, place)
        updated[step].set()
        return place

    monkeypatch.setattr(Run, "save_checkpoint", slowly)
    monkeypatch.setattr(Training, "_update", watched)
    monkeypatch.setattr(loop, "Writer", lambda **_: Writer(beside=True))
    monkeypatch.setattr(learner, "on_cpu", lambda tensors: {name: tensor.clone() for name, tensor in tensors.items()})
    train_command(given, corpus / "written beside")
    assert all(updated[step].is_set() for step in beside)
    assert Run(corpus / "written beside").saved_steps() == Run(corpus / "written in between").saved_steps()
    assert digests(corpus / "written beside") == digests(corpus / "written in between")


@pytest.mark.usefixtures("unchecked")
def test_processes_that_cut_words_anew_change_nothing(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a GPU, BPE-dropout runs in several processes."""
    settings = {"steps": STEPS, "bpe_dropout": 0.1, "accumulation": 2, "batch_tokens": 256, "device": "cpu"}
    given = {"preset": "tiny", "data": text_of(corpus), "train": settings}
    train_command(given, corpus / "cut here")
    made_here, before = list[Place](), multiprocessing.active_children()
    monkeypatch.setattr(loop, "num_workers", lambda *_: 2)
    make = BatchMaker.__call__

    def watched(self: BatchMaker, place: Place) -> Batches:
        made_here.append(place)
        return make(self, place)

    monkeypatch.setattr(BatchMaker, "__call__", watched)
    train_command(given, corpus / "cut elsewhere")
    assert not made_here
    assert digests(corpus / "cut elsewhere") == digests(corpus / "cut here")
    assert multiprocessing.active_children() == before


@pytest.mark.slow
def test_by_our_own_kernels_stopped_and_continued_it_ends_the_same(corpus: Path) -> None:
    """Without a GPU, Triton interprets the kernels: use few steps of a small model."""
    settings = ["--preset", "tiny", "--batch-tokens", "256", "--vocab-size", "300", "--set", "train.schedule=inverse_sqrt"]
    settings += ["--set", "model.d_model=32", "--set", "model.num_heads=2", "--set", "model.encoder_layers=1"]
    settings += ["--set", "model.decoder_layers=1", "--set", "model.dropout=0.1", "--set", "train.save_every=2"]
    settings += ["--set", "train.valid_every=4", "--set", "train.bleu_sentences=2", "--set", "train.log_every=1"]
    kernels = ["--set", "train.kernels=on", "--set", "train.precision=float32"]
    for name, steps in (("fused", "4"), ("cut", "2"), ("cut", "4")):
        result = run("train", *flags(corpus), *settings, *kernels, "--steps", steps, "-o", str(corpus / name))
        assert result.returncode == 0, result.stderr
    files = sorted(path.name for path in Run(corpus / "cut").checkpoint_path(4).glob("*.safetensors"))
    assert files == ["optimizer.safetensors", "weights.safetensors"]
    for name in files:
        one, other = (Run(corpus / folder).checkpoint_path(4) / name for folder in ("fused", "cut"))
        assert sha256(one) == sha256(other)
    lines = [json.loads(line) for line in (corpus / "fused" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    losses = [line["nll"] for line in lines if "nll" in line]
    assert losses[-1] < losses[0]


def test_our_own_kernels_where_they_cannot_be(corpus: Path) -> None:
    result = run("train", *flags(corpus), "--model", "rnn", "--set", "train.kernels=on", "-o", str(corpus / "rnn"))
    assert result.returncode == 2
    assert result.stderr.count("\n") == 1 and "train.kernels is on, but our own kernels do not serve" in result.stderr
