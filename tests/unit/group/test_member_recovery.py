"""Scenarios of members that lose their membership, are killed or stopped: what is sunk twice, and what never."""

from __future__ import annotations

import pytest

from streamgroup.errors import ConfigError, ErrorCode
from streamgroup.group import events as ev
from streamgroup.group.state_machine import State
from streamgroup.kafka.wire.messages.group import HeartbeatRequest
from streamgroup.kafka.wire.messages.offsets import OffsetCommitRequest, OffsetFetchRequest
from streamgroup.model import CommittedOffset, Document
from tests.unit.group.world import P0, P1, SESSION_S, Query, World, founded, offsets, sends

# -- hiccups ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID])
def test_a_lone_query_whose_commit_is_refused_repeats_nothing(code: int) -> None:
    world, a = founded()
    a.batch()
    if code == ErrorCode.UNKNOWN_MEMBER_ID:
        world.coordinator.expel(a.membership.member_id)
    else:
        world.coordinator.refusals = [code]
    a.poll()
    assert sends(a, OffsetFetchRequest) == 2
    world.run(5)
    assert a.poll()
    assert offsets(world) == {0: 10, 1: 10}
    world.produce(3)
    a.batch()
    assert world.repeated() == []
    assert world.missing() == set()


@pytest.mark.parametrize("proven", ["before it has rejoined", "after it has rejoined"])
def test_a_lone_query_that_loses_its_session_in_a_batch_repeats_nothing(proven: str) -> None:
    world, a = founded()
    document = a.begin()
    if proven == "before it has rejoined":
        world.held_back = []
    world.coordinator.expel(a.membership.member_id)
    world.run(10)
    assert ev.Lost("UNKNOWN_MEMBER_ID") in a.log
    assert not a.member.may_plan(world.now)
    a.sink(document)
    a.poll()
    for answer in world.held_back or ():
        answer()
    world.run(1)
    assert a.poll()
    assert offsets(world) == {0: 10, 1: 10}
    world.produce(3)
    a.batch()
    assert world.repeated() == []
    assert world.missing() == set()


def test_a_member_whose_heartbeats_go_unanswered_plans_nothing() -> None:
    """R9: what proves the lease is a heartbeat or a commit, by the time at which it was sent."""
    world, a = founded()
    world.deaf |= {HeartbeatRequest}
    assert a.poll()
    assert not a.member.may_plan(world.now + SESSION_S)


def test_a_new_member_plans_nothing_before_its_first_heartbeat() -> None:
    world = World()
    world.deaf.add(HeartbeatRequest)
    world.coordinator.offsets = {P0: CommittedOffset(0), P1: CommittedOffset(0)}
    query = world.query("A")
    assert not query.poll()
    assert query.positions == {0: 0, 1: 0}


def test_a_member_that_left_and_came_back_gains_everything_anew() -> None:
    """R27, R5: another member may have read on meanwhile."""
    world, a = founded()
    a.batch()
    assert a.poll()
    a.act(a.member.step(ev.Stop(), world.now))
    assert a.membership.state is State.LEFT
    assert a.held == []
    world.coordinator.offsets[P0] = CommittedOffset(4)
    a.act(a.member.step(ev.Start(("t",)), world.now))
    world.run(5)
    assert a.poll()
    assert a.positions == {0: 4, 1: 10}


def test_a_batch_in_flight_while_the_member_was_out_moves_nothing_by_itself() -> None:
    world, a = founded()
    document = a.begin()
    a.act(a.member.step(ev.Stop(), world.now))
    world.coordinator.offsets[P0] = CommittedOffset(4)
    a.act(a.member.step(ev.Start(("t",)), world.now))
    a.sink(document)
    world.run(5)
    assert a.poll()
    assert a.positions == {0: 4, 1: 10}, "an operator's reset of P0; P1 is still as this run left it (R5a)"


# -- restarts ---------------------------------------------------------------------------------------------------------


def killed_in_a_batch() -> tuple[World, Query, Document]:
    world, a = founded()
    a.batch()
    a.poll()
    world.produce(10)
    document = a.begin()
    world.die(a)
    return world, a, document


@pytest.mark.parametrize("gained", ["before", "during", "after"])
def test_a_replay_and_the_partitions_that_are_gained_around_its_filter(gained: str) -> None:
    world, a, document = killed_in_a_batch()
    again = world.query("again", a.start, join=gained == "before")
    world.run(5)
    seen = dict(world.coordinator.offsets)
    if gained == "during":
        world.join(again)
    again.replay(document, seen)
    if gained == "after":
        world.join(again)
    assert again.handed == document.ranges
    again.sink(document)
    assert again.poll()
    assert offsets(world) == {0: 20, 1: 20}
    world.produce(1)
    again.batch()
    assert world.repeated() == []
    assert world.missing() == set()


def test_a_replay_of_what_another_member_took_over_repeats_that_batch_alone() -> None:
    world, a, document = killed_in_a_batch()
    b = world.query("B")
    b.poll()
    b.batch()
    b.poll()
    b.act(b.member.step(ev.Stop(), world.now))
    again = world.query("again", a.start)
    again.replay(document)
    assert again.handed == (), "the group has committed all of it since"
    again.sink(document)
    again.poll()
    assert again.plan() is None
    assert world.repeated() == []
    assert world.missing() == set()


def test_an_operators_reset_is_not_undone_by_a_replay() -> None:
    world, a, document = killed_in_a_batch()
    world.coordinator.offsets = {P0: CommittedOffset(3), P1: CommittedOffset(15)}
    again = world.query("again", a.start)
    again.replay(document)
    assert [(r.start, r.until) for r in again.handed] == [(10, 20), (15, 20)]
    again.sink(document)
    again.poll()
    assert again.positions == {0: 3, 1: 20}


def test_a_batch_that_spark_has_committed_is_not_repeated_after_a_stop_with_farewell() -> None:
    world, a = founded()
    document = a.batch()
    a.act(a.member.farewell(world.now))
    a.act(a.member.step(ev.Stop(), world.now))
    assert a.membership.state is State.LEFT
    assert offsets(world) == {0: 0, 1: 0}, "nobody has told that the batch has sunk"
    again = world.query("again", document)
    assert again.poll()
    assert again.positions == {0: 10, 1: 10}
    assert again.plan() is None
    assert offsets(world) == {0: 10, 1: 10}


def test_a_batch_that_the_sink_skipped_is_not_committed_by_the_restart_either() -> None:
    world, a = founded()
    document = a.plan()
    assert document is not None
    a.start = document
    with pytest.raises(ConfigError, match="the sink skipped a batch"):
        a.poll()
    a.act(a.member.farewell(world.now))
    a.act(a.member.step(ev.Stop(), world.now))
    again = world.query("again", document)
    assert again.poll()
    assert again.positions == {0: 0, 1: 0}


def test_a_farewell_goes_out_although_a_commit_is_unanswered() -> None:
    world, a = founded()
    a.batch()
    world.silent.add(OffsetCommitRequest)
    a.poll()
    document = a.ledger.checkpoint
    world.silent.clear()
    a.act(a.member.farewell(world.now))
    assert not a.ledger.commit_pending
    assert world.coordinator.metadata(P0).asked == document.sequence


def test_a_farewell_of_a_member_that_is_not_in_the_group_says_nothing() -> None:
    world = World()
    query = world.query("A", join=False)
    assert query.member.farewell(world.now) == []
