"""Which cluster there is: behind its bootstrap servers, or behind the ZooKeeper where its brokers are registered.

With `zookeeper.connect` alone the dialect is read off `/brokers/ids` when the cluster is first asked something: JSON is
Kafka 0.8 or later, which is then reached as ever through the brokers found there; `creator:host:port` is Kafka 0.7.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol, TypeVar, cast

from streamgroup.cluster.kafka import KafkaCluster
from streamgroup.cluster.kafka07 import Kafka07Cluster
from streamgroup.cluster.requests import EpochCheck, EpochEnd, ListedOffset
from streamgroup.errors import ConfigError, TransportError
from streamgroup.model import ClusterSnapshot, Dialect, TopicPartition
from streamgroup.options.types import ClientOptions, Isolation

if TYPE_CHECKING:
    from streamgroup.cluster.registry_reader import RegisteredBrokers, RegistryReader

log = logging.getLogger("streamgroup")

T = TypeVar("T")


_LOOK_EVERY_S = 0.25
"""How often brokers are looked for where there are none: they come back one by one when ZooKeeper was away."""
_ZOOKEEPER_TIMEOUT_S = 1.0
"""How long other brokers are looked for in ZooKeeper, where some are known."""


class Cluster(Protocol):
    """The operations of a cluster that planning uses, whichever protocol its brokers speak. Used by one thread."""

    def deadline(self, timeout_ms: int | None = None) -> float:
        """The moment `timeout_ms` from now; `default_api_timeout_ms` unless given."""

    def snapshot(self, topics: Collection[str] | None, deadline: float, refresh: bool = False) -> ClusterSnapshot:
        """The cluster and `topics` (None: all)."""

    def list_offsets(
        self, wanted: Mapping[TopicPartition, int], isolation: Isolation, deadline: float
    ) -> dict[TopicPartition, ListedOffset]:
        """The offset of each partition at EARLIEST, LATEST or a timestamp (ms)."""

    def list_offsets_once(
        self,
        wanted: Mapping[TopicPartition, int],
        isolation: Isolation,
        deadline: float,
        *,
        timeout: float,
        epoch: int,
    ) -> tuple[dict[TopicPartition, ListedOffset], list[str]]:
        """`list_offsets` in one attempt, in which no broker holds up another; and what is amiss."""

    def epoch_ends(
        self, wanted: Mapping[TopicPartition, EpochCheck], deadline: float
    ) -> dict[TopicPartition, EpochEnd]:
        """Where the epochs of positions end; what cannot tell is absent."""

    def distrust_metadata(self) -> None:
        """Ask another broker for the metadata next time, where there is one."""

    def close(self) -> None:
        """Close all connections."""


def open_cluster(options: ClientOptions, on_change: Callable[[], None] | None = None) -> Cluster:
    """The cluster that `options` name. Nothing connects before it is asked something.

    `on_change` is called, from another thread, when brokers or topics that were read in ZooKeeper have changed.
    """
    if options.bootstrap_servers or options.zookeeper is None:
        return KafkaCluster(options)
    from streamgroup.cluster.registry_reader import RegistryReader  # noqa: PLC0415  (most clusters need no client of ZooKeeper)

    return RegisteredCluster(options, RegistryReader(options.zookeeper, on_change))


class RegisteredCluster:
    """The cluster whose brokers are registered in a ZooKeeper."""

    def __init__(
        self, options: ClientOptions, nodes: RegistryReader, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.options = options
        self.clock = clock
        self._nodes = nodes
        self._inner: KafkaCluster | Kafka07Cluster | None = None
        self._lost = False
        """None of the brokers known has answered: there may be others by now."""

    def deadline(self, timeout_ms: int | None = None) -> float:
        """The moment `timeout_ms` from now; `default_api_timeout_ms` unless given."""
        return self.clock() + (self.options.default_api_timeout_ms if timeout_ms is None else timeout_ms) / 1000

    def snapshot(self, topics: Collection[str] | None, deadline: float, refresh: bool = False) -> ClusterSnapshot:
        """The cluster and `topics` (None: all). Raises ConfigError where there are no brokers where they should be."""
        return self._asked(deadline, lambda inner: inner.snapshot(topics, deadline, refresh))

    def list_offsets(
        self, wanted: Mapping[TopicPartition, int], isolation: Isolation, deadline: float
    ) -> dict[TopicPartition, ListedOffset]:
        """The offset of each partition at EARLIEST, LATEST or a timestamp (ms)."""
        return self._asked(deadline, lambda inner: inner.list_offsets(wanted, isolation, deadline))

    def list_offsets_once(
        self,
        wanted: Mapping[TopicPartition, int],
        isolation: Isolation,
        deadline: float,
        *,
        timeout: float,
        epoch: int,
    ) -> tuple[dict[TopicPartition, ListedOffset], list[str]]:
        """`list_offsets` in one attempt, in which no broker holds up another; and what is amiss."""
        return self._asked(
            deadline, lambda inner: inner.list_offsets_once(wanted, isolation, deadline, timeout=timeout, epoch=epoch)
        )

    def epoch_ends(
        self, wanted: Mapping[TopicPartition, EpochCheck], deadline: float
    ) -> dict[TopicPartition, EpochEnd]:
        """Where the epochs of positions end; brokers before 0.11 have none."""
        return self._asked(deadline, lambda inner: inner.epoch_ends(wanted, deadline))

    def opened(self, deadline: float) -> KafkaCluster | Kafka07Cluster:
        """The cluster itself, in the dialect that it speaks."""
        if self._inner is None:
            self._inner = self._found(self._awaited(deadline))
        elif self._lost:
            try:
                self._inner = self._found(self._nodes.brokers(min(deadline, self.clock() + _ZOOKEEPER_TIMEOUT_S)))
                self._lost = False
            except TransportError as error:
                log.debug("going on with the brokers known: %s", error)
        return self._inner

    def distrust_metadata(self) -> None:
        """Ask another broker for the metadata next time, where there is one."""
        if self._inner is not None:
            self._inner.distrust_metadata()

    def close(self) -> None:
        """Close all connections, and the session."""
        if self._inner is not None:
            self._inner.close()
            self._inner = None
        self._nodes.close()

    def _asked(self, deadline: float, question: Callable[[KafkaCluster | Kafka07Cluster], T]) -> T:
        try:
            return question(self.opened(deadline))
        except TransportError:
            self._lost = isinstance(self._inner, KafkaCluster)
            raise

    def _awaited(self, deadline: float) -> RegisteredBrokers:
        """The brokers, as soon as there are any."""
        said = False
        while True:
            try:
                return self._nodes.brokers(deadline)
            except TransportError as error:
                if self.clock() + _LOOK_EVERY_S >= deadline:
                    raise
                if not said:
                    log.warning("%s; waiting for them", error)
                said = True
                time.sleep(_LOOK_EVERY_S)

    def _found(self, registered: RegisteredBrokers) -> KafkaCluster | Kafka07Cluster:
        """The cluster of these brokers: the one that is open, where it is still the same."""
        dialect = registered.dialect
        if self._inner is None:
            log.info("%s: Kafka %s, brokers %s", self._nodes.where, _NAMES[dialect], registered)
        elif isinstance(self._inner, Kafka07Cluster) is not (dialect is Dialect.KAFKA07):
            raise ConfigError(f"{self._nodes.where}: the brokers are of Kafka {_NAMES[dialect]} by now: start again")
        if dialect is Dialect.KAFKA07:
            return self._inner if isinstance(self._inner, Kafka07Cluster) else Kafka07Cluster(self.options, self._nodes)
        servers = tuple(sorted((broker.host, broker.port) for broker in registered.brokers.values()))
        if isinstance(self._inner, KafkaCluster):
            if self._inner.options.bootstrap_servers == servers:
                return self._inner
            self._inner.close()
        return KafkaCluster(replace(self.options, bootstrap_servers=servers))


def kafka_of(cluster: Cluster, deadline: float) -> KafkaCluster:
    """`cluster` as one that speaks Kafka's protocol of 0.8 and later. Raises ConfigError where it is a 0.7."""
    opened = cluster.opened(deadline) if isinstance(cluster, RegisteredCluster) else cluster
    if isinstance(opened, Kafka07Cluster):
        raise ConfigError("the brokers are of Kafka 0.7: they know no groups and keep no offsets, their ZooKeeper does")
    return cast("KafkaCluster", opened)


def kafka07_of(cluster: Cluster, deadline: float) -> Kafka07Cluster:
    """`cluster` as one of Kafka 0.7. Raises ConfigError where it is a later one."""
    opened = cluster.opened(deadline) if isinstance(cluster, RegisteredCluster) else cluster
    if not isinstance(opened, Kafka07Cluster):
        raise ConfigError("the brokers are not of Kafka 0.7: their offsets are no byte positions")
    return opened


_NAMES = {Dialect.KAFKA07: "0.7", Dialect.KAFKA: "0.8 or later"}
