"""Finds the boundaries of messages in the logs of Kafka 0.7, by fetching messages and walking their frames.

An offset of Kafka 0.7 is a byte position, and brokers list only the starts of segments and the ends of logs. A batch
must end where a message ends (R34), so a limit between these positions needs a scan. It fetches pieces of the logs from
all brokers at once and decompresses nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from streamgroup.cluster.fanout import AddressedRequest, BrokerFanout
from streamgroup.errors import BrokerError, DecodeError, TooLarge, TransportError
from streamgroup.logformat import KAFKA07_LOG, broker_partition
from streamgroup.model import Broker, ClusterSnapshot, Dialect, OffsetRange, TopicPartition
from streamgroup.options.types import ClientOptions
from streamgroup.records.messages07 import walk07
from streamgroup.wire.kafka07 import ErrorCode07, FetchRequest07, FetchResponse07, error07_of

MAX_BYTES = 16 * 1024 * 1024
"""Bytes of one partition that a scan reads at most; a range with a more distant limit ends there."""
PIECE = 1024 * 1024
_MIN_PIECE = 64 * 1024
_MAX_BYTES_IN_FLIGHT = 32 * 1024 * 1024
"""Bytes that the driver holds at most, for all partitions together."""
_MAX_BOUNDARIES = 512
"""Boundaries kept per scan, so that a slightly different limit of the next plan needs no scan."""
_LENGTH = 4
_FRAME_OVERHEAD = 64
"""Bytes of a FETCH response besides its messages, rounded up."""


@dataclass(slots=True)
class _PartitionScan:
    """The scan of one partition, which has reached `position`."""

    range: OffsetRange
    leader: Broker
    position: int
    piece: int
    most: int
    check_crc: bool = False
    """Fetch the whole first message and check its CRC, even if it is larger than a piece."""
    ends: list[npt.NDArray[np.int64]] = field(default_factory=list)
    done: bool = False

    @property
    def request(self) -> AddressedRequest:
        tp = self.range.partition
        number = broker_partition(tp.partition)[1]
        return (self.leader.host, self.leader.port), FetchRequest07(tp.topic, number, self.position, self.piece)

    def take(self, answer: FetchResponse07) -> None:
        """Continue behind the fetched messages. Raises BrokerError, DecodeError."""
        if answer.error not in (ErrorCode07.NO_ERROR, ErrorCode07.OFFSET_OUT_OF_RANGE):
            raise BrokerError(
                error07_of(answer.error),
                f"cannot scan {KAFKA07_LOG.name(self.range.partition)} at position {self.position}",
            )
        if not len(answer.records):
            self.done = True  # retention or truncation, which the next list of log ends shows
            return
        records = memoryview(answer.records)
        try:
            walked = walk07(records, self.position, self.range.until, check_crcs=self.position == self.range.start)
        except DecodeError as error:
            ends = self._ends_around(records, error)
            if len(ends):
                self._append_ends(ends)
            else:
                self._stop_at(error)
            return
        if not len(walked.starts):
            self._skip_large_message(records)
            return
        self._append_ends(walked.boundaries[1:])

    def _ends_around(self, records: memoryview, error: DecodeError) -> npt.NDArray[np.int64]:
        """Return the ends of the messages before the damaged one, and its own end if `error` knows it.

        The damaged message then has boundaries, and the task that reads it reports the damage.
        """
        ends = np.empty(0, np.int64)
        if error.base_offset is not None and error.base_offset > self.position:
            ends = walk07(records, self.position, error.base_offset).boundaries[1:]
        if error.next_offset is not None:
            ends = np.append(ends, np.int64(error.next_offset))
        return ends

    def _skip_large_message(self, records: memoryview) -> None:
        """Skip a message larger than a piece, by its length."""
        length = int.from_bytes(records[:_LENGTH], "big", signed=True)
        if self.check_crc and not self.ends and self.piece == len(records) < _LENGTH + length <= MAX_BYTES:
            # With a part of the next message, whose header shows whether the length is right.
            self.piece = min(_LENGTH + length + _MIN_PIECE, self.most)
            return
        claim = f"position {self.position}: the bytes there claim a message of {length} bytes"
        error: DecodeError | None = None
        if len(records) < self.piece:  # no message spans two segments or unflushed bytes
            error = DecodeError(f"{claim}, but the segment has only {len(records)} more: no message begins there")
        elif length > self.most:
            error = TooLarge(f"{claim}, the limit is {self.most}: no message begins there, or it is larger")
        if error is not None:
            error.base_offset = self.position
            self._stop_at(error)
            return
        self._append_ends(np.array([self.position + _LENGTH + length], np.int64))

    def _stop_at(self, error: DecodeError) -> None:
        """End the scan at the boundaries found.

        Raises DecodeError if there are none: the range does not start at one.
        """
        if not self.ends:
            raise not_a_boundary(self.range.partition, error) from error
        self.done = True

    def _append_ends(self, ends: npt.NDArray[np.int64]) -> None:
        within = ends[ends <= self.range.until]
        if not self.ends and not len(within):
            within = ends[:1]  # a batch has at least one message, even one beyond the limit
        if len(within):
            self.ends.append(within)
        self.position = int(ends[-1])
        self.done = self.position >= self.range.until or self.position - self.range.start >= MAX_BYTES

    def boundaries(self) -> tuple[int, ...]:
        """Return an even selection of the ends found, with the first and the last."""
        ends = np.concatenate(self.ends)
        if len(ends) > _MAX_BOUNDARIES:
            ends = ends[np.linspace(0, len(ends) - 1, _MAX_BOUNDARIES).astype(np.int64)]
        return tuple(ends.tolist())


class BoundaryScan:
    """Scans logs on connections of its own, so that large responses do not delay requests for log ends."""

    def __init__(self, options: ClientOptions, clock: Callable[[], float]) -> None:
        self._options = options
        self._clock = clock
        self._fanout = BrokerFanout(options, clock, Dialect.KAFKA07)

    def scan(
        self,
        wanted: Collection[OffsetRange],
        snapshot: ClusterSnapshot,
        deadline: float,
        budget_end: float,
        *,
        check_crc: bool = False,
    ) -> dict[TopicPartition, tuple[int, ...]]:
        """Return the ends of messages in each range, ascending, as far as the time `budget_end` allows.

        The first end is always included, even beyond the range. The next scan takes responses that arrive later, until
        `deadline`. `check_crc` fetches the first message of each range whole, up to `MAX_BYTES`, and checks its CRC.
        Raises DecodeError if a range does not start at a boundary, BrokerError if a broker refuses.
        """
        piece = max(_MIN_PIECE, min(PIECE, _MAX_BYTES_IN_FLIGHT // max(1, len(wanted))))
        most = self._options.max_frame_bytes - _FRAME_OVERHEAD
        scans = []
        for range_ in wanted:
            leader = snapshot.leader(range_.partition)
            if leader is not None:
                size = min(piece, max(_MIN_PIECE, range_.until - range_.start), most)
                scans.append(_PartitionScan(range_, leader, range_.start, size, most, check_crc))
        while left := [scan for scan in scans if not scan.done]:
            now = self._clock()
            if now >= budget_end:
                break
            asked = {scan.request: scan for scan in left}
            answers = self._fanout.call_all(asked, deadline, timeout=budget_end - now)
            for request, scan in asked.items():
                answer = answers[request]
                if isinstance(answer, TransportError):
                    scan.done = True
                else:
                    scan.take(answer)
        return {scan.range.partition: scan.boundaries() for scan in scans if scan.ends}

    def is_message_start(self, tp: TopicPartition, position: int, snapshot: ClusterSnapshot, deadline: float) -> bool:
        """Return whether a message begins at `position` of the log, by reading it and checking its CRC.

        Raises TransportError if its broker does not answer, BrokerError if it refuses.
        """
        leader = snapshot.leader(tp)
        if leader is None:
            raise TransportError(
                f"cannot read {KAFKA07_LOG.name(tp)}: its broker is not registered in ZooKeeper. Start it"
            )
        size = _MIN_PIECE
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
                return False  # no message spans two segments or unflushed bytes
            size = _LENGTH + length

    def close(self) -> None:
        self._fanout.close()

    def _fetched(self, tp: TopicPartition, leader: Broker, position: int, size: int, deadline: float) -> memoryview:
        fetch = FetchRequest07(tp.topic, broker_partition(tp.partition)[1], position, size)
        request = (leader.host, leader.port), fetch
        answer = self._fanout.call_all([request], deadline)[request]
        if isinstance(answer, TransportError):
            raise answer
        if answer.error and answer.error != ErrorCode07.OFFSET_OUT_OF_RANGE:
            raise BrokerError(error07_of(answer.error), f"cannot read {KAFKA07_LOG.name(tp)} at position {position}")
        return memoryview(answer.records)


def not_a_boundary(tp: TopicPartition, error: DecodeError) -> DecodeError:
    """Return `error` about a position of `tp`, with the next step."""
    named = type(error)(
        f"cannot read {KAFKA07_LOG.name(tp)}: {error}. Offsets of Kafka 0.7 are byte positions: reading must "
        "start where a message begins. Use a committed offset, the start of a segment (its file name), or earliest"
    )
    named.base_offset, named.next_offset = error.base_offset, error.next_offset
    return named
