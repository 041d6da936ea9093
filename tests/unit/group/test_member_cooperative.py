"""Cooperative members (R25): batches go on through rebalances, what moves is finished first.

Scenarios, and groups in any order of events, with the real membership, ledger and assignor. Whatever happens: a
partition is planned by one member at a time, nothing is committed but what is held and has sunk, what is kept keeps its
position, and in the end every record has been sunk: once, if nobody died, fell silent or left in a batch.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from streamgroup.errors import ErrorCode
from streamgroup.group import events as ev
from streamgroup.group.member import MemberAction
from streamgroup.group.state_machine import State
from streamgroup.kafka.wire.messages.group import HeartbeatRequest, JoinGroupRequest, SyncGroupRequest
from streamgroup.kafka.wire.messages.offsets import OffsetCommitRequest, OffsetFetchRequest
from streamgroup.model import TopicPartition
from tests.fakes.group import GroupState
from tests.unit.group.world import COOPERATIVE, SESSION_S, GroupWorld, QueryRun, founded, offsets, sends


def last(query: QueryRun, kind: type[MemberAction]) -> MemberAction:
    return [action for action in query.log if isinstance(action, kind)][-1]


def shared(partitions: int = 4) -> tuple[GroupWorld, QueryRun, QueryRun]:
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
    assert (world.repeated(), world.missing()) == ([], set())


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


# -- any order of events ----------------------------------------------------------------------------------------------

PARTITIONS = 4
MOST = 4
LONG_S = 25.0
"""A batch in flight for longer may be given up: `group.rebalanceWait` is 30 s (R22)."""


class Watched(GroupWorld):
    """A world that looks at every request and every assignment."""

    def __init__(self, **config: Any) -> None:
        super().__init__(PARTITIONS, **config)
        self.stood: dict[str, dict[TopicPartition, int]] = {}

    def carry_out(self, query: QueryRun, actions: list[MemberAction]) -> None:
        before = self.stood.get(query.name, {})
        for action in actions:
            if isinstance(action, ev.Assigned):
                for tp in action.kept & before.keys():
                    assert query.ledger.held[tp].position == before[tp], f"{query.name} keeps {tp}"
            if isinstance(action, ev.Send) and action.api is OffsetCommitRequest:
                self.check_commit(query, action)
        super().carry_out(query, actions)
        held = query.ledger.held
        self.stood[query.name] = {tp: held[tp].position for tp in held if held[tp].position is not None}  # type: ignore[misc]

    def check_commit(self, query: QueryRun, send: ev.Send) -> None:
        sunk = set(self.sunk)
        for topic in send.build(9).topics:
            for row in topic.partitions:
                tp = TopicPartition(topic.name, row.partition_index)
                assert tp in query.ledger.held, f"{query.name} commits {tp}, which it does not hold"
                assert all((tp.partition, offset) in sunk for offset in range(row.committed_offset)), (query.name, tp)


class CooperativeGroup(RuleBasedStateMachine):
    """A query is at rest, has planned, has asked, or its batch has sunk and waits for its proof."""

    @initialize()
    def begin(self) -> None:
        self.world = Watched(**COOPERATIVE)
        self.names = 0
        self.silent: list[QueryRun] = []
        self.planned_at: dict[str, float] = {}
        self.smooth = True
        self.newcomer()
        assert self.world.queries[0].poll()
        self.world.produce(5)

    # -- members ------------------------------------------------------------------------------------------------------

    @precondition(lambda self: len(self.world.queries) + len(self.silent) < MOST)
    @rule()
    def newcomer(self) -> None:
        self.names += 1
        self.world.query(f"q{self.names}")

    @precondition(lambda self: len(self.world.queries) > 1)
    @rule(data=st.data(), kind=st.sampled_from(["leaves", "leaves", "dies", "falls silent"]))
    def goes(self, data: Any, kind: str) -> None:
        query = data.draw(st.sampled_from(self.world.queries), "who")
        if kind == "falls silent":
            self.smooth = False
            self.world.queries.remove(query)
            self.silent.append(query)
            return
        self.smooth &= query.ledger.idle and not query.ledger.commit_pending and kind == "leaves"
        if kind == "dies":
            self.world.die(query)
            return
        query.leave()
        self.world.run(1)
        self.world.queries.remove(query)

    @precondition(lambda self: self.silent)
    @rule()
    def wakes_up(self) -> None:
        self.world.queries.append(self.silent.pop(0))

    @precondition(lambda self: self.silent)
    @rule()
    def is_put_out(self) -> None:
        """The session of one that fell silent is over; it wakes up later."""
        member_id = self.silent[0].membership.member_id
        if (
            self.world.now - (self.silent[0].membership.lease_at or 0.0) > 45
            and member_id in self.world.coordinator.members
        ):
            self.world.coordinator.expel(member_id)
            self.world.run()

    @rule(
        data=st.data(), api=st.sampled_from([HeartbeatRequest, JoinGroupRequest, SyncGroupRequest, OffsetFetchRequest])
    )
    def answers_are_lost(self, data: Any, api: type[Any]) -> None:
        self.smooth = False
        kind = data.draw(st.sampled_from([self.world.silent, self.world.deaf]))
        kind.add(api)
        self.world.run(data.draw(st.sampled_from([1.0, 4.0, 40.0])))
        kind.discard(api)

    # -- batches ------------------------------------------------------------------------------------------------------

    @rule(data=st.data())
    def a_query_goes_on(self, data: Any) -> None:
        self.go_on(data.draw(st.sampled_from(self.world.queries), "who"))

    def go_on(self, query: QueryRun) -> None:
        flight = query.ledger.in_flight
        if flight is None or query.start == flight.document:
            self.plan(query)
        elif flight.planned_ranges is None:
            query.ask(flight.document)
        else:
            query.sink(flight.document)

    def plan(self, query: QueryRun) -> None:
        document = query.plan()
        if document is None:
            return
        self.planned_at[query.name] = self.world.now
        planned = {r.partition for r in document.ranges}
        leaving = {tp for tp, held in query.ledger.held.items() if held.leaving}
        assert planned.isdisjoint(leaving), f"{query.name} is to give it up"
        for other in (*self.world.queries, *self.silent):
            if other is query:
                continue
            if other.member.may_plan(self.world.now):
                assert planned.isdisjoint(other.ledger.positions()), f"{other.name} may plan it, too"
            flight = other.ledger.in_flight
            # Who is put out reads on until it hears of that, which a JoinGroup that was not answered may hold up.
            is_member = other.membership.member_id in self.world.coordinator.members
            if flight is not None and is_member and other not in self.silent:
                reads = {r.partition for r in flight.document.ranges} & other.ledger.held.keys() - flight.lost
                assert planned.isdisjoint(reads), f"{other.name} still reads it"

    @rule(count=st.integers(1, 5))
    def records_come(self, count: int) -> None:
        self.world.produce(count)

    @rule(seconds=st.sampled_from([0.5, 4.0, 4.0, 20.0, 60.0]))
    def time_goes_on(self, seconds: float) -> None:
        self.world.run(seconds)
        for query in self.world.queries:
            flying = not query.ledger.idle and self.world.now - self.planned_at.get(query.name, 0.0) > LONG_S
            self.smooth &= not flying

    # -- the end ------------------------------------------------------------------------------------------------------

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        while self.silent:
            self.wakes_up()
        for _ in range(50):
            if not self.world.missing():
                break
            # A JoinGroup whose answer was lost takes five minutes; else no batch is to be in flight for long.
            self.world.run(4 if self.smooth else 40)
            for query in self.world.queries:
                for _ in range(4):
                    self.go_on(query)
        assert not self.world.missing(), [(q.name, q.membership.state, q.held, q.positions) for q in self.world.queries]
        if self.smooth:
            assert self.world.repeated() == []


TestCooperativeGroup = pytest.mark.slow(CooperativeGroup.TestCase)
TestCooperativeGroup.settings = settings(max_examples=15, stateful_step_count=30, deadline=None)
