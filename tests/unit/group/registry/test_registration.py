"""Operations in transactions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from streamgroup.group.registry.nodes import Incarnation
from streamgroup.group.registry.registration import (
    NOTED_MOST,
    OPERATIONS_MOST,
    ForcedRebalanceBackoff,
    LoggedTexts,
    Registration,
    Seen,
    in_transactions,
)
from streamgroup.group.registry.view import Consumer, OwnerNode, View
from streamgroup.model import TopicPartition
from streamgroup.znodes import Delete
from tests.unit.group.registry.groups import OLD, tps


def test_operations_that_do_not_fit_into_one_transaction_take_several() -> None:
    operations = [Delete(f"/{n}") for n in range(OPERATIONS_MOST * 2 + 1)]
    parts = list(in_transactions(operations))
    assert [len(part) for part in parts] == [OPERATIONS_MOST, OPERATIONS_MOST, 1]
    assert [op for part in parts for op in part] == operations
    assert list(in_transactions([])) == []


A, B, C = tps("t:0-0", "t:0-1", "t:0-2")
(U,) = tps("u:0-0")
SESSION = 7
"""The session of the member `me`."""


def owner(consumer: str, session: int, czxid: int = 50) -> OwnerNode:
    return OwnerNode(f"{consumer}-0" if consumer else "", session, czxid, 0)


MINE, OTHERS = owner("me", SESSION), owner("other", 8)
NAMELESS = owner("", 9)


def view(owners: Mapping[TopicPartition, OwnerNode] | None = None, generation: int = 40, **sessions: int) -> View:
    """The group of these consumers by their sessions, each with one stream of t; t has three partitions."""
    consumers = {name: Consumer(name, session, {"t": 1}, b"") for name, session in sessions.items()}
    return View(generation, consumers, {"t": tuple(tp.partition for tp in (A, B, C))}, {}, owners or {})


def seen(owners: Mapping[TopicPartition, OwnerNode] | None = None, **sessions: int) -> Seen:
    """Return what the member `me` has read of a group; without `sessions` the group has no other member."""
    registration = Registration(OLD, lambda: Incarnation("me", 0))
    registration.session = SESSION
    registration.create(("t",), b"")
    looked = Seen(registration)
    looked.see(view(owners, **(sessions or {"me": SESSION})))
    return looked


@pytest.mark.parametrize(("released", "unconfirmed"), [(frozenset({A}), True), (frozenset(), False)])
def test_a_released_partition_has_no_owner_until_the_next_look(
    released: frozenset[TopicPartition], unconfirmed: bool
) -> None:
    group = seen({A: MINE, B: MINE})
    group.kept = frozenset({A, B})
    group.released(released)
    assert group.mine == group.kept == frozenset({A, B}) - released
    assert group.unconfirmed is unconfirmed


def test_a_look_at_the_owners_confirms_them_and_a_look_at_the_group_confirms_all() -> None:
    group = seen({A: MINE})
    for begins, view_stale in ((group.confirm_began, True), (group.look_began, False)):
        group.view_stale = group.owners_stale = group.unconfirmed = True
        begins()
        assert (group.view_stale, group.owners_stale, group.unconfirmed) == (view_stale, False, False)


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
    group = seen(owners, **{"a.first": SESSION, "other": 8, "other.2": 9})
    group.shares = {A: "a.first-0", B: "other-0", C: "other-0"}
    assert group.unclaimed(["other"]) == (unclaimed, unreleased)


@pytest.mark.parametrize(
    ("owners", "text"),
    [
        ({}, None),
        ({A: owner("dead", 9)}, None),  # not registered: `lingering` names it
        ({A: OTHERS}, "still owned by other: 2 partitions of this member: claimed as soon as they are released"),
        (
            {A: owner("third", 9), B: OTHERS},
            "still owned by other and 1 other: 2 partitions of this member: claimed as soon as they are released",
        ),
    ],
)
def test_a_member_says_which_registered_consumers_still_own_its_partitions(
    owners: dict[TopicPartition, OwnerNode], text: str | None
) -> None:
    sessions: dict[str, Any] = {"me": SESSION, "other": 8, "third": 9}
    assert seen(owners, **sessions).waited_for(view(**sessions), frozenset({A, B})) == text


def test_a_member_names_the_owner_nodes_of_consumers_that_are_gone_and_their_sessions() -> None:
    sessions: dict[str, Any] = {"me": SESSION, "other": 8}
    group = seen({B: owner("dead", 0x1F), A: NAMELESS, C: OTHERS}, **sessions)
    lines = list(group.lingering(view(**sessions), frozenset({C, B, A, U}), OLD))
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
def test_each_generation_is_above_the_one_before(
    of_view: int, current: int, claimed_at: int | None, generation: int
) -> None:
    held = {} if claimed_at is None else {A: owner("me", SESSION, claimed_at), B: owner("me", SESSION, 45)}
    group = seen(held)
    assert group.next_generation(view(generation=of_view), frozenset(held), current) == generation


def test_a_text_is_logged_once_until_too_many_are_remembered() -> None:
    texts = LoggedTexts()
    assert [texts.is_new(text) for text in ("a", "a", "b", "a")] == [True, False, True, False]
    assert len(texts) == 2
    for number in range(3 * NOTED_MOST):
        assert texts.is_new(f"node {number} is garbage")
        assert len(texts) <= NOTED_MOST
    assert texts.is_new("a"), "it was forgotten, and still holds"


def test_the_waits_between_forced_rebalances_double_up_to_a_maximum() -> None:
    backoff, waits = ForcedRebalanceBackoff(), []
    for _ in range(7):
        waits.append(backoff.wait_s)
        backoff.add()
    assert waits == [10.0, 20.0, 40.0, 80.0, 160.0, 160.0, 160.0]
