"""Resolves a subscription in a cluster: topics by name or by pattern, or single partitions."""

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
    """Return the topics whose metadata a subscription needs; None is all topics, which a pattern needs."""
    if subscription.pattern is not None:
        return None
    return frozenset(subscription.topics) | {tp.topic for tp in subscription.assign}


def subscribed_topics(subscription: Subscription, snapshot: ClusterSnapshot) -> frozenset[str]:
    """Return the topics of `subscription` in this cluster.

    As in Spark's source a pattern matches if it occurs anywhere in the name. It matches existing topics, never internal
    ones, and maybe none. Names are returned unchecked. Raises ConfigError if the search in a name takes too long.
    """
    if subscription.pattern is None:
        return topics_to_ask(subscription) or frozenset()
    matches = _matcher(subscription.pattern)
    return frozenset(name for name, topic in snapshot.topics.items() if not topic.internal and matches(name))


def subscribed_partitions(subscription: Subscription, snapshot: ClusterSnapshot) -> list[TopicPartition]:
    """Return the partitions of `subscription` in this cluster, sorted.

    As in Spark's source, assigned partitions that do not exist in an existing topic are left out; `unknown_assigned`
    returns them. Raises ConfigError if a named topic does not exist, and for Kafka 0.7 if an assigned partition does
    not: its records may be on a broker that is offline.
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
            f"assign names partitions that do not exist: {name_some(missing, log_format.name)}: their brokers are "
            "not registered, or have fewer partitions of the topic. In Kafka 0.7 only a registered broker can be "
            "read: start it, or leave its partitions out"
        )
    return sorted(existing.intersection(subscription.assign))


def unknown_assigned(subscription: Subscription, existing: Collection[TopicPartition]) -> list[TopicPartition]:
    """Return the partitions that `assign` names and that are not among `existing`, sorted."""
    return sorted(set(subscription.assign).difference(existing))


def lacking(subscription: Subscription, snapshot: ClusterSnapshot) -> frozenset[str]:
    """Return the named topics that the metadata lacks, wholly or some of the assigned partitions.

    Empty for Kafka 0.7, whose partitions come and go with their brokers.
    """
    if snapshot.log_format.is_broker_bound:
        return frozenset()
    missing = {tp.topic for tp in subscription.assign if snapshot.partition(tp) is None}
    return frozenset(missing.union(name for name in subscription.topics if name not in snapshot.topics))


def is_subscribed(subscription: Subscription, tp: TopicPartition) -> bool:
    """Return whether `subscription` covers `tp`, which need not exist."""
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
            f"the cluster has no topic {shown}: create it, or correct subscribe (topics are never created by reading)"
        )


def of_interest(snapshot: ClusterSnapshot, subscription: Subscription, others: Iterable[str]) -> ClusterSnapshot:
    """Return `snapshot` with only the topics that are subscribed or in `others`: a cluster may have many more."""
    kept = subscribed_topics(subscription, snapshot) | frozenset(others)
    return replace(snapshot, topics={name: topic for name, topic in snapshot.topics.items() if name in kept})


def require_columns(fetch: FetchOptions, snapshot: ClusterSnapshot) -> None:
    """Raise ConfigError if an option asks for a column that the records of this cluster do not have.

    Since Kafka 0.8 each record has its own offset, so `inner` is for 0.7 alone. A damaged message of 0.7 does not show
    where the next one begins, so `damage` is not for 0.7.
    """
    if fetch.include_damaged_batches and snapshot.log_format.has_shared_offsets:
        raise ConfigError(
            "includeDamagedBatches is for Kafka 0.8 and later. Remove it: a damaged message of Kafka 0.7 fails the "
            "query, since it does not show where the next one begins"
        )
    if fetch.include_inner_index and not snapshot.log_format.has_shared_offsets:
        raise ConfigError(
            "includeInnerIndex is for Kafka 0.7, where the messages of a compressed set share their offset. Remove it: "
            "these brokers give each record its own offset"
        )
