"""A query that is not a member where brokers keep the commits in ZooKeeper: Kafka before 0.8.2, or as the user says."""

from __future__ import annotations

from typing import Any

import pytest

from streamgroup.errors import ErrorCode
from streamgroup.group import events as ev
from streamgroup.group.registry import events as zk
from streamgroup.group.state_machine import State
from tests.unit.group.test_standalone import Run, assigned, joined, known, of, partitions


def unsupported(run: Run) -> list[ev.Action]:
    """The broker that was asked for the coordinator does not know the question."""
    (send,) = of(run.out, ev.Send)
    assert send.optional
    return run.step(ev.RequestFailed(send.token, "Kafka 0.8.1 does not have it", unsupported=True))


def test_where_there_are_no_coordinators_any_broker_takes_the_commits() -> None:
    run = Run("g")
    actions = unsupported(run)
    assert ev.NoCoordinator() in actions
    assert assigned(run.step(known(t=2))).partitions == partitions(t=2)
    assert run.machine.state is State.STABLE
    assert not of(run.out, ev.WakeAt)


def test_a_user_who_wants_them_in_zookeeper_has_nobody_asked_for_a_coordinator() -> None:
    run = Run("g", in_zookeeper=True)
    assert run.out == [ev.NoCoordinator()]
    assert assigned(run.step(known(t=1))).partitions == partitions(t=1)


def test_a_user_who_wants_them_in_kafka_does_not_get_them_elsewhere() -> None:
    """The driver fails what is not optional."""
    (send,) = of(Run("g", in_zookeeper=False).out, ev.Send)
    assert not send.optional


def test_a_group_whose_commits_were_in_kafka_once_stays_there() -> None:
    """Of a cluster that is being upgraded, brokers of both kinds may answer."""
    run = joined()
    run.step(ev.CoordinatorGone("the broker went down"))
    run.wake()
    (send,) = of(run.out, ev.Send)
    assert not send.optional


@pytest.mark.parametrize(
    "event", [ev.CoordinatorGone("gone"), ev.CommitRefused(ErrorCode.NOT_COORDINATOR, "", -1, 100.0)]
)
def test_a_broker_that_fails_is_no_reason_to_look_for_a_coordinator(event: ev.Event) -> None:
    run = Run("g", in_zookeeper=True)
    run.step(known(t=1))
    assert run.step(event) == []
    assert run.machine.may_commit


def test_a_restart_within_the_run_tells_the_driver_again() -> None:
    run = Run("g")
    unsupported(run)
    run.step(known(t=1))
    run.step(ev.Stop())
    assert run.step(ev.Start(("t",))) == [ev.NoCoordinator()]


# -- a session of its own ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("began", [zk.SessionBegan(5, 6_000), zk.Resumed()])
def test_a_query_that_commits_in_zookeeper_itself_starts_once_it_has_a_session(began: Any) -> None:
    run = Run("g", session=True)
    assert run.out == [zk.OpenSession()]
    assert run.step(known(t=1)) == []
    assert assigned(run.step(began)).partitions == partitions(t=1)
    assert run.machine.may_commit
    assert run.step(ev.CoordinatorGone("the connection is lost")) == [], (
        "the session is opened again without being asked"
    )
    assert run.step(ev.Stop()) == [zk.CloseSession(), ev.Left()]
    assert run.step(ev.Start(("t",))) == [zk.OpenSession()]
