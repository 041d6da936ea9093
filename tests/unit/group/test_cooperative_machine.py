"""Groups of cooperative members in any order of events, with the real membership, ledger and assignor.

Whatever happens: a partition is planned by one member at a time, nothing is committed but what is held and has sunk,
what is kept keeps its position, and in the end every record has been sunk: once, if nobody died, fell silent or left
in a batch.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from streamgroup.group import events as ev
from streamgroup.group.member import MemberAction
from streamgroup.kafka.wire.messages.group import HeartbeatRequest, JoinGroupRequest, SyncGroupRequest
from streamgroup.kafka.wire.messages.offsets import OffsetCommitRequest, OffsetFetchRequest
from streamgroup.model import TopicPartition
from tests.unit.group.world import COOPERATIVE, Query, World

PARTITIONS = 4
MOST = 4
LONG_S = 25.0
"""A batch in flight for longer may be given up: `group.rebalanceWait` is 30 s (R22)."""


class Watched(World):
    """A world that looks at every request and every assignment."""

    def __init__(self, **config: Any) -> None:
        super().__init__(PARTITIONS, **config)
        self.stood: dict[str, dict[TopicPartition, int]] = {}

    def carry_out(self, query: Query, actions: list[MemberAction]) -> None:
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

    def check_commit(self, query: Query, send: ev.Send) -> None:
        sunk = set(self.sunk)
        for topic in send.build(9).topics:
            for row in topic.partitions:
                tp = TopicPartition(topic.name, row.partition_index)
                assert tp in query.ledger.held, f"{query.name} commits {tp}, which it does not hold"
                assert all((tp.partition, offset) in sunk for offset in range(row.committed_offset)), (query.name, tp)


class CooperativeGroup(RuleBasedStateMachine):
    """See the module. A query is at rest, has planned, has asked, or its batch has sunk and waits for its proof."""

    @initialize()
    def begin(self) -> None:
        self.world = Watched(**COOPERATIVE)
        self.names = 0
        self.silent: list[Query] = []
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
        query.act(query.member.farewell(self.world.now))
        query.act(query.member.step(ev.Stop(), self.world.now))
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

    def go_on(self, query: Query) -> None:
        flight = query.ledger.in_flight
        if flight is None or query.start == flight.document:
            self.plan(query)
        elif flight.planned_ranges is None:
            query.ask(flight.document)
        else:
            query.sink(flight.document)

    def plan(self, query: Query) -> None:
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
