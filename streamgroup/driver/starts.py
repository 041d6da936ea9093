"""Looks up start and end offsets in the logs of a cluster."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from streamgroup.cluster.interface import Cluster
from streamgroup.driver.logs.subscription import subscribed_partitions, topics_to_ask
from streamgroup.errors import ConfigError, DataLossError
from streamgroup.group.positions import Origin
from streamgroup.model import EARLIEST, LATEST, OffsetSpec, TopicPartition
from streamgroup.options.types import Isolation, Subscription
from streamgroup.planning import starts as planned
from streamgroup.planning.starts import Bound
from streamgroup.remediation import OffsetLocation, how_to_reset
from streamgroup.run.run_events import Loss


def offsets_of(
    cluster: Cluster,
    deadline: float,
    spec: OffsetSpec,
    partitions: Collection[TopicPartition],
    *,
    isolation: Isolation,
    bound: Bound = Bound.STREAM_START,
) -> dict[TopicPartition, int]:
    """Return the offsets that `spec` gives to `partitions`.

    Raises ConfigError if `spec` lacks a partition, or no record has the timestamp that it gives.
    """
    lookups = planned.lookups(spec, partitions, bound=bound)
    listed = _listed(cluster, lookups, isolation, deadline, ends=bound is Bound.BATCH_END)
    listed |= _listed(cluster, planned.fallbacks(spec, listed), isolation, deadline)
    return planned.resolve(spec, partitions, listed, bound=bound)


def gained_offsets(
    cluster: Cluster,
    deadline: float,
    *,
    group: str,
    spec: OffsetSpec,
    origins: Mapping[TopicPartition, Origin],
    isolation: Isolation,
) -> tuple[dict[TopicPartition, int], list[Loss]]:
    """Return start offsets for gained partitions without a known position, and the records that may be lost.

    All but those of the founding generation start at earliest (R7, R8). The data-loss policy decides about the losses.
    """
    founding = [tp for tp, origin in origins.items() if origin is Origin.STARTING]
    rest = [tp for tp, origin in origins.items() if origin is not Origin.STARTING]
    offsets = offsets_of(cluster, deadline, spec, founding, isolation=isolation) if founding else {}
    earliest = cluster.list_offsets(dict.fromkeys(rest, EARLIEST), isolation, deadline) if rest else {}
    offsets |= {tp: listed.offset for tp, listed in earliest.items()}
    losses = [
        _loss(group, tp, origins[tp], offsets[tp])
        for tp in sorted(rest)
        if offsets[tp] > 0 or origins[tp] is Origin.RECREATED
    ]
    return offsets, losses


def refuse(location: OffsetLocation, losses: Collection[Loss]) -> DataLossError:
    """Return the error that ends a query for `losses`. `location` is where an operator can reset its offsets."""
    other = f"; or {how_to_reset(location)}" if location.group else ""
    return DataLossError("\n".join(loss.text for loss in losses) + f"\nTo go on: set failOnDataLoss=false{other}")


def log_ends(
    cluster: Cluster, deadline: float, subscription: Subscription, isolation: Isolation
) -> dict[TopicPartition, int]:
    """Return the ends of all subscribed partitions. Raises ConfigError if a named topic or partition does not exist."""
    snapshot = cluster.snapshot(topics_to_ask(subscription), deadline, refresh=True)
    partitions = subscribed_partitions(subscription, snapshot)
    listed = cluster.list_offsets(dict.fromkeys(partitions, LATEST), isolation, deadline)
    return {tp: found.offset for tp, found in listed.items()}


def _loss(group: str, tp: TopicPartition, origin: Origin, offset: int) -> Loss:
    who = f"group {group!r}, {tp}" if group else str(tp)
    if origin is Origin.RECREATED:
        text = f"{who}: the topic was deleted and created again; reading starts at its offset {offset}"
        return Loss(tp, text, "the topic was deleted and created again", to=offset)
    unknown = (
        "the group has no committed offset for it (a new partition, or the commit has expired)"
        if group
        else "the checkpoint has no offset for it (a new partition, or it was another member's)"
    )
    text = f"{who}: {unknown}, and its log starts at {offset}: records below may have been missed"
    return Loss(tp, text, "no committed offset, and the log starts above 0", to=offset, count=offset)


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
            f"an ending timestamp for {', '.join(map(str, coarse))}: brokers before 0.10.1 (0.7 among them) know the "
            "times of whole segments only, and reading would end before records that are meant. Use endingOffsets"
        )
    return {tp: (o.offset, o.timestamp) for tp, o in found.items()}
