"""Tests that faults of regard and mistakes of users are told apart: exit codes 1 and 2, answers of 500 and 4xx.

They run real command lines, in each of which one function of regard is broken (`tests.oracles.injected`)."""

import json
import re
import subprocess
import sys
import urllib.error
from itertools import cycle
from pathlib import Path

import pytest

from regard.__main__ import REPORT
from regard.serve.batcher import FAULT
from tests.commands.test_prepare import flags, text
from tests.commands.test_serve import RUN, SENTENCES, serving
from tests.oracles.injected import SECRET, TOLD

__all__ = ["text"]  # the fixture

ROOT = Path(__file__).parents[2]


def outcomes(cases: list[tuple[str, str, list[str]]]) -> list[tuple[int, str]]:
    command = [sys.executable, "-m", "tests.oracles.injected"]
    result = subprocess.run(
        command, input=json.dumps(cases), capture_output=True, text=True, timeout=600, check=False, cwd=ROOT
    )
    assert result.returncode == 0, result.stderr
    return [(code, told) for code, told in json.loads(result.stdout)]


def arguments_for(text: Path) -> dict[str, list[str]]:
    """Return a command line that calls each of these functions."""
    source, run = str(RUN / "source.de"), str(RUN)
    training = ["--preset", "tiny", "--batch-tokens", "256", "--steps", "2", "--vocab-size", "300", "--device", "cpu"]
    return {
        "regard.settings:similar_path": ["translate", "/no/such/run"],
        "regard.run.checkpoint:read_table": ["translate", run, source],
        "regard.config:ModelConfig.__post_init__": ["translate", run, source],
        "regard.text.tokenizer:Subwords.encode": ["translate", run, source],
        "regard.text.corpus:count_lines": ["translate", run, source],
        "regard.model.transformer:Transformer.start": ["translate", run, source],
        "regard.model.cache:DecoderCache.select": ["translate", run, source],
        "regard.translate.search:beam": ["translate", run, source],
        "regard.translate.translator:Translator._batches": ["translate", run, source],
        "regard.cli.translate:load": ["translate", run, source],
        "regard.text.cleaning:normalise": ["look", run, "Ich bin müde.", "-o", str(text / "look.html")],
        "regard.inspection.look:predictions": ["look", run, "Ich bin müde.", "-o", str(text / "look.html")],
        "regard.evaluate.metrics:BleuForm.tokenizer_for": ["evaluate", source, "--ref", source, "-o", str(text / "e")],
        "regard.evaluate.evaluation:_lengths": ["evaluate", source, "--ref", source, "-o", str(text / "e")],
        "regard.text.tokenizer:_remembering": ["prepare", *flags(text), "--vocab-size", "300", "-o", str(text / "p")],
        "regard.data.prepare:_accounted": ["prepare", *flags(text), "--vocab-size", "300", "-o", str(text / "p")],
        "regard.train.learner:Learner.update": ["train", *flags(text), *training, "-o", str(text / "run")],
        "regard.train.loop:Training.save": ["train", *flags(text), *training, "-o", str(text / "run-2")],
        "regard.exchange.command:compare": ["export", run, "--to", "ctranslate2", "--src", source, "-o", str(text / "x")],
        "regard.exchange.spm:SpmModel.parse": ["export", run, "--to", "huggingface", "--src", source, "-o", str(text / "x")],
        "regard.info:_num_parameters": ["info", run],
        "regard.lab.command:performed": ["lab", "softmax-by-hand"],
        "regard.bench.search:normalise": ["bench", "search", run, source, "--lines", "2"],
        "regard.serve.service:learn": ["serve", run, "--port", "0", "--device", "cpu"],
        "regard.bench.doctor:_packages": ["doctor"],
    }


KINDS = ("zip", "value", "key", "runtime", "assertion", "end", "unicode", "json", "descriptor", "library")


def test_a_fault_of_any_layer_is_told_with_its_traceback_and_how_to_report_it(text: Path) -> None:
    cases = [(where, kind, arguments) for (where, arguments), kind in zip(arguments_for(text).items(), cycle(KINDS))]
    for (where, what, _), (code, told) in zip(cases, outcomes(cases), strict=True):
        assert code == 1, (where, what, told)
        assert "Traceback (most recent call last):" in told, (where, what, told)
        assert told.splitlines()[-1] == REPORT, (where, what, told)
        assert not re.search(r"^regard: (?!this is a fault)", told, flags=re.MULTILINE), (where, what, told)


def test_what_a_user_did_is_one_sentence_wherever_it_is_found(text: Path) -> None:
    cases = [(where, "user", arguments) for where, arguments in list(arguments_for(text).items())[1::3]]
    for (where, _, _), (code, told) in zip(cases, outcomes(cases), strict=True):
        assert (code, told.splitlines()[-1]) == (2, f"regard: {TOLD}"), (where, told)
        assert "Traceback" not in told, (where, told)


def test_a_full_disk_is_a_sentence_and_ctrl_c_nothing(text: Path) -> None:
    where = "regard.translate.translator:Translator._batches"
    arguments = arguments_for(text)[where]
    full, stopped = outcomes([(where, "full", arguments), (where, "interrupt", arguments)])
    assert full == (2, "regard: No space left on device; free some space, or give a place on another disk\n")
    assert stopped == (130, "")


def test_an_output_that_takes_nothing_is_told_before_the_end() -> None:
    command = f"{sys.executable} -m regard --version > /dev/full"
    result = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False, cwd=ROOT)
    assert (result.returncode, result.stderr.count("\n")) == (2, 1), result.stderr
    assert result.stderr.startswith("regard: No space left on device; ")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            ["translate", str(RUN), "--sample", "1", "--temperature", "1e-46"],
            "it must be a number between 1e-30 and 1e+30",
        ),
        (["translate", str(RUN), "--device", "meta"], "the device 'meta' is not available here"),
        (["look", str(RUN), b"M\xfcde"], "text 1 is not UTF-8 text: its character 2 is half"),
        (["train", "--set", f"train.seed={'9' * 5000}"], "train.seed must be a whole number"),
        (["train", "--set", f"train.learning_rate={'9' * 500}"], "train.learning_rate is too large a number"),
        (["train", "--set", f"train.seed={'[' * 5000}"], "train.seed must be a whole number"),
    ],
)
def test_what_used_to_be_a_traceback_is_a_sentence(arguments: list[str | bytes], sentence: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "regard", *arguments]
    if arguments[0] != "translate":
        command += ["-o", str(tmp_path / "out.html")]
    result = subprocess.run(command, capture_output=True, text=True, input="Ich\n", check=False, cwd=ROOT)
    assert result.returncode == 2, result.stderr
    assert sentence in result.stderr and result.stderr.count("\n") == 1, result.stderr
    assert result.stderr.startswith("regard: ")


def test_a_server_says_500_and_its_log_the_rest() -> None:
    """The traceback is in the server's log, and `/metrics` counts it."""
    broken = "import sys; from regard.translate import translator; from regard.__main__ import main\n"
    broken += "whole = translator.Translator._translations\n"
    broken += "def half(self, parts, *others):\n"
    broken += f"    return [] if parts[0].source == {SECRET!r} else whole(self, parts, *others)\n"
    broken += "translator.Translator._translations = half\n"
    broken += "main()\n"
    with serving(program=["-c", broken]) as server:
        asked = {"source": "de", "target": "en"}
        with pytest.raises(urllib.error.HTTPError) as refused:
            server.post("/translate", asked | {"q": SECRET})
        answer = refused.value.read().decode()
        assert (refused.value.code, json.loads(answer)) == (500, {"error": FAULT})
        assert server.post("/translate", asked | {"q": SENTENCES[0]})["translatedText"]
        assert server.metric("regard_faults_total") == 1
        with pytest.raises(urllib.error.HTTPError) as mistaken:
            server.post("/translate", asked | {"q": SENTENCES[0], "beam": 1000})
        assert mistaken.value.code == 422
        assert server.metric("regard_faults_total") == 1
        server.process.terminate()
        assert server.process.stderr
        told = server.process.stderr.read()
    assert told.count("Traceback") == 1 and "zip() argument 2 is shorter than argument 1" in told, told
