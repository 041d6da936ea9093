"""Scenarios of one member: events in, actions out. The coordinator's answers are written by hand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from streamgroup.errors import (
    BrokerError,
    DecodeError,
    ErrorCode,
    FencedError,
    StreamGroupError,
    UnsupportedVersionError,
)
from streamgroup.group import events as ev
from streamgroup.group.membership import MemberConfig, Membership, State
from streamgroup.group.userdata import AssignmentBasis, encode_basis
from streamgroup.model import Broker, PartitionInfo, TopicInfo, TopicPartition
from streamgroup.wire.consumer import (
    ConsumerAssignment,
    ConsumerSubscription,
    by_topic,
    decode_assignment,
    each_partition,
    encode_assignment,
    encode_subscription,
)
from streamgroup.wire.messages.coordinator import Coordinator, FindCoordinatorResponse
from streamgroup.wire.messages.group import (
    HeartbeatResponse,
    JoinGroupResponse,
    JoinGroupResponseMember,
    LeaveGroupResponse,
    SyncGroupResponse,
)


class Even:
    """Chance without any: the middle."""

    def random(self) -> float:
        return 0.5


def topics(**leaders: list[int]) -> Mapping[str, TopicInfo]:
    return {
        name: TopicInfo(name, tuple(PartitionInfo(i, leader) for i, leader in enumerate(of)))
        for name, of in leaders.items()
    }


def subscription_of(*names: str) -> bytes:
    return encode_subscription(ConsumerSubscription(topics=names))


def assignment_of(partitions: list[TopicPartition], user_data: bytes | None = None) -> bytes:
    return encode_assignment(ConsumerAssignment(assigned_partitions=by_topic(partitions), user_data=user_data))


def coordinator_is(node_id: int) -> FindCoordinatorResponse:
    row = Coordinator(key="orders-ingest", node_id=node_id, host=f"kafka-{node_id}", port=9092)
    return FindCoordinatorResponse(coordinators=(row,))


def tps(topic: str, *numbers: int) -> list[TopicPartition]:
    return [TopicPartition(topic, number) for number in numbers]


class Driver:
    """Feeds one machine, keeps its actions and the requests that are out."""

    def __init__(self, subscribed: tuple[str, ...] = ("t",), **config: Any) -> None:
        self.machine = Membership(MemberConfig("orders-ingest", **config), Even())
        self.subscribed = subscribed
        self.now = 1000.0
        self.actions: list[ev.Action] = []
        self.out: dict[str, ev.Send] = {}

    def step(self, event: ev.Event, after: float = 0.0) -> list[ev.Action]:
        self.now += after
        self.actions = self.machine.step(event, self.now)
        self.out |= {a.api.NAME: a for a in self.actions if isinstance(a, ev.Send)}
        return self.actions

    def answer(self, response: Any, version: int | None = None, after: float = 0.0) -> list[ev.Action]:
        name = type(response).__name__.removesuffix("Response")
        send = self.out.pop(name)
        return self.step(ev.Answered(send.token, response, send.api.VERSIONS[1] if version is None else version), after)

    def fail(self, name: str, reason: str = "connection reset") -> list[ev.Action]:
        return self.step(ev.Failed(self.out.pop(name).token, reason))

    def tick(self, after: float) -> list[ev.Action]:
        return self.step(ev.Tick(), after)

    def only(self, kind: type[Any]) -> Any:
        (found,) = (a for a in self.actions if isinstance(a, kind))
        return found

    def has(self, kind: type[Any]) -> bool:
        return any(isinstance(a, kind) for a in self.actions)

    def notes(self) -> str:
        return "\n".join(a.text for a in self.actions if isinstance(a, ev.Note))

    def request(self, name: str, version: int | None = None) -> Any:
        send = self.out[name]
        return send.build(send.api.VERSIONS[1] if version is None else version)

    # the way in, as far as a scenario needs it

    def found(self) -> Driver:
        self.step(ev.Start(self.subscribed))
        self.answer(coordinator_is(3))
        return self

    def joined(self, generation: int = 1, member_id: str = "me", leader: str = "other", **more: Any) -> Driver:
        self.answer(
            JoinGroupResponse(
                generation_id=generation, protocol_name="streamgroup-range", leader=leader, member_id=member_id, **more
            )
        )
        return self

    def stable(self, partitions: list[TopicPartition], generation: int = 1, **more: Any) -> Driver:
        if self.machine.state is State.UNJOINED:
            self.found()
        self.joined(generation, **more)
        self.answer(SyncGroupResponse(assignment=assignment_of(partitions)))
        return self

    def beat(self, code: int = 0, after: float = 0.0) -> list[ev.Action]:
        return self.answer(HeartbeatResponse(error_code=code), after=after)


# -- the way in -------------------------------------------------------------------------------------------------------


def test_a_first_join_with_member_id_required() -> None:
    d = Driver()
    d.step(ev.Start(("t",)))
    assert d.only(ev.Send).lane is ev.Lane.ANY
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
    assert "joined orders-ingest, generation 3, 2 of 6 partitions, 2 other members" in d.notes()
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
    d.step(ev.TopicsKnown(topics(t=[0, 0]), frozenset({"t"})))
    assert not d.has(ev.Send)
    d.step(ev.TopicsKnown(topics(t=[0, 0]), frozenset({"t", "u"})))
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
        (ErrorCode.GROUP_AUTHORIZATION_FAILED, BrokerError, "READ"),
        (ErrorCode.INVALID_GROUP_ID, BrokerError, "kafka.group.id"),
        (ErrorCode.FENCED_INSTANCE_ID, FencedError, "'node-1'"),
        (ErrorCode.UNKNOWN_SERVER_ERROR, BrokerError, "could not join"),
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


# -- holding an assignment --------------------------------------------------------------------------------------------


def test_what_was_held_directly_before_by_the_same_member_is_kept() -> None:
    d = Driver().stable(tps("t", 0, 1), generation=4)
    d.beat(ErrorCode.REBALANCE_IN_PROGRESS)
    d.stable(tps("t", 1, 2), generation=5)
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
    d.step(ev.Answered(old.token, HeartbeatResponse(error_code=ErrorCode.ILLEGAL_GENERATION), 4))
    d.step(ev.CommitRefused(ErrorCode.ILLEGAL_GENERATION, "me", 1, d.now))
    d.step(ev.CommitAccepted("me", 1, d.now))
    assert d.machine.state is State.STABLE
    assert d.machine.lease_at is None


def test_two_drivers_with_one_instance_id() -> None:
    d = Driver(instance_id="node-1").stable(tps("t", 0))
    d.beat(ErrorCode.FENCED_INSTANCE_ID)
    error = d.only(ev.Fail).error
    assert isinstance(error, FencedError)
    assert "late JoinGroup" in str(error)
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
    assert ev.Reset(ev.Lane.COORDINATOR) in d.actions
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


# -- rejoining --------------------------------------------------------------------------------------------------------


def test_told_to_rejoin_while_idle_it_does_so_at_once() -> None:
    d = Driver().stable(tps("t", 0))
    d.beat(ErrorCode.REBALANCE_IN_PROGRESS)
    assert d.only(ev.Joining) == ev.Joining("the group rebalances", abandoned=False)
    assert d.machine.state is State.JOINING


def test_told_to_rejoin_during_a_batch_it_goes_on_beating_and_waits_for_the_boundary() -> None:
    d = Driver().stable(tps("t", 0))
    d.step(ev.Planned())
    d.step(ev.Asked())
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
    d.step(ev.Planned())
    d.step(ev.Asked())
    d.step(ev.Idle(), after=7)  # the longest batch so far: 7 s
    d.step(ev.Planned())
    d.step(ev.Asked())
    asked_at = d.now
    d.step(ev.CommitRefused(ErrorCode.REBALANCE_IN_PROGRESS, "me", 1, d.now), after=1)
    d.tick(asked_at + 36.9 - d.now)
    assert d.machine.state is State.STABLE
    d.tick(0.2)
    assert d.only(ev.Joining).abandoned
    assert "up to one batch may be repeated" in d.notes()


def test_before_any_batch_has_completed_only_the_groups_patience_counts() -> None:
    d = Driver(session_timeout_ms=400_000).stable(tps("t", 0))
    d.step(ev.Planned())
    d.step(ev.Asked())
    d.step(ev.CommitRefused(ErrorCode.REBALANCE_IN_PROGRESS, "me", 1, d.now))
    d.tick(294.9)
    assert d.machine.state is State.STABLE
    d.tick(0.2)
    assert d.only(ev.Joining).abandoned


def test_a_follower_does_not_count_partitions_and_a_moved_leader_counts_for_nobody() -> None:
    follower = Driver().stable(tps("t", 0))
    follower.step(ev.TopicsKnown(topics(t=[0, 0, 0]), frozenset({"t"})))
    assert follower.machine.state is State.STABLE
    d = Driver().found()
    d.joined(leader="me", members=(JoinGroupResponseMember(member_id="me", metadata=subscription_of("t")),))
    d.step(ev.TopicsKnown(topics(t=[0]), frozenset({"t"})))
    (own,) = d.request("SyncGroup").assignments
    d.answer(SyncGroupResponse(assignment=own.assignment))
    d.step(ev.TopicsKnown(topics(t=[7]), frozenset({"t"})))
    d.step(ev.TopicsKnown({}, frozenset({"other"})))
    assert d.machine.state is State.STABLE
    d.step(ev.TopicsKnown(topics(t=[7, 7]), frozenset({"t"})))
    assert d.only(ev.Joining).reason == "partitions have changed (t: 1 -> 2)"


def test_a_restarted_static_member_compares_because_it_may_be_the_leader() -> None:
    for user_data, rejoins in ((encode_basis(AssignmentBasis({"t": 1}, 2)), True), (None, False)):
        d = Driver(instance_id="i").found().joined(leader="my-predecessor")
        d.answer(SyncGroupResponse(assignment=assignment_of(tps("t", 0), user_data)))
        d.step(ev.TopicsKnown(topics(t=[0, 0]), frozenset({"t"})))
        assert d.has(ev.Joining) is rejoins


# -- leaving ----------------------------------------------------------------------------------------------------------


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
    assert "static member i stays in the group: 1 partitions wait for it, 45 s" in static.notes()
    assert static.actions[-1] == ev.Left()
    assert not static.has(ev.Send)


def test_leaving_ends_although_nobody_answers() -> None:
    d = Driver().stable(tps("t", 0))
    d.step(ev.Stop())
    d.fail("LeaveGroup")
    assert d.machine.state is State.LEFT
    assert d.has(ev.Left)


def test_stopping_while_joining_gives_the_join_up() -> None:
    d = Driver().stable(tps("t", 0))
    d.beat(ErrorCode.REBALANCE_IN_PROGRESS)
    d.step(ev.Stop())
    assert d.actions[0] == ev.Reset(ev.Lane.JOIN)
    assert d.only(ev.Send).api.NAME == "LeaveGroup"


def test_after_a_failure_the_member_still_leaves() -> None:
    d = Driver().stable(tps("t", 0))
    d.beat(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    assert d.has(ev.Fail)
    d.step(ev.Stop())
    assert d.only(ev.Send).api.NAME == "LeaveGroup"


def test_starting_twice_is_an_error_of_the_callers() -> None:
    d = Driver().found()
    with pytest.raises(ValueError, match="orders-ingest: Start has no place in state JOINING"):
        d.step(ev.Start(("t",)))
