"""What the logs of Kafka 0.7 hold now. A partition never moves: its one broker may come back, or may have lost it.

Tasks do not read ZooKeeper. A broker that is away is tried again at the planned address until the range times out. The
query, started again, plans anew, at the address that the broker has by then.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from streamgroup.errors import BrokerError, DecodeError, KafkaError, TransportError
from streamgroup.executor.cursor import Cursor
from streamgroup.executor.lookup import KEEP_LONGER, LAST_LOOK_TIMEOUT_S, LogLookup, Loss, has_failed_with
from streamgroup.executor.pool import POOL
from streamgroup.logformat import broker_partition
from streamgroup.model import Dialect
from streamgroup.net.connection import Connection
from streamgroup.options.types import ClientOptions
from streamgroup.wire.kafka07 import EARLIEST_TIME, LATEST_TIME, ErrorCode07, OffsetsRequest07

log = logging.getLogger(__name__)


class _Log(NamedTuple):
    start: int
    end: int


class Kafka07Lookup(LogLookup):
    """Asks the planned broker of each cursor."""

    next_step = (
        ". Tasks do not look for brokers in ZooKeeper: started again, the query plans this range anew, where the "
        "broker is by then"
    )

    def __init__(self, client: ClientOptions, clock: Callable[[], float]) -> None:
        self._client = client
        self._clock = clock

    def close(self) -> None:
        """Close nothing: the connections are the pool's."""

    def require_mendable(self, cursor: Cursor) -> None:
        """Raise TransportError where the plan names no broker, BrokerError for all but a position out of range."""
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
        """Compare positions that are out of range with the logs, and try the same brokers again."""
        for cursor in cursors:
            if has_failed_with(cursor, ErrorCode07.OFFSET_OUT_OF_RANGE) and (loss := self._place(cursor, deadline)):
                yield loss
            if not cursor.done:
                cursor.move_to(cursor.leader)

    def pass_gaps(self, cursors: Sequence[Cursor], connection: Connection, deadline: float) -> Iterator[Loss]:
        """Look whether the logs have lost what was planned: the answers of a broker that has are empty.

        No range has gaps in Kafka 0.7.
        """
        for cursor in cursors:
            if loss := self._place(cursor, deadline):
                yield loss

    def last_look(self, cursor: Cursor, waited_s: float) -> Loss | str:
        """Look what the log of `cursor` holds.

        A log that goes on behind the position is no loss, even where it ends below the range: its broker may have come
        back this moment, and the next attempt reads up to the log's end first.
        """
        found = self._log(cursor, self._clock() + LAST_LOOK_TIMEOUT_S)
        if found.start > cursor.position:
            return _overtaken(cursor, found)
        if found.end <= cursor.position:
            text = f"for {waited_s:.0f} s the log has ended at position {found.end}: the broker has lost the rest"
            return Loss(cursor, cursor.until, text)
        return f"the log holds [{found.start}, {found.end})"

    def _place(self, cursor: Cursor, deadline: float) -> Loss | None:
        """Compare a position that the broker does not have, or has nothing at, with what the log holds.

        A broker that cannot be asked now is asked again until the range times out.
        """
        try:
            found = self._log(cursor, deadline)
        except TransportError as error:
            log.debug("%s: asking for its log: %s", cursor, error)
            return None
        return _overtaken(cursor, found) if found.start > cursor.position else None

    def _log(self, cursor: Cursor, deadline: float) -> _Log:
        """Ask what the log of `cursor` holds. Raises TransportError."""
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
            raise DecodeError(f"{leader}: no offsets of {name}, where Kafka 0.7 always tells one")
        return _Log(start[0], end[0])


def _absence(cursor: Cursor) -> str:
    return f"broker {cursor.log_format.broker_of(cursor.tp.partition)} was not registered when planned"


def _overtaken(cursor: Cursor, found: _Log) -> Loss:
    return Loss(cursor, found.start, f"the log begins at position {found.start} by now (retention)", KEEP_LONGER)
