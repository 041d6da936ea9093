"""Stores the brokers' latest valid responses about the logs of a query, and discards outdated ones (R8)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Set
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from streamgroup.model import UNKNOWN_EPOCH, ClusterSnapshot, LogRange, TopicPartition

if TYPE_CHECKING:
    from streamgroup.kafka.cluster.requests import ListedOffset

    Listed = Mapping[TopicPartition, ListedOffset]

T = TypeVar("T")

REFRESH_DEADLINE_MS = 5_000
"""Milliseconds that one request for metadata or offsets may take, including its retries."""
SETTLING_S = 0.5
"""How long after a topic was recreated a broker may still return offsets of the old topic's log."""
ABSENT_S = 3600.0
"""Seconds for which the id of a deleted topic is remembered, to recognise a topic recreated under its name."""


class KnownLogs:
    """Stores the last listed offset ranges, high watermarks and leader epochs of the logs, and the newest metadata.

    All times are `time.monotonic()` values that the caller passes. `metadata_max_age_s` is the longest time between two
    refreshes of the metadata.
    """

    def __init__(self, metadata_max_age_s: float) -> None:
        self.snapshot = ClusterSnapshot({}, {})
        self.changes = object()
        """A new object whenever the stored log data changes: callers cache results by its identity."""
        self.epoch = 0
        """Increases whenever earlier responses become invalid."""
        self._ranges: dict[TopicPartition, LogRange] = {}
        self._watermarks: dict[TopicPartition, int] = {}
        self._epochs: dict[TopicPartition, int] = {}
        """The leader epoch under which each log end was listed."""
        self._valid_from: dict[TopicPartition, float] = {}
        """By partition: responses to requests sent before this time are about an older log. Dropped once none can be
        pending."""
        self._topic_ids: dict[str, tuple[str, float]] = {}
        """The id of each topic, and when the topic was last seen."""
        self._remembered_s = max(ABSENT_S, 2 * metadata_max_age_s)

    # --- what is known -----------------------------------------------------------------------------------------------

    def ranges(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, LogRange]:
        """Return the last listed ranges of `partitions`; partitions never listed are absent."""
        return {tp: self._ranges[tp] for tp in partitions if tp in self._ranges}

    def watermarks(self, logs: Mapping[TopicPartition, LogRange]) -> dict[TopicPartition, LogRange]:
        """Return `logs` with their high watermarks as ends: an open transaction is not a data loss (R8)."""
        high = self._watermarks
        return {
            tp: known if high.get(tp, 0) <= known.latest else replace(known, latest=high[tp])
            for tp, known in logs.items()
        }

    def leader_epochs(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the newest leader epochs seen in the metadata or in listed ends (R8); unknown ones are absent."""
        infos = {tp: self.snapshot.partition(tp) for tp in partitions}
        newest = {
            tp: max(info.leader_epoch if info else UNKNOWN_EPOCH, self._epochs.get(tp, UNKNOWN_EPOCH))
            for tp, info in infos.items()
        }
        return {tp: epoch for tp, epoch in newest.items() if epoch != UNKNOWN_EPOCH}

    def has_ranges(self, partitions: Set[TopicPartition]) -> bool:
        """Return whether the start offsets of all these logs are known."""
        return self._ranges.keys() >= partitions

    # --- answers -----------------------------------------------------------------------------------------------------

    def void(self, partitions: Iterable[TopicPartition], until: float) -> None:
        """Drop the known ranges of these logs, and ignore responses to requests sent before `until`."""
        for tp in partitions:
            self._valid_from[tp] = until
            self._forget(tp)
        self.changes = object()
        self.epoch += 1

    def take_snapshot(self, snapshot: ClusterSnapshot, followed: Collection[TopicPartition], now: float) -> None:
        """Store metadata that was returned at `now`.

        Ranges of `followed` topics are kept even if `snapshot` lacks the topics.

        If nothing has changed, the usual case, `self.snapshot` stays the same object: callers cache by its identity.
        """
        if snapshot != self.snapshot:
            self.snapshot = snapshot
        self._drop_cut()
        self._drop_recreated(now)
        self._drop_gone(followed, now)

    def take_listing(self, ends: Listed, watermarks: Listed, starts: Listed, *, sent_at: float) -> set[TopicPartition]:
        """Store listed offsets. Return the partitions whose responses are about an older log, so that they are ignored.

        If no offset has changed, the usual case, `changes` stays the same object. A start offset that was not listed
        stays unchanged. If a start offset is not known, because it was dropped during the listing, the range stays
        unknown.
        """
        void = {tp for tp in ends if sent_at < self._valid_from.get(tp, 0.0)}
        if void:
            ends = {tp: listed for tp, listed in ends.items() if tp not in void}
            watermarks = {tp: listed for tp, listed in watermarks.items() if tp not in void}
            self.epoch += 1
        ranges: dict[TopicPartition, LogRange] = {}
        for tp, listed in ends.items():
            first, known = starts.get(tp), self._ranges.get(tp)
            start = first.offset if first else known.earliest if known else None
            if start is not None:
                segments = first.segments if first else known.segments if known else ()
                ranges[tp] = LogRange(min(start, listed.offset), listed.offset, segments)
        news = [
            _update(self._ranges, ranges),
            _update(self._watermarks, {tp: listed.offset for tp, listed in watermarks.items()}),
            _update(self._epochs, {tp: listed.leader_epoch for tp, listed in ends.items()}),
        ]
        if any(news):
            self.changes = object()
        return void

    def any_valid(self, void: Iterable[TopicPartition], now: float) -> bool:
        """Return whether a response to a request sent at `now` would be valid for any partition of `void`.

        `void` is the result of `take_listing`. Responses are invalid until SETTLING_S seconds after a topic was
        recreated.
        """
        return any(self._valid_from[tp] <= now for tp in void)

    def _drop_cut(self) -> None:
        """Drop log ends listed under another leader epoch: the log may have been truncated, or the topic is new."""
        for tp, epoch in _epochs_of(self.snapshot).items():
            if UNKNOWN_EPOCH not in (epoch, self._epochs.get(tp, UNKNOWN_EPOCH)) and epoch != self._epochs[tp]:
                self._forget(tp)
                self.changes = object()

    def _drop_recreated(self, now: float) -> None:
        """Drop the ranges of recreated topics: their leader epochs may equal the old ones.

        Responses within SETTLING_S seconds are dropped, too. ListOffsets identifies topics only by name, and the leader
        may still return offsets of the old topic.
        """
        for name, topic in self.snapshot.topics.items():
            known, _ = self._topic_ids.get(name, (topic.topic_id, now))
            if topic.topic_id and known != topic.topic_id:
                self.void([TopicPartition(name, p.partition) for p in topic.partitions], now + SETTLING_S)
            self._topic_ids[name] = topic.topic_id or known, now

    def _drop_gone(self, followed: Collection[TopicPartition], now: float) -> None:
        """Forget deleted topics: the query may outlive many of them."""
        self._topic_ids = {name: seen for name, seen in self._topic_ids.items() if now - seen[1] < self._remembered_s}
        self._valid_from = {tp: at for tp, at in self._valid_from.items() if now < at + 2 * REFRESH_DEADLINE_MS / 1000}
        for known in (self._ranges, self._watermarks, self._epochs):
            for tp in [tp for tp in known if tp not in followed and self.snapshot.partition(tp) is None]:
                del known[tp]
                self.changes = object()

    def _forget(self, tp: TopicPartition) -> None:
        self._ranges.pop(tp, None)
        self._watermarks.pop(tp, None)
        self._epochs.pop(tp, None)


def _update(known: dict[TopicPartition, T], listed: Mapping[TopicPartition, T]) -> bool:
    """Store `listed` in `known`; return whether anything has changed."""
    is_news = any(known.get(tp) != value for tp, value in listed.items())
    known.update(listed)
    return is_news


def _epochs_of(snapshot: ClusterSnapshot) -> dict[TopicPartition, int]:
    return {
        TopicPartition(name, p.partition): p.leader_epoch
        for name, topic in snapshot.topics.items()
        for p in topic.partitions
    }
