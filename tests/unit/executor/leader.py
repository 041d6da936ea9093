"""A scripted leader, which is a fake broker that has logs, and reads of a task from it."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from streamgroup.executor.read.fetcher import read
from streamgroup.kafka.wire.messages import log as wire
from streamgroup.kafka.wire.messages.cluster import ApiVersionsRequest, MetadataRequest
from streamgroup.model import NO_TOPIC_ID, UNKNOWN_EPOCH, Broker, FetchRange, FetchTask, OffsetRange, TopicPartition
from streamgroup.options.types import ClientOptions, FetchOptions
from tests.fakes.answers import API_VERSIONS, metadata, topic
from tests.fakes.old_broker import old_broker
from tests.unit.kafka.net.conftest import Options, Start
from tests.unit.kafka.records.encoder import Record, encode_batch

TOPIC_ID = "00000000-0000-0000-0000-00000000cafe"
OTHER_ID = "00000000-0000-0000-0000-00000000beef"


def batch(start: int, count: int, **others: Any) -> bytes:
    """A batch of `count` records, whose values are their offsets."""
    return encode_batch([Record(start + i, 1000, b"k", b"%d" % (start + i)) for i in range(count)], **others)


@dataclass
class Log:
    """One partition's batches and what the leader says of them."""

    batches: list[bytes] = field(default_factory=list)
    start: int = 0
    local: int | None = None
    high_watermark: int | None = None
    log_end: int | None = None
    """Where the leader's log ends, where that is not its high watermark."""
    last_stable: int | None = None
    aborted: tuple[wire.AbortedTransaction, ...] = ()
    errors: list[int] = field(default_factory=list)
    """Error codes of the next answers."""
    silences: dict[int, int] = field(default_factory=dict)
    """By offset: so many answers from there still come without records."""
    whole_first: bool = True
    """Whether a first batch comes whole, however little was asked for (KIP-74)."""

    @property
    def end(self) -> int:
        if self.high_watermark is not None:
            return self.high_watermark
        return max((_next_offset(b) for b in self.batches), default=self.start)

    def at(self, timestamp: int) -> int:
        """The answer to ListOffsets: latest, earliest, earliest that is local."""
        return {-1: self.end, -2: self.start, -4: self.start if self.local is None else self.local}[timestamp]

    def read(self, offset: int, most: int) -> bytes:
        """From the batch that holds `offset`, at most so many bytes."""
        left = b"".join(b for b in self.batches if _next_offset(b) > offset)
        silent = self.silences.get(offset, 0)
        if silent or not left:
            self.silences[offset] = max(0, silent - 1)
            return b""
        first = struct.unpack_from(">i", left, 8)[0] + 12
        return left[: max(first, most) if self.whole_first else most]

    def answer(self, index: int, offset: int, most: int) -> wire.PartitionData:
        code = self.errors.pop(0) if self.errors else 0
        if not code and not self.start <= offset <= self.end:
            code = 1
        if code:
            return wire.PartitionData(partition_index=index, error_code=code, high_watermark=-1, records=b"")
        return wire.PartitionData(
            partition_index=index,
            high_watermark=self.end,
            last_stable_offset=self.end if self.last_stable is None else self.last_stable,
            aborted_transactions=self.aborted,
            records=self.read(offset, most),
        )


class Leader:
    """A broker, id 1, that leads all partitions of `orders`, unless `lead_by` says otherwise."""

    def __init__(self, start: Start, options: Options, *logs: Log, node: int = 1, release: str = "") -> None:
        """With `release` (`0.9`) it is a broker of that release."""
        self.options = options
        self.logs = logs
        self.node = node
        self.lead_by: list[int] = [node] * len(logs)
        self.peers: dict[int, int] = {}
        self.topic_id = TOPIC_ID
        self.epoch = 7
        self.known = True
        self.throttle = 0
        self.follower: int | None = None
        """The replica that readers with a rack are sent to (KIP-392)."""
        self.ignores_racks = False
        """Whether readers without a rack are sent there, too, as by a selector of the cluster's own."""
        self.instead: list[Any] = []
        """The results in place of the next answers to Fetch."""
        handlers: dict[str, Callable[..., Any]] = {
            "Metadata": self._metadata,
            "Fetch": self._fetch,
            "ListOffsets": self._list_offsets,
        }
        if release:
            self.topic_id, self.epoch = "", -1
            for log in logs:
                log.whole_first = False
            self.broker = old_broker(start, release, **handlers)
        else:
            handlers["OffsetForLeaderEpoch"] = self._epoch_ends
            apis = {
                api.NAME: api
                for api in (
                    MetadataRequest,
                    wire.FetchRequest,
                    wire.ListOffsetsRequest,
                    wire.OffsetForLeaderEpochRequest,
                )
            }
            known = {apis[name]: handler for name, handler in handlers.items()}
            self.broker = start({ApiVersionsRequest: lambda *_: API_VERSIONS, **known})
        self.peers[node] = self.broker.port

    def client(self, **others: Any) -> ClientOptions:
        """Return options of a client with short waits."""
        return self.options(self.broker.port, **others)

    def fetches(self) -> list[list[tuple[int, int]]]:
        """The (partition, offset) pairs of all Fetch requests so far."""
        return [
            [(p.partition, p.fetch_offset) for t in request.topics for p in t.partitions]
            for request in self.broker.asked("Fetch")
        ]

    def _metadata(self, request: MetadataRequest, version: int) -> Any:
        name = [] if not request.topics else [t.name for t in request.topics]
        if version and name != ["orders"]:
            return metadata(self.peers)
        if not self.known:
            return metadata(self.peers, topic("orders", error=3))
        facts: dict[str, Any] = {"topic_id": self.topic_id, "epoch": self.epoch, "replicas": tuple(self.peers)}
        return metadata(self.peers, topic("orders", *self.lead_by, **facts))

    def _fetch(self, request: wire.FetchRequest, version: int) -> Any:
        if self.instead:
            return self.instead.pop(0)
        topics = []
        left = request.max_bytes
        for each in request.topics:
            rows = []
            for p in each.partitions:
                row = self._row(request, p, min(left, p.partition_max_bytes))
                left -= len(row.records or b"")
                rows.append(row)
            topics.append(wire.FetchableTopicResponse(topic=each.topic, topic_id=each.topic_id, partitions=tuple(rows)))
        return wire.FetchResponse(throttle_time_ms=self.throttle, responses=tuple(topics))

    def _row(self, request: wire.FetchRequest, asked: wire.FetchPartition, most: int) -> wire.PartitionData:
        log, index, offset = self.logs[asked.partition], asked.partition, asked.fetch_offset
        redirects = self.follower is not None and (request.rack_id or self.ignores_racks)
        if redirects and not log.errors and log.start <= offset <= log.end:
            return replace(log.answer(index, offset, most), preferred_read_replica=self.follower, records=b"")
        return log.answer(index, offset, most)

    def _list_offsets(self, request: wire.ListOffsetsRequest, version: int) -> wire.ListOffsetsResponse:
        (asked,) = request.topics
        rows = tuple(
            self._listed(p.partition_index, self.logs[p.partition_index].at(p.timestamp), version)
            for p in asked.partitions
        )
        return wire.ListOffsetsResponse(topics=(wire.ListOffsetsTopicResponse(name=asked.name, partitions=rows),))

    def _epoch_ends(self, request: wire.OffsetForLeaderEpochRequest, version: int) -> wire.OffsetForLeaderEpochResponse:
        """The current epoch ends where the log does."""
        (asked,) = request.topics
        rows = []
        for p in asked.partitions:
            log = self.logs[p.partition]
            end = log.end if log.log_end is None else log.log_end
            rows.append(wire.EpochEndOffset(partition=p.partition, leader_epoch=p.leader_epoch, end_offset=end))
        return wire.OffsetForLeaderEpochResponse(
            topics=(wire.OffsetForLeaderTopicResult(topic=asked.topic, partitions=tuple(rows)),)
        )

    @staticmethod
    def _listed(index: int, offset: int, version: int) -> wire.ListOffsetsPartitionResponse:
        if version == 0:
            return wire.ListOffsetsPartitionResponse(partition_index=index, old_style_offsets=(offset,))
        return wire.ListOffsetsPartitionResponse(partition_index=index, offset=offset)


Lead = Callable[..., Leader]
"""The fixture `lead`, which starts a leader of these logs."""


def _next_offset(data: bytes) -> int:
    base, delta = struct.unpack_from(">q", data)[0], struct.unpack_from(">i", data, 23)[0]
    return int(base + delta + 1)


def planned(leader: Leader | None, start: int, until: int, partition: int = 0, **others: Any) -> FetchRange:
    at = None if leader is None else Broker(leader.node, "127.0.0.1", leader.broker.port)
    facts = {"topic_id": TOPIC_ID, "leader_epoch": 7, **others}
    return FetchRange(OffsetRange(TopicPartition("orders", partition), start, until), at, **facts)


QUICK = FetchOptions(max_wait_ms=10, poll_timeout_ms=1_000)
"""For tests that wait for the poll timeout. The last look at the log, which may take as long, needs this much."""


def of_old(leader: Leader, start: int, until: int, partition: int = 0) -> FetchRange:
    return planned(leader, start, until, partition, topic_id=NO_TOPIC_ID, leader_epoch=UNKNOWN_EPOCH)


PATIENT = replace(QUICK, poll_timeout_ms=10_000)
"""For all others: a busy machine answers late."""


class Reading:
    """Reads with the options of a test."""

    def __init__(self, leader: Leader, fetch: FetchOptions = PATIENT, **client: Any) -> None:
        self.client = leader.client(**client)
        self.fetch = fetch

    def batches(self, *ranges: FetchRange, **others: Any) -> list[pa.RecordBatch]:
        return list(read(FetchTask(ranges), self.client, self.fetch, **others))

    def offsets(self, *ranges: FetchRange, **others: Any) -> list[int]:
        found: list[int] = []
        for each in self.batches(*ranges, **others):
            found += each["offset"].to_pylist()
        return found


def damaged(sound: bytes) -> bytes:
    flipped = bytearray(sound)
    flipped[-1] ^= 1
    return bytes(flipped)


def with_a_damaged_batch(lead: Lead) -> Leader:
    return lead(Log([batch(0, 10), damaged(batch(10, 10)), batch(20, 10)]))
