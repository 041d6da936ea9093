"""The fetches of one leader on one connection: the next one is asked before the answer to the last is decoded.

Where to go on is read off the batches' headers, so it is known long before the records are.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from streamgroup.errors import DecodeError, ErrorCode, TooLarge, TransportError, UnsupportedVersionError, error_of
from streamgroup.executor.cursor import Cursor
from streamgroup.net.connection import Connection
from streamgroup.options.types import FetchOptions, Isolation
from streamgroup.records.batches import Frames
from streamgroup.records.transactions import AbortedTransaction
from streamgroup.wire.messages.log import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData

FIRST_WITH_BATCHES = 4
"""Below it brokers convert records to the formats before 0.11, which are not read."""
LAST_WITH_NAMES = 12
MOST_PARTITIONS = 100
"""Of one request: small ranges of one leader share a round trip."""


class Portion(NamedTuple):
    """What one answer holds of one range: the batches of `[start, ahead)`, the first may begin before."""

    cursor: Cursor
    start: int
    ahead: int
    records: memoryview
    aborted: tuple[AbortedTransaction, ...]


class Pipeline:
    """Fetches `cursors` over `connection`, which is used by nobody else meanwhile.

    At most `prefetch` answers are asked for or held besides the one that is being decoded.
    """

    def __init__(
        self,
        connection: Connection,
        cursors: Sequence[Cursor],
        options: FetchOptions,
        clock: Callable[[], float],
    ) -> None:
        self._connection = connection
        self._cursors = cursors
        self._options = options
        self._clock = clock
        self._asked: dict[tuple[str, int], Cursor] = {}
        self._ready: deque[list[Portion]] = deque()
        self._failure: TransportError | DecodeError | None = None
        self._turn = 0
        named = any(not cursor.topic_id for cursor in cursors)
        self._version = connection.versions.highest(FetchRequest, LAST_WITH_NAMES if named else None)
        if self._version < FIRST_WITH_BATCHES:
            raise UnsupportedVersionError(
                f"{connection}: Fetch v{self._version} is the newest that this broker speaks; "
                f"v{FIRST_WITH_BATCHES} (Kafka 0.11) is needed"
            )

    def next(self) -> list[Portion] | None:
        """The next answer's portions, none where it brought nothing; None when nothing is left to fetch.

        Waits `request_timeout_ms` at most. Partitions that fail are left out from then on: see their cursors' troubles.
        Raises TransportError, DecodeError.
        """
        if not self._ready:
            if self._failure is not None:
                raise self._failure
            if not self._asked and not self._ask():
                return None
            self._receive()
        portions = self._ready.popleft()
        if portions:
            self.pump()
        return portions

    def pump(self) -> None:
        """Take what has arrived and ask for more, without waiting; to be called while decoding.

        Raises nothing: what goes wrong is raised by `next` when all that came before is delivered.
        """
        if self._failure is not None:
            return
        try:
            if self._asked and self._connection.arrived():
                self._receive()
            if not self._asked and len(self._ready) < self._options.prefetch:
                self._ask()
        except (TransportError, DecodeError) as error:
            self._failure = error

    def _ask(self) -> bool:
        """Send the next request; whether there was anything to ask for."""
        wanted = sorted((c for c in self._cursors if c.wants_more), key=lambda c: c.turn)[:MOST_PARTITIONS]
        if not wanted:
            return False
        most = min(self._options.max_partition_bytes, self._options.max_bytes)
        topics: dict[tuple[str, str], list[FetchPartition]] = {}
        for cursor in wanted:
            topics.setdefault((cursor.tp.topic, cursor.topic_id), []).append(
                FetchPartition(
                    partition=cursor.tp.partition,
                    current_leader_epoch=cursor.leader_epoch,
                    fetch_offset=cursor.ahead,
                    partition_max_bytes=cursor.bytes_wanted(most),
                )
            )
            self._asked[self._key(cursor)] = cursor
        request = FetchRequest(
            max_wait_ms=self._options.max_wait_ms,
            min_bytes=self._options.min_bytes,
            max_bytes=most,
            isolation_level=self._options.isolation.value,
            topics=tuple(
                FetchTopic(topic=name, topic_id=topic_id, partitions=tuple(partitions))
                for (name, topic_id), partitions in topics.items()
            ),
        )
        self._connection.send(request, self._version)
        return True

    def _key(self, cursor: Cursor) -> tuple[str, int]:
        return (cursor.tp.topic if self._version <= LAST_WITH_NAMES else cursor.topic_id), cursor.tp.partition

    def _receive(self) -> None:
        """Wait for the answer and put its portions with the others."""
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
            if portion is None and is_proof and self._readable(row) >= cursor.until:
                cursor.empty_answers += 1
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
            if first and len(records) > 0:
                raise _too_large(cursor, len(records))
            cursor.waits(now)
            return None
        start = cursor.ahead
        cursor.fetched(ahead, size)
        cursor.turn = self._turn
        aborted = tuple(AbortedTransaction(a.producer_id, a.first_offset) for a in row.aborted_transactions or ())
        return Portion(cursor, start, ahead, records, aborted)

    def _readable(self, row: PartitionData) -> int:
        """The offset below which the leader shows what it has."""
        return row.last_stable_offset if self._options.isolation is Isolation.READ_COMMITTED else row.high_watermark

    @staticmethod
    def _look_ahead(records: memoryview, cursor: Cursor) -> tuple[int, int]:
        """Where to go on behind the whole batches of `records`, and how many bytes those of the range take.

        Where they cannot be told apart it is `until`: the decoder will say what is wrong with them, and there is
        nothing to fetch before it has.
        """
        frames = Frames(records, cursor.until)
        ahead, size = cursor.ahead, 0
        try:
            for batch in frames:
                ahead, size = max(ahead, batch.last_offset + 1), batch.end
        except DecodeError:
            return cursor.until, len(records)
        return (ahead if frames.beyond is None else max(ahead, frames.beyond)), size


def _too_large(cursor: Cursor, size: int) -> TooLarge:
    error = TooLarge(
        f"{cursor.tp}: the record batch at offset {cursor.ahead} is larger than the {size} bytes that the broker sent; "
        "raise kafka.max.partition.fetch.bytes"
    )
    error.base_offset = cursor.ahead
    return error
