"""Members of a group in ZooKeeper and their sessions: lost connections, expiry, leaving, refusals; the table."""

from __future__ import annotations

from typing import Any, get_args

import pytest

from streamgroup.errors import ConfigError, ErrorCode
from streamgroup.group import events as ev
from streamgroup.group.member import shown_state
from streamgroup.group.registry import events as zk
from streamgroup.group.registry.events import RequestRefused, forbidden
from streamgroup.group.registry.membership import RegistryMembership
from streamgroup.group.registry.registration import RegistryPurpose, RegistryTimer
from streamgroup.group.state_machine import State
from streamgroup.kafka.wire import registrations
from streamgroup.znodes import Check, Operation, Refusal, Right, how_to_allow
from tests.unit.group.registry.groups import ALL, OLD, Cluster, One, agrees, cluster, group, of, owners, plan

TABLE = RegistryMembership.TABLE

# -- the session ------------------------------------------------------------------------------------------------------


def test_without_a_connection_nothing_is_planned_at_once() -> None:
    _, (a,) = group("A")
    a.client.disconnect()
    a.hear(a.client.events.popleft())
    assert a.machine.state is State.STABLE
    assert (a.machine.can_plan, a.machine.may_commit, a.machine.lease_at) == (False, False, None)
    assert shown_state(a.machine) == "suspended"
    assert a.machine.revoking == frozenset()


def test_after_the_connection_is_back_the_member_goes_on_when_it_has_seen_itself() -> None:
    made, (a,) = group("A")
    a.client.disconnect()
    made.run(3)
    a.client.connect()
    a.hear(a.client.events.popleft())
    assert not a.machine.can_plan
    made.run(1)
    assert a.machine.can_plan
    assert a.machine.lease_at > 103
    assert shown_state(a.machine) == "stable"
    assert len(of(a.out, ev.Assigned)) == 1
    assert not of(a.out, ev.Lost)


def test_what_happened_while_the_connection_was_lost_is_found() -> None:
    made, (a,) = group("A")
    a.client.disconnect()
    made.run(1)
    b = made.member("B")
    made.run(3)
    assert b.held == frozenset()
    a.client.connect()
    made.run(1)
    assert (a.held, b.held) == (set(ALL[:3]), set(ALL[3:]))


def test_an_expired_session_is_a_loss_and_the_next_one_a_new_consumer() -> None:
    made, (a, b) = group("A", "B")
    plan(a)
    a.client.expire()
    made.run(1)
    assert a.last(ev.Lost).reason == "the session has expired"
    assert a.last(ev.Joining).abandoned
    assert a.id == "A.2"
    assert made.zk.names(OLD.ids) == ["A.2", b.id]
    assert a.last(ev.Assigned).kept == frozenset()
    agrees(made)


def test_a_new_session_without_a_word_about_the_old_one_is_a_loss_as_well() -> None:
    made, (a,) = group("A")
    made.zk.end(a.client.session)
    a.client.session = None
    a.client.connect()
    made.run(1)
    assert of(a.out, ev.Lost)
    assert a.id == "A.2"
    agrees(made)


def test_an_own_node_that_somebody_has_deleted_is_a_loss() -> None:
    made, (a,) = group("A")
    made.zk.remove(OLD.consumer(a.id))
    made.run(1)
    assert of(a.out, ev.Lost)
    assert a.id == "A.2"
    agrees(made)  # owner nodes of the earlier id are this session's own: replaced


def test_an_own_node_that_is_missed_by_a_heartbeat_only_is_a_loss() -> None:
    made, (a,) = group("A")
    a.client.disconnect()
    a.client.connect()
    made.run(1)
    a.client.watches.clear()
    made.zk.remove(OLD.consumer(a.id))
    made.run(3)
    assert a.id == "A.2"
    agrees(made)


def test_an_id_that_is_taken_is_left_to_who_has_it() -> None:
    made = cluster()
    clone = made.zk.open()
    made.zk.put(OLD.consumer("A.1"), "{}", clone)
    a = made.member("A")
    made.run(1)
    assert a.id == "A.2"
    assert made.zk.names(OLD.ids) == ["A.1", "A.2"]
    assert "another ZooKeeper session owns" in a.notes()
    agrees(made)


def test_a_clone_that_takes_the_place_of_the_own_node_is_left_alone() -> None:
    made, (a,) = group("A")
    made.zk.remove(OLD.consumer("A.1"))
    made.zk.put(OLD.consumer("A.1"), "{}", made.zk.open())
    made.run(1)
    assert a.id == "A.2"
    assert made.zk.get(OLD.consumer("A.1")) == b"{}"
    agrees(made)


def test_a_commit_that_the_fence_refuses_is_a_loss() -> None:
    made, (a,) = group("A")
    refused = ev.CommitRefused(ErrorCode.UNKNOWN_MEMBER_ID, a.id, a.machine.generation, made.now)
    a.step(ev.CommitRefused(ErrorCode.UNKNOWN_MEMBER_ID, a.id, a.machine.generation - 1, made.now))
    assert not of(a.out, ev.Lost)  # of an earlier generation (R18)
    a.step(refused)
    assert of(a.out, ev.Lost)


def test_an_earlier_id_of_the_same_session_keeps_nothing_from_anybody() -> None:
    """A commit was refused though the own node stood: registered anew in the same session it must not be two."""
    made, (a, b) = group("A", "B")
    a.step(ev.CommitRefused(ErrorCode.ILLEGAL_GENERATION, a.id, a.machine.generation, made.now))
    made.run(3)
    assert a.id == "A.2"
    assert made.zk.names(OLD.ids) == ["A.2", b.id]
    assert made.zk.names(OLD.members) == ["A.2", b.id]
    agrees(made)


def test_an_earlier_id_whose_member_node_is_gone_is_deleted_as_well() -> None:
    made, (a,) = group("A")
    made.zk.put(OLD.consumer("A.0"), "{}", a.client.session)
    made.zk.put(OLD.consumer("Z.0"), '{ "t": 1 }', made.zk.open())
    made.run(3)
    assert made.zk.names(OLD.ids) == ["A.1", "Z.0"], "another session's stays"
    assert a.id == "A.1"
    assert len(of(a.out, ev.Lost)) == 0


def test_heartbeats_and_commits_renew_the_lease() -> None:
    made, (a,) = group("A")
    made.run(30)
    assert made.now - a.machine.lease_at <= 2.0, "a session that is longer than asked for is counted as asked"
    assert "grants" not in a.notes()
    a.step(ev.CommitAccepted(a.id, a.machine.generation, made.now))
    assert a.machine.lease_at == made.now
    a.step(ev.CommitAccepted("somebody", a.machine.generation, made.now + 1))
    assert a.machine.lease_at == made.now


def test_what_only_one_server_says_is_no_lease() -> None:
    """A server that is cut off from the others answers what is read, and lets nothing be written."""
    made, (a,) = group("A")
    since = made.now
    for _ in range(4):
        made.now += 2.0
        a.step(ev.Tick())
        a.step(zk.Changed(OLD.ids))
        writes = [request for request in a.client.requests if isinstance(request, zk.Transact)]
        assert [request.operations for request in writes] == [(Check(OLD.consumer(a.id)),)]
        for request in writes:
            a.client.requests.remove(request)
            a.client.events.append(zk.Unanswered(request.token, "no answer in time"))
        while a.turn():
            pass
    assert a.machine.lease_at <= since


def test_a_session_that_is_shorter_than_asked_for_shortens_the_lease_and_is_said_once() -> None:
    made = cluster()
    a = made.member("A", start=False, session_timeout_ms=300_000, heartbeat_interval_ms=90_000)
    a.client.granted_ms = 6_000
    a.start()
    made.run(1)
    sent_at = a.machine.lease_at + 294  # whoever asks adds the 300 s that were asked for
    assert 100 <= sent_at <= made.now
    made.run(30)
    assert made.now - (a.machine.lease_at + 294) <= 2.0, "three heartbeats fit into what was granted"
    a.client.expire()
    made.run(1)
    assert a.notes().count("zookeeper.session.timeout.ms=300000 is more than ZooKeeper grants") == 1


@pytest.mark.parametrize("carried_out", [0, 1, 3])
@pytest.mark.parametrize("after", range(1, 14))
def test_a_connection_lost_at_any_moment_of_joining_is_no_harm(after: int, carried_out: int) -> None:
    """A claim or a registration without an answer may or may not have been carried out: it looks."""
    made, (b,) = group("B")
    a = made.member("A")
    for _ in range(after):
        a.turn()
    a.client.disconnect(carried_out)
    made.run(1)
    a.client.connect()
    made.run(5)
    agrees(made)
    assert len(of(a.out, ev.Fail)) == 0
    assert (len(a.held), len(b.held)) == (3, 3)


def claiming(made: Cluster) -> One:
    """A member whose claims wait to be served."""
    a = made.member("A")
    while not (a.client.requests and any("/owners/" in op.path for op in operations(a.client.requests[0]))):
        a.turn()
    return a


def operations(request: zk.ReadSubtrees | zk.Transact) -> tuple[Operation, ...]:
    return request.operations if isinstance(request, zk.Transact) else ()


def test_a_claim_that_the_fence_refuses_is_of_a_consumer_that_is_no_more() -> None:
    made = cluster()
    a = claiming(made)
    a.client.watches.clear()
    made.zk.remove(OLD.consumer(a.id))
    a.client.serve()
    a.hear(a.client.events.popleft())
    assert a.id == ""
    assert not owners(made)
    assert not of(a.out, ev.Lost)  # nothing was held
    made.run(3)
    assert a.id == "A.2"
    agrees(made)


def test_a_claim_that_is_refused_for_no_reason_it_knows_is_made_again() -> None:
    made = cluster()
    a = claiming(made)
    request = a.client.requests.popleft()
    a.client.events.append(zk.RequestRefused(request.token, OLD.owner(ALL[0]), Refusal.NO_NODE))
    made.run(3)
    assert "could not claim partitions" in a.notes()
    agrees(made)


@pytest.mark.parametrize("kind", [zk.ReadSubtrees, zk.Transact])
def test_what_is_not_answered_in_time_is_asked_again_with_backoff(kind: type[Any]) -> None:
    made = cluster()
    a = made.member("A")
    times = []
    while len(times) < 6:
        made.now = max(made.now, a.wake_at or 0) if not (a.client.events or a.client.requests) else made.now
        a.step(ev.Tick())
        if a.client.requests and isinstance(a.client.requests[0], kind):
            a.client.events.append(zk.Unanswered(a.client.requests.popleft().token, "no answer in time"))
            times.append(made.now)
        a.turn()
    assert times[5] - times[0] > 1.0
    assert a.notes().count("no answer in time") < 6  # said at the attempts 1, 2, 4
    made.run(3)
    agrees(made)


# -- leaving and failing ----------------------------------------------------------------------------------------------


def test_a_member_that_was_never_started_leaves_without_a_word() -> None:
    made = cluster()
    a = made.member("A", start=False)
    assert a.step(ev.Stop()) == [ev.Left()]


def test_a_member_without_a_connection_leaves_at_once() -> None:
    made, (a,) = group("A")
    a.client.disconnect()
    made.run(1)
    a.step(ev.Stop())
    assert [type(action) for action in a.out[-2:]] == [zk.CloseSession, ev.Left]


def test_a_server_that_does_not_answer_holds_nobody_up_for_more_than_a_second() -> None:
    made, (a,) = group("A")
    actions = a.step(ev.Stop())
    assert a.machine.state is State.LEAVING
    (wake,) = of(actions, ev.WakeAt)
    assert wake.time == made.now + 1
    made.now = wake.time
    a.step(ev.Tick())
    assert of(a.out, ev.Left)


def test_who_has_left_may_come_back_as_another() -> None:
    made, (a,) = group("A")
    a.step(ev.Stop())
    made.run(1)
    a.start()
    made.run(1)
    assert a.id == "A.2"
    agrees(made)
    with pytest.raises(ValueError, match="group g: Start has no place in state STABLE"):
        a.start()


@pytest.mark.parametrize("refusal", [Refusal.NO_AUTH, Refusal.INVALID_ACL])
def test_a_node_that_may_not_be_written_ends_the_query_with_advice(refusal: Refusal) -> None:
    made = cluster()
    a = made.member("A")
    a.turn()
    (register,) = a.client.requests
    a.client.requests.clear()
    a.hear(zk.RequestRefused(register.token, OLD.ids, refusal, "Set zookeeper.username"))
    failure = a.last(ev.Fail).error
    assert isinstance(failure, ConfigError)
    assert "/consumers/g/ids" in str(failure)
    assert "zookeeper.username" in str(failure)
    assert a.machine.state is State.FATAL
    a.step(ev.Stop())
    assert of(a.out, ev.Left)


def test_a_node_that_may_not_be_read_ends_the_query_as_well() -> None:
    made = cluster()
    a = made.member("A")
    while not (a.client.requests and isinstance(a.client.requests[0], zk.ReadSubtrees)):
        a.turn()
    a.hear(zk.RequestRefused(a.client.requests.popleft().token, registrations.BROKERS, Refusal.NO_AUTH))
    assert "/brokers/ids" in str(a.last(ev.Fail).error)


# -- what it writes ---------------------------------------------------------------------------------------------------


def test_nothing_of_another_session_is_ever_deleted_and_every_claim_and_release_is_fenced() -> None:
    made, members = group("A", "B", "C")
    members[0].client.expire()
    made.run(1)
    held = members[1].held
    members.append(made.member("AA"))
    made.run(1)
    assert not held <= members[1].held, "it has released something"
    members[1].step(ev.Stop())
    made.run(1)
    for member in members:
        for transaction in of(member.out, zk.Transact):
            touched = [op.path for op in transaction.operations if "/owners/" in op.path]
            if touched:
                assert isinstance(transaction.operations[0], Check)
                assert transaction.operations[0].path.startswith(OLD.ids)


# -- the table --------------------------------------------------------------------------------------------------------


def test_every_event_has_a_row_in_every_state_but_a_second_start() -> None:
    answers = {zk.SubtreesRead, zk.Transacted, zk.RequestRefused, zk.Unanswered}
    plain = {*get_args(ev.Event), *get_args(zk.RegistryEvent)} - answers
    missing = {(state, event) for state in State for event in plain if (state, event) not in TABLE}
    assert missing == {(state, ev.Start) for state in State if state not in {State.UNJOINED, State.LEFT}}


def test_every_request_has_a_row_for_every_answer_it_may_get() -> None:
    looks = {RegistryPurpose.LOOK, RegistryPurpose.CONFIRM, RegistryPurpose.NEIGHBOURS}
    for purpose in RegistryPurpose:
        done = zk.SubtreesRead if purpose in looks else zk.Transacted
        states = {State.LEAVING} if purpose is RegistryPurpose.LEAVE else {State.JOINING, State.STABLE}
        for state in states:
            answers = {
                heard[1] for of, heard in TABLE if of is state and isinstance(heard, tuple) and heard[0] is purpose
            }
            assert answers == {done, zk.RequestRefused, zk.Unanswered}


def test_every_timer_is_heard_somewhere() -> None:
    assert {heard for _, heard in TABLE if isinstance(heard, RegistryTimer)} == set(RegistryTimer)


FINAL = [Refusal.NO_AUTH, Refusal.INVALID_ACL]


@pytest.mark.parametrize("refusal", Refusal)
def test_only_a_refusal_about_rights_is_final(refusal: Refusal) -> None:
    """All others come from what other members do at the same time: a later look shows the group as it is."""
    assert RequestRefused(1, "/consumers/g/ids/me", refusal).is_final is (refusal in FINAL)


@pytest.mark.parametrize("refusal", FINAL)
def test_the_error_of_a_final_refusal_names_the_group_the_node_the_cause_and_the_next_step(refusal: Refusal) -> None:
    node = "/consumers/g/ids"
    event = RequestRefused(1, f"{node}/me", refusal, how_to_allow(node, Right.CREATE))
    text = forbidden("g", "cannot register", event)
    assert text.startswith(
        f"group g: cannot register: ZooKeeper refused the operation on /consumers/g/ids/me: {refusal.value}. "
    )
    assert "lacks the permission CREATE (c) on /consumers/g/ids. Set zookeeper.username" in text
