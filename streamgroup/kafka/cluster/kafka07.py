"""A Kafka 0.7 cluster for planning: brokers and topics from ZooKeeper, log end offsets from the brokers.

A partition has one broker, which is its leader. Log end offsets, segment starts and messages (to find message
boundaries) are requested on one connection per broker, pipelined. A slow or offline broker does not delay the others.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from streamgroup.backoff import Backoff
from streamgroup.errors import BrokerError, ConfigError, DecodeError, TooLarge, TransportError
from streamgroup.kafka.cluster.fanout import AddressedRequest, BrokerFanout, Pending, Unsent
from streamgroup.kafka.cluster.requests import EpochCheck, EpochEnd, ListedOffset
from streamgroup.kafka.records.messages07 import walk07
from streamgroup.kafka.wire.kafka07 import (
    EARLIEST_TIME,
    LATEST_TIME,
    ErrorCode07,
    FetchRequest07,
    FetchResponse07,
    OffsetsRequest07,
    error07_of,
)
from streamgroup.logformat import KAFKA07_LOG, broker_partition
from streamgroup.model import EARLIEST, LATEST, Broker, ClusterSnapshot, Dialect, OffsetRange, TopicPartition, name_some
from streamgroup.options.types import ClientOptions, Isolation
from streamgroup.text import MOST_NAMED, first_of

if TYPE_CHECKING:
    from streamgroup.kafka.cluster.registry_reader import RegistryReader

log = logging.getLogger("streamgroup")

MAX_SEGMENTS = 10_000
"""Segments of one log to list at most, the newest first: 80 KB on the wire."""

_ZOOKEEPER_TIMEOUT_S = 1.0
"""Seconds to wait for ZooKeeper when refreshing a snapshot: requests for log ends wait meanwhile."""
_ZOOKEEPER_RETRY_TIMEOUT_S = 0.25
"""The same while ZooKeeper is unavailable."""
_ZOOKEEPER_RETRY_INTERVAL_S = 1.0
"""Seconds between two attempts while ZooKeeper is unavailable: it may only be slow, which no event reports."""

_Asked = dict[TopicPartition, tuple[int, tuple[AddressedRequest, ...]]]
"""The requests for each partition, and the position that they resolve."""


class Kafka07Cluster:
    """The `Cluster` for Kafka 0.7. One thread uses it."""

    def __init__(
        self,
        options: ClientOptions,
        nodes: RegistryReader,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        if options.security_protocol != "PLAINTEXT":
            raise ConfigError(
                f"invalid kafka.security.protocol={options.security_protocol}: Kafka 0.7 supports only PLAINTEXT"
            )
        self.options = options
        self.clock = clock
        self._sleep = sleep
        self._nodes = nodes
        self._fanout: BrokerFanout | None = None
        self._scan: BoundaryScan | None = None
        self._last: ClusterSnapshot | None = None
        self._all = False
        """True if the last snapshot covers all topics."""
        self._topics: frozenset[str] = frozenset()
        """The topics that the last snapshot covers, unless it covers all."""
        self._read_at = 0.0
        self._zookeeper_unavailable = False
        """True if the last read of ZooKeeper failed."""
        self._tried_at = 0.0
        self._refresh_due = False
        """True if a broker did not answer: it may have moved to another address."""
        self._suspects: set[TopicPartition] = set()
        """Partitions at whose request the broker closed the connection. They are requested last, since the broker then
        drops later requests too."""

    def __str__(self) -> str:
        return self._nodes.where

    def deadline(self, timeout_ms: int | None = None) -> float:
        return self.clock() + (self.options.default_api_timeout_ms if timeout_ms is None else timeout_ms) / 1000

    # -- brokers and topics, from ZooKeeper ----------------------------------------------------------------------------

    def snapshot(self, topics: Collection[str] | None, deadline: float, refresh: bool = False) -> ClusterSnapshot:
        """Return the brokers and `topics` (None: all), as last read in ZooKeeper.

        They are read again if they are too old or `refresh` is set. The last snapshot stays valid while ZooKeeper is
        unavailable or its nodes contradict each other. Raises ConfigError, or TransportError if no snapshot has
        `topics`.
        """
        if self._last is not None and self._has_topics(topics):
            age = self.clock() - self._read_at
            again = self._zookeeper_unavailable and self.clock() - self._tried_at >= _ZOOKEEPER_RETRY_INTERVAL_S
            if refresh or self._refresh_due or again or age >= self.options.metadata_max_age_ms / 1000:
                self._refresh(self._last, deadline, age)
        else:
            self._read(None if topics is None else self._topics.union(topics), deadline)
        assert self._last is not None
        if topics is None:
            return self._last
        return replace(self._last, topics={t: self._last.topics[t] for t in topics if t in self._last.topics})

    def _has_topics(self, topics: Collection[str] | None) -> bool:
        """Return whether the last snapshot covers `topics`, existing or not."""
        return self._all or (topics is not None and self._topics.issuperset(topics))

    def _refresh(self, last: ClusterSnapshot, deadline: float, age: float) -> None:
        """Refresh the last snapshot, or keep it if ZooKeeper does not answer in time.

        The next success notifies the owner.
        """
        was_away = self._zookeeper_unavailable
        timeout = _ZOOKEEPER_RETRY_TIMEOUT_S if was_away else _ZOOKEEPER_TIMEOUT_S
        try:
            self._read(None if self._all else self._topics, min(deadline, self.clock() + timeout))
            if was_away:
                self._nodes.notify_change()
        except TransportError as error:
            if not self._zookeeper_unavailable:
                log.warning("%s; using the brokers and topics read %.0f s ago", error, age)
            self._zookeeper_unavailable, self._tried_at, self._last = True, self.clock(), last

    def _read(self, topics: frozenset[str] | None, deadline: float) -> None:
        self._last = last = self._nodes.snapshot07(topics, deadline)
        self._suspects = {tp for tp in self._suspects if last.partition(tp) is not None}
        self._all, self._topics = topics is None, topics or frozenset()
        self._read_at, self._zookeeper_unavailable, self._refresh_due = self.clock(), False, False

    # -- logs, from the brokers ----------------------------------------------------------------------------------------

    def list_offsets(
        self, wanted: Mapping[TopicPartition, int], isolation: Isolation, deadline: float
    ) -> dict[TopicPartition, ListedOffset]:
        """Return the offset of each partition at EARLIEST, LATEST or a timestamp (ms). Asks all brokers at once.

        LATEST is the end of the flushed log. A timestamp resolves to the start of the newest segment that was last
        written at or before it, or to the earliest offset if there is none, so that no later message is missed
        (`coarse`). EARLIEST also lists the starts of the segments. Raises TransportError if a partition has no response
        by the deadline.
        """
        listed: dict[TopicPartition, ListedOffset] = {}
        backoff = Backoff(self.options.retry_backoff_ms, self.options.retry_backoff_max_ms, random.Random())
        while True:
            pending = {tp: at for tp, at in wanted.items() if tp not in listed}
            if not pending:
                return listed
            found, causes = self._attempt(pending, deadline)
            listed |= found
            if len(listed) == len(wanted):
                return listed
            wait = backoff.next()
            if self.clock() + wait >= deadline:
                names = name_some(wanted.keys() - listed.keys(), KAFKA07_LOG.name)
                raise TransportError(f"cannot list offsets of {names}: {first_of(causes, MOST_NAMED, 'cause', '; ')}")
            self._sleep(wait)
            self._refresh_due = True

    def list_offsets_once(
        self, wanted: Mapping[TopicPartition, int], isolation: Isolation, deadline: float, *, timeout: float, epoch: int
    ) -> tuple[dict[TopicPartition, ListedOffset], list[str]]:
        """Do as `list_offsets`, with one attempt of at most `timeout` seconds.

        Return the offsets, and a reason for each missing one. The next call with the same partitions and `epoch`
        returns responses that have arrived in between.
        """
        return self._attempt(wanted, deadline, timeout=timeout, epoch=epoch)

    def epoch_ends(
        self, wanted: Mapping[TopicPartition, EpochCheck], deadline: float
    ) -> dict[TopicPartition, EpochEnd]:
        """Return nothing: 0.7 has no leader epochs."""
        return {}

    def boundaries(
        self, wanted: Collection[OffsetRange], deadline: float, budget: float, *, check_crc: bool = False
    ) -> dict[TopicPartition, tuple[int, ...]]:
        """Return positions at which messages begin or end in each range, by scanning its log.

        A scan runs from the start of the range, which must be a message boundary, to its end, as far as `budget`
        seconds and `MAX_BYTES` allow. The end of the first message is always included. A partition whose first message
        has not arrived is absent. `check_crc`: see `BoundaryScan.scan`. Raises DecodeError if a range does not start at
        a boundary.
        """
        snapshot = self.snapshot({range_.partition.topic for range_ in wanted}, deadline)
        return self._boundary_scan().scan(wanted, snapshot, deadline, self.clock() + budget, check_crc=check_crc)

    def is_message_start(self, tp: TopicPartition, position: int, deadline: float) -> bool:
        """Return whether a message of `tp` begins at `position`. Raises TransportError, BrokerError."""
        return self._boundary_scan().is_message_start(tp, position, self.snapshot({tp.topic}, deadline), deadline)

    def _boundary_scan(self) -> BoundaryScan:
        if self._scan is None:
            self._scan = BoundaryScan(self.options, self.clock)
        return self._scan

    def distrust_metadata(self) -> None:
        """Do nothing: brokers of 0.7 have no metadata. Each snapshot is read in ZooKeeper."""

    def close(self) -> None:
        """Close all connections to brokers. The owner of the RegistryReader closes the session with ZooKeeper."""
        for opened in (self._fanout, self._scan):
            if opened is not None:
                opened.close()
        self._fanout = self._scan = None

    def _attempt(
        self, wanted: Mapping[TopicPartition, int], deadline: float, *, timeout: float | None = None, epoch: int = 0
    ) -> tuple[dict[TopicPartition, ListedOffset], list[str]]:
        """Send the requests once. Return the offsets, and the reasons for missing ones."""
        snapshot = self.snapshot({tp.topic for tp in wanted}, deadline)
        asked, causes = self._requests_for(wanted, snapshot)
        if self._fanout is None:
            self._fanout = BrokerFanout(self.options, self.clock, Dialect.KAFKA07)
        questions = [question for _, theirs in asked.values() for question in theirs]
        answers = self._fanout.call_all(questions, deadline, timeout=timeout, epoch=epoch)
        listed = {}
        for tp, (at, theirs) in asked.items():
            responses = [answers[question] for question in theirs]
            errors = [answer for answer in responses if isinstance(answer, TransportError)]
            self._suspect(tp, errors)
            if errors:
                causes.append(str(errors[0]))
            else:
                listed[tp] = _listed(tp, at, responses)
        return listed, list(dict.fromkeys(causes))

    def _requests_for(
        self, wanted: Mapping[TopicPartition, int], snapshot: ClusterSnapshot
    ) -> tuple[_Asked, list[str]]:
        asked: _Asked = {}
        causes = []
        for tp in sorted(wanted, key=lambda tp: (tp in self._suspects, tp)):
            broker, partition = broker_partition(tp.partition)
            leader = snapshot.brokers.get(broker)
            if leader is None or snapshot.partition(tp) is None:
                causes.append(f"{KAFKA07_LOG.name(tp)}: broker {broker} is not registered")
                continue
            address = leader.host, leader.port
            at = wanted[tp]
            asked[tp] = at, tuple((address, request) for request in _requests(tp.topic, partition, at))
        return asked, causes

    def _suspect(self, tp: TopicPartition, errors: Collection[TransportError]) -> None:
        if any(not isinstance(error, Pending | Unsent) for error in errors):
            self._suspects.add(tp)
        elif not errors:
            self._suspects.discard(tp)


def _requests(topic: str, partition: int, at: int) -> Iterator[OffsetsRequest07]:
    """Yield the requests for one position: EARLIEST with the segments, a timestamp with the earliest as fallback."""
    if at != EARLIEST:
        yield OffsetsRequest07(topic, partition, LATEST_TIME if at == LATEST else at, 1)
    if at != LATEST:
        yield OffsetsRequest07(topic, partition, EARLIEST_TIME, 1)
    if at == EARLIEST:
        yield OffsetsRequest07(topic, partition, LATEST_TIME, MAX_SEGMENTS)


def _listed(tp: TopicPartition, at: int, responses: Collection[Any]) -> ListedOffset:
    """Return the offset in the responses to `_requests`."""
    for answer in responses:
        if answer.error:
            raise BrokerError(error07_of(answer.error), f"cannot list the offsets of {KAFKA07_LOG.name(tp)}")
    first, *others = (answer.offsets for answer in responses)
    if at == EARLIEST:
        start = first[0] if first else 0
        return ListedOffset(start, segments=tuple(sorted(s for s in others[0][1:] if s >= start)))
    offset = first[0] if first else others[0][0] if others and others[0] else 0
    return ListedOffset(offset, coarse=at >= 0)


# -- message boundaries -----------------------------------------------------------------------------------------------

MAX_BYTES = 16 * 1024 * 1024
"""Bytes of one partition that a scan reads at most; a range with a more distant limit ends there."""
PIECE = 1024 * 1024
_MIN_PIECE = 64 * 1024
_MAX_BYTES_IN_FLIGHT = 32 * 1024 * 1024
"""Bytes that the coordinator holds at most for all partitions together."""
_MAX_BOUNDARIES = 512
"""Boundaries returned per scan: if the limit of the next plan differs slightly, no scan is needed."""
_LENGTH = 4
_FRAME_OVERHEAD = 64
"""Bytes of a FETCH response besides its messages, rounded up."""


@dataclass(slots=True)
class _PartitionScan:
    """The scan for message boundaries of one partition. It has scanned up to `position`."""

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
        """Scan the fetched messages, and continue after them. Raises BrokerError, DecodeError."""
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
        """Return the ends of the messages before the damaged one, and the end of the damaged one if `error` has it.

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
            # Include a part of the next message: its header shows whether the length is correct.
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
    """Scans logs of Kafka 0.7 for message boundaries.

    It uses separate connections, so that large responses do not delay requests for log end offsets.
    """

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
        """Return the ends of messages in each range, ascending, as far as the time until `budget_end` allows.

        The first end is always included, even if it is after the range. Responses that arrive later (until `deadline`)
        are used by the next scan. With `check_crc` the first message of each range is fetched completely, up to
        `MAX_BYTES`, and its CRC is checked. Raises DecodeError if a range does not start at a boundary, BrokerError if
        a broker refuses.
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
        """Return whether a message begins at `position` of the log: read it and check its CRC.

        Raises TransportError if its broker does not answer, BrokerError if the broker refuses.
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
    """Return the error for a position of `tp` at which no message begins. `error` is the cause."""
    named = type(error)(
        f"cannot read {KAFKA07_LOG.name(tp)}: {error}. Offsets of Kafka 0.7 are byte positions: reading must "
        "start where a message begins. Use a committed offset, the start of a segment (its file name), or earliest"
    )
    named.base_offset, named.next_offset = error.base_offset, error.next_offset
    return named
