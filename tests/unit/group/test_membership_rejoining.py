"""Scenarios of one member that is to rejoin, by the eager protocol: at the boundary of a batch (R21, R22)."""

from __future__ import annotations

from streamgroup.errors import ErrorCode
from streamgroup.group import events as ev
from streamgroup.group.state_machine import State
from streamgroup.group.user_data import AssignmentBasis, encode_basis
from streamgroup.kafka.wire.consumer import decode_subscription
from streamgroup.kafka.wire.messages.group import JoinGroupResponse, JoinGroupResponseMember, SyncGroupResponse
from tests.unit.group.drivers import Driver, assignment_of, coordinator_is, subscription_of, topics, tps


def test_asked_to_rejoin_while_idle_it_does_so_at_once() -> None:
    d = Driver().stable(tps("t", 0))
    d.beat(ErrorCode.REBALANCE_IN_PROGRESS)
    assert d.only(ev.Joining) == ev.Joining("the group rebalances", abandoned=False)
    assert d.machine.state is State.JOINING
    told = decode_subscription(d.request("JoinGroup").protocols[0].metadata)
    assert (told.owned_partitions, told.generation_id) == ((), -1), "an eager member owns nothing any more"


def test_asked_to_rejoin_during_a_batch_it_goes_on_beating_and_waits_for_the_boundary() -> None:
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
    assert "up to one batch may be repeated" in d.only(ev.GaveUp).text


def test_a_batch_longer_than_any_before_it_is_not_given_up_as_soon_as_the_rebalance_is_announced() -> None:
    for listened, waits in ((False, 30.0), (True, 295.0)):
        d = Driver(session_timeout_ms=400_000).stable(tps("t", 0))
        d.step(ev.Planned())
        d.step(ev.Asked(listened))
        d.step(ev.Idle(), after=1)
        d.step(ev.Planned())
        d.step(ev.Asked(listened))
        d.step(ev.CommitRefused(ErrorCode.REBALANCE_IN_PROGRESS, "me", 1, d.now), after=45)
        d.tick(waits - 0.1)
        assert d.machine.state is State.STABLE
        d.tick(0.2)
        assert d.only(ev.Joining).abandoned


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
    assert "may start at their earliest offset (R7)" in d.notes()


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
    d.step(ev.Planned())
    d.step(ev.Asked())
    d.beat(ErrorCode.REBALANCE_IN_PROGRESS)
    d.tick(26.9)
    assert d.machine.state is State.STABLE
    d.tick(0.2)
    assert d.only(ev.Joining).abandoned


def test_before_the_first_complete_batch_only_the_rebalance_timeout_counts() -> None:
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
    follower.step(ev.MetadataRefreshed(topics(t=[0, 0, 0]), frozenset({"t"})))
    assert follower.machine.state is State.STABLE
    d = Driver().found()
    d.joined(leader="me", members=(JoinGroupResponseMember(member_id="me", metadata=subscription_of("t")),))
    d.step(ev.MetadataRefreshed(topics(t=[0]), frozenset({"t"})))
    (own,) = d.request("SyncGroup").assignments
    d.answer(SyncGroupResponse(assignment=own.assignment))
    d.step(ev.MetadataRefreshed(topics(t=[7]), frozenset({"t"})))
    d.step(ev.MetadataRefreshed({}, frozenset({"other"})))
    assert d.machine.state is State.STABLE
    d.step(ev.MetadataRefreshed(topics(t=[7, 7]), frozenset({"t"})))
    assert d.only(ev.Joining).reason == "partitions have changed (t: 1 -> 2)"


def test_a_restarted_static_member_compares_because_it_may_be_the_leader() -> None:
    for user_data, rejoins in ((encode_basis(AssignmentBasis({"t": 1}, 2)), True), (None, False)):
        d = Driver(instance_id="i").found().joined(leader="my-predecessor")
        d.answer(SyncGroupResponse(assignment=assignment_of(tps("t", 0), user_data)))
        d.step(ev.MetadataRefreshed(topics(t=[0, 0]), frozenset({"t"})))
        assert d.has(ev.Joining) is rejoins
