"""The metrics of one driver: of its coordinators, from the status of each, and of its queries, from their progress.

Lag and offsets have the names of kafka-lag-exporter, so that panels and alert rules about them apply.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Generic, TypeVar

from streamgroup.frozen import frozen
from streamgroup.logline import snake_case
from streamgroup.monitoring.query_totals import QueryTotals

Status = Mapping[str, Any]
"""The status of a coordinator, as its control channel returns it (docs/log-events.md)."""

LogKey = tuple[str, str]
"""A log of one coordinator: the coordinator's run, and the partition's name, such as `orders-0`."""

_OF_PARTITION = ("cluster_name", "group", "topic", "partition", "consumer_id", "client_id", "member_host")
_OF_GROUP = ("cluster_name", "group")
_OF_TOPIC = ("cluster_name", "group", "topic")
_OF_LOG = ("cluster_name", "topic", "partition")
_OF_MEMBER = ("group", "name", "run")
_OF_QUERY = ("query", "group")


def families(
    statuses: Iterable[Status],
    queries: Iterable[QueryTotals],
    cluster_name: str,
    failures: Mapping[tuple[str, str], int] = {},
    seconds_behind: Callable[[LogKey, int], float | None] = lambda log, position: None,
) -> list[Family]:
    """Return all metrics, including metrics without a sample. `failures` are counts by query and error.

    `seconds_behind` returns how many seconds a position of a log is behind, or None. A coordinator without a group, in
    mode `off`, has no samples of `kafka_consumergroup_*`.
    """
    known = list(statuses)
    lag = [*_lag(known, cluster_name), *_lag_seconds(known, cluster_name, seconds_behind)]
    return [*lag, *_members(known), *_connections(known), *_queries(queries), _failed(failures)]


def log_ends(statuses: Iterable[Status]) -> dict[LogKey, int]:
    """Return the log ends in the statuses of the coordinators."""
    return {(status["run"], name): end for status in statuses for name, end in status["ends"].items()}


def _lag(statuses: list[Status], cluster_name: str) -> Iterator[Family]:
    offset = Family(
        "kafka_consumergroup_group_offset",
        MetricKind.GAUGE,
        "Next offset of a partition that a member of this driver holds.",
        _OF_PARTITION,
    )
    lag = Family(
        "kafka_consumergroup_group_lag",
        MetricKind.GAUGE,
        "Offsets from the next offset of a partition held to the end of its log.",
        _OF_PARTITION,
    )
    most = Family(
        "kafka_consumergroup_group_max_lag",
        MetricKind.GAUGE,
        "The largest lag of a partition held, in offsets.",
        _OF_GROUP,
    )
    total = Family(
        "kafka_consumergroup_group_sum_lag", MetricKind.GAUGE, "The lag of all partitions held, in offsets.", _OF_GROUP
    )
    of_topic = Family(
        "kafka_consumergroup_group_topic_sum_lag",
        MetricKind.GAUGE,
        "The lag of the partitions held of a topic, in offsets.",
        _OF_TOPIC,
    )
    earliest = Family(
        "kafka_partition_earliest_offset", MetricKind.GAUGE, "The first offset of a partition's log.", _OF_LOG
    )
    latest = Family("kafka_partition_latest_offset", MetricKind.GAUGE, "The end of a partition's log.", _OF_LOG)
    lags: dict[str, list[int]] = {}
    topics: dict[tuple[str, str], int] = {}
    for status in statuses:
        if not status["group"]:
            continue
        for partition, position in status["positions"].items():
            topic, _ = _place(partition)
            labels = _labels_of_partition(status, partition, cluster_name)
            offset.add(labels, position)
            if partition in status["ends"]:
                behind = max(0, status["ends"][partition] - position)
                lags.setdefault(status["group"], []).append(behind)
                topics[status["group"], topic] = topics.get((status["group"], topic), 0) + behind
                lag.add(labels, behind)
    for group, behind_of_group in sorted(lags.items()):
        labels = {"cluster_name": cluster_name, "group": group}
        most.add(labels, max(behind_of_group))
        total.add(labels, sum(behind_of_group))
    for (group, topic), behind in sorted(topics.items()):
        of_topic.add({"cluster_name": cluster_name, "group": group, "topic": topic}, behind)
    for family, which in ((earliest, "starts"), (latest, "ends")):
        for (topic, number), known in sorted(_newest(statuses, which).items()):
            family.add({"cluster_name": cluster_name, "topic": topic, "partition": number}, known)
    yield from (offset, lag, most, total, of_topic, earliest, latest)


def _newest(statuses: list[Status], field: str) -> dict[tuple[str, str], int]:
    """Return the largest offset of each log that a coordinator reports. Smaller ones were listed earlier."""
    newest: dict[tuple[str, str], int] = {}
    for status in statuses:
        for partition, offset in status[field].items():
            place = _place(partition)
            newest[place] = max(offset, newest.get(place, offset))
    return newest


def _lag_seconds(
    statuses: list[Status], cluster_name: str, seconds_behind: Callable[[LogKey, int], float | None]
) -> Iterator[Family]:
    lag = Family(
        "kafka_consumergroup_group_lag_seconds",
        MetricKind.GAUGE,
        "Seconds for which the log has had records after the next offset of an owned partition.",
        _OF_PARTITION,
    )
    most = Family(
        "kafka_consumergroup_group_max_lag_seconds",
        MetricKind.GAUGE,
        "The longest time for which a partition held has had a lag, in seconds.",
        _OF_GROUP,
    )
    longest: dict[str, float] = {}
    for status in statuses:
        group = status["group"]
        for partition, position in status["positions"].items() if group else ():
            seconds = seconds_behind((status["run"], partition), position)
            if seconds is None:
                continue
            lag.add(_labels_of_partition(status, partition, cluster_name), seconds)
            longest[group] = max(seconds, longest.get(group, 0.0))
    for group, seconds in sorted(longest.items()):
        most.add({"cluster_name": cluster_name, "group": group}, seconds)
    yield from (lag, most)


def _labels_of_partition(status: Status, partition: str, cluster_name: str) -> dict[str, str]:
    topic, number = _place(partition)
    host = status["client"]["host"]
    return {
        "cluster_name": cluster_name,
        "group": status["group"],
        "topic": topic,
        "partition": number,
        "consumer_id": status["member"],
        "client_id": status["client"]["id"],
        "member_host": f"/{host}" if host else "",  # as Kafka's admin client names a host
    }


def _place(partition: str) -> tuple[str, str]:
    """Return topic and partition of a text such as `orders-0`. A topic's name may contain hyphens itself."""
    topic, _, number = partition.rpartition("-")
    return topic, number


def _members(statuses: list[Status]) -> Iterator[Family]:
    held = Family("streamgroup_partitions", MetricKind.GAUGE, "Partitions that the member holds.", _OF_MEMBER)
    paused = Family(
        "streamgroup_paused_partitions",
        MetricKind.GAUGE,
        "Partitions that the member holds and an operator has paused.",
        _OF_MEMBER,
    )
    moving = Family(
        "streamgroup_moving_partitions",
        MetricKind.GAUGE,
        "Partitions that move: revoked ones, which the member keeps until its batch is committed, and awaited ones, "
        "which others have yet to give up.",
        (*_OF_MEMBER, "direction"),
    )
    generation = Family(
        "streamgroup_generation",
        MetricKind.GAUGE,
        "Generation of the member's assignment, under the consumer protocol its epoch.",
        _OF_MEMBER,
    )
    state = Family(
        "streamgroup_member_state",
        MetricKind.GAUGE,
        "1 for the state of the membership; suspended is a group in ZooKeeper without a connection to it.",
        (*_OF_MEMBER, "state"),
    )
    draining = Family("streamgroup_draining", MetricKind.GAUGE, "1 while the member drains.", _OF_MEMBER)
    in_flight = Family(
        "streamgroup_batch_in_flight_seconds",
        MetricKind.GAUGE,
        "Seconds since the batch in flight was given to Spark; 0 without one.",
        _OF_MEMBER,
    )
    happened = Family(
        "streamgroup_events_total",
        MetricKind.COUNTER,
        "Events since the member started: rebalance, fence, replay, skip, repeat or data_loss.",
        (*_OF_MEMBER, "event"),
    )
    rebalances = Family(
        "streamgroup_rebalances_total",
        MetricKind.COUNTER,
        "Assignments of the member since it started, by the cause of its join.",
        (*_OF_MEMBER, "cause"),
    )
    without = Family(
        "streamgroup_without_assignment_seconds_total",
        MetricKind.COUNTER,
        "Seconds without an assignment since the member started.",
        _OF_MEMBER,
    )
    commits = Family(
        "streamgroup_commit_seconds",
        MetricKind.SUMMARY,
        "Seconds from a commit to its acceptance by the group.",
        _OF_MEMBER,
    )
    for status in statuses:
        labels = _labels_of_member(status)
        held.add(labels, len(status["positions"]))
        paused.add(labels, len(status["paused"]))
        for direction in ("revoked", "awaited"):
            moving.add({**labels, "direction": direction}, status.get(direction, 0))
        generation.add(labels, status["generation"])
        state.add({**labels, "state": status["state"]}, 1)
        draining.add(labels, int(status["draining"]))
        in_flight.add(labels, status["in_flight_s"] or 0.0)
        for event, counter in status["trouble"].items():
            happened.add({**labels, "event": event}, counter["count"])
        for cause, count in status["rebalances"].items():
            rebalances.add({**labels, "cause": cause}, count)
        without.add(labels, status["without_assignment_s"])
        commits.add(labels, status["commits"]["seconds"], status["commits"]["count"])
    yield from (held, paused, moving, generation, state, draining, in_flight, happened, rebalances, without, commits)


def _labels_of_member(status: Status) -> dict[str, str]:
    return {"group": status["group"] or "", "name": status["name"], "run": status["run"]}


def _connections(statuses: list[Status]) -> Iterator[Family]:
    connections = Family(
        "streamgroup_connections",
        MetricKind.GAUGE,
        "Connections of the coordinator to brokers that are open.",
        _OF_MEMBER,
    )
    opened = Family(
        "streamgroup_connections_opened_total",
        MetricKind.COUNTER,
        "Connections that the coordinator has set up.",
        _OF_MEMBER,
    )
    failed = Family(
        "streamgroup_connection_failures_total",
        MetricKind.COUNTER,
        "Connections that failed while they were set up (phase setup) or later (phase open).",
        (*_OF_MEMBER, "phase"),
    )
    unanswered = Family(
        "streamgroup_unanswered_requests_total",
        MetricKind.COUNTER,
        "Requests that a failed connection left without a response.",
        _OF_MEMBER,
    )
    throttled = Family(
        "streamgroup_throttle_seconds_total",
        MetricKind.COUNTER,
        "Seconds for which brokers have throttled the coordinator because of a quota.",
        _OF_MEMBER,
    )
    retries = Family(
        "streamgroup_retries_total",
        MetricKind.COUNTER,
        "Attempts that the coordinator repeats at the group (target group) or at metadata and log ends (target logs).",
        (*_OF_MEMBER, "target"),
    )
    for status in statuses:
        labels = _labels_of_member(status)
        connections.add(labels, status["connections"]["open"])
        opened.add(labels, status["connections"]["opened"])
        failed.add({**labels, "phase": "setup"}, status["connections"]["failed"])
        failed.add({**labels, "phase": "open"}, status["connections"]["lost"])
        unanswered.add(labels, status["connections"]["unanswered"])
        throttled.add(labels, status["connections"]["throttled_s"])
        for target, count in status["retries"].items():
            retries.add({**labels, "target": target}, count)
    yield from (connections, opened, failed, unanswered, throttled, retries)


def _failed(failures: Mapping[tuple[str, str], int]) -> Family:
    failed = Family(
        "streamgroup_query_failures_total", MetricKind.COUNTER, "Queries that an error has ended.", ("query", "error")
    )
    for (query, error), count in failures.items():
        failed.add({"query": query, "error": error}, count)
    return failed


def _queries(queries: Iterable[QueryTotals]) -> Iterator[Family]:
    batches = Family("streamgroup_batches_total", MetricKind.COUNTER, "Completed batches.", _OF_QUERY)
    rows = Family("streamgroup_rows_total", MetricKind.COUNTER, "Rows of the completed batches.", _OF_QUERY)
    last = Family(
        "streamgroup_last_batch_timestamp_seconds",
        MetricKind.GAUGE,
        "Completion time of the last batch (Unix time).",
        _OF_QUERY,
    )
    behind = Family(
        "streamgroup_max_offsets_behind",
        MetricKind.GAUGE,
        "Offsets from the last batch to the end that the log had before it, of the partition with the most.",
        _OF_QUERY,
    )
    phases = Family(
        "streamgroup_batch_phase_seconds",
        MetricKind.SUMMARY,
        "Seconds of each phase of a batch; trigger_execution is the whole batch.",
        (*_OF_QUERY, "phase"),
    )
    dead = Family(
        "streamgroup_dead_letters_total",
        MetricKind.COUNTER,
        "Records that were set aside as dead letters; no sample before the first.",
        ("query",),
    )
    for totals in queries:
        labels = {"query": totals.query, "group": totals.group}
        if totals.dead_letters is not None:
            dead.add(labels, totals.dead_letters)
        batches.add(labels, totals.batches)
        rows.add(labels, totals.rows)
        last.add(labels, totals.last_batch_at)
        if totals.most_behind is not None:
            behind.add(labels, totals.most_behind)
        for phase in sorted(totals.phases):
            phases.add({**labels, "phase": snake_case(phase)}, totals.phase_s[phase], totals.phases[phase])
    yield from (batches, rows, last, behind, phases, dead)


Labels = Mapping[str, str]


class MetricKind(StrEnum):
    """The types of metrics, by the names that Prometheus has for them."""

    GAUGE = "gauge"
    COUNTER = "counter"
    SUMMARY = "summary"


@frozen
class Sample:
    """The value of one time series. For a summary, `value` is the sum and `count` the number of observations.

    `labels` are the values of the family's labels, in the same order.
    """

    labels: tuple[str, ...]
    value: float
    count: int = 0


@dataclass(slots=True)
class Family:
    """One metric with all its samples. Every sample has a value for each of `labels`, "" by default.

    The name of a counter ends with `_total`. No two samples have the same labels: Prometheus would reject them.
    """

    name: str
    kind: MetricKind
    doc: str
    labels: tuple[str, ...]
    _samples: dict[tuple[str, ...], Sample] = field(default_factory=dict)

    def add(self, labels: Labels, value: float, count: int = 0) -> None:
        """Add a sample, or replace the one with the same labels."""
        values = tuple(labels.get(name, "") for name in self.labels)
        self._samples[values] = Sample(values, value, count)

    @property
    def samples(self) -> list[Sample]:
        return list(self._samples.values())


Key = TypeVar("Key", bound=Hashable)

MOST_POINTS = 60
"""Points that are stored for a log. Beyond them, every second one of the older points is removed."""
KEPT_S = 600.0
"""Seconds for which a log is stored although readings lack it: its coordinator may be too busy to answer."""


class LogTimes(Generic[Key]):
    """Remembers log ends with the times when they were read, to compute how many seconds a position is behind.

    The caller chooses the key of a log.
    """

    def __init__(self) -> None:
        self._newest = float("-inf")
        self._points: dict[Key, list[tuple[float, int]]] = {}
        """Times in seconds, and ends. Each end has the first and the last time at which readings found it."""
        self._seen: dict[Key, float] = {}

    def add(self, now: float, ends: Mapping[Key, int]) -> None:
        """Add the ends of one reading at `now`, in seconds. An older reading than the newest is ignored."""
        if now < self._newest:
            return
        self._newest = now
        for key, end in ends.items():
            self._seen[key] = now
            self._add(self._points.setdefault(key, []), now, end)
        for key in [key for key, seen in self._seen.items() if now - seen > KEPT_S]:
            del self._seen[key], self._points[key]

    def _add(self, points: list[tuple[float, int]], now: float, end: int) -> None:
        if points and end < points[-1][1]:  # another log of the same name
            points.clear()
        if [known for _, known in points[-2:]] == [end, end]:
            points.pop()
        points.append((now, end))
        if len(points) > MOST_POINTS:
            points[:-2] = points[:-2:2]

    def seconds_behind(self, key: Key, position: int, now: float) -> float | None:
        """Return for how many seconds the log has had records after `position`.

        Between two readings the log grows evenly; before the first one, as between the first and the last. None if
        that is not known: of a log that has not grown since the first reading, a position before its end.
        """
        points = self._points.get(key, [])
        if not points:
            return None
        if position >= points[-1][1]:
            return 0.0
        later = next(number for number, (_, end) in enumerate(points) if end > position)
        (at, end), (until, last) = (points[later - 1], points[later]) if later else (points[0], points[-1])
        if end == last:
            return None
        return max(0.0, now - (at + (until - at) * (position - end) / (last - end)))
