"""Scenarios of cooperative members (R25): batches go on through rebalances, what moves is finished first."""

from __future__ import annotations

import pytest

from streamgroup.errors import ErrorCode
from streamgroup.group import events as ev
from streamgroup.group.member import MemberAction
from streamgroup.group.state_machine import State
from streamgroup.kafka.wire.messages.group import JoinGroupRequest
from streamgroup.kafka.wire.messages.offsets import OffsetFetchRequest
from tests.fakes.group import GroupState
from tests.unit.group.world import COOPERATIVE, SESSION_S, Query, World, founded, offsets, sends


def last(query: Query, kind: type[MemberAction]) -> MemberAction:
    return [action for action in query.log if isinstance(action, kind)][-1]


def shared(partitions: int = 4) -> tuple[World, Query, Query]:
    """A and B share a group at rest; both are idle, and every partition has ten records of which none is committed."""
    world, a = founded(partitions, **COOPERATIVE)
    b = world.query("B")
    world.run(20)
    assert (a.poll(), b.poll()) == (True, True)
    return world, a, b


# -- joining and giving up --------------------------------------------------------------------------------------------


def test_a_newcomer_gets_its_share_and_who_had_it_never_pauses() -> None:
    world, a = founded(4, **COOPERATIVE)
    a.poll()
    b = world.query("B")
    for _ in range(30):
        world.run(0.5)
        assert a.member.may_plan(world.now)
    assert (len(a.held), len(b.held)) == (2, 2)
    assert b.poll()
    assert set((a.positions | b.positions).values()) == {0}


def test_what_moves_is_sunk_and_committed_first_and_the_rest_goes_on() -> None:
    world, a = founded(4, **COOPERATIVE)
    document = a.begin()
    b = world.query("B")
    world.run(20)
    assigned = last(a, ev.Assigned)
    assert isinstance(assigned, ev.Assigned)
    assert (len(assigned.kept), len(assigned.partitions), len(assigned.revoked)) == (2, 2, 2)
    assert a.held == [0, 1, 2, 3], "held for the commit of its batch"
    assert len(a.positions) == 2, "but planned no more"
    assert b.held == []
    a.sink(document)
    assert a.poll(), "the commit is answered at once"
    assert offsets(world) == dict.fromkeys(range(4), 10)
    joining = last(a, ev.Joining)
    assert isinstance(joining, ev.Joining)
    assert (joining.keeps, joining.abandoned, joining.gives_up) == (True, False, assigned.revoked)
    world.produce(5)
    a.batch()
    world.run(20)
    assert b.poll()
    b.batch()
    assert (len(a.held), len(b.held)) == (2, 2)
    assert world.repeated() == []
    assert world.missing() == set()


def test_batches_are_planned_and_committed_while_another_member_holds_up_the_group() -> None:
    """The group gathers for minutes: B does not come to its JoinGroup."""
    world, a, b = shared()
    world.queries.remove(b)  # as if its process were stopped
    c = world.query("C")
    world.run(5)
    assert world.coordinator.group.state is GroupState.PREPARING
    assert a.membership.state is State.JOINING
    generation = world.coordinator.generation
    for _ in range(8):
        document = a.batch()
        assert a.poll(), "proven and committed under the old generation"
        assert world.coordinator.commits[-1][:2] == (a.membership.member_id, generation)
        assert set(document.positions) == {r.partition for r in document.ranges}
        world.produce(3)
        world.run(SESSION_S / 2)
    assert world.coordinator.group.state is GroupState.PREPARING
    assert c.held == []
    assert world.repeated() == []


def test_an_idle_member_plans_for_a_session_and_no_longer_while_the_group_gathers() -> None:
    """R9: being told to rejoin proves nothing; a commit that is accepted does."""
    world, a, b = shared()
    world.queries.remove(b)
    world.query("C")
    world.run(5)
    assert a.membership.state is State.JOINING
    assert a.member.may_plan(world.now)
    world.run(SESSION_S)
    assert not a.member.may_plan(world.now)


def test_what_is_kept_is_not_fetched_again() -> None:
    world, a, b = shared()
    before = sends(a, OffsetFetchRequest), sends(b, OffsetFetchRequest)
    held = set(a.held) | set(b.held)
    c = world.query("C")
    world.run(20)
    assert c.poll()
    assert (sends(a, OffsetFetchRequest), sends(b, OffsetFetchRequest)) == before
    assert sorted(a.held + b.held + c.held) == sorted(held)
    a.act(a.member.step(ev.Stop(), world.now))
    world.run(20)
    gained = [q for q in (b, c) if len(q.held) == 2]
    assert sends(b, OffsetFetchRequest) == before[1] + (b in gained)


def test_what_is_to_be_given_up_is_not_planned_again_while_the_group_gathers_once_more() -> None:
    world, a = founded(4, **COOPERATIVE)
    document = a.begin()
    b = world.query("B")
    world.run(20)
    leaving = a.membership.revoking
    assert len(leaving) == 2
    world.queries.remove(b)
    world.query("C")
    world.run(5)
    assert a.membership.state is State.JOINING
    a.sink(document)
    assert a.poll(), "committed in the generation that is kept"
    world.produce(5)
    again = a.begin()
    assert {r.partition for r in again.ranges} == a.ledger.held.keys() - leaving
    assert again.positions.keys() == a.ledger.held.keys() - leaving


def test_a_batch_that_nobody_proves_gives_up_what_moves_and_only_that_may_be_repeated() -> None:
    """R22: without a listener a long trigger would keep the newcomer's share from everybody."""
    world, a = founded(4, **COOPERATIVE)
    document = a.begin()
    b = world.query("B")
    world.run(310)
    assert (len(a.held), len(b.held)) == (2, 2)
    b.batch()
    a.sink(document)
    assert a.poll()
    assert b.poll()
    assert offsets(world) == dict.fromkeys(range(4), 10)
    assert {n for n, _ in world.repeated()} == set(b.held)
    assert any("lower maxOffsetsPerTrigger" in getattr(action, "text", "") for action in a.log)


def test_while_partitions_move_nobody_has_read_all_that_is_its_own() -> None:
    """R11: an AvailableNow that ended now would leave them to nobody."""
    world, a = founded(4, **COOPERATIVE)
    document = a.begin()
    assert a.member.complete
    b = world.query("B")
    world.run(20)
    b.poll()
    assert (b.held, b.member.stable, b.member.complete) == ([], True, False)
    a.sink(document)
    a.poll()
    assert not a.member.complete
    world.run(20)
    assert (a.poll(), b.poll()) == (True, True)
    assert (a.member.complete, b.member.complete) == (True, True)


# -- commits and answers that come in between -------------------------------------------------------------------------


@pytest.mark.parametrize("code", [ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION])
def test_a_commit_that_the_next_generation_has_overtaken_is_made_again_in_it(code: int) -> None:
    """The JoinGroup is answered on another connection: 22 only says that its answer is on the way."""
    world, a, _ = shared()
    document = a.begin()
    world.query("C")
    world.silent.add(JoinGroupRequest)
    world.run(5)
    assert a.membership.state is State.JOINING
    assert world.coordinator.generation > a.membership.generation
    world.coordinator.refusals = [code]
    a.sink(document)
    assert not a.poll(), "not planned while a commit is due (R9)"
    world.run(5)
    assert not any(isinstance(action, ev.Lost) for action in a.log)
    world.silent.clear()
    world.run(400)
    assert a.poll()
    assert {offsets(world)[n] for n in a.held} == {10}
    assert world.repeated() == []


def test_a_join_group_without_an_answer_pauses_planning_until_the_next_assignment() -> None:
    """The group may have gone on: what is held could be another's by the time the answer comes."""
    world, a, _ = shared()
    world.query("C")
    world.silent.add(JoinGroupRequest)
    world.run(5)
    assert a.membership.state is State.JOINING
    assert a.member.may_plan(world.now)
    join = [action for action in a.log if isinstance(action, ev.Send) and action.api is JoinGroupRequest][-1]
    a.act(a.member.step(ev.RequestFailed(join.token, "connection reset"), world.now))
    assert not a.member.may_plan(world.now)
    assert a.held, "held until it is known better"
    world.silent.clear()
    world.run(400)
    assert a.poll()
    assert world.repeated() == []


def test_a_stop_commits_also_while_the_group_gathers() -> None:
    world, a, b = shared()
    world.queries.remove(b)
    world.query("C")
    world.run(5)
    assert a.membership.state is State.JOINING
    document = a.begin()
    a.act(a.member.farewell(world.now))
    assert world.coordinator.metadata(document.ranges[0].partition).asked == document.sequence


# -- groups of several kinds ------------------------------------------------------------------------------------------


def test_one_eager_strategy_among_those_offered_makes_the_member_eager() -> None:
    """A rolling upgrade, as in Java: cooperative-sticky is chosen, and everything is given up before joining."""
    both = ("cooperative-sticky", "range")
    world, a = founded(4, strategies=both)
    document = a.begin()
    b = world.query("B", strategies=both)
    world.run(20)
    assert (a.membership.rebalance_wanted, b.held) == (True, [])
    assert not a.member.may_plan(world.now)
    a.sink(document)
    a.poll()
    world.run(20)
    assert world.coordinator.group.protocol == "cooperative-sticky"
    assert (len(a.held), len(b.held)) == (2, 2)
    assert (a.poll(), b.poll()) == (True, True)
    assert world.coordinator.generation == 2, "nothing was owned: no second rebalance"
