"""ZooKeeper as the keeper of the group: who is a member, what is committed, who owns what, read off its nodes alone."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from streamgroup.group.registry.formats import GroupPaths, Incarnation
from streamgroup.group.registry.membership import RegistryMembership
from streamgroup.model import CommittedOffset, Dialect, TopicPartition
from streamgroup.znodes import Create, Operation, Set
from tests.fakes.zookeeper import Session
from tests.sim.network import Network
from tests.sim.nodes import TOPICS, Nodes
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
        self.zookeeper = SimZooKeeper(world.clock, self._written)
        self.brokers = OldBrokers(world.clock, self.zookeeper, self.nodes, world.logs, settings.brokers)
        self._world = world

    # -- commits ------------------------------------------------------------------------------------------------------

    def _written(self, session: Session | None, operations: Sequence[Operation]) -> None:
        """A transaction was carried out: what of it commits offsets is told to the checker."""
        offsets = {
            tp: int(operation.data)
            for operation in operations
            if isinstance(operation, Create | Set) and (tp := self.nodes.partition_at(operation.path)) is not None
        }
        if not offsets or session is None:
            return
        owned = {tp for tp in offsets if self._owner(tp) == session.session_id}
        checker = self._world.checker
        if isinstance(session.client, Process):
            checker.registered(session.client, offsets, owned)
        else:
            checker.committed_by_consumer(str(session.client), offsets, owns=owned == offsets.keys())

    def disowned(self, session_id: int, tp: TopicPartition) -> None:
        """A real consumer deletes the owner node that this session has made."""
        session = self.zookeeper.session(session_id)
        if session is not None and isinstance(session.client, Process):
            self._world.checker.disowned(session.client, tp)

    def _owner(self, tp: TopicPartition) -> int | None:
        node = self.zookeeper.data(self.nodes.owner(tp))
        return None if node is None else node.owner

    def offset(self, tp: TopicPartition) -> int | None:
        """What is committed of a partition."""
        node = self.zookeeper.data(self.nodes.offset(tp))
        return None if node is None else int(node.data)

    # -- the group ----------------------------------------------------------------------------------------------------

    def backend(self, process: Process, network: Network) -> tuple[RegistryMembership, RegistryLines]:
        """What makes a process a member, and what carries that out."""
        chance = process.query.chance
        config = process.settings.member_config(None)

        def incarnation() -> Incarnation:
            # Where a name sorts decides what falls to it: each session is another neighbour's.
            host = f"{chance.choice('abyz')}-{process.name}"
            return Incarnation.of(GROUP_ID, host, int(self.clock.now * 1000), chance.getrandbits(32))

        paths = GroupPaths(GROUP_ID, self.settings.dialect)
        return RegistryMembership(config, chance, paths, incarnation), RegistryLines(
            process, network, self.zookeeper, paths
        )

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
        """An operator writes bare numbers, while nobody is registered."""
        if not self.is_empty:
            return False
        for tp, offset in offsets.items():
            was = self.offset(tp)
            self._world.checker.reset(tp, None if was is None else CommittedOffset(was), offset)
            path, data = self.nodes.offset(tp), str(offset).encode()
            self.zookeeper.put(path, data)
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
        self.zookeeper.away_until = min(self.zookeeper.away_until, self.clock.now)
        self.brokers.all_come()
