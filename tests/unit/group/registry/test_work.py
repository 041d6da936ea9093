"""RegistryWork returns the right next step after each event of a session, action and question."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from streamgroup.group.registry import events as zk
from streamgroup.group.registry import work as steps
from streamgroup.group.registry.work import RETRY_BACKOFF_S, AskedQuestion, Heard, RegistryWork, SessionEvent
from streamgroup.znodes import Create, Subtree

SESSION_MS, GRANTED_MS, CONNECTION_MS = 6_000, 4_000, 2_000
EXPIRED = zk.Expired("the session has expired")


def look(token: int) -> zk.ReadSubtrees:
    return zk.ReadSubtrees(token, (Subtree("/x"),))


def write(token: int) -> zk.Transact:
    return zk.Transact(token, (Create(f"/{token}"),))


class Member:
    """The work of one member, and what a test needs around it."""

    def __init__(self) -> None:
        self.work: RegistryWork[str] = RegistryWork(SESSION_MS, CONNECTION_MS)
        self.is_connected = False
        self.is_refused = False

    def wants(self, *actions: zk.RegistryAction) -> None:
        for action in actions:
            self.work.add(action)

    def hears(self, event: SessionEvent, session_id: int = 7, *, life: int = 1, now: float = 0.0) -> Sequence[Any]:
        heard = Heard(life, session_id, event)
        return tuple(self.work.hear(heard, now, is_connected=self.is_connected, is_refused=self.is_refused))

    def next(self, now: float = 0.0) -> Any:
        return self.work.next_step(now, is_connected=self.is_connected)

    def in_session(self, session_id: int = 7) -> None:
        self.wants(zk.OpenSession())
        assert self.next() == steps.Open()
        self.is_connected = True
        assert self.hears(zk.SessionBegan(session_id, GRANTED_MS), session_id) == (steps.Begin(SESSION_MS / 1000),)
        assert self.work.began(session_id, GRANTED_MS) == zk.SessionBegan(session_id, GRANTED_MS)


@pytest.fixture
def member() -> Member:
    return Member()


# -- the session ------------------------------------------------------------------------------------------------------


def test_a_session_that_is_connected_already_begins_at_once(member: Member) -> None:
    """A question has connected it."""
    member.is_connected = True
    assert member.hears(zk.SessionBegan(7, GRANTED_MS)) == (), "the member does not want it yet"
    member.wants(zk.OpenSession())
    assert member.next(now=1.0) == steps.Begin(1.0 + SESSION_MS / 1000)


def test_a_request_waits_no_longer_than_the_session_that_was_granted(member: Member) -> None:
    member.in_session()
    member.wants(look(1))
    assert member.next(now=10.0) == steps.Read(look(1), 10.0 + GRANTED_MS / 1000)
    assert member.work.began(8, 2 * SESSION_MS) == zk.SessionBegan(8, 2 * SESSION_MS)
    member.wants(look(2))
    assert member.next(now=10.0) == steps.Read(look(2), 10.0 + SESSION_MS / 1000)


def test_only_events_of_the_members_session_reach_it(member: Member) -> None:
    member.in_session(7)
    for event in (zk.Suspended("lost"), zk.Resumed(), EXPIRED):
        assert member.hears(event, 6) == ()
    assert member.hears(zk.Suspended("lost"), 7) == (steps.Tell(zk.Suspended("lost")),)
    assert member.hears(zk.Resumed(), 7) == (steps.Tell(zk.Resumed()),)
    assert member.hears(zk.Changed("/c"), 0) == (steps.Tell(zk.Changed("/c")),)


def test_before_its_session_a_member_hears_of_no_change(member: Member) -> None:
    assert member.hears(zk.Changed("/c"), 0) == ()
    assert member.hears(zk.Suspended("lost")) == ()
    member.wants(zk.OpenSession())
    assert member.next() == steps.Open()
    assert member.hears(zk.Resumed()) == (steps.Begin(SESSION_MS / 1000),), "it broke and resumed before it began"


def test_what_waited_in_a_session_that_has_ended_is_not_carried_out_in_the_next_one(member: Member) -> None:
    member.in_session()
    member.wants(look(1), write(2), zk.CloseSession())
    member.is_connected = False
    assert member.hears(EXPIRED) == (steps.Tell(EXPIRED), steps.Open())
    assert member.next() == steps.Close()
    assert member.next() is None


def test_a_session_that_ends_before_it_has_begun_is_opened_again_and_not_told_of(member: Member) -> None:
    assert member.hears(EXPIRED, 0) == ()
    member.wants(zk.OpenSession())
    assert member.next() == steps.Open()
    assert member.hears(EXPIRED, 0) == (steps.Open(),)


def test_a_session_that_was_refused_for_good_fails_the_query(member: Member) -> None:
    member.in_session()
    member.is_connected, member.is_refused = False, True
    assert member.hears(EXPIRED) == (steps.Tell(EXPIRED), steps.Refuse())
    assert not member.work.is_long_unconnected(1_000.0), "it does not keep trying"


def test_events_of_the_join_before_have_no_effect(member: Member) -> None:
    member.in_session()
    member.wants(zk.CloseSession(), zk.OpenSession())
    assert (member.next(), member.work.life) == (steps.Close(), 2)
    member.is_connected = False
    assert member.next() == steps.Open()
    assert member.hears(zk.SessionBegan(9, GRANTED_MS), 9, life=1) == ()
    assert member.hears(EXPIRED, 9, life=1) == ()
    assert member.hears(zk.SessionBegan(9, GRANTED_MS), 9, life=2) == (steps.Begin(GRANTED_MS / 1000),)


def test_a_connection_that_takes_long_is_reported_once(member: Member) -> None:
    member.wants(zk.OpenSession())
    assert member.next(now=10.0) == steps.Open()
    assert not member.work.is_long_unconnected(10.0 + CONNECTION_MS / 1000)
    assert member.work.is_long_unconnected(12.1)
    assert not member.work.is_long_unconnected(60.0)
    member.hears(EXPIRED, 0, now=60.0)
    assert member.work.is_long_unconnected(63.0), "the next one takes long, too"


def test_a_connection_that_comes_is_not_reported(member: Member) -> None:
    member.in_session()
    assert not member.work.is_long_unconnected(60.0)


# -- the order --------------------------------------------------------------------------------------------------------


def test_actions_go_in_their_order_and_transactions_together(member: Member) -> None:
    member.in_session()
    member.wants(write(1), write(2), look(3), write(4))
    due = GRANTED_MS / 1000
    assert [member.next() for _ in range(4)] == [
        steps.Write((write(1), write(2)), due),
        steps.Read(look(3), due),
        steps.Write((write(4),), due),
        None,
    ]


def test_questions_and_actions_take_turns(member: Member) -> None:
    member.in_session()
    for name in "ab":
        member.work.ask(AskedQuestion(name, 60.0))
    member.wants(look(1), look(2), look(3))
    done = [member.next() for _ in range(5)]
    assert [each.asked.question if isinstance(each, steps.AnswerQuestion) else each.request.token for each in done] == [
        "a",
        1,
        "b",
        2,
        3,
    ]
    assert not member.work.has_work


def test_only_before_the_member_wants_a_session_a_question_connects(member: Member) -> None:
    asked = AskedQuestion("q", 60.0)
    member.work.ask(asked)
    assert member.next(now=1.0) == steps.AnswerQuestion(asked, 1.0 + SESSION_MS / 1000)
    member.work.ask(soon := AskedQuestion("q", 2.0))
    assert member.next(now=1.0) == steps.AnswerQuestion(soon, 2.0)
    member.in_session()
    member.work.ask(asked)
    assert member.next(now=1.0) == steps.AnswerQuestion(asked, None)


def test_a_question_is_asked_again_until_its_time_is_over(member: Member) -> None:
    asked = AskedQuestion("q", 10.0)
    assert member.work.ask_again(asked, 5.0)
    assert member.work.wake_at == pytest.approx(5.0 + RETRY_BACKOFF_S)
    assert member.next(now=5.05) is None
    assert member.next(now=5.2) == steps.AnswerQuestion(asked, 10.0)
    assert member.work.wake_at is None
    assert not member.work.ask_again(asked, 9.95)


def test_what_is_not_answered_at_the_end_is_given_back(member: Member) -> None:
    first, second = AskedQuestion("a", 10.0), AskedQuestion("b", 10.0)
    member.work.ask(first)
    member.work.ask_again(second, 0.0)
    assert member.work.stop() == [first, second]
    assert not member.work.has_work
    assert member.work.wake_at is None
