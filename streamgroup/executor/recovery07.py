"""`Recovery` for brokers of Kafka 0.7: there are no other leaders to look for, only a broker that may come back.

Tasks do not read ZooKeeper. A broker that is away is tried again at the address that was planned, until patience is at
its end; the query that is started again plans anew, where that broker is by then.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import NamedTuple

from streamgroup.errors import BrokerError, DecodeError, KafkaError, TransportError
from streamgroup.executor.cursor import Cursor
from streamgroup.executor.pool import POOL
from streamgroup.executor.recovery import ENOUGH_EMPTY_ANSWERS, KEEP_LONGER, LAST_LOOK_S, Recovery
from streamgroup.logformat import KAFKA07_LOG, broker_partition
from streamgroup.model import Dialect, TopicPartition
from streamgroup.wire.kafka07 import EARLIEST_TIME, LATEST_TIME, ErrorCode07, OffsetsRequest07

log = logging.getLogger(__name__)


class _Log(NamedTuple):
    start: int
    end: int


class Recovery07(Recovery):
    """See the module."""

    _unit = "bytes"

    def pass_gaps(self, cursors: Sequence[Cursor], tiered: bool) -> None:
        """Look at the logs of which nothing comes though nothing is wrong: have they lost what was planned?

        No range has gaps here. A broker that has lost a whole log says nothing of it: its answers are empty.
        """
        for cursor in cursors:
            if cursor.wants_more and cursor.empty_answers >= ENOUGH_EMPTY_ANSWERS:
                cursor.empty_answers = 0
                self._place_one(cursor, self._clock() + self._patience)

    def mend(self, cursors: Sequence[Cursor]) -> None:
        """As `Recovery.mend`. Raises BrokerError for every error of 0.7 but a position out of range.

        Raises TransportError at once where the plan names no broker: nothing that a task waits for tells it one.
        """
        for cursor in cursors:
            if cursor.leader is None and not cursor.done:
                raise TransportError(
                    f"{KAFKA07_LOG.name(cursor.tp)} at position {cursor.position} of [{cursor.start}, {cursor.until}): "
                    f"broker {broker_partition(cursor.tp.partition)[0]} was not registered when planned, and tasks do "
                    "not look for brokers in ZooKeeper. Start the broker, then start the query again"
                )
            trouble = cursor.trouble
            if isinstance(trouble, KafkaError) and trouble.code != ErrorCode07.OFFSET_OUT_OF_RANGE:
                hint = ", which may have been started with fewer num.partitions"
                raise BrokerError(
                    trouble,
                    f"fetching {KAFKA07_LOG.name(cursor.tp)} at position {cursor.ahead} of {cursor.leader}"
                    + (hint if trouble.code == ErrorCode07.WRONG_PARTITION else ""),
                )
        super().mend(cursors)

    def _look_up(self, cursors: Sequence[Cursor], deadline: float) -> None:
        time.sleep(max(0.0, min(self._pace.next(), deadline - self._clock())))
        for cursor in cursors:
            if _is(cursor, ErrorCode07.OFFSET_OUT_OF_RANGE):
                self._place_one(cursor, deadline)
            if not cursor.done:
                cursor.moves(cursor.leader)

    def _place_one(self, cursor: Cursor, deadline: float) -> None:
        """Hold a position that the broker has not, or has nothing at, against what the log has.

        A broker that cannot be asked now is asked again, as long as there is patience.
        """
        try:
            found = self._log(cursor, deadline)
        except TransportError as error:
            log.debug("%s: asking for its log: %s", KAFKA07_LOG.name(cursor.tp), error)
            return
        if found.start > cursor.position:
            self._lose(cursor, found.start, f"the log begins at position {found.start} by now (retention)", KEEP_LONGER)
        else:
            cursor.high_watermark = found.end

    def _log(self, cursor: Cursor, deadline: float) -> _Log:
        """What the log of `cursor` holds now. Raises TransportError."""
        leader = cursor.leader
        if leader is None:
            raise TransportError(f"broker {broker_partition(cursor.tp.partition)[0]} was not registered when planned")
        connection = POOL.take(leader.host, leader.port, self._client, deadline, Dialect.KAFKA07)
        try:
            _, partition = broker_partition(cursor.tp.partition)
            for at in (EARLIEST_TIME, LATEST_TIME):
                connection.send(OffsetsRequest07(cursor.tp.topic, partition, at, 1))
            start, end = (connection.receive(deadline).response.offsets for _ in range(2))
        finally:
            POOL.give_back(connection)
        if not (start and end):
            raise DecodeError(
                f"{leader}: no offsets of {KAFKA07_LOG.name(cursor.tp)}, where Kafka 0.7 always tells one"
            )
        return _Log(start[0], end[0])

    @staticmethod
    def _describe_range(tp: TopicPartition, start: int, until: int) -> str:
        return f"{KAFKA07_LOG.name(tp)}: {until - start} bytes at the positions [{start}, {until})"

    def _run_out(self, cursor: Cursor, waited: float, last: str) -> None:
        """End the wait for `cursor`: lose what its log does not hold any more, else fail the task.

        A log that goes on behind the position is no loss, even where it ends below the range: its broker may have come
        back this moment, and the next attempt reads up to the log's end first.
        """
        why = last
        try:
            found = self._log(cursor, self._clock() + LAST_LOOK_S)
        except TransportError as error:
            why = f"{last}; {error}"
        else:
            if found.start > cursor.position:
                return self._lose(
                    cursor, found.start, f"the log begins at position {found.start} by now (retention)", KEEP_LONGER
                )
            if found.end <= cursor.position:
                text = f"for {waited:.0f} s the log has ended at position {found.end}: the broker has lost the rest"
                return self._lose(cursor, cursor.until, text)
            why = f"{last}; the log holds [{found.start}, {found.end})"
        raise TransportError(
            f"{KAFKA07_LOG.name(cursor.tp)} at position {cursor.position} of [{cursor.start}, {cursor.until}): nothing "
            f"came for {waited:.0f} s (kafkaConsumer.pollTimeoutMs); {why}; broker: "
            f"{cursor.leader or 'none'}. Tasks do not look for brokers in ZooKeeper: started again, the query plans "
            "this range anew, where the broker is by then"
        )


def _is(cursor: Cursor, code: ErrorCode07) -> bool:
    return isinstance(cursor.trouble, KafkaError) and cursor.trouble.code == code
