"""A cluster is tried against the fake brokers that connections are tried against, and emulated ones of 0.7."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from streamgroup.kafka.cluster.kafka07 import Kafka07Cluster
from tests.fakes.broker07 import OldBroker, start_broker07
from tests.fakes.registry07 import FakeNodes, client07, registered
from tests.unit.kafka.net.conftest import broker, fresh_memory, options

__all__ = ["broker", "fresh_memory", "options", "start_broker07"]


@pytest.fixture
def cluster() -> Iterator[Callable[..., Kafka07Cluster]]:
    made: list[Kafka07Cluster] = []

    def make(*brokers: OldBroker, nodes: FakeNodes | None = None, **options: Any) -> Kafka07Cluster:
        made.append(Kafka07Cluster(client07(**options), nodes or FakeNodes(registered(brokers))))
        return made[-1]

    yield make
    for each in made:
        each.close()
