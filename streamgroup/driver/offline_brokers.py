"""What a run or a read of Kafka 0.7 would leave out: partitions whose broker is not registered, though they are known.

There a partition exists only while its broker does. A stream waits for it; but who ends (a batch read, AvailableNow,
Once) would tell of success without its records. So that ends with an error, or with a warning where failOnDataLoss is
false. Known are partitions with a committed offset, with a position in the checkpoint, or with a starting offset.
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

PATIENCE_S = 1.0
"""How long a stream waits for ZooKeeper to name what it is waiting for; it asks again with the next plan."""

Targets = Mapping[TopicPartition, int]


class OfflineBrokers:
    """See the module; of one run. Used by Spark's thread, without the coordinator's lock, since ZooKeeper is asked; the
    exceptions are `left_out` and `wait_for_brokers`, which is a call of the run."""

    def __init__(
        self, options: SourceOptions, backend: GroupBackend, snapshot: Callable[[], ClusterSnapshot], patience_s: float
    ) -> None:
        self._options = options
        self._backend = backend
        self._snapshot = snapshot
        self._patience_s = patience_s
        self._looked = False
        self._left_out: frozenset[TopicPartition] = frozenset()
        """What AvailableNow has no target for: it was known when the run began, and not registered. Of Once: what has
        been told to be left out."""
        self._once: frozenset[TopicPartition] | None = None
        """What Once is to read."""

    def begin(self, checkpoint: Document, targets: Targets | None, *, once: bool) -> None:
        """Before a plan. Says once what a stream waits for; raises DataLossError where Once would leave it out."""
        snapshot = self._snapshot()
        if self._looked or not snapshot.log_format.is_broker_bound:
            return
        ends = once or targets is not None
        try:
            known = self._known(checkpoint, self._patience_s if ends else PATIENCE_S).keys()
        except (TransportError, DecodeError) as error:
            if ends:
                raise
            log.debug("which partitions have unregistered brokers: %s", error)
            self._looked = isinstance(error, DecodeError)  # which is told where it matters, and does not pass
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
        """Return the partitions that a trigger that ends does not wait for, since their brokers are away.

        Asks no server. Under Once these are all such partitions that the run was to read. They are logged, or raise
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
        """AvailableNow would end, all that is held has been read: raises DataLossError where a broker was away when it
        began, or has gone before all of its records were read."""
        snapshot = self._snapshot()
        if targets is None or not snapshot.log_format.is_broker_bound:
            return
        gone = {tp: end for tp, end in targets.items() if snapshot.partition(tp) is None}
        read = self._known(checkpoint, self._patience_s) if gone else {}
        self._settle(self._left_out.union(tp for tp, end in gone.items() if read.get(tp, 0) < end))

    def wait_for_brokers(self, ranges: Iterable[OffsetRange], is_over: Callable[[], bool]) -> Steps[None]:
        """Wait until the brokers of `ranges` are registered, for `kafkaConsumer.pollTimeoutMs` at most.

        Tasks do not read ZooKeeper. A broker that restarts while a batch is planned or replayed would fail them, though
        it is back seconds later. Returns, too, once `is_over()`. Raises TransportError when the time is over.
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

    def _known(self, checkpoint: Document, patience_s: float) -> dict[TopicPartition, int]:
        """How far each partition that is known has been read, as far as can be told: else 0."""
        known = dict.fromkeys((*self._options.starting.offsets, *self._options.starting.timestamps), 0)
        known |= {tp: position.offset for tp, position in checkpoint.positions.items()}
        for tp, committed in self._backend.committed(patience_s, self._is_subscribed).items():
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
    """Raise DataLossError where a batch read would take a topic of Kafka 0.7 for empty as none of its brokers is there.

    Which partitions such a topic had nobody can tell; nor those of a topic of which some brokers are away.
    """
    if not snapshot.log_format.is_broker_bound:
        return
    if empty := sorted(name for name in topics if not snapshot.topics[name].partitions):
        names = ", ".join(map(repr, empty))
        settle(f"nothing is read of topic {names}: no broker has registered a partition", options)


def settle(what: str, options: SourceOptions) -> None:
    """Raise DataLossError, or warn where failOnDataLoss is false."""
    text = f"{what}: in Kafka 0.7 partitions are there only while their broker is registered"
    if options.fail_on_data_loss:
        raise DataLossError(
            f"{text}. Nothing is lost yet. Start the broker and run again; or leave it out with failOnDataLoss=false"
        )
    log.warning("%s; left out, since failOnDataLoss=false", text)


def _needed(ranges: Collection[OffsetRange]) -> tuple[str, str]:
    """Return the brokers that have `ranges`, and these, in words."""
    ordered = sorted(ranges)
    brokers = dict.fromkeys(f"broker {broker_partition(r.partition.partition)[0]}" for r in ordered)
    return " and ".join(brokers), ", ".join(f"{KAFKA07_LOG.name(r.partition)} at position {r.start}" for r in ordered)


def _names(partitions: Collection[TopicPartition]) -> str:
    return ", ".join(map(KAFKA07_LOG.name, sorted(partitions)))
