"""One thread that owns a Cluster: the ends of the logs, the metadata, and every question that may take a while.

Spark's thread and the group's thread never wait for a broker's answer here longer than they say: they read what this
thread knows, or leave a question with it.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import closing
from dataclasses import replace
from typing import TypeVar

from streamgroup.cluster.interface import Cluster, open_cluster
from streamgroup.cluster.requests import ListedOffset
from streamgroup.driver.logs.subscription import of_interest
from streamgroup.errors import BrokerError, StreamGroupError, TransportError
from streamgroup.model import EARLIEST, LATEST, UNKNOWN_EPOCH, ClusterSnapshot, LogRange, TopicPartition
from streamgroup.options.types import Isolation, SourceOptions
from streamgroup.planning.memo import Memo

log = logging.getLogger("streamgroup")

T = TypeVar("T")
Listed = dict[TopicPartition, ListedOffset]
Question = Callable[[Cluster, float], T]
"""Asks the cluster, until a deadline (monotonic seconds)."""

LISTING_EVERY_S = 0.05
"""The ends are listed at most this often. Spark asks every 10 ms while there is nothing new, and every call waits for a
listing that began after it: an older one would miss records that were written before `processAllAvailable()`."""
REST = 4
"""From one listing to the next pass at least so many times the processor time that the last one took. Requests and
answers of 10,000 partitions take some 0.15 s, and a query that only waits is not to take a whole processor."""
REST_MOST_S = 0.5
"""A call of `ends` waits for a second: the listing must begin early enough to end by then."""
EARLIEST_EVERY_S = 2.0
"""Log starts move with retention only, and executors notice them by themselves; but one planned range at a time."""
LEADERLESS_EVERY_S = 1.0
"""How often the metadata is looked at while a partition has no leader, or one that does not answer."""
SETTLING_S = 0.5
"""So long after a topic was made anew a broker may still tell of the log of the old one."""
LEADER_PATIENCE_S = 0.25
"""How long the ends of other logs wait for a slow leader; what it answers later counts, too."""
ABSENT_S = 3600.0
"""Seconds for which the id of a deleted topic is remembered, to recognise a topic recreated under its name."""
REFRESH_DEADLINE_S = 5.0
RETRY_AFTER_S = 0.5


class LogWatcher:
    """See the module. The callbacks are called in this thread: `on_metadata` with every new snapshot and the topics
    asked for, `on_failure` with what no retry will mend.
    """

    def __init__(
        self,
        options: SourceOptions,
        on_metadata: Callable[[ClusterSnapshot, frozenset[str]], None],
        on_failure: Callable[[StreamGroupError], None],
    ) -> None:
        self._options = options
        self._on_metadata = on_metadata
        self._on_failure = on_failure
        self._changed = threading.Condition()
        self._questions: deque[tuple[Question[object], float, Future[object]]] = deque()
        self._topics: frozenset[str] | None = None
        self._partitions: frozenset[TopicPartition] = frozenset()
        self._logs: dict[TopicPartition, LogRange] = {}
        self._watermarks: dict[TopicPartition, int] = {}
        self._epochs: dict[TopicPartition, int] = {}
        """The leader epoch under which the end of a log was told."""
        self._changes = object()
        """Another one after each change of these three, so that what was read from them can be kept until then."""
        self._asked_for: Collection[TopicPartition] = ()
        """The collection that `_partitions` was last made of."""
        self._ends: Memo[Mapping[TopicPartition, LogRange]] = Memo()
        self._asked_at = 0.0
        self._known_at = 0.0
        self._earliest_at = 0.0
        self._look_took_s = 0.0
        """CPU seconds of the last look at the ends."""
        self._led: Memo[list[TopicPartition]] = Memo()
        self._metadata_at: float | None = None
        self._doubts = 0
        """How often it was found to be old: what is read while that happens may be older than the reason."""
        self._distrusts = False
        """Whether another broker is to be asked for it next."""
        self._missing: frozenset[TopicPartition] = frozenset()
        """Whose leaders did not answer when they were last asked, and when they are asked again."""
        self._ask_missing_at = 0.0
        self._told_missing: frozenset[TopicPartition] = frozenset()
        self._valid_from: dict[TopicPartition, float] = {}
        """When a question must have been asked for its answer to be about the log that there is now; forgotten when no
        older question can be out any more."""
        self._epoch = 0
        """Grows whenever earlier answers have become worthless."""
        self._topic_ids: dict[str, tuple[str, float]] = {}
        """The id of each topic, and when it was last seen; forgotten some time after that (ABSENT_S)."""
        self._stopping = False
        self._error: StreamGroupError | None = None
        self.snapshot = ClusterSnapshot({}, {})
        self._thread = threading.Thread(target=self._run, name="streamgroup-logs", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self, timeout: float) -> None:
        """End the thread; questions that are left fail."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        if self._thread.is_alive():
            self._thread.join(timeout)

    def follow(self, topics: Collection[str]) -> None:
        """Keep the metadata of `topics`, refreshed now."""
        with self._changed:
            self._topics = frozenset(topics)
            self._metadata_at = None
            self._changed.notify_all()

    def refresh_metadata(self) -> None:
        """Refresh the metadata soon: something has shown that it is old."""
        with self._changed:
            self._metadata_at = None
            self._doubts += 1
            self._changed.notify_all()

    def ends(self, partitions: Collection[TopicPartition], wait: float) -> Mapping[TopicPartition, LogRange]:
        """Return what the logs of `partitions` hold, listed after this call began.

        Where no listing ends within `wait` seconds, and for partitions whose leader did not answer in it, these are the
        ends last known: lower bounds, as logs only grow. Partitions that nobody has told of are absent. The answer is
        the same object for as long as the brokers tell the same of the same `partitions`, which nobody may change in
        place.
        """
        if not partitions:
            return {}
        with self._changed:
            now = time.monotonic()  # not before: a listing of fewer partitions may begin while the lock is waited for
            if partitions is not self._asked_for:
                if not self._partitions.issuperset(partitions):
                    self._known_at = 0.0  # the next listing is due at once
                self._partitions, self._asked_for = frozenset(partitions), partitions
            self._asked_at = now
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._known_at >= now or self._stopping, wait)
            return self._ends.get(lambda: self._of(partitions), partitions, self._changes)

    def known(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, LogRange]:
        """What was last heard of the logs of `partitions`, without asking."""
        with self._changed:
            return self._of(partitions)

    def _of(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, LogRange]:
        return {tp: self._logs[tp] for tp in partitions if tp in self._logs}

    @property
    def known_since(self) -> tuple[object, object]:
        """Two objects that tell by identity whether anything has changed that `known`, `watermarks` and `leader_epochs`
        answer from."""
        return self._changes, self.snapshot

    def watermarks(self, logs: Mapping[TopicPartition, LogRange]) -> Mapping[TopicPartition, LogRange]:
        """The same logs up to their high watermarks: an open transaction is no loss (R8)."""
        with self._changed:
            high = self._watermarks
            return {
                tp: known if high.get(tp, 0) <= known.latest else replace(known, latest=high[tp])
                for tp, known in logs.items()
            }

    def leader_epochs(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """The newest leader epoch that the metadata or the end of a log has shown (R8); absent where none has."""
        with self._changed:
            infos = {tp: self.snapshot.partition(tp) for tp in partitions}
            newest = {
                tp: max(info.leader_epoch if info else UNKNOWN_EPOCH, self._epochs.get(tp, UNKNOWN_EPOCH))
                for tp, info in infos.items()
            }
        return {tp: epoch for tp, epoch in newest.items() if epoch != UNKNOWN_EPOCH}

    @property
    def metadata_at(self) -> float:
        """When the metadata was last refreshed, monotonic seconds; 0 before."""
        return self._metadata_at or 0.0

    def doubt(self, partitions: Collection[TopicPartition]) -> None:
        """Read the metadata and the whole ranges of these logs anew: what is known of them may be stale."""
        with self._changed:
            self._void(partitions, time.monotonic())
            self._earliest_at = 0.0
            self._known_at = 0.0
            self._distrusts = True
        self.refresh_metadata()

    def _void(self, partitions: Collection[TopicPartition], until: float) -> None:
        """What is known of these logs, and what is answered to questions asked before `until`, counts for nothing."""
        for tp in partitions:
            self._valid_from[tp] = until
            for known in (self._logs, self._watermarks, self._epochs):
                known.pop(tp, None)
        self._changes = object()
        self._epoch += 1

    def post(self, question: Question[T], timeout: float) -> Future[T]:
        """Leave a question; the answer is in the Future, set in this thread."""
        future: Future[T] = Future()
        with self._changed:
            stopping = self._stopping
            if not stopping:
                self._questions.append((question, time.monotonic() + timeout, future))  # type: ignore[arg-type]
                self._changed.notify_all()
        if stopping:
            future.set_exception(TransportError("the coordinator is stopping"))
        return future

    def ask(self, question: Question[T], timeout: float) -> T:
        """Ask and wait; raises TransportError after `timeout` seconds."""
        try:
            return self.post(question, timeout).result(timeout + 1.0)
        except FutureTimeoutError:
            raise TransportError(f"the brokers did not answer within {timeout:.0f} s; {self._last_error()}") from None

    def _last_error(self) -> str:
        return f"last error: {self._error}" if self._error else "they are connected but slow"

    # --- the thread --------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        with closing(open_cluster(self._options.client, self.refresh_metadata)) as cluster:
            while not self._stopping:
                try:
                    self._turn(cluster)
                    self._error = None
                except TransportError as error:
                    self._failed(error)
                except BrokerError as error:
                    self._failed(error)
                    if not error.retriable:
                        self._on_failure(error)
                except Exception as error:  # whatever else: a query without this thread would wait for ever
                    log.exception("watching the logs has failed")
                    known = error if isinstance(error, StreamGroupError) else StreamGroupError(repr(error))
                    self._on_failure(known)
                    self._stopping = True
        with self._changed:
            self._stopping = True
            left, self._questions = self._questions, deque()
            self._changed.notify_all()
        for _, _, future in left:  # without the lock: what is called back takes others
            future.set_exception(TransportError("the coordinator is stopping"))

    def _turn(self, cluster: Cluster) -> None:
        with self._changed:
            while not self._has_work():  # not wait_for: a call of `ends` makes the time to wait shorter
                self._changed.wait(min(self._idle_for(), self._until_listing()))
            question = self._questions.popleft() if self._questions else None
            ends_wanted = self._until_listing() <= 0
        if question is not None:
            _answer(cluster, *question)
        elif self._metadata_due():
            self._refresh_metadata(cluster)
        elif ends_wanted:
            self._refresh_ends(cluster)

    def _has_work(self) -> bool:
        return self._stopping or bool(self._questions) or self._metadata_due() or self._until_listing() <= 0

    def _until_listing(self) -> float:
        """Return the seconds until the ends are listed; none are where nobody waits for them."""
        if self._asked_at <= self._known_at:
            return math.inf
        every_s = max(LISTING_EVERY_S, min(REST_MOST_S, REST * self._look_took_s))
        return max(0.0, self._known_at + every_s - time.monotonic())

    def _metadata_due(self) -> bool:
        return self._follows() and self._idle_for() <= 0

    def _follows(self) -> bool:
        """Whether there is any metadata to keep: of topics, or of whatever a pattern may come to match."""
        return bool(self._topics) or (self._topics is not None and self._options.subscription.pattern is not None)

    def _idle_for(self) -> float:
        if self._metadata_at is None:
            return 0.0 if self._follows() else 60.0
        return max(0.0, self._metadata_at + self._options.client.metadata_max_age_ms / 1000 - time.monotonic())

    def _refresh_metadata(self, cluster: Cluster) -> None:
        with self._changed:
            followed = topics = self._topics or frozenset()
            doubts = self._doubts
            distrusts, self._distrusts = self._distrusts, False
        if distrusts:
            cluster.distrust_metadata()
        subscription = self._options.subscription
        wanted = None if subscription.pattern is not None else topics
        snapshot = cluster.snapshot(wanted, time.monotonic() + REFRESH_DEADLINE_S, refresh=True)
        if wanted is None:
            snapshot = of_interest(snapshot, subscription, topics)
            topics |= snapshot.topics.keys()
        with self._changed:
            self.snapshot = snapshot
            self._drop_cut()
            self._drop_recreated()
            self._drop_gone()
            if (followed, doubts) == (self._topics, self._doubts):
                self._metadata_at = time.monotonic()
        self._on_metadata(snapshot, topics)

    def _drop_cut(self) -> None:
        """Old ends are lower bounds only under one leader: another may have cut the log, or it is a new topic's."""
        for tp, epoch in _epochs(self.snapshot).items():
            if UNKNOWN_EPOCH not in (epoch, self._epochs.get(tp, UNKNOWN_EPOCH)) and epoch != self._epochs[tp]:
                for known in (self._logs, self._watermarks, self._epochs):
                    known.pop(tp, None)
                self._changes = object()

    def _drop_recreated(self) -> None:
        """The log of a topic made anew is another one, though its leader epoch may be the same.

        The leader may not have heard of it yet, and ListOffsets knows names only: what it tells at first counts for
        nothing either.
        """
        now = time.monotonic()
        for name, topic in self.snapshot.topics.items():
            known, _ = self._topic_ids.get(name, (topic.topic_id, now))
            if topic.topic_id and known != topic.topic_id:
                self._void([TopicPartition(name, p.partition) for p in topic.partitions], now + SETTLING_S)
            self._topic_ids[name] = topic.topic_id or known, now

    def _drop_gone(self) -> None:
        """Forget what is nobody's question any more: topics may come and go for as long as the query runs."""
        now = time.monotonic()
        remembered_s = max(ABSENT_S, 2 * self._options.client.metadata_max_age_ms / 1000)
        self._topic_ids = {name: seen for name, seen in self._topic_ids.items() if now - seen[1] < remembered_s}
        self._valid_from = {tp: at for tp, at in self._valid_from.items() if now < at + 2 * REFRESH_DEADLINE_S}
        for known in (self._logs, self._watermarks, self._epochs):
            for tp in [tp for tp in known if tp not in self._partitions and self.snapshot.partition(tp) is None]:
                del known[tp]
                self._changes = object()

    def _refresh_ends(self, cluster: Cluster) -> None:
        """Ask the leaders; one that is slow, or none at all, must not hold up the partitions of the others."""
        started, cpu = time.monotonic(), time.thread_time()
        wanted = self._partitions
        isolation = self._options.fetch.isolation
        led = self._asked_now(wanted, started)
        latest, amiss = self._listed(cluster, led, LATEST, isolation)
        high: Listed = {}
        if isolation is Isolation.READ_COMMITTED:
            high, _ = self._listed(cluster, latest, LATEST, Isolation.READ_UNCOMMITTED)
        unknown = started - self._earliest_at > EARLIEST_EVERY_S or not self._logs.keys() >= latest.keys()
        earliest, _ = self._listed(cluster, latest, EARLIEST, isolation) if unknown else ({}, [])
        with self._changed:
            void = {tp for tp in latest if started < self._valid_from.get(tp, 0.0)}
            if void:
                latest = {tp: listed for tp, listed in latest.items() if tp not in void}
                high = {tp: listed for tp, listed in high.items() if tp not in void}
                self._epoch += 1
            logs: dict[TopicPartition, LogRange] = {}
            for tp, listed in latest.items():
                first, known = earliest.get(tp), self._logs.get(tp)
                start = first.offset if first else known.earliest if known else None
                if start is not None:  # else it was forgotten while we asked
                    segments = first.segments if first else known.segments if known else ()
                    logs[tp] = LogRange(min(start, listed.offset), listed.offset, segments)
            self._learn(logs, high, latest)
            if not any(self._valid_from[tp] <= time.monotonic() for tp in void):  # else they can be told at once
                self._earliest_at = started if unknown else self._earliest_at
                self._known_at = started
            self._look_took_s = time.thread_time() - cpu
            self._changed.notify_all()
        self._miss(wanted - latest.keys() - void, amiss, asked=led)

    def _learn(self, logs: Mapping[TopicPartition, LogRange], high: Listed, latest: Listed) -> None:
        """Take over what the leaders told. Mostly they tell the same again, and then nothing has changed."""
        news = [
            _update(self._logs, logs),
            _update(self._watermarks, {tp: listed.offset for tp, listed in high.items()}),
            _update(self._epochs, {tp: listed.leader_epoch for tp, listed in latest.items()}),
        ]
        if any(news):
            self._changes = object()

    def _asked_now(self, wanted: frozenset[TopicPartition], now: float) -> list[TopicPartition]:
        """Those of `wanted` that have a leader; where it was silent or gone just now it is left alone for a moment."""
        leader = self.snapshot.leader
        led = self._led.get(lambda: sorted(tp for tp in wanted if leader(tp) is not None), wanted, self.snapshot)
        return led if now >= self._ask_missing_at else [tp for tp in led if tp not in self._missing]

    def _listed(
        self, cluster: Cluster, partitions: Collection[TopicPartition], at: int, isolation: Isolation
    ) -> tuple[Listed, list[str]]:
        if not partitions:
            return {}, []
        deadline = time.monotonic() + REFRESH_DEADLINE_S
        return cluster.list_offsets_once(
            dict.fromkeys(partitions, at), isolation, deadline, timeout=LEADER_PATIENCE_S, epoch=self._epoch
        )

    def _miss(
        self, missing: frozenset[TopicPartition], causes: Collection[str], asked: Collection[TopicPartition]
    ) -> None:
        """Say once that partitions wait for their leaders, and look whether they have others by now."""
        now = time.monotonic()
        if causes and not missing <= self._told_missing:
            names = ", ".join(map(str, sorted(missing)))
            log.warning("no news of the logs of %s, the others go on: %s", names, "; ".join(causes))
            self._told_missing |= missing
        self._told_missing &= missing
        self._missing = missing
        if not missing.isdisjoint(asked):
            self._ask_missing_at = now + RETRY_AFTER_S
        if missing and now - self.metadata_at > LEADERLESS_EVERY_S:
            self.refresh_metadata()

    def _failed(self, error: StreamGroupError) -> None:
        if self._error is None or str(self._error) != str(error):
            log.warning("%s; trying again", error)
        self._error = error
        with self._changed:
            self._metadata_at = None
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._stopping or bool(self._questions), RETRY_AFTER_S)


def _update(known: dict[TopicPartition, T], told: Mapping[TopicPartition, T]) -> bool:
    """Take over what was told. Returns whether any of it is new."""
    is_news = any(known.get(tp) != value for tp, value in told.items())
    known.update(told)
    return is_news


def _epochs(snapshot: ClusterSnapshot) -> dict[TopicPartition, int]:
    return {
        TopicPartition(name, p.partition): p.leader_epoch
        for name, topic in snapshot.topics.items()
        for p in topic.partitions
    }


def _answer(cluster: Cluster, question: Question[object], deadline: float, future: Future[object]) -> None:
    """Carry out one question; whatever it raises belongs to the one who asked."""
    try:
        future.set_result(question(cluster, deadline))
    except Exception as error:
        future.set_exception(error)
