"""Scenarios of one member with answers written by hand: it joins, holds an assignment, rejoins, leaves or fails."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from typing import Any

import pytest

from streamgroup.errors import (
    AuthorizationError,
    BrokerError,
    ConfigError,
    DecodeError,
    ErrorCode,
    FencedError,
    StreamGroupError,
    UnsupportedVersionError,
    error_of,
)
from streamgroup.group import events as ev
from streamgroup.group.reactions import UNEXPECTED_ATTEMPTS
from streamgroup.group.state_machine import State
from streamgroup.group.timing import MemberConfig
from streamgroup.kafka.wire.consumer import decode_assignment, decode_subscription, each_partition
from streamgroup.kafka.wire.messages.group import (
    FindCoordinatorResponse,
    FoundCoordinator,
    HeartbeatResponse,
    JoinGroupResponse,
    JoinGroupResponseMember,
    LeaveGroupResponse,
    SyncGroupResponse,
)
from streamgroup.model import Broker, TopicPartition
from tests.unit.group.drivers import Driver, assignment_of, coordinator_is, group_of, subscription_of, topics, tps

# -- joining -----------------------------------------------------------------------------------------------------------


def test_a_first_join_with_member_id_required() -> None:
    d = Driver().started()
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
    d.group = group_of(me=tps("t", 0, 1), other=tps("t", 2, 3), third=tps("t", 4, 5))
    d.answer(SyncGroupResponse(assignment=assignment_of(tps("t", 1, 0))))
    assert d.only(ev.Assigned) == ev.Assigned(
        3, "me", tuple(tps("t", 0, 1)), frozenset(), "streamgroup-range", False, 3, 6, leader_id="other"
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
    assert "cannot read the subscription of member c, so it gets no partitions" in d.notes()
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
    assert {a.user_data for a in shares.values()} == {None}


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
        (ErrorCode.INVALID_REQUEST, BrokerError, "cannot join"),
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
    assert "orders-ingest: cannot join: the broker has failed 10 times in a row" in told
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
    d = Driver().started()
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
    d = Driver().started()
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
    d = Driver().started()
    d.answer(FindCoordinatorResponse(coordinators=rows))
    assert not d.has(ev.CoordinatorFound)
    assert "COORDINATOR_NOT_AVAILABLE" in d.machine.trouble


@pytest.mark.parametrize("reported", [True, False])
def test_a_request_without_an_answer_resets_its_connection_unless_the_driver_reports_it(reported: bool) -> None:
    """The late answer must not arrive on the connection."""
    d = Driver().started()
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
    d = Driver().started()
    first = d.out["FindCoordinator"]
    d.machine._find()
    d.step(ev.RequestAnswered(first.token, coordinator_is(3), 4))
    assert not d.has(ev.CoordinatorFound)


# -- holding an assignment, and losing it ------------------------------------------------------------------------------


@pytest.mark.parametrize("generation", [4, 5], ids=["no rebalance was needed", "the next generation"])
def test_what_was_held_directly_before_by_the_same_member_is_kept(generation: int) -> None:
    d = Driver().stable(tps("t", 0, 1), generation=4)
    d.beat(ErrorCode.REBALANCE_IN_PROGRESS)
    d.stable(tps("t", 1, 2), generation=generation)
    assert d.only(ev.Assigned).kept == set(tps("t", 1))


@pytest.mark.parametrize(("generation", "member_id"), [(6, "me"), (5, "another-id")])
def test_after_a_missed_generation_or_under_another_id_nothing_is_kept(generation: int, member_id: str) -> None:
    d = Driver().stable(tps("t", 0, 1), generation=4)
    d.beat(ErrorCode.REBALANCE_IN_PROGRESS)
    d.stable(tps("t", 1, 2), generation=generation, member_id=member_id)
    assert d.only(ev.Assigned).kept == frozenset()


@pytest.mark.parametrize(
    ("code", "member_id"), [(ErrorCode.ILLEGAL_GENERATION, "me"), (ErrorCode.UNKNOWN_MEMBER_ID, "")]
)
def test_put_out_of_the_group_by_a_heartbeat_or_a_commit(code: int, member_id: str) -> None:
    for by_commit in (False, True):
        d = Driver().stable(tps("t", 0))
        d.step(ev.Planned())
        if by_commit:
            d.step(ev.CommitRefused(code, "me", 1, d.now))
        else:
            d.beat(code)
        assert d.has(ev.Lost)
        assert d.only(ev.Joining).abandoned
        assert d.request("JoinGroup").member_id == member_id
        d.joined(generation=2)
        d.answer(SyncGroupResponse(assignment=assignment_of(tps("t", 0))))
        assert d.only(ev.Assigned).kept == frozenset()


def test_a_late_refusal_of_an_old_heartbeat_drops_nothing() -> None:
    d = Driver().stable(tps("t", 0), generation=1)
    old = d.out["Heartbeat"]
    d.step(ev.CommitRefused(ErrorCode.REBALANCE_IN_PROGRESS, "me", 1, d.now))
    d.stable(tps("t", 0), generation=2)
    d.step(ev.RequestAnswered(old.token, HeartbeatResponse(error_code=ErrorCode.ILLEGAL_GENERATION), 4))
    d.step(ev.CommitRefused(ErrorCode.ILLEGAL_GENERATION, "me", 1, d.now))
    d.step(ev.CommitAccepted("me", 1, d.now))
    assert d.machine.state is State.STABLE
    assert d.machine.lease_at is None


def test_two_drivers_with_one_instance_id() -> None:
    d = Driver(instance_id="node-1").stable(tps("t", 0))
    d.beat(ErrorCode.FENCED_INSTANCE_ID)
    error = d.only(ev.Fail).error
    assert isinstance(error, FencedError)
    assert "late request to join" in str(error)
    d.step(ev.Stop())
    assert d.has(ev.Left)  # it must not put the other one out
    assert not d.has(ev.Send)


def test_a_moved_coordinator_costs_no_membership() -> None:
    d = Driver().stable(tps("t", 0))
    d.beat(ErrorCode.NOT_COORDINATOR)
    assert d.machine.state is State.STABLE
    d.tick(0.1)
    d.answer(coordinator_is(4))
    assert d.only(ev.CoordinatorFound).broker.node_id == 4
    d.beat()
    assert d.machine.lease_at == d.now
    assert (d.machine.state, d.machine.generation) == (State.STABLE, 1)


def test_a_heartbeat_without_an_answer_seeks_the_coordinator_even_if_nobody_reports_it() -> None:
    d = Driver().stable(tps("t", 0))
    assert d.out["Heartbeat"].timeout_ms == 30_000
    d.tick(31.1)
    assert ev.ResetConnection(ev.Lane.COORDINATOR) in d.actions
    d.tick(0.1)
    assert d.only(ev.Send).api.NAME == "FindCoordinator"


def test_a_session_that_is_over_by_the_own_clock_is_lost_before_anybody_says_so() -> None:
    d = Driver().stable(tps("t", 0))
    d.beat()
    d.tick(45)  # stopped for a while, and woken up
    assert d.only(ev.Lost).reason.startswith("no heartbeat accepted")
    assert d.request("JoinGroup").member_id == "me"
    assert d.machine.lease_at is None


def test_commits_extend_the_lease_too() -> None:
    d = Driver().stable(tps("t", 0))
    d.step(ev.CommitAccepted("me", 1, d.now - 1))
    assert d.machine.lease_at == d.now - 1


def test_heartbeats_follow_the_session_where_it_is_short() -> None:
    d = Driver(session_timeout_ms=6_000).stable([])
    sent_at = d.now
    d.beat()
    assert d.only(ev.WakeAt).time == sent_at + 2
    d.tick(2)
    assert d.only(ev.Send).timeout_ms == 6_000


# -- rejoining by the eager protocol, at the boundary of a batch (R21, R22) --------------------------------------------


def test_asked_to_rejoin_while_idle_it_does_so_at_once() -> None:
    d = Driver().stable(tps("t", 0))
    d.beat(ErrorCode.REBALANCE_IN_PROGRESS)
    assert d.only(ev.Joining) == ev.Joining("the group rebalances", abandoned=False)
    assert d.machine.state is State.JOINING
    told = decode_subscription(d.request("JoinGroup").protocols[0].metadata)
    assert (told.owned_partitions, told.generation_id) == ((), -1), "an eager member owns nothing any more"


def test_asked_to_rejoin_during_a_batch_it_goes_on_beating_and_waits_for_the_boundary() -> None:
    d = Driver().stable(tps("t", 0))
    d.begin()
    d.beat(ErrorCode.REBALANCE_IN_PROGRESS)
    assert d.machine.rebalance_wanted
    for _ in range(60):  # beyond the session: being told to rejoin shows that the coordinator knows the member
        d.tick(3)
        d.beat(ErrorCode.REBALANCE_IN_PROGRESS)
    assert d.machine.state is State.STABLE
    d.step(ev.Idle())
    assert d.only(ev.Joining).abandoned is False


def test_without_proof_it_waits_as_long_as_the_longest_batch_and_the_wait_then_gives_the_batch_up() -> None:
    d = Driver(session_timeout_ms=400_000).stable(tps("t", 0))
    d.begin()
    d.step(ev.Idle(), after=7)  # the longest batch so far: 7 s
    d.begin()
    asked_at = d.now
    d.step(ev.CommitRefused(ErrorCode.REBALANCE_IN_PROGRESS, "me", 1, d.now), after=1)
    d.tick(asked_at + 36.9 - d.now)
    assert d.machine.state is State.STABLE
    d.tick(0.2)
    assert d.only(ev.Joining).abandoned
    assert "up to one batch may be repeated" in d.only(ev.GaveUp).text


def settling(partitions: int = 1) -> Driver:
    """A member whose driver is finding and committing where its partitions start."""
    d = Driver(session_timeout_ms=400_000)
    d.step(ev.Start(("t",), settles=True))
    d.answer(coordinator_is(3))
    return d.stable(tps("t", *range(partitions)))


def test_asked_to_rejoin_before_its_starts_are_committed_it_waits_for_that() -> None:
    d = settling()
    d.beat(ErrorCode.REBALANCE_IN_PROGRESS)
    assert (d.machine.state, d.machine.rebalance_wanted) == (State.STABLE, True)
    d.step(ev.Settled())
    assert d.only(ev.Joining) == ev.Joining("the group rebalances", abandoned=False)
    d.stable(tps("t", 0), generation=2)
    assert not d.machine.settling, "it has kept what it had"


def test_a_replay_and_the_starts_are_both_waited_for() -> None:
    for first, second in ((ev.Idle(), ev.Settled()), (ev.Settled(), ev.Idle())):
        d = settling()
        d.step(ev.Asked())
        d.beat(ErrorCode.REBALANCE_IN_PROGRESS)
        d.step(first)
        assert d.machine.state is State.STABLE
        d.step(second)
        assert d.only(ev.Joining).abandoned is False


def test_a_replay_is_given_up_no_sooner_than_the_starts_are_committed() -> None:
    d = settling()
    d.step(ev.Asked())
    d.step(ev.Idle(), after=1)
    d.step(ev.Asked())
    d.beat(ErrorCode.REBALANCE_IN_PROGRESS)
    d.tick(100)
    assert d.machine.state is State.STABLE
    d.step(ev.Settled())
    assert d.only(ev.Joining).abandoned, "its tasks are presumably done since 70 s"


def test_starts_that_are_not_found_are_waited_for_as_long_as_the_group_does() -> None:
    d = settling()
    d.beat(ErrorCode.REBALANCE_IN_PROGRESS)
    d.tick(294.9)
    assert d.machine.state is State.STABLE
    d.tick(0.2)
    assert d.only(ev.Joining).abandoned is False
    assert not d.has(ev.GaveUp), "no batch is given up"
    assert "may start at the earliest offset" in d.notes()


def test_a_member_that_holds_nothing_has_nothing_to_settle() -> None:
    d = settling(0)
    d.beat(ErrorCode.REBALANCE_IN_PROGRESS)
    assert d.has(ev.Joining)


def test_a_group_of_0_9_waits_for_a_batch_no_longer_than_for_a_heartbeat() -> None:
    """JoinGroup v0 tells one timeout, 30 s here, and a member that has not rejoined by then is put out (R26)."""
    d = Driver().found()
    joined = JoinGroupResponse(generation_id=1, protocol_name="streamgroup-range", leader="other", member_id="me")
    d.answer(joined, version=0)
    d.answer(SyncGroupResponse(assignment=assignment_of(tps("t", 0))))
    d.begin()
    d.beat(ErrorCode.REBALANCE_IN_PROGRESS)
    d.tick(26.9)
    assert d.machine.state is State.STABLE
    d.tick(0.2)
    assert d.only(ev.Joining).abandoned


# -- leaving, failing, coming back -------------------------------------------------------------------------------------


def test_a_dynamic_member_leaves_and_a_static_one_stays() -> None:
    d = Driver().stable(tps("t", 0))
    d.step(ev.Stop())
    assert d.only(ev.Send).lane is ev.Lane.COORDINATOR
    assert d.only(ev.Send).timeout_ms == 1_000
    assert d.request("LeaveGroup", 2).member_id == "me"
    assert [m.member_id for m in d.request("LeaveGroup", 3).members] == ["me"]
    d.answer(LeaveGroupResponse())
    assert d.has(ev.Left)

    static = Driver(instance_id="i").stable(tps("t", 0))
    static.step(ev.Stop())
    assert "static member i stays in the group with 1 partition until it rejoins, for 45 s" in static.notes()
    assert static.actions[-1] == ev.Left()
    assert not static.has(ev.Send)


def test_after_a_failure_the_member_still_leaves() -> None:
    d = Driver().stable(tps("t", 0))
    d.beat(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    assert d.has(ev.Fail)
    d.step(ev.Stop())
    assert d.only(ev.Send).api.NAME == "LeaveGroup"


def test_a_member_that_has_left_comes_back_as_a_new_one() -> None:
    """R27: nothing of the first membership counts, but a batch may have been in flight all the time."""
    d = Driver().stable(tps("t", 0, 1), generation=4)
    d.step(ev.Planned())
    d.step(ev.Stop())
    d.answer(LeaveGroupResponse())
    d.step(ev.Idle())
    d.step(ev.Start(("t",)))
    assert d.only(ev.Joining) == ev.Joining("the query starts", abandoned=False, cause=ev.JoinCause.START)
    d.answer(coordinator_is(4))
    assert d.request("JoinGroup").member_id == ""
    d.joined(generation=5)
    d.answer(SyncGroupResponse(assignment=assignment_of(tps("t", 0, 1))))
    assert d.only(ev.Assigned).kept == frozenset()
    d.beat(ErrorCode.REBALANCE_IN_PROGRESS)
    assert d.machine.state is State.JOINING, "no batch is in flight"


def test_what_a_member_is_known_by_stands_in_every_later_subscription() -> None:
    d = Driver()
    d.step(ev.UserDataChanged(b"lineage"))
    d.found()
    assert told_in(d) == [b"lineage"] * 3
    d.stable([])
    d.step(ev.UserDataChanged(b"another"))
    assert not d.has(ev.Send), "it is for the next JoinGroup"
    d.beat(ErrorCode.REBALANCE_IN_PROGRESS)
    assert told_in(d) == [b"another"] * 3


def test_data_that_all_must_answer_is_sent_at_once() -> None:
    d = Driver()
    d.stable([])
    d.step(ev.UserDataChanged(b"asking", lasts=False, rejoins=True))
    assert d.only(ev.Joining)
    assert told_in(d) == [b"asking"] * 3


def test_data_of_one_membership_is_not_sent_after_its_loss() -> None:
    """A member that was admitted, and joins again, is a later joiner (R28)."""
    d = rejoining_as_admitted()
    d.stable([])
    d.beat(ErrorCode.ILLEGAL_GENERATION)
    assert d.has(ev.Lost)
    assert told_in(d) == [b"lineage"] * 3


def test_data_of_a_membership_that_was_lost_on_the_way_back_is_not_sent_again() -> None:
    """Its session may have expired while its JoinGroup was on the way; a copy of its checkpoint may be admitted."""
    d = rejoining_as_admitted()
    d.answer(JoinGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID, protocol_name=""))
    assert d.only(ev.Lost).reason == "UNKNOWN_MEMBER_ID"
    d.tick(0.1)
    assert told_in(d) == [b"lineage"] * 3
    d.answer(JoinGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID, protocol_name=""))
    assert not d.has(ev.Lost), "it is told once"


def rejoining_as_admitted() -> Driver:
    """A member that was admitted in its membership, and joins again."""
    d = Driver()
    d.step(ev.UserDataChanged(b"lineage"))
    d.stable([])
    d.step(ev.UserDataChanged(b"admitted", lasts=False))
    d.beat(ErrorCode.REBALANCE_IN_PROGRESS)
    assert told_in(d) == [b"admitted"] * 3
    return d


def told_in(d: Driver) -> list[bytes]:
    return [bytes(decode_subscription(p.metadata).user_data or b"") for p in d.request("JoinGroup").protocols]


# -- every error code that the protocol guide of 0.8 and 0.9 has for the group APIs ------------------------------------


FIND, JOIN, SYNC, BEAT = "FindCoordinator", "JoinGroup", "SyncGroup", "Heartbeat"
ENDS = "the query ends"


def finding(code: int) -> Driver:
    d = Driver().started()
    d.answer(FindCoordinatorResponse(error_code=code, node_id=-1, host="", port=-1), version=0)
    return d


def joining(code: int) -> Driver:
    d = Driver().stable([])
    d.beat(ErrorCode.REBALANCE_IN_PROGRESS)
    d.answer(JoinGroupResponse(error_code=code, protocol_name=""), version=0)
    return d


def syncing(code: int) -> Driver:
    d = Driver().found().joined()
    d.answer(SyncGroupResponse(error_code=code), version=0)
    return d


def beating(code: int) -> Driver:
    d = Driver().stable(tps("t", 0))
    d.beat(code)
    return d


CODES: dict[str, tuple[Callable[[int], Driver], dict[int, str]]] = {
    "GroupCoordinator": (finding, {15: FIND, 16: FIND, 30: ENDS}),
    JOIN: (joining, {14: JOIN, 15: FIND, 16: FIND, 23: ENDS, 25: JOIN, 26: ENDS, 27: JOIN, 30: ENDS}),
    SYNC: (syncing, {15: FIND, 16: FIND, 22: JOIN, 25: JOIN, 27: JOIN, 30: ENDS}),
    BEAT: (beating, {15: FIND, 16: FIND, 22: JOIN, 25: JOIN, 27: JOIN, 30: ENDS}),
}


@pytest.mark.parametrize(
    ("api", "code", "then"), [(api, code, then) for api, (_, codes) in CODES.items() for code, then in codes.items()]
)
def test_what_follows_an_error_code(api: str, code: int, then: str) -> None:
    """The next request, after the backoff unless a heartbeat asks to join; or the query's end."""
    d = CODES[api][0](code)
    if then == ENDS:
        assert error_of(code).name in str(d.only(ev.Fail).error)
        assert d.machine.state is State.FATAL
        return
    assert not d.has(ev.Fail)
    assert not any(joining.abandoned for joining in d.actions if isinstance(joining, ev.Joining))
    at_once = (api, then) == (BEAT, JOIN)
    assert d.has(ev.Send) is at_once
    sent = d.actions if at_once else d.tick(0.15)
    assert [action.api.NAME for action in sent if isinstance(action, ev.Send)] == [then]
    assert not any(isinstance(action, ev.Fail) for action in sent)
    assert d.machine.member_id == ("" if api == "GroupCoordinator" or code == ErrorCode.UNKNOWN_MEMBER_ID else "me")


@pytest.mark.parametrize(("code", "member"), [(22, "me"), (25, ""), (27, "me")])
def test_who_joins_again_is_the_same_member_unless_it_is_unknown(code: int, member: str) -> None:
    d = beating(code)
    if "JoinGroup" not in d.out:
        d.tick(0.15)
    assert d.request("JoinGroup", 0).member_id == member


@pytest.mark.parametrize("code", [14, 15, 16, 25, 30, None])
def test_whatever_the_answer_who_leaves_has_left(code: int | None) -> None:
    d = Driver().stable(tps("t", 0))
    d.step(ev.Stop())
    if code is None:
        d.fail("LeaveGroup")
    else:
        d.answer(LeaveGroupResponse(error_code=code), version=0)
    assert d.has(ev.Left)
    assert d.machine.state is State.LEFT


# -- the log line about an assignment, and the words of events ---------------------------------------------------------


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


# -- the configuration -------------------------------------------------------------------------------------------------


def test_backoff_stays_within_a_fifth_of_its_value() -> None:
    config, chance = MemberConfig("g"), random.Random(7)
    for attempt, middle in ((1, 0.1), (2, 0.2), (4, 0.8), (5, 1.0), (10_000, 1.0)):
        assert all(0.8 * middle <= config.backoff_s(attempt, chance) <= 1.2 * middle for _ in range(50))


@pytest.mark.parametrize("strategies", [(), ("range", "sticky")])
def test_strategies_that_do_not_exist_are_refused(strategies: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError, match="streamgroup-range, range, roundrobin"):
        MemberConfig("g", strategies=strategies)


@pytest.mark.parametrize(
    ("strategies", "cooperative"),
    [(("cooperative-sticky",), True), (("cooperative-sticky", "range"), False), (("range",), False)],
)
def test_a_member_is_cooperative_only_if_all_it_offers_is(strategies: tuple[str, ...], cooperative: bool) -> None:
    """R25, as in Java: with an eager strategy beside it, as in a rolling upgrade, everything is given up."""
    assert MemberConfig("g", strategies=strategies).cooperative is cooperative


# -- the assignments of all members -----------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS])
def test_a_follower_joins_again_if_the_coordinator_moves_before_it_knows_the_assignments_of_all(code: int) -> None:
    d = Driver().found().joined()
    d.group = group_of(code=code)
    d.answer(SyncGroupResponse(assignment=assignment_of(tps("t", 0))))
    assert (d.has(ev.Assigned), d.only(ev.Joining).cause) == (
        False,
        ev.JoinCause.COORDINATOR if code == ErrorCode.NOT_COORDINATOR else ev.JoinCause.GROUP,
    )


def test_a_follower_joins_again_if_the_connection_is_lost_before_it_knows_the_assignments_of_all() -> None:
    d = Driver().found().joined()
    send = d.out.pop("SyncGroup")
    d.step(ev.RequestAnswered(send.token, SyncGroupResponse(assignment=assignment_of(tps("t", 0))), 5))
    assert (d.only(ev.Send).api.NAME, d.only(ev.Send).lane, d.machine.state) == (
        "DescribeGroups",
        ev.Lane.JOIN,
        State.SYNCING,
    )
    d.fail("DescribeGroups")
    assert d.only(ev.Joining).cause is ev.JoinCause.COORDINATOR


def test_a_broker_without_descriptions_of_groups_lets_the_generation_begin_without_numbers() -> None:
    d = Driver().found().joined()
    send = d.out.pop("SyncGroup")
    d.step(ev.RequestAnswered(send.token, SyncGroupResponse(assignment=assignment_of(tps("t", 0))), 5))
    d.step(ev.RequestFailed(d.out.pop("DescribeGroups").token, "unsupported", unsupported=True))
    assert (d.only(ev.Assigned).members, d.only(ev.Assigned).total, d.machine.state) == (None, None, State.STABLE)
