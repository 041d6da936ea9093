"""Reads the logs of Kafka 0.8 and later in a task.

`KafkaFetchProtocol` makes the Fetch requests. `KafkaLookup` finds the new leader of a partition, and checks which
planned records a log still has, by Metadata, ListOffsets and OffsetForLeaderEpoch.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, cast

from streamgroup.advice import Operation, refusal
from streamgroup.errors import (
    BrokerError,
    ErrorCode,
    KafkaError,
    TooLarge,
    TransportError,
    error_of,
    may_succeed_later,
)
from streamgroup.executor.read.cursor import Cursor
from streamgroup.executor.read.read_format import (
    KEEP_LONGER,
    LAST_LOOK_TIMEOUT_S,
    Fetched,
    FetchProtocol,
    LogLookup,
    Loss,
    Portion,
    PreparedFetch,
    ReadFormat,
    has_failed_with,
)
from streamgroup.kafka.cluster.requests import EpochCheck
from streamgroup.kafka.net.connection import Connection
from streamgroup.kafka.net.requester import requester_of
from streamgroup.kafka.records.batches import FRAME, SIZE_END, Frames
from streamgroup.kafka.records.decode import Decoded, DecodeOptions, decode
from streamgroup.kafka.records.transactions import Aborted
from streamgroup.kafka.wire.messages.log import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ListOffsetsRequest,
    PartitionData,
)
from streamgroup.model import (
    EARLIEST,
    LATEST,
    UNKNOWN_EPOCH,
    Broker,
    ClusterSnapshot,
    Dialect,
    TopicPartition,
    is_another_topic,
)
from streamgroup.options.types import ClientOptions, FetchOptions, Isolation
from streamgroup.text import MOST_NAMED, first_of

if TYPE_CHECKING:
    from streamgroup.kafka.cluster.kafka import KafkaCluster

log = logging.getLogger(__name__)

FIRST_WHOLE = 3
"""The first version of Fetch that returns the first message complete, however large, and bounds the response (KIP-74).

Before it (brokers before 0.10.1), the bytes asked for of each partition bound both the messages and the response."""
FIRST_WITH_TRANSACTIONS = 4
LAST_WITH_NAMES = 12
_ENVELOPE = 64 * 1024
"""Bytes of a response in addition to the records of one partition."""


class KafkaFetchProtocol(FetchProtocol):
    """Makes Fetch requests in the highest version that the broker supports.

    Requests contain topic names if the plan has no topic ids.
    """

    def __init__(self, connection: Connection, cursors: Sequence[Cursor], options: FetchOptions) -> None:
        self._connection = connection
        self._options = options
        self.timeout_s = (options.max_wait_ms + connection.options.request_timeout_ms) / 1000
        named = any(not cursor.topic_id for cursor in cursors)
        self._version = connection.versions.highest(FetchRequest, LAST_WITH_NAMES if named else None)
        self._rack = "" if any(cursor.is_leader_only for cursor in cursors) else options.rack
        self._max_bytes = min(options.max_partition_bytes, options.max_bytes)
        self._max_message_bytes = min(
            max(options.max_partition_bytes, options.max_bytes), connection.options.max_frame_bytes - _ENVELOPE
        )

    def ask(self, wanted: Sequence[Cursor]) -> PreparedFetch:
        """Return a Fetch request for `wanted`.

        Before Kafka 0.10.1 it contains only as many of them as fit into one response.
        """
        cursors = self._fitting(wanted)
        topics: dict[tuple[str, str], list[FetchPartition]] = {}
        for cursor in cursors:
            topics.setdefault((cursor.tp.topic, cursor.topic_id), []).append(
                FetchPartition(
                    partition=cursor.tp.partition,
                    current_leader_epoch=cursor.leader_epoch,
                    fetch_offset=cursor.ahead,
                    partition_max_bytes=cursor.asked_bytes,
                )
            )
        request = FetchRequest(
            max_wait_ms=self._options.max_wait_ms,
            min_bytes=self._options.min_bytes,
            max_bytes=self._max_bytes,
            isolation_level=self._options.isolation.value,
            topics=tuple(
                FetchTopic(topic=name, topic_id=topic_id, partitions=tuple(partitions))
                for (name, topic_id), partitions in topics.items()
            ),
            rack_id=self._rack,
        )
        return PreparedFetch(cursors, request, self._version)

    def _fitting(self, wanted: Sequence[Cursor]) -> list[Cursor]:
        """Return the cursors of `wanted` that fit into one response. Each notes the bytes that are asked for."""
        left = self._max_bytes
        for count, cursor in enumerate(wanted):
            cursor.asked_bytes = cursor.bytes_wanted(self._max_bytes)
            left -= cursor.asked_bytes
            if left < 0 and count and self._version < FIRST_WHOLE:
                return list(wanted[:count])
        return list(wanted)

    def read(self, response: FetchResponse, asked: Sequence[Cursor]) -> list[Fetched]:
        """Return the partitions of `response` with their frames.

        Raises TransportError for an error of the whole request.
        """
        if response.error_code:
            names = first_of([str(cursor) for cursor in asked], MOST_NAMED, "partition")
            raise TransportError(
                f"broker {self._connection} refused a Fetch of {names}: {error_of(response.error_code).name}"
            )
        by_key = {self._key(cursor): cursor for cursor in asked}
        rows = [
            (cursor, row)
            for topic in response.responses
            for row in topic.partitions
            if (cursor := by_key.pop((topic.topic or topic.topic_id, row.partition_index), None)) is not None
        ]
        # A throttled response is empty, whatever the log holds. One with records may lack room for other partitions.
        brokers = {
            node.node_id: Broker(node.node_id, node.host, node.port, node.rack) for node in response.node_endpoints
        }
        is_proof = not response.throttle_time_ms and not any(row.records for _, row in rows)
        fetched = []
        comes_first = True
        for cursor, row in rows:
            if row.error_code:
                fetched.append(Fetched(cursor, error_of(row.error_code), leader=_named_leader(row, brokers)))
            else:
                fetched.append(self._fetched(cursor, row, is_proof, comes_first))
            comes_first = comes_first and not row.records
        return fetched

    def _key(self, cursor: Cursor) -> tuple[str, int]:
        return (cursor.tp.topic if self._version <= LAST_WITH_NAMES else cursor.topic_id), cursor.tp.partition

    def _fetched(self, cursor: Cursor, row: PartitionData, is_proof: bool, comes_first: bool) -> Fetched:
        return Fetched(
            cursor,
            frames=Frames(memoryview(row.records or b""), cursor.ahead, cursor.until),
            aborted=tuple(Aborted(a.producer_id, a.first_offset) for a in row.aborted_transactions or ()),
            high_watermark=row.high_watermark,
            readable=self._readable(row) if is_proof and cursor.replica is None else -1,
            comes_first=comes_first,
            read_replica=_named(row) if cursor.replica is None else None,
        )

    def _readable(self, row: PartitionData) -> int:
        """Return the offset below which the leader returns all of its records."""
        committed = self._options.isolation is Isolation.READ_COMMITTED and self._version >= FIRST_WITH_TRANSACTIONS
        return row.last_stable_offset if committed else row.high_watermark

    def note_no_progress(self, fetched: Fetched, now: float) -> None:
        """Record why a response had no complete message of its partition, so that the next request differs.

        A truncated message is requested with more bytes. If the log ends, the task waits. If the log continues, this is
        counted: after several such responses `KafkaLookup.pass_gaps` skips the offsets without records.

        Raises TooLarge if a broker since 0.10.1 truncates the first batch, or a message is larger than any response.
        """
        cursor = fetched.cursor
        records = fetched.frames.data if fetched.frames is not None else memoryview(b"")
        if records and self._version < FIRST_WHOLE:
            self._ask_for_more(cursor, records)
        elif records and fetched.comes_first:
            raise _too_large(cursor, len(records))
        else:
            cursor.mark_waiting(now)
        if fetched.readable > cursor.ahead:
            cursor.empty_answers += 1
            cursor.readable = fetched.readable

    def _ask_for_more(self, cursor: Cursor, records: memoryview) -> None:
        """Let the next request ask for all of a first message that is larger than the bytes asked for.

        Raises TooLarge if that is more than a response may hold.
        """
        size = FRAME.unpack_from(records)[1] + SIZE_END if len(records) >= FRAME.size else 0
        if max(size, cursor.asked_bytes + 1) > self._max_message_bytes:
            raise _too_large_to_ask_for(cursor, size, self._max_message_bytes)
        cursor.min_bytes = min(max(size, 2 * cursor.asked_bytes), self._max_message_bytes)


def _named_leader(row: PartitionData, brokers: Mapping[int, Broker]) -> tuple[Broker, int] | None:
    leader = brokers.get(row.current_leader.leader_id)
    return None if leader is None else (leader, row.current_leader.leader_epoch)


def _named(row: PartitionData) -> int | None:
    return row.preferred_read_replica if row.preferred_read_replica >= 0 else None


def _too_large_to_ask_for(cursor: Cursor, size: int, most: int) -> TooLarge:
    error = TooLarge(
        f"{cursor.tp}: the message at offset {cursor.ahead} is larger than the {most} bytes of a fetch (its size: "
        f"{size or 'unknown'}). Raise kafka.fetch.max.bytes (up to 100 MB)"
    )
    error.base_offset = cursor.ahead
    return error


def _too_large(cursor: Cursor, size: int) -> TooLarge:
    error = TooLarge(
        f"{cursor.tp}: the record batch at offset {cursor.ahead} is larger than the {size} bytes that the broker sent. "
        "Raise kafka.max.partition.fetch.bytes"
    )
    error.base_offset = cursor.ahead
    return error


EARLIEST_LOCAL = -4
"""ListOffsets v8: the start of the part of a log that is not in tiered storage (KIP-405)."""
_FIRST_WITH_TIERED_STORAGE = 8
"""The first version of ListOffsets that distinguishes local from tiered storage."""
_MENDED = frozenset({ErrorCode.OFFSET_OUT_OF_RANGE})
"""Errors that a retry can resolve only after the leader has reported the ends of its log."""


class KafkaLookup(LogLookup):
    """Finds the new leaders of failed ranges of Kafka 0.8 and later, and checks which records their logs have.

    It connects to the brokers in the options and in the plan.
    """

    def __init__(self, client: ClientOptions, fetch: FetchOptions, clock: Callable[[], float]) -> None:
        self._client = client
        self._timeout_s = fetch.poll_timeout_s
        self._clock = clock
        self._cluster: KafkaCluster | None = None

    def close(self) -> None:
        if self._cluster is not None:
            self._cluster.close()

    def _connected(self) -> KafkaCluster:
        # Most tasks never need it, and start faster without importing it.
        from streamgroup.kafka.cluster.kafka import KafkaCluster  # noqa: PLC0415

        if self._cluster is None:
            self._cluster = KafkaCluster(self._client, clock=self._clock)
        return self._cluster

    def replica(self, cursor: Cursor, node_id: int, deadline: float) -> Broker | None:
        """Return the broker of the replica `node_id` from the metadata. Raises TransportError."""
        snapshot = self._connected().snapshot({cursor.tp.topic}, deadline)
        info = snapshot.partition(cursor.tp)
        return snapshot.brokers.get(node_id) if info is not None and node_id in info.replicas else None

    def require_mendable(self, cursor: Cursor) -> None:
        """Raise BrokerError if the failure of `cursor` cannot be resolved by fresh metadata."""
        failure = cursor.failure
        if isinstance(failure, KafkaError) and not may_succeed_later(failure.code) and failure.code not in _MENDED:
            context = f"fetching {cursor.tp} at offset {cursor.ahead}"
            if failure.code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                raise refusal(failure.code, context, Operation.READ, cursor.tp.topic, requester_of(self._client))
            raise BrokerError(failure, context)

    def look_up(self, cursors: Sequence[Cursor], deadline: float) -> Iterator[Loss]:
        """Read fresh metadata, and check positions that are out of range against the logs.

        Yields the records that are lost. Raises TransportError.
        """
        cluster = self._connected()
        snapshot = cluster.snapshot({cursor.tp.topic for cursor in cursors}, deadline, refresh=True)
        for cursor in cursors:
            if loss := self._follow(cursor, snapshot):
                yield loss
        astray = [c for c in cursors if not c.done and has_failed_with(c, ErrorCode.OFFSET_OUT_OF_RANGE)]
        if astray:
            yield from self._place(astray, cluster, deadline)

    @staticmethod
    def _follow(cursor: Cursor, snapshot: ClusterSnapshot) -> Loss | None:
        """Move `cursor` to its current leader, or return its rest as lost.

        A topic of the same name with another id is another topic (R8).
        """
        topic = snapshot.topics.get(cursor.tp.topic)
        if topic is None:
            return None
        if is_another_topic(cursor.topic_id, topic.topic_id):
            return Loss(cursor, cursor.until, f"the topic was deleted and created again (id {topic.topic_id})")
        info = snapshot.partition(cursor.tp)
        if info is not None:
            failure = cursor.failure
            cursor.move_to(snapshot.leader(cursor.tp), info.leader_epoch)
            cursor.failure = failure
        return None

    @staticmethod
    def _place(cursors: Sequence[Cursor], cluster: KafkaCluster, deadline: float) -> Iterator[Loss]:
        """Compare positions that are out of range with the ends of the logs."""
        partitions: Sequence[TopicPartition] = [cursor.tp for cursor in cursors]
        starts = cluster.list_offsets(dict.fromkeys(partitions, EARLIEST), Isolation.READ_UNCOMMITTED, deadline)
        ends = cluster.list_offsets(dict.fromkeys(partitions, LATEST), Isolation.READ_UNCOMMITTED, deadline)
        for cursor in cursors:
            start, end = starts[cursor.tp].offset, ends[cursor.tp].offset
            if start > cursor.position:
                why = f"the log now begins at offset {start} (retention or DeleteRecords)"
                yield Loss(cursor, start, why, KEEP_LONGER)
            elif end < cursor.position:
                cursor.high_watermark = end

    def pass_gaps(self, cursors: Sequence[Cursor], connection: Connection, deadline: float) -> Iterator[Loss]:
        """Skip offsets that compaction has removed: the log continues after them, but the leader sends no records.

        Tiered storage may be slow to return records, so only the local part of a log proves a gap.
        """
        local: dict[TopicPartition, int] = {}
        if connection.versions.highest(ListOffsetsRequest) >= _FIRST_WITH_TIERED_STORAGE:
            wanted = dict.fromkeys((cursor.tp for cursor in cursors), EARLIEST_LOCAL)
            listed = self._connected().list_offsets(wanted, Isolation.READ_UNCOMMITTED, deadline)
            local = {tp: found.offset for tp, found in listed.items()}
        for cursor in cursors:
            if cursor.position == cursor.ahead >= local.get(cursor.tp, 0):
                to = min(cursor.readable, cursor.until)
                log.info("%s: compaction has removed all records up to offset %d; reading continues there", cursor, to)
                cursor.skip_to(to)
        yield from ()

    def last_look(self, cursor: Cursor, waited_s: float) -> Loss | str:
        """Check with fresh metadata whether the log of `cursor` still continues after its position.

        If it does, nothing is lost, even if the log ends before the range does: the next attempt first reads up to the
        log's end.
        """
        deadline = self._clock() + min(LAST_LOOK_TIMEOUT_S, self._timeout_s)
        cluster, tp = self._connected(), cursor.tp
        snapshot = self._agreed_metadata(tp, cluster, deadline)
        if snapshot.partition(tp) is None:
            unknown = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)
            if any(has_failed_with(cursor, code) for code in unknown):
                return Loss(cursor, cursor.until, f"no broker has had the partition for {waited_s:.0f} s")
            return ""
        if loss := self._follow(cursor, snapshot):
            return loss
        high_watermark = cluster.list_offsets({tp: LATEST}, Isolation.READ_UNCOMMITTED, deadline)[tp].offset
        cursor.high_watermark = high_watermark
        end = max(high_watermark, self._log_end(cursor, cluster, deadline))
        if end > cursor.position:
            return ""
        why = f"the log has ended at offset {end}, as after an unclean leader election or a power loss"
        return Loss(cursor, cursor.until, f"for {waited_s:.0f} s {why}")

    @staticmethod
    def _agreed_metadata(tp: TopicPartition, cluster: KafkaCluster, deadline: float) -> ClusterSnapshot:
        """Ask two brokers, if there are two. Raises TransportError if they do not agree on the leader of `tp`.

        A broker that is cut off from the controller may still act as the leader.
        """
        first = cluster.snapshot({tp.topic}, deadline, refresh=True).partition(tp)
        cluster.distrust_metadata()
        snapshot = cluster.snapshot({tp.topic}, deadline, refresh=True)
        second = snapshot.partition(tp)
        if (first and first.leader) != (second and second.leader):
            raise TransportError(f"the brokers do not agree on the leader of {tp}: {first} and {second}")
        return snapshot

    @staticmethod
    def _log_end(cursor: Cursor, cluster: KafkaCluster, deadline: float) -> int:
        """Return the end of the leader's log, -1 if the leader has no epochs.

        ListOffsets returns the high watermark, which may be below the planned range on a new leader until its followers
        have caught up. Records above it are not lost.
        """
        if cursor.leader_epoch == UNKNOWN_EPOCH:
            return -1
        check = EpochCheck(cursor.leader_epoch, cursor.leader_epoch)
        ends = cluster.epoch_ends({cursor.tp: check}, deadline)
        if cursor.tp not in ends:
            raise TransportError(f"the leader of {cursor.tp} has not returned the end of its log")
        return ends[cursor.tp].end_offset


class KafkaReadFormat(ReadFormat):
    """Reads logs of Kafka 0.8 and later: record batches (magic 2) and messages (magic 0 and 1)."""

    dialect = Dialect.KAFKA
    frame_noun = "batch"
    next_frame_unknown = (
        "nothing shows where the next batch begins. kafka-dump-log.sh shows the batches of a log segment"
    )

    def fetch_protocol(self, connection: Connection, cursors: Sequence[Cursor], options: FetchOptions) -> FetchProtocol:
        return KafkaFetchProtocol(connection, cursors, options)

    def lookup(self, client: ClientOptions, fetch: FetchOptions, clock: Callable[[], float]) -> LogLookup:
        return KafkaLookup(client, fetch, clock)

    def decode(self, portion: Portion, position: int, options: DecodeOptions) -> Decoded:
        return decode(cast("Frames", portion.frames), position, options, portion.aborted)


KAFKA_READ_FORMAT: Final = KafkaReadFormat()
