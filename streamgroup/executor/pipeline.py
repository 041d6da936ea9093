"""The fetches of one leader of Kafka 0.8 or later.

Where to go on is read off the batches' headers, so it is known long before the records are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from streamgroup.errors import DecodeError, ErrorCode, TooLarge, TransportError, error_of
from streamgroup.executor.cursor import Cursor
from streamgroup.executor.fetching import Fetching, Portion
from streamgroup.net.connection import Connection
from streamgroup.options.types import FetchOptions, Isolation
from streamgroup.records.batches import FRAME, SIZE_END, Frames
from streamgroup.records.transactions import AbortedTransaction
from streamgroup.wire.messages.log import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData

FIRST_WHOLE = 3
"""From it on the first message comes whole, however large, and a request says how large the answer may be (KIP-74).
Before it (brokers before 0.10.1) what is asked for of each partition is all that bounds both."""
FIRST_WITH_TRANSACTIONS = 4
LAST_WITH_NAMES = 12


class Pipeline(Fetching):
    """The fetches of Kafka 0.8 and everything after it."""

    def __init__(
        self,
        connection: Connection,
        cursors: Sequence[Cursor],
        options: FetchOptions,
        clock: Callable[[], float],
    ) -> None:
        super().__init__(connection, cursors, options, clock)
        self._asked: dict[tuple[str, int], Cursor] = {}
        named = any(not cursor.topic_id for cursor in cursors)
        self._version = connection.versions.highest(FetchRequest, LAST_WITH_NAMES if named else None)
        self._most = min(options.max_partition_bytes, options.max_bytes)
        self._most_for_one = min(
            max(options.max_partition_bytes, options.max_bytes), connection.options.max_frame_bytes - _ENVELOPE
        )

    @property
    def _is_asked(self) -> bool:
        return bool(self._asked)

    def _ask(self) -> bool:
        wanted = self._wanted()
        if not wanted:
            return False
        topics: dict[tuple[str, str], list[FetchPartition]] = {}
        for cursor in wanted:
            topics.setdefault((cursor.tp.topic, cursor.topic_id), []).append(
                FetchPartition(
                    partition=cursor.tp.partition,
                    current_leader_epoch=cursor.leader_epoch,
                    fetch_offset=cursor.ahead,
                    partition_max_bytes=cursor.asked,
                )
            )
            self._asked[self._key(cursor)] = cursor
        request = FetchRequest(
            max_wait_ms=self._options.max_wait_ms,
            min_bytes=self._options.min_bytes,
            max_bytes=self._most,
            isolation_level=self._options.isolation.value,
            topics=tuple(
                FetchTopic(topic=name, topic_id=topic_id, partitions=tuple(partitions))
                for (name, topic_id), partitions in topics.items()
            ),
        )
        self._connection.send(request, self._version)
        return True

    def _wanted(self) -> list[Cursor]:
        """Whom the next request is for; each knows how many bytes are `asked` of it."""
        wanted = self._whose_turn()
        left = self._most
        for count, cursor in enumerate(wanted):
            cursor.asked = cursor.bytes_wanted(self._most)
            left -= cursor.asked
            if left < 0 and count and self._version < FIRST_WHOLE:
                return wanted[:count]
        return wanted

    def _key(self, cursor: Cursor) -> tuple[str, int]:
        return (cursor.tp.topic if self._version <= LAST_WITH_NAMES else cursor.topic_id), cursor.tp.partition

    def _receive(self) -> None:
        wait = (self._options.max_wait_ms + self._connection.options.request_timeout_ms) / 1000
        asked = ", ".join(str(cursor) for cursor in self._asked.values())
        try:
            response: FetchResponse = self._connection.receive(self._clock() + wait).response
        except (TransportError, DecodeError) as error:
            raise type(error)(f"{error} (for {asked})") from error
        if response.error_code:
            raise TransportError(f"{self._connection}: {error_of(response.error_code).name} for a Fetch of {asked}")
        self._turn += 1
        rows = [
            (cursor, row)
            for topic in response.responses
            for row in topic.partitions
            if (cursor := self._asked.pop((topic.topic or topic.topic_id, row.partition_index), None)) is not None
        ]
        for missing in self._asked.values():
            missing.waits(self._clock())
        self._asked.clear()
        is_proof = not response.throttle_time_ms and not any(row.records for _, row in rows)
        first = True
        portions: list[Portion] = []
        for cursor, row in rows:
            portion = self._portion(cursor, row, first)
            if portion is None and is_proof and self._readable(row) > cursor.ahead:
                cursor.empty_answers += 1
                cursor.readable = self._readable(row)
            first = first and not row.records
            if portion is not None:
                portions.append(portion)
        self._ready.append(portions)

    def _portion(self, cursor: Cursor, row: PartitionData, first: bool) -> Portion | None:
        """Note what `row` says of its range. `first`: no partition before it has records."""
        now = self._clock()
        if row.error_code != ErrorCode.NONE:
            cursor.fails(error_of(row.error_code), now)
            return None
        cursor.high_watermark = row.high_watermark
        records = memoryview(row.records or b"")
        ahead, size = self._look_ahead(records, cursor)
        if ahead <= cursor.ahead:
            if records and self._version < FIRST_WHOLE:
                self._ask_for_more(cursor, records)
            elif records and first:
                raise _too_large(cursor, len(records))
            else:
                cursor.waits(now)
            return None
        start = cursor.ahead
        cursor.fetched(ahead, size)
        cursor.turn = self._turn
        aborted = tuple(AbortedTransaction(a.producer_id, a.first_offset) for a in row.aborted_transactions or ())
        return Portion(cursor, start, ahead, records, aborted)

    def _ask_for_more(self, cursor: Cursor, records: memoryview) -> None:
        """The first message is larger than what was asked for: the next request is to ask for all of it.

        Raises TooLarge where that is more than an answer may hold.
        """
        size = FRAME.unpack_from(records)[1] + SIZE_END if len(records) >= FRAME.size else 0
        least = max(size, 2 * cursor.asked)
        if max(size, cursor.asked + 1) > self._most_for_one:
            raise _too_large_to_ask_for(cursor, size, self._most_for_one)
        cursor.least = min(least, self._most_for_one)

    def _readable(self, row: PartitionData) -> int:
        """The offset below which the leader shows what it has."""
        committed = self._options.isolation is Isolation.READ_COMMITTED and self._version >= FIRST_WITH_TRANSACTIONS
        return row.last_stable_offset if committed else row.high_watermark

    @staticmethod
    def _look_ahead(records: memoryview, cursor: Cursor) -> tuple[int, int]:
        """Where to go on behind the whole batches of `records`, and how many bytes those of the range take.

        Where they cannot be told apart it is `until`: the decoder will say what is wrong with them, and there is
        nothing to fetch before it has.
        """
        frames = Frames(records, cursor.until, cursor.ahead)
        ahead, size = cursor.ahead, 0
        try:
            for batch in frames:
                ahead, size = max(ahead, batch.last_offset + 1), batch.end
        except DecodeError:
            return cursor.until, len(records)
        return (ahead if frames.beyond is None else max(ahead, frames.beyond)), size


_ENVELOPE = 64 * 1024
"""What an answer has beside the records of one partition."""


def _too_large_to_ask_for(cursor: Cursor, size: int, most: int) -> TooLarge:
    error = TooLarge(
        f"{cursor.tp}: the message at offset {cursor.ahead} takes {size or 'more'} bytes, and at most {most} are asked "
        "for; raise kafka.fetch.max.bytes (up to 100 MB)"
    )
    error.base_offset = cursor.ahead
    return error


def _too_large(cursor: Cursor, size: int) -> TooLarge:
    error = TooLarge(
        f"{cursor.tp}: the record batch at offset {cursor.ahead} is larger than the {size} bytes that the broker sent; "
        "raise kafka.max.partition.fetch.bytes"
    )
    error.base_offset = cursor.ahead
    return error
