"""Every error code that the protocol guide of 0.8 and 0.9 has for commits and their fetch, and what the member does."""

from __future__ import annotations

import pytest

from streamgroup.errors import BrokerError, error_of
from streamgroup.group import events as ev
from streamgroup.group.state_machine import State
from streamgroup.kafka.wire.messages.coordinator import FindCoordinatorRequest
from streamgroup.kafka.wire.messages.group import JoinGroupRequest
from tests.unit.group.world import World, founded, offsets, sends

COMMITTED = {0: 10, 1: 10}


@pytest.mark.parametrize(
    ("code", "asked"), [(14, None), (15, FindCoordinatorRequest), (16, FindCoordinatorRequest), (27, JoinGroupRequest)]
)
def test_a_commit_that_comes_at_a_bad_time_is_made_again(code: int, asked: type[object] | None) -> None:
    world, a = founded()
    a.batch()
    before = 0 if asked is None else sends(a, asked)
    world.coordinator.refusals = [code]
    a.poll()
    world.run(5)
    assert a.poll()
    assert offsets(world) == COMMITTED
    assert asked is None or sends(a, asked) == before + 1
    assert a.failure is None
    assert world.repeated() == []


@pytest.mark.parametrize(("code", "as_whom"), [(22, "the same member"), (25, "another"), (69, "another")])
def test_a_commit_of_a_member_that_is_none_any_more_loses_everything_and_it_joins_again(
    code: int, as_whom: str
) -> None:
    world, a = founded()
    a.batch()
    was = a.membership.member_id
    if as_whom == "another":
        world.coordinator.expel(was)
    world.coordinator.refusals = [code]
    a.poll()
    assert ev.Lost(error_of(code).name) in a.log
    world.run(10)
    assert a.poll()
    assert (a.membership.member_id == was) is (as_whom == "the same member")
    assert a.membership.state is State.STABLE
    assert offsets(world) == COMMITTED, "nobody else had it, and the batch is proven (R5a)"
    assert a.failure is None


@pytest.mark.parametrize("code", [12, 29, 30])
def test_a_commit_that_would_never_be_accepted_ends_the_query(code: int) -> None:
    world, a = founded()
    a.batch()
    world.coordinator.refusals = [code]
    a.poll()
    assert isinstance(a.failure, BrokerError)
    assert a.failure.code == code
    assert offsets(world) == {0: 0, 1: 0}


@pytest.mark.parametrize("code", [14, 16])
def test_offsets_that_cannot_be_reported_now_are_asked_for_again(code: int) -> None:
    world = World(end=5)
    world.coordinator.fetch_refusals = [code]
    query = world.query("A")
    query.poll()
    world.run(5)
    assert query.poll()
    assert query.failure is None
    assert query.positions == {0: 5, 1: 5}


@pytest.mark.parametrize("code", [22, 25, 29, 30])
def test_offsets_that_nobody_will_tell_end_the_query(code: int) -> None:
    """22 and 25 are in the guide, but no broker can mean them: the request does not say who asks."""
    world = World(end=5)
    world.coordinator.fetch_refusals = [code]
    query = world.query("A")
    query.poll()
    assert isinstance(query.failure, BrokerError)
    assert error_of(code).name in str(query.failure)
    assert query.positions == {}
