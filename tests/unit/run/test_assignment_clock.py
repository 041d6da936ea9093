"""The seconds that a member is without an assignment."""

from __future__ import annotations

from streamgroup.group import events as ev
from streamgroup.model import TopicPartition
from streamgroup.run.assignment_clock import AssignmentClock

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
