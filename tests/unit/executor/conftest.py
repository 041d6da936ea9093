"""The executor is tested against the same scripted brokers as the connections."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from streamgroup.executor.pools import POOL
from streamgroup.executor.read.cursor import SIZES
from streamgroup.executor.read.read_replicas import REPLICAS
from streamgroup.executor.write.producer import PRODUCERS, TaskProducer
from streamgroup.executor.write.sink_writer07 import PRODUCERS07
from tests.fakes.broker07 import start_broker07
from tests.fakes.scripted_cluster import ScriptedCluster
from tests.unit.executor.leader import Lead, Leader, Options, Start
from tests.unit.executor.producing import TOPIC, client_of, producer_options
from tests.unit.kafka.net.conftest import broker, fresh_memory, options

__all__ = ["broker", "fresh_memory", "options", "start_broker07"]

CLIENT_OPTIONS = {"request_timeout_ms", "retry_backoff_ms", "retry_backoff_max_ms"}


@pytest.fixture(autouse=True)
def _fresh_process() -> Iterator[None]:
    """Each test begins as a new worker process does."""
    SIZES.clear()
    REPLICAS.clear()
    yield
    POOL.clear()
    PRODUCERS.clear()
    PRODUCERS07.clear()


@pytest.fixture
def lead(broker: Start, options: Options) -> Lead:
    """Starts a scripted leader `(*logs, **others)`."""
    return lambda *logs, **others: Leader(broker, options, *logs, **others)


@pytest.fixture
def start_cluster() -> Iterator[Callable[..., ScriptedCluster]]:
    """Starts a scripted cluster `(brokers, topics, **others)`; all are stopped at the end."""
    clusters: list[ScriptedCluster] = []

    def start(brokers: int = 1, topics: dict[str, int] | None = None, **others: Any) -> ScriptedCluster:
        clusters.append(ScriptedCluster(brokers, {TOPIC: 2} if topics is None else topics, **others))
        return clusters[-1]

    yield start
    for each in clusters:
        each.stop()


@pytest.fixture
def cluster(start_cluster: Callable[..., ScriptedCluster]) -> ScriptedCluster:
    """One broker, and a topic with two partitions."""
    return start_cluster()


@pytest.fixture
def producer(cluster: ScriptedCluster, open_producer: Callable[..., TaskProducer]) -> TaskProducer:
    """A producer for the records of `cluster`."""
    return open_producer(cluster)


@pytest.fixture
def open_producer() -> Iterator[Callable[..., TaskProducer]]:
    """Opens a producer `(cluster, **options)`; all are closed at the end."""
    opened: list[TaskProducer] = []

    def make(cluster: ScriptedCluster, **others: Any) -> TaskProducer:
        clock = others.pop("clock", time.monotonic)
        client = {name: others.pop(name) for name in CLIENT_OPTIONS & others.keys()}
        opened.append(TaskProducer(client_of(cluster, **client), producer_options(**others), clock))
        return opened[-1]

    yield make
    for each in opened:
        each.close()
