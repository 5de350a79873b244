"""Tests of choosing a run for a text, naming languages, and detecting them."""

import asyncio
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from regard.data.store import SplitWriter
from regard.demo.command import text
from regard.run.checkpoint import Checkpoint, Run, load_weights
from regard.serve.batcher import Batcher
from regard.serve.detection import Detector, learn
from regard.serve.languages import languages_listed, matching, name_of
from regard.serve.measurements import Histogram, Measurements
from regard.serve.request_parsing import RefusalError
from regard.serve.runs import ServedRun, load_runs, run_for, sources_for
from regard.serve.service import Service
from regard.serve.settings import DEFAULT_QUEUE, Limits, Queue, ServeSettings, is_every_interface, is_this_machine
from regard.text.corpus import read_lines
from regard.translate.search import Search

RUN = Path(__file__).parents[1] / "runs" / "0.1.0"
SENTENCES = (RUN / "source.de").read_text(encoding="utf-8").splitlines()[:4]


@pytest.fixture(scope="module")
def run() -> ServedRun:
    return load_runs([RUN], "cpu")[0]


def between(run: ServedRun, *pairs: str) -> list[ServedRun]:
    """Return runs that declare these language pairs."""
    codes = [pair.split(">") for pair in pairs]
    return [replace(run, name=f"{src}-{tgt}", src_lang=src, tgt_lang=tgt) for src, tgt in codes]


def test_a_checkpoint_is_the_run_as_it_was(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    shutil.copytree(RUN, folder)
    before = {name: tensor / 2 for name, tensor in load_weights(Run(folder).model_path).items()}
    Run(folder).save_checkpoint(7, Checkpoint(before, {}, {}))
    now, then = load_runs([folder, Run(folder).checkpoint_path(7)], "cpu")
    assert [now.name, then.name] == ["mine", "mine@7"]
    assert now.training() == then.training()
    for name, tensor in then.translator.models[0].state_dict().items():
        assert torch.equal(tensor, before[name]), name
    (Run(folder).checkpoint_path(7) / "weights.safetensors").write_bytes(b"")
    with pytest.raises(ValueError, match="is not what was saved"):
        load_runs([Run(folder).checkpoint_path(7)], "cpu")
    with pytest.raises(ValueError, match=r"did you mean .*step-00000007"):
        load_runs([Run(folder).checkpoint_path(8)], "cpu")


@pytest.mark.parametrize(
    ("source", "target", "name"),
    [
        ("de", "en", "de-en"),
        ("DE", "EN-US", "de-en"),
        ("de_AT", "en", "de-en"),
        ("ja", "en", "ja-en"),
        ("en", "de", "en-de"),
        ("zh-Hant", "en", "zh-Hant-en"),
        ("ZH-HANS", "en-gb", "zh-Hans-en"),
        ("zh", "en", "zh-Hans-en"),  # the first of that language
        ("fr", "en", None),
        ("ja", "de", None),
        ("", "", None),
    ],
)
def test_a_run_is_found_by_its_languages(run: ServedRun, source: str, target: str, name: str | None) -> None:
    runs = between(run, "de>en", "ja>en", "en>de", "zh-Hans>en", "zh-Hant>en")
    found = run_for(runs, source, target)
    assert (found and found.name) == name


def test_of_several_runs_for_a_pair_the_first_translates(run: ServedRun) -> None:
    one, other = between(run, "de>en", "de>en")
    assert run_for([one, other], "de", "en") is one
    [_, british] = runs = between(run, "en>de", "en-GB>fr")
    assert run_for(runs, "en", "fr") is british, "a source that fits better leads nowhere"
    assert sources_for(between(run, "de>en", "ja>en", "en>de", "de>en"), "EN-US") == ["de", "ja"]


def test_languages_have_names_and_targets() -> None:
    assert languages_listed([("de", "en"), ("en", "de"), ("de", "xx"), ("de", "en")]) == [
        {"code": "de", "name": "German", "targets": ["en", "xx"]},
        {"code": "en", "name": "English", "targets": ["de"]},
        {"code": "xx", "name": "xx", "targets": []},
    ]
    assert name_of("zh-Hans") == "Chinese"
    assert matching("EN_us", ["en-GB", "en"]) == ["en-GB", "en"]
    assert matching("en-gb", ["en", "en-GB"]) == ["en-GB"]


def test_each_text_goes_to_the_run_of_its_language(run: ServedRun) -> None:
    """Mix German with text in other scripts in one request without a source language."""
    runs = tuple(between(run, "de>en", "el>en"))
    detector = Detector({"de": SENTENCES, "el": ["Καλημέρα σας", "Δεν ξέρω τίποτα"]})
    measurements = Measurements("test")
    batcher = Batcher(DEFAULT_QUEUE, 1024, measurements)
    service = Service(ServeSettings(runs=(RUN,)), runs, detector, batcher, measurements)
    texts = [SENTENCES[0], "Καλημέρα", SENTENCES[1], "", "Τίποτα δεν ξέρω"]
    done = asyncio.run(service.translate(texts, "auto", "en", Search()))
    assert [one.source for one in done if one.text] == ["de", "el", "de", "el"]
    assert [done[place].text for place in (0, 2)] == [one.text for one in run.translator.translate(SENTENCES[:2])]
    metrics = measurements.text({})
    assert 'regard_texts_total{run="de-en"} 2' in metrics
    assert 'regard_texts_total{run="el-en"} 2' in metrics
    with pytest.raises(RefusalError, match="translates between these languages"):
        asyncio.run(service.translate(texts, "de", "el", Search()))
    batcher.close(10.0)


def test_languages_are_learnt_from_prepared_text(run: ServedRun, tmp_path: Path) -> None:
    """Text of 1,000 pairs beside a run is enough to tell 200 others apart, except for a few."""
    sides = {code: list(read_lines(text("train", code)))[:1000] for code in ("de", "en")}
    (tmp_path / "data").mkdir()
    with SplitWriter(tmp_path / "data", "train", {"src": 1000, "tgt": 1000}) as writer:
        writer.append(*((sides[code], run.translator.tokenizer.src.encode(sides[code])) for code in ("de", "en")))
    detector = learn([replace(run, folder=tmp_path)])
    for code in ("de", "en"):
        held_out = list(read_lines(text("test", code)))[:200]
        assert sum(detector.detect(one)[0][0] == code for one in held_out) >= 194


def test_what_has_no_letters_is_as_likely_in_all_languages() -> None:
    detector = Detector({"de": ["guten Morgen"], "en": ["good morning"]})
    for nothing in ("", " ", "123", "!?", "\0"):
        assert detector.detect(nothing) == [("de", 0.5), ("en", 0.5)]


def test_a_histogram_counts_what_is_at_most_so_large() -> None:
    histogram = Histogram((1.0, 2.0))
    for value in (0.5, 1.0, 1.5, 9.0):
        histogram.add(value)
    assert histogram.lines("x") == [
        'x_bucket{le="1.0"} 2',
        'x_bucket{le="2.0"} 3',
        'x_bucket{le="+Inf"} 4',
        "x_sum 12.000000",
        "x_count 4",
    ]


def test_the_queue_is_as_long_as_can_be_done_in_time() -> None:
    measurements = Measurements("test")
    batcher = Batcher(Queue(batch_tokens=10, queue_tokens=1000, patience_seconds=20.0), 1024, measurements)
    batcher._waiting = 20.0
    assert not batcher._is_full(20.0)  # its speed is unknown
    assert batcher._is_full(21.0)
    batcher._waiting = 100.0
    measurements.add_batch("run", 1, 10, 10.0, 1.0)  # 10 tokens a second, so that 200 are within the limit
    assert not batcher._is_full(100.0)
    assert batcher._is_full(101.0)
    for _ in range(100):
        measurements.add_batch("run", 1, 0, 0.0, 1.0)  # slower and slower
    assert batcher._is_full(1.0)
    batcher._waiting = 5.0
    assert not batcher._is_full(5.0)  # one batch may always wait
    batcher._waiting = 0.0
    assert not batcher._is_full(10_000.0)
    batcher.close(10.0)


def test_settings_are_checked() -> None:
    for words, make in (
        ("at least one run", lambda: ServeSettings(runs=())),
        ("no port 70000", lambda: ServeSettings(runs=(RUN,), port=70000)),
        ("key is empty", lambda: ServeSettings(runs=(RUN,), api_keys=("a", " "))),
        ("key is empty", lambda: ServeSettings(runs=(RUN,), api_keys=("",))),
        ("headers do not carry", lambda: ServeSettings(runs=(RUN,), api_keys=("schlüssel",))),
        ("at most 1,000", lambda: Limits(texts=1001)),
        ("is not an origin", lambda: ServeSettings(runs=(RUN,), cors=("https://their.example/",))),
        ("is not an origin", lambda: ServeSettings(runs=(RUN,), cors=("their.example",))),
        ("is not a host name", lambda: ServeSettings(runs=(RUN,), names=("https://translate.example",))),
        ("allows nothing", lambda: Limits(texts=0)),
        ("seconds", lambda: Limits(seconds=0.0)),
        ("alternatives", lambda: Limits(alternatives=-1)),
        ("between 0 and 1", lambda: Queue(wait_seconds=2.0)),
        ("at least 1 token", lambda: Queue(batch_tokens=-1)),
    ):
        with pytest.raises(ValueError, match=words):
            make()
    for address in ("0.0.0.0", "::", "::ffff:0.0.0.0"):
        assert is_every_interface(address)
    for address in ("127.0.0.1", "::1", "::ffff:127.0.0.1", "10.0.0.1"):
        assert not is_every_interface(address)
    for host, is_here in (
        ("127.0.0.1", True),
        ("[::1]", True),
        ("LOCALHOST", True),
        ("0.0.0.0", False),
        ("a.example", False),
    ):
        assert is_this_machine(host) == is_here
