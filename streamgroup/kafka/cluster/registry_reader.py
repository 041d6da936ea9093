"""Reads the brokers and topics that are registered in ZooKeeper. Its own session registers nothing."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping

from streamgroup.errors import ConfigError, DecodeError, TransportError
from streamgroup.frozen import frozen
from streamgroup.kafka.wire.registrations import BROKERS, TOPICS, dialect_of, is_node_name, read_broker, read_count
from streamgroup.logformat import broker_partition
from streamgroup.model import Broker, ClusterSnapshot, Dialect, PartitionInfo, TopicInfo
from streamgroup.options.tls import PLAINTEXT
from streamgroup.options.types import ZooKeeperOptions
from streamgroup.text import MOST_NAMED, first_of, host_port
from streamgroup.znodes import Subtree, ZNode
from streamgroup.zookeeper.session import Session, SessionEvent, SessionSuspended

log = logging.getLogger("streamgroup")

ReadBrokers = dict[Broker, Dialect]


@frozen
class RegisteredBrokers:
    """The registered brokers of one cluster. All have the same dialect."""

    dialect: Dialect
    brokers: Mapping[int, Broker]

    def __str__(self) -> str:
        return first_of([str(broker) for broker in self.brokers.values()], MOST_NAMED, "broker") or "none"


class RegistryReader:
    """Reads the registrations of brokers and topics in ZooKeeper. One thread uses it.

    Another thread calls `on_change()` when a node that was read has changed.
    """

    def __init__(
        self, options: ZooKeeperOptions, on_change: Callable[[], None] | None = None, protocol: str = PLAINTEXT
    ) -> None:
        """Create a reader that opens its session at the first read.

        `protocol` is the security protocol of the listeners to find. Brokers before 0.9 have one listener.
        """
        self._on_change = on_change
        self._protocol = protocol
        self._session = Session(options, self._on_session_event)
        self._warned: frozenset[str] = frozenset()
        self.where = self._session.where

    def brokers(self, deadline: float) -> RegisteredBrokers:
        """Return the registered brokers.

        Raises ConfigError if /brokers/ids does not exist, or if the registrations cannot belong to one cluster. Raises
        TransportError if no broker is registered or ZooKeeper is not available.
        """
        nodes = self.read([Subtree(BROKERS)], deadline)
        if BROKERS not in nodes:
            raise ConfigError(
                f"no brokers in {self.where}: node {BROKERS} does not exist. Check that zookeeper.connect has the "
                "servers and the chroot of the brokers' own zookeeper.connect (0.7: zk.connect)"
            )
        read, invalid = read_brokers(nodes, self._protocol)
        self._warn_once(invalid)
        if not read:
            raise TransportError(
                f"no brokers in {self.where}: no {'valid ' if invalid else ''}registration below {BROKERS}. "
                "Check that they run, and that zookeeper.connect has their chroot"
            )
        return one_cluster(read, self.where)

    def snapshot07(self, topics: Collection[str] | None, deadline: float) -> ClusterSnapshot:
        """Return the registered brokers and `topics` (None: all) of a Kafka 0.7 cluster.

        Raises as `brokers`, but returns a snapshot without brokers if none is registered.
        """
        wanted = (
            [Subtree(TOPICS, depth=2)]
            if topics is None
            else [Subtree(f"{TOPICS}/{name}") for name in topics if is_node_name(name)]
        )
        nodes = self.read([Subtree(BROKERS), *wanted], deadline)
        read, invalid = read_brokers(nodes, self._protocol)
        registered = one_cluster(read, self.where) if read else RegisteredBrokers(Dialect.KAFKA07, {})
        if registered.dialect is not Dialect.KAFKA07:
            raise ConfigError(
                f"cannot read topics of Kafka 0.7 in {self.where}: the brokers are now of Kafka 0.8 or later. "
                "Restart the query"
            )
        found, invalid_topics = read_topics07(nodes)
        self._warn_once(invalid + invalid_topics)
        return ClusterSnapshot(registered.brokers, found, dialect=Dialect.KAFKA07)

    def read(self, subtrees: Collection[Subtree], deadline: float) -> Mapping[str, ZNode]:
        """Read subtrees, in a new session if the last one has ended. Raises TransportError."""
        self._session.connect(deadline)
        return self._session.read(subtrees, deadline)

    def close(self) -> None:
        self._session.close()

    def notify_change(self) -> None:
        """Call `on_change()`, because registrations may have changed."""
        if self._on_change is not None:
            self._on_change()

    def _on_session_event(self, event: SessionEvent) -> None:
        if not isinstance(event, SessionSuspended):
            self.notify_change()

    def _warn_once(self, problems: Collection[str]) -> None:
        """Log each problem once, until it is gone."""
        for problem in problems:
            if problem not in self._warned:
                log.warning("%s: %s", self.where, problem)
        self._warned = frozenset(problems)


# -- decoding of nodes -------------------------------------------------------------------------------------------------


def read_brokers(nodes: Mapping[str, ZNode], protocol: str = PLAINTEXT) -> tuple[ReadBrokers, list[str]]:
    """Return the brokers with their dialects, and the errors of invalid registrations.

    Brokers with an invalid registration count as offline.
    """
    read: ReadBrokers = {}
    invalid = []
    for name, node in _below(BROKERS, nodes):
        try:
            read[read_broker(name, node.data, protocol)] = dialect_of(node.data)
        except DecodeError as error:
            invalid.append(f"{error}. Its partitions are not read until the node is corrected")
    return read, invalid


def one_cluster(read: ReadBrokers, where: str) -> RegisteredBrokers:
    """Return the brokers in `read` if all belong to one cluster. `where` is the name of the ZooKeeper in errors.

    Raises ConfigError for brokers of both dialects. Raises TransportError for two brokers at one address: one of them
    is gone, and reading it would return records of the other. Its node may expire, so a retry may succeed.
    """
    by_dialect = {dialect: [str(b) for b, theirs in read.items() if theirs is dialect] for dialect in read.values()}
    if len(by_dialect) > 1:
        old, new = (first_of(by_dialect[dialect], MOST_NAMED, "broker") for dialect in (Dialect.KAFKA07, Dialect.KAFKA))
        raise ConfigError(
            f"brokers of two clusters in {where} below {BROKERS}: Kafka 0.7: {old}; Kafka 0.8 or later: "
            f"{new}. Give each cluster its own chroot, or stop the brokers that do not belong there"
        )
    addresses: dict[tuple[str, int], Broker] = {}
    for broker in read:
        other = addresses.setdefault((broker.host, broker.port), broker)
        if other is not broker:
            raise TransportError(
                f"two brokers with one address in {where}: {other.node_id} and {broker.node_id} are registered at "
                f"{host_port(broker.host, broker.port)}. After a change of a broker id the old node expires with its "
                "session; if both run, give each its own address (0.7: hostname and port in server.properties)"
            )
    return RegisteredBrokers(next(iter(by_dialect)), {b.node_id: b for b in sorted(read, key=lambda b: b.node_id)})


def read_topics07(nodes: Mapping[str, ZNode]) -> tuple[dict[str, TopicInfo], list[str]]:
    """Return the topics of a Kafka 0.7 cluster with their registered partitions, and the errors of invalid nodes.

    A topic has the partitions of the registered brokers. Partitions of an offline broker are absent, but not deleted.
    """
    topics: dict[str, TopicInfo] = {}
    invalid = []
    for path in sorted(
        path for path in nodes if path.startswith(f"{TOPICS}/") and path.count("/") == TOPICS.count("/") + 1
    ):
        topic = path.removeprefix(f"{TOPICS}/")
        numbers: list[int] = []
        for broker, node in _below(path, nodes):
            try:
                numbers += read_count(topic, broker, node.data)
            except DecodeError as error:
                invalid.append(f"{error}. The topic has no partitions on this broker until it is corrected")
        infos = (PartitionInfo(number, broker_partition(number)[0]) for number in sorted(numbers))
        topics[topic] = TopicInfo(topic, tuple(infos))
    return topics, invalid


def _below(parent: str, nodes: Mapping[str, ZNode]) -> Iterator[tuple[str, ZNode]]:
    """Yield name and node of each child that was read."""
    above = nodes.get(parent)
    for name in () if above is None else above.children:
        node = nodes.get(f"{parent}/{name}")
        if node is not None:
            yield name, node
