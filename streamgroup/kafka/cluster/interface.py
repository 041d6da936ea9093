"""The interface of a cluster, and the cluster that the options name: by bootstrap servers or by ZooKeeper."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Protocol, cast

from streamgroup.errors import ConfigError
from streamgroup.kafka.cluster.kafka import KafkaCluster
from streamgroup.kafka.cluster.kafka07 import Kafka07Cluster
from streamgroup.kafka.cluster.registered import ClusterFromZooKeeper
from streamgroup.kafka.cluster.requests import EpochCheck, EpochEnd, ListedOffset
from streamgroup.model import ClusterSnapshot, TopicPartition
from streamgroup.options.types import ClientOptions, Isolation


class Cluster(Protocol):
    """The operations of a cluster that planning uses, in either dialect. One thread uses it."""

    def deadline(self, timeout_ms: int | None = None) -> float:
        """Return the time `timeout_ms` from now, by default `default_api_timeout_ms`, on the cluster's clock."""

    def snapshot(self, topics: Collection[str] | None, deadline: float, refresh: bool = False) -> ClusterSnapshot:
        """Return the cluster and `topics` (None: all)."""

    def list_offsets(
        self, wanted: Mapping[TopicPartition, int], isolation: Isolation, deadline: float
    ) -> dict[TopicPartition, ListedOffset]:
        """Return the offset of each partition at EARLIEST, LATEST or a timestamp (ms)."""

    def list_offsets_once(
        self, wanted: Mapping[TopicPartition, int], isolation: Isolation, deadline: float, *, timeout: float, epoch: int
    ) -> tuple[dict[TopicPartition, ListedOffset], list[str]]:
        """Do as `list_offsets` in one attempt of `timeout` seconds.

        Return the offsets and the reasons for missing ones.
        """

    def epoch_ends(
        self, wanted: Mapping[TopicPartition, EpochCheck], deadline: float
    ) -> dict[TopicPartition, EpochEnd]:
        """Return the ends of the leader epochs of positions; partitions without a response are absent."""

    def distrust_metadata(self) -> None:
        """Send the next metadata request to another broker, if there is one: the last one may lag."""

    def close(self) -> None:
        """Close all connections. A later call connects again."""


def open_cluster(options: ClientOptions, on_change: Callable[[], None] | None = None) -> Cluster:
    """Return the cluster that `options` name. It connects at the first request.

    Another thread calls `on_change` when brokers or topics that were read in ZooKeeper have changed.
    """
    if options.bootstrap_servers or options.zookeeper is None:
        return KafkaCluster(options)
    from streamgroup.kafka.cluster.registry_reader import RegistryReader  # noqa: PLC0415  (loads kazoo, which few clusters need)

    return ClusterFromZooKeeper(options, RegistryReader(options.zookeeper, on_change, options.security_protocol))


def kafka_of(cluster: Cluster, deadline: float) -> KafkaCluster:
    """Return `cluster` as one of Kafka 0.8 or later. Raises ConfigError for Kafka 0.7."""
    resolved = cluster.resolve(deadline) if isinstance(cluster, ClusterFromZooKeeper) else cluster
    if isinstance(resolved, Kafka07Cluster):
        raise ConfigError("cannot use groups of the brokers: Kafka 0.7 keeps groups and offsets in ZooKeeper")
    return cast("KafkaCluster", resolved)


def kafka07_of(cluster: Cluster, deadline: float) -> Kafka07Cluster:
    """Return `cluster` as one of Kafka 0.7. Raises ConfigError for a later one."""
    resolved = cluster.resolve(deadline) if isinstance(cluster, ClusterFromZooKeeper) else cluster
    if not isinstance(resolved, Kafka07Cluster):
        raise ConfigError(
            "cannot scan for message boundaries: the brokers are not of Kafka 0.7, and their offsets are not bytes"
        )
    return resolved
