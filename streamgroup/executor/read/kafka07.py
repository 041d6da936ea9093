"""Reads the logs of Kafka 0.7 in a task, by FETCH, MULTIFETCH and OFFSETS.

The offsets of a range are byte positions, and a request asks for exactly its bytes. A response ends at the end of a log
segment. It is empty if the broker has not flushed more: a broker of 0.7 never waits for new messages.

A partition belongs to one broker and never moves. The broker may come back, or may have lost the partition. Tasks do
not read ZooKeeper: a task retries the planned address of an offline broker until the range times out. After a restart
of the query the range is planned with the broker's new address.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple, cast

from streamgroup.errors import BrokerError, DecodeError, KafkaError, TooLarge, TransportError
from streamgroup.executor.pools import POOL
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
from streamgroup.kafka.net.connection import Connection
from streamgroup.kafka.records.decode import Decoded, DecodeOptions
from streamgroup.kafka.records.messages07 import Frames07, decode07
from streamgroup.kafka.wire.kafka07 import (
    EARLIEST_TIME,
    LATEST_TIME,
    ErrorCode07,
    FetchRequest07,
    FetchResponse07,
    MultiFetchRequest07,
    MultiFetchResponse07,
    OffsetsRequest07,
    error07_of,
)
from streamgroup.logformat import broker_partition
from streamgroup.model import Dialect
from streamgroup.options.types import ClientOptions, FetchOptions

log = logging.getLogger(__name__)

_MIN_SHARE_BYTES = 64 * 1024
"""The least bytes of each partition in one MULTIFETCH, however many there are."""
_LENGTH = 4
_OVERHEAD = 64
"""The most bytes of a FETCH response in addition to the messages."""


class Kafka07FetchProtocol(FetchProtocol):
    """Makes the FETCH and MULTIFETCH requests for one broker of Kafka 0.7.

    A response has at most `max_partition_bytes`. A larger message is fetched alone, up to `max_frame_bytes`.
    """

    def __init__(self, connection: Connection, options: FetchOptions) -> None:
        self._connection = connection
        self.timeout_s = connection.options.request_timeout_ms / 1000
        self._max_bytes = min(options.max_partition_bytes, options.max_bytes)
        self._max_frame_bytes = connection.options.max_frame_bytes

    def ask(self, wanted: Sequence[Cursor]) -> PreparedFetch:
        """Return a FETCH or a MULTIFETCH of `wanted`. If one of them has a large message next, fetch that one alone."""
        share = max(_MIN_SHARE_BYTES, self._max_bytes // len(wanted))
        share = min(share, (self._max_frame_bytes - _OVERHEAD) // len(wanted) - _OVERHEAD)
        cursors = list(wanted)
        # A message that is larger than its share is fetched alone.
        alone = next((cursor for cursor in cursors if cursor.min_bytes > share), None)
        if alone is not None:
            cursors, share = [alone], alone.min_bytes
        for cursor in cursors:
            cursor.asked_bytes = min(share, cursor.until - cursor.ahead)
        fetches = tuple(map(_fetch, cursors))
        return PreparedFetch(cursors, fetches[0] if len(fetches) == 1 else MultiFetchRequest07(fetches))

    def read(self, response: FetchResponse07 | MultiFetchResponse07, asked: Sequence[Cursor]) -> list[Fetched]:
        """Return the parts of `response` with their messages, in the order of the request."""
        if isinstance(response, FetchResponse07):
            parts: Sequence[FetchResponse07] = (response,)
        else:
            if response.error:
                raise TransportError(
                    f"broker {self._connection} refused a MULTIFETCH: {error07_of(response.error).name}"
                )
            parts = response.parts
        return [self._fetched(cursor, part) for cursor, part in zip(asked, parts, strict=True)]

    def _fetched(self, cursor: Cursor, part: FetchResponse07) -> Fetched:
        if part.error:
            return Fetched(cursor, error07_of(part.error))
        size = len(part.records)
        if size > cursor.asked_bytes:
            where = f"{cursor.log_format.name(cursor.tp)} at position {cursor.ahead}"
            raise DecodeError(
                f"invalid response from {self._connection}: {size} bytes for {where}, "
                f"but {cursor.asked_bytes} requested"
            )
        return Fetched(cursor, frames=Frames07(memoryview(part.records), cursor.ahead, cursor.until))

    def note_no_progress(self, fetched: Fetched, now: float) -> None:
        """Record why a response had no complete message of its partition, so that the next request differs.

        A truncated message is requested completely. An empty response is counted: the broker may have lost the log.
        """
        cursor = fetched.cursor
        if fetched.frames is not None and len(fetched.frames.data):
            self._ask_for_all(cursor, fetched.frames.data)
        cursor.empty_answers += 1
        cursor.mark_waiting(now)

    def _ask_for_all(self, cursor: Cursor, records: memoryview) -> None:
        """Let the next request ask for all of a message that is larger than the response.

        Raises TooLarge if that is more than a response may hold, DecodeError if no message can begin there.
        """
        length = int.from_bytes(records[:_LENGTH], "big", signed=True) if len(records) >= _LENGTH else 0
        announced = f"the bytes there declare a message of {length} bytes"
        if len(records) < cursor.asked_bytes:  # a message is never in two segments, or partly flushed
            raise _error(DecodeError, cursor, f"{announced}, but the segment has only {len(records)} more")
        if cursor.ahead + max(_LENGTH + length, len(records) + 1) > cursor.until:
            ends = f"the range ends within it, at {cursor.until}; one of the two positions is not a message boundary"
            raise _error(DecodeError, cursor, f"{announced}, but {ends}")
        most = self._max_frame_bytes - 2 * _OVERHEAD
        if _LENGTH + length > most:
            raise _error(TooLarge, cursor, f"{announced}, but at most {most} can be read")
        cursor.min_bytes = _LENGTH + length


def _fetch(cursor: Cursor) -> FetchRequest07:
    _, partition = broker_partition(cursor.tp.partition)
    return FetchRequest07(cursor.tp.topic, partition, cursor.ahead, cursor.asked_bytes)


def _error(kind: type[DecodeError], cursor: Cursor, what: str) -> DecodeError:
    error = kind(f"{cursor.log_format.name(cursor.tp)}: position {cursor.ahead}: {what}")
    error.base_offset = cursor.ahead
    return error


class _Log(NamedTuple):
    start: int
    end: int


class Kafka07Lookup(LogLookup):
    """Checks which records the logs of failed ranges of Kafka 0.7 have, at the planned broker of each range."""

    next_step = (
        ". Tasks do not look for brokers in ZooKeeper. Start the query again: it plans this range at the broker's "
        "new address"
    )

    def __init__(self, client: ClientOptions, clock: Callable[[], float]) -> None:
        self._client = client
        self._clock = clock

    def close(self) -> None:
        """Do nothing: the connections belong to the pool."""

    def require_mendable(self, cursor: Cursor) -> None:
        """Raise TransportError if the plan has no broker for the range.

        Raises BrokerError for every error of a broker except a position out of range.
        """
        if cursor.leader is None:
            raise TransportError(
                f"{cursor}: {_absence(cursor)}, and tasks do not look for brokers in ZooKeeper. Start the broker, then "
                "start the query again"
            )
        failure = cursor.failure
        if isinstance(failure, KafkaError) and failure.code != ErrorCode07.OFFSET_OUT_OF_RANGE:
            name = cursor.log_format.name(cursor.tp)
            hint = ", which may have been started with fewer num.partitions"
            raise BrokerError(
                failure,
                f"fetching {name} at position {cursor.ahead} of {cursor.leader}"
                + (hint if failure.code == ErrorCode07.WRONG_PARTITION else ""),
            )

    def look_up(self, cursors: Sequence[Cursor], deadline: float) -> Iterator[Loss]:
        """Check positions that are out of range against the logs. The other ranges retry the same brokers."""
        for cursor in cursors:
            if has_failed_with(cursor, ErrorCode07.OFFSET_OUT_OF_RANGE) and (loss := self._place(cursor, deadline)):
                yield loss
            if not cursor.done:
                cursor.move_to(cursor.leader)

    def pass_gaps(self, cursors: Sequence[Cursor], connection: Connection, deadline: float) -> Iterator[Loss]:
        """Check whether the brokers have lost planned records: a broker that has lost them sends empty responses.

        Ranges of Kafka 0.7 have no gaps.
        """
        for cursor in cursors:
            if loss := self._place(cursor, deadline):
                yield loss

    def last_look(self, cursor: Cursor, waited_s: float) -> Loss | str:
        """Check whether the log of `cursor` still continues after its position.

        If it does, nothing is lost, even if the log ends before the range does: the broker may just have restarted, and
        the next attempt first reads up to the log's end.
        """
        found = self._log(cursor, self._clock() + LAST_LOOK_TIMEOUT_S)
        if found.start > cursor.position:
            return _overtaken(cursor, found)
        if found.end <= cursor.position:
            text = f"for {waited_s:.0f} s the log has ended at position {found.end}: the broker has lost the rest"
            return Loss(cursor, cursor.until, text)
        return f"the log holds [{found.start}, {found.end})"

    def _place(self, cursor: Cursor, deadline: float) -> Loss | None:
        """Compare a position that is out of range, or without records, with the log.

        A broker that cannot be reached is asked again until the range times out.
        """
        try:
            found = self._log(cursor, deadline)
        except TransportError as error:
            log.debug("%s: cannot list the offsets of its log: %s", cursor, error)
            return None
        return _overtaken(cursor, found) if found.start > cursor.position else None

    def _log(self, cursor: Cursor, deadline: float) -> _Log:
        """Return the start and the end of the log of `cursor`. Raises TransportError."""
        leader = cursor.leader
        if leader is None:
            raise TransportError(_absence(cursor))
        connection = POOL.take(leader.host, leader.port, self._client, deadline, Dialect.KAFKA07)
        try:
            _, partition = broker_partition(cursor.tp.partition)
            for at in (EARLIEST_TIME, LATEST_TIME):
                connection.send(OffsetsRequest07(cursor.tp.topic, partition, at, 1))
            start, end = (connection.receive(deadline).response.offsets for _ in range(2))
        finally:
            POOL.give_back(connection)
        if not (start and end):
            name = cursor.log_format.name(cursor.tp)
            raise DecodeError(f"{leader}: no offset of {name} in an OFFSETS response, which always has one")
        return _Log(start[0], end[0])


def _absence(cursor: Cursor) -> str:
    return f"broker {cursor.log_format.broker_of(cursor.tp.partition)} was not registered when planned"


def _overtaken(cursor: Cursor, found: _Log) -> Loss:
    return Loss(cursor, found.start, f"the log now begins at position {found.start} (retention)", KEEP_LONGER)


class Kafka07ReadFormat(ReadFormat):
    """Reads logs of Kafka 0.7, in which offsets are byte positions.

    The offset of a record is the position of its message, or of the compressed message that contains it.
    """

    dialect = Dialect.KAFKA07
    frame_noun = "message"
    next_frame_unknown = (
        "positions of Kafka 0.7 are bytes, and nothing shows where the next message begins. Each segment begins with "
        "a message: its file is named after the position"
    )

    def fetch_protocol(self, connection: Connection, cursors: Sequence[Cursor], options: FetchOptions) -> FetchProtocol:
        return Kafka07FetchProtocol(connection, options)

    def lookup(self, client: ClientOptions, fetch: FetchOptions, clock: Callable[[], float]) -> LogLookup:
        return Kafka07Lookup(client, clock)

    def decode(self, portion: Portion, position: int, options: DecodeOptions) -> Decoded:
        return decode07(cast("Frames07", portion.frames), position, options)


KAFKA07_READ_FORMAT: Final = Kafka07ReadFormat()
