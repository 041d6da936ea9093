"""Finds known partitions of Kafka 0.7 that a query would skip because their broker is not registered in ZooKeeper.

A partition of Kafka 0.7 exists only while its broker is registered. A stream waits for the broker. A batch read,
AvailableNow and Once would end successfully without its records, so they raise an error, or log a warning if
failOnDataLoss is false. A partition is known if it has a committed offset, a position in the checkpoint, or a starting
offset.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING

from streamgroup.coordinator.planning.subscription import is_subscribed, topics_to_ask
from streamgroup.coordinator.run import interface
from streamgroup.coordinator.run.steps import Steps, Until
from streamgroup.errors import DataLossError, DecodeError, TransportError
from streamgroup.logformat import KAFKA07_LOG, broker_partition
from streamgroup.model import ClusterSnapshot, CommittedOffset, Document, OffsetRange, TopicPartition, name_some
from streamgroup.text import MOST_NAMED, first_of

if TYPE_CHECKING:
    from streamgroup.coordinator.run.interface import RunConfig

STREAM_TIMEOUT_S = 1.0
"""How long a stream waits for the committed offsets, which name known partitions; the next plan fetches them again."""

Targets = Mapping[TopicPartition, int]
Commits = Mapping[TopicPartition, CommittedOffset]


class OfflineBrokers:
    """Tracks the partitions of one query whose Kafka 0.7 brokers are offline.

    `snapshot()` returns the newest metadata, `warn(line)` logs a warning.
    """

    def __init__(self, config: RunConfig, snapshot: Callable[[], ClusterSnapshot], warn: Callable[[str], None]) -> None:
        self._config = config
        self._snapshot = snapshot
        self._warn = warn
        self._looked = False
        self._left_out: frozenset[TopicPartition] = frozenset()
        """AvailableNow: partitions without a target that were known but not registered when the query began. Once:
        partitions that were reported as skipped."""
        self._once: frozenset[TopicPartition] | None = None
        """The partitions that Once should read."""
        self._before: Commits = {}
        """AvailableNow: the group's commits from before the targets were listed."""

    def prepare(self) -> Steps[None]:
        """Fetch the group's commits before AvailableNow lists its targets.

        A member commits the start of a new partition with its first assignment. If that commit counted, a topic that
        gets new partitions at this moment would look like one with an offline broker.
        """
        if self._snapshot().log_format.is_broker_bound:
            _, self._before = yield interface.FetchCommitted(self._config.api_timeout_s, self._is_subscribed)

    def catch_up(self, targets: Targets) -> Steps[None]:
        """Read the metadata again if the targets have a partition that it lacks: its broker has registered since.

        `check_end` would take that broker for one that went offline.
        """
        snapshot = self._snapshot()
        if snapshot.log_format.is_broker_bound and any(snapshot.partition(tp) is None for tp in targets):
            yield interface.ReadTopics(topics_to_ask(self._config.subscription))

    def compare(self, checkpoint: Document, targets: Targets) -> None:
        """Find the partitions that AvailableNow skips: known when the query began, but without a target.

        Only the query's first call counts. Later documents also have the positions of partitions whose broker has
        registered since the targets were listed, and AvailableNow does not read those.
        """
        if self._looked or not self._snapshot().log_format.is_broker_bound:
            return
        self._looked = True
        self._left_out = frozenset(self._known_from(checkpoint, self._before).keys() - targets.keys())

    def find(self, checkpoint: Document, *, once: bool) -> Steps[None]:
        """Find the known partitions that a plan from `checkpoint` skips. In a stream, warn once.

        Raises DataLossError under Once.
        """
        snapshot = self._snapshot()
        if self._looked or not snapshot.log_format.is_broker_bound:
            return
        try:
            known = yield from self._known(checkpoint, self._config.api_timeout_s if once else STREAM_TIMEOUT_S)
            if once and any(snapshot.partition(tp) is None for tp in known):
                # A topic may have grown since the metadata was read, and a member have committed there already.
                _, snapshot = yield interface.ReadTopics(topics_to_ask(self._config.subscription))
        except (TransportError, DecodeError) as error:
            if once:
                raise
            # Retrying does not resolve an error of decoding; the fetch of the position raises it.
            self._looked = isinstance(error, DecodeError)
            return
        self._looked = True
        absent = frozenset(tp for tp in known if snapshot.partition(tp) is None)
        if once:
            self._once = frozenset(known)
            self.left_out()
        elif absent:
            self._warn(
                f"{self._who}: cannot read {_names(absent)} yet: no broker has registered them in ZooKeeper. The query "
                "reads the other partitions meanwhile, and these once their brokers have started. Start those brokers"
            )

    def left_out(self, unjudged: Collection[TopicPartition] = ()) -> frozenset[TopicPartition]:
        """Return the partitions that Once or AvailableNow does not wait for, because their brokers are offline.

        Sends no request. Under Once these are all such partitions that the query should read; this method logs them, or
        raises DataLossError. Under AvailableNow they are a part of `unjudged`, and `check_end` decides about them.
        """
        snapshot = self._snapshot()
        if self._once is None:
            is_bound = snapshot.log_format.is_broker_bound
            return frozenset(tp for tp in unjudged if is_bound and snapshot.partition(tp) is None)
        absent = frozenset(tp for tp in self._once if snapshot.partition(tp) is None)
        self._settle(absent - self._left_out)
        self._left_out |= absent
        return absent

    def check_end(self, checkpoint: Document, targets: Targets | None) -> Steps[None]:
        """Check that AvailableNow may end, when all owned partitions are read.

        Raises DataLossError if a broker was offline when the query began, or went offline with unread records.
        """
        snapshot = self._snapshot()
        if targets is None or not snapshot.log_format.is_broker_bound:
            return
        gone = {tp: end for tp, end in targets.items() if snapshot.partition(tp) is None}
        read: Targets = {}
        if gone:
            read = yield from self._known(checkpoint, self._config.api_timeout_s)
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
        timeout_s = self._config.fetch_timeout_s
        limit = f"{timeout_s:g} s (kafkaConsumer.pollTimeoutMs)"
        brokers, what = _needed(absent)
        self._warn(f"{self._who}: waiting for {brokers} to register in ZooKeeper, to read {what}, {limit} at most")
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

    def _known(self, checkpoint: Document, timeout_s: float) -> Steps[Targets]:
        """Fetch the commits, and return the known partitions as `_known_from` does."""
        _, commits = yield interface.FetchCommitted(timeout_s, self._is_subscribed)
        return self._known_from(checkpoint, commits)

    def _known_from(self, checkpoint: Document, commits: Commits) -> Targets:
        """Return the known partitions with the offset up to which each was read; 0 if that is unknown."""
        starting = self._config.starting
        known = dict.fromkeys((*starting.offsets, *starting.timestamps), 0)
        known |= {tp: position.offset for tp, position in checkpoint.positions.items()}
        for tp, committed in commits.items():
            known[tp] = max(committed.offset, known.get(tp, 0))
        return {tp: offset for tp, offset in known.items() if self._is_subscribed(tp)}

    def _is_subscribed(self, tp: TopicPartition) -> bool:
        return is_subscribed(self._config.subscription, tp)

    def _settle(self, absent: Collection[TopicPartition]) -> None:
        if absent:
            what = f"{self._who}: this query has not read {_names(absent)}: no broker has registered them in ZooKeeper"
            settle(what, fail_on_data_loss=self._config.fail_on_data_loss, warn=self._warn)

    @property
    def _who(self) -> str:
        return f"group {self._config.group_id!r}" if self._config.group_id else "no group"


def require_brokers(
    topics: Collection[str], snapshot: ClusterSnapshot, *, fail_on_data_loss: bool, warn: Callable[[str], None]
) -> None:
    """Raise DataLossError if a batch read would treat a topic of Kafka 0.7 as empty: none of its brokers is online.

    ZooKeeper does not keep the partitions of offline brokers, so a topic with some brokers offline passes the check.
    """
    if not snapshot.log_format.is_broker_bound:
        return
    if empty := sorted(name for name in topics if not snapshot.topics[name].partitions):
        names = first_of([repr(name) for name in empty], MOST_NAMED, "topic")
        what = f"cannot read topic {names}: no broker has registered a partition in ZooKeeper"
        settle(what, fail_on_data_loss=fail_on_data_loss, warn=warn)


def settle(what: str, *, fail_on_data_loss: bool, warn: Callable[[str], None]) -> None:
    """Raise DataLossError for the unread records `what`, or warn if failOnDataLoss is false."""
    text = f"{what}. A broker of Kafka 0.7 registers its partitions only while it runs"
    if fail_on_data_loss:
        raise DataLossError(
            f"{text}, and it keeps the records until their retention ends. Start the broker and run the query again; "
            f"or skip these records with failOnDataLoss=false"
        )
    warn(
        f"{text}. The query skips the records, since failOnDataLoss=false. To read them, start the broker and run the "
        "query again before their retention ends"
    )


def _needed(ranges: Collection[OffsetRange]) -> tuple[str, str]:
    """Return the brokers that serve `ranges`, and the ranges themselves, as text for messages."""
    ordered = sorted(ranges)
    brokers = dict.fromkeys(f"broker {broker_partition(r.partition.partition)[0]}" for r in ordered)
    what = [f"{KAFKA07_LOG.name(r.partition)} at position {r.start}" for r in ordered]
    return first_of([*brokers], MOST_NAMED, "broker"), first_of(what, MOST_NAMED, "partition")


def _names(partitions: Collection[TopicPartition]) -> str:
    return name_some(partitions, KAFKA07_LOG.name)
