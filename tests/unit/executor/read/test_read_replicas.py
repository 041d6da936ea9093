"""A reader with a rack fetches each range from the follower that its leader names, or from the leader (KIP-392)."""

from __future__ import annotations

import logging
import math
from dataclasses import replace

import pytest

from streamgroup.errors import ErrorCode, TransportError, error_of
from streamgroup.executor.read.cursor import Cursor
from streamgroup.executor.read.read_replicas import (
    REPLICAS,
    SILENCE_S,
    ReadReplicas,
    ReplicaChoice,
    ReplicaMemory,
    memory_of,
)
from streamgroup.executor.read.recovery import Recovery
from streamgroup.model import Broker
from streamgroup.options.types import ClientOptions, FetchOptions
from tests.clock import Clock
from tests.unit.executor.lookups import FOLLOWER, LEADER, OTHER, ScriptedLookup, cursor

CLIENT = ClientOptions(bootstrap_servers=(), metadata_max_age_ms=60_000)
IN_A = FetchOptions(rack="a", poll_timeout_ms=30_000)
MAX_AGE_S = 60.0


class Task:
    """The choices of one task, its cluster and its time, which begins at 100 s."""

    def __init__(self, fetch: FetchOptions = IN_A, clock: Clock | None = None) -> None:
        self.clock = clock or Clock(100.0)
        self.lookup = ScriptedLookup()
        self.replicas = ReadReplicas(self.lookup, CLIENT, fetch, self.clock)
        self.recovery = Recovery(self.lookup, CLIENT, fetch, fail_on_data_loss=True, clock=self.clock)

    def redirected(self, partition: int = 0, to: Broker = FOLLOWER) -> Cursor:
        """A cursor that fetches from the follower that its leader has named."""
        each = cursor(partition)
        each.mark_redirected(to.node_id)
        assert self.replicas.settle([each]) == []
        return each


def test_a_range_is_fetched_from_the_named_follower_until_the_metadata_expire() -> None:
    task = Task()
    each = cursor()
    each.mark_fetched(50, 1)
    each.mark_delivered(20)
    each.mark_redirected(FOLLOWER.node_id)
    assert task.replicas.settle([each]) == []
    assert (each.source, each.review_at, each.is_moving) == (FOLLOWER, 100.0 + MAX_AGE_S, False)
    assert each.ahead == 20, "the follower sends again what is not delivered"


def test_the_next_task_of_the_process_goes_to_the_follower_only_with_the_same_rack() -> None:
    task = Task()
    task.redirected()
    same, other_rack, without = cursor(), cursor(), cursor()
    Task(clock=task.clock).replicas.begin([same])
    Task(replace(IN_A, rack="b"), task.clock).replicas.begin([other_rack])
    Task(replace(IN_A, rack=""), task.clock).replicas.begin([without])
    assert [each.source for each in (same, other_rack, without)] == [FOLLOWER, LEADER, LEADER]
    task.clock.now += MAX_AGE_S
    late = cursor()
    Task(clock=task.clock).replicas.begin([late])
    assert late.source == LEADER, "the choice has expired"


def test_a_follower_that_leads_by_now_is_read_as_the_leader() -> None:
    leader = Broker(1, "127.0.0.1", 9)
    each = cursor(leader=leader)
    memory = REPLICAS[CLIENT, "a"] = ReplicaMemory()
    task = Task(clock=Clock(5.0))
    memory.keep(each, ReplicaChoice(leader, 6.0))
    task.replicas.begin([each])
    assert each.replica is None
    memory.keep(each, ReplicaChoice(Broker(2, "127.0.0.1", 9), 5.0))
    task.replicas.begin([each])
    assert each.replica is None, "an expired choice"


def test_after_the_metadata_expire_the_leader_is_asked_again_and_may_name_a_follower(
    caplog: pytest.LogCaptureFixture,
) -> None:
    task = Task()
    each = task.redirected()
    task.clock.now += MAX_AGE_S - 0.1
    task.replicas.leave([each], task.recovery)
    assert not each.is_moving
    task.clock.now += 0.1
    task.replicas.leave([each], task.recovery)
    assert each.is_moving
    assert task.replicas.settle([each]) == []
    assert (each.source, each.review_at, each.is_leader_only, each.is_moving) == (LEADER, math.inf, False, False)
    assert caplog.text == "", "an expired choice is not a failure"


@pytest.mark.parametrize(("poll_timeout_ms", "silence_s"), [(30_000, SILENCE_S), (1_000, 0.5)])
def test_a_follower_that_sends_nothing_is_left_before_the_poll_timeout(poll_timeout_ms: int, silence_s: float) -> None:
    task = Task(replace(IN_A, poll_timeout_ms=poll_timeout_ms))
    each, of_leader = task.redirected(), cursor(1)
    for one in (each, of_leader):
        one.mark_waiting(task.clock.now)
    task.clock.now += silence_s - 0.01
    task.replicas.leave([each, of_leader], task.recovery)
    assert not each.is_moving
    task.clock.now += 0.02
    task.replicas.leave([each, of_leader], task.recovery)
    assert (each.is_moving, of_leader.is_moving) == (True, False)
    task.replicas.settle([each])
    assert (each.source, each.is_leader_only) == (LEADER, True)


def test_a_follower_that_refuses_a_range_loses_that_range_only() -> None:
    task = Task()
    each = task.redirected()
    each.mark_failed(error_of(ErrorCode.OFFSET_OUT_OF_RANGE), task.clock.now)
    assert task.replicas.settle([each]) == [], "a follower's refusal fails no range"
    assert (each.source, each.is_leader_only, each.failure) == (LEADER, True, None)
    assert each.review_at == task.clock.now + MAX_AGE_S
    assert task.redirected(1).source == FOLLOWER


def test_a_follower_that_cannot_be_reached_is_tried_once_for_all_ranges() -> None:
    task = Task()
    each = task.redirected()
    each.mark_failed(TransportError("connection refused"), task.clock.now)
    task.replicas.settle([each])
    assert task.redirected(1).source == LEADER
    assert task.redirected(2, OTHER).source == OTHER
    task.clock.now += MAX_AGE_S
    assert task.redirected(3).source == FOLLOWER


def test_a_follower_that_the_cluster_does_not_know_leaves_the_range_with_its_leader() -> None:
    task = Task()
    each = cursor()
    each.mark_redirected(9)
    assert task.replicas.settle([each]) == []
    assert (each.source, each.is_leader_only, each.named_replica) == (LEADER, True, None)


def test_a_follower_that_cannot_be_looked_up_leaves_the_range_with_its_leader_and_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    task = Task()
    task.lookup.replicas[FOLLOWER.node_id] = TransportError("no broker answers")
    with caplog.at_level(logging.WARNING):
        each = task.redirected()
    assert each.source == LEADER
    (line,) = [record.getMessage() for record in caplog.records]
    assert line == (
        "orders-0 at offset 0 of [0, 100): cannot look up follower 2, reading from the leader: no broker answers"
    )


def test_a_leader_that_names_a_follower_again_after_it_failed_has_failed_itself() -> None:
    task = Task()
    each = task.redirected()
    each.mark_failed(TransportError("connection refused"), task.clock.now)
    task.replicas.settle([each])
    each.mark_redirected(FOLLOWER.node_id)
    assert task.replicas.settle([each]) == [each]
    assert str(each.failure) == "the leader names only follower 2, which has failed"
    assert memory_of(CLIENT, "a").avoided_until(FOLLOWER, task.clock.now) is None, "the next attempt may reach it"
    assert task.redirected(1).source == FOLLOWER


def test_the_ranges_that_their_leaders_failed_or_that_have_none_are_returned() -> None:
    task = Task()
    well, failed, leaderless = cursor(0), cursor(1), cursor(2, leader=None)
    failed.mark_failed(error_of(ErrorCode.NOT_LEADER_OR_FOLLOWER), 100.0)
    assert task.replicas.settle([well, failed, leaderless]) == [failed, leaderless]


@pytest.mark.parametrize(("count", "names"), [(1, "orders-0 at"), (3, "orders-2 at"), (4, "orders-2 at")])
def test_one_warning_names_the_follower_its_error_and_at_most_three_ranges(
    count: int, names: str, caplog: pytest.LogCaptureFixture
) -> None:
    task = Task()
    cursors = [task.redirected(partition) for partition in range(count)]
    for each in cursors:
        each.mark_failed(error_of(ErrorCode.OFFSET_NOT_AVAILABLE), 100.0)
    with caplog.at_level(logging.WARNING):
        task.replicas.settle(cursors)
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.startswith(
        "reading on from the leaders for 60 s, since follower kafka-2:9092 (id 2) failed for "
        f"{count} partitions: OFFSET_NOT_AVAILABLE ("
    )
    assert names in line
    assert line.count("orders-") == min(count, 3)
    assert line.endswith(", ...)") == (count > 3)


CLIENT_OPTIONS = ClientOptions(bootstrap_servers=())


def of_topic(topic_id: str, partition: int = 0) -> Cursor:
    each = cursor(partition)
    each.topic_id = topic_id
    return each


@pytest.mark.parametrize(("now", "is_kept"), [(0.0, True), (9.9, True), (10.0, False), (11.0, False)])
def test_a_choice_holds_until_its_time(now: float, is_kept: bool) -> None:
    memory = ReplicaMemory()
    choice = ReplicaChoice(FOLLOWER, 10.0)
    memory.keep(cursor(), choice)
    assert memory.choice(cursor(), now) == (choice if is_kept else None)


def test_a_choice_is_for_one_partition_of_one_topic_id() -> None:
    """A topic that was deleted and created again has other replicas."""
    memory = ReplicaMemory()
    memory.keep(of_topic("old"), ReplicaChoice(FOLLOWER, 10.0))
    assert memory.choice(of_topic("new"), 0.0) is None
    assert memory.choice(of_topic("old", partition=1), 0.0) is None


def test_the_newest_choice_counts_also_where_it_is_the_leader() -> None:
    memory = ReplicaMemory()
    memory.keep(cursor(), ReplicaChoice(FOLLOWER, 10.0))
    memory.keep(cursor(), ReplicaChoice(None, 5.0))
    assert memory.choice(cursor(), 4.0) == ReplicaChoice(None, 5.0)
    assert memory.choice(cursor(), 6.0) is None


def test_an_unreachable_replica_is_avoided_until_its_time() -> None:
    memory = ReplicaMemory()
    memory.avoid(FOLLOWER, 10.0)
    assert [memory.avoided_until(FOLLOWER, now) for now in (0.0, 9.9, 10.0)] == [10.0, 10.0, None]
    assert memory.avoided_until(OTHER, 0.0) is None


def test_forgetting_one_partition_keeps_the_choices_of_others_and_gives_every_replica_another_chance() -> None:
    memory = ReplicaMemory()
    for partition in (0, 1):
        memory.keep(cursor(partition), ReplicaChoice(FOLLOWER, 10.0))
    memory.avoid(OTHER, 10.0)
    memory.forget(cursor(0))
    memory.forget(cursor(0))
    assert memory.choice(cursor(0), 0.0) is None
    assert memory.choice(cursor(1), 0.0) == ReplicaChoice(FOLLOWER, 10.0)
    assert memory.avoided_until(OTHER, 0.0) is None


def test_equal_options_and_rack_share_a_memory_and_others_do_not() -> None:
    memory = memory_of(CLIENT_OPTIONS, "a")
    assert memory_of(replace(CLIENT_OPTIONS), "a") is memory
    assert memory_of(CLIENT_OPTIONS, "b") is not memory
    assert memory_of(replace(CLIENT_OPTIONS, client_id="another"), "a") is not memory


def test_a_process_with_ever_new_options_keeps_a_bounded_number_of_memories() -> None:
    sizes = set()
    for number in range(200):
        memory_of(CLIENT_OPTIONS, f"rack-{number}")
        sizes.add(len(REPLICAS))
    assert 1 < max(sizes) <= 64


def test_a_process_with_ever_new_partitions_keeps_a_bounded_number_of_choices() -> None:
    """The oldest go, and the newest is always there."""
    memory = ReplicaMemory()
    one, choice = cursor(), ReplicaChoice(FOLLOWER, 10.0)
    for number in range(10_001):
        one.topic_id = str(number)
        memory.keep(one, choice)
        assert memory.choice(one, 0.0) is choice
    assert memory.choice(of_topic("0"), 0.0) is None
