"""Several members, real consumers and a ZooKeeper, in any order of events: one owner each, and in the end all is owned.

hypothesis decides whose request is served when, whose answer is heard when, which connection is lost with how much of
what was asked carried out, which session expires, who comes and goes, when batches begin and end. What has to hold:

- C3: whenever a commit is carried out, the partition's owner node is that of the session that makes it. So two members
  never both get commits accepted for one partition that one has released, or lost, and the other gained.
- No owner node is ever deleted by another session's transaction.
- When all comes to rest every partition is owned by who it falls to, and members hold what they own.
"""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from streamgroup.group import events as ev
from streamgroup.group.offsets.zookeeper import FIRST_TOKEN
from streamgroup.group.registry import events as zk
from streamgroup.group.registry import nodes as f
from streamgroup.group.registry.view import owner_subtrees, subtrees, view_of
from streamgroup.group.state_machine import State
from streamgroup.znodes import Create, Delete, Set
from tests.fakes.zookeeper import Client
from tests.unit.group.registry.groups import OLD, Cluster, One, RealConsumer, of

MEMBERS = st.integers(0, 2)
OWNERS = f"{OLD.owners()}/"
OFFSETS = f"{OLD.offsets()}/"


class Watched(Client):
    """Looks at each transaction at the moment at which it is carried out."""

    def serve(self) -> bool:
        request = self.requests[0] if self.requests else None
        before = self._owners(request) if isinstance(request, zk.Transact) else {}
        served = super().serve()
        if served and isinstance(request, zk.Transact) and isinstance(self.events[-1], zk.Transacted | zk.Changed):
            answer = next(e for e in reversed(self.events) if getattr(e, "token", None) == request.token)
            if isinstance(answer, zk.Transacted):
                self._judge(request, before)
        return served

    def _owners(self, request: zk.Transact) -> dict[str, int]:
        """The sessions of the owner nodes of all that the transaction touches."""
        paths = [op.path.replace(OFFSETS, OWNERS) for op in request.operations]
        nodes = {path: self.server.data(path) for path in paths if path.startswith(OWNERS)}
        return {path: node.owner for path, node in nodes.items() if node is not None}

    def _judge(self, request: zk.Transact, owners: dict[str, int]) -> None:
        assert self.session is not None
        session_id = self.session.session_id
        for operation in request.operations:
            if request.token >= FIRST_TOKEN and operation.path.startswith(OFFSETS):
                assert isinstance(operation, Set | Create)
                owner = owners.get(operation.path.replace(OFFSETS, OWNERS))
                assert owner == session_id, f"C3: {operation.path} committed by {session_id}, owned by {owner}"
            if isinstance(operation, Delete) and operation.path.startswith(OWNERS):
                assert owners[operation.path] == session_id, f"{operation.path} is another's"


class Groups(RuleBasedStateMachine):
    @initialize(brokers=st.lists(st.integers(1, 3), min_size=1, max_size=2))
    def begin(self, brokers: list[int]) -> None:
        self.cluster = Cluster()
        for number, count in enumerate(brokers):
            self.cluster.broker(number, t=count)
        self.offset = 0
        self.in_flight: set[str] = set()
        for name in "ACB":
            one = self.cluster.member(name, start=False)
            one.client = Watched(self.cluster.zk)
        self.one(0).start()

    def one(self, number: int) -> One:
        return self.cluster.members[number]

    # -- time and order -----------------------------------------------------------------------------------------------

    @rule(who=MEMBERS, times=st.integers(1, 6))
    def serve(self, who: int, times: int) -> None:
        for _ in range(times):
            self.one(who).client.serve()

    @rule(who=MEMBERS, times=st.integers(1, 6))
    def hear(self, who: int, times: int) -> None:
        for _ in range(times):
            if self.one(who).client.events:
                self.one(who).hear(self.one(who).client.events.popleft())

    @rule(seconds=st.sampled_from([0.1, 1.0, 3.0]))
    def wait(self, seconds: float) -> None:
        """Time goes on, and nothing is served or heard."""
        self.cluster.now += seconds
        for one in self.cluster.members:
            if one.wake_at is not None and one.wake_at <= self.cluster.now:
                one.step(ev.Tick())
        for real in self.cluster.real:
            real.tick()

    @rule(seconds=st.sampled_from([0.0, 0.5, 6.0]))
    def run_all(self, seconds: float) -> None:
        self.cluster.run(seconds)

    # -- what goes wrong ----------------------------------------------------------------------------------------------

    @rule(who=MEMBERS, carried_out=st.integers(0, 4))
    def disconnect(self, who: int, carried_out: int) -> None:
        self.one(who).client.disconnect(carried_out)

    @rule(who=MEMBERS)
    def reconnect(self, who: int) -> None:
        self.one(who).client.connect()

    @rule(who=MEMBERS)
    def expire(self, who: int) -> None:
        self.one(who).client.expire()

    @rule(who=MEMBERS)
    def lose_watches(self, who: int) -> None:
        """As a reconnection between two heartbeats of the client: lost and found again."""
        self.one(who).client.disconnect()
        self.one(who).client.connect()

    @rule(who=MEMBERS)
    def delete_a_registration(self, who: int) -> None:
        """Somebody does. (A real consumer would never notice, and keep its owner nodes for ever.)"""
        path = OLD.consumer(self.one(who).id or "nobody")
        if self.cluster.zk.get(path) is not None:
            self.cluster.zk.remove(path)

    # -- who comes and goes -------------------------------------------------------------------------------------------

    @rule(who=MEMBERS)
    def start(self, who: int) -> None:
        if self.one(who).machine.state in {State.UNJOINED, State.LEFT}:
            self.one(who).start()

    @rule(who=MEMBERS)
    def stop(self, who: int) -> None:
        self.one(who).step(ev.Stop())

    @precondition(lambda self: len(self.cluster.real) < 2)
    @rule(name=st.sampled_from(["0", "B.x", "Z"]))
    def real_comes(self, name: str) -> None:
        if not self.cluster.zk.get(OLD.consumer(name)):
            RealConsumer(self.cluster, name, "t")

    @precondition(lambda self: self.cluster.real)
    @rule()
    def real_goes(self) -> None:
        self.cluster.real[0].kill()

    # -- batches ------------------------------------------------------------------------------------------------------

    @rule(who=MEMBERS)
    def plan(self, who: int) -> None:
        one = self.one(who)
        if one.machine.can_plan and one.held and one.name not in self.in_flight:
            self.in_flight.add(one.name)
            one.step(ev.Planned())
            one.step(ev.Asked())

    @rule(who=MEMBERS)
    def sink(self, who: int) -> None:
        """The batch has sunk, and is committed where the member may."""
        one = self.one(who)
        if one.name in self.in_flight:
            self.in_flight.discard(one.name)
            self._commit(one)
            one.step(ev.Idle())

    @rule(who=MEMBERS)
    def commit(self, who: int) -> None:
        self._commit(self.one(who))

    def _commit(self, one: One) -> None:
        if one.machine.may_commit and one.committed:
            self.offset += 1
            one.commit(self.offset)

    # -- what holds ---------------------------------------------------------------------------------------------------

    @invariant()
    def nobody_plans_without_a_lease(self) -> None:
        for one in getattr(self, "cluster", Cluster()).members:
            if one.machine.can_plan:
                assert one.client.session is not None or one.client.events
                assert one.machine.lease_at is not None

    @invariant()
    def generations_grow(self) -> None:
        for one in getattr(self, "cluster", Cluster()).members:
            told = [assigned.generation for assigned in of(one.out, ev.Assigned)]
            assert told == sorted(set(told))

    def teardown(self) -> None:
        """Everything is connected, every batch sinks: in the end all is owned by who it falls to."""
        if not hasattr(self, "cluster"):
            return
        for one in self.cluster.members:
            one.client.connect()
            if one.name in self.in_flight:
                one.step(ev.Idle())
        self.in_flight.clear()
        self.cluster.run(200.0)
        self._all_owned()

    def _all_owned(self) -> None:
        server = self.cluster.zk
        looked = (*subtrees(OLD, ["t"]), *owner_subtrees(OLD, ["t"]))
        view = view_of(OLD, server.read(looked))
        shares = view.shares()
        assert {tp: owner.thread for tp, owner in view.owners.items()} == shares
        for one in self.cluster.members:
            if one.machine.state in {State.LEFT, State.UNJOINED}:
                assert one.id not in view.consumers
                continue
            assert one.machine.state is State.STABLE
            mine = {tp for tp, thread in shares.items() if f.consumer_of(thread) == one.id}
            assert one.held == mine, f"{one.name}: {one.notes()}"
            assert one.last(ev.Assigned).withheld == 0
            assert one.machine.can_plan


TestGroups: Any = pytest.mark.slow(Groups.TestCase)
TestGroups.settings = settings(
    max_examples=30, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
