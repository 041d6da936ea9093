"""The interface of a cluster, and the function that opens the cluster of the options."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Protocol, cast

from streamgroup.errors import ConfigError
from streamgroup.kafka.cluster.kafka import KafkaCluster
from streamgroup.kafka.cluster.registered import ClusterFromZooKeeper
from streamgroup.kafka.cluster.requests import EpochCheck, EpochEnd, ListedOffset
from streamgroup.model import ClusterSnapshot, TopicPartition
from streamgroup.options.types import ClientOptions, Isolation

if TYPE_CHECKING:
    from streamgroup.kafka.cluster.kafka07 import Kafka07Cluster


class Cluster(Protocol):
    """The operations of a Kafka or Kafka 0.7 cluster that planning uses. One thread uses it."""

    def deadline(self, timeout_ms: int | None = None) -> float:
        """Return the time `timeout_ms` from now, by default `default_api_timeout_ms`, on the cluster's clock."""

    def snapshot(self, topics: Collection[str] | None, deadline: float, refresh: bool = False) -> ClusterSnapshot:
        """Return the brokers and the metadata of `topics` (None: all topics)."""

    def list_offsets(
        self, wanted: Mapping[TopicPartition, int], isolation: Isolation, deadline: float
    ) -> dict[TopicPartition, ListedOffset]:
        """Return the offset of each partition at EARLIEST, LATEST or a timestamp (ms)."""

    def list_offsets_once(
        self, wanted: Mapping[TopicPartition, int], isolation: Isolation, deadline: float, *, timeout: float, epoch: int
    ) -> tuple[dict[TopicPartition, ListedOffset], list[str]]:
        """Do as `list_offsets`, with one attempt of at most `timeout` seconds.

        Return the offsets, and a reason for each missing one. A later call with the same partitions and `epoch` returns
        responses that have arrived in between.
        """

    def epoch_ends(
        self, wanted: Mapping[TopicPartition, EpochCheck], deadline: float
    ) -> dict[TopicPartition, EpochEnd]:
        """Return the end offset of the leader epoch of each position. Partitions without a response are absent."""

    def distrust_metadata(self) -> None:
        """Send the next metadata request to another broker if there is one: the last one may have old metadata."""

    def close(self) -> None:
        """Close all connections. A later call connects again."""


def open_cluster(options: ClientOptions, on_change: Callable[[], None] | None = None) -> Cluster:
    """Return the cluster that `options` name, by bootstrap servers or by ZooKeeper. It connects at the first request.

    `on_change()` is called from another thread if ZooKeeper reports a change of brokers or topics.
    """
    if options.bootstrap_servers or options.zookeeper is None:
        return KafkaCluster(options)
    from streamgroup.kafka.cluster.registry_reader import RegistryReader  # noqa: PLC0415  (loads kazoo, which few clusters need)

    return ClusterFromZooKeeper(options, RegistryReader(options.zookeeper, on_change, options.security_protocol))


def kafka_of(cluster: Cluster, deadline: float) -> KafkaCluster:
    """Return the `KafkaCluster` behind `cluster`. Raises ConfigError if its brokers are Kafka 0.7."""
    if isinstance(cluster, ClusterFromZooKeeper):
        cluster = cluster.resolve(deadline)
        if not isinstance(cluster, KafkaCluster):
            raise ConfigError("cannot use groups of the brokers: Kafka 0.7 keeps groups and offsets in ZooKeeper")
    return cast("KafkaCluster", cluster)


def kafka07_of(cluster: Cluster, deadline: float) -> Kafka07Cluster:
    """Return the `Kafka07Cluster` behind `cluster`. Raises ConfigError if its brokers are not Kafka 0.7."""
    resolved = cluster.resolve(deadline) if isinstance(cluster, ClusterFromZooKeeper) else cluster
    if isinstance(resolved, KafkaCluster):
        raise ConfigError(
            "cannot scan for message boundaries: the brokers are Kafka 0.8 or later, where offsets count records"
        )
    return cast("Kafka07Cluster", resolved)
