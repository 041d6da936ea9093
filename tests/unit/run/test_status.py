"""The age of the batch in flight."""

from __future__ import annotations

import pytest

from streamgroup.errors import ConfigError, FencedError, StreamGroupError
from streamgroup.group import events as ev
from streamgroup.group.holdings import InFlightBatch
from streamgroup.model import Document, TopicPartition
from streamgroup.run.status import AssignmentClock, BatchClock, Failure


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


ASSIGNED = ev.Assigned(
    3,
    partitions=(TopicPartition("t", 0),),
    kept=frozenset(),
    strategy="range",
    leader=False,
    member_id="m-1",
    members=1,
    total=1,
)
EAGER = ev.Joining("the group rebalances", abandoned=False)
COOPERATIVE = ev.Joining("the group rebalances", abandoned=False, keeps=True)


def clock_after(*actions: tuple[object, float]) -> AssignmentClock:
    clock = AssignmentClock()
    for action, now in actions:
        clock.on_action(action, now)
    return clock


def test_time_passes_from_the_first_join_to_the_assignment() -> None:
    assert AssignmentClock().seconds(100.0) == 0
    assert clock_after((EAGER, 10.0)).seconds(12.5) == 2.5
    assert clock_after((EAGER, 10.0), (ASSIGNED, 13.0)).seconds(99.0) == 3.0


def test_each_spell_adds_up_and_a_join_within_one_does_not_begin_anew() -> None:
    clock = clock_after((EAGER, 0.0), (ASSIGNED, 1.0), (ev.Lost("x"), 10.0), (EAGER, 10.5), (ASSIGNED, 12.0))
    assert clock.seconds(50.0) == 3.0


def test_a_cooperative_member_keeps_its_assignment_while_it_joins_again() -> None:
    assert clock_after((EAGER, 0.0), (ASSIGNED, 1.0), (COOPERATIVE, 5.0)).seconds(9.0) == 1.0
    assert clock_after((EAGER, 0.0), (ASSIGNED, 1.0), (COOPERATIVE, 5.0), (ev.Lost("x"), 6.0)).seconds(9.0) == 4.0


def test_a_member_that_has_left_waits_for_nothing() -> None:
    assert clock_after((EAGER, 0.0), (ev.Left(), 2.0)).seconds(60.0) == 2.0


FIRST, LATER = FencedError("another member has joined as t-1"), ConfigError("the topic is gone")


def test_a_query_without_an_error_goes_on() -> None:
    failure = Failure()
    failure.raise_it()
    assert failure.error is None


@pytest.mark.parametrize("error", [FIRST, LATER], ids=lambda error: type(error).__name__)
def test_the_error_itself_is_raised_at_every_call(error: StreamGroupError) -> None:
    failure = Failure()
    failure.set(error)
    for _ in range(2):
        with pytest.raises(type(error)) as caught:
            failure.raise_it()
        assert caught.value is error


def test_a_later_error_does_not_replace_the_first_one() -> None:
    failure = Failure()
    failure.set(FIRST)
    failure.set(LATER)
    assert failure.error is FIRST
    with pytest.raises(FencedError, match="another member has joined"):
        failure.raise_it()


def test_the_failure_of_one_query_is_not_that_of_another() -> None:
    failed, other = Failure(), Failure()
    failed.set(FIRST)
    other.raise_it()
    other.set(LATER)
    assert (failed.error, other.error) == (FIRST, LATER)
