"""A cluster is tried against the fake brokers that connections are tried against, and emulated ones of 0.7."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator
from typing import Any

import pytest

from streamgroup.kafka.cluster.kafka import KafkaCluster
from streamgroup.kafka.cluster.kafka07 import Kafka07Cluster
from streamgroup.kafka.wire.messages import admin, group, offsets, topics
from streamgroup.kafka.wire.messages.cluster import ApiVersionsRequest, MetadataRequest
from streamgroup.model import TopicPartition
from streamgroup.testing.kafka07 import Compressed
from tests.fakes.answers import api_versions, metadata
from tests.fakes.broker07 import OldBroker, start_broker07
from tests.fakes.registry07 import FakeNodes, client07, registered
from tests.unit.kafka.net.conftest import Options, Start, broker, fresh_memory, names, options, script

__all__ = ["broker", "fresh_memory", "names", "options", "start_broker07"]


@pytest.fixture
def cluster() -> Iterator[Callable[..., Kafka07Cluster]]:
    made: list[Kafka07Cluster] = []

    def make(*brokers: OldBroker, nodes: FakeNodes | None = None, **options: Any) -> Kafka07Cluster:
        made.append(Kafka07Cluster(client07(**options), nodes or FakeNodes(registered(brokers))))
        return made[-1]

    yield make
    for each in made:
        each.close()


SCRIPTED = (
    offsets.OffsetFetchRequest,
    admin.ListGroupsRequest,
    admin.DescribeGroupsRequest,
    admin.ConsumerGroupDescribeRequest,
    admin.CreateTopicsRequest,
    offsets.OffsetCommitRequest,
    admin.DeleteGroupsRequest,
    admin.OffsetDeleteRequest,
    topics.DeleteTopicsRequest,
    topics.CreatePartitionsRequest,
    topics.DescribeConfigsRequest,
)
"""The requests that a test answers by `Brokers.answer`."""


class Brokers:
    """Brokers by id; `coordinator` is the id of every group's. They do not have the APIs `without`."""

    def __init__(
        self,
        start: Start,
        options: Options,
        count: int = 1,
        *,
        without: Collection[type] = (),
        clock: Callable[[], float] = time.monotonic,
        **ranges: tuple[int, int],
    ) -> None:
        self.coordinator = 1
        self.topics: tuple[Any, ...] = ()
        self.scripts: dict[int, dict[type, Callable[[Any, int], Any]]] = {node: {} for node in range(1, count + 1)}
        known = {
            cls.NAME.lower(): cls.VERSIONS
            for cls in (MetadataRequest, group.FindCoordinatorRequest, *SCRIPTED)
            if cls not in without
        }
        versions = api_versions(**{**known, **ranges})
        self.brokers = {
            node: start(
                {
                    ApiVersionsRequest: lambda *_: versions,
                    MetadataRequest: lambda *_: metadata(self.ports, *self.topics),
                    group.FindCoordinatorRequest: lambda *_: self._coordinator(),
                    **{cls: (lambda *asked, node=node, cls=cls: self.scripts[node][cls](*asked)) for cls in SCRIPTED},
                }
            )
            for node in self.scripts
        }
        self.ports = {node: broker.port for node, broker in self.brokers.items()}
        self.cluster = KafkaCluster(options(self.ports[1]), clock=clock)

    def answer(self, node: int, request: type, *answers: Any) -> None:
        """Answer `request` at `node` so, in this order; the last for ever."""
        self.scripts[node][request] = script(*answers)

    def _coordinator(self) -> group.FindCoordinatorResponse:
        found = group.FoundCoordinator(
            key="g", node_id=self.coordinator, host="127.0.0.1", port=self.ports[self.coordinator]
        )
        return group.FindCoordinatorResponse(coordinators=(found,))


def produced(
    start: Callable[..., OldBroker], *payloads: bytes | Compressed, partition: int = 0, **options: Any
) -> tuple[OldBroker, TopicPartition]:
    """Start a broker of Kafka 0.7 with these messages in one partition."""
    broker = start(**options)
    return broker, broker.produce(partition, *payloads)


Make = Callable[..., Brokers]


@pytest.fixture
def make(broker: Start, options: Options) -> Make:
    return lambda *args, **others: Brokers(broker, options, *args, **others)


@pytest.fixture
def brokers(make: Make) -> Brokers:
    """One broker."""
    return make()
