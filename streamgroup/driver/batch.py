"""Planning of a batch read: the ranges between two sets of offsets, as tasks."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping
from contextlib import closing

from streamgroup.driver.starts import offsets_of
from streamgroup.driver.subscription import subscribed_partitions, topics_to_ask
from streamgroup.errors import DataLossError, TransportError
from streamgroup.model import (
    EARLIEST,
    LATEST,
    NO_TOPIC_ID,
    UNKNOWN_EPOCH,
    ClusterSnapshot,
    FetchRange,
    FetchTask,
    LogRange,
    OffsetRange,
    Position,
    TopicPartition,
)
from streamgroup.net.cluster import Cluster
from streamgroup.options.types import Isolation, LimitOptions, SourceOptions
from streamgroup.planning.packing import pack
from streamgroup.planning.starts import within

log = logging.getLogger("streamgroup")


def plan_batch(options: SourceOptions) -> list[FetchTask]:
    """The tasks of `spark.read`, within `default.api.timeout.ms`, which the attempts of `fetchOffset.numRetries` share.

    Raises ConfigError for topics that do not exist, DataLossError for lost offsets, TransportError where no attempt
    found the brokers.
    """
    for note in options.notes:
        log.info("%s", note)
    timeout_ms = options.client.default_api_timeout_ms // (options.fetch_offset_retries + 1)
    for _ in range(options.fetch_offset_retries):
        try:
            return _plan(options, timeout_ms)
        except TransportError as error:
            log.warning("%s; trying again", error)
            time.sleep(options.fetch_offset_retry_interval_ms / 1000)
    return _plan(options, timeout_ms)


def _plan(options: SourceOptions, timeout_ms: int) -> list[FetchTask]:
    with closing(Cluster(options.client)) as cluster:
        deadline = cluster.deadline(timeout_ms)
        snapshot = cluster.snapshot(topics_to_ask(options.subscription), deadline)
        partitions = subscribed_partitions(options.subscription, snapshot)
        isolation = options.fetch.isolation
        starts = offsets_of(cluster, deadline, options.starting, partitions, isolation=isolation)
        assert options.ending is not None
        ends = offsets_of(cluster, deadline, options.ending, partitions, isolation=isolation, option="endingOffsets")
        kept = _within_logs(cluster, deadline, starts, ends, options)
        return tasks_of(kept, snapshot, options.limits)


def tasks_of(
    wanted: Iterable[OffsetRange],
    snapshot: ClusterSnapshot,
    limits: LimitOptions,
    planned: Mapping[TopicPartition, Position] | None = None,
) -> list[FetchTask]:
    """Ranges with the addresses, topic ids and leader epochs that executors need, packed or split into tasks.

    The topic id is that of the plan where `planned` tells it: a replay must not read another topic of that name (R8).
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
                snapshot.leader(range_.partition),
                topic_id=planned_id or (topic.topic_id if topic else NO_TOPIC_ID),
                leader_epoch=info.leader_epoch if info else UNKNOWN_EPOCH,
            )
        )
    return pack(
        located,
        min_partitions=limits.min_partitions,
        max_records_per_partition=limits.max_records_per_partition,
    )


def _within_logs(
    cluster: Cluster,
    deadline: float,
    starts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    options: SourceOptions,
) -> list[OffsetRange]:
    """Ranges that the logs can serve. What lies outside is an error, or left out where failOnDataLoss=false."""
    earliest = cluster.list_offsets(dict.fromkeys(starts, EARLIEST), Isolation.READ_UNCOMMITTED, deadline)
    # The high watermarks: an open transaction is no loss (R8), the tasks wait for its end.
    latest = cluster.list_offsets(dict.fromkeys(starts, LATEST), Isolation.READ_UNCOMMITTED, deadline)
    logs = {tp: LogRange(min(earliest[tp].offset, latest[tp].offset), latest[tp].offset) for tp in starts}
    kept, lost = within(starts, ends, logs)
    if lost and options.fail_on_data_loss:
        raise DataLossError(
            f"offsets out of range: {'; '.join(lost)}. Give offsets that the logs hold, or failOnDataLoss=false to "
            "read what is left"
        )
    return kept
