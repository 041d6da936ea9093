"""Brokers and topics as they are registered in ZooKeeper, read in a session that registers nothing itself."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass

from streamgroup.errors import ConfigError, DecodeError, TransportError
from streamgroup.logformat import broker_partition
from streamgroup.model import Broker, ClusterSnapshot, Dialect, PartitionInfo, TopicInfo
from streamgroup.options.types import ZooKeeperOptions
from streamgroup.wire.registrations import BROKERS, TOPICS, dialect_of, is_node_name, read_broker, read_count
from streamgroup.znodes import Subtree, ZNode
from streamgroup.zookeeper.session import NodeChanged, Resumed, Session, SessionEnded, SessionEvent, SessionStarted

log = logging.getLogger("streamgroup")

ReadBrokers = dict[Broker, Dialect]


@dataclass(frozen=True, slots=True)
class RegisteredBrokers:
    """The brokers that are registered, all of one dialect."""

    dialect: Dialect
    brokers: Mapping[int, Broker]

    def __str__(self) -> str:
        return ", ".join(map(str, self.brokers.values())) or "none"


class RegistryReader:
    """See the module. Used by one thread; `on_change` is called from another one when something read has changed."""

    def __init__(self, options: ZooKeeperOptions, on_change: Callable[[], None] | None = None) -> None:
        self._on_change = on_change
        self._session = Session(options, self._hear)
        self._told: frozenset[str] = frozenset()
        self.where = self._session.where

    def brokers(self, deadline: float) -> RegisteredBrokers:
        """The brokers. Raises ConfigError where there are none or what they wrote cannot be brokers of one cluster,
        TransportError where they are away, or ZooKeeper is."""
        nodes = self.read([Subtree(BROKERS)], deadline)
        if BROKERS not in nodes:
            raise ConfigError(
                f"{self.where} has no brokers: there is no node {BROKERS}. Is the path at the end of zookeeper.connect "
                "the one that zookeeper.connect (0.7: zk.connect) of the brokers has, and is this their ZooKeeper?"
            )
        read, unread = read_brokers(nodes)
        self._tell(unread)
        if not read:
            raise TransportError(
                f"{self.where} has no brokers: nothing {'readable ' if unread else ''}is registered below {BROKERS}. "
                "Are they running? Is the path at the end of zookeeper.connect the one that they have?"
            )
        return one_cluster(read, self.where)

    def snapshot07(self, topics: Collection[str] | None, deadline: float) -> ClusterSnapshot:
        """The brokers and `topics` (None: all) of a Kafka 0.7, as they are registered now. Raises as `brokers`, but
        that there may be no brokers at the moment."""
        wanted = (
            [Subtree(TOPICS, depth=2)]
            if topics is None
            else [Subtree(f"{TOPICS}/{name}") for name in topics if is_node_name(name)]
        )
        nodes = self.read([Subtree(BROKERS), *wanted], deadline)
        read, unread = read_brokers(nodes)
        registered = one_cluster(read, self.where) if read else RegisteredBrokers(Dialect.KAFKA07, {})
        if registered.dialect is not Dialect.KAFKA07:
            raise ConfigError(f"{self.where}: the brokers are of Kafka 0.8 or later by now: start again")
        found, amiss = read_topics07(nodes)
        self._tell(unread + amiss)
        return ClusterSnapshot(registered.brokers, found, dialect=Dialect.KAFKA07)

    def read(self, subtrees: Collection[Subtree], deadline: float) -> Mapping[str, ZNode]:
        """Read, in a new session where the last one is over. Raises TransportError."""
        self._session.connect(deadline)
        return self._session.read(subtrees, deadline)

    def close(self) -> None:
        """End the session."""
        self._session.close()

    def notify_change(self) -> None:
        """What was read may be otherwise by now."""
        if self._on_change is not None:
            self._on_change()

    def _hear(self, event: SessionEvent) -> None:
        if isinstance(event, SessionStarted | NodeChanged | Resumed | SessionEnded):
            self.notify_change()

    def _tell(self, troubles: Collection[str]) -> None:
        """Say each trouble once, as long as it lasts."""
        for trouble in troubles:
            if trouble not in self._told:
                log.warning("%s: %s", self.where, trouble)
        self._told = frozenset(troubles)


# -- what the nodes say ------------------------------------------------------------------------------------------------


def read_brokers(nodes: Mapping[str, ZNode]) -> tuple[ReadBrokers, list[str]]:
    """The brokers with their dialects, and what cannot be read: such a broker is taken for one that is away."""
    read: ReadBrokers = {}
    unread = []
    for name, node in _below(BROKERS, nodes):
        try:
            read[read_broker(name, node.data)] = dialect_of(node.data)
        except DecodeError as error:
            unread.append(f"{error}. This broker is taken for absent: its partitions are not read until that is mended")
    return read, unread


def one_cluster(read: ReadBrokers, where: str) -> RegisteredBrokers:
    """`read` as brokers of one cluster.

    Raises ConfigError for brokers of both dialects, TransportError for two at one address: one of them is not there,
    and what is read of it would be the other's. It may be no more than a node that lingers, so it is worth to wait.
    """
    by_dialect = {dialect: [str(b) for b, theirs in read.items() if theirs is dialect] for dialect in read.values()}
    if len(by_dialect) > 1:
        old, new = (", ".join(by_dialect[dialect]) for dialect in (Dialect.KAFKA07, Dialect.KAFKA))
        raise ConfigError(
            f"{where}: brokers of two clusters are registered below {BROKERS}: of Kafka 0.7 {old}; of 0.8 or later "
            f"{new}. Give each cluster its own chroot, or stop what does not belong there"
        )
    addresses: dict[tuple[str, int], Broker] = {}
    for broker in read:
        other = addresses.setdefault((broker.host, broker.port), broker)
        if other is not broker:
            raise TransportError(
                f"{where}: the brokers {other.node_id} and {broker.node_id} are both registered at "
                f"{broker.host}:{broker.port}. If one was given another id, its old node goes when its session ends; "
                "else give each broker an address of its own (0.7: hostname and port in server.properties)"
            )
    return RegisteredBrokers(next(iter(by_dialect)), {b.node_id: b for b in sorted(read, key=lambda b: b.node_id)})


def read_topics07(nodes: Mapping[str, ZNode]) -> tuple[dict[str, TopicInfo], list[str]]:
    """The topics of a Kafka 0.7 with the partitions that their brokers have registered, and what cannot be read.

    A topic has the partitions of the brokers that are there: the others' are absent, and not lost.
    """
    topics: dict[str, TopicInfo] = {}
    unread = []
    for path in sorted(
        path for path in nodes if path.startswith(f"{TOPICS}/") and path.count("/") == TOPICS.count("/") + 1
    ):
        topic = path.removeprefix(f"{TOPICS}/")
        numbers: list[int] = []
        for broker, node in _below(path, nodes):
            try:
                numbers += read_count(topic, broker, node.data)
            except DecodeError as error:
                unread.append(f"{error}. The topic is taken to have no partitions on this broker until that is mended")
        infos = (PartitionInfo(number, broker_partition(number)[0]) for number in sorted(numbers))
        topics[topic] = TopicInfo(topic, tuple(infos))
    return topics, unread


def _below(parent: str, nodes: Mapping[str, ZNode]) -> Iterator[tuple[str, ZNode]]:
    """Name and node of the children that were read."""
    above = nodes.get(parent)
    for name in () if above is None else above.children:
        node = nodes.get(f"{parent}/{name}")
        if node is not None:
            yield name, node
