"""Records, options, clocks and a poller for the tests of producers."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from streamgroup.executor.write.producer import Placed, RecordSlices, TaskProducer
from streamgroup.kafka.net.poller import ConnectionLost, Event, Handle
from streamgroup.kafka.records.encode import Encoder, RecordColumns, RecordFormat
from streamgroup.kafka.wire.messages.cluster import MetadataRequest
from streamgroup.kafka.wire.messages.produce import ProduceRequest
from streamgroup.kafka.wire.versions import BrokerVersions
from streamgroup.model import TopicPartition
from streamgroup.options.types import ClientOptions, ProducerOptions
from tests.fakes.scripted_cluster import ScriptedCluster


class SkippingClock:
    """Monotonic seconds that can be moved ahead."""

    def __init__(self) -> None:
        self.skipped = 0.0

    def __call__(self) -> float:
        return time.monotonic() + self.skipped


def clock_of_metadata(cluster: ScriptedCluster, seconds: float) -> Callable[[], float]:
    """Monotonic seconds, and `seconds` more for each Metadata request that the first broker got."""
    return lambda: time.monotonic() + seconds * len(cluster.brokers[0].asked("Metadata"))


TOPIC = "orders"
ENCODER = Encoder(RecordFormat.V2, "none", None)


def client_of(cluster: ScriptedCluster, **others: Any) -> ClientOptions:
    """Options with short waits."""
    quick = {"request_timeout_ms": 30_000, "retry_backoff_ms": 5, "retry_backoff_max_ms": 20}
    return ClientOptions(cluster.addresses, **{**quick, **others})


def producer_options(**others: Any) -> ProducerOptions:
    """Options with short waits."""
    return ProducerOptions(**{"delivery_timeout_ms": 60_000, "max_block_ms": 30_000, "linger_ms": 0, **others})


HEADERS = pa.array([[{"key": "h", "value": b"1"}]], pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])))


def columns(values: list[bytes | None], keys: list[bytes | None] | None = None) -> RecordColumns:
    key = None if keys is None else pa.array(keys, pa.binary())
    return RecordColumns(key, pa.array(values, pa.binary()), np.arange(len(values), dtype=np.int64))


def payload(*values: bytes | None) -> RecordSlices:
    records = columns(list(values))
    return RecordSlices.of(records, 0, len(records), int(ENCODER.sizes(records).sum()))


def placed(*values: bytes | None, partition: int = 0, topic: str = TOPIC) -> Placed:
    return TopicPartition(topic, partition), payload(*values)


def write(producer: TaskProducer, *payloads: Placed) -> None:
    producer.append(payloads)
    producer.flush()


VERSIONS = BrokerVersions("", {cls.API_KEY: cls.VERSIONS for cls in (MetadataRequest, ProduceRequest)})


class StubPoller:
    """Handles whose events a test gives. A handle is invalid once its `ConnectionLost` is returned, as in the real."""

    def __init__(self) -> None:
        self.handles: list[Handle] = []
        self.gone: set[Handle] = set()
        self.sent: list[tuple[Handle, Any]] = []
        self.events: list[Event] = []

    def connect(self, host: str, port: int, tag: str = "") -> Handle:
        self.handles.append(Handle(len(self.handles), host, port, tag))
        return self.handles[-1]

    def has(self, handle: Handle) -> bool:
        return handle not in self.gone

    def versions(self, handle: Handle) -> BrokerVersions:
        return self._valid(VERSIONS, handle)

    def has_sent_all(self, handle: Handle) -> bool:
        return bool(self._valid(True, handle))

    def send(self, handle: Handle, request: Any, version: int | None = None) -> int:
        self.sent.append((handle, request))
        return self._valid(len(self.sent), handle)

    def drop(self, handle: Handle, *, reset: bool) -> None:
        self.gone.add(handle)

    def wait(self, timeout: float | None) -> list[Event]:
        events, self.events = self.events, []
        self.gone |= {event.handle for event in events if isinstance(event, ConnectionLost)}
        return events

    def close(self, *, reset: bool = False) -> None:
        self.handles.clear()

    def _valid(self, value: Any, handle: Handle) -> Any:
        if handle in self.gone:
            raise KeyError(handle)
        return value
