"""A run whose sink commits the offsets in transactions of Kafka: what it tells the sink, and what it replays (R38)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from streamgroup.coordinator.run import interface
from streamgroup.errors import ConfigError, TransportError
from streamgroup.kafka.wire.messages.group import JoinGroupRequest
from streamgroup.kafka.wire.messages.offsets import OffsetCommitRequest
from streamgroup.model import INITIAL_DOCUMENT, CommittedOffset, Document, OffsetRange
from streamgroup.options.types import GroupOptions, LimitOptions
from tests.unit.coordinator.run.run_shell import P0, P1, PLAN, Shell, latest_offset, partitions, ranges

GROUP = GroupOptions("g", in_transaction=True, transaction_timeout_ms=90_000)


def told(shell: Shell) -> Any:
    """What the control channel tells a sink of the batch in flight."""
    return json.loads(json.dumps(shell.result(ranges)))


def transaction(shell: Shell) -> None:
    """The sink commits the batch in flight."""
    of_batch = told(shell)
    assert of_batch["transaction"]["is_held"]
    rows = zip(of_batch["ranges"], of_batch["transaction"]["after"], strict=True)
    for (topic, partition, _, until), (epoch, metadata) in rows:
        shell.coordinator.offsets[type(P0)(topic, partition)] = CommittedOffset(until, metadata, epoch)


def restarted(shell: Shell) -> Shell:
    again = Shell(GROUP)
    again.coordinator.offsets = dict(shell.coordinator.offsets)
    again.ledger.run = "r2"
    return again


def replayed(shell: Shell, document: Document) -> tuple[OffsetRange, ...]:
    tasks = shell.result(partitions(INITIAL_DOCUMENT, document))
    return tuple(one.range for task in tasks for one in task.ranges)


def test_a_sink_gets_the_id_the_member_and_what_the_group_has_after_the_batch() -> None:
    shell = Shell(GROUP)
    shell.batch()
    of_batch = told(shell)["transaction"]
    assert (of_batch["id"], of_batch["timeout_ms"]) == ("streamgroup-g-lineage", 90_000)
    assert (of_batch["member"], of_batch["generation"]) == (shell.ledger.member_id, shell.ledger.generation)
    assert len(of_batch["after"]) == 2


def test_the_member_never_commits_the_end_of_a_batch() -> None:
    shell = Shell(GROUP)
    document = shell.batch()
    before = shell.asked(OffsetCommitRequest)
    assert shell.committed == {0: 0, 1: 0}, "the start is committed before the batch"
    transaction(shell)
    shell.logs.ends = {P0: 20, P1: 10}
    assert shell.batch(document).ranges == (OffsetRange(P0, 10, 20),)
    assert shell.asked(OffsetCommitRequest) == before


def test_a_batch_that_no_transaction_has_committed_ends_the_query() -> None:
    shell = Shell(GROUP)
    document = shell.batch()
    shell.step(interface.Called(99, latest_offset(document, LimitOptions())))
    shell.serve()
    shell.wake()
    assert isinstance(shell.run.failure, ConfigError)
    assert "no transaction has committed it" in str(shell.run.failure)


def test_a_committed_batch_is_replayed_without_records() -> None:
    shell = Shell(GROUP)
    document = shell.batch()
    transaction(shell)
    again = restarted(shell)
    assert replayed(again, document) == ()
    assert told(again)["ranges"] == []


def test_a_batch_that_was_not_committed_is_replayed_by_a_member_that_holds_it() -> None:
    shell = Shell(GROUP)
    document = shell.batch()
    again = restarted(shell)
    assert replayed(again, document) == document.ranges
    transaction(again)
    again.logs.ends = {P0: 20, P1: 20}
    assert again.batch(document).ranges == (OffsetRange(P0, 10, 20), OffsetRange(P1, 10, 20))


def test_a_replay_leaves_out_what_the_group_has_already() -> None:
    shell = Shell(GROUP)
    document = shell.batch()
    again = restarted(shell)
    again.coordinator.offsets |= {P0: CommittedOffset(10)}
    assert replayed(again, document) == (OffsetRange(P1, 0, 10),)


def test_the_transaction_of_an_earlier_run_is_ended_before_its_offsets_are_fetched() -> None:
    shell = Shell(GROUP)
    shell.result(PLAN)
    asked = [question for question in shell.asked_questions if isinstance(question, interface.EndTransaction)]
    assert asked == [], "a new checkpoint has no earlier run"
    document = shell.batch()
    again = restarted(shell)
    replayed(again, document)
    names = [type(question).__name__ for question in again.asked_questions]
    assert names.index("EndTransaction") < names.index("MakeFetchTasks")
    assert names.count("EndTransaction") == 1
    (question,) = (one for one in again.asked_questions if isinstance(one, interface.EndTransaction))
    assert question.transactional_id == "streamgroup-g-lineage"


def test_a_replay_that_gets_no_assignment_says_so() -> None:
    document = Shell(GROUP).batch()
    shell = Shell(GROUP, JoinGroupRequest)
    call = shell.call(partitions(INITIAL_DOCUMENT, document))
    shell.serve()
    while shell.now < 100.0 + GROUP.join_timeout_ms / 1000 and not shell.of(interface.Raise):
        shell.wake()
        shell.serve()
    (raised,) = shell.of(interface.Raise)
    assert raised.call == call
    assert isinstance(raised.error, TransportError)
    assert "within group.joinTimeout (60 s) to replay the last one" in str(raised.error)


@pytest.mark.parametrize("moved", [False, True])
def test_a_batch_of_a_lost_partition_is_the_members_only_if_nobody_has_committed_it(moved: bool) -> None:
    shell = Shell(GROUP)
    shell.batch()
    shell.ledger.lost()
    assert told(shell)["transaction"]["is_held"] is False
    shell.ledger.assigned("m", 9, [P0, P1], ())
    assert told(shell)["transaction"]["is_held"] is None, "the offsets are not known yet"
    found = {P0: CommittedOffset(5 if moved else 0), P1: CommittedOffset(0)}
    shell.ledger.offsets_found("m", 9, found, shell.cluster.topics)
    assert told(shell)["transaction"]["is_held"] is not moved
