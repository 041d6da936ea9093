"""Partitions held across generations."""

from __future__ import annotations

import pytest

from streamgroup.group.held_assignment import Change, HeldAssignment
from streamgroup.model import TopicPartition

A, B, C = (TopicPartition("t", n) for n in range(3))


def holding(*partitions: TopicPartition, cooperative: bool = True) -> HeldAssignment:
    held = HeldAssignment(cooperative=cooperative)
    held.assigned("me", 4, partitions)
    return held


def change(kept: set[TopicPartition], revoked: set[TopicPartition]) -> Change:
    return Change(frozenset(kept), frozenset(revoked))


@pytest.mark.parametrize("generation", [4, 5])
def test_what_is_assigned_again_is_kept_and_the_rest_held_until_it_is_given_up(generation: int) -> None:
    held = holding(A, B)
    assert held.assigned("me", generation, [B, C]) == change({B}, {A})
    assert held.held == {A, B, C}
    assert held.give_up() == {A}
    assert held.held == {B, C}
    assert not held.leaving


def test_an_eager_member_has_given_up_what_is_not_assigned_again() -> None:
    held = holding(A, B, cooperative=False)
    assert held.assigned("me", 5, [B, C]) == change({B}, set())
    assert held.held == {B, C}
    assert not held.stands


@pytest.mark.parametrize(("member_id", "generation"), [("me", 6), ("me", 3), ("me-2", 5)])
def test_after_a_missed_generation_or_as_another_member_all_is_gained(member_id: str, generation: int) -> None:
    held = holding(A, B)
    assert not held.precedes(member_id, generation)
    assert held.assigned(member_id, generation, [B]) == change(set(), set())
    assert held.held == {B}


def test_what_is_still_to_be_given_up_is_kept_where_it_comes_back() -> None:
    held = holding(A, B)
    held.assigned("me", 5, [B])
    assert held.assigned("me", 6, [A, B]) == change({A, B}, set())
    assert held.give_up() == frozenset()


def test_nothing_outlives_the_membership() -> None:
    held = holding(A)
    held.can_plan = True
    held.forget()
    assert (held.held, held.can_plan, held.stands) == (frozenset(), False, False)
    assert held.assigned("me", 5, [A]) == change(set(), set())


def test_what_was_claimed_and_is_lost_keeps_the_others_waiting() -> None:
    held = holding(A, B)
    assert held.claim() == (frozenset({A, B}), 4)
    assert held.assigned("me", 6, [B]).withheld == {A}
    assert held.claim() == (frozenset({B}), 6)
    assert held.assigned("me", 7, [C]) == change(set(), {B}), "still held: to be given up in order"


def test_an_eager_member_claims_nothing() -> None:
    assert holding(A, cooperative=False).claim() == (frozenset(), -1)
