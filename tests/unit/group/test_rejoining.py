"""How long a member waits for the boundary of a batch."""

from __future__ import annotations

import pytest

from streamgroup.group.events import JoinCause
from streamgroup.group.rejoining import BatchTimes, RejoinWait, gave_up_waiting, rejoin_due


@pytest.mark.parametrize(
    ("told", "asked", "longest", "due"),
    [
        (100.0, 90.0, 20.0, 140.0),  # the tasks are presumably done at 110
        (100.0, None, 20.0, 395.0),  # planned, but not asked for yet
        (100.0, 90.0, None, 395.0),  # no batch has completed in this run
        (100.0, 90.0, 500.0, 395.0),  # never later than the group's rebalance timeout
        (100.0, 10.0, 5.0, 130.0),  # longer than any before it when told: it may still run
    ],
)
def test_rejoin_due(told: float, asked: float | None, longest: float | None, due: float) -> None:
    assert rejoin_due(told, asked, longest, rebalance_wait_s=30.0, max_poll_s=300.0) == due


@pytest.mark.parametrize(("asked", "longest"), [(90.0, 20.0), (10.0, 5.0), (90.0, None), (None, 20.0)])
def test_with_a_listener_only_the_rebalance_timeout_counts(asked: float | None, longest: float | None) -> None:
    """It tells at once when the batch has sunk, so a batch that it has not told of still runs."""
    due = rejoin_due(100.0, asked, longest, rebalance_wait_s=30.0, max_poll_s=300.0, listened=True)
    assert due == 395.0


def test_a_short_rebalance_timeout_keeps_a_margin_of_its_tenth() -> None:
    assert rejoin_due(0.0, None, None, rebalance_wait_s=30.0, max_poll_s=10.0) == 9.0


def batches(clock: BatchTimes, *spans: tuple[float, float]) -> None:
    for start, end in spans:
        clock.planned(start - 1)
        clock.asked(start)
        clock.asked(start + 1)
        assert (clock.in_flight, clock.flying_s(end)) == (True, end - start + 1)
        clock.idle(end)


def test_the_longest_batch_counts_from_the_first_time_that_it_was_asked_for() -> None:
    clock = BatchTimes()
    batches(clock, (10.0, 17.0), (20.0, 22.0))
    assert (clock.longest_s, clock.in_flight, clock.asked_at, clock.flying_s(30.0)) == (7.0, False, None, 0.0)


def test_a_backlog_read_at_the_start_is_forgotten_in_time() -> None:
    clock = BatchTimes()
    batches(clock, (10.0, 300.0), *((400.0 + 10 * n, 402.0 + 10 * n) for n in range(9)))
    assert clock.longest_s == 290.0
    batches(clock, (500.0, 503.0))
    assert clock.longest_s == 3.0


def test_a_batch_that_was_never_asked_for_has_no_length() -> None:
    clock = BatchTimes()
    clock.planned(40.0)
    clock.idle(50.0)
    assert clock.longest_s is None


def test_what_is_said_when_a_batch_is_waited_for_no_longer_names_the_cause_and_the_way_out() -> None:
    outlasted = gave_up_waiting(400.0, 295.0, 300_000, 30_000)
    assert "planned 400 s ago" in outlasted
    assert "max.poll.interval.ms=300000" in outlasted
    assert "Raise kafka.max.poll.interval.ms" in outlasted
    assert "lower maxOffsetsPerTrigger" in outlasted
    unproven = gave_up_waiting(50.0, 36.0, 300_000, 30_000)
    assert "tasks are presumably done: this member was asked to rejoin 36 s ago" in unproven
    assert "raise group.rebalanceWait, now 30000 ms" in unproven
    assert all("up to one batch may be repeated" in text for text in (outlasted, unproven))


def test_the_cause_of_a_wait_ends_with_it() -> None:
    wait = RejoinWait(1000, cooperative=False)
    wait.begin("partitions have changed", JoinCause.PARTITIONS, 1.0)
    assert wait.why == ("partitions have changed", JoinCause.PARTITIONS)
    wait.end()
    assert wait.why == ("the group rebalances", JoinCause.GROUP)
