"""Turns the options of `streamgroup produce` into the options of a write."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from streamgroup.cli import _properties
from streamgroup.cli._cluster import ClusterAddress, parsed_client, with_timeout
from streamgroup.options.parse_client import of_connection
from streamgroup.options.parse_sink import SINK_OPTIONS, parse_sink
from streamgroup.options.types import SinkOptions

_OWN = {
    "kafka.bootstrap.servers": "--bootstrap-server",
    "zookeeper.connect": "--zookeeper",
    "kafka.compression.type": "-z",
    "kafka.delivery.timeout.ms": "--timeout",
    "kafka.max.block.ms": "--timeout",
}
"""The properties that have an option of their own."""
_OTHERS = {"partitioner": "partitioner", "verify": "verify", "verifywaitms": "verifyWaitMs"}
"""The options of the sink besides Kafka's that `-X` takes, by their names in lower case."""
_LINGER_MS = 20
_BATCH_BYTES = 128 * 1024
"""Larger batches than Java's, since a command writes what it has read at once."""


def parse_properties(values: Sequence[str]) -> dict[str, str]:
    """Return the options of the sink that `-X NAME=VALUE` sets. Raises ValueError."""
    return _properties.parse_properties(values, SINK_OPTIONS, own=_OWN, others=_OTHERS)


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
