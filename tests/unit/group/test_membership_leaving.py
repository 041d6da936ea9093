"""Scenarios of one member that leaves, fails, or comes back."""

from __future__ import annotations

import pytest

from streamgroup.errors import ErrorCode
from streamgroup.group import events as ev
from streamgroup.group.state_machine import State
from streamgroup.kafka.wire.consumer import decode_subscription
from streamgroup.kafka.wire.messages.group import JoinGroupResponse, LeaveGroupResponse, SyncGroupResponse
from tests.unit.group.drivers import Driver, assignment_of, coordinator_is, tps


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
    assert "static member i stays in the group with 1 partition until it is back, 45 s" in static.notes()
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
    assert d.actions[0] == ev.ResetConnection(ev.Lane.JOIN)
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
