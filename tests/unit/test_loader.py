"""Batches made ahead are those that would have been made on the spot."""

import threading

import pytest

from regard.data.loader import AHEAD, Loader
from regard.data.stream import Place


def make(place: Place) -> tuple[str, Place]:
    return f"{place.epoch}.{place.position}", Place(place.epoch, place.position + 1)


def test_one_after_the_other_and_from_any_place() -> None:
    loader = Loader[str]()
    place, found = Place(0, 0), []
    for _ in range(3 * AHEAD):
        what, place = loader.take(place, make)
        found.append(what)
    assert found == [f"0.{number}" for number in range(3 * AHEAD)]
    assert loader.take(Place(5, 2), make) == ("5.2", Place(5, 3))  # as after a measurement, when everything is put back
    assert loader.take(Place(5, 3), make) == ("5.3", Place(5, 4))
    loader.close()


def test_an_error_reaches_whoever_takes() -> None:
    def broken(place: Place) -> tuple[str, Place]:
        if place.position == 2:
            raise ValueError("the text is gone")
        return make(place)

    loader = Loader[str]()
    loader.take(Place(0, 0), broken)
    loader.take(Place(0, 1), broken)
    with pytest.raises(ValueError, match="the text is gone"):
        loader.take(Place(0, 2), broken)
    assert loader.take(Place(0, 0), broken)[0] == "0.0"
    loader.close()


def test_it_does_not_run_far_ahead_and_ends_when_closed() -> None:
    made = []

    def counted(place: Place) -> tuple[str, Place]:
        made.append(place)
        return make(place)

    threads = threading.active_count()
    loader = Loader[str]()
    loader.take(Place(0, 0), counted)
    loader.close()
    assert len(made) <= AHEAD + 2
    assert threading.active_count() == threads
