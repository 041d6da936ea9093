"""The age of the batch in flight."""

from __future__ import annotations

from streamgroup.group.in_flight import InFlightBatch
from streamgroup.model import Document
from streamgroup.run.batch_clock import BatchClock


def batch() -> InFlightBatch:
    return InFlightBatch(Document("g", "l", "r", 3), planned_here=True)


def test_a_batch_grows_older_until_it_has_sunk() -> None:
    clock, flying = BatchClock(), batch()
    assert [clock.look(flying, now) for now in (10.0, 12.5, 70.0)] == [0.0, 2.5, 60.0]
    assert clock.look(None, 71.0) is None


def test_the_next_batch_has_an_age_of_its_own_even_if_it_equals_the_last() -> None:
    clock = BatchClock()
    first, replay = batch(), batch()
    assert first == replay
    clock.look(first, 10.0)
    assert clock.look(replay, 30.0) == 0.0
    assert clock.look(replay, 31.0) == 1.0
