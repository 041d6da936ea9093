"""Plans a batch read (`spark.read`): resolves its start and end offsets, and makes the tasks that read between them."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterable, Mapping
from contextlib import closing
from dataclasses import replace

from streamgroup.coordinator.log_output import NOTES
from streamgroup.coordinator.planning.loss import BELIEVED_AFTER_S, LOOK_EVERY_S
from streamgroup.coordinator.planning.packing import pack
from streamgroup.coordinator.planning.starts import (
    RangeBound,
    fallbacks,
    lookups,
    refuse_crossed,
    resolve,
    unread,
    within,
)
from streamgroup.coordinator.planning.subscription import (
    lacking,
    require_columns,
    subscribed_partitions,
    subscribed_topics,
    topics_to_ask,
    unknown_assigned,
)
from streamgroup.coordinator.run.offline_brokers import require_brokers
from streamgroup.coordinator.threads.boundaries import require_boundaries
from streamgroup.errors import ConfigError, DataLossError, TransportError
from streamgroup.kafka.cluster.interface import Cluster, open_cluster
from streamgroup.kafka.net.handshake import RELEASE_MEMORY
from streamgroup.kafka.net.resolve import require_resolvable
from streamgroup.model import (
    EARLIEST,
    LATEST,
    NO_TOPIC_ID,
    UNKNOWN_EPOCH,
    Broker,
    ClusterSnapshot,
    ConfiguredOffsets,
    FetchRange,
    FetchTask,
    LogRange,
    OffsetRange,
    Position,
    TopicPartition,
    name_some,
)
from streamgroup.options.types import Isolation, SourceOptions, Subscription
from streamgroup.text import MOST_NAMED, first_of, host_port

log = logging.getLogger("streamgroup")


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
    wanted = lookups(configured, partitions, bound=bound)
    listed = _listed(cluster, wanted, isolation, deadline, ends=bound is RangeBound.BATCH_END)
    listed |= _listed(cluster, fallbacks(configured, listed), isolation, deadline)
    return resolve(configured, partitions, listed, bound=bound)


def log_ends(
    cluster: Cluster, deadline: float, subscription: Subscription, isolation: Isolation
) -> dict[TopicPartition, int]:
    """Return the log end offsets of all subscribed partitions.

    Raises ConfigError if a named topic or partition is missing.
    """
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
            f"cannot resolve an ending timestamp for {name_some(coarse)}: brokers before 0.10.1 (Kafka 0.7, too) "
            f"store timestamps only for segments, so the read would end before the last records of that time. Use "
            f"endingOffsets"
        )
    return {tp: (o.offset, o.timestamp) for tp, o in found.items()}


def plan_batch(options: SourceOptions) -> list[FetchTask]:
    """Plan the tasks of `spark.read`, with up to `fetchOffset.numRetries` retries within `default.api.timeout.ms`.

    Each attempt gets an equal share of that timeout. Raises ConfigError if topics or servers do not exist,
    DataLossError for lost offsets, and TransportError if no attempt reached the brokers.
    """
    NOTES.log(options.notes)
    timeout_ms = options.client.default_api_timeout_ms // (options.fetch_offset_retries + 1)
    require_resolvable(options.client.bootstrap_servers, timeout_ms / 1000)
    for _ in range(options.fetch_offset_retries):
        try:
            return _plan(options, timeout_ms)
        except TransportError as error:
            log.warning("%s; trying again", error)
            time.sleep(options.fetch_offset_retry_interval_ms / 1000)
    return _plan(options, timeout_ms)


def _plan(options: SourceOptions, timeout_ms: int) -> list[FetchTask]:
    with closing(open_cluster(options.client)) as cluster:
        deadline = cluster.deadline(timeout_ms)
        snapshot = _metadata(cluster, options.subscription, deadline)
        require_columns(options.fetch, snapshot)
        partitions = subscribed_partitions(options.subscription, snapshot)
        if unknown := unknown_assigned(options.subscription, partitions):
            log.warning(
                "option 'assign' lists partitions that do not exist: %s. The batch read skips them", name_some(unknown)
            )
        require_brokers(
            subscribed_topics(options.subscription, snapshot),
            snapshot,
            fail_on_data_loss=options.fail_on_data_loss,
            warn=log.warning,
        )
        assert options.ending is not None
        for bound, configured in ((RangeBound.BATCH_START, options.starting), (RangeBound.BATCH_END, options.ending)):
            _require_read(bound.option(configured), configured, partitions, snapshot)
        isolation = options.fetch.isolation
        starts = offsets_of(
            cluster, deadline, options.starting, partitions, isolation=isolation, bound=RangeBound.BATCH_START
        )
        ends = offsets_of(
            cluster, deadline, options.ending, partitions, isolation=isolation, bound=RangeBound.BATCH_END
        )
        refuse_crossed(options.starting, options.ending, starts, ends)
        logs = _logs(cluster, deadline, starts)
        kept = _within_logs(starts, ends, logs, options)
        if snapshot.log_format.has_boundaries:
            require_boundaries(cluster, kept, logs, deadline)
        return tasks_of(kept, snapshot, options, logs=logs)


def _metadata(cluster: Cluster, subscription: Subscription, deadline: float) -> ClusterSnapshot:
    """Return metadata with the named topics. A broker that lags has `BELIEVED_AFTER_S` to report them."""
    snapshot = cluster.snapshot(topics_to_ask(subscription), deadline)
    for _ in range(int(BELIEVED_AFTER_S / LOOK_EVERY_S)):
        if not lacking(subscription, snapshot):
            break
        time.sleep(LOOK_EVERY_S)
        snapshot = cluster.snapshot(topics_to_ask(subscription), deadline, refresh=True)
    return snapshot


def _require_read(
    option: str, configured: ConfiguredOffsets, partitions: Collection[TopicPartition], snapshot: ClusterSnapshot
) -> None:
    """Raise ConfigError if the option gives an offset of a partition that cannot be read."""
    if not (others := unread(configured, partitions)):
        return
    log_format = snapshot.log_format
    names = name_some(others, log_format.name)
    if log_format.is_broker_bound:
        raise ConfigError(
            f"option '{option}' lists partitions that cannot be read: {names}. They are not subscribed, or their "
            f"broker is not registered in ZooKeeper or has fewer partitions. Start that broker, or remove them from "
            f"the option"
        )
    raise ConfigError(
        f"option '{option}' lists partitions that do not exist or are not subscribed: {names}. Remove them from the "
        f"option, or correct the subscription"
    )


def tasks_of(
    wanted: Iterable[OffsetRange],
    snapshot: ClusterSnapshot,
    options: SourceOptions,
    planned: Mapping[TopicPartition, Position] | None = None,
    logs: Mapping[TopicPartition, LogRange] | None = None,
    *,
    packed_offsets: int = 0,
) -> list[FetchTask]:
    """Return the tasks that read `wanted`: packed or split ranges, with each leader's address, topic id and epoch.

    Small ranges share a task of up to `packed_offsets` offsets. If `planned` has a topic id for a partition, the task
    uses it, because a replay must not read a recreated topic of the same name (R8). `logs` has the segment starts of
    each log: in Kafka 0.7 a range may be split only there.
    """
    located = []
    for range_ in wanted:
        topic = snapshot.topics.get(range_.partition.topic)
        position = (planned or {}).get(range_.partition)
        planned_id = position.topic_id if position else NO_TOPIC_ID
        info = snapshot.partition(range_.partition)
        located.append(
            FetchRange(
                range_,
                _leader(range_.partition, snapshot),
                topic_id=planned_id or (topic.topic_id if topic else NO_TOPIC_ID),
                leader_epoch=info.leader_epoch if info else UNKNOWN_EPOCH,
            )
        )
    tasks = pack(
        located,
        snapshot.log_format,
        min_partitions=options.split.min_partitions,
        max_records_per_partition=options.split.max_records_per_partition,
        packed_offsets=packed_offsets,
        segments={tp: log.segments for tp, log in (logs or {}).items()},
    )
    # Executors do not read ZooKeeper. If the options name no brokers, the tasks do.
    brokers = () if options.client.bootstrap_servers else tuple((b.host, b.port) for b in snapshot.brokers.values())
    return [replace(task, dialect=snapshot.dialect, brokers=brokers, releases=_releases(task)) for task in tasks]


def _leader(tp: TopicPartition, snapshot: ClusterSnapshot) -> Broker | None:
    """Return the broker that serves `tp`.

    A broker of Kafka 0.7 that has lost the log does not register the topic; the partition's number names the broker.
    """
    only = snapshot.log_format.broker_of(tp.partition)
    return snapshot.leader(tp) if only is None else snapshot.brokers.get(only)


def _releases(task: FetchTask) -> tuple[tuple[str, str], ...]:
    """Return the known releases of the task's leaders, so that the task need not probe for them."""
    leaders = (range_.leader for range_ in task.ranges if range_.leader is not None)
    return RELEASE_MEMORY.known_releases(host_port(leader.host, leader.port) for leader in leaders)


def _logs(cluster: Cluster, deadline: float, starts: Collection[TopicPartition]) -> dict[TopicPartition, LogRange]:
    earliest = cluster.list_offsets(dict.fromkeys(starts, EARLIEST), Isolation.READ_UNCOMMITTED, deadline)
    # Up to the high watermarks: an open transaction is not a loss (R8), and the tasks wait for its end.
    latest = cluster.list_offsets(dict.fromkeys(starts, LATEST), Isolation.READ_UNCOMMITTED, deadline)
    return {
        tp: LogRange(min(earliest[tp].offset, latest[tp].offset), latest[tp].offset, earliest[tp].segments)
        for tp in starts
    }


def _within_logs(
    starts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    logs: Mapping[TopicPartition, LogRange],
    options: SourceOptions,
) -> list[OffsetRange]:
    """Return the parts of the ranges that the logs contain.

    Raises DataLossError for offsets outside the logs; with `failOnDataLoss=false` they are skipped.
    """
    kept, lost = within(starts, ends, logs)
    if lost and options.fail_on_data_loss:
        partitions = first_of(lost, MOST_NAMED, "partition", "; ")
        raise DataLossError(
            f"cannot read the requested offsets: they are out of range for {partitions}. Set offsets that the logs "
            f"contain, or failOnDataLoss=false to read only the records that exist"
        )
    return kept
