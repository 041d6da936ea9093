"""A cluster that is found by the registrations of its brokers in ZooKeeper: Kafka 0.7, or 0.8 and later.

The nodes in `/brokers/ids` show which one it is, at the first request. JSON is Kafka 0.8 or later, which is then
reached through the registered brokers. `creator:host:port` is Kafka 0.7.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from streamgroup.errors import ConfigError, TransportError
from streamgroup.kafka.cluster.kafka import KafkaCluster
from streamgroup.kafka.cluster.requests import EpochCheck, EpochEnd, ListedOffset
from streamgroup.model import ClusterSnapshot, Dialect, TopicPartition
from streamgroup.options.types import ClientOptions, Isolation

if TYPE_CHECKING:
    from streamgroup.kafka.cluster.kafka07 import Kafka07Cluster
    from streamgroup.kafka.cluster.registry_reader import RegisteredBrokers, RegistryReader

log = logging.getLogger("streamgroup")

T = TypeVar("T")

_BROKER_POLL_S = 0.25
"""Seconds between reads of the registrations while there are none: brokers reregister one by one after an outage."""
_ZOOKEEPER_TIMEOUT_S = 1.0
"""Seconds to wait for ZooKeeper when none of the known brokers answers."""
_VERSIONS = {Dialect.KAFKA07: "0.7", Dialect.KAFKA: "0.8 or later"}


class ClusterFromZooKeeper:
    """The `Cluster` whose brokers are registered in ZooKeeper.

    It uses a `KafkaCluster` or a `Kafka07Cluster` of the registered brokers.
    """

    def __init__(
        self, options: ClientOptions, nodes: RegistryReader, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.options = options
        self.clock = clock
        self._nodes = nodes
        self._inner: KafkaCluster | Kafka07Cluster | None = None
        self._may_have_moved = False
        """True if none of the known brokers answered: others may be registered now."""

    def deadline(self, timeout_ms: int | None = None) -> float:
        return self.clock() + (self.options.default_api_timeout_ms if timeout_ms is None else timeout_ms) / 1000

    def snapshot(self, topics: Collection[str] | None, deadline: float, refresh: bool = False) -> ClusterSnapshot:
        """Return the brokers and the metadata of `topics` (None: all topics).

        Raises ConfigError if /brokers/ids does not exist in ZooKeeper.
        """
        return self._call(deadline, lambda inner: inner.snapshot(topics, deadline, refresh))

    def list_offsets(
        self, wanted: Mapping[TopicPartition, int], isolation: Isolation, deadline: float
    ) -> dict[TopicPartition, ListedOffset]:
        return self._call(deadline, lambda inner: inner.list_offsets(wanted, isolation, deadline))

    def list_offsets_once(
        self, wanted: Mapping[TopicPartition, int], isolation: Isolation, deadline: float, *, timeout: float, epoch: int
    ) -> tuple[dict[TopicPartition, ListedOffset], list[str]]:
        return self._call(
            deadline, lambda inner: inner.list_offsets_once(wanted, isolation, deadline, timeout=timeout, epoch=epoch)
        )

    def epoch_ends(
        self, wanted: Mapping[TopicPartition, EpochCheck], deadline: float
    ) -> dict[TopicPartition, EpochEnd]:
        """Return the end offset of the leader epoch of each position. Brokers before 0.11 have no leader epochs."""
        return self._call(deadline, lambda inner: inner.epoch_ends(wanted, deadline))

    def resolve(self, deadline: float) -> KafkaCluster | Kafka07Cluster:
        """Return the cluster of the registered brokers."""
        if self._inner is None:
            self._inner = self._cluster_of(self._await_brokers(deadline))
        elif self._may_have_moved:
            try:
                self._inner = self._cluster_of(self._nodes.brokers(min(deadline, self.clock() + _ZOOKEEPER_TIMEOUT_S)))
                self._may_have_moved = False
            except TransportError as error:
                log.debug("cannot refresh the brokers, using the known ones: %s", error)
        return self._inner

    def distrust_metadata(self) -> None:
        if self._inner is not None:
            self._inner.distrust_metadata()

    def close(self) -> None:
        """Close all connections and the session with ZooKeeper."""
        if self._inner is not None:
            self._inner.close()
            self._inner = None
        self._nodes.close()

    def _call(self, deadline: float, operation: Callable[[KafkaCluster | Kafka07Cluster], T]) -> T:
        try:
            return operation(self.resolve(deadline))
        except TransportError:
            self._may_have_moved = isinstance(self._inner, KafkaCluster)
            raise

    def _await_brokers(self, deadline: float) -> RegisteredBrokers:
        """Wait until brokers are registered, and return them."""
        has_warned = False
        while True:
            try:
                return self._nodes.brokers(deadline)
            except TransportError as error:
                if self.clock() + _BROKER_POLL_S >= deadline:
                    raise
                if not has_warned:
                    log.warning("%s; waiting for brokers to register", error)
                has_warned = True
                time.sleep(_BROKER_POLL_S)

    def _cluster_of(self, registered: RegisteredBrokers) -> KafkaCluster | Kafka07Cluster:
        """Return the cluster of these brokers: the open one, if it is still the same."""
        dialect = registered.dialect
        if self._inner is None:
            log.info("%s: Kafka %s, brokers %s", self._nodes.where, _VERSIONS[dialect], registered)
        elif isinstance(self._inner, KafkaCluster) is not (dialect is Dialect.KAFKA):
            raise ConfigError(
                f"cannot continue with {self._nodes.where}: the brokers are now of Kafka {_VERSIONS[dialect]}. "
                "Restart the query"
            )
        if dialect is Dialect.KAFKA07:
            # It loads the decoders of Kafka 0.7, which the coordinator of another cluster does not need.
            from streamgroup.kafka.cluster.kafka07 import Kafka07Cluster  # noqa: PLC0415

            return self._inner if isinstance(self._inner, Kafka07Cluster) else Kafka07Cluster(self.options, self._nodes)
        servers = tuple(sorted((broker.host, broker.port) for broker in registered.brokers.values()))
        if isinstance(self._inner, KafkaCluster):
            if self._inner.options.bootstrap_servers == servers:
                return self._inner
            self._inner.close()
        return KafkaCluster(replace(self.options, bootstrap_servers=servers))
