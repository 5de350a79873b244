"""Tests of writing beside training: order, errors, and no writes after an error."""

import threading

import pytest

from regard.train.saving import Writer


@pytest.mark.parametrize("beside", [False, True])
def test_all_is_done_in_order_when_waiting_ends(beside: bool) -> None:
    writer, done = Writer(beside=beside), list[int]()
    for number in range(20):
        writer.do(lambda number=number: done.append(number))  # type: ignore[misc]
    writer.wait()
    assert done == list(range(20))


def test_a_thread_writes_while_its_owner_goes_on() -> None:
    writer, gate, done = Writer(beside=True), threading.Event(), list[str]()

    def work() -> None:
        gate.wait(600)
        done.append("written")

    writer.do(work)
    done.append("went on")
    gate.set()
    writer.wait()
    assert done == ["went on", "written"]


def test_whoever_waits_gets_the_error_and_nothing_is_written_after_it() -> None:
    writer, done = Writer(beside=True), list[str]()

    def full() -> None:
        raise OSError(28, "No space left on device")

    writer.do(full)
    writer.do(lambda: done.append("what builds on it"))
    with pytest.raises(OSError, match="No space"):
        writer.wait()
    writer.do(lambda: done.append("later"))
    with pytest.raises(OSError, match="No space"):
        writer.wait()
    assert not done


def test_who_is_interrupted_while_waiting_may_wait_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second Ctrl-C must not forget the current write, which another run might clear away."""
    writer, gate, done = Writer(beside=True), threading.Event(), list[str]()

    def work() -> None:
        gate.wait(600)
        done.append("written")

    def interrupted() -> None:
        raise SystemExit(130)

    writer.do(work)
    with monkeypatch.context() as patched:
        patched.setattr(writer._pending[0], "result", interrupted)
        with pytest.raises(SystemExit):
            writer.wait()
    gate.set()
    writer.wait()
    assert done == ["written"]


def test_an_error_can_be_asked_for_without_waiting() -> None:
    writer = Writer(beside=True)

    def full() -> None:
        raise OSError(28, "No space left on device")

    writer.do(full)
    [failed] = writer._pending
    failed.result()
    with pytest.raises(OSError, match="No space"):
        writer.raise_error()
