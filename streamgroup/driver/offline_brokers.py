"""Finds the known partitions of Kafka 0.7 that a run or a batch read would leave out: their broker is not registered.

A partition of Kafka 0.7 exists only while its broker is registered. A stream waits for it. A batch read, AvailableNow
and Once would end successfully without its records, so they raise an error, or warn if failOnDataLoss is false. Known
are partitions with a committed offset, with a position in the checkpoint, or with a starting offset.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING

from streamgroup.driver.logs.subscription import is_subscribed
from streamgroup.errors import DataLossError, DecodeError, TransportError
from streamgroup.logformat import KAFKA07_LOG, broker_partition
from streamgroup.model import ClusterSnapshot, Document, OffsetRange, TopicPartition
from streamgroup.options.types import SourceOptions
from streamgroup.run.steps import Steps, Until

if TYPE_CHECKING:
    from streamgroup.driver.membership.backends import GroupBackend

log = logging.getLogger("streamgroup")

STREAM_TIMEOUT_S = 1.0
"""How long a stream waits for the committed offsets, which name known partitions; the next plan asks again."""

Targets = Mapping[TopicPartition, int]


class OfflineBrokers:
    """Watches the offline brokers of one run.

    Spark's thread calls it without the coordinator's lock, since it asks ZooKeeper. `left_out` and `wait_for_brokers`
    are called with the lock.
    """

    def __init__(
        self, options: SourceOptions, backend: GroupBackend, snapshot: Callable[[], ClusterSnapshot], timeout_s: float
    ) -> None:
        self._options = options
        self._backend = backend
        self._snapshot = snapshot
        self._timeout_s = timeout_s
        self._looked = False
        self._left_out: frozenset[TopicPartition] = frozenset()
        """AvailableNow: partitions without a target, known when the run began but not registered. Once: partitions
        reported as left out."""
        self._once: frozenset[TopicPartition] | None = None
        """The partitions that Once should read."""

    def begin(self, checkpoint: Document, targets: Targets | None, *, once: bool) -> None:
        """Look for offline partitions before a plan. Warn once in a stream; raise DataLossError under Once."""
        snapshot = self._snapshot()
        if self._looked or not snapshot.log_format.is_broker_bound:
            return
        ends = once or targets is not None
        try:
            known = self._known(checkpoint, self._timeout_s if ends else STREAM_TIMEOUT_S).keys()
        except (TransportError, DecodeError) as error:
            if ends:
                raise
            log.debug("which partitions have unregistered brokers: %s", error)
            self._looked = isinstance(
                error, DecodeError
            )  # does not pass by itself; the fetch of the position raises it
            return
        self._looked = True
        absent = frozenset(
            tp for tp in known if (snapshot.partition(tp) is None if targets is None else tp not in targets)
        )
        if once:
            self._once = frozenset(known)
            self.left_out()
        elif targets is not None:
            self._left_out = absent
        elif absent:
            log.warning(
                "%s: not registered are the brokers of %s: the others are read, and these once their brokers are back",
                self._who,
                _names(absent),
            )

    def left_out(self, unjudged: Collection[TopicPartition] = ()) -> frozenset[TopicPartition]:
        """Return the partitions that a trigger that ends does not wait for, since their brokers are offline.

        Asks no server. Under Once these are all such partitions that the run should read; it logs them, or raises
        DataLossError. Under AvailableNow they are a part of `unjudged`, and `end` decides about them.
        """
        snapshot = self._snapshot()
        if self._once is None:
            is_bound = snapshot.log_format.is_broker_bound
            return frozenset(tp for tp in unjudged if is_bound and snapshot.partition(tp) is None)
        absent = frozenset(tp for tp in self._once if snapshot.partition(tp) is None)
        self._settle(absent - self._left_out)
        self._left_out |= absent
        return absent

    def end(self, checkpoint: Document, targets: Targets | None) -> None:
        """Check the end of AvailableNow, when all partitions held are read.

        Raises DataLossError if a broker was offline when the run began, or went offline with unread records.
        """
        snapshot = self._snapshot()
        if targets is None or not snapshot.log_format.is_broker_bound:
            return
        gone = {tp: end for tp, end in targets.items() if snapshot.partition(tp) is None}
        read = self._known(checkpoint, self._timeout_s) if gone else {}
        self._settle(self._left_out.union(tp for tp, end in gone.items() if read.get(tp, 0) < end))

    def wait_for_brokers(self, ranges: Iterable[OffsetRange], is_over: Callable[[], bool]) -> Steps[None]:
        """Wait until the brokers of `ranges` are registered, for `kafkaConsumer.pollTimeoutMs` at most.

        Tasks do not read ZooKeeper. A broker that restarts while a batch is planned or replayed would fail them, though
        it returns seconds later. Also returns once `is_over()` holds. Raises TransportError after the timeout.
        """
        ranges = tuple(ranges)
        absent = self._absent(ranges)
        if not absent:
            return
        timeout_s = self._options.fetch.poll_timeout_ms / 1000
        limit = f"{timeout_s:g} s (kafkaConsumer.pollTimeoutMs)"
        brokers, what = _needed(absent)
        log.warning(
            "%s: waiting for %s to register in ZooKeeper, to read %s, %s at most", self._who, brokers, what, limit
        )
        yield Until(lambda _: is_over() or not self._absent(ranges), timeout_s)
        absent = self._absent(ranges)
        if absent and not is_over():
            brokers, what = _needed(absent)
            raise TransportError(
                f"{self._who}: the batch cannot read {what}: {brokers} did not register in ZooKeeper within {limit}. "
                "Nothing is lost. Start the broker, then start the query again: it reads this batch first"
            )

    def _absent(self, ranges: Collection[OffsetRange]) -> list[OffsetRange]:
        """Return those of `ranges` whose broker is not registered."""
        snapshot = self._snapshot()
        broker_of = snapshot.log_format.broker_of
        needed = ((r, broker_of(r.partition.partition)) for r in ranges)
        return [r for r, broker in needed if broker is not None and broker not in snapshot.brokers]

    def _known(self, checkpoint: Document, timeout_s: float) -> dict[TopicPartition, int]:
        """Return the known partitions with the offset up to which each was read; 0 if that is unknown."""
        known = dict.fromkeys((*self._options.starting.offsets, *self._options.starting.timestamps), 0)
        known |= {tp: position.offset for tp, position in checkpoint.positions.items()}
        for tp, committed in self._backend.committed(timeout_s, self._is_subscribed).items():
            known[tp] = max(committed.offset, known.get(tp, 0))
        return {tp: offset for tp, offset in known.items() if self._is_subscribed(tp)}

    def _is_subscribed(self, tp: TopicPartition) -> bool:
        return is_subscribed(self._options.subscription, tp)

    def _settle(self, absent: Collection[TopicPartition]) -> None:
        if absent:
            settle(f"{self._who}: this run has not read {_names(absent)}", self._options)

    @property
    def _who(self) -> str:
        group = self._options.group
        return f"group {group.group_id!r}" if group is not None and group.group_id else "no group"


def require_brokers(topics: Collection[str], snapshot: ClusterSnapshot, options: SourceOptions) -> None:
    """Raise DataLossError if a batch read would take a topic of Kafka 0.7 for empty: none of its brokers is registered.

    ZooKeeper does not keep the partitions of offline brokers, so a topic with some brokers offline passes the check.
    """
    if not snapshot.log_format.is_broker_bound:
        return
    if empty := sorted(name for name in topics if not snapshot.topics[name].partitions):
        names = ", ".join(map(repr, empty))
        settle(f"nothing is read of topic {names}: no broker has registered a partition", options)


def settle(what: str, options: SourceOptions) -> None:
    """Raise DataLossError, or warn if failOnDataLoss is false."""
    text = f"{what}: in Kafka 0.7 partitions are there only while their broker is registered"
    if options.fail_on_data_loss:
        raise DataLossError(
            f"{text}. Nothing is lost yet. Start the broker and run again; or leave it out with failOnDataLoss=false"
        )
    log.warning("%s; left out, since failOnDataLoss=false", text)


def _needed(ranges: Collection[OffsetRange]) -> tuple[str, str]:
    """Return the brokers of `ranges`, and the ranges, as text for messages."""
    ordered = sorted(ranges)
    brokers = dict.fromkeys(f"broker {broker_partition(r.partition.partition)[0]}" for r in ordered)
    return " and ".join(brokers), ", ".join(f"{KAFKA07_LOG.name(r.partition)} at position {r.start}" for r in ordered)


def _names(partitions: Collection[TopicPartition]) -> str:
    return ", ".join(map(KAFKA07_LOG.name, sorted(partitions)))
