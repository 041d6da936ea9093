"""ZooKeeper as the keeper of the group: who is a member, what is committed, who owns what, read off its nodes alone."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from streamgroup.advice import StoredIn
from streamgroup.group.registry.membership import RegistryMembership
from streamgroup.group.registry.nodes import GroupPaths, Incarnation
from streamgroup.model import CommittedOffset, Dialect, TopicPartition
from streamgroup.znodes import Check, Create, Delete, Operation, Set
from tests.fakes.zookeeper import Session
from tests.sim.network import Network
from tests.sim.nodes import TOPICS, Nodes
from tests.sim.offsets import OffsetsBroker
from tests.sim.oldbrokers import OldBrokers
from tests.sim.process import Process
from tests.sim.registrylines import RegistryLines
from tests.sim.settings import GROUP_ID, RegistrySettings
from tests.sim.zookeeper import SimZooKeeper

if TYPE_CHECKING:
    from tests.sim.world import World


class SimRegistry:
    """See the module; it has the interface of `SimBroker` that the process and the checker use."""

    group = GROUP_ID

    def __init__(self, world: World, settings: RegistrySettings) -> None:
        self.clock = world.clock
        self.settings = settings
        self.nodes = Nodes(GROUP_ID, settings.dialect)
        self.checker = world.checker
        self._world = world
        self.offsets: OffsetsBroker | None = None
        """The brokers that keep the offsets, if ZooKeeper does not keep them alone."""
        if settings.stored_in is not StoredIn.ZOOKEEPER:
            self.offsets = OffsetsBroker(world.clock, world.logs, self)
        self._checks: dict[Process, list[tuple[float, frozenset[TopicPartition]]]] = {}
        """When ZooKeeper has shown a process that it is registered, and what it owned then."""
        self._released: dict[tuple[Process, TopicPartition], float] = {}
        """When a process has itself deleted its owner node of a partition, until it has claimed it again."""
        self._in_zookeeper: set[tuple[Process, TopicPartition, int]] = set()
        """The commits of processes in ZooKeeper."""
        self._was_empty = False
        self.zookeeper = SimZooKeeper(world.clock, self._written)
        self.brokers = OldBrokers(world.clock, self.zookeeper, self.nodes, world.logs, settings.brokers)
        if settings.kafka_is_ahead:
            self._begin_ahead()

    def _begin_ahead(self) -> None:
        """The group has read some records already, and has told Kafka of all and ZooKeeper of fewer."""
        assert self.offsets is not None
        for tp in self._world.logs.ends:
            self._world.logs.produce(tp, 10)
            self.checker.reset(tp, None, 8)
            self.offsets.offsets[tp] = CommittedOffset(8)
            self.zookeeper.put(self.nodes.offset(tp), b"3")

    # -- commits ------------------------------------------------------------------------------------------------------

    def _written(self, session: Session | None, operations: Sequence[Operation]) -> None:
        """A transaction was carried out: what of it commits offsets is told to the checker."""
        if self.offsets is not None and session is not None and isinstance(session.client, Process):
            self._note_fence(session, session.client, operations)
        offsets = {
            tp: int(operation.data)
            for operation in operations
            if isinstance(operation, Create | Set) and (tp := self.nodes.partition_at(operation.path)) is not None
        }
        if not offsets or session is None:
            return
        owned = {tp for tp in offsets if self._owner(tp) == session.session_id}
        stands = {tp: self._larger(tp, offset) for tp, offset in offsets.items()}
        if isinstance(session.client, Process):
            process = session.client
            self._in_zookeeper |= {(process, tp, offset) for tp, offset in offsets.items()}
            self.checker.registered(process, offsets, owned, stands)
        else:
            self.checker.committed_by_consumer(str(session.client), stands, owns=owned == offsets.keys())

    def _larger(self, tp: TopicPartition, offset: int) -> int:
        """The result of a fetch where ZooKeeper has this offset."""
        in_kafka = None if self.offsets is None else self.offsets.offsets.get(tp)
        return offset if in_kafka is None else max(offset, in_kafka.offset)

    def _note_fence(self, session: Session, process: Process, operations: Sequence[Operation]) -> None:
        """A transaction of a process has passed: what it checks and releases. The end of a session checks nothing."""
        if not any(isinstance(operation, Check) for operation in operations):
            return
        for operation in operations:
            tp = self.nodes.owned_at(operation.path)
            if isinstance(operation, Delete) and tp is not None:
                self._released[process, tp] = self.clock.now
            elif isinstance(operation, Create) and tp is not None:
                self._released.pop((process, tp), None)
        owned = frozenset(tp for tp in self._world.logs.ends if self._owner(tp) == session.session_id)
        self._checks.setdefault(process, []).append((self.clock.now, owned))

    def stored(self, process: Process, offsets: Mapping[TopicPartition, int], made_at: float, sent_at: float) -> None:
        """Kafka accepts a commit, which nothing fences there (R35): the fence comes before."""
        session = process.lines.client.session if process.lines.client is not None else None
        owned = {tp for tp in offsets if session is not None and self._owner(tp) == session.session_id}
        stands, fenced = dict(offsets), set()
        for tp, offset in offsets.items():
            if self.settings.stored_in is StoredIn.BOTH:
                stands[tp] = max(offset, self._in_zookeeper_now(tp) or 0)
                if (process, tp, offset) in self._in_zookeeper:
                    fenced.add(tp)
            elif self._was_fenced(process, tp, made_at, sent_at):
                fenced.add(tp)
        self.checker.stored(process, offsets, stands, owned=owned, fenced=fenced)

    def _was_fenced(self, process: Process, tp: TopicPartition, made_at: float, sent_at: float) -> bool:
        """Whether ZooKeeper has shown, between the making and the sending, that the process is registered and owns the
        partition, and the process has not given it up since."""
        released_at = self._released.get((process, tp), 1e9)
        checks = self._checks.get(process, ())
        return any(made_at <= at <= sent_at < released_at and tp in owned for at, owned in checks)

    def stored_by_consumer(self, name: str, session_id: int, offsets: Mapping[TopicPartition, int]) -> None:
        """A real consumer commits to Kafka, which nothing fences."""
        assert self.offsets is not None
        for tp, offset in offsets.items():
            stands = offset
            if self.settings.stored_in is StoredIn.BOTH:
                stands = max(offset, self._in_zookeeper_now(tp) or 0)
            self.checker.committed_by_consumer(name, {tp: stands}, owns=self._owner(tp) == session_id)
            self.offsets.offsets[tp] = CommittedOffset(offset)

    def disowned(self, session_id: int, tp: TopicPartition) -> None:
        """A real consumer deletes the owner node that this session has made."""
        session = self.zookeeper.session(session_id)
        if session is not None and isinstance(session.client, Process):
            self._world.checker.disowned(session.client, tp)

    def _owner(self, tp: TopicPartition) -> int | None:
        node = self.zookeeper.data(self.nodes.owner(tp))
        return None if node is None else node.owner

    def _in_zookeeper_now(self, tp: TopicPartition) -> int | None:
        node = self.zookeeper.data(self.nodes.offset(tp))
        return None if node is None else int(node.data)

    def stored_offset(self, tp: TopicPartition) -> int | None:
        """The offset in Kafka."""
        found = self.offsets.offsets.get(tp) if self.offsets is not None else None
        return None if found is None else found.offset

    def offset(self, tp: TopicPartition) -> int | None:
        """The committed offset of a partition: of both stores, the larger."""
        found = [self.stored_offset(tp)]
        if self.settings.stored_in is not StoredIn.KAFKA:
            found.append(self._in_zookeeper_now(tp))
        return max((offset for offset in found if offset is not None), default=None)

    def behind(self) -> list[TopicPartition]:
        """The partitions of which one of the group's two stores lacks a commit that the other has."""
        if self.settings.stored_in is not StoredIn.BOTH:
            return []
        return [tp for tp in self._world.logs.ends if self._in_zookeeper_now(tp) != self.stored_offset(tp)]

    # -- the group ----------------------------------------------------------------------------------------------------

    def backend(self, process: Process, network: Network) -> tuple[RegistryMembership, RegistryLines]:
        """Return the machine that makes a process a member, and the lines that carry its actions out."""
        chance = process.query.chance
        config = process.settings.member_config(None)

        def incarnation() -> Incarnation:
            # Where a name sorts decides what falls to it: each session is another neighbour's.
            host = f"{chance.choice('abyz')}-{process.name}"
            return Incarnation.of(GROUP_ID, host, int(self.clock.now * 1000), chance.getrandbits(32))

        paths = GroupPaths(GROUP_ID, self.settings.dialect)
        lines = RegistryLines(process, network, self.zookeeper, paths, self.offsets)
        return RegistryMembership(config, chance, paths, incarnation), lines

    def is_put_out(self, process: Process) -> bool:
        """Whether the node that its commits are fenced by is not there any more (R31)."""
        return self.zookeeper.data(f"{self.nodes.ids}/{process.ledger.member_id}") is None

    def is_member(self, process: Process) -> bool:
        """Whether its session is registered."""
        return not self.is_put_out(process)

    @property
    def is_empty(self) -> bool:
        """Whether nobody is registered."""
        return not self.zookeeper.names(self.nodes.ids)

    def is_replaced(self, process: Process) -> bool:
        """Each session is a new member: nobody takes another's place."""
        return False

    def reset(self, offsets: Mapping[TopicPartition, int]) -> bool:
        """An operator writes bare numbers, while nobody is registered, into all stores."""
        was_empty, self._was_empty = self._was_empty, self.is_empty
        # A commit to Kafka of a process that is gone may be under way still: the operator waits a moment.
        if not self.is_empty or (self.offsets is not None and not was_empty):
            return False
        for tp, offset in offsets.items():
            was = self.offset(tp)
            self.checker.reset(tp, None if was is None else CommittedOffset(was), offset)
            if self.settings.stored_in is not StoredIn.KAFKA:
                self.zookeeper.put(self.nodes.offset(tp), str(offset))
            if self.offsets is not None:
                self.offsets.offsets[tp] = CommittedOffset(offset)
        return True

    def partitions(self, topic: str) -> list[TopicPartition]:
        """A topic's partitions in the order of a real consumer: of names in 0.7, of numbers in 0.8."""
        path = f"{TOPICS}/{topic}"
        if self.settings.dialect is Dialect.KAFKA:
            node = self.zookeeper.data(path)
            numbers = [] if node is None else sorted(map(int, json.loads(node.data)["partitions"]))
            return [TopicPartition(topic, number) for number in numbers]
        names = []
        for broker in self.zookeeper.names(path):
            node = self.zookeeper.data(f"{path}/{broker}")
            names += [f"{broker}-{p}" for p in range(int(node.data) if node is not None else 0)]
        return [TopicPartition(topic, self.nodes.number(name)) for name in sorted(names)]

    def grew(self, topic: str) -> None:
        """A topic has more partitions."""
        self.brokers.grew(topic)

    def calm_down(self) -> None:
        """Nothing is away any more."""
        self.zookeeper.come_back()
        self.brokers.all_come()
