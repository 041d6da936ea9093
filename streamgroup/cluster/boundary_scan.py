"""Where the messages of Kafka 0.7's logs end: found by fetching them and walking their frames (R34).

An offset is a byte position, and only segments' starts and logs' ends are told by the brokers. What lies between is
read here as far as a limit reaches, in pieces, from all brokers at once; nothing is decompressed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from streamgroup.cluster.fanout import BrokerFanout, Question
from streamgroup.errors import BrokerError, DecodeError, TooLarge, TransportError
from streamgroup.logformat import KAFKA07_LOG, broker_partition
from streamgroup.model import Broker, ClusterSnapshot, Dialect, OffsetRange, TopicPartition
from streamgroup.options.types import ClientOptions
from streamgroup.records.messages07 import walk07
from streamgroup.wire.kafka07 import ErrorCode07, FetchRequest07, FetchResponse07, error07_of

MOST_BYTES = 16 * 1024 * 1024
"""Of one partition in one go: where a limit lies further away the range ends there."""
PIECE = 1024 * 1024
_LEAST_PIECE = 64 * 1024
_PIECES_AT_ONCE = 32 * 1024 * 1024
"""Of all partitions together: the driver holds no more."""
_MOST_POINTS = 512
"""Boundaries that are kept of one walk: limits change a little from one plan to the next."""
_LENGTH = 4
_FRAME_OVERHEAD = 64
"""What a FETCH answer has beside the messages, generously."""


@dataclass(slots=True)
class _Walk:
    """One partition's walk: all below `position` is walked."""

    range: OffsetRange
    leader: Broker
    position: int
    piece: int
    most: int
    checked: bool = False
    """The first message is read as a whole, with its checksum; one larger than the piece is else believed."""
    ends: list[npt.NDArray[np.int64]] = field(default_factory=list)
    over: bool = False

    @property
    def question(self) -> Question:
        tp = self.range.partition
        number = broker_partition(tp.partition)[1]
        return (self.leader.host, self.leader.port), FetchRequest07(tp.topic, number, self.position, self.piece)

    def take(self, answer: FetchResponse07) -> None:
        """Go on behind what was fetched. Raises BrokerError, DecodeError."""
        if answer.error not in (ErrorCode07.NO_ERROR, ErrorCode07.OFFSET_OUT_OF_RANGE):
            raise BrokerError(
                error07_of(answer.error),
                f"walking {KAFKA07_LOG.name(self.range.partition)} at position {self.position}",
            )
        if not len(answer.records):
            self.over = True  # retention, or a log that was cut: the ends of the log will tell
            return
        records = memoryview(answer.records)
        try:
            walked = walk07(records, self.position, self.range.until, check_crcs=self.position == self.range.start)
        except DecodeError as error:
            ends = self._ends_around(records, error)
            if len(ends):
                self._found(ends)
            else:
                self._stop_at(error)
            return
        if not len(walked.starts):
            self._step_over(records)
            return
        self._found(walked.boundaries[1:])

    def _ends_around(self, records: memoryview, error: DecodeError) -> npt.NDArray[np.int64]:
        """Of the messages before the one that `error` is about, and its own where that can be told: then a message does
        begin there, and its damage is told by the task, with what steps over it."""
        ends = np.empty(0, np.int64)
        if error.base_offset is not None and error.base_offset > self.position:
            ends = walk07(records, self.position, error.base_offset).boundaries[1:]
        if error.next_offset is not None:
            ends = np.append(ends, np.int64(error.next_offset))
        return ends

    def _step_over(self, records: memoryview) -> None:
        """A message is larger than the piece: its length tells where it ends."""
        length = int.from_bytes(records[:_LENGTH], "big", signed=True)
        if self.checked and not self.ends and self.piece == len(records) < _LENGTH + length <= MOST_BYTES:
            self.piece = min(_LENGTH + length + _LEAST_PIECE, self.most)  # with what follows: damage is told by that
            return
        announced = f"position {self.position}: a message of {length} bytes is announced"
        error: DecodeError | None = None
        if len(records) < self.piece:  # no message goes on in another segment, or behind what is flushed
            error = DecodeError(f"{announced}, and its segment has {len(records)} more: no message begins there")
        elif length > self.most:
            error = TooLarge(
                f"{announced}, {self.most} can be read: no message begins there, or it is larger than that"
            )
        if error is not None:
            error.base_offset = self.position
            self._stop_at(error)
            return
        self._found(np.array([self.position + _LENGTH + length], np.int64))

    def _stop_at(self, error: DecodeError) -> None:
        """What was found before stands. Raises where that is nothing: the walk's start is no boundary."""
        if not self.ends:
            raise not_a_boundary(self.range.partition, error) from error
        self.over = True

    def _found(self, ends: npt.NDArray[np.int64]) -> None:
        within = ends[ends <= self.range.until]
        if not self.ends and not len(within):
            within = ends[:1]  # limits are maxima, but the first message is always taken
        if len(within):
            self.ends.append(within)
        self.position = int(ends[-1])
        self.over = self.position >= self.range.until or self.position - self.range.start >= MOST_BYTES

    def boundaries(self) -> tuple[int, ...]:
        """The ends found, thinned out evenly; the first and the last are among them."""
        ends = np.concatenate(self.ends)
        if len(ends) > _MOST_POINTS:
            ends = ends[np.linspace(0, len(ends) - 1, _MOST_POINTS).astype(np.int64)]
        return tuple(ends.tolist())


class BoundaryScan:
    """See the module. Its connections are its own: a large answer holds up no question about the ends of logs."""

    def __init__(self, options: ClientOptions, clock: Callable[[], float]) -> None:
        self._options = options
        self._clock = clock
        self._fanout = BrokerFanout(options, clock, Dialect.KAFKA07)

    def walk(
        self,
        wanted: Collection[OffsetRange],
        snapshot: ClusterSnapshot,
        deadline: float,
        enough: float,
        *,
        checked: bool = False,
    ) -> dict[TopicPartition, tuple[int, ...]]:
        """The ends of messages in each range, ascending, until the time `enough`; the first one may lie behind it.

        What a broker answers later, until `deadline`, is taken by the next walk from there. `checked`: the first
        message of each counts only with its checksum, up to `MOST_BYTES`. Raises DecodeError where a
        range's start is no boundary, BrokerError for what a broker refuses.
        """
        piece = max(_LEAST_PIECE, min(PIECE, _PIECES_AT_ONCE // max(1, len(wanted))))
        most = self._options.max_frame_bytes - _FRAME_OVERHEAD
        walks = []
        for range_ in wanted:
            leader = snapshot.leader(range_.partition)
            if leader is not None:
                size = min(piece, max(_LEAST_PIECE, range_.until - range_.start), most)
                walks.append(_Walk(range_, leader, range_.start, size, most, checked))
        while left := [walk for walk in walks if not walk.over]:
            now = self._clock()
            if now >= enough:
                break
            asked = {walk.question: walk for walk in left}
            answers = self._fanout.call_all(asked, deadline, timeout=enough - now)
            for question, walk in asked.items():
                answer = answers[question]
                if isinstance(answer, TransportError):
                    walk.over = True
                else:
                    walk.take(answer)
        return {walk.range.partition: walk.boundaries() for walk in walks if walk.ends}

    def is_message_start(self, tp: TopicPartition, position: int, snapshot: ClusterSnapshot, deadline: float) -> bool:
        """Whether a message begins at `position` of the log: one is read there, with its checksum.

        Raises TransportError where its broker does not tell, BrokerError where it refuses.
        """
        leader = snapshot.leader(tp)
        if leader is None:
            raise TransportError(f"{KAFKA07_LOG.name(tp)}: its broker is not registered")
        size = _LEAST_PIECE
        while True:
            records = self._fetched(tp, leader, position, size, deadline)
            try:
                if len(walk07(records, position, check_crcs=True).starts):
                    return True
            except DecodeError as error:
                return error.base_offset != position
            length = int.from_bytes(records[:_LENGTH], "big", signed=True)
            most = self._options.max_frame_bytes - _FRAME_OVERHEAD
            if len(records) < size or not size < _LENGTH + length <= most:
                return False  # no message goes on in another segment, or behind what is flushed
            size = _LENGTH + length

    def close(self) -> None:
        """Close all connections."""
        self._fanout.close()

    def _fetched(self, tp: TopicPartition, leader: Broker, position: int, size: int, deadline: float) -> memoryview:
        request = FetchRequest07(tp.topic, broker_partition(tp.partition)[1], position, size)
        question = (leader.host, leader.port), request
        answer = self._fanout.call_all([question], deadline)[question]
        if isinstance(answer, TransportError):
            raise answer
        if answer.error and answer.error != ErrorCode07.OFFSET_OUT_OF_RANGE:
            raise BrokerError(error07_of(answer.error), f"reading {KAFKA07_LOG.name(tp)} at position {position}")
        return memoryview(answer.records)


def not_a_boundary(tp: TopicPartition, error: DecodeError) -> DecodeError:
    """`error`, about a position of `tp`, with what to do."""
    named = type(error)(
        f"{KAFKA07_LOG.name(tp)}: {error}. Positions of Kafka 0.7 are bytes, and only where a message begins can be "
        "read on: take a position that a consumer has committed, the start of a segment (its file's name), or earliest"
    )
    named.base_offset, named.next_offset = error.base_offset, error.next_offset
    return named
