"""The doctor's look at the brokers' clocks: it reads timestamps of `__consumer_offsets`, and writes nothing."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing

from streamgroup.cli._clock_watch import ClockWatch
from streamgroup.cli._findings import CheckVerdict, Finding
from streamgroup.cluster.interface import kafka_of, open_cluster
from streamgroup.cluster.kafka import KafkaCluster
from streamgroup.errors import AuthorizationError, BrokerAuthorizationError, StreamGroupError
from streamgroup.model import TopicPartition
from streamgroup.options.types import ClientOptions, Isolation
from streamgroup.wire.messages.log import ListOffsetsRequest

WATCH_S = 6.0
"""Java's consumers commit every 5 s by default."""
_EVERY_S = 0.25
_OFFSETS_TOPIC = "__consumer_offsets"
_MAX_TIMESTAMP = -3
"""The timestamp of ListOffsets that asks for the record with the newest one, from version 7 on (Kafka 3.0, KIP-734)."""
_SINCE = 7
_SUBJECT = "clocks"


def of_clocks(
    options: ClientOptions, *, now: Callable[[], float] = time.time, watch_s: float = WATCH_S
) -> Iterator[Finding]:
    """Compare the clock of each broker that keeps groups with `now`, in seconds since 1970, for up to `watch_s`."""
    try:
        with closing(open_cluster(options)) as cluster:
            kafka = kafka_of(cluster, cluster.deadline())
            yield from _watched(kafka, now, min(watch_s, options.default_api_timeout_ms / 1000))
    except AuthorizationError as error:
        missing = error.missing if isinstance(error, BrokerAuthorizationError) else str(error)
        yield Finding(_SUBJECT, CheckVerdict.WARN, f"not compared with this machine's: {missing}")
    except StreamGroupError as error:
        yield Finding(_SUBJECT, CheckVerdict.WARN, f"not compared with this machine's: {error}")


def _watched(cluster: KafkaCluster, now: Callable[[], float], watch_s: float) -> Iterator[Finding]:
    deadline = cluster.deadline()
    if cluster.newest_version(ListOffsetsRequest, deadline) < _SINCE:
        yield Finding(
            _SUBJECT, CheckVerdict.OK, "not compared: brokers before Kafka 3.0 do not show their newest timestamp"
        )
        return
    snapshot = cluster.snapshot([_OFFSETS_TOPIC], deadline)
    topic = snapshot.topics.get(_OFFSETS_TOPIC)
    if topic is None:
        yield Finding(
            _SUBJECT, CheckVerdict.OK, f"not compared: {_OFFSETS_TOPIC} does not exist before a group commits"
        )
        return
    leaders = {
        TopicPartition(_OFFSETS_TOPIC, info.partition): info.leader
        for info in topic.partitions
        if info.leader in snapshot.brokers
    }
    watch = ClockWatch()
    nodes = sorted(set(leaders.values()))
    until = cluster.clock() + watch_s
    while True:
        sent = _ms(now())
        wanted = dict.fromkeys(leaders, _MAX_TIMESTAMP)
        listed = cluster.list_offsets(wanted, Isolation.READ_UNCOMMITTED, cluster.deadline())
        newest = {tp: found.timestamp for tp, found in listed.items()}
        watch.see(newest, leaders, sent=sent, received=_ms(now()))
        if watch.has_measured(nodes) or cluster.clock() >= until:
            break
        time.sleep(_EVERY_S)
    yield from (watch.finding(node, watch_s) for node in nodes)


def _ms(seconds: float) -> int:
    return round(seconds * 1000)
