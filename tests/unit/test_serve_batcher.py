"""Tests of translating waiting requests together, in turns, within limits. A gate in the translator stands for time."""

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from regard.inspection.look import Question, look, look_at_head
from regard.model.trace import Head
from regard.serve.batcher import Batcher, ClosedError, FaultError, FullError, Look, TooLargeError, Translate
from regard.serve.measurements import Measurements
from regard.serve.settings import Queue
from regard.translate.search import Search
from regard.translate.translation import Translation
from regard.translate.translator import SourceText, Translator, load

RUN = Path(__file__).parents[1] / "runs" / "0.1.0"
SENTENCES = (RUN / "source.de").read_text(encoding="utf-8").splitlines()[:12]
POISON = "Gift"


@dataclass(frozen=True, eq=False, repr=False)
class Gated(Translator):
    """A translator that waits for its gate to open, and records its input."""

    gate: threading.Event = field(default_factory=threading.Event)
    entered: threading.Event = field(default_factory=threading.Event)
    batches: list[list[str]] = field(default_factory=list)

    def translate_encoded(
        self, sources: Sequence[SourceText], *others: Any, **named: Any
    ) -> Iterator[tuple[int, Translation]]:
        self.batches.append([source.text for source in sources])
        self.entered.set()
        assert self.gate.wait(600)
        if POISON in self.batches[-1]:
            raise RuntimeError("this is expected")
        return super().translate_encoded(sources, *others, **named)


@pytest.fixture(scope="module")
def plain() -> Translator:
    return load(RUN, device="cpu")


@pytest.fixture
def gated(plain: Translator) -> Iterator[Gated]:
    translator = Gated(plain.configs, plain.tokenizer, plain.models, plain.device)
    yield translator
    translator.gate.set()


@pytest.fixture
def batcher() -> Iterator[Batcher]:
    made = Batcher(Queue(wait_seconds=0.0), 1024, Measurements("test"))
    yield made
    made.close(10.0)


def asked(translator: Translator, **search: Any) -> Translate:
    return Translate("run", translator, Search(**search))


def texts_of(translations: list[Translation]) -> list[str]:
    return [one.text for one in translations]


def test_what_waits_is_translated_together(batcher: Batcher, gated: Gated, plain: Translator) -> None:
    first = batcher.translate(asked(gated), gated.encode(SENTENCES[:1]))
    assert gated.entered.wait(600)
    others = [batcher.translate(asked(gated), gated.encode([sentence])) for sentence in SENTENCES[1:]]
    gated.gate.set()
    found = [texts_of(one.result(600)) for one in (first, *others)]
    assert gated.batches == [SENTENCES[:1], SENTENCES[1:]]
    assert found == [[text] for text in texts_of(plain.translate(SENTENCES))]
    metrics = batcher.measurements.text(batcher.waiting())
    assert "regard_batch_texts_count 2\n" in metrics
    assert f"regard_batch_texts_sum {len(SENTENCES)}.0" in metrics


def test_others_are_waited_for(gated: Gated) -> None:
    """A second is long enough for all requests, and the batch starts sooner because it is full."""
    batcher = Batcher(Queue(wait_seconds=1.0, batch_tokens=60), 1024, Measurements("test"))
    gated.gate.set()
    futures = [batcher.translate(asked(gated), gated.encode([sentence])) for sentence in SENTENCES]
    for future in futures:
        future.result(600)
    assert len(gated.batches) < len(SENTENCES) / 2
    batcher.close(10.0)


def test_only_equal_searches_share_a_batch(batcher: Batcher, gated: Gated) -> None:
    first = batcher.translate(asked(gated), gated.encode(SENTENCES[:1]))
    assert gated.entered.wait(600)
    wide = [batcher.translate(asked(gated, beam=6), gated.encode([sentence])) for sentence in SENTENCES[1:4]]
    usual = [batcher.translate(asked(gated), gated.encode([sentence])) for sentence in SENTENCES[4:6]]
    gated.gate.set()
    for future in (first, *wide, *usual):
        future.result(600)
    assert gated.batches[1:] == [SENTENCES[1:4], SENTENCES[4:6]]


def test_a_long_request_does_not_keep_a_short_one_waiting(gated: Gated) -> None:
    batcher = Batcher(Queue(wait_seconds=0.0, batch_tokens=30, queue_tokens=10_000), 1024, Measurements("test"))
    long = batcher.translate(asked(gated), gated.encode(SENTENCES * 3))
    assert gated.entered.wait(600)
    short = batcher.translate(asked(gated), gated.encode(["Kurz."]))
    gated.gate.set()
    short.result(600)
    assert len(long.result(600)) == 3 * len(SENTENCES)
    assert "Kurz." in gated.batches[1]
    assert len(gated.batches) > 6
    batcher.close(10.0)


def test_answers_are_in_the_order_of_the_texts(plain: Translator) -> None:
    small = Batcher(Queue(wait_seconds=0.0, batch_tokens=20), 1024, Measurements("test"))
    found = texts_of(small.translate(asked(plain), plain.encode(SENTENCES)).result(600))
    assert found == texts_of(plain.translate(SENTENCES))
    small.close(10.0)


def test_too_much_is_sent_away_until_there_is_room(gated: Gated) -> None:
    batcher = Batcher(Queue(wait_seconds=0.0, queue_tokens=40), 1024, Measurements("test"))
    running = batcher.translate(asked(gated), gated.encode(SENTENCES[:1]))
    assert gated.entered.wait(600)
    waiting = [
        batcher.translate(asked(gated), gated.encode(SENTENCES)) for _ in range(2)
    ]  # each counts for half of the queue
    with pytest.raises(FullError) as full:
        batcher.translate(asked(gated), gated.encode(SENTENCES[:1]))
    assert full.value.retry_after >= 1
    assert waiting[0].cancel()  # a cancelled request frees its share
    later = batcher.translate(asked(gated), gated.encode(SENTENCES[:1]))
    gated.gate.set()
    for future in (running, waiting[1], later):
        assert future.result(600)
    assert batcher.waiting()["queue_tokens"] == 0
    batcher.close(10.0)


def test_large_requests_leave_room_as_they_are_worked_off(gated: Gated) -> None:
    batcher = Batcher(Queue(wait_seconds=0.0, batch_tokens=60, queue_tokens=120), 1024, Measurements("test"))
    large = [batcher.translate(asked(gated), gated.encode(SENTENCES * 2)) for _ in range(2)]
    assert gated.entered.wait(600)  # the first batch is taken, and its share of the queue is free
    small = batcher.translate(asked(gated), gated.encode(["a"]))
    gated.gate.set()
    for future in (*large, small):
        assert future.result(600)
    assert batcher.waiting()["queue_tokens"] == 0
    batcher.close(10.0)


def test_a_request_that_comes_in_several_calls_counts_once(gated: Gated) -> None:
    """It fits into an empty queue, however large; a single call would count for half of it."""
    batcher = Batcher(Queue(wait_seconds=0.0, queue_tokens=60), 1024, Measurements("test"))
    running = batcher.translate(asked(gated), gated.encode(["a"]))
    assert gated.entered.wait(600)
    wanted = [batcher.translate(asked(gated, beam=width), gated.encode(SENTENCES * 2), among=3) for width in (1, 2, 3)]
    gated.gate.set()
    for future in (running, *wanted):
        assert future.result(600)
    batcher.close(10.0)


def test_what_could_never_be_done_in_time_is_not_begun(plain: Translator) -> None:
    measurements = Measurements("test")
    batcher = Batcher(Queue(batch_tokens=10, patience_seconds=1.0), 1024, measurements)
    measurements.add_batch("run", 1, 10, 10.0, 1.0)  # a second for 10 tokens
    with pytest.raises(TooLargeError):
        batcher.translate(asked(plain), plain.encode(SENTENCES * 5))
    assert len(batcher.translate(asked(plain), plain.encode(SENTENCES[:4])).result(600)) == 4
    batcher.close(10.0)


def test_only_a_device_that_fails_at_every_text_is_told_of(
    batcher: Batcher, gated: Gated, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client whose text causes a fault, however often, must not take the server away from others."""
    gated.gate.set()
    for _ in range(10):
        with pytest.raises(FaultError):
            batcher.translate(asked(gated), gated.encode([POISON])).result(600)
        assert batcher.is_able
    with monkeypatch.context() as patch:
        patch.setattr(Translator, "translate_encoded", lambda *_, **__: [1 / 0])
        with pytest.raises(FaultError):
            batcher.translate(asked(gated), gated.encode(SENTENCES[:1])).result(600)
        assert not batcher.is_able
    assert batcher.translate(asked(gated), gated.encode(SENTENCES[:1])).result(600)
    assert batcher.is_able


@pytest.mark.parametrize("broken", ["_take", "_answers"])
def test_the_worker_survives_a_fault_wherever_it_is(
    batcher: Batcher, plain: Translator, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Batcher, broken, lambda *_: [1 / 0])
        with pytest.raises(FaultError):
            batcher.translate(asked(plain), plain.encode(SENTENCES[:2])).result(600)
    assert batcher.waiting()["queue_tokens"] == batcher.waiting()["queue_requests"] == 0
    assert batcher.translate(asked(plain), plain.encode(SENTENCES[:2])).result(600)
    assert batcher.is_able
    assert "regard_faults_total 0" not in batcher.measurements.text({})


def test_too_few_answers_are_a_fault(batcher: Batcher, plain: Translator, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Batcher, "_answers", lambda *_: [])
        with pytest.raises(FaultError):
            batcher.translate(asked(plain), plain.encode(SENTENCES[:1])).result(600)
    assert batcher.translate(asked(plain), plain.encode(SENTENCES[:1])).result(600)


def test_too_many_are_sent_away(gated: Gated) -> None:
    batcher = Batcher(Queue(wait_seconds=0.0, queue_requests=3), 1024, Measurements("test"))
    running = batcher.translate(asked(gated), gated.encode(["a"]))
    assert gated.entered.wait(600)
    waiting = [batcher.translate(asked(gated, beam=width), gated.encode(["a"])) for width in (1, 2, 3)]
    with pytest.raises(FullError):
        batcher.translate(asked(gated), gated.encode(["a"]))
    gated.gate.set()
    for future in (running, *waiting):
        assert future.result(600)
    batcher.close(10.0)


def test_what_is_given_up_is_not_translated(gated: Gated) -> None:
    batcher = Batcher(Queue(wait_seconds=0.0, batch_tokens=20), 1024, Measurements("test"))
    given_up = batcher.translate(asked(gated), gated.encode(SENTENCES))
    assert gated.entered.wait(600)
    assert given_up.cancel()
    after = batcher.translate(asked(gated), gated.encode(["Danach."]))
    gated.gate.set()
    after.result(600)
    with pytest.raises(CancelledError):
        given_up.result(1)
    assert gated.batches == [gated.batches[0], ["Danach."]]
    batcher.close(10.0)


def test_who_fails_fails_alone(batcher: Batcher, gated: Gated, plain: Translator) -> None:
    first = batcher.translate(asked(gated), gated.encode(SENTENCES[:1]))
    assert gated.entered.wait(600)
    good = batcher.translate(asked(gated), gated.encode(SENTENCES[1:3]))
    bad = batcher.translate(asked(gated), gated.encode([SENTENCES[3], POISON, POISON]))
    gated.gate.set()
    assert texts_of(good.result(600)) == texts_of(plain.translate(SENTENCES[1:3]))
    with pytest.raises(FaultError):
        bad.result(600)
    assert first.result(600)
    assert batcher.is_able


def test_closing_finishes_what_waits_and_takes_no_more(batcher: Batcher, gated: Gated) -> None:
    futures = [batcher.translate(asked(gated), gated.encode([sentence])) for sentence in SENTENCES]
    assert gated.entered.wait(600)
    assert not batcher.close(0.0)
    with pytest.raises(ClosedError):
        batcher.translate(asked(gated), gated.encode(SENTENCES))
    gated.gate.set()
    assert batcher.close(60.0)
    assert all(future.done() for future in futures)
    assert not batcher.is_able


def test_looks_are_those_of_inspection(batcher: Batcher, plain: Translator) -> None:
    question = Question(text=SENTENCES[0])
    want = Look("run", plain, question)
    assert batcher.look(want).result(600) == [look(plain, question)]
    head = Head("cross", 1, 2)
    assert batcher.look(replace(want, head=head)).result(600) == [look_at_head(plain, question, head)]
    with pytest.raises(ValueError, match="nothing to look at"):
        batcher.look(replace(want, question=Question(text=" "))).result(600)


def test_no_texts_need_no_turn(batcher: Batcher, plain: Translator) -> None:
    assert batcher.translate(asked(plain), plain.encode([])).result(0) == []
