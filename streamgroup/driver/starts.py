"""Looks up start and end offsets in the logs of a cluster."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from streamgroup.cluster.interface import Cluster
from streamgroup.errors import ConfigError
from streamgroup.model import LATEST, ConfiguredOffsets, TopicPartition, name_some
from streamgroup.options.types import Isolation, Subscription
from streamgroup.planning import starts as planned
from streamgroup.planning.starts import RangeBound
from streamgroup.planning.subscription import subscribed_partitions, topics_to_ask


def offsets_of(
    cluster: Cluster,
    deadline: float,
    configured: ConfiguredOffsets,
    partitions: Collection[TopicPartition],
    *,
    isolation: Isolation,
    bound: RangeBound = RangeBound.STREAM_START,
) -> dict[TopicPartition, int]:
    """Return the offsets that `configured` gives to `partitions`.

    Raises ConfigError if `configured` lacks a partition, or no record has the timestamp that it gives.
    """
    lookups = planned.lookups(configured, partitions, bound=bound)
    listed = _listed(cluster, lookups, isolation, deadline, ends=bound is RangeBound.BATCH_END)
    listed |= _listed(cluster, planned.fallbacks(configured, listed), isolation, deadline)
    return planned.resolve(configured, partitions, listed, bound=bound)


def log_ends(
    cluster: Cluster, deadline: float, subscription: Subscription, isolation: Isolation
) -> dict[TopicPartition, int]:
    """Return the ends of all subscribed partitions. Raises ConfigError if a named topic or partition does not exist."""
    snapshot = cluster.snapshot(topics_to_ask(subscription), deadline, refresh=True)
    partitions = subscribed_partitions(subscription, snapshot)
    listed = cluster.list_offsets(dict.fromkeys(partitions, LATEST), isolation, deadline)
    return {tp: found.offset for tp, found in listed.items()}


def _listed(
    cluster: Cluster,
    wanted: Mapping[TopicPartition, int],
    isolation: Isolation,
    deadline: float,
    *,
    ends: bool = False,
) -> dict[TopicPartition, tuple[int, int]]:
    if not wanted:
        return {}
    found = cluster.list_offsets(wanted, isolation, deadline)
    coarse = sorted(tp for tp, at in wanted.items() if at >= 0 and found[tp].coarse)
    if ends and coarse:
        raise ConfigError(
            f"an ending timestamp for {name_some(coarse)}: brokers before 0.10.1 (0.7 among them) know the "
            "times of whole segments only, so reading would end before the last records of that time. Use endingOffsets"
        )
    return {tp: (o.offset, o.timestamp) for tp, o in found.items()}
