"""The two clusters of a mirror, as the driver sees them: topics, partitions, and what their records can hold."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping

from streamgroup.cluster.interface import Cluster, kafka_of, open_cluster
from streamgroup.cluster.topic_changes import BROKERS_DEFAULT, create_topics
from streamgroup.counting import counted
from streamgroup.errors import AuthorizationError, ConfigError, StreamGroupError
from streamgroup.jobs.mirror.columns import Abilities
from streamgroup.jobs.mirror.config import MirrorConfig
from streamgroup.jobs.mirror.plan import MirrorPlan, Side, plan_topic
from streamgroup.logformat import partition_number
from streamgroup.model import ClusterSnapshot, Dialect, TopicPartition
from streamgroup.options.parse import parse_source
from streamgroup.options.parse_sink import parse_sink
from streamgroup.options.types import Subscription
from streamgroup.planning.subscription import (
    is_subscribed,
    subscribed_partitions,
    subscribed_topics,
    topics_to_ask,
)
from streamgroup.wire.messages.produce import ProduceRequest

log = logging.getLogger("streamgroup.jobs")

_FIRST_WITH_TIMESTAMPS = 2
_FIRST_WITH_HEADERS = 3
"""Versions of Produce: those of Kafka 0.10 and 0.11."""


class Clusters:
    """Connections to both clusters. One thread uses them."""

    def __init__(self, config: MirrorConfig) -> None:
        self._config = config
        read, write = parse_source(config.source, streaming=True), parse_sink(config.destination)
        self._subscription = read.subscription
        self._source = open_cluster(read.client)
        self._destination = open_cluster(write.client)

    def close(self) -> None:
        """Close all connections."""
        self._source.close()
        self._destination.close()

    def source(self) -> ClusterSnapshot:
        """List the topics of the source.

        The topics of a query and their plan must come from one listing. A topic that appears after it waits for the
        next one.
        """
        return self._source.snapshot(topics_to_ask(self._subscription), self._source.deadline(), refresh=True)

    def topics(self, source: ClusterSnapshot) -> list[str]:
        """Return the topics to mirror, sorted. Raises ConfigError if a subscribed topic or partition does not exist."""
        subscribed_partitions(self._subscription, source)  # raises where something does not exist
        return sorted(subscribed_topics(self._subscription, source))

    def plan(self, before: MirrorPlan, source: ClusterSnapshot) -> MirrorPlan:
        """Return the plan of all topics to mirror, which keeps what `before` says.

        Creates missing topics if the job file says so. Raises ConfigError if a topic cannot be mirrored.
        """
        names = self._config.renaming.names(self.topics(source))
        destination = self._snapshot_of_destination(names.values())
        refuse_loop(names, self._subscription, source, destination)
        if missing := {ours: theirs for ours, theirs in names.items() if theirs not in destination.topics}:
            destination = self._with_topics(missing, source, destination)
        planned = {}
        for ours, theirs in names.items():
            wanted, held = self._config.placements.of(ours), before.topics.get(ours)
            planned[ours] = plan_topic(side_of(ours, source), side_of(theirs, destination), wanted, held)
        return MirrorPlan({**before.topics, **planned})

    def abilities(self) -> tuple[Abilities, Abilities]:
        """Return what the records of the source and of the destination can hold."""
        return _abilities(self._source), _abilities(self._destination)

    def dialects(self) -> tuple[Dialect, Dialect]:
        """Return the protocols of the source and of the destination."""
        return self.source().dialect, self._snapshot_of_destination(()).dialect

    def _snapshot_of_destination(self, topics: Collection[str]) -> ClusterSnapshot:
        return self._destination.snapshot(topics, self._destination.deadline(), refresh=True)

    def _with_topics(
        self, missing: Mapping[str, str], source: ClusterSnapshot, destination: ClusterSnapshot
    ) -> ClusterSnapshot:
        """Return the destination with the missing topics (source to destination), which it creates."""
        if destination.dialect is Dialect.KAFKA07:
            return destination  # Kafka 0.7 creates a topic when it is written
        counts = {theirs: len(source.topics[ours].partitions) for ours, theirs in missing.items()}
        if not self._config.create:
            wanted = ", ".join(f"{name!r} ({counted(count, 'partition')})" for name, count in sorted(counts.items()))
            raise ConfigError(
                f"the destination has no topic {wanted}. Create it, or let the mirror do it: [topics] create = true"
            )
        deadline = self._destination.deadline()
        try:
            factor = self._config.replication_factor or BROKERS_DEFAULT
            create_topics(kafka_of(self._destination, deadline), counts, deadline, replication_factor=factor)
        except AuthorizationError:
            raise
        except StreamGroupError as error:
            raise ConfigError(
                f"cannot create topics at the destination: {error}. Brokers before 2.4 need [topics] "
                "replication_factor. Before 0.10.1 topics are created in ZooKeeper only: use the brokers' own tools"
            ) from error
        log.info("created topics at the destination: %s", ", ".join(sorted(counts)))
        return self._snapshot_of_destination({*destination.topics, *counts})


def side_of(topic: str, snapshot: ClusterSnapshot) -> Side:
    """Return a topic's partitions. A new topic of Kafka 0.7 has partition 0 of each broker."""
    info = snapshot.topics.get(topic)
    if info is None:
        return Side(topic, sorted(partition_number(broker, 0) for broker in snapshot.brokers), snapshot.log_format)
    return Side(topic, sorted(partition.partition for partition in info.partitions), snapshot.log_format)


def refuse_loop(
    names: Mapping[str, str], subscription: Subscription, source: ClusterSnapshot, destination: ClusterSnapshot
) -> None:
    """Raise ConfigError if the mirror would read what it writes. `names` are topics at the destination by source.

    The destination topics may not exist yet: a pattern is tried on their names, before any of them is created.
    """
    addresses = [{(broker.host, broker.port) for broker in side.brokers.values()} for side in (source, destination)]
    if not addresses[0] & addresses[1]:
        return
    copies = sorted(names.values())
    if loops := [copy for copy in copies if copy in names or is_subscribed(subscription, TopicPartition(copy, 0))]:
        raise ConfigError(
            f"cannot mirror into topic {loops[0]!r}: source and destination are one cluster, and the mirror reads that "
            "topic. Give the copy another name in [rename], which no subscribed topic has. A subscribePattern matches "
            "anywhere in a name, unless it begins with ^"
        )


def _abilities(cluster: Cluster) -> Abilities:
    deadline = cluster.deadline()
    if cluster.snapshot((), deadline).dialect is Dialect.KAFKA07:
        return Abilities(keys=False, timestamps=False, headers=False)
    version = kafka_of(cluster, deadline).newest_version(ProduceRequest, deadline)
    return Abilities(timestamps=version >= _FIRST_WITH_TIMESTAMPS, headers=version >= _FIRST_WITH_HEADERS)
