"""Spark's calls of a run: the next batch is planned, its tasks are made, and a batch that has sunk is committed."""

from __future__ import annotations

from typing import Any

import pytest

from streamgroup.errors import SkippedBatchError
from streamgroup.group import events as ev
from streamgroup.group.positions import CommitMetadata
from streamgroup.logformat import partition_number
from streamgroup.model import (
    INITIAL_DOCUMENT,
    ClusterSnapshot,
    CommittedOffset,
    Dialect,
    Document,
    FetchRange,
    FetchTask,
    OffsetRange,
    PartitionInfo,
    TopicInfo,
    TopicPartition,
)
from streamgroup.options.types import GroupMode, GroupOptions, LimitOptions
from streamgroup.run import interface as io
from streamgroup.run import questions as ask
from streamgroup.run.lineage_check import LOOK_AGAIN_S
from streamgroup.run.plan_gate import ASSIGNMENT_TIMEOUT_S
from streamgroup.run.steps import Steps
from streamgroup.wire.messages.group import JoinGroupRequest
from tests.fakes.cluster import NODES
from tests.unit.run.run_shell import MEMBER, OFF, P0, P1, PLAN, Shell

COMMIT = GroupOptions("g", mode=GroupMode.COMMIT)
ALL = (OffsetRange(P0, 0, 10), OffsetRange(P1, 0, 10))


@pytest.mark.parametrize("group", [MEMBER, GroupOptions("g", mode=GroupMode.COMMIT), OFF], ids=lambda g: g.mode.value)
def test_batches_follow_each_other_in_every_mode(group: GroupOptions) -> None:
    shell = Shell(group)
    first = shell.batch()
    shell.logs.ends = {P0: 12, P1: 10}
    second = shell.batch(first)
    assert second.ranges == (OffsetRange(P0, 10, 12),)
    assert shell.committed == ({} if group is OFF else {0: 10, 1: 10})
    assert shell.result(io.LatestOffset(second, LimitOptions())) is second, "nothing is new"
    assert shell.committed == ({} if group is OFF else {0: 12, 1: 10})


def test_the_tasks_of_a_batch_are_made_once() -> None:
    shell = Shell()
    document = shell.result(PLAN)
    request = io.Partitions(INITIAL_DOCUMENT, document)
    tasks = [FetchTask((FetchRange(range_, None),)) for range_ in document.ranges]
    assert len(tasks) == 2
    assert shell.result(request) == tasks
    call = shell.call(request)
    assert shell.out == [io.Reply(call, tasks)]


def test_available_now_does_not_end_by_facts_from_before_an_assignment() -> None:
    """While the commits are fetched, to judge a broker of 0.7 that is offline, the member gains another partition."""
    away = TopicPartition("t", partition_number(1, 0))
    there = [PartitionInfo(tp.partition, 0) for tp in (P0, away)]
    registered = [
        ClusterSnapshot(NODES, {"t": TopicInfo("t", tuple(there[:count]))}, dialect=Dialect.KAFKA07) for count in (2, 1)
    ]
    shell = Shell()
    shell.cluster = registered[0]
    shell.logs.ends = {P0: 10, away: 10}
    shell.result(io.PrepareAvailableNow())
    document = shell.batch()
    shell.logs.snapshot = registered[1]
    call = shell.call(io.LatestOffset(document, LimitOptions()))
    while not isinstance(question := shell.questions[call], ask.FetchCommitted):
        shell.answer(call, shell.found(question))
    shell.ledger.assigned(shell.ledger.member_id, shell.ledger.generation, [P0, away], [P0, away])
    shell.answer(call, shell.found(question))
    assert not shell.of(io.Reply)
    shell.step(ev.Tick(), LOOK_AGAIN_S)
    assert isinstance(shell.questions[call], ask.ListEnds), "it looks at the logs again"
    shell.serve()
    assert [reply.result for reply in shell.of(io.Reply)] == [document]


def test_nothing_is_planned_by_the_positions_of_an_earlier_generation() -> None:
    """The group has rebalanced while the brokers listed the ends, and the member has its partitions again (R9)."""
    shell = Shell()
    first = shell.batch()
    shell.logs.ends = {P0: 12, P1: 12}
    call = shell.call(io.LatestOffset(first, LimitOptions()))
    assert isinstance(shell.questions[call], ask.ListEnds)
    shell.ledger.assigned(shell.ledger.member_id, shell.ledger.generation + 1, [P0, P1], [P0, P1])
    shell.serve()
    assert [reply.result for reply in shell.of(io.Reply)] == [first]
    assert shell.batch(first).ranges == (OffsetRange(P0, 10, 12), OffsetRange(P1, 10, 12))


def test_available_now_does_not_end_by_the_positions_from_before_its_assignment_was_complete(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A partition that comes while the run waits for the last ones has not been judged: its log ends below it."""
    shell = Shell()
    shell.result(io.PrepareAvailableNow())
    document = shell.batch()
    until_complete, waits = shell.run._calls._gate.until_complete, []

    def gain() -> Steps[bool]:
        if not waits:
            held = shell.ledger.held[P1]
            held.position = held.committed = 100
            shell.ledger.assigned(shell.ledger.member_id, shell.ledger.generation, [P0, P1], [P0, P1])
        waits.append(1)
        return until_complete()

    monkeypatch.setattr(shell.run._calls._gate, "until_complete", gain)
    shell.call(io.LatestOffset(document, LimitOptions()))
    shell.serve()
    assert not shell.of(io.Reply), "it looks again"


# -- a batch ----------------------------------------------------------------------------------------------------------


def test_a_batch_without_anything_new_has_no_tasks_and_asks_no_broker() -> None:
    shell = Shell()
    call = shell.call(io.Partitions(INITIAL_DOCUMENT, INITIAL_DOCUMENT))
    assert shell.out == [io.Reply(call, [])]


def test_spark_gets_the_same_batch_again_before_it_has_asked_for_its_tasks() -> None:
    shell = Shell()
    document = shell.result(PLAN)
    shell.logs.ends = {P0: 99, P1: 99}
    assert shell.result(PLAN) is document
    assert document.ranges == ALL


def test_a_batch_whose_tasks_spark_never_asked_for_was_skipped_by_its_sink() -> None:
    shell = Shell()
    document = shell.result(PLAN)
    call = shell.call(io.LatestOffset(document, LimitOptions()))
    shell.serve()
    (raised,) = shell.of(io.Raise)
    assert raised.call == call
    assert isinstance(raised.error, SkippedBatchError)
    assert sum("event=skip" in line for line in shell.lines) == 1
    assert shell.committed == {0: 0, 1: 0}, "the skipped records are not committed"


# -- a replay ---------------------------------------------------------------------------------------------------------

OF_A_QUERY = CommitMetadata("lineage", "before", 4, 4, -1, "id").text()


@pytest.mark.parametrize(
    ("group", "committed", "read"),
    [
        (MEMBER, CommittedOffset(4, OF_A_QUERY), (OffsetRange(P0, 4, 10), OffsetRange(P1, 2, 10))),
        (COMMIT, CommittedOffset(4, OF_A_QUERY), (OffsetRange(P0, 1, 10), OffsetRange(P1, 2, 10))),
        (COMMIT, CommittedOffset(4, "operator"), (OffsetRange(P0, 4, 10), OffsetRange(P1, 2, 10))),
        (MEMBER, CommittedOffset(10, OF_A_QUERY), (OffsetRange(P1, 2, 10),)),
    ],
    ids=["of the group", "of another query", "of an operator", "whole"],
)
def test_a_replay_leaves_out_what_the_group_has_committed_since(
    group: GroupOptions, committed: CommittedOffset, read: tuple[OffsetRange, ...]
) -> None:
    shell = Shell(group)
    shell.coordinator.offsets[P0] = committed
    planned = Document("g", "lineage", "before", 5, (OffsetRange(P0, 1, 10), OffsetRange(P1, 2, 10)))
    tasks = shell.result(io.Partitions(INITIAL_DOCUMENT, planned))
    assert tasks == [FetchTask((FetchRange(range_, None),)) for range_ in read]


# -- triggers ---------------------------------------------------------------------------------------------------------


def test_a_member_without_an_assignment_returns_sparks_own_start() -> None:
    shell = Shell(MEMBER, JoinGroupRequest)
    shell.call(PLAN)
    shell.serve()
    shell.step(ev.Tick(), ASSIGNMENT_TIMEOUT_S)
    (reply,) = shell.of(io.Reply)
    assert reply.result is INITIAL_DOCUMENT


def test_available_now_returns_an_empty_batch_without_an_assignment_since_its_start_would_end_the_query() -> None:
    shell = Shell(MEMBER, JoinGroupRequest)
    shell.result(io.PrepareAvailableNow())
    shell.call(PLAN)
    shell.serve()
    shell.step(ev.Tick(), ASSIGNMENT_TIMEOUT_S)
    (reply,) = shell.of(io.Reply)
    assert (reply.result.ranges, reply.result.sequence) == ((), INITIAL_DOCUMENT.sequence + 1)


def test_once_takes_everything_whatever_the_rate() -> None:
    shell = Shell()
    document = shell.result(io.LatestOffset(INITIAL_DOCUMENT, LimitOptions(max_offsets_per_second=4), once=True))
    assert document.ranges == ALL


def call_behind_a_batch(shell: Shell) -> tuple[int, Any]:
    """Make the call of AvailableNow for the batch behind one that has used up the rate; returns it and that one."""
    limits = LimitOptions(max_offsets_per_second=4)
    shell.result(io.PrepareAvailableNow())
    first = shell.result(io.LatestOffset(INITIAL_DOCUMENT, limits))
    shell.result(io.Partitions(INITIAL_DOCUMENT, first))
    call = shell.call(io.LatestOffset(first, limits))
    shell.serve()
    return call, first


def test_a_batch_takes_no_more_than_the_rate_and_the_next_call_returns_its_start() -> None:
    shell = Shell()
    limits = LimitOptions(max_offsets_per_second=4)
    first = shell.result(io.LatestOffset(INITIAL_DOCUMENT, limits))
    assert sum(map(len, first.ranges)) == 4
    shell.result(io.Partitions(INITIAL_DOCUMENT, first))
    assert shell.result(io.LatestOffset(first, limits)) is first
    assert shell.committed == {0: 2, 1: 2}, "the batch has sunk all the same"


def test_available_now_waits_until_the_rate_allows_the_next_batch() -> None:
    """Spark runs a batch for each answer, so early answers would be batches without rows."""
    shell = Shell()
    call, _ = call_behind_a_batch(shell)
    assert shell.of(io.Reply) == []
    began = shell.now
    while not shell.of(io.Reply):
        assert shell.run.wake_at is not None
        shell.step(ev.Tick(), shell.run.wake_at - shell.now)
        shell.serve()
    (reply,) = shell.of(io.Reply)
    assert reply.call == call
    assert sum(map(len, reply.result.ranges)) > 0
    assert 0 < shell.now - began <= 1.0


def test_a_stop_ends_the_wait_for_the_rate() -> None:
    shell = Shell()
    call, first = call_behind_a_batch(shell)
    stop = shell.call(io.StopRun())
    shell.serve()
    assert {reply.call: reply.result for reply in shell.of(io.Reply)} == {stop: True, call: first}
