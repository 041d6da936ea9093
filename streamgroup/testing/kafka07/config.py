"""The configuration of an emulated broker, with the names of Kafka 0.7's `server.properties`.

Times may be fractions (`log.retention.hours=0.001`), so that tests do not wait for hours. Properties that the emulator
does not support are refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from pathlib import Path
from typing import Any

from streamgroup.errors import ConfigError
from streamgroup.frozen import frozen
from streamgroup.testing.ports import LOOPBACK

_HOUR_MS = 3_600_000
_MINUTE_MS = 60_000


@frozen
class BrokerConfig:
    """The configuration of one broker, with the defaults of Kafka 0.7. The maps are by topic."""

    broker_id: int
    log_dir: Path
    port: int = 6667
    """0 selects a free port, for a broker without ZooKeeper in a test."""
    host: str = LOOPBACK
    """The registered host. The emulator always listens on the loopback interface."""
    advertised_port: int = 0
    """Not a property of Kafka: the port to register instead of `port`, that of a proxy."""

    num_partitions: int = 1
    topic_partitions: Mapping[str, int] = field(default_factory=dict)
    max_message_size: int = 1_000_000
    """The largest payload, in bytes."""
    max_request_bytes: int = 104_857_600

    log_file_size: int = 1 << 30
    """Size in bytes from which the next message set starts a new segment."""
    flush_interval: int = 500
    """Messages until a flush."""
    flush_interval_ms: float = 3_000
    topic_flush_intervals_ms: Mapping[str, float] = field(default_factory=dict)
    flush_scheduler_ms: float = 3_000

    retention_ms: float = 168 * _HOUR_MS
    topic_retention_ms: Mapping[str, float] = field(default_factory=dict)
    retention_bytes: int = -1
    """Size limit of each log; -1 means none."""
    cleanup_interval_ms: float = 10 * _MINUTE_MS

    use_zookeeper: bool = True
    zookeeper: str = ""
    """`host:port,.../chroot`."""
    session_timeout_ms: float = 6_000
    connection_timeout_ms: float = 6_000

    def partitions_of(self, topic: str) -> int:
        """Return the number of partitions that `topic` has, or would have, on this broker."""
        return self.topic_partitions.get(topic, self.num_partitions)


def read_properties(text: str) -> dict[str, str]:
    r"""Parse `name=value` lines with `\\` for a backslash, skipping empty lines and comments (`#`).

    Raises ConfigError.
    """
    found = {}
    for number, line in enumerate(text.splitlines(), 1):
        name, equals, value = line.partition("=")
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        if not equals:
            raise ConfigError(f"invalid line {number}: expected name=value, found {line!r}")
        found[name.strip()] = value.strip().replace("\\\\", "\\")
    return found


def broker_config(properties: Mapping[str, str]) -> BrokerConfig:
    """Return the configuration in `properties`. Raises ConfigError for missing, unknown or invalid properties."""
    values: dict[str, Any] = {}
    for name, text in properties.items():
        if name not in _PROPERTIES:
            raise ConfigError(f"unsupported property {name}: the emulated Kafka 0.7 supports {', '.join(_PROPERTIES)}")
        attribute, parse = _PROPERTIES[name]
        try:
            values[attribute] = parse(text)
        except ValueError as error:
            raise ConfigError(f"invalid {name}={text}: {error}") from error
    for name in ("brokerid", "log.dir"):
        if _PROPERTIES[name][0] not in values:
            raise ConfigError(f"missing property {name}")
    # As in Kafka, the flush interval defaults to the scheduler's interval.
    if "flush_scheduler_ms" in values:
        values.setdefault("flush_interval_ms", values["flush_scheduler_ms"])
    config = BrokerConfig(**values)
    if config.use_zookeeper and not config.zookeeper:
        raise ConfigError("missing property zk.connect: set it, or enable.zookeeper=false")
    return config


def _times(factor: int) -> Callable[[str], float]:
    return lambda text: float(text) * factor


def _by_topic(parse: Callable[[str], Any]) -> Callable[[str], dict[str, Any]]:
    """`topic:value,topic:value`."""

    def read(text: str) -> dict[str, Any]:
        pairs = (pair.strip().rpartition(":") for pair in text.split(",") if pair.strip())
        return {topic: parse(value) for topic, _, value in pairs}

    return read


def _boolean(text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError("expected true or false")
    return text == "true"


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise ValueError("the minimum is 1")
    return value


_PROPERTIES: dict[str, tuple[str, Callable[[str], Any]]] = {
    "brokerid": ("broker_id", int),
    "log.dir": ("log_dir", Path),
    "port": ("port", int),
    "hostname": ("host", str),
    "advertised.port": ("advertised_port", int),
    "num.partitions": ("num_partitions", _positive),
    "topic.partition.count.map": ("topic_partitions", _by_topic(_positive)),
    "max.message.size": ("max_message_size", int),
    "max.socket.request.bytes": ("max_request_bytes", _positive),
    "log.file.size": ("log_file_size", _positive),
    "log.flush.interval": ("flush_interval", _positive),
    "log.default.flush.interval.ms": ("flush_interval_ms", float),
    "topic.flush.intervals.ms": ("topic_flush_intervals_ms", _by_topic(float)),
    "log.default.flush.scheduler.interval.ms": ("flush_scheduler_ms", float),
    "log.retention.hours": ("retention_ms", _times(_HOUR_MS)),
    "topic.log.retention.hours": ("topic_retention_ms", _by_topic(_times(_HOUR_MS))),
    "log.retention.size": ("retention_bytes", int),
    "log.cleanup.interval.mins": ("cleanup_interval_ms", _times(_MINUTE_MS)),
    "enable.zookeeper": ("use_zookeeper", _boolean),
    "zk.connect": ("zookeeper", str),
    "zk.sessiontimeout.ms": ("session_timeout_ms", float),
    "zk.connectiontimeout.ms": ("connection_timeout_ms", float),
}
