"""The two clusters of a mirror: their topics and partitions, the fields of records, and the creation of topics."""

from __future__ import annotations

import logging
import math
from collections.abc import Collection, Iterator, Mapping

from streamgroup.coordinator.planning.subscription import (
    is_subscribed,
    subscribed_partitions,
    subscribed_topics,
    topics_to_ask,
)
from streamgroup.errors import AuthorizationError, ConfigError, StreamGroupError, UnsupportedVersionError
from streamgroup.jobs.following import Say
from streamgroup.jobs.mirror.columns import Abilities
from streamgroup.jobs.mirror.config import MirrorConfig
from streamgroup.jobs.mirror.plan import MirrorPlan, Side, plan_topic
from streamgroup.kafka.cluster.changes import BROKERS_DEFAULT, create_topics, refused_configs
from streamgroup.kafka.cluster.configs import TopicConfig, topic_configs
from streamgroup.kafka.cluster.interface import Cluster, kafka_of, open_cluster
from streamgroup.kafka.cluster.kafka import KafkaCluster
from streamgroup.kafka.wire.messages.produce import ProduceRequest
from streamgroup.logformat import partition_number
from streamgroup.model import ClusterSnapshot, Dialect, TopicPartition
from streamgroup.options.parse import parse_sink, parse_source
from streamgroup.options.types import Subscription
from streamgroup.text import MOST_NAMED, counted, first_of

log = logging.getLogger("streamgroup.jobs")

_FIRST_WITH_TIMESTAMPS = 2
_FIRST_WITH_HEADERS = 3
"""Versions of Produce: those of Kafka 0.10 and 0.11."""

Configs = Mapping[str, TopicConfig]
"""The configurations of a topic by name."""

_NOT_COPIED = (
    "leader.replication.throttled.replicas",
    "follower.replication.throttled.replicas",
    # The replicas of the copy: there may be fewer than the source's min.insync.replicas.
    "min.insync.replicas",
    "unclean.leader.election.enable",
    # The broker would refuse records that are old by now.
    "message.timestamp.difference.max.ms",
    "message.timestamp.before.max.ms",
    "message.timestamp.after.max.ms",
    # Tiered storage is of the cluster.
    "remote.storage.enable",
    "remote.log.copy.disable",
    "remote.log.delete.on.disable",
    "local.retention.ms",
    "local.retention.bytes",
    "message.format.version",
)
"""Configurations of a source topic that a created topic does not get."""

_REMOVES, _REFUSES, _RETIMES = (
    "can remove records of the copy that the source keeps",
    "can refuse records that the source has",
    "gives the records of the copy other timestamps",
)
_COMPARED = {
    "cleanup.policy": _REMOVES,
    "retention.ms": _REMOVES,
    "retention.bytes": _REMOVES,
    "max.message.bytes": _REFUSES,
    "message.timestamp.difference.max.ms": _REFUSES,
    "message.timestamp.before.max.ms": _REFUSES,
    "message.timestamp.after.max.ms": _REFUSES,
    "message.timestamp.type": _RETIMES,
}
"""Configurations that decide which records a copy has, and the effect if the destination's differ. The destination must
accept those that are set on the source topic."""


class Clusters:
    """Connections to both clusters. One thread uses them."""

    def __init__(self, config: MirrorConfig, say: Say = log.info) -> None:
        self._config = config
        self._say = say
        read, write = parse_source(config.source, streaming=True), parse_sink(config.destination)
        self._subscription = read.subscription
        self._source = open_cluster(read.client)
        self._destination = open_cluster(write.client)

    def close(self) -> None:
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
        """Return the plan of all topics to mirror, which keeps the partitions in `before`.

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
        return _abilities(self._source), _abilities(self._destination)

    def dialects(self) -> tuple[Dialect, Dialect]:
        return self.source().dialect, self._snapshot_of_destination(()).dialect

    def refuse_two_clusters(self) -> None:
        """Raise ConfigError if source and destination are two clusters, so that no transaction has the offsets."""
        source, destination = self.source(), self._snapshot_of_destination(())
        if not is_one_cluster(source, destination):
            ids = " and ".join(side.cluster_id or "unknown" for side in (source, destination))
            raise ConfigError(
                f"cannot mirror exactly once between two clusters (ids {ids}): a transaction of the destination cannot "
                "contain the offsets of a group in another cluster. Nothing was written. Remove [mirror] guarantee"
            )

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
            named = [f"{name!r} ({counted(count, 'partition')})" for name, count in sorted(counts.items())]
            lacking = first_of(named, MOST_NAMED, "topic")
            raise ConfigError(
                f"the destination has no topic {lacking}. Create it, or let the mirror do it: [topics] create = true"
            )
        configs = self._configs_of_source(missing, source)
        ours = {theirs: configs[name] for name, theirs in missing.items() if name in configs}
        deadline = self._destination.deadline()
        try:
            cluster, factor = kafka_of(self._destination, deadline), self._config.replication_factor or BROKERS_DEFAULT
            wanted = {topic: _own(configs, copied=True) for topic, configs in ours.items()}
            optional = {topic: _without(configs, _COMPARED) for topic, configs in wanted.items()}
            refused = refused_configs(cluster, counts, deadline, replication_factor=factor, configs=optional)
            wanted = {topic: _without(configs, refused.get(topic, ())) for topic, configs in wanted.items()}
            create_topics(cluster, counts, deadline, replication_factor=factor, configs=wanted)
        except AuthorizationError:
            raise
        except StreamGroupError as error:
            raise ConfigError(
                f"cannot create topics at the destination: {error}. Brokers before 2.4 need [topics] "
                "replication_factor. Before 0.10.1 topics are created in ZooKeeper only: use the brokers' own tools. "
                "If the destination refuses a configuration of the source topic, create the topic with another value"
            ) from error
        self._say(f"created topics at the destination: {first_of(sorted(counts), MOST_NAMED, 'topic')}")
        self._say_what_differs(ours, refused, cluster)
        if not ours:
            self._say(
                "warning: the source is older than Kafka 0.11 and does not describe the configuration of topics, so "
                "the created topics have the defaults of the destination. Set cleanup.policy, retention.ms and "
                "max.message.bytes on them as at the source"
            )
        return self._snapshot_of_destination({*destination.topics, *counts})

    def _configs_of_source(self, topics: Collection[str], source: ClusterSnapshot) -> dict[str, dict[str, TopicConfig]]:
        """Return the configurations of topics of the source. Empty before Kafka 0.11, which does not describe them."""
        if source.dialect is Dialect.KAFKA07:
            return {}
        deadline = self._source.deadline()
        try:
            return topic_configs(kafka_of(self._source, deadline), topics, deadline)
        except UnsupportedVersionError:
            return {}

    def _say_what_differs(
        self, ours: Mapping[str, Configs], refused: Mapping[str, Mapping[str, str]], cluster: KafkaCluster
    ) -> None:
        """Report the configurations of its source topic (`ours`) that a created topic does not have."""
        lacking: dict[str, list[str]] = {}
        for topic, configs in ours.items():
            left = _own(configs, copied=False)
            left |= {name: f"{configs[name].value} ({why})" for name, why in refused.get(topic, {}).items()}
            for name, value in sorted(left.items()):
                lacking.setdefault(f"{name}={value}", []).append(topic)
        for config, names in lacking.items():
            self._say(f"{config} of the source is not copied to {first_of(names, MOST_NAMED, 'topic')}")
        try:
            theirs = topic_configs(cluster, ours, self._destination.deadline()) if ours else {}
        except StreamGroupError as error:
            self._say(f"warning: cannot compare the configuration of the created topics with the source's: {error}")
            return
        topics: dict[tuple[str, str, str], list[str]] = {}
        for topic, configs in theirs.items():
            for difference in differing(ours[topic], configs):
                topics.setdefault(difference, []).append(topic)
        for (name, source, destination), names in topics.items():
            self._say(
                f"warning: {name} is {source} at the source and {destination} at the destination, which "
                f"{_COMPARED[name]}: {first_of(sorted(names), MOST_NAMED, 'topic')}. Set {name} on them"
            )


def _own(configs: Configs, *, copied: bool) -> dict[str, str]:
    """Return the configurations that are set on a topic, those that are copied or the others."""
    return {
        name: config.value for name, config in configs.items() if config.is_own and (name in _NOT_COPIED) is not copied
    }


def _without(configs: Mapping[str, str], names: Collection[str]) -> dict[str, str]:
    return {name: value for name, value in configs.items() if name not in names}


def differing(source: Configs, destination: Configs) -> Iterator[tuple[str, str, str]]:
    """Yield the configurations by which a copy keeps or accepts fewer records than its source, with both values."""
    ours, theirs = _policies(source), _policies(destination)
    for name in _COMPARED:
        if name not in source or name not in destination:
            continue  # a release has no such configuration
        values = source[name].value, destination[name].value
        match name:
            case "cleanup.policy":
                differs = bool(theirs - ours)
            case "message.timestamp.type":
                differs = values[0] != values[1]
            case "retention.ms" | "retention.bytes":
                differs = "delete" in ours & theirs and _limit(values[1]) < _limit(values[0])
            case _:
                differs = _limit(values[1]) < _limit(values[0])
        if differs:
            yield name, *values


def _policies(configs: Configs) -> set[str]:
    return (
        {word.strip() for word in configs["cleanup.policy"].value.split(",")} if "cleanup.policy" in configs else set()
    )


def _limit(value: str) -> float:
    """Return a limit as a number. -1 is no limit."""
    return int(value) if value.isascii() and value.isdigit() else math.inf


def side_of(topic: str, snapshot: ClusterSnapshot) -> Side:
    """Return a topic's partitions. A new topic of Kafka 0.7 has partition 0 of each broker."""
    info = snapshot.topics.get(topic)
    if info is None:
        return Side(topic, sorted(partition_number(broker, 0) for broker in snapshot.brokers), snapshot.log_format)
    return Side(topic, sorted(partition.partition for partition in info.partitions), snapshot.log_format)


def is_one_cluster(source: ClusterSnapshot, destination: ClusterSnapshot) -> bool:
    """Return whether both have one cluster id; brokers before 0.10.1 have none, so their addresses are compared."""
    if source.cluster_id is not None and destination.cluster_id is not None:
        return source.cluster_id == destination.cluster_id
    addresses = [{(broker.host, broker.port) for broker in side.brokers.values()} for side in (source, destination)]
    return bool(addresses[0] & addresses[1])


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
