"""A Kafka 0.7 as planning sees it: who has what stands in ZooKeeper, where the logs begin and end tell the brokers.

A partition's one broker is its leader. The ends, the starts of segments and the messages themselves are asked on one
connection per broker, one question behind the other; a broker that is slow or away holds up no other one.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from streamgroup.cluster.fanout import BrokerFanout, Pending, Question, Unsent
from streamgroup.cluster.requests import EpochCheck, EpochEnd, ListedOffset
from streamgroup.errors import BrokerError, ConfigError, TransportError
from streamgroup.logformat import KAFKA07_LOG, broker_partition
from streamgroup.model import EARLIEST, LATEST, ClusterSnapshot, Dialect, OffsetRange, TopicPartition
from streamgroup.net.backoff import Backoff
from streamgroup.options.types import ClientOptions, Isolation
from streamgroup.wire.kafka07 import EARLIEST_TIME, LATEST_TIME, OffsetsRequest07, error07_of

if TYPE_CHECKING:
    from streamgroup.cluster.boundary_scan import BoundaryScan
    from streamgroup.cluster.registry_reader import RegistryReader

log = logging.getLogger("streamgroup")

MOST_SEGMENTS = 10_000
"""Of one log, as far as they are asked for: the newest; 80 KB on the wire."""

_ZOOKEEPER_TIMEOUT_S = 1.0
"""How long a snapshot that is known already waits for ZooKeeper; the ends of all logs wait meanwhile."""
_ZOOKEEPER_RETRY_TIMEOUT_S = 0.25
"""The same while ZooKeeper is known to be away."""
_AGAIN_AFTER_S = 1.0
"""How often it is tried again then: it may only have been slow, which no event ends."""

_Asked = dict[TopicPartition, tuple[int, tuple[Question, ...]]]
"""What is asked for each partition, and where in its log that is about."""


class Kafka07Cluster:
    """See the module; a `Cluster`. Used by one thread."""

    def __init__(
        self,
        options: ClientOptions,
        nodes: RegistryReader,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        if options.security_protocol != "PLAINTEXT":
            raise ConfigError(f"kafka.security.protocol={options.security_protocol}: Kafka 0.7 knows only PLAINTEXT")
        self.options = options
        self.clock = clock
        self._sleep = sleep
        self._nodes = nodes
        self._fanout: BrokerFanout | None = None
        self._walks: BoundaryScan | None = None
        self._last: ClusterSnapshot | None = None
        self._all = False
        """Whether the last snapshot has all topics."""
        self._topics: frozenset[str] = frozenset()
        """What it was asked for, where these are not all."""
        self._read_at = 0.0
        self._is_away = False
        """Whether ZooKeeper did not tell when it was last asked."""
        self._tried_at = 0.0
        self._doubted = False
        """A broker has not answered: it may have come back elsewhere."""
        self._suspects: set[TopicPartition] = set()
        """At whose question the broker hung up last: they are asked last, for it hangs up on all behind, too."""

    def __str__(self) -> str:
        return self._nodes.where

    def deadline(self, timeout_ms: int | None = None) -> float:
        """The moment `timeout_ms` from now; `default_api_timeout_ms` unless given."""
        return self.clock() + (self.options.default_api_timeout_ms if timeout_ms is None else timeout_ms) / 1000

    # -- what ZooKeeper knows -----------------------------------------------------------------------------------------

    def snapshot(self, topics: Collection[str] | None, deadline: float, refresh: bool = False) -> ClusterSnapshot:
        """The brokers and `topics` (None: all), from the last reading unless that is too old or `refresh` is asked for.

        While ZooKeeper is away, or what stands there contradicts itself, the last snapshot goes on to hold. Raises
        ConfigError, and TransportError where there is none that has `topics`.
        """
        if self._last is not None and self._covers(topics):
            age = self.clock() - self._read_at
            again = self._is_away and self.clock() - self._tried_at >= _AGAIN_AFTER_S
            if refresh or self._doubted or again or age >= self.options.metadata_max_age_ms / 1000:
                self._confirm(self._last, deadline, age)
        else:
            self._read(None if topics is None else self._topics.union(topics), deadline)
        assert self._last is not None
        if topics is None:
            return self._last
        return replace(self._last, topics={t: self._last.topics[t] for t in topics if t in self._last.topics})

    def _covers(self, topics: Collection[str] | None) -> bool:
        """Whether the last snapshot tells of `topics`: as they are, or that they do not exist."""
        return self._all or (topics is not None and self._topics.issuperset(topics))

    def _confirm(self, last: ClusterSnapshot, deadline: float, age: float) -> None:
        """Read anew what is known. Nobody waits long for that; it is tried again, and then told."""
        was_away = self._is_away
        timeout = _ZOOKEEPER_RETRY_TIMEOUT_S if was_away else _ZOOKEEPER_TIMEOUT_S
        try:
            self._read(None if self._all else self._topics, min(deadline, self.clock() + timeout))
            if was_away:
                self._nodes.notify_change()
        except TransportError as error:
            if not self._is_away:
                log.warning("%s; going on with the brokers and topics that were there %.0f s ago", error, age)
            self._is_away, self._tried_at, self._last = True, self.clock(), last

    def _read(self, topics: frozenset[str] | None, deadline: float) -> None:
        self._last = last = self._nodes.snapshot07(topics, deadline)
        self._suspects = {tp for tp in self._suspects if last.partition(tp) is not None}
        self._all, self._topics = topics is None, topics or frozenset()
        self._read_at, self._is_away, self._doubted = self.clock(), False, False

    # -- what the brokers know ----------------------------------------------------------------------------------------

    def list_offsets(
        self, wanted: Mapping[TopicPartition, int], isolation: Isolation, deadline: float
    ) -> dict[TopicPartition, ListedOffset]:
        """The offset of each partition at EARLIEST, LATEST or a timestamp (ms); all brokers are asked at once.

        LATEST is the flushed end. A timestamp means the start of the newest segment that was last written at or before
        it, and where there is none the earliest offset: so no later message is missed (`coarse`). What is EARLIEST
        comes with the starts of the segments. Raises TransportError where a partition has no answer by the deadline.
        """
        listed: dict[TopicPartition, ListedOffset] = {}
        backoff = Backoff(self.options, random.Random())
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
                raise TransportError(
                    f"{self}: no offsets of {_names(wanted.keys() - listed.keys())}: {'; '.join(causes)}"
                )
            self._sleep(wait)
            self._doubted = True

    def list_offsets_once(
        self,
        wanted: Mapping[TopicPartition, int],
        isolation: Isolation,
        deadline: float,
        *,
        timeout: float,
        epoch: int,
    ) -> tuple[dict[TopicPartition, ListedOffset], list[str]]:
        """`list_offsets` in one attempt of `timeout` seconds, in which no broker holds up another; what is amiss.

        An answer that comes later is taken by the next call that asks the same in the same `epoch`.
        """
        return self._attempt(wanted, deadline, timeout=timeout, epoch=epoch)

    def epoch_ends(
        self, wanted: Mapping[TopicPartition, EpochCheck], deadline: float
    ) -> dict[TopicPartition, EpochEnd]:
        """None: 0.7 has no leader epochs."""
        return {}

    def boundaries(
        self, wanted: Collection[OffsetRange], deadline: float, budget: float, *, checked: bool = False
    ) -> dict[TopicPartition, tuple[int, ...]]:
        """Where messages end in the logs, by walking them: from the start of each range, which must be a boundary, to
        its end, as far as `budget` seconds and `boundary_scan.MOST_BYTES` reach (R34).

        The first message's end is always among them, however large it is; a partition that has not told that is absent.
        `checked`: see `BoundaryScan.walk`. Raises DecodeError where a start is no boundary.
        """
        snapshot = self.snapshot({range_.partition.topic for range_ in wanted}, deadline)
        return self._walking().walk(wanted, snapshot, deadline, self.clock() + budget, checked=checked)

    def is_message_start(self, tp: TopicPartition, position: int, deadline: float) -> bool:
        """Whether a message begins at `position` of the log of `tp`. Raises TransportError, BrokerError."""
        return self._walking().is_message_start(tp, position, self.snapshot({tp.topic}, deadline), deadline)

    def _walking(self) -> BoundaryScan:
        from streamgroup.cluster.boundary_scan import BoundaryScan  # noqa: PLC0415  (needs arrays, which the driver else does not)

        if self._walks is None:
            self._walks = BoundaryScan(self.options, self.clock)
        return self._walks

    def distrust_metadata(self) -> None:
        """Do nothing: brokers of 0.7 have no metadata, each snapshot is read in ZooKeeper."""

    def close(self) -> None:
        """Close all connections; ZooKeeper's session is that of who opened it."""
        for opened in (self._fanout, self._walks):
            if opened is not None:
                opened.close()
        self._fanout = self._walks = None

    def _attempt(
        self,
        wanted: Mapping[TopicPartition, int],
        deadline: float,
        *,
        timeout: float | None = None,
        epoch: int = 0,
    ) -> tuple[dict[TopicPartition, ListedOffset], list[str]]:
        """Ask all brokers once: what was answered, and why the rest was not."""
        snapshot = self.snapshot({tp.topic for tp in wanted}, deadline)
        asked, causes = self._questions(wanted, snapshot)
        if self._fanout is None:
            self._fanout = BrokerFanout(self.options, self.clock, Dialect.KAFKA07)
        questions = [question for _, theirs in asked.values() for question in theirs]
        answers = self._fanout.call_all(questions, deadline, timeout=timeout, epoch=epoch)
        listed = {}
        for tp, (at, theirs) in asked.items():
            heard = [answers[question] for question in theirs]
            troubles = [answer for answer in heard if isinstance(answer, TransportError)]
            self._suspect(tp, troubles)
            if troubles:
                causes.append(str(troubles[0]))
            else:
                listed[tp] = _listed(tp, at, heard)
        return listed, list(dict.fromkeys(causes))

    def _questions(self, wanted: Mapping[TopicPartition, int], snapshot: ClusterSnapshot) -> tuple[_Asked, list[str]]:
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

    def _suspect(self, tp: TopicPartition, troubles: Collection[TransportError]) -> None:
        if any(not isinstance(trouble, Pending | Unsent) for trouble in troubles):
            self._suspects.add(tp)
        elif not troubles:
            self._suspects.discard(tp)


def _requests(topic: str, partition: int, at: int) -> Iterator[OffsetsRequest07]:
    """EARLIEST goes with the segments; a timestamp with the earliest offset, should nothing be as old."""
    if at != EARLIEST:
        yield OffsetsRequest07(topic, partition, LATEST_TIME if at == LATEST else at, 1)
    if at != LATEST:
        yield OffsetsRequest07(topic, partition, EARLIEST_TIME, 1)
    if at == EARLIEST:
        yield OffsetsRequest07(topic, partition, LATEST_TIME, MOST_SEGMENTS)


def _listed(tp: TopicPartition, at: int, heard: Collection[Any]) -> ListedOffset:
    """What the answers to `_requests` mean."""
    for answer in heard:
        if answer.error:
            raise BrokerError(error07_of(answer.error), f"the offsets of {KAFKA07_LOG.name(tp)}")
    first, *others = (answer.offsets for answer in heard)
    if at == EARLIEST:
        start = first[0] if first else 0
        return ListedOffset(start, segments=tuple(sorted(s for s in others[0][1:] if s >= start)))
    offset = first[0] if first else others[0][0] if others and others[0] else 0
    return ListedOffset(offset, coarse=at >= 0)


def _names(partitions: Collection[TopicPartition]) -> str:
    return ", ".join(map(KAFKA07_LOG.name, sorted(partitions)))
