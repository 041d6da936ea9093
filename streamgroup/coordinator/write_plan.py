"""Plans a write: finds its brokers, in ZooKeeper if the options name one. Tasks do not read ZooKeeper."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from contextlib import closing

from streamgroup.errors import ConfigError
from streamgroup.kafka.cluster.interface import Cluster, open_cluster
from streamgroup.kafka.cluster.kafka07 import Kafka07Cluster
from streamgroup.kafka.cluster.registered import ClusterFromZooKeeper
from streamgroup.kafka.producer.kafka07 import MAX_SET_BYTES, Kafka07Config, Kafka07Target
from streamgroup.options.types import ClientOptions, SinkOptions


def plan_write(
    options: SinkOptions, opened: Callable[[ClientOptions], Cluster] = open_cluster
) -> tuple[SinkOptions, Kafka07Target | None]:
    """Return the options for the tasks of one write, with the brokers in place of ZooKeeper.

    The second value is the target cluster if it runs Kafka 0.7, otherwise None. Waits up to `max.block.ms` until
    ZooKeeper lists brokers. Raises ConfigError for options that the cluster does not support, and TransportError if
    ZooKeeper or all brokers cannot be reached.
    """
    if options.client.zookeeper is None:
        _refuse_verify(options)
        return options, None
    with closing(opened(options.client)) as cluster:
        assert isinstance(cluster, ClusterFromZooKeeper)
        return plan_registered(options, cluster)


def plan_registered(options: SinkOptions, cluster: ClusterFromZooKeeper) -> tuple[SinkOptions, Kafka07Target | None]:
    """Do the same as `plan_write` with a cluster that is already open."""
    deadline = cluster.deadline(options.producer.max_block_ms)
    found = cluster.resolve(deadline)
    client = dataclasses.replace(options.client, zookeeper=None)
    if isinstance(found, Kafka07Cluster):
        config = config07(options)
        topics = None if options.topic is None else [options.topic]
        snapshot = found.snapshot(topics, deadline, refresh=True)
        return dataclasses.replace(options, client=client), Kafka07Target(snapshot, config)
    _refuse_verify(options)
    client = dataclasses.replace(client, bootstrap_servers=found.options.bootstrap_servers)
    return dataclasses.replace(options, client=client), None


def config07(options: SinkOptions) -> Kafka07Config:
    """Return the settings for writing to Kafka 0.7. Raises ConfigError for options that Kafka 0.7 does not support."""
    client, producer = options.client, options.producer
    return Kafka07Config(
        max_message_size=producer.max_message_size,
        batch_size=min(producer.batch_size, MAX_SET_BYTES),
        max_request_size=producer.max_request_size,
        buffer_memory=producer.buffer_memory,
        codec=producer.compression,
        compression_level=producer.compression_level,
        max_in_flight=producer.max_in_flight,
        request_timeout_ms=client.request_timeout_ms,
        delivery_timeout_ms=producer.delivery_timeout_ms,
        retries=producer.retries,
        retry_backoff_ms=client.retry_backoff_ms,
        retry_backoff_max_ms=client.retry_backoff_max_ms,
        verify=options.verify,
        verify_wait_ms=options.verify_wait_ms,
    )


def _refuse_verify(options: SinkOptions) -> None:
    if options.verify:
        raise ConfigError(
            "cannot write with verify=true: it is for Kafka 0.7 and zookeeper.connect. Leave "
            "it out: later brokers acknowledge each write"
        )
