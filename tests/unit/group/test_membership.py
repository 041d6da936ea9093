"""Scenarios of one member that joins a group, and the log line about its assignment."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from streamgroup.errors import (
    AuthorizationError,
    BrokerError,
    DecodeError,
    ErrorCode,
    FencedError,
    StreamGroupError,
    UnsupportedVersionError,
)
from streamgroup.group import events as ev
from streamgroup.group.reactions import UNEXPECTED_ATTEMPTS
from streamgroup.group.state_machine import State
from streamgroup.group.user_data import AssignmentBasis, encode_basis
from streamgroup.kafka.wire.consumer import decode_assignment, each_partition
from streamgroup.kafka.wire.messages.coordinator import FindCoordinatorResponse, FoundCoordinator
from streamgroup.kafka.wire.messages.group import JoinGroupResponse, JoinGroupResponseMember, SyncGroupResponse
from streamgroup.model import Broker, TopicPartition
from tests.unit.group.drivers import Driver, assignment_of, coordinator_is, subscription_of, topics, tps


def test_a_first_join_with_member_id_required() -> None:
    d = Driver()
    d.step(ev.Start(("t",)))
    assert (d.only(ev.Send).lane, d.only(ev.Send).optional) == (ev.Lane.ANY, False)
    assert d.request("FindCoordinator", 3).key == "orders-ingest"
    assert d.request("FindCoordinator", 4).coordinator_keys == ("orders-ingest",)
    d.answer(coordinator_is(3))
    assert d.only(ev.CoordinatorFound).broker == Broker(3, "kafka-3", 9092)
    join = d.only(ev.Send)
    assert (join.lane, join.timeout_ms) == (ev.Lane.JOIN, 305_000)
    request = d.request("JoinGroup")
    assert (request.member_id, request.session_timeout_ms, request.rebalance_timeout_ms) == ("", 45_000, 300_000)
    assert [p.name for p in request.protocols] == ["streamgroup-range", "range", "roundrobin"]
    d.answer(JoinGroupResponse(error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id="c-1", protocol_name=""))
    assert d.request("JoinGroup").member_id == "c-1"


def test_a_follower_syncs_at_once_and_beats_at_once() -> None:
    d = Driver().found().joined(generation=3, leader="other")
    assert d.request("SyncGroup").assignments == ()
    assert (d.request("SyncGroup").generation_id, d.only(ev.Send).lane) == (3, ev.Lane.JOIN)
    basis = encode_basis(AssignmentBasis({"t": 6}, 3))
    d.answer(SyncGroupResponse(assignment=assignment_of(tps("t", 1, 0), basis)))
    assert d.only(ev.Assigned) == ev.Assigned(
        3, "me", tuple(tps("t", 0, 1)), frozenset(), "streamgroup-range", leader=False, members=3, total=6
    )
    line = d.only(ev.Assigned).line("orders-ingest")
    assert line == "joined orders-ingest, generation 3, 2 of 6 partitions, 2 other members"
    assert d.only(ev.Send).lane is ev.Lane.COORDINATOR
    assert d.machine.lease_at is None
    sent_at = d.now
    d.beat(after=0.5)
    assert d.machine.lease_at == sent_at
    assert d.only(ev.WakeAt) == ev.WakeAt(sent_at + 3)


def test_a_leader_waits_for_the_metadata_of_all_members_topics() -> None:
    d = Driver().found()
    d.joined(
        leader="me",
        members=(
            JoinGroupResponseMember(member_id="me", metadata=subscription_of("t")),
            JoinGroupResponseMember(member_id="b", metadata=subscription_of("t", "u")),
            JoinGroupResponseMember(member_id="c", metadata=b"\x00"),
        ),
    )
    assert d.only(ev.NeedTopics) == ev.NeedTopics(frozenset({"t", "u"}), urgent=True)
    assert "member c cannot be read" in d.notes()
    d.step(ev.MetadataRefreshed(topics(t=[0, 0]), frozenset({"t"})))
    assert not d.has(ev.Send)
    d.step(ev.MetadataRefreshed(topics(t=[0, 0]), frozenset({"t", "u"})))
    assert "do not exist (yet): u" in d.notes()
    shares = {a.member_id: decode_assignment(a.assignment) for a in d.request("SyncGroup").assignments}
    assert {member: each_partition(a.assigned_partitions) for member, a in shares.items()} == {
        "b": tuple(tps("t", 0)),
        "me": tuple(tps("t", 1)),
        "c": (),
    }
    assert bytes(shares["me"].user_data or b"") == b'{"streamgroup":1,"counts":{"t":2,"u":0},"members":3}'


def test_a_leader_without_metadata_keeps_its_place_and_asks_again() -> None:
    d = Driver().found()
    d.joined(leader="me", members=(JoinGroupResponseMember(member_id="me", metadata=subscription_of("t")),))
    d.tick(3)
    assert d.only(ev.Send).api.NAME == "Heartbeat"
    d.beat(ErrorCode.REBALANCE_IN_PROGRESS)
    assert d.machine.state is State.SYNCING
    d.tick(27)
    assert d.only(ev.NeedTopics).urgent
    assert d.only(ev.Note).level == 30


def test_skip_assignment_is_obeyed() -> None:
    d = Driver(instance_id="i").found()
    members = (JoinGroupResponseMember(member_id="me", group_instance_id="i", metadata=subscription_of("t")),)
    d.joined(leader="me", skip_assignment=True, members=members)
    assert d.request("SyncGroup").assignments == ()


def test_join_group_v0_has_the_session_timeout_alone() -> None:
    d = Driver().found()
    request = d.request("JoinGroup", 0)
    assert (request.session_timeout_ms, request.rebalance_timeout_ms) == (30_000, -1)
    explicit = Driver(session_timeout_ms=20_000).found().request("JoinGroup", 0)
    assert explicit.session_timeout_ms == 20_000


def test_static_membership_on_a_broker_without_it_is_refused_before_anything_is_sent() -> None:
    d = Driver(instance_id="node-1").found()
    assert d.request("JoinGroup", 5).group_instance_id == "node-1"
    with pytest.raises(UnsupportedVersionError, match=r"orders-ingest.*'node-1'.*2\.3"):
        d.request("JoinGroup", 4)


@pytest.mark.parametrize(
    ("code", "error", "names"),
    [
        (ErrorCode.INCONSISTENT_GROUP_PROTOCOL, BrokerError, "streamgroup-range, range, roundrobin"),
        (ErrorCode.INVALID_SESSION_TIMEOUT, BrokerError, "group.max.session.timeout.ms"),
        (ErrorCode.GROUP_MAX_SIZE_REACHED, BrokerError, "group.max.size"),
        (ErrorCode.GROUP_AUTHORIZATION_FAILED, AuthorizationError, "--operation Read --group orders-ingest"),
        (ErrorCode.INVALID_GROUP_ID, BrokerError, "kafka.group.id"),
        (ErrorCode.FENCED_INSTANCE_ID, FencedError, "'node-1'"),
        (ErrorCode.INVALID_REQUEST, BrokerError, "could not join"),
    ],
)
def test_refused_for_good(code: int, error: type[StreamGroupError], names: str) -> None:
    d = Driver(instance_id="node-1").found()
    d.answer(JoinGroupResponse(error_code=code, protocol_name=""))
    failure = d.only(ev.Fail).error
    assert isinstance(failure, error)
    assert names in str(failure)
    assert "orders-ingest" in str(failure)
    assert d.machine.state is State.FATAL
    assert not d.has(ev.WakeAt)


def test_a_broker_that_keeps_failing_while_the_member_joins_ends_the_query_after_some_attempts() -> None:
    d = Driver().found()
    for attempt in range(1, UNEXPECTED_ATTEMPTS + 1):
        assert not d.has(ev.Fail), f"attempt {attempt}"
        d.answer(JoinGroupResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR, protocol_name=""))
        if attempt < UNEXPECTED_ATTEMPTS:
            d.tick(2.0)
    told = str(d.only(ev.Fail).error)
    assert "orders-ingest: could not join: the broker has failed 10 times in a row" in told
    assert "UNKNOWN_SERVER_ERROR" in told
    assert d.machine.state is State.FATAL


def test_failures_of_the_broker_count_anew_after_each_assignment() -> None:
    d = Driver().found()
    for generation in range(1, UNEXPECTED_ATTEMPTS + 2):
        d.answer(JoinGroupResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR, protocol_name=""))
        d.tick(2.0)
        d.stable(tps("t", 0), generation)
        assert d.machine.state is State.STABLE
        d.step(ev.Subscribed(("t", f"t{generation}")))


@pytest.mark.parametrize(
    ("code", "then", "member_id"),
    [
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "JoinGroup", "me"),
        (ErrorCode.REBALANCE_IN_PROGRESS, "JoinGroup", "me"),
        (ErrorCode.UNKNOWN_MEMBER_ID, "JoinGroup", ""),
        (ErrorCode.NOT_COORDINATOR, "FindCoordinator", "me"),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, "FindCoordinator", "me"),
    ],
)
def test_a_join_that_is_to_be_tried_again(code: int, then: str, member_id: str) -> None:
    d = Driver().stable([])
    d.beat(ErrorCode.REBALANCE_IN_PROGRESS)
    d.answer(JoinGroupResponse(error_code=code, protocol_name=""))
    assert not d.has(ev.Send)
    assert d.only(ev.WakeAt).time == pytest.approx(d.now + 0.1)
    d.tick(0.1)
    assert then == d.only(ev.Send).api.NAME
    assert d.machine.member_id == member_id


@pytest.mark.parametrize("code", [ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION])
def test_a_sync_that_came_too_late_joins_again_as_the_same_member(code: int) -> None:
    d = Driver().found().joined()
    d.answer(SyncGroupResponse(error_code=code))
    assert d.only(ev.Joining).abandoned is False
    d.tick(0.1)
    assert d.request("JoinGroup").member_id == "me"


def test_an_assignment_that_cannot_be_read_ends_the_query() -> None:
    d = Driver().found().joined()
    d.answer(SyncGroupResponse(assignment=b"\x00\x00\x00\x00\x00\x09"))
    error = d.only(ev.Fail).error
    assert isinstance(error, DecodeError)
    assert "orders-ingest, generation 1" in str(error)


def test_topics_that_nobody_subscribed_to_are_not_read() -> None:
    d = Driver().stable([*tps("t", 0), *tps("elsewhere", 0)])
    assert d.only(ev.Assigned).partitions == tuple(tps("t", 0))
    assert "elsewhere" in d.notes()


def test_backoff_grows_and_is_said_once_in_a_while() -> None:
    d = Driver()
    d.step(ev.Start(("t",)))
    waits, said = [], 0
    for _ in range(8):
        d.fail("FindCoordinator")
        said += d.has(ev.Note)
        waits.append(d.only(ev.WakeAt).time - d.now)
        d.tick(waits[-1])
    assert waits == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.0, 1.0, 1.0, 1.0])
    assert said == 4  # 1, 2, 4, 8
    assert d.machine.retries == 8


def test_attempts_that_fail_for_ten_seconds_are_warnings_with_the_usual_cause() -> None:
    d = Driver()
    d.step(ev.Start(("t",)))
    row = FoundCoordinator(key="orders-ingest", error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
    notes: list[ev.Note] = []
    for _ in range(16):
        d.answer(FindCoordinatorResponse(coordinators=(row,)))
        notes += [action for action in d.actions if isinstance(action, ev.Note)]
        d.tick(1.0)
    assert [note.level for note in notes] == [ev.INFO] * 4 + [ev.WARNING], "the attempts 1, 2, 4, 8 and 16"
    assert "offsets.topic.replication.factor" in d.machine.trouble
    assert d.machine.trouble in notes[-1].text
    d.answer(coordinator_is(3))
    d.stable([])
    assert d.machine.trouble == ""


@pytest.mark.parametrize("rows", [(), (FoundCoordinator(key="other", node_id=1, host="kafka-1", port=9092),)])
def test_an_answer_that_lacks_the_group_is_no_group_coordinator(rows: tuple[FoundCoordinator, ...]) -> None:
    d = Driver()
    d.step(ev.Start(("t",)))
    d.answer(FindCoordinatorResponse(coordinators=rows))
    assert not d.has(ev.CoordinatorFound)
    assert "COORDINATOR_NOT_AVAILABLE" in d.machine.trouble


@pytest.mark.parametrize("reported", [True, False])
def test_a_request_without_an_answer_resets_its_connection_only_if_the_driver_does_not_report_it(
    reported: bool,
) -> None:
    """The late answer must not arrive on the connection."""
    d = Driver()
    d.step(ev.Start(("t",)))
    late = d.out["FindCoordinator"]
    if reported:
        d.fail("FindCoordinator")
    else:
        d.tick(30.9)
        assert d.actions == [ev.WakeAt(d.now + 0.1)]
        d.tick(0.1)
    assert d.has(ev.ResetConnection) is not reported
    d.step(ev.RequestAnswered(late.token, coordinator_is(3), 4))
    assert not d.has(ev.CoordinatorFound), "it was given up"


def test_a_second_request_for_a_purpose_replaces_the_first() -> None:
    d = Driver()
    d.step(ev.Start(("t",)))
    first = d.out["FindCoordinator"]
    d.machine._find()
    d.step(ev.RequestAnswered(first.token, coordinator_is(3), 4))
    assert not d.has(ev.CoordinatorFound)


A, B, C = (TopicPartition("orders", number) for number in range(3))


def assigned(*partitions: TopicPartition, members: int | None = None, total: int | None = None, **more: Any) -> str:
    """The line of group `g` about generation 4."""
    kept = more.pop("kept", frozenset())
    event = ev.Assigned(4, "m", partitions, kept, "range", leader=False, members=members, total=total, **more)
    return event.line("g")


@pytest.mark.parametrize(
    ("partitions", "members", "total", "line"),
    [
        ((), None, None, "joined g, generation 4, 0 partitions"),
        ((A,), None, None, "joined g, generation 4, 1 partition"),
        ((A, B), None, 6, "joined g, generation 4, 2 of 6 partitions"),
        ((A,), 1, 1, "joined g, generation 4, 1 of 1 partition, 0 other members"),
        ((A,), 2, None, "joined g, generation 4, 1 partition, 1 other member"),
        ((A, B, C), 4, 12, "joined g, generation 4, 3 of 12 partitions, 3 other members"),
    ],
)
def test_an_eager_members_line_counts_its_partitions_and_what_the_leader_told(
    partitions: tuple[TopicPartition, ...], members: int | None, total: int | None, line: str
) -> None:
    assert assigned(*partitions, members=members, total=total) == line


def test_a_group_in_zookeeper_is_named_by_its_keeper_and_without_a_generation() -> None:
    line = assigned(A, members=2, total=3, keeper="ZooKeeper")
    assert line == "joined g through ZooKeeper, 1 of 3 partitions, 1 other member"


@pytest.mark.parametrize(
    ("kept", "revoked", "changes"),
    [
        (frozenset(), frozenset(), ": keeps 0, gains 2"),
        (frozenset({A}), frozenset(), ": keeps 1, gains 1"),
        (frozenset({A, B}), frozenset({C}), ": keeps 2, gains 0, gives up 1 after its batch"),
    ],
)
def test_a_cooperative_members_line_tells_what_it_keeps_gains_and_gives_up(
    kept: frozenset[TopicPartition], revoked: frozenset[TopicPartition], changes: str
) -> None:
    line = assigned(A, B, members=1, total=2, cooperative=True, kept=kept, revoked=revoked)
    assert line == "joined g, generation 4, 2 of 2 partitions, 0 other members" + changes


@pytest.mark.parametrize(
    ("level", "name"), [(ev.DEBUG, "DEBUG"), (ev.INFO, "INFO"), (ev.WARNING, "WARNING"), (ev.ERROR, "ERROR")]
)
def test_the_level_of_a_note_is_the_one_of_the_standard_library(level: int, name: str) -> None:
    assert logging.getLevelName(level) == name


def test_each_cause_of_a_rejoin_is_a_word_that_a_metric_can_carry() -> None:
    words = [f"{cause}" for cause in ev.JoinCause]
    assert len(set(words)) == len(words)
    assert all(word.isascii() and word.isalpha() and word.islower() for word in words)
