"""Resolves a subscription to the topics and partitions of a cluster.

It lists topics or partitions, or has a pattern.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from streamgroup.errors import ConfigError
from streamgroup.model import ClusterSnapshot, TopicPartition, name_some
from streamgroup.text import MOST_NAMED, first_of

if TYPE_CHECKING:
    from streamgroup.options.types import FetchOptions, Subscription


def topics_to_ask(subscription: Subscription) -> frozenset[str] | None:
    """Return the topics whose metadata a subscription needs; None means all topics, which a pattern needs."""
    if subscription.pattern is not None:
        return None
    return frozenset(subscription.topics) | {tp.topic for tp in subscription.assign}


def subscribed_topics(subscription: Subscription, snapshot: ClusterSnapshot) -> frozenset[str]:
    """Return the topics of `subscription` in this cluster.

    As in Spark's source, a pattern matches if it occurs anywhere in a topic's name. It never matches internal topics,
    and it may match no topic. Names are returned even if the topic does not exist. Raises ConfigError if matching a
    name takes too long.
    """
    if subscription.pattern is None:
        return topics_to_ask(subscription) or frozenset()
    matches = _matcher(subscription.pattern)
    return frozenset(name for name, topic in snapshot.topics.items() if not topic.internal and matches(name))


def subscribed_partitions(subscription: Subscription, snapshot: ClusterSnapshot) -> list[TopicPartition]:
    """Return the partitions of `subscription` in this cluster, sorted.

    As in Spark's source, partitions of option `assign` that do not exist in an existing topic are skipped;
    `unknown_assigned` returns them. Raises ConfigError if a named topic does not exist, and for Kafka 0.7 if a
    partition of `assign` does not exist, because its records may be on a broker that is offline.
    """
    names = sorted(subscribed_topics(subscription, snapshot))
    require_topics(names, snapshot)
    existing = {TopicPartition(n, p.partition) for n in names for p in snapshot.topics[n].partitions}
    if not subscription.assign:
        return sorted(existing)
    log_format = snapshot.log_format
    missing = unknown_assigned(subscription, existing)
    if missing and log_format.is_broker_bound:
        raise ConfigError(
            f"option 'assign' lists partitions that do not exist: {name_some(missing, log_format.name)}: their "
            f"brokers are not registered, or have fewer partitions of the topic. In Kafka 0.7 only a registered "
            f"broker can be read. Start the broker, or remove its partitions from 'assign'"
        )
    return sorted(existing.intersection(subscription.assign))


def unknown_assigned(subscription: Subscription, existing: Collection[TopicPartition]) -> list[TopicPartition]:
    """Return the partitions of option `assign` that are not in `existing`, sorted."""
    return sorted(set(subscription.assign).difference(existing))


def lacking(subscription: Subscription, snapshot: ClusterSnapshot) -> frozenset[str]:
    """Return the named topics that are missing from the metadata, or of which assigned partitions are missing.

    Empty for Kafka 0.7, in which a partition exists only while its broker is registered.
    """
    if snapshot.log_format.is_broker_bound:
        return frozenset()
    missing = {tp.topic for tp in subscription.assign if snapshot.partition(tp) is None}
    return frozenset(missing.union(name for name in subscription.topics if name not in snapshot.topics))


def is_subscribed(subscription: Subscription, tp: TopicPartition) -> bool:
    """Return whether `subscription` includes `tp`, which need not exist."""
    if subscription.pattern is not None:
        return _matcher(subscription.pattern)(tp.topic)
    return tp in subscription.assign or tp.topic in subscription.topics


def _matcher(pattern: str) -> Callable[[str], bool]:
    from streamgroup.java_regex import compile_java, search_name  # noqa: PLC0415  (most queries have no pattern)

    compiled = compile_java(pattern)

    def matches(topic: str) -> bool:
        try:
            return search_name(compiled, topic) is not None
        except ValueError as error:
            raise ConfigError(f"cannot match topic {topic!r} with subscribePattern {pattern!r}: {error}") from None

    return matches


def require_topics(names: Iterable[str], snapshot: ClusterSnapshot) -> None:
    """Raise ConfigError if a subscribed topic does not exist."""
    if missing := [name for name in names if name not in snapshot.topics]:
        shown = first_of(list(map(repr, missing)), MOST_NAMED, "topic")
        raise ConfigError(
            f"cannot read topic {shown}: the cluster has no such topic. Create it, or correct option 'subscribe' "
            f"(reading never creates topics)"
        )


def of_interest(snapshot: ClusterSnapshot, subscription: Subscription, others: Iterable[str]) -> ClusterSnapshot:
    """Return `snapshot` reduced to the subscribed topics and those in `others`: a cluster may have many more topics."""
    kept = subscribed_topics(subscription, snapshot) | frozenset(others)
    return replace(snapshot, topics={name: topic for name, topic in snapshot.topics.items() if name in kept})


def require_columns(fetch: FetchOptions, snapshot: ClusterSnapshot) -> None:
    """Raise ConfigError if an option adds a column that the records of this cluster do not have.

    Option `includeInnerIndex` is only for Kafka 0.7: since 0.8 each record has its own offset. Option
    `includeDamagedBatches` is not for 0.7, in which a damaged message does not show where the next one begins.
    """
    if fetch.include_damaged_batches and snapshot.log_format.has_shared_offsets:
        raise ConfigError(
            "cannot use includeDamagedBatches: it is for Kafka 0.8 and later. Remove it: a damaged message of Kafka "
            "0.7 fails the query, since it does not show where the next one begins"
        )
    if fetch.include_inner_index and not snapshot.log_format.has_shared_offsets:
        raise ConfigError(
            "cannot use includeInnerIndex: it is for Kafka 0.7, in which the messages of a compressed set share one "
            "offset. Remove it: these brokers give each record its own offset"
        )
