"""The options that `consume` and `produce` have from kcat, as options of a read or a write."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from enum import Enum

from streamgroup.cli import _properties
from streamgroup.cli._cluster import ClusterAddress, parsed_client, with_timeout
from streamgroup.errors import ConfigError, StreamGroupError
from streamgroup.frozen import frozen
from streamgroup.model import ClusterSnapshot, TopicPartition
from streamgroup.options.parse import OPTIONS, SINK_OPTIONS, of_connection, parse_sink, parse_source
from streamgroup.options.types import SinkOptions, SourceOptions

_OWN_OF_PRODUCE = {
    "kafka.bootstrap.servers": "--bootstrap-server",
    "zookeeper.connect": "--zookeeper",
    "kafka.compression.type": "-z",
    "kafka.delivery.timeout.ms": "--timeout",
    "kafka.max.block.ms": "--timeout",
}
"""The properties that have an option of their own."""
_OTHERS_OF_PRODUCE = {"partitioner": "partitioner", "verify": "verify", "verifywaitms": "verifyWaitMs"}
"""The sink's options besides Kafka's that `-X` accepts, by name in lower case."""
_LINGER_MS = 20
_BATCH_BYTES = 128 * 1024
"""Larger batches than Java's, because a command writes records as fast as it reads them."""


def parse_produce_properties(values: Sequence[str]) -> dict[str, str]:
    """Return the options of the sink that `-X NAME=VALUE` sets. Raises ValueError."""
    return _properties.parse_properties(values, SINK_OPTIONS, own=_OWN_OF_PRODUCE, others=_OTHERS_OF_PRODUCE)


def sink_options(
    where: ClusterAddress,
    topic: str | None,
    properties: Mapping[str, str],
    compression: str,
    timeout_ms: int,
    *,
    include_timestamp: bool,
) -> SinkOptions:
    """Return the options of a write. Each record is delivered or fails within `timeout_ms`. Raises ConfigError."""
    client, notes = parsed_client(where, "streamgroup-produce", timeout_ms)
    given = {
        "includeTimestamp": str(include_timestamp).lower(),
        "kafka.client.id": client.client_id,
        "kafka.compression.type": compression,
        "kafka.batch.size": str(_BATCH_BYTES),
        "kafka.linger.ms": str(min(_LINGER_MS, timeout_ms // 4)),
        "kafka.request.timeout.ms": str(max(1, timeout_ms // 2)),
        "kafka.delivery.timeout.ms": str(timeout_ms),
        "kafka.max.block.ms": str(timeout_ms),
        **of_connection(where.properties()),
        **properties,
    }
    if topic is not None:
        given["topic"] = topic
    if where.bootstrap_server:
        given["kafka.bootstrap.servers"] = where.bootstrap_server
    parsed = parse_sink(given, strict=True)
    registry = with_timeout(parsed.client.zookeeper, timeout_ms)
    timed = replace(parsed.client, default_api_timeout_ms=client.default_api_timeout_ms, zookeeper=registry)
    return replace(parsed, client=timed, notes=tuple(dict.fromkeys((*notes, *parsed.notes))))


GROUP_ID = "kafka.group.id"
_OWN_OF_CONSUME = {
    "kafka.bootstrap.servers": "--bootstrap-server",
    "zookeeper.connect": "--zookeeper",
    "kafka.default.api.timeout.ms": "--timeout",
    "kafka.auto.offset.reset": "-o",
}
"""The properties that have an option of their own."""
_OTHERS_OF_CONSUME = {"failondataloss": "failOnDataLoss"}
"""The options of the source besides Kafka's that `-X` takes, in lower case."""


_LOOK = "To see the topics of the cluster and their partitions, run: streamgroup topics --describe"


class NoSuchPartition(StreamGroupError):
    """A topic or partition of the command line does not exist."""


class StartKind(Enum):
    """Where a partition starts. The value is the word or the form of `-o`."""

    BEGINNING = "beginning"
    END = "end"
    STORED = "stored"
    """At the offset that a group has committed."""
    OFFSET = "N"
    LAST = "-N"
    """N offsets before the end."""
    TIMESTAMP = "s@N"
    """At the first record of this time or later."""


@frozen
class ConsumeStart:
    """Where partitions start. `value` is an offset, a number of offsets or a timestamp (ms), as `kind` says."""

    kind: StartKind
    value: int = 0


@frozen
class Bounds:
    """The values of `-o`. `start` is None if none was given. Printing stops before the timestamp `stop` (ms)."""

    start: ConsumeStart | None = None
    stop: int | None = None


def parse_bounds(values: Sequence[str]) -> Bounds:
    """Return what the values of `-o` say: at most one start, at most one stop. Raises ValueError."""
    starts: list[ConsumeStart] = []
    stops: list[int] = []
    for value in values:
        found = re.fullmatch(r"(s@|e@|-)?([0-9]{1,18})", value)
        if found is None:
            if value not in {"beginning", "end", "stored"}:
                raise ValueError(f"invalid offset {value!r}: expected beginning, end, stored, N, -N, s@MS or e@MS")
            starts.append(ConsumeStart(StartKind(value)))
        elif found[1] == "e@":
            stops.append(int(found[2]))
        else:
            kinds = {None: StartKind.OFFSET, "-": StartKind.LAST, "s@": StartKind.TIMESTAMP}
            starts.append(ConsumeStart(kinds[found[1]], int(found[2])))
    if len(starts) > 1 or len(stops) > 1:
        raise ValueError("expected at most one offset to start at, and at most one e@MS to stop at")
    return Bounds(next(iter(starts), None), next(iter(stops), None))


@frozen
class TopicArgument:
    """A topic of the command line, or one partition of it by the cluster's name (`1-2` in Kafka 0.7)."""

    topic: str
    partition: str | None = None


def parse_topics(topics: Sequence[str], partition: str | None) -> tuple[TopicArgument, ...]:
    """Return the topics of `-t TOPIC`, `-t TOPIC:PARTITION` and `-p`, each once.

    Raises ValueError for an empty name.
    """
    wanted = []
    for text in topics:
        topic, colon, name = text.partition(":")
        if not topic or (colon and not name):
            raise ValueError(f"invalid topic {text!r}: expected TOPIC or TOPIC:PARTITION")
        wanted.append(TopicArgument(topic, name or partition))
    return tuple(dict.fromkeys(wanted))


def partitions_of(wanted: Collection[TopicArgument], snapshot: ClusterSnapshot) -> list[TopicPartition]:
    """Return the partitions that `wanted` names, sorted. Raises NoSuchPartition, ConfigError for an invalid name."""
    found: set[TopicPartition] = set()
    missing = []
    for one in wanted:
        topic = snapshot.topics.get(one.topic)
        if topic is None:
            missing.append(f"topic {one.topic!r} does not exist")
        elif one.partition is None:
            found.update(TopicPartition(one.topic, info.partition) for info in topic.partitions)
        else:
            try:
                number = snapshot.log_format.partition_number(one.partition)
            except ValueError as error:
                raise ConfigError(f"invalid partition {one.partition!r} of topic {one.topic!r}: {error}") from None
            if topic.partition(number) is None:
                missing.append(f"topic {one.topic!r} has no partition {one.partition}")
            found.add(TopicPartition(one.topic, number))
    if missing:
        raise NoSuchPartition(f"{'; '.join(dict.fromkeys(missing))}. {_LOOK}")
    return sorted(found)


def parse_consume_properties(values: Sequence[str]) -> dict[str, str]:
    """Return the options of the source that `-X NAME=VALUE` sets. Raises ValueError."""
    return _properties.parse_properties(values, OPTIONS, own=_OWN_OF_CONSUME, others=_OTHERS_OF_CONSUME)


def source_options(
    where: ClusterAddress,
    topics: Collection[str],
    properties: Mapping[str, str],
    timeout_ms: int,
    *,
    include_headers: bool,
) -> SourceOptions:
    """Return the options of a stream of `topics`, which is a member of a group if `properties` name one.

    Records of aborted transactions are left out by default, as in kcat. Raises ConfigError.
    """
    client, notes = parsed_client(where, "streamgroup-consume", timeout_ms)
    given = {
        "subscribe": ",".join(topics),
        "includeHeaders": str(include_headers).lower(),
        "kafka.client.id": client.client_id,
        "kafka.isolation.level": "read_committed",
        "kafka.default.api.timeout.ms": str(timeout_ms),
        "kafkaConsumer.pollTimeoutMs": str(timeout_ms),
        **of_connection(where.properties()),
        **properties,
    }
    if where.bootstrap_server:
        given["kafka.bootstrap.servers"] = where.bootstrap_server
    parsed = parse_source(given, streaming=True, strict=True)
    registry = with_timeout(parsed.client.zookeeper, timeout_ms)
    all_notes = tuple(dict.fromkeys((*notes, *parsed.notes)))
    client = replace(parsed.client, zookeeper=registry)
    return replace(parsed, client=client, fetch=replace(parsed.fetch, timestamps_in_ms=True), notes=all_notes)


def group_start(bounds: Bounds) -> dict[str, str]:
    """Return the options for where a group starts partitions without a committed offset. Raises ValueError."""
    if bounds.stop is not None:
        raise ValueError("cannot use e@MS with -G: a group has no timestamp to stop at")
    match bounds.start:
        case None | ConsumeStart(StartKind.STORED) | ConsumeStart(StartKind.END):
            return {"startingOffsets": "latest"}
        case ConsumeStart(StartKind.BEGINNING):
            return {"startingOffsets": "earliest"}
        case ConsumeStart(StartKind.TIMESTAMP, timestamp):
            return {"startingTimestamp": str(timestamp), "startingOffsetsByTimestampStrategy": "latest"}
    raise ValueError(
        "cannot start a group at an offset: it starts where it has committed. Give beginning, end, stored or s@MS, "
        "which partitions without a committed offset take"
    )
