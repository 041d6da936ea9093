"""Fetch requests of Kafka 0.8 and later, and their answers."""

from __future__ import annotations

from collections.abc import Sequence

from streamgroup.errors import ErrorCode, TooLarge, TransportError, error_of
from streamgroup.executor.cursor import Cursor
from streamgroup.executor.exchange import Exchange, Fetched, Inquiry
from streamgroup.net.connection import Connection
from streamgroup.options.types import FetchOptions, Isolation
from streamgroup.records.batches import FRAME, SIZE_END, Frames
from streamgroup.records.transactions import AbortedTransaction
from streamgroup.wire.messages.log import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData

FIRST_WHOLE = 3
"""The first version in which the first message comes whole, however large, and a request bounds the answer (KIP-74).

Before it (brokers before 0.10.1) the bytes asked for of each partition bound both the messages and the answer."""
FIRST_WITH_TRANSACTIONS = 4
LAST_WITH_NAMES = 12
_ENVELOPE = 64 * 1024
"""Bytes of an answer beside the records of one partition."""


class KafkaExchange(Exchange):
    """Fetches in the highest version that the broker speaks; by topic names where a plan has no topic ids."""

    def __init__(self, connection: Connection, cursors: Sequence[Cursor], options: FetchOptions) -> None:
        self._connection = connection
        self._options = options
        self.timeout_s = (options.max_wait_ms + connection.options.request_timeout_ms) / 1000
        named = any(not cursor.topic_id for cursor in cursors)
        self._version = connection.versions.highest(FetchRequest, LAST_WITH_NAMES if named else None)
        self._max_bytes = min(options.max_partition_bytes, options.max_bytes)
        self._max_message_bytes = min(
            max(options.max_partition_bytes, options.max_bytes), connection.options.max_frame_bytes - _ENVELOPE
        )

    def ask(self, wanted: Sequence[Cursor]) -> Inquiry:
        """Return a Fetch of `wanted`; before 0.10.1 of as many as one answer has room for."""
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
        )
        return Inquiry(cursors, request, self._version)

    def _fitting(self, wanted: Sequence[Cursor]) -> list[Cursor]:
        """Return those of `wanted` that one answer has room for, each with the bytes that are asked of it."""
        left = self._max_bytes
        for count, cursor in enumerate(wanted):
            cursor.asked_bytes = cursor.bytes_wanted(self._max_bytes)
            left -= cursor.asked_bytes
            if left < 0 and count and self._version < FIRST_WHOLE:
                return list(wanted[:count])
        return list(wanted)

    def read(self, response: FetchResponse, asked: Sequence[Cursor]) -> list[Fetched]:
        """Return the rows of `response` with their frames. Raises TransportError for the error of a fetch session."""
        if response.error_code:
            names = ", ".join(map(str, asked))
            raise TransportError(f"{self._connection}: {error_of(response.error_code).name} for a Fetch of {names}")
        by_key = {self._key(cursor): cursor for cursor in asked}
        rows = [
            (cursor, row)
            for topic in response.responses
            for row in topic.partitions
            if (cursor := by_key.pop((topic.topic or topic.topic_id, row.partition_index), None)) is not None
        ]
        # A throttled answer is empty, whatever the log holds; one with records had no room for all partitions.
        is_proof = not response.throttle_time_ms and not any(row.records for _, row in rows)
        fetched = []
        comes_first = True
        for cursor, row in rows:
            fetched.append(self._fetched(cursor, row, is_proof, comes_first))
            comes_first = comes_first and not row.records
        return fetched

    def _key(self, cursor: Cursor) -> tuple[str, int]:
        return (cursor.tp.topic if self._version <= LAST_WITH_NAMES else cursor.topic_id), cursor.tp.partition

    def _fetched(self, cursor: Cursor, row: PartitionData, is_proof: bool, comes_first: bool) -> Fetched:
        if row.error_code != ErrorCode.NONE:
            return Fetched(cursor, error_of(row.error_code))
        return Fetched(
            cursor,
            frames=Frames(memoryview(row.records or b""), cursor.ahead, cursor.until),
            aborted=tuple(AbortedTransaction(a.producer_id, a.first_offset) for a in row.aborted_transactions or ()),
            high_watermark=row.high_watermark,
            readable=self._readable(row) if is_proof else -1,
            comes_first=comes_first,
        )

    def _readable(self, row: PartitionData) -> int:
        """Return the offset below which the leader shows what it has."""
        committed = self._options.isolation is Isolation.READ_COMMITTED and self._version >= FIRST_WITH_TRANSACTIONS
        return row.last_stable_offset if committed else row.high_watermark

    def note_no_progress(self, fetched: Fetched, now: float) -> None:
        """Ask for more of a message that came cut, wait for one that is not there yet, or count a proof of a gap.

        Raises TooLarge where a broker since 0.10.1 cuts the very first batch, or a message is larger than an answer.
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
        """Have the next request ask for all of a first message that is larger than what was asked for.

        Raises TooLarge where that is more than an answer may hold.
        """
        size = FRAME.unpack_from(records)[1] + SIZE_END if len(records) >= FRAME.size else 0
        if max(size, cursor.asked_bytes + 1) > self._max_message_bytes:
            raise _too_large_to_ask_for(cursor, size, self._max_message_bytes)
        cursor.min_bytes = min(max(size, 2 * cursor.asked_bytes), self._max_message_bytes)


def _too_large_to_ask_for(cursor: Cursor, size: int, most: int) -> TooLarge:
    error = TooLarge(
        f"{cursor.tp}: the message at offset {cursor.ahead} takes {size or 'more'} bytes, and at most {most} are asked "
        "for. Raise kafka.fetch.max.bytes (up to 100 MB)"
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
