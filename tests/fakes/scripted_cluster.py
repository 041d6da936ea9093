"""A cluster that answers producers by a script: real sockets and frames, and the sequence checks of real brokers.

    cluster = ScriptedCluster(2, {"orders": 3})
    cluster.answer(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, times=2, appended=True)
    cluster.cut(appended=True)
    ...
    assert cluster.values("orders", 0) == [b"a", b"b"]

What the script does not mention is answered as a real broker answers it.
"""

from __future__ import annotations

import itertools
import struct
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from streamgroup.errors import ErrorCode
from streamgroup.kafka.wire.messages.cluster import (
    ApiVersionsRequest,
    MetadataRequest,
    MetadataResponse,
    MetadataResponseTopic,
)
from streamgroup.kafka.wire.messages.produce import (
    NO_ACKS,
    BatchIndexAndErrorMessage,
    InitProducerIdRequest,
    InitProducerIdResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from streamgroup.kafka.wire.messages.topics import (
    DescribeConfigsRequest,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from streamgroup.kafka.wire.schema import Request
from streamgroup.model import TopicPartition
from tests.fakes.answers import api_versions, metadata, topic
from tests.fakes.broker import CLOSE, SILENCE, FakeBroker, Held
from tests.unit.kafka.producer.broker import Era, Partition, Sealed
from tests.unit.kafka.records import reference, reference_sets
from tests.unit.kafka.records.encoder import crc32c

SPOKEN: Mapping[type[Request[Any]], tuple[int, int]] = {
    cls: cls.VERSIONS
    for cls in (ApiVersionsRequest, MetadataRequest, ProduceRequest, InitProducerIdRequest, DescribeConfigsRequest)
}
_BATCHES_FROM, _ZSTD_FROM, _DETAILS_FROM, _LEADERS_FROM, _IDS_FROM = 3, 7, 8, 10, 13
"""The versions of Produce from which on it has record batches, zstd, details of errors, the leader in its
answers, and topic ids."""
_ZSTD = 4


@dataclass(frozen=True, slots=True)
class Appended:
    """One batch or message set in a log, as it came."""

    offset: int
    values: tuple[bytes | None, ...]
    producer_id: int
    epoch: int
    sequence: int
    version: int
    """The version of its request."""
    data: bytes


@dataclass
class _PartitionFault:
    code: int
    where: TopicPartition | None
    times: int
    appended: bool
    message: str | None
    records: Mapping[int, str | None]


@dataclass
class _RequestFault:
    node: int | None
    times: int
    kind: str
    appended: bool = True
    seconds: float = 0.0
    released: threading.Event = field(default_factory=threading.Event)


@dataclass
class _Log:
    partition: Partition
    appended: list[Appended] = field(default_factory=list)


class ScriptedCluster:
    """Brokers with ids from 0, which share their topics. The methods of the script may be called at any time.

    A fault holds for the next `times` requests, or partitions in a request, to which it applies; the oldest counts.
    """

    def __init__(
        self,
        brokers: int = 1,
        topics: Mapping[str, int] | None = None,
        *,
        era: Era = Era.MODERN,
        versions: Mapping[type[Request[Any]], tuple[int, int]] | None = None,
        auto_create: int = 0,
        max_message_bytes: int = 1 << 20,
        log_append_time_ms: int = -1,
    ) -> None:
        """`versions` replaces what the brokers speak of an API; (0, -1) takes it away. `auto_create` is the number of
        partitions of a topic that metadata are asked of, 0 for no creation. With `log_append_time_ms` all topics have
        that as LogAppendTime."""
        self.requests: list[tuple[int, ProduceRequest, int]] = []
        """All Produce requests, as (broker, request, version)."""
        self.producer_ids: list[int] = []
        """The ids that were given."""
        self._era = era
        self._versions = {**SPOKEN, **(versions or {})}
        self._auto_create = auto_create
        self._max_message_bytes = max_message_bytes
        self._append_time = log_append_time_ms
        self._lock = threading.Lock()
        self._logs: dict[str, list[_Log]] = {}
        self._topic_ids: dict[str, str] = {}
        self._partition_faults: list[_PartitionFault] = []
        self._request_faults: list[_RequestFault] = []
        self._id_codes: list[int] = []
        self._config_codes: list[int] = []
        self._topic_codes: dict[str, list[int]] = {}
        self._next_id = itertools.count(1000)
        self.brokers = [FakeBroker(self._handlers(node)) for node in range(brokers)]
        for name, count in (topics or {}).items():
            self.create(name, count)

    @property
    def addresses(self) -> tuple[tuple[str, int], ...]:
        return tuple(("127.0.0.1", broker.port) for broker in self.brokers)

    def stop(self) -> None:
        for broker in self.brokers:
            broker.stop()

    # -- topics and logs ----------------------------------------------------------------------------------------------

    def create(self, name: str, partitions: int) -> None:
        """Create a topic, whose leaders are the brokers in turn."""
        with self._lock:
            self._create(name, partitions)

    def move(self, name: str, partition: int, leader: int) -> None:
        """Make another broker the leader. It has the whole log."""
        with self._lock:
            moved = self._logs[name][partition].partition
            moved.leader, moved.leader_epoch = leader, moved.leader_epoch + 1

    def forget_producers(self) -> None:
        """Let the brokers forget all producers, as after a long silence."""
        with self._lock:
            for log in itertools.chain(*self._logs.values()):
                log.partition.producers.clear()

    def log(self, name: str, partition: int) -> list[Appended]:
        """Return what was appended, in its order."""
        with self._lock:
            return list(self._logs[name][partition].appended)

    def values(self, name: str, partition: int) -> list[bytes | None]:
        """Return the values of the log."""
        return [value for each in self.log(name, partition) for value in each.values]

    # -- the script ---------------------------------------------------------------------------------------------------

    def answer(
        self,
        code: int,
        name: str | None = None,
        partition: int = 0,
        *,
        times: int = 1,
        appended: bool = False,
        message: str | None = None,
        records: Mapping[int, str | None] | None = None,
    ) -> None:
        """Answer `code` for the partition (without a topic: for any), after or instead of the append.

        `message` and `records` (messages by the index of a record) come with it from v8 on.
        """
        where = None if name is None else TopicPartition(name, partition)
        with self._lock:
            self._partition_faults.append(_PartitionFault(code, where, times, appended, message, records or {}))

    def cut(self, node: int | None = None, *, times: int = 1, appended: bool) -> None:
        """Close the connection instead of the answer, after or instead of the append."""
        self._fault(_RequestFault(node, times, "cut", appended))

    def mute(self, node: int | None = None, *, times: int = 1, appended: bool = True) -> None:
        """Never answer, after or instead of the append."""
        self._fault(_RequestFault(node, times, "mute", appended))

    def hold(self, node: int | None = None, *, times: int = 1) -> threading.Event:
        """Answer when the event that is returned is set. Requests behind it wait."""
        fault = _RequestFault(node, times, "hold")
        self._fault(fault)
        return fault.released

    def throttle(self, seconds: float, node: int | None = None, *, times: int = 1) -> None:
        """Ask the client to wait."""
        self._fault(_RequestFault(node, times, "throttle", seconds=seconds))

    def refuse_producer_id(self, code: int, times: int = 1) -> None:
        """Answer InitProducerId with `code`."""
        with self._lock:
            self._id_codes += [code] * times

    def refuse_configs(self, code: int, times: int = 1) -> None:
        """Answer DescribeConfigs with `code`."""
        with self._lock:
            self._config_codes += [code] * times

    def refuse_topic(self, name: str, code: int, times: int = 1) -> None:
        """Answer Metadata of the topic with `code`."""
        with self._lock:
            self._topic_codes.setdefault(name, []).extend([code] * times)

    def _fault(self, fault: _RequestFault) -> None:
        with self._lock:
            self._request_faults.append(fault)

    def _take_request_faults(self, node: int) -> dict[str, _RequestFault]:
        """Return the next fault of each kind for this broker."""
        found: dict[str, _RequestFault] = {}
        for fault in self._request_faults:
            if fault.times > 0 and fault.node in (None, node) and fault.kind not in found:
                fault.times -= 1
                found[fault.kind] = fault
        return found

    def _take_partition_fault(self, where: TopicPartition) -> _PartitionFault | None:
        for fault in self._partition_faults:
            if fault.times > 0 and fault.where in (None, where):
                fault.times -= 1
                return fault
        return None

    # -- requests -----------------------------------------------------------------------------------------------------

    def _handlers(self, node: int) -> dict[type[Request[Any]], Any]:
        def locked(handle: Any) -> Any:
            def act(request: Any, version: int) -> Any:
                with self._lock:
                    return handle(node, request, version)

            return act

        handlers = {
            ApiVersionsRequest: self._on_versions,
            MetadataRequest: self._on_metadata,
            ProduceRequest: self._on_produce,
            InitProducerIdRequest: self._on_init_producer_id,
            DescribeConfigsRequest: self._on_describe_configs,
        }
        return {cls: locked(handle) for cls, handle in handlers.items() if self._versions[cls][1] >= 0}

    def _on_versions(self, node: int, request: Any, version: int) -> Any:
        return api_versions(**{cls.NAME.lower(): span for cls, span in self._versions.items() if span[1] >= 0})

    def _on_metadata(self, node: int, request: MetadataRequest, version: int) -> MetadataResponse:
        names = list(self._logs) if request.topics is None else [each.name or "" for each in request.topics]
        for name in names:
            if name not in self._logs and self._auto_create and request.allow_auto_topic_creation:
                self._create(name, self._auto_create)
        topics = [self._described(name) for name in names]
        return metadata({n: broker.port for n, broker in enumerate(self.brokers)}, *topics)

    def _described(self, name: str) -> MetadataResponseTopic:
        if codes := self._topic_codes.get(name):
            return topic(name, error=codes.pop(0))
        if name not in self._logs:
            return topic(name, error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        leaders = [log.partition.leader for log in self._logs[name]]
        return topic(name, *leaders, topic_id=self._topic_ids[name])

    def _on_init_producer_id(self, node: int, request: Any, version: int) -> InitProducerIdResponse:
        if self._id_codes:
            return InitProducerIdResponse(error_code=self._id_codes.pop(0))
        self.producer_ids.append(next(self._next_id))
        return InitProducerIdResponse(producer_id=self.producer_ids[-1], producer_epoch=0)

    def _on_describe_configs(self, node: int, request: DescribeConfigsRequest, version: int) -> DescribeConfigsResponse:
        limit = DescribeConfigsResourceResult(name="max.message.bytes", value=str(self._max_message_bytes))
        code = self._config_codes.pop(0) if self._config_codes else 0
        return DescribeConfigsResponse(
            results=tuple(
                DescribeConfigsResult(
                    error_code=code,
                    error_message=None,
                    resource_type=each.resource_type,
                    resource_name=each.resource_name,
                    configs=() if code else (limit,),
                )
                for each in request.resources
            )
        )

    def _on_produce(self, node: int, request: ProduceRequest, version: int) -> Any:
        self.requests.append((node, request, version))
        faults = self._take_request_faults(node)
        ending = faults.get("cut") or faults.get("mute")
        if ending is not None and not ending.appended:
            return CLOSE if ending.kind == "cut" else SILENCE
        responses = tuple(self._on_topic(node, data, request, version) for data in request.topic_data)
        answers = [answer for each in responses for answer in each.partition_responses]
        if ending is not None:
            return CLOSE if ending.kind == "cut" else SILENCE
        if request.acks == NO_ACKS:  # a real broker has no other way to tell of an error
            return CLOSE if any(answer.error_code for answer in answers) else SILENCE
        moved = {a.current_leader.leader_id for a in answers} - {-1}
        response = ProduceResponse(
            responses=responses,
            throttle_time_ms=int(faults["throttle"].seconds * 1000) if "throttle" in faults else 0,
            node_endpoints=tuple(NodeEndpoint(node_id=n, host="127.0.0.1", port=self.brokers[n].port) for n in moved),
        )
        return Held(response, faults["hold"].released) if "hold" in faults else response

    def _on_topic(
        self, node: int, data: TopicProduceData, request: ProduceRequest, version: int
    ) -> TopicProduceResponse:
        name = data.name or next((n for n, each in self._topic_ids.items() if each == data.topic_id), "")
        answers = []
        for part in data.partition_data:
            where = TopicPartition(name, part.index)
            answers.append(self._on_partition(node, where, bytes(part.records or b""), request.acks, version))
        return TopicProduceResponse(name=data.name, topic_id=data.topic_id, partition_responses=tuple(answers))

    def _on_partition(
        self, node: int, where: TopicPartition, data: bytes, acks: int, version: int
    ) -> PartitionProduceResponse:
        logs = self._logs.get(where.topic, [])
        unknown = ErrorCode.UNKNOWN_TOPIC_ID if version >= _IDS_FROM else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if acks not in (-1, 0, 1):
            return _refused(where, ErrorCode.INVALID_REQUIRED_ACKS)
        if where.partition >= len(logs):
            return _refused(where, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if logs else unknown)
        log = logs[where.partition]
        if log.partition.leader != node:
            return self._not_leader(where, log, version)
        fault = self._take_partition_fault(where)
        code, offset = ErrorCode.NONE, -1
        if fault is None or fault.appended:
            code, offset = self._append(where, log, data, version)
        if fault is not None:
            errors = tuple(
                BatchIndexAndErrorMessage(batch_index=i, batch_index_error_message=m) for i, m in fault.records.items()
            )
            return PartitionProduceResponse(
                index=where.partition,
                error_code=fault.code,
                base_offset=-1,
                record_errors=errors if version >= _DETAILS_FROM else (),
                error_message=fault.message if version >= _DETAILS_FROM else None,
            )
        if code:
            return _refused(where, code)
        return PartitionProduceResponse(
            index=where.partition, base_offset=offset, log_append_time_ms=self._append_time, log_start_offset=0
        )

    def _not_leader(self, where: TopicPartition, log: _Log, version: int) -> PartitionProduceResponse:
        code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        if version < _LEADERS_FROM:
            return _refused(where, code)
        leader = LeaderIdAndEpoch(leader_id=log.partition.leader, leader_epoch=log.partition.leader_epoch)
        return PartitionProduceResponse(index=where.partition, error_code=code, base_offset=-1, current_leader=leader)

    def _append(self, where: TopicPartition, log: _Log, data: bytes, version: int) -> tuple[int, int]:
        """Append a batch as a real broker does. Return the error code and the offset."""
        if len(data) > self._max_message_bytes:
            return ErrorCode.MESSAGE_TOO_LARGE, -1
        try:
            header = _batch(data)[0] if version >= _BATCHES_FROM else None
            values = tuple(_values_of_batch(data) if header else _values_of_set(data))
        except (reference.Refused, struct.error):
            return ErrorCode.CORRUPT_MESSAGE, -1
        if header and header.attributes & 7 == _ZSTD and version < _ZSTD_FROM:
            return ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, -1
        producer = (header.producer, header.producer_epoch, header.sequence) if header else (-1, -1, -1)
        before = len(log.partition.log)
        code, offset = log.partition.append(Sealed(where, tuple(range(len(values))), *producer), self._era)
        if len(log.partition.log) > before:
            log.appended.append(Appended(offset, values, *producer, version, data))
        return code, offset

    def _create(self, name: str, partitions: int) -> None:
        self._topic_ids[name] = f"00000000-0000-4000-8000-{len(self._topic_ids) + 1:012x}"
        self._logs[name] = [_Log(Partition(n % len(self.brokers), most_records=1 << 30)) for n in range(partitions)]


def _refused(where: TopicPartition, code: int) -> PartitionProduceResponse:
    return PartitionProduceResponse(index=where.partition, error_code=code, base_offset=-1)


def _batch(data: bytes) -> tuple[reference.Header, bytes]:
    """Return the one record batch. Raises Refused for anything damaged."""
    batches = list(reference.split(data))
    if len(batches) != 1 or len(batches[0][1]) != len(data):
        raise reference.Refused("not one whole batch")
    header, batch = batches[0]
    if crc32c(batch[21:]) != header.crc:
        raise reference.Refused("checksum")
    return header, batch


def _values_of_batch(data: bytes) -> Iterator[bytes | None]:
    yield from (row.value for row in reference.batch_rows(*_batch(data)))


def _values_of_set(data: bytes) -> Iterator[bytes | None]:
    """Yield the values of a message set of magic 0 or 1. Raises Refused for anything damaged."""
    for message in reference_sets.frames(data):
        message.check()
        if message.codec:
            yield from (leaf.parse().value for _, leaf in reference_sets.leaves(message, message.offset, check=True))
        else:
            yield message.parse().value
