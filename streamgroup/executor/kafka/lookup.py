"""Where the logs of Kafka 0.8 and later are now: metadata, ListOffsets, OffsetForLeaderEpoch."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from streamgroup.cluster.requests import EpochCheck
from streamgroup.errors import BrokerError, ErrorCode, KafkaError, TransportError, may_succeed_later
from streamgroup.executor.cursor import Cursor
from streamgroup.executor.lookup import KEEP_LONGER, LAST_LOOK_TIMEOUT_S, LogLookup, Loss, has_failed_with
from streamgroup.model import EARLIEST, LATEST, UNKNOWN_EPOCH, ClusterSnapshot, TopicPartition
from streamgroup.net.connection import Connection
from streamgroup.options.types import ClientOptions, FetchOptions, Isolation
from streamgroup.wire.messages.log import ListOffsetsRequest

if TYPE_CHECKING:
    from streamgroup.cluster.kafka import KafkaCluster

log = logging.getLogger(__name__)

EARLIEST_LOCAL = -4
"""ListOffsets v8: where the part of a log begins that is not in tiered storage (KIP-405)."""
_FIRST_WITH_TIERED_STORAGE = 8
"""The first version of ListOffsets that tells local from tiered storage."""
_MENDED = frozenset({ErrorCode.OFFSET_OUT_OF_RANGE})
"""Not retriable by itself: the leader has to be asked first how far the log reaches now."""


class KafkaLookup(LogLookup):
    """Asks the brokers of the options and of the plan."""

    def __init__(self, client: ClientOptions, fetch: FetchOptions, clock: Callable[[], float]) -> None:
        self._client = client
        self._timeout_s = fetch.poll_timeout_ms / 1000
        self._clock = clock
        self._cluster: KafkaCluster | None = None

    def close(self) -> None:
        """Close the connections to the cluster, where there are any."""
        if self._cluster is not None:
            self._cluster.close()

    def _connected(self) -> KafkaCluster:
        # Most tasks never need it, and start faster without importing it.
        from streamgroup.cluster.kafka import KafkaCluster  # noqa: PLC0415

        if self._cluster is None:
            self._cluster = KafkaCluster(self._client, clock=self._clock)
        return self._cluster

    def require_mendable(self, cursor: Cursor) -> None:
        """Raise BrokerError for an error that is not retriable: fresh metadata would not change it."""
        failure = cursor.failure
        if isinstance(failure, KafkaError) and not may_succeed_later(failure.code) and failure.code not in _MENDED:
            raise BrokerError(failure, f"fetching {cursor.tp} at offset {cursor.ahead}")

    def look_up(self, cursors: Sequence[Cursor], deadline: float) -> Iterator[Loss]:
        """Read fresh metadata, and compare positions that are out of range with the logs. Raises TransportError."""
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
        """Move `cursor` to its leader of now, or return its rest as lost.

        A topic of the same name with another id is another topic (R8).
        """
        topic = snapshot.topics.get(cursor.tp.topic)
        if topic is None:
            return None
        if cursor.topic_id and topic.topic_id and topic.topic_id != cursor.topic_id:
            return Loss(cursor, cursor.until, f"the topic was deleted and made anew (id {topic.topic_id})")
        info = snapshot.partition(cursor.tp)
        if info is not None:
            failure = cursor.failure
            cursor.move_to(snapshot.leader(cursor.tp), info.leader_epoch)
            cursor.failure = failure
        return None

    @staticmethod
    def _place(cursors: Sequence[Cursor], cluster: KafkaCluster, deadline: float) -> Iterator[Loss]:
        """Compare positions that their leaders do not have with what the logs hold."""
        partitions: Sequence[TopicPartition] = [cursor.tp for cursor in cursors]
        starts = cluster.list_offsets(dict.fromkeys(partitions, EARLIEST), Isolation.READ_UNCOMMITTED, deadline)
        ends = cluster.list_offsets(dict.fromkeys(partitions, LATEST), Isolation.READ_UNCOMMITTED, deadline)
        for cursor in cursors:
            start, end = starts[cursor.tp].offset, ends[cursor.tp].offset
            if start > cursor.position:
                why = f"the log begins at offset {start} by now (retention or DeleteRecords)"
                yield Loss(cursor, start, why, KEEP_LONGER)
            elif end < cursor.position:
                cursor.high_watermark = end

    def pass_gaps(self, cursors: Sequence[Cursor], connection: Connection, deadline: float) -> Iterator[Loss]:
        """Skip what was compacted away: the leader's log goes on, and it still sends nothing.

        A log in tiered storage may be silent because that is slow: only the part that is local proves a gap.
        """
        local: dict[TopicPartition, int] = {}
        if connection.versions.highest(ListOffsetsRequest) >= _FIRST_WITH_TIERED_STORAGE:
            wanted = dict.fromkeys((cursor.tp for cursor in cursors), EARLIEST_LOCAL)
            listed = self._connected().list_offsets(wanted, Isolation.READ_UNCOMMITTED, deadline)
            local = {tp: found.offset for tp, found in listed.items()}
        for cursor in cursors:
            if cursor.position == cursor.ahead >= local.get(cursor.tp, 0):
                to = min(cursor.readable, cursor.until)
                log.info("%s: no records are left before offset %d", cursor, to)
                cursor.skip_to(to)
        yield from ()

    def last_look(self, cursor: Cursor, waited_s: float) -> Loss | str:
        """Look whether the log of `cursor`, listed anew under fresh metadata, reaches beyond its position.

        Where it does nothing is lost, even where it ends below the range: the next attempt reads up to its end first.
        """
        deadline = self._clock() + min(LAST_LOOK_TIMEOUT_S, self._timeout_s)
        cluster, tp = self._connected(), cursor.tp
        snapshot = self._agreed_metadata(tp, cluster, deadline)
        if snapshot.partition(tp) is None:
            unknown = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)
            if any(has_failed_with(cursor, code) for code in unknown):
                return Loss(cursor, cursor.until, f"for {waited_s:.0f} s no broker has known the partition")
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
        """Ask two brokers, where there are two. Raises TransportError where they do not agree on the leader of `tp`.

        A broker that is cut off from the controller may still take itself for the leader.
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
        """Return where the leader's log ends, -1 where the leader has no epochs to tell by.

        ListOffsets tells the high watermark, which a new leader may hold below the planned range until its followers
        have caught up. Records above it are not lost.
        """
        if cursor.leader_epoch == UNKNOWN_EPOCH:
            return -1
        check = EpochCheck(cursor.leader_epoch, cursor.leader_epoch)
        ends = cluster.epoch_ends({cursor.tp: check}, deadline)
        if cursor.tp not in ends:
            raise TransportError(f"the leader of {cursor.tp} has not told where its log ends")
        return ends[cursor.tp].end_offset
