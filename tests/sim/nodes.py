"""The nodes of brokers and consumers of Kafka 0.7 and 0.8 in ZooKeeper, handled without the code under test."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TypeVar

from streamgroup.logformat import broker_partition, partition_number
from streamgroup.model import Dialect, TopicPartition

T = TypeVar("T")

CONSUMERS, BROKERS, TOPICS = "/consumers", "/brokers/ids", "/brokers/topics"


class Nodes:
    """The paths of one group, and what stands there."""

    def __init__(self, group: str, dialect: Dialect) -> None:
        self.dialect = dialect
        self.group = f"{CONSUMERS}/{group}"
        self.ids = f"{self.group}/ids"
        self._offsets = f"{self.group}/offsets/"
        self._owners = f"{self.group}/owners/"

    # -- partitions ---------------------------------------------------------------------------------------------------

    def name(self, partition: int) -> str:
        """The name of a partition's nodes: `1-2` in 0.7, its number in 0.8."""
        return "{}-{}".format(*broker_partition(partition)) if self.dialect is Dialect.KAFKA07 else str(partition)

    def owner(self, tp: TopicPartition) -> str:
        return f"{self._owners}{tp.topic}/{self.name(tp.partition)}"

    def offset(self, tp: TopicPartition) -> str:
        return f"{self._offsets}{tp.topic}/{self.name(tp.partition)}"

    def partition_at(self, path: str) -> TopicPartition | None:
        """Whose offset stands in this node."""
        return self._partition(path, self._offsets)

    def owned_at(self, path: str) -> TopicPartition | None:
        """Whose owner stands in this node."""
        return self._partition(path, self._owners)

    def _partition(self, path: str, above: str) -> TopicPartition | None:
        topic, _, name = path.removeprefix(above).partition("/") if path.startswith(above) else ("", "", "")
        return TopicPartition(topic, self.number(name)) if name and "/" not in name else None

    def number(self, name: str) -> int:
        """Of the partition whose nodes are called so."""
        if self.dialect is Dialect.KAFKA07:
            broker, _, partition = name.partition("-")
            return partition_number(int(broker), int(partition))
        return int(name)

    # -- brokers ------------------------------------------------------------------------------------------------------

    def broker(self, broker: int) -> bytes:
        if self.dialect is Dialect.KAFKA07:
            return f"host{broker}-1795199826383:host{broker}:9092".encode()
        return json.dumps({"jmx_port": -1, "host": f"host{broker}", "version": 1, "port": 9092}).encode()

    # -- consumers ----------------------------------------------------------------------------------------------------

    def subscription(self, topics: Sequence[str], streams: int) -> bytes:
        """Return the node of a real consumer with so many streams of each topic."""
        counts = ",".join(f'"{topic}": {streams}' for topic in topics)
        if self.dialect is Dialect.KAFKA07:
            return f"{{ {counts} }}".encode()
        return f'{{"version":1,"subscription":{{{counts}}},"pattern":"static","timestamp":"1795200126907"}}'.encode()

    def streams(self, data: bytes) -> Mapping[str, int]:
        """How many streams of each topic a consumer has registered."""
        value = json.loads(data)
        counts: Mapping[str, int] = value if self.dialect is Dialect.KAFKA07 else value["subscription"]
        return counts


def chunk(items: Sequence[T], owners: Sequence[str], owner: str) -> Sequence[T]:
    """`ZookeeperConsumerConnector`'s consensus: contiguous chunks, the first owners take one more."""
    each, more = divmod(len(items), len(owners))
    index = owners.index(owner)
    start = each * index + min(index, more)
    return items[start : start + each + (index < more)]
