"""A Kafka 0.7 cluster as planning sees it: ZooKeeper has the brokers and topics, the brokers have the logs.

The only broker of a partition is its leader. Log ends, segment starts and messages are requested on one connection per
broker, pipelined. A slow or offline broker does not delay the others.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from streamgroup.backoff import Backoff
from streamgroup.cluster.fanout import AddressedRequest, BrokerFanout, Pending, Unsent
from streamgroup.cluster.requests import EpochCheck, EpochEnd, ListedOffset
from streamgroup.errors import BrokerError, ConfigError, TransportError
from streamgroup.logformat import KAFKA07_LOG, broker_partition
from streamgroup.model import EARLIEST, LATEST, ClusterSnapshot, Dialect, OffsetRange, TopicPartition, name_some
from streamgroup.options.types import ClientOptions, Isolation
from streamgroup.text import MOST_NAMED, first_of
from streamgroup.wire.kafka07 import EARLIEST_TIME, LATEST_TIME, OffsetsRequest07, error07_of

if TYPE_CHECKING:
    from streamgroup.cluster.boundary_scan import BoundaryScan
    from streamgroup.cluster.registry_reader import RegistryReader

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
    """A `Cluster` of Kafka 0.7. One thread uses it."""

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
        drops the requests behind them too."""

    def __str__(self) -> str:
        return self._nodes.where

    def deadline(self, timeout_ms: int | None = None) -> float:
        return self.clock() + (self.options.default_api_timeout_ms if timeout_ms is None else timeout_ms) / 1000

    # -- brokers and topics, from ZooKeeper
    # -----------------------------------------------------------------------------

    def snapshot(self, topics: Collection[str] | None, deadline: float, refresh: bool = False) -> ClusterSnapshot:
        """Return the brokers and `topics` (None: all), from the last read unless it is too old or `refresh` is set.

        The last snapshot stays valid while ZooKeeper is unavailable or its nodes contradict each other. Raises
        ConfigError, or TransportError if no snapshot covers `topics`.
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

    # -- logs, from the brokers
    # -----------------------------------------------------------------------------------------

    def list_offsets(
        self, wanted: Mapping[TopicPartition, int], isolation: Isolation, deadline: float
    ) -> dict[TopicPartition, ListedOffset]:
        """Return the offset of each partition at EARLIEST, LATEST or a timestamp (ms), from all brokers at once.

        LATEST is the flushed end. A timestamp resolves to the start of the newest segment that was last written at or
        before it, or to the earliest offset if there is none, so that no later message is missed (`coarse`). EARLIEST
        also lists the starts of the segments. Raises TransportError if a partition has no response by the deadline.
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
        """Do as `list_offsets` in one attempt of `timeout` seconds. Return the offsets and the reasons for missing
        ones.

        The next call with the same partitions and `epoch` takes responses that arrive later.
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
        """Return boundaries of messages in each range, by scanning its log.

        A scan runs from the start of the range, which must be a boundary, to its end, as far as `budget` seconds and
        `boundary_scan.MAX_BYTES` allow. The end of the first message is always included. A partition whose first
        message has not arrived is absent. `check_crc`: see `BoundaryScan.scan`. Raises DecodeError if a range does not
        start at a boundary.
        """
        snapshot = self.snapshot({range_.partition.topic for range_ in wanted}, deadline)
        return self._boundary_scan().scan(wanted, snapshot, deadline, self.clock() + budget, check_crc=check_crc)

    def is_message_start(self, tp: TopicPartition, position: int, deadline: float) -> bool:
        """Return whether a message begins at `position` of the log of `tp`. Raises TransportError, BrokerError."""
        return self._boundary_scan().is_message_start(tp, position, self.snapshot({tp.topic}, deadline), deadline)

    def _boundary_scan(self) -> BoundaryScan:
        from streamgroup.cluster.boundary_scan import BoundaryScan  # noqa: PLC0415  (needs arrays, which the driver else does not)

        if self._scan is None:
            self._scan = BoundaryScan(self.options, self.clock)
        return self._scan

    def distrust_metadata(self) -> None:
        """Do nothing: brokers of 0.7 have no metadata; each snapshot is read in ZooKeeper."""

    def close(self) -> None:
        """Close all connections to brokers; the owner of the RegistryReader closes its session."""
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
