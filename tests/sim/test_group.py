"""The simulated coordinator does what Kafka's does, where it is not obvious."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any, cast

from streamgroup.errors import ErrorCode as E
from streamgroup.group.commits import FIRST_EPOCH
from streamgroup.group.consumer_membership import ConsumerMembership
from streamgroup.group.timing import MemberConfig
from streamgroup.kafka.wire.messages.group import (
    ConsumerGroupHeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from streamgroup.kafka.wire.messages.offsets import OffsetFetchRequest, OffsetFetchRequestGroup
from streamgroup.model import CommittedOffset, TopicPartition
from tests.fakes.consumer_group import ConsumerGroup, Release
from tests.fakes.group import Group, GroupState
from tests.sim.clock import SimulatedClock
from tests.sim.scenarios import queries
from tests.sim.settings import Settings
from tests.sim.test_checker import FakeProcess
from tests.sim.world import World


class Client:
    """One member's side: what it was answered last."""

    def __init__(self, group: Group, instance_id: str | None = None, version: int = 9) -> None:
        self.group = group
        self.instance_id = instance_id
        self.version = version
        self.member_id = ""
        self.joined: JoinGroupResponse | None = None
        self.synced: SyncGroupResponse | None = None

    def join(self, metadata: bytes = b"t") -> JoinGroupResponse | None:
        self.joined = None
        request = JoinGroupRequest(
            group_id="g",
            session_timeout_ms=6_000,
            rebalance_timeout_ms=20_000,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type="consumer",
            protocols=(JoinGroupRequestProtocol(name="range", metadata=metadata),),
        )
        self.group.join(request, self.version, self._hear)
        if self.joined is not None and self.joined.error_code == E.MEMBER_ID_REQUIRED:
            return self.join(metadata)
        return self.joined

    def _hear(self, response: Any) -> None:
        self.joined = response
        self.member_id = response.member_id or self.member_id

    def sync(self, **assignments: bytes) -> SyncGroupResponse | None:
        self.synced = None
        rows = tuple(SyncGroupRequestAssignment(member_id=m, assignment=a) for m, a in assignments.items())
        assert self.joined is not None
        request = SyncGroupRequest(
            group_id="g",
            generation_id=self.joined.generation_id,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            assignments=rows,
        )
        self.group.sync(request, lambda response: setattr(self, "synced", response))
        return self.synced

    @property
    def code(self) -> int:
        return self.group.check(self.member_id, self.instance_id, self.group.generation)


def stable(*clients: Client) -> None:
    group = clients[0].group
    for client in clients:
        client.join()
    for client in clients:
        if group.state is GroupState.PREPARING and group.members[client.member_id].join is None:
            client.join()
    leader = next(c for c in clients if c.joined is not None and c.joined.members)
    for client in clients:
        if client is not leader:
            client.sync()
    leader.sync(**{c.member_id: c.member_id.encode() for c in clients})
    assert group.state is GroupState.STABLE


def a_group() -> tuple[SimulatedClock, Group]:
    clock = SimulatedClock()
    return clock, Group(clock, 0.0)


def test_a_new_member_makes_the_others_join_again_and_gathers_them() -> None:
    _, group = a_group()
    first, second = Client(group), Client(group)
    stable(first)
    assert second.join() is None
    assert group.state is GroupState.PREPARING
    first.join()
    assert second.joined is not None
    assert first.joined is not None
    assert (first.joined.generation_id, second.joined.generation_id) == (2, 2)
    assert first.joined.leader == first.member_id


def test_a_dynamic_member_that_does_not_rejoin_is_put_out_when_the_rebalance_times_out() -> None:
    clock, group = a_group()
    first, second = Client(group), Client(group)
    stable(first)
    second.join()
    for _ in range(4):  # it sends heartbeats, but does not rejoin
        clock.run_until(clock.now + 5)
        if first.member_id in group.members:
            group.alive(first.member_id)
    assert list(group.members) == [second.member_id]
    assert first.code == E.UNKNOWN_MEMBER_ID


def test_a_session_that_expires_starts_a_rebalance() -> None:
    clock, group = a_group()
    first, second = Client(group), Client(group)
    stable(first, second)
    clock.run_until(4.0)
    group.alive(first.member_id)
    clock.run_until(7.0)
    assert list(group.members) == [first.member_id]
    assert group.state is GroupState.PREPARING


def test_members_that_never_sync_are_put_out() -> None:
    clock, group = a_group()
    only = Client(group)
    only.join()
    before = group.state
    assert before is GroupState.COMPLETING
    for _ in range(5):
        clock.run_until(clock.now + 4.5)
        if only.member_id in group.members:
            group.alive(only.member_id)
    assert group.state is GroupState.EMPTY


def test_a_static_follower_comes_back_without_a_rebalance_and_fences_its_predecessor() -> None:
    _, group = a_group()
    leader, follower = Client(group), Client(group, "s")
    stable(leader, follower)
    again = Client(group, "s")
    answer = again.join()
    assert answer is not None
    assert (answer.generation_id, group.state) == (group.generation, GroupState.STABLE)
    assert follower.code == E.FENCED_INSTANCE_ID
    synced = again.sync()
    assert synced is not None
    assert bytes(synced.assignment) == follower.member_id.encode()


def test_a_static_leader_skips_the_assignment_from_v9_on_and_its_predecessors_id_before() -> None:
    for version in (9, 8):
        _, group = a_group()
        leader = Client(group, "s", version)
        stable(leader)
        again = Client(group, "s", version)
        answer = again.join()
        assert answer is not None
        if version == 9:
            assert answer.skip_assignment
            assert answer.leader == again.member_id
        else:
            assert answer.leader == leader.member_id
            assert not answer.members


def test_a_follower_that_joins_again_unchanged_learns_the_generation_a_leader_starts_a_rebalance() -> None:
    _, group = a_group()
    leader, follower = Client(group), Client(group)
    stable(leader, follower)
    answer = follower.join()
    assert answer is not None
    assert answer.generation_id == group.generation
    assert leader.join() is None
    assert group.state is GroupState.PREPARING


def test_a_changed_subscription_starts_a_rebalance() -> None:
    _, group = a_group()
    leader, follower = Client(group), Client(group)
    stable(leader, follower)
    assert follower.join(b"other") is None
    assert group.state is GroupState.PREPARING


def test_a_coordinator_that_moves_forgets_a_rebalance_under_way() -> None:
    clock, group = a_group()
    first, second = Client(group), Client(group)
    stable(first)
    second.join()
    first.join()
    assert (group.state, group.generation) == (GroupState.COMPLETING, 2)
    group.reload(answer=False, ready_at=clock.now)
    assert (group.state, group.generation) == (GroupState.STABLE, 1)
    assert list(group.members) == [first.member_id]


def test_who_has_the_place_of_a_static_member_counts_when_the_coordinator_reads_the_heartbeat() -> None:
    """The session of the other may end while the answer is on its way."""
    world = World("place", Settings(queries(1), consumers=Release()))
    process: Any = SimpleNamespace(query=SimpleNamespace(instance_id="s"), was_replaced=False)

    def beats(member_id: str) -> bool:
        process.membership = ConsumerMembership(MemberConfig("g"), random.Random(0))
        process.membership._member_id = member_id
        request = ConsumerGroupHeartbeatRequest(
            group_id="g",
            member_id=member_id,
            member_epoch=0,
            instance_id="s",
            rebalance_timeout_ms=1,
            topic_partitions=(),
        )
        world.broker.handle(world.broker.node, request, lambda response: None, process)
        return bool(process.was_replaced)

    assert [beats("first"), beats("first"), beats("second")] == [False, False, True]
    group = world.broker.group
    assert isinstance(group, ConsumerGroup)
    group.remove("first")
    assert process.was_replaced


def test_who_was_told_that_nothing_is_committed_may_start_at_latest_though_another_commits_first() -> None:
    """It looks the log up meanwhile, for what it has gained in a later epoch than the other's."""
    world = World("told", Settings(queries(1), consumers=Release()))
    process = cast(Any, FakeProcess("p"))
    tp, other, checker = TopicPartition("a", 0), TopicPartition("a", 1), world.checker

    def asks() -> None:
        request = OffsetFetchRequest(groups=(OffsetFetchRequestGroup(group_id="g"),), require_stable=True)
        world.broker.handle(world.broker.node, request, lambda response: None, process)

    def starts_at_latest() -> bool:
        checker.resolved(process, FIRST_EPOCH + 3, tp, 60, starting=True)
        return process in checker.track(tp).starts

    asks()
    world.broker.offsets[other] = CommittedOffset(0)
    checker.committed(process, "m-2", 2, {other: 0}, FIRST_EPOCH + 2)
    assert starts_at_latest()
    asks()
    assert not starts_at_latest()


def test_a_query_that_is_started_elsewhere_has_its_own_output() -> None:
    """Both number their batches on from one checkpoint. The sink would take a batch of one for one of the other."""
    world = World("elsewhere", Settings(queries(1, file_sink=True), consumers=Release()))
    query = world.queries[0]
    query.directory.seen.add(0)
    query.process = cast(Any, FakeProcess("p"))
    world.replace(query, 1.0)
    query.directory.seen.add(1)
    assert world.queries[0].directory.seen == {0}
