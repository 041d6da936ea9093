"""The views of the page as JSON values: all groups, one group, a topic, the cluster."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamgroup.model import GroupState, MemberDescription, PartitionInfo, TopicInfo, TopicPartition
from streamgroup.monitoring.page.history.batches import Reading, Status
from streamgroup.monitoring.page.history.group import GroupHistory
from streamgroup.monitoring.page.history.history import History
from streamgroup.monitoring.page.history.offset_series import UNKNOWN, LagTrend, Total, Trend, trend
from streamgroup.monitoring.query_totals import pauses
from streamgroup.text import host_port

Json = dict[str, Any]

SPARK_POINTS = 40
"""Points of the small curve of each group."""
POINTS = 240
"""The most points of a chart and columns of a heat map that a screen can show."""
LINES = 8
"""Partitions that have a line of their own in the chart of lags: those with the largest lag, if none are chosen."""


def overview(history: History) -> Json:
    """Return state, members, lag and trend of each group, the one with the largest lag first."""
    rows = [_group_row(name, group) for name, group in history.groups.items()]
    rows.sort(key=lambda row: (-(row["lag"] if row["lag"] is not None else -1), row["group"]))
    return {**_head(history), "groups": rows, "unit": _unit(history)}


def group_view(history: History, name: str, chosen: Collection[str] = ()) -> Json | None:
    """Return everything about one group; None if it does not exist. `chosen` names the partitions of the lag chart."""
    group, reading = history.groups.get(name), history.reading
    if group is None or group.now is None or reading is None:
        return None
    times = group.offsets.times()
    columns = _thinned(len(times))
    spans = group.ownership.spans(float(times[0]))
    owners = _Numbers()
    for span in sorted((span for found in spans.values() for span in found), key=lambda span: span.start):
        owners.of(span.owner)  # a later member has a higher number, so the earlier ones keep their colors
    holders, moving = group.now.owners(), group.now.description.moving
    paused = pauses(reading.statuses, name)
    partitions = [
        {
            **_partition_row(group, reading, tp),
            "owner": owners.of(holders[tp]) if tp in holders else None,
            "next": owners.of(moving[tp].member_id) if tp in moving else None,
            "paused": paused.get(str(tp)),
            "held_up": _held_up(history, tp),
        }
        for tp in sorted(spans)
    ]
    lags = group.offsets.lags()[columns]
    by_partition = dict(zip(group.offsets.partitions, lags.T, strict=True))
    return {
        **_head(history),
        **_group_row(name, group),
        "coordinator": group.now.coordinator,
        "strategy": group.now.description.strategy,
        "epoch": group.now.description.epoch,
        "unit": _unit(history),
        "members_list": [_member_row(member, reading) for member in group.now.description.members],
        "partitions": partitions,
        "pauses": _pauses(reading.statuses_of(name)),
        "stores": sorted({str(s["offsets_store"]) for s in reading.statuses_of(name) if s.get("offsets_store")}),
        "spans": [[[s.start, s.end, owners.of(s.owner)] for s in spans[tp]] for tp in sorted(spans)],
        "times": times[columns].tolist(),
        "heat": [_known(by_partition[tp]) if tp in by_partition else [] for tp in sorted(spans)],
        "lines": _lines(reading, by_partition, frozenset(chosen)),
        "totals": _totals(group.totals),
        "marks": [asdict(mark) for mark in sorted(group.marks, key=lambda mark: mark.at)],
        "batches": [
            {"run": run, "name": found.name, "batches": [asdict(batch) for batch in found.batches]}
            for run, found in group.batches.runs().items()
        ],
        "owners": owners.names,
    }


def topics_view(history: History) -> Json:
    """Return the topics with their partitions, log sizes and groups."""
    reading = history.reading
    topics = [] if reading is None else _sorted(reading.snapshot.topics.values())
    readers = _readers(history)
    return {**_head(history), "topics": [_topic_row(history, topic, readers) for topic in topics]}


def topic_view(history: History, name: str) -> Json | None:
    """Return the partitions of one topic, and the lag of its groups; None if it does not exist."""
    reading = history.reading
    topic = None if reading is None else reading.snapshot.topics.get(name)
    if reading is None or topic is None:
        return None
    label = reading.snapshot.log_format.partition_label
    readers = _readers(history)
    rows = []
    for info in topic.partitions:
        tp = TopicPartition(name, info.partition)
        lags = {group: history.groups[group].lag_of(reading.log_ends, tp) for group in readers.get(name, ())}
        rows.append(
            {
                **_log_row(reading, tp, info),
                "name": label(info.partition),
                "lags": lags,
                "held_up": _held_up(history, tp),
            }
        )
    head = {**_head(history), **_topic_row(history, topic, readers)}
    return {**head, "rows": rows, "unit": _unit(history)}


def cluster_view(history: History) -> Json:
    """Return brokers, numbers, this machine's members and the newest errors."""
    reading = history.reading
    view = {
        **_head(history),
        "errors": [asdict(each) for each in sorted([*history.errors, *history.failures], key=lambda each: -each.at)],
    }
    if reading is None:
        return {**view, "brokers": [], "members": []}
    snapshot = reading.snapshot
    leads: dict[int, int] = {}
    holds: dict[int, int] = {}
    lagging: list[str] = []
    for topic in snapshot.topics.values():
        for info in topic.partitions:
            leads[info.leader] = leads.get(info.leader, 0) + 1
            for node in info.replicas:
                holds[node] = holds.get(node, 0) + 1
            if info.leader not in snapshot.brokers or len(info.in_sync) < len(info.replicas):
                lagging.append(f"{topic.name}-{snapshot.log_format.partition_label(info.partition)}")
    brokers = [
        {
            "id": broker.node_id,
            "address": host_port(broker.host, broker.port),
            "rack": broker.rack,
            "leads": leads.get(broker.node_id, 0),
            "replicas": holds.get(broker.node_id, 0),
            "controller": broker.node_id == snapshot.controller_id,
        }
        for broker in sorted(snapshot.brokers.values(), key=lambda broker: broker.node_id)
    ]
    return {
        **view,
        "cluster_id": snapshot.cluster_id,
        "dialect": snapshot.dialect.value,
        "brokers": brokers,
        "topics_count": len(snapshot.topics),
        "partitions_count": sum(len(topic.partitions) for topic in snapshot.topics.values()),
        "groups_count": len(history.groups),
        "degraded": sorted(lagging)[:100],
        "degraded_count": len(lagging),
        "members": [_status_row(status) for status in reading.statuses],
    }


def _head(history: History) -> Json:
    return {
        "sequence": history.sequence,
        "at": None if history.reading is None else history.reading.at,
        "failed": history.failed,
    }


def _unit(history: History) -> str:
    """Return what offsets count: `offsets`, or `bytes` in Kafka 0.7."""
    return "offsets" if history.reading is None else history.reading.snapshot.log_format.unit


def _group_row(name: str, group: GroupHistory) -> Json:
    assert group.now is not None, "a group in the history has been read"
    description, last, found = group.now.description, group.totals[-1], trend(group.totals)
    if not group.is_read:
        last, found = Total(last.at, None), Trend(LagTrend.UNKNOWN)
    falls = found.direction is LagTrend.FALLING and last.lag is not None
    thinned = list(group.totals)[-SPARK_POINTS:]
    partitions = group.now.partitions()
    return {
        "group": name,
        "state": description.state if group.is_read else GroupState.UNKNOWN,
        "members": description.member_count,
        "topics": sorted({tp.topic for tp in partitions}),
        "partitions_count": len(partitions),
        "lag": last.lag,
        "trend": found.direction.value,
        "trend_per_s": round(found.per_s, 1),
        "seconds_left": round(-(last.lag or 0) / found.per_s) if falls else None,
        "committed_per_s": _rounded(last.committed_per_s),
        "written_per_s": _rounded(last.written_per_s),
        "curve": [total.lag for total in thinned],
    }


def _partition_row(group: GroupHistory, reading: Reading, tp: TopicPartition) -> Json:
    return {
        "id": str(tp),
        "topic": tp.topic,
        "name": reading.snapshot.log_format.partition_label(tp.partition),
        "committed": group.committed(tp),
        "end": reading.log_ends.get(tp),
        "lag": group.lag_of(reading.log_ends, tp),
    }


def _held_up(history: History, tp: TopicPartition) -> Json | None:
    """Return where and since when consumers of `read_committed` wait for an open transaction; None if they do not."""
    held = history.held_up(tp)
    if held is None:
        return None
    return {**asdict(held), "command": f"streamgroup topics --open-transactions --topic {tp.topic}"}


def _pauses(statuses: Iterable[Status]) -> list[Json]:
    """Return the paused members of this machine: how many partitions each has paused, or that all of it is paused."""
    return [
        {
            "name": str(status.get("name") or status.get("run") or ""),
            "whole": bool(status.get("paused_whole")),
            "partitions": len(status.get("paused") or ()),
        }
        for status in statuses
        if status.get("paused") or status.get("paused_whole")
    ]


def _member_row(member: MemberDescription, reading: Reading) -> Json:
    local = next((s for s in reading.statuses if s.get("member") == member.member_id), None)
    return {
        "id": member.member_id,
        "client": member.client_id,
        "host": member.host,
        "instance": member.instance_id,
        "partitions": None if member.assigned is None else len(member.assigned),
        "target": None if member.target is None else len(member.target),
        "epoch": member.epoch,
        "local": None if local is None else _status_row(local),
    }


def _status_row(status: Status) -> Json:
    """Return the data of a member on this machine."""
    trouble = status.get("trouble")
    counters: Mapping[str, Any] = trouble if isinstance(trouble, Mapping) else {}
    query = status.get("query")
    return {
        "group": status.get("group"),
        "name": str(status.get("name") or ""),
        "query": str((query.get("name") or query.get("id") or "") if isinstance(query, Mapping) else ""),
        "source": str(status.get("source", "")),
        "run": str(status.get("run", "")),
        "state": str(status.get("state", "")),
        "generation": status.get("generation"),
        "draining": bool(status.get("draining")),
        "idle": bool(status.get("idle", True)),
        "in_flight_s": status.get("in_flight_s"),
        "events": {kind: int(c.get("count") or 0) for kind, c in counters.items() if isinstance(c, Mapping)},
    }


def _topic_row(history: History, topic: TopicInfo, readers: Mapping[str, list[str]]) -> Json:
    reading = history.reading
    assert reading is not None, "a topic in the history has been read"
    partitions = {TopicPartition(topic.name, info.partition) for info in topic.partitions}
    starts, ends = reading.log_starts, reading.log_ends
    sizes = [ends[tp] - starts[tp] for tp in partitions if tp in ends and tp in starts]
    return {
        "topic": topic.name,
        "internal": topic.internal,
        "topic_id": topic.topic_id or None,
        "partitions_count": len(partitions),
        "replication": max((len(info.replicas) for info in topic.partitions), default=0),
        "in_log": sum(sizes) if sizes else None,
        "groups": readers.get(topic.name, []),
        "leaderless": sum(info.leader not in reading.snapshot.brokers for info in topic.partitions),
    }


def _log_row(reading: Reading, tp: TopicPartition, info: PartitionInfo) -> Json:
    return {
        "id": str(tp),
        "leader": info.leader if info.leader in reading.snapshot.brokers else None,
        "replicas": list(info.replicas),
        "in_sync": list(info.in_sync),
        "start": reading.log_starts.get(tp),
        "end": reading.log_ends.get(tp),
    }


def _readers(history: History) -> dict[str, list[str]]:
    """Return by topic the groups that hold or have committed one of its partitions, sorted."""
    found: dict[str, list[str]] = {}
    for name in sorted(history.groups):
        now = history.groups[name].now
        for topic in {tp.topic for tp in now.partitions()} if now is not None else ():
            found.setdefault(topic, []).append(name)
    return found


def _lines(
    reading: Reading, by_partition: Mapping[TopicPartition, NDArray[np.int64]], chosen: frozenset[str]
) -> list[Json]:
    """Return the curves of the chosen partitions, or of those with the largest lag."""
    wanted = [tp for tp in by_partition if str(tp) in chosen]
    if not wanted:
        wanted = sorted(by_partition, key=lambda tp: (-by_partition[tp][-1], tp))[:LINES]
    label = reading.snapshot.log_format.partition_label
    return [
        {"id": str(tp), "name": f"{tp.topic}-{label(tp.partition)}", "lags": _known(by_partition[tp])}
        for tp in wanted[:LINES]
    ]


def _totals(totals: Iterable[Total]) -> Json:
    known = list(totals)
    shown = [known[number] for number in _thinned(len(known))]
    return {
        "times": [total.at for total in shown],
        "lag": [total.lag for total in shown],
        "committed_per_s": [_rounded(total.committed_per_s) for total in shown],
        "written_per_s": [_rounded(total.written_per_s) for total in shown],
    }


def _thinned(count: int) -> list[int]:
    """Return the numbers of at most POINTS of `count` samples, the newest among them."""
    step = max(1, -(-count // POINTS))
    return list(range(count - 1, -1, -step))[::-1]


def _known(values: NDArray[np.int64]) -> list[int | None]:
    return [None if value == UNKNOWN else value for value in values.tolist()]


def _rounded(rate: float | None) -> float | None:
    return None if rate is None else round(rate, 1)


def _sorted(topics: Iterable[TopicInfo]) -> list[TopicInfo]:
    return sorted(topics, key=lambda topic: (topic.internal, topic.name))


class _Numbers:
    """Numbers member ids, which are long, in the order of their first use."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self._numbers: dict[str, int] = {}

    def of(self, name: str) -> int:
        if name not in self._numbers:
            self._numbers[name] = len(self.names)
            self.names.append(name)
        return self._numbers[name]
