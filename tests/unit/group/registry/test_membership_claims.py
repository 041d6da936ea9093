"""Partitions of members in a group in ZooKeeper: how they share, give up and claim, also beside real consumers."""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping
from typing import Any

import pytest

from streamgroup.group import events as ev
from streamgroup.group.registry.membership import RegistryMembership
from streamgroup.group.registry.nodes import GroupPaths, Incarnation
from streamgroup.group.registry.registration import (
    NOTED_MOST,
    OPERATIONS_MOST,
    LoggedTexts,
    Registration,
    Seen,
    in_transactions,
)
from streamgroup.group.registry.view import Consumer, OwnerNode, View
from streamgroup.group.state_machine import State
from streamgroup.group.timing import MemberConfig
from streamgroup.model import Dialect, TopicPartition
from streamgroup.znodes import Delete
from tests.unit.group.registry.groups import (
    ALL,
    OLD,
    Cluster,
    RealConsumer,
    agrees,
    cluster,
    group,
    linger,
    of,
    owners,
    plan,
    tps,
)

# -- sharing ----------------------------------------------------------------------------------------------------------


def test_a_lone_member_registers_as_the_real_consumers_do_and_holds_everything() -> None:
    made, (a,) = group("A")
    assert made.zk.get("/consumers/g/ids/A.1") == b'{ "t": 1 }'
    assert owners(made) == dict.fromkeys(["0-0", "0-1", "0-2", "1-0", "1-1", "1-2"], "A.1-0")
    assert a.held == set(ALL)
    assert a.last(ev.Assigned).line("g").endswith("6 of 6 partitions, 0 other members")
    assert a.machine.state is State.STABLE
    assert a.machine.can_plan
    assert a.machine.lease_at is not None


def test_three_members_share_as_the_seed_has_it() -> None:
    made, (a, b, c) = group("A", "B", "C")
    assert [sorted(m.held) for m in (a, b, c)] == [list(ALL[:2]), list(ALL[2:4]), list(ALL[4:])]
    assert owners(made)["1-0"] == f"{b.id}-0"
    assert a.machine.generation == b.machine.generation == c.machine.generation  # founders share it (R7)
    agrees(made)


def test_who_leaves_deletes_its_nodes_and_the_others_take_over() -> None:
    made, (a, b) = group("A", "B")
    a.step(ev.Stop())
    made.run(1)
    assert a.machine.state is State.LEFT
    assert of(a.out, ev.Left)
    assert made.zk.names(OLD.ids) == [b.id]
    assert made.zk.names(OLD.members) == [b.id]
    assert b.held == set(ALL)
    assert b.last(ev.Assigned).kept == set(ALL[3:])


@pytest.mark.parametrize("answered", [True, False])
def test_what_was_released_is_not_deleted_once_more_by_who_leaves_before_it_has_looked_again(answered: bool) -> None:
    made, (a,) = group("A")
    b = made.member("B")
    while made.zk.get(OLD.owner(ALL[3])) == f"{a.id}-0".encode():
        assert a.turn() or b.turn()
    made.members.remove(a)  # asleep, with the answer to its release before it
    made.run(1)
    assert b.held == set(ALL[3:])
    if answered:
        a.turn()
    a.step(ev.Stop())
    while a.turn():
        pass
    assert a.machine.state is State.LEFT
    theirs = (made.zk.data(OLD.owner(tp)) for tp in ALL[3:])
    assert [node is not None and node.owner for node in theirs] == [b.client.session.session_id] * 3
    made.run(1)
    assert b.held == set(ALL)


def test_an_assignment_is_reported_with_what_it_kept_and_a_generation_that_grows() -> None:
    made, (a,) = group("A")
    b = made.member("B")
    made.run(1)
    told = of(a.out, ev.Assigned)
    assert [len(one.partitions) for one in told] == [6, 3]
    assert told[1].kept == set(ALL[:3])
    assert told[1].generation > told[0].generation
    assert b.last(ev.Assigned).kept == frozenset()
    assert b.last(ev.Assigned).member_id == b.id


def test_a_view_in_which_the_own_share_is_the_same_changes_nothing() -> None:
    made, (a,) = group("A")
    before = len(of(a.out, ev.Assigned))
    made.broker(2, other=1)
    RealConsumer(made, "Z", "other")
    made.run(20)
    assert len(of(a.out, ev.Assigned)) == before
    assert len(of(a.out, ev.Joining)) == 1


def test_a_broker_that_goes_takes_its_partitions_with_it_and_brings_them_back() -> None:
    made = Cluster()
    made.broker(0, t=3)
    session = made.broker(1, t=3)
    a = made.member("A")
    made.run(1)
    made.zk.end(session)
    made.run(1)
    assert a.held == set(ALL[:3])
    assert a.last(ev.Assigned).total == 3
    made.broker(1, t=3)
    made.run(1)
    assert a.held == set(ALL)


def test_a_topic_that_no_broker_has_is_held_as_nothing_until_one_has() -> None:
    made = Cluster()
    a = made.member("A", topics=("t", "no/node", ".."))
    made.run(3)
    assert a.machine.state is State.STABLE
    assert a.last(ev.Assigned).partitions == ()
    made.broker(0, t=2)
    made.run(1)
    assert a.held == set(ALL[:2])


def test_another_subscription_is_registered_at_once_and_shared_anew() -> None:
    made, (a, b) = group("A", "B")
    made.broker(2, u=2)
    a.step(ev.Subscribed(("u",)))
    made.run(1)
    assert made.zk.get(OLD.consumer(a.id)) == b'{ "u": 1 }'
    assert a.held == set(tps("u:2-0", "u:2-1"))
    assert b.held == set(ALL)
    assert a.machine.topics == ("u",)
    assert a.id == "A.1"


def test_who_it_is_stands_in_its_member_node() -> None:
    made = cluster()
    a = made.member("A", start=False)
    a.step(ev.UserDataChanged(b'{"run":1}'))
    a.start()
    made.run(1)
    assert made.zk.get(OLD.member(a.id)) == b'{"run":1}'
    a.step(ev.UserDataChanged(b'{"run":1,"admitted":true}'))
    made.run(1)
    assert made.zk.get(OLD.member(a.id)) == b'{"run":1,"admitted":true}'
    assert len(of(a.out, ev.Assigned)) == 1
    view = a.machine.view
    assert view.consumers[a.id].identity == b'{"run":1,"admitted":true}'


def test_data_of_one_membership_does_not_stand_in_the_node_of_the_next() -> None:
    made = cluster()
    a = made.member("A", start=False)
    a.step(ev.UserDataChanged(b"lineage"))
    a.start()
    made.run(1)
    a.step(ev.UserDataChanged(b"admitted", lasts=False))
    made.run(1)
    assert made.zk.get(OLD.member(a.id)) == b"admitted"
    a.client.expire()
    made.run(10)
    assert of(a.out, ev.Lost)
    assert made.zk.get(OLD.member(a.id)) == b"lineage"


def test_members_of_0_8_share_with_a_captured_consumer_as_two_of_its_kind_would() -> None:
    """g8_vm-1795200970500-84e1c6c3 had 0 and 1, the other one 2 and 3."""
    made, new = Cluster(), GroupPaths("g", Dialect.KAFKA)
    made.zk.put("/brokers/topics/t8", '{"version":1,"partitions":{"2":[1],"1":[1],"3":[1],"0":[1]}}')
    captured, real = "g_vm-1795200970500-84e1c6c3", made.zk.open()
    said = '{"version":1,"subscription":{"t8":1},"pattern":"white_list","timestamp":"1795200970602"}'
    made.zk.put(new.consumer(captured), said, real)
    for partition in (0, 1):
        made.zk.put(new.owner(TopicPartition("t8", partition)), f"{captured}-0", real)
    a = made.member("g_vm-1795200970524-bac584a8", topics=("t8",), start=False)
    ids = itertools.count(1)
    settings = MemberConfig("g", session_timeout_ms=6_000)
    a.machine = RegistryMembership(
        settings, random.Random(1), new, lambda: Incarnation(f"{a.name}.{next(ids)}", 1795200970611)
    )
    a.start()
    made.run(3)
    assert a.held == {TopicPartition("t8", 2), TopicPartition("t8", 3)}
    assert made.zk.get(new.owner(TopicPartition("t8", 2))) == f"{a.id}-0".encode()
    assert made.zk.get(new.consumer(a.id)) == (
        b'{"version":1,"subscription":{"t8":1},"pattern":"static","timestamp":"1795200970611"}'
    )
    made.zk.end(real)
    made.zk.put("/brokers/topics/t8", '{"version":1,"partitions":{"0":[1],"1":[1],"2":[1],"3":[1],"10":[1]}}')
    made.run(1)
    assert sorted(tp.partition for tp in a.held) == [0, 1, 2, 3, 10]


# -- batches ----------------------------------------------------------------------------------------------------------


def test_what_falls_to_others_is_released_at_the_boundary_of_the_batch() -> None:
    made, (a,) = group("A")
    plan(a)
    b = made.member("B")
    made.run(20)
    assert a.held == set(ALL)
    assert a.machine.rebalance_wanted
    assert not a.machine.can_plan
    assert a.machine.may_commit  # what sinks is committed before it is released
    assert b.held == frozenset()
    assert b.last(ev.Assigned).withheld == 3
    assert f"still owned by {a.id}: 3 partitions of this member" in b.notes()
    a.step(ev.Idle())
    assert a.last(ev.Joining).abandoned is False
    assert not a.machine.may_commit
    made.run(1)
    assert (a.held, b.held) == (set(ALL[:3]), set(ALL[3:]))
    assert b.last(ev.Assigned).withheld == 0


def test_what_is_gained_is_claimed_in_the_middle_of_a_batch() -> None:
    made, (a, b) = group("A", "B")
    plan(a)
    joined = len(of(a.out, ev.Joining))
    b.step(ev.Stop())
    made.run(1)
    assert a.held == set(ALL)
    assert a.last(ev.Assigned).kept == set(ALL[:3])
    assert len(of(a.out, ev.Joining)) == joined
    assert a.machine.can_plan


def test_a_change_that_goes_by_during_the_batch_leaves_all_as_it_was() -> None:
    made, (a,) = group("A")
    plan(a)
    b = made.member("B")
    made.run(2)
    assert a.machine.rebalance_wanted
    b.step(ev.Stop())
    made.run(2)
    assert not a.machine.rebalance_wanted
    assert a.machine.can_plan
    made.run(400)
    assert a.held == set(ALL)
    assert not of(a.out, ev.GaveUp)


def test_a_batch_that_is_not_proven_is_given_up_when_its_tasks_are_presumably_done() -> None:
    made, (a,) = group("A", rebalance_wait_ms=30_000)
    plan(a)
    made.run(10)
    a.step(ev.Idle())  # batches take 10 s
    plan(a)
    made.run(35)  # longer than any before it
    b = made.member("B")
    made.run(28)
    assert a.held == set(ALL)
    made.run(5)
    assert (a.held, b.held) == (set(ALL[:3]), set(ALL[3:]))
    assert a.last(ev.Joining).abandoned
    assert "group.rebalanceWait" in a.last(ev.GaveUp).text


@pytest.mark.parametrize("settled", [True, False])
def test_starts_are_committed_before_partitions_are_released(*, settled: bool) -> None:
    made = cluster()
    a = made.member("A", start=False)
    a.step(ev.Start(("t",), settles=True))
    made.run(2)
    b = made.member("B")
    made.run(290)
    assert (a.held, b.held, a.machine.settling) == (set(ALL), set(), True)
    if settled:
        a.step(ev.Settled())
    made.run(10)
    assert (a.held, b.held) == (set(ALL[:3]), set(ALL[3:]))
    assert not a.last(ev.Joining).abandoned
    assert not a.machine.settling, "it has kept what it holds"
    assert not of(a.out, ev.GaveUp)


# -- consumers of another make (R33) ----------------------------------------------------------------------------------


def test_a_real_consumer_gets_its_share_within_five_seconds_of_its_coming() -> None:
    made, (a,) = group("A")
    plan(a)
    real = RealConsumer(made, "Z", "t")
    made.run(4)
    assert a.held == set(ALL)
    made.run(4)
    assert real.owned == set(ALL[3:])
    assert real.failed == 0
    assert a.held == set(ALL[:3])
    assert a.last(ev.Joining).abandoned
    assert "Z, a consumer of another client" in a.last(ev.GaveUp).text


def test_a_real_consumer_that_has_given_up_is_made_to_claim_again() -> None:
    made, (a, b) = group("A", "B")
    for member in (a, b):
        plan(member)
    ghost = linger(made)
    real = RealConsumer(made, "Z", "t")
    made.run(6)  # A and B have released what falls to Z
    for tp in sorted(real.owned):
        made.zk.remove(OLD.owner(tp))
        made.zk.put(OLD.owner(tp), "ghost-0", ghost)
    real.owned.clear()
    real.rebalance_soon()
    made.run(9)
    assert real.failed == 1
    made.zk.end(ghost)
    made.run(1)
    assert real.owned == set()
    made.run(12)
    assert real.owned == set(ALL[4:])
    assert "has not claimed its partitions" in a.notes()
    assert "has not claimed its partitions" not in b.notes()  # the first of ours is enough


def test_a_forced_rebalance_waits_for_what_is_under_way() -> None:
    made, (a,) = group("A")
    RealConsumer(made, "Z", "t")
    made.real.clear()  # it is registered, and does nothing
    made.run(9)
    a.client.disconnect()
    made.run(0.5)
    a.client.connect()
    made.run(0.5)  # looked at the group anew: counted from here
    before = made.zk.data(OLD.consumer(a.id))
    made.run(9)
    assert made.zk.data(OLD.consumer(a.id)) == before
    a.step(ev.Subscribed(("t", "u")))  # under way when the member would force a rebalance
    made.now += 3
    a.step(ev.Tick())
    assert "has not claimed" not in a.notes()
    made.run(30)
    assert "has not claimed" in a.notes()


def test_forced_rebalances_that_do_not_help_become_rare() -> None:
    made, (a,) = group("A")
    real = RealConsumer(made, "Z", "t")
    made.real.remove(real)  # it is registered, and does nothing
    forced = []
    for _ in range(60):
        before = made.zk.data(OLD.consumer(a.id))
        made.run(10)
        after = made.zk.data(OLD.consumer(a.id))
        if before.czxid != after.czxid:
            forced.append(made.now)
    waits = [later - earlier for earlier, later in itertools.pairwise(forced)]
    assert waits == pytest.approx([20, 40, 80, 160, 160], abs=10), "they double up to a maximum"
    assert a.held == set(ALL[:3])


# -- what lingers -----------------------------------------------------------------------------------------------------


def test_the_owner_nodes_of_a_dead_session_are_waited_for_and_never_deleted() -> None:
    made = cluster()
    ghost = linger(made, ALL[0], ALL[1])
    a = made.member("A")
    made.run(60)
    assert a.held == set(ALL[2:])
    assert a.last(ev.Assigned).withheld == 2
    assert a.notes().count("/consumers/g/owners/t/0-0") == 1
    assert "'ghost-0', which is not registered" in a.notes()
    made.zk.end(ghost)
    made.run(1)
    assert a.held == set(ALL)
    assert a.last(ev.Assigned).kept == set(ALL[2:])


def test_garbage_in_an_owner_node_is_waited_for_too() -> None:
    made = cluster()
    made.zk.put(OLD.owner(ALL[0]), b"\xff")
    a = made.member("A")
    made.run(5)
    assert a.held == set(ALL[1:])
    assert "/consumers/g/owners/t/0-0" in a.notes()
    made.zk.remove(OLD.owner(ALL[0]))
    made.run(1)
    assert a.held == set(ALL)


def test_a_consumer_whose_registration_is_garbage_reads_nothing_and_is_named() -> None:
    made = cluster()
    made.zk.put(OLD.consumer("x"), b"\xff", made.zk.open())
    a = made.member("A")
    made.run(5)
    assert a.held == set(ALL)
    assert "/consumers/g/ids/x" in a.notes()


def test_what_another_releases_soon_is_reported_in_one_assignment() -> None:
    made, (a,) = group("A")
    plan(a)
    b = made.member("B")
    made.run(0.5)
    assert not of(b.out, ev.Assigned)
    a.step(ev.Idle())
    made.run(0.5)
    assert len(of(b.out, ev.Assigned)) == 1
    assert b.held == set(ALL[3:])


# -- what a session remembers -----------------------------------------------------------------------------------------


def test_topics_that_are_subscribed_no_more_are_not_looked_at_for_ever() -> None:
    made, (a,) = group("A")
    for day in range(10):
        made.broker(10 + day, **{f"day-{day}": 1})
        a.step(ev.Subscribed(("t", f"day-{day}")))
        made.run(5)
        assert TopicPartition(f"day-{day}", tps(f"x:{10 + day}-0")[0].partition) in a.held
    assert a.machine._claimed_topics <= {"t", "day-9"}
    agrees_with_nodes = {tp for tp in a.held if made.zk.get(OLD.owner(tp)) == f"{a.id}-0".encode()}
    assert agrees_with_nodes == a.held


# -- what a member knows of the group as last read --------------------------------------------------------------------


def test_operations_that_do_not_fit_into_one_transaction_take_several() -> None:
    operations = [Delete(f"/{n}") for n in range(OPERATIONS_MOST * 2 + 1)]
    parts = list(in_transactions(operations))
    assert [len(part) for part in parts] == [OPERATIONS_MOST, OPERATIONS_MOST, 1]
    assert [op for part in parts for op in part] == operations
    assert list(in_transactions([])) == []


A, B, C = ALL[:3]
SESSION = 7
"""The session of the member `me`."""


def owner(consumer: str, session: int, czxid: int = 50) -> OwnerNode:
    return OwnerNode(f"{consumer}-0" if consumer else "", session, czxid, 0)


MINE, OTHERS = owner("me", SESSION), owner("other", 8)
NAMELESS = owner("", 9)


def view_of_group(
    owners: Mapping[TopicPartition, OwnerNode] | None = None, generation: int = 40, **sessions: int
) -> View:
    """The group of these consumers by their sessions, each with one stream of t; t has three partitions."""
    consumers = {name: Consumer(name, session, {"t": 1}, b"") for name, session in sessions.items()}
    return View(generation, consumers, {"t": tuple(tp.partition for tp in (A, B, C))}, {}, owners or {})


def seen(owners: Mapping[TopicPartition, OwnerNode] | None = None, **sessions: int) -> Seen:
    """Return what the member `me` has read of a group; without `sessions` the group has no other member."""
    registration = Registration(OLD, lambda: Incarnation("me", 0))
    registration.session = SESSION
    registration.create(("t",), b"")
    looked = Seen(registration)
    looked.see(view_of_group(owners, **(sessions or {"me": SESSION})))
    return looked


@pytest.mark.parametrize(("released", "unconfirmed"), [(frozenset({A}), True), (frozenset(), False)])
def test_a_released_partition_has_no_owner_until_the_next_look(
    released: frozenset[TopicPartition], unconfirmed: bool
) -> None:
    read = seen({A: MINE, B: MINE})
    read.kept = frozenset({A, B})
    read.released(released)
    assert read.mine == read.kept == frozenset({A, B}) - released
    assert read.unconfirmed is unconfirmed


def test_a_look_at_the_owners_confirms_them_and_a_look_at_the_group_confirms_all() -> None:
    read = seen({A: MINE})
    for begins, view_stale in ((read.confirm_began, True), (read.look_began, False)):
        read.view_stale = read.owners_stale = read.unconfirmed = True
        begins()
        assert (read.view_stale, read.owners_stale, read.unconfirmed) == (view_stale, False, False)


@pytest.mark.parametrize(
    ("owners", "unclaimed", "unreleased"),
    [
        ({}, ["other", "other"], False),
        ({B: OTHERS}, ["other"], False),
        ({B: OTHERS, C: OTHERS}, [], False),
        ({B: MINE, C: OTHERS}, [], True),
        ({B: MINE}, ["other"], True),
        ({A: OTHERS}, ["other", "other"], False),  # A falls to a consumer that was not asked for
    ],
)
def test_a_consumer_has_not_claimed_what_falls_to_it_and_has_no_owner(
    owners: dict[TopicPartition, OwnerNode], unclaimed: list[str], unreleased: bool
) -> None:
    read = seen(owners, **{"a.first": SESSION, "other": 8, "other.2": 9})
    read.shares = {A: "a.first-0", B: "other-0", C: "other-0"}
    assert read.unclaimed(["other"]) == (unclaimed, unreleased)


@pytest.mark.parametrize(
    ("owners", "text"),
    [
        ({}, None),
        ({A: owner("dead", 9)}, None),  # not registered: `lingering` names it
        ({A: OTHERS}, "still owned by other: 2 partitions of this member: claimed once they are released"),
        (
            {A: owner("third", 9), B: OTHERS},
            "still owned by other and 1 other: 2 partitions of this member: claimed once they are released",
        ),
    ],
)
def test_a_member_says_which_registered_consumers_still_own_its_partitions(
    owners: dict[TopicPartition, OwnerNode], text: str | None
) -> None:
    sessions: dict[str, Any] = {"me": SESSION, "other": 8, "third": 9}
    assert seen(owners, **sessions).waited_for(view_of_group(**sessions), frozenset({A, B})) == text


def test_a_member_names_the_owner_nodes_of_consumers_that_are_gone_and_their_sessions() -> None:
    sessions: dict[str, Any] = {"me": SESSION, "other": 8}
    read = seen({B: owner("dead", 0x1F), A: NAMELESS, C: OTHERS}, **sessions)
    lines = list(read.lingering(view_of_group(**sessions), frozenset({C, B, A, *tps("u:0-0")}), OLD))
    assert lines == [
        "t-0 is assigned to this member but still owned by an owner node without a name: waiting until "
        "/consumers/g/owners/t/0-0 is deleted with its session 0x9",
        "t-1 is assigned to this member but still owned by 'dead-0', which is not registered: waiting until "
        "/consumers/g/owners/t/0-1 is deleted with its session 0x1f",
    ]


@pytest.mark.parametrize(
    ("of_view", "current", "claimed_at", "generation"),
    [
        (40, -1, 50, 40),
        (40, 39, 50, 40),
        (40, 40, 50, 50),  # a second assignment from one view: its newest claim tells them apart
        (40, 60, 50, 61),
        (0, 0, None, 1),
    ],
)
def test_each_generation_is_above_the_last(of_view: int, current: int, claimed_at: int | None, generation: int) -> None:
    held = {} if claimed_at is None else {A: owner("me", SESSION, claimed_at), B: owner("me", SESSION, 45)}
    read = seen(held)
    assert read.next_generation(view_of_group(generation=of_view), frozenset(held), current) == generation


def test_a_text_is_logged_once_until_too_many_are_remembered() -> None:
    texts = LoggedTexts()
    assert [texts.is_new(text) for text in ("a", "a", "b", "a")] == [True, False, True, False]
    assert len(texts) == 2
    for number in range(3 * NOTED_MOST):
        assert texts.is_new(f"node {number} is garbage")
        assert len(texts) <= NOTED_MOST
    assert texts.is_new("a"), "it was forgotten, and still holds"
