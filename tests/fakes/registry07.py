"""A ZooKeeper with the nodes of Kafka 0.7, in memory: what `kafka/cluster/registry_reader.py` reads."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from streamgroup.errors import TransportError
from streamgroup.kafka.cluster.registry_reader import RegistryReader
from streamgroup.options.tls import PLAINTEXT
from streamgroup.options.types import ClientOptions, ZooKeeperOptions
from streamgroup.znodes import Subtree, ZNode
from tests.fakes.broker07 import TOPIC, OldBroker
from tests.fakes.nodes import NodeTree

ZOOKEEPER = ZooKeeperOptions((("zk1", 2181),), "/kafka")


def client07(**others: object) -> ClientOptions:
    shorter = {"retry_backoff_ms": 5, "retry_backoff_max_ms": 10, "default_api_timeout_ms": 3_000}
    given = {"request_timeout_ms": 2_000, **shorter, **others}
    return ClientOptions((), zookeeper=ZOOKEEPER, **given)  # type: ignore[arg-type]


def registered(
    brokers: Iterable[OldBroker], partitions: int = 2, topics: Collection[str] = (TOPIC,)
) -> dict[str, bytes]:
    """The registrations of these brokers."""
    nodes = {"/brokers/ids": b"", **{f"/brokers/topics/{topic}": b"" for topic in topics}}
    for each in brokers:
        nodes[f"/brokers/ids/{each.node}"] = b"127.0.0.1-1:127.0.0.1:%d" % each.port
        nodes |= {f"/brokers/topics/{topic}/{each.node}": b"%d" % partitions for topic in topics}
    return nodes


class FakeNodes(RegistryReader):
    """`RegistryReader` whose ZooKeeper is `data`."""

    def __init__(self, data: Mapping[str, bytes], protocol: str = PLAINTEXT) -> None:
        self.changes = 0
        super().__init__(ZOOKEEPER, self._count, protocol)
        self.data = dict(data)
        self.away = False
        self.looks: list[list[str]] = []

    def read(self, subtrees: Collection[Subtree], deadline: float) -> Mapping[str, ZNode]:
        if self.away:
            raise TransportError("ZooKeeper zk1:2181/kafka: no connection")
        self.looks.append([subtree.path for subtree in subtrees])
        return NodeTree.of(self.data).read(subtrees)

    def close(self) -> None:
        """There is no session."""

    def _count(self) -> None:
        self.changes += 1
