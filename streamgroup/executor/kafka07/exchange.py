"""FETCH and MULTIFETCH of Kafka 0.7, and their answers.

A range says to the byte what is wanted, so the broker never sends what lies behind it. An answer ends with its segment,
and is empty where nothing is flushed: the broker never waits for more.
"""

from __future__ import annotations

from collections.abc import Sequence

from streamgroup.errors import DecodeError, TooLarge, TransportError
from streamgroup.executor.cursor import Cursor
from streamgroup.executor.exchange import Exchange, Fetched, Inquiry
from streamgroup.logformat import broker_partition
from streamgroup.net.connection import Connection
from streamgroup.options.types import FetchOptions
from streamgroup.records.messages07 import Frames07
from streamgroup.wire.kafka07 import (
    FetchRequest07,
    FetchResponse07,
    MultiFetchRequest07,
    MultiFetchResponse07,
    error07_of,
)

_MIN_SHARE_BYTES = 64 * 1024
"""Of each partition in one MULTIFETCH, however many there are."""
_LENGTH = 4
_OVERHEAD = 64
"""Bytes of a FETCH answer beside the messages, at most."""


class Kafka07Exchange(Exchange):
    """One answer has `max_partition_bytes` at most; only a larger message comes alone, up to `max_frame_bytes`."""

    def __init__(self, connection: Connection, options: FetchOptions) -> None:
        self._connection = connection
        self.timeout_s = connection.options.request_timeout_ms / 1000
        self._max_bytes = min(options.max_partition_bytes, options.max_bytes)
        self._max_frame_bytes = connection.options.max_frame_bytes

    def ask(self, wanted: Sequence[Cursor]) -> Inquiry:
        """Return a FETCH or a MULTIFETCH of `wanted`, or the FETCH of the one that has a large message next."""
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
        return Inquiry(cursors, fetches[0] if len(fetches) == 1 else MultiFetchRequest07(fetches))

    def read(self, response: FetchResponse07 | MultiFetchResponse07, asked: Sequence[Cursor]) -> list[Fetched]:
        """Return the parts of `response`, which come in the order of the request, with their messages."""
        if isinstance(response, FetchResponse07):
            parts: Sequence[FetchResponse07] = (response,)
        else:
            if response.error:
                raise TransportError(f"{self._connection}: {error07_of(response.error).name} for a whole MULTIFETCH")
            parts = response.parts
        return [self._fetched(cursor, part) for cursor, part in zip(asked, parts, strict=True)]

    def _fetched(self, cursor: Cursor, part: FetchResponse07) -> Fetched:
        if part.error:
            return Fetched(cursor, error07_of(part.error))
        size = len(part.records)
        if size > cursor.asked_bytes:
            where = f"{cursor.log_format.name(cursor.tp)} at position {cursor.ahead}"
            raise DecodeError(f"{self._connection}: {size} bytes for {where}, {cursor.asked_bytes} were asked for")
        return Fetched(cursor, frames=Frames07(memoryview(part.records), cursor.ahead, cursor.until))

    def note_no_progress(self, fetched: Fetched, now: float) -> None:
        """Ask for all of a message that came cut, or count an empty answer: the broker may have lost the log."""
        cursor = fetched.cursor
        if fetched.frames is not None and len(fetched.frames.data):
            self._ask_for_all(cursor, fetched.frames.data)
        cursor.empty_answers += 1
        cursor.mark_waiting(now)

    def _ask_for_all(self, cursor: Cursor, records: memoryview) -> None:
        """Have the next request ask for all of a message that is larger than what came.

        Raises TooLarge where that is more than an answer may hold, DecodeError where no message can begin there.
        """
        length = int.from_bytes(records[:_LENGTH], "big", signed=True) if len(records) >= _LENGTH else 0
        announced = f"a message of {length} bytes is announced there"
        if len(records) < cursor.asked_bytes:  # no message goes on in another segment, or behind what is flushed
            raise _error(DecodeError, cursor, f"{announced}, and {len(records)} bytes are left of the segment")
        if cursor.ahead + max(_LENGTH + length, len(records) + 1) > cursor.until:
            ends = f"the range ends inside of it, at {cursor.until}; one of the two is not a boundary of a message"
            raise _error(DecodeError, cursor, f"{announced}, and {ends}")
        most = self._max_frame_bytes - 2 * _OVERHEAD
        if _LENGTH + length > most:
            raise _error(TooLarge, cursor, f"{announced}, {most} can be read")
        cursor.min_bytes = _LENGTH + length


def _fetch(cursor: Cursor) -> FetchRequest07:
    _, partition = broker_partition(cursor.tp.partition)
    return FetchRequest07(cursor.tp.topic, partition, cursor.ahead, cursor.asked_bytes)


def _error(kind: type[DecodeError], cursor: Cursor, what: str) -> DecodeError:
    error = kind(f"{cursor.log_format.name(cursor.tp)}: position {cursor.ahead}: {what}")
    error.base_offset = cursor.ahead
    return error
