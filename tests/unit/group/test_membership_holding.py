"""Scenarios of one member that holds an assignment, and of how it loses it."""

from __future__ import annotations

import pytest

from streamgroup.errors import ErrorCode, FencedError
from streamgroup.group import events as ev
from streamgroup.group.state_machine import State
from streamgroup.kafka.wire.messages.group import HeartbeatResponse, SyncGroupResponse
from tests.unit.group.drivers import Driver, assignment_of, coordinator_is, tps


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
