"""The fetches of one broker of Kafka 0.7: `Pipeline` for logs whose offsets are byte positions.

Where to go on is where the last whole message of an answer ends; a range says to the byte what is wanted, so nothing
behind it is ever sent. An answer ends with its segment, and has nothing where nothing is flushed: the broker never
waits for more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from streamgroup.errors import DecodeError, TooLarge, TransportError
from streamgroup.executor.cursor import Cursor
from streamgroup.executor.fetching import Fetching, Portion
from streamgroup.logformat import KAFKA07_LOG, broker_partition
from streamgroup.net.connection import Connection
from streamgroup.options.types import FetchOptions
from streamgroup.records.messages07 import walk07
from streamgroup.wire.kafka07 import FetchRequest07, FetchResponse07, MultiFetchRequest07, error07_of

_LEAST_ASKED = 64 * 1024
"""Of each partition in one MULTIFETCH, however many there are."""
_LENGTH = 4
_OVERHEAD = 64
"""What a FETCH answer has beside the messages, generously."""


class Pipeline07(Fetching):
    """Fetches `cursors` over `connection`, which is used by nobody else meanwhile.

    At most `prefetch` answers, of `max_partition_bytes` each, are asked for or held besides the one being decoded; only
    a message that is larger by itself comes whole, up to `max_frame_bytes`.
    """

    def __init__(
        self,
        connection: Connection,
        cursors: Sequence[Cursor],
        options: FetchOptions,
        clock: Callable[[], float],
    ) -> None:
        super().__init__(connection, cursors, options, clock)
        self._asked: list[tuple[Cursor, int]] = []
        """What was asked for and how many bytes of it, in the order of the parts."""
        self._large: dict[int, int] = {}
        """How many bytes the next message of a cursor (by its `id`) takes, where that is more than one answer has."""

    @property
    def _is_asked(self) -> bool:
        return bool(self._asked)

    def _ask(self) -> bool:
        wanted = self._whose_turn()
        if not wanted:
            return False
        share = max(_LEAST_ASKED, min(self._options.max_partition_bytes, self._options.max_bytes) // len(wanted))
        share = min(share, (self._connection.options.max_frame_bytes - _OVERHEAD) // len(wanted) - _OVERHEAD)
        # A message that is larger than its share is fetched alone.
        alone = next((cursor for cursor in wanted if self._large.get(id(cursor), 0) > share), None)
        if alone is not None:
            wanted, share = [alone], self._large[id(alone)]
        self._asked = [(cursor, min(share, cursor.until - cursor.ahead)) for cursor in wanted]
        fetches = tuple(_fetch(cursor, size) for cursor, size in self._asked)
        self._connection.send(fetches[0] if len(fetches) == 1 else MultiFetchRequest07(fetches))
        return True

    def _receive(self) -> None:
        try:
            response = self._connection.receive(
                self._clock() + self._connection.options.request_timeout_ms / 1000
            ).response
        except (TransportError, DecodeError) as error:
            named = ", ".join(
                f"{KAFKA07_LOG.name(cursor.tp)} at position {cursor.position}" for cursor, _ in self._asked
            )
            raise type(error)(f"{error} (for {named})") from error
        self._turn += 1
        asked, self._asked = self._asked, []
        if response.error and len(asked) > 1:
            raise TransportError(f"{self._connection}: {error07_of(response.error).name} for a whole MULTIFETCH")
        parts = (response,) if len(asked) == 1 else response.parts
        portions = [self._portion(cursor, size, part) for (cursor, size), part in zip(asked, parts, strict=True)]
        self._ready.append([portion for portion in portions if portion is not None])

    def _portion(self, cursor: Cursor, size: int, part: FetchResponse07) -> Portion | None:
        """Note what `part`, of `size` bytes that were asked for, says of its range."""
        now = self._clock()
        if part.error:
            cursor.fails(error07_of(part.error), now)
            return None
        records = memoryview(part.records)
        if len(records) > size:
            where = f"{KAFKA07_LOG.name(cursor.tp)} at position {cursor.ahead}"
            raise DecodeError(f"{self._connection}: {len(records)} bytes for {where}, {size} were asked for")
        start, ahead = cursor.ahead, self._look_ahead(cursor, records, size)
        if ahead == start:
            cursor.empty_answers += 1
            cursor.waits(now)
            return None
        self._large.pop(id(cursor), None)
        cursor.fetched(ahead, ahead - start)
        cursor.turn = self._turn
        return Portion(cursor, start, ahead, records, ())

    def _look_ahead(self, cursor: Cursor, records: memoryview, size: int) -> int:
        """Where the last whole message ends.

        Where one cannot be told from the next it is `until`: the decoder will say what is wrong, and there is nothing
        to fetch before it has. Raises TooLarge, or DecodeError where the range ends inside of a message.
        """
        try:
            ahead = walk07(records, cursor.ahead).next_offset
        except DecodeError:
            return cursor.until
        if ahead == cursor.ahead and len(records):
            self._grow(cursor, records, size)
        return ahead

    def _grow(self, cursor: Cursor, records: memoryview, size: int) -> None:
        """The next message is larger than what came: ask for all of it."""
        length = int.from_bytes(records[:_LENGTH], "big", signed=True) if len(records) >= _LENGTH else 0
        if len(records) < size:  # no message goes on in another segment, or behind what is flushed
            more = f"{len(records)} bytes are left of the segment"
            raise _error(DecodeError, cursor, f"a message of {length} bytes is announced there, and {more}")
        if cursor.ahead + max(_LENGTH + length, len(records) + 1) > cursor.until:
            raise _error(
                DecodeError,
                cursor,
                f"a message of {length} bytes is announced there, and the range ends inside of it, at {cursor.until}; "
                "one of the two is no boundary of a message",
            )
        most = self._connection.options.max_frame_bytes - 2 * _OVERHEAD
        if _LENGTH + length > most:
            raise _error(TooLarge, cursor, f"a message of {length} bytes is announced there, {most} can be read")
        self._large[id(cursor)] = _LENGTH + length


def _fetch(cursor: Cursor, size: int) -> FetchRequest07:
    _, partition = broker_partition(cursor.tp.partition)
    return FetchRequest07(cursor.tp.topic, partition, cursor.ahead, size)


def _error(kind: type[DecodeError], cursor: Cursor, what: str) -> DecodeError:
    error = kind(f"{KAFKA07_LOG.name(cursor.tp)}: position {cursor.ahead}: {what}")
    error.base_offset = cursor.ahead
    return error
