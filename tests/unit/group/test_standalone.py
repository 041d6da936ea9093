"""A query that is not a member: what it holds, its group coordinator or ZooKeeper, and members in its group."""

from __future__ import annotations

import math
import random
from typing import Any, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgroup.advice import StoredIn
from streamgroup.errors import BrokerError, ConfigError, ErrorCode
from streamgroup.group import events as ev
from streamgroup.group.registry import events as zk
from streamgroup.group.standalone import StandaloneMember
from streamgroup.group.state_machine import State
from streamgroup.group.timing import MemberConfig
from streamgroup.kafka.wire.messages import group as c
from streamgroup.model import Broker, PartitionInfo, TopicInfo, TopicPartition

A = TypeVar("A")

UNKNOWN_MEMBER = ErrorCode.UNKNOWN_MEMBER_ID


def known(**counts: int) -> ev.MetadataRefreshed:
    topics = {n: TopicInfo(n, tuple(PartitionInfo(p, 0) for p in range(count))) for n, count in counts.items()}
    return ev.MetadataRefreshed(topics, frozenset(topics))


def partitions(**counts: int) -> tuple[TopicPartition, ...]:
    return tuple(sorted(TopicPartition(n, p) for n, count in counts.items() for p in range(count)))


class Run:
    """A machine, its time, and what it wanted last."""

    def __init__(self, group: str = "", topics: tuple[str, ...] = ("t",), **others: Any) -> None:
        self.now = 100.0
        self.machine = StandaloneMember(MemberConfig(group), random.Random(1), **others)
        self.out: list[ev.Action] = []
        self.step(ev.Start(topics))

    def step(self, event: ev.Event) -> list[ev.Action]:
        self.out = self.machine.step(event, self.now)
        return self.out

    def wake(self) -> list[ev.Action]:
        """Time goes on to when the machine wants it."""
        (wake,) = (a for a in self.out if isinstance(a, ev.WakeAt))
        self.now = wake.time
        return self.step(ev.Tick())

    def found(self, host: str = "b", code: int = 0) -> list[ev.Action]:
        """FindCoordinator is answered."""
        (send,) = of(self.out, ev.Send)
        answer = c.FindCoordinatorResponse(
            coordinators=(c.FoundCoordinator(key="g", node_id=1, host=host, port=9092, error_code=code),)
        )
        return self.step(ev.RequestAnswered(send.token, answer, 4))

    def refused(self, code: int = UNKNOWN_MEMBER) -> list[ev.Action]:
        return self.step(ev.CommitRefused(code, "", -1, self.now))


def of(actions: list[ev.Action], kind: type[A]) -> list[A]:
    return [action for action in actions if isinstance(action, kind)]


def assigned(actions: list[ev.Action]) -> ev.Assigned:
    (action,) = of(actions, ev.Assigned)
    return action


def joined(**others: Any) -> Run:
    """A run with a group, its coordinator and two partitions."""
    run = Run("g", **others)
    run.found()
    run.step(known(t=2))
    assert run.machine.state is State.STABLE
    return run


# -- what it holds ----------------------------------------------------------------------------------------------------


def test_without_a_group_all_partitions_are_held_as_soon_as_they_are_known() -> None:
    run = Run()
    assert run.out == []
    assert not run.machine.can_plan
    note, taken = run.step(known(t=2))
    assert note == ev.Note(20, "reads 2 partitions of t, commits nothing")
    assert isinstance(taken, ev.Assigned)
    assert (taken.generation, taken.member_id, taken.partitions, taken.kept) == (1, "", partitions(t=2), frozenset())
    assert (run.machine.state, run.machine.lease_at) == (State.STABLE, math.inf)
    assert run.machine.can_plan
    assert run.machine.may_commit


def test_what_was_known_before_it_started_does_not_count() -> None:
    machine = StandaloneMember(MemberConfig(""), random.Random(1))
    assert machine.step(known(t=2), 1.0) == []
    assert machine.state is State.UNJOINED
    machine.step(ev.Start(("t",)), 2.0)
    assert assigned(machine.step(known(t=2), 3.0)).partitions == partitions(t=2)


def test_the_same_metadata_changes_nothing_and_a_new_partition_is_gained() -> None:
    run = Run()
    run.step(known(t=2))
    assert run.step(known(t=2)) == []
    grown = run.step(known(t=3))
    assert assigned(grown).partitions == partitions(t=3)
    assert assigned(grown).kept == frozenset(partitions(t=2))
    assert of(grown, ev.Note)[0].text == "now reads 3 partitions of t, commits nothing"


def test_only_what_is_subscribed_is_held_and_a_pattern_may_match_nothing_at_first() -> None:
    run = Run(topics=())
    first = run.step(known(other=3))
    assert assigned(first).partitions == ()
    assert "0 partitions of no topic so far" in of(first, ev.Note)[0].text
    run.step(ev.Subscribed(("a", "b")))
    assert assigned(run.step(known(a=1, b=2, other=3))).partitions == partitions(a=1, b=2)
    assert run.machine.topics == ("a", "b")


def test_assigned_partitions_are_held_whatever_else_there_is() -> None:
    only = (TopicPartition("t", 1),)
    run = Run(assigned=only)
    assert assigned(run.step(known(t=5))).partitions == only
    assert run.step(known(t=9)) == []


def test_an_assigned_partition_that_does_not_exist_is_named_once_and_held_when_it_appears() -> None:
    """As in Spark's source, which asks for the partitions of the assigned topics before every batch."""
    run = Run(assigned=(TopicPartition("t", 1), TopicPartition("t", 4)))
    first = run.step(known(t=2))
    assert assigned(first).partitions == (TopicPartition("t", 1),)
    said = "option 'assign' lists partitions that do not exist: t-4. The query reads them once they exist"
    warning = ev.Note(ev.WARNING, said)
    assert warning in of(first, ev.Note)
    assert run.step(known(t=3)) == []
    grown = run.step(known(t=5))
    assert assigned(grown).partitions == (TopicPartition("t", 1), TopicPartition("t", 4))
    assert warning not in of(grown, ev.Note)


def test_an_assigned_partition_that_has_existed_stays_held_so_that_its_loss_is_reported() -> None:
    run = Run(assigned=(TopicPartition("t", 1),))
    run.step(known(t=2))
    assert run.step(known(t=1)) == []
    assert run.step(known()) == []


@pytest.mark.parametrize("missed", [True, False])
def test_a_topic_that_is_gone_is_held_until_its_loss_has_been_reported(missed: bool) -> None:
    run = Run(topics=("t", "u"), is_missed=lambda tp: missed)
    run.step(known(t=1, u=1))
    run.step(ev.Subscribed(("u",)))
    gone = run.step(known(u=1))
    assert (gone == []) if missed else (assigned(gone).partitions == partitions(u=1))


def test_a_topic_made_anew_with_fewer_partitions_has_only_those() -> None:
    run = Run(is_missed=lambda tp: True)
    run.step(known(t=3))
    assert assigned(run.step(known(t=1))).partitions == partitions(t=1)


def test_many_topics_are_counted_in_the_log_not_listed() -> None:
    run = Run(topics=tuple("abcde"))
    text = of(run.step(known(a=1, b=1, c=1, d=1, e=1)), ev.Note)[0].text
    assert text == "reads 5 partitions of a, b, c and 2 more topics, commits nothing"


@pytest.mark.slow
@given(st.lists(st.dictionaries(st.sampled_from("abc"), st.integers(1, 4)), max_size=8))
def test_whatever_the_metadata_shows_is_held_and_kept_is_what_was_held_before(shown: list[dict[str, int]]) -> None:
    run, held = Run(topics=("a", "b")), frozenset[TopicPartition]()
    for counts in shown:
        expected = frozenset(partitions(**{n: count for n, count in counts.items() if n in "ab"}))
        for action in of(run.step(known(**counts)), ev.Assigned):
            assert action.kept == held & frozenset(action.partitions)
            held = frozenset(action.partitions)
        assert held == expected


# -- its coordinator --------------------------------------------------------------------------------------------------


def test_with_a_group_nothing_is_held_before_its_coordinator_is_found() -> None:
    run = Run("g")
    find = run.out
    assert [send.lane for send in of(find, ev.Send)] == [ev.Lane.ANY]
    assert of(run.step(known(t=2)), ev.Assigned) == []
    run.out = find
    actions = run.found()
    assert of(actions, ev.CoordinatorFound) == [ev.CoordinatorFound(Broker(1, "b", 9092))]
    assert of(actions, ev.Note)[0].text == "reads 2 partitions of t, commits to group g without joining"
    assert assigned(actions).partitions == partitions(t=2)


@pytest.mark.parametrize("code", [ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR, 14])
def test_it_looks_for_its_coordinator_until_there_is_one(code: int) -> None:
    run = Run("g")
    for _ in range(3):
        assert of(run.found(code=code), ev.CoordinatorFound) == []
        run.wake()
    assert of(run.found(), ev.CoordinatorFound)


def test_a_group_that_may_not_be_used_fails_the_query() -> None:
    run = Run("g")
    (fail,) = of(run.found(code=ErrorCode.GROUP_AUTHORIZATION_FAILED), ev.Fail)
    assert isinstance(fail.error, BrokerError)
    assert "group g" in str(fail.error)
    assert run.machine.state is State.FATAL
    assert run.step(known(t=1)) == []


def test_a_request_that_nobody_reports_is_given_up() -> None:
    run = Run("g")
    assert of(run.wake(), ev.ResetConnection) == [ev.ResetConnection(ev.Lane.ANY)]
    assert of(run.wake(), ev.Send)


def test_a_lost_coordinator_is_found_again_while_everything_is_held() -> None:
    run = joined()
    run.step(ev.CoordinatorGone("its connection broke"))
    assert run.machine.state is State.STABLE
    assert of(run.step(ev.CoordinatorGone("again")), ev.Send) == [], "it is being looked for"
    assert of(run.wake(), ev.Send)
    assert of(run.found("other"), ev.CoordinatorFound) == [ev.CoordinatorFound(Broker(1, "other", 9092))]


def test_a_commit_to_a_broker_that_is_no_coordinator_any_more_makes_it_look_again() -> None:
    run = joined()
    run.refused(ErrorCode.NOT_COORDINATOR)
    assert of(run.wake(), ev.Send)


def test_without_a_group_nothing_is_ever_sent() -> None:
    run = Run()
    for event in (known(t=1), ev.CoordinatorGone("?"), ev.Planned(), ev.Asked(), ev.Idle(), ev.Tick()):
        assert of(run.step(event), ev.Send) == []


# -- members in its group ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [UNKNOWN_MEMBER, ErrorCode.ILLEGAL_GENERATION, ErrorCode.REBALANCE_IN_PROGRESS])
def test_members_are_waited_for_and_the_commit_is_tried_again(code: int) -> None:
    run = joined()
    (note,) = of(run.refused(code), ev.Note)
    assert note.level == 30
    assert note.text.startswith("group g: the group coordinator rejected a commit (")
    assert "because the group has members and this query is not a member" in note.text
    again = assigned(run.wake())
    assert again.kept == frozenset(again.partitions) == frozenset(partitions(t=2))
    assert of(run.out, ev.Note) == [], "nothing is new"
    assert of(run.refused(code), ev.Note) == [], "told once"


def test_members_that_stay_fail_the_query_with_the_ways_out() -> None:
    run = joined(members_timeout_s=5.0, stored_in=StoredIn.ZOOKEEPER)
    run.refused()
    for _ in range(100):
        run.wake()
        if fails := of(run.refused(), ev.Fail):
            break
    (fail,) = fails
    assert 105.0 <= run.now <= 107.0
    assert isinstance(fail.error, ConfigError)
    for way in ("group g", "stop the members", "another kafka.group.id", "group.mode=member", "group.mode=off"):
        assert way.lower() in str(fail.error).lower()
    assert "(streamgroup groups --describe --group g, with --zookeeper)" in str(fail.error)


def test_members_that_came_and_went_are_forgotten() -> None:
    run = joined(members_timeout_s=5.0)
    run.refused()
    run.wake()
    run.step(ev.CommitAccepted("", -1, run.now))
    run.now += 60
    assert of(run.refused(), ev.Fail) == []
    assert run.machine.state is State.STABLE


# -- stopping ---------------------------------------------------------------------------------------------------------


def test_it_stops_at_once_and_may_start_again() -> None:
    run = joined()
    assert run.step(ev.Stop()) == [ev.Left()]
    assert run.machine.state is State.LEFT
    assert run.step(known(t=5)) == run.step(ev.Stop()) == []
    run.step(ev.Start(("t",)))
    run.found()
    assert assigned(run.step(known(t=2))).kept == frozenset(), "what was held is the ledger's no more"


# -- where its commits go ----------------------------------------------------------------------------------------------


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
