"""A reader with a rack fetches each range from the follower that its leader names, or from the leader (KIP-392)."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from streamgroup.errors import ErrorCode, TransportError, error_of
from streamgroup.executor.read import read_replicas
from streamgroup.executor.read.cursor import Cursor
from streamgroup.executor.read.fetcher import read
from streamgroup.executor.read.read_replicas import (
    REPLICAS,
    SILENCE_S,
    ReadReplicas,
    ReplicaChoice,
    ReplicaMemory,
    memory_of,
)
from streamgroup.executor.read.recovery import Recovery
from streamgroup.kafka.wire.messages.log import AbortedTransaction, FetchResponse
from streamgroup.model import Broker, FetchTask
from streamgroup.options.types import ClientOptions, FetchOptions, Isolation
from tests.clock import Clock
from tests.fakes.broker import CLOSE, SILENCE
from tests.unit.executor.leader import Leader, Log, Options, Start, batch, damaged, planned
from tests.unit.executor.lookups import FOLLOWER, LEADER, OTHER, ScriptedLookup, cursor
from tests.unit.kafka.records.encoder import ABORT, Record, encode_batch, end_marker

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


def test_after_the_metadata_expire_the_leader_may_name_a_follower_again(caplog: pytest.LogCaptureFixture) -> None:
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


def test_a_follower_that_cannot_be_looked_up_leaves_the_range_with_its_leader(caplog: pytest.LogCaptureFixture) -> None:
    task = Task()
    task.lookup.replicas[FOLLOWER.node_id] = TransportError("no broker answers")
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


@pytest.mark.parametrize(("count", "names"), [(1, "orders-0 at"), (3, "orders-2 at"), (4, "orders-2 at")])
def test_one_warning_names_the_follower_its_error_and_at_most_three_ranges(
    count: int, names: str, caplog: pytest.LogCaptureFixture
) -> None:
    task = Task()
    cursors = [task.redirected(partition) for partition in range(count)]
    for each in cursors:
        each.mark_failed(error_of(ErrorCode.OFFSET_NOT_AVAILABLE), 100.0)
    task.replicas.settle(cursors)
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.startswith(
        "reading from the leaders for 60 s, because follower kafka-2:9092 (id 2) failed for "
        f"{count} partitions: OFFSET_NOT_AVAILABLE ("
    )
    assert names in line
    assert line.count("orders-") == min(count, 3)
    assert line.endswith(", ...)") == (count > 3)


def of_topic(topic_id: str, partition: int = 0) -> Cursor:
    each = cursor(partition)
    each.topic_id = topic_id
    return each


def test_a_choice_is_for_one_partition_of_one_topic_id() -> None:
    """A topic that was deleted and created again has other replicas."""
    memory = ReplicaMemory()
    memory.keep(of_topic("old"), ReplicaChoice(FOLLOWER, 10.0))
    assert memory.choice(of_topic("new"), 0.0) is None
    assert memory.choice(of_topic("old", partition=1), 0.0) is None


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
    memory = memory_of(CLIENT, "a")
    assert memory_of(replace(CLIENT), "a") is memory
    assert memory_of(CLIENT, "b") is not memory
    assert memory_of(replace(CLIENT, client_id="another"), "a") is not memory


def test_a_process_with_ever_new_options_keeps_a_bounded_number_of_memories() -> None:
    sizes = set()
    for number in range(200):
        memory_of(CLIENT, f"rack-{number}")
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


TEN = [batch(i, 10) for i in range(0, 100, 10)]
ONE_BATCH_IN_A = FetchOptions(max_wait_ms=10, poll_timeout_ms=60_000, rack="a", max_partition_bytes=1)
"""Each answer has one batch."""


class Pair:
    """A leader, id 1, and a follower, id 2, of one partition. The leader sends readers with a rack to the follower."""

    def __init__(self, start: Start, options: Options, leader: Log, follower: Log) -> None:
        self.follower = Leader(start, options, follower, node=2)
        self.leader = Leader(start, options, leader)
        self.leader.peers = self.follower.peers = {1: self.leader.broker.port, 2: self.follower.broker.port}
        self.follower.lead_by = [1]
        self.leader.follower = 2
        self.client = options(self.leader.broker.port)

    def read(self, start: int, until: int, fetch: FetchOptions = ONE_BATCH_IN_A, **others: Any) -> Iterator[list[int]]:
        for each in read(FetchTask((planned(self.leader, start, until),)), self.client, fetch, **others):
            yield each["offset"].to_pylist()

    def offsets(self, start: int, until: int, fetch: FetchOptions = ONE_BATCH_IN_A, **others: Any) -> list[int]:
        return [offset for each in self.read(start, until, fetch, **others) for offset in each]

    def clock_of(self, offset: int, seconds: float) -> Callable[[], float]:
        """Monotonic seconds, and `seconds` more for each time that the follower was asked for `offset`."""
        return lambda: time.monotonic() + seconds * self.asked()[1].count(offset)

    def asked(self) -> tuple[list[int], list[int]]:
        """The offsets that leader and follower were asked for."""
        return tuple([o for each in b.fetches() for _, o in each] for b in (self.leader, self.follower))  # type: ignore[return-value]


MakePair = Callable[[Log, Log], Pair]


@pytest.fixture
def make_pair(broker: Start, options: Options, monkeypatch: pytest.MonkeyPatch) -> MakePair:
    """Makes the pair of two logs. A busy machine is not taken for a silent follower."""
    monkeypatch.setattr(read_replicas, "SILENCE_S", 60.0)
    return lambda leader, follower: Pair(broker, options, leader, follower)


def test_the_range_is_read_from_the_follower_that_the_leader_names(make_pair: MakePair) -> None:
    pair = make_pair(Log(TEN), Log(TEN))
    assert pair.offsets(5, 95) == list(range(5, 95))
    assert pair.asked() == ([5], [5, 10, 20, 30, 40, 50, 60, 70, 80, 90])
    request = pair.follower.broker.asked("Fetch")[0]
    assert request.rack_id == "a"
    assert request.topics[0].partitions[0].current_leader_epoch == 7
    assert len(pair.leader.broker.asked("Metadata")) == 1


@pytest.mark.parametrize("code", [1, 3, 6, 9, 29, 56, 74, 75, 78, 100, -1])
def test_an_error_of_the_follower_leads_back_to_the_leader(code: int, make_pair: MakePair) -> None:
    """It does not matter which: a follower's answer ends no range and fails no task."""
    pair = make_pair(Log(TEN), Log(TEN, errors=[0, 0, code]))
    assert pair.offsets(0, 100, replace(ONE_BATCH_IN_A, prefetch=0)) == list(range(100))
    assert pair.asked() == ([0, *range(20, 100, 10)], [0, 10, 20])
    assert [request.rack_id for request in pair.leader.broker.asked("Fetch")] == ["a"] + [""] * 8
    pair.offsets(0, 10)
    assert pair.asked()[1] == [0, 10, 20], "the next task tries the follower again"


@pytest.mark.parametrize("strict", [True, False])
def test_an_offset_out_of_a_followers_range_is_not_a_loss(strict: bool, make_pair: MakePair) -> None:
    """A follower begins later or ends earlier than its leader while it replicates, and after an unclean end."""
    for there in (Log(TEN[8:], start=80), Log(TEN[:3])):
        pair = make_pair(Log(TEN), there)
        assert pair.offsets(50, 70, fail_on_data_loss=strict) == list(range(50, 70))
        assert not pair.leader.broker.asked("ListOffsets")


def test_a_follower_without_the_records_is_left_and_proves_no_gap(make_pair: MakePair) -> None:
    """The leader would skip what a log does not have although it continues after it. A follower may just be behind."""
    for there in (Log(TEN[:4]), Log(TEN[:4], high_watermark=100)):
        pair = make_pair(Log(TEN), there)
        assert pair.offsets(0, 100, fail_on_data_loss=False, clock=pair.clock_of(40, seconds=5)) == list(range(100))
        assert 40 in pair.asked()[0]
        assert pair.asked()[1].count(40) >= 3


def test_a_gap_is_passed_where_the_leader_has_it(make_pair: MakePair) -> None:
    pair = make_pair(Log(TEN[:4], high_watermark=100), Log(TEN[:4], high_watermark=100))
    assert pair.offsets(0, 100, clock=pair.clock_of(40, seconds=25)) == list(range(40))


def test_a_late_answer_of_a_follower_does_not_end_the_task(make_pair: MakePair) -> None:
    """Between two answers the whole poll timeout may pass."""
    pair = make_pair(Log(TEN), Log(TEN))
    pair.follower.instead += [FetchResponse(), FetchResponse()]

    def clock() -> float:
        return time.monotonic() + (90 if len(pair.asked()[1]) >= 2 else 0)

    assert pair.offsets(0, 100, clock=clock) == list(range(100))


@pytest.mark.slow
@pytest.mark.parametrize("what", [CLOSE, SILENCE])
def test_a_follower_that_is_lost_in_the_middle_loses_and_repeats_nothing(what: Any, make_pair: MakePair) -> None:
    pair = make_pair(Log(TEN), Log(TEN))
    pair.client = replace(pair.client, request_timeout_ms=1_000)
    rows = pair.read(0, 100)
    found = next(rows)
    pair.follower.instead.append(what)
    for each in rows:
        found += each
    assert found == list(range(100))
    asked, there = pair.asked()
    assert there[-1] in asked


def test_records_damaged_on_the_follower_come_from_the_leader(
    make_pair: MakePair, caplog: pytest.LogCaptureFixture
) -> None:
    pair = make_pair(Log(TEN), Log([*TEN[:3], damaged(TEN[3]), *TEN[4:]]))
    assert pair.offsets(0, 100) == list(range(100))
    assert "To skip this" not in caplog.text
    REPLICAS.clear()
    whole = replace(ONE_BATCH_IN_A, max_partition_bytes=1_000_000, max_decompressed_bytes=1)
    assert pair.offsets(0, 100, whole) == list(range(100))


def test_aborted_records_are_hidden_by_what_the_follower_says(make_pair: MakePair) -> None:
    log = [
        encode_batch([Record(0, 1, b"k", b"gone")], transactional=True, producer_id=7),
        end_marker(1, 7, ABORT),
        batch(2, 3),
    ]
    pair = make_pair(Log(log), Log(log, aborted=(AbortedTransaction(producer_id=7, first_offset=0),)))
    committed = replace(ONE_BATCH_IN_A, isolation=Isolation.READ_COMMITTED, max_partition_bytes=100_000)
    assert pair.offsets(0, 5, committed) == [2, 3, 4]
    assert pair.asked() == ([0], [0])


@pytest.mark.slow
def test_a_leader_that_names_only_a_follower_that_failed_is_waited_for(make_pair: MakePair) -> None:
    """A selector of the cluster's own may name a follower whatever the rack. Its empty answers prove no gap."""
    pair = make_pair(Log(TEN), Log(TEN, errors=[0, 78, 78]))
    pair.leader.ignores_racks = True
    assert pair.offsets(0, 100, replace(ONE_BATCH_IN_A, rack="")) == list(range(100))
    pair.follower.logs[0].errors += [78] * 10_000
    with pytest.raises(TransportError, match="names only follower 2"):
        pair.offsets(0, 100, replace(ONE_BATCH_IN_A, poll_timeout_ms=1_000))
