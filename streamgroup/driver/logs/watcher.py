"""The thread that owns a Cluster: it lists log ends, refreshes metadata and answers slow questions.

Spark's thread and the group's thread never wait for brokers longer than their timeouts. They read the newest answers
of this thread, or leave a question with it.
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
from streamgroup.errors import BrokerError, StreamGroupError, TransportError
from streamgroup.model import EARLIEST, LATEST, UNKNOWN_EPOCH, ClusterSnapshot, LogRange, TopicPartition
from streamgroup.options.types import Isolation, SourceOptions
from streamgroup.planning.memo import Memo
from streamgroup.planning.subscription import of_interest

log = logging.getLogger("streamgroup")

T = TypeVar("T")
Listed = dict[TopicPartition, ListedOffset]
Question = Callable[[Cluster, float], T]
"""A call on the cluster, with its deadline in monotonic seconds."""

LISTING_EVERY_S = 0.05
"""The ends are listed at most this often. Spark asks every 10 ms while there is nothing new, and every call waits for a
listing that began after it: an older one would miss records that were written before `processAllAvailable()`."""
REST = 4
"""The pause between two listings, in multiples of the CPU time of the last one. Requests and answers of 10,000
partitions take some 0.15 s, and a query that only waits should not use a whole CPU."""
REST_MOST_S = 0.5
"""Longest pause. A call of `ends` waits for a second, and the listing must end by then."""
EARLIEST_EVERY_S = 2.0
"""How often log starts are listed. Only retention moves them, and executors notice that for the ranges they read."""
LEADERLESS_EVERY_S = 1.0
"""How often the metadata is refreshed while a partition has no leader, or its leader does not answer."""
SETTLING_S = 0.5
"""How long after a topic was recreated a broker may still answer for the old topic's log."""
LEADER_TIMEOUT_S = 0.25
"""How long a listing waits for a slow leader. Its later answer counts for the next listing."""
ABSENT_S = 3600.0
"""Seconds for which the id of a deleted topic is remembered, to recognise a topic recreated under its name."""
REFRESH_DEADLINE_S = 5.0
RETRY_AFTER_S = 0.5


class LogWatcher:
    """Watches the logs and the metadata for one run.

    The callbacks are called in its thread: `on_metadata` with every new snapshot and the topics asked for, `on_failure`
    with an error that no retry will end.
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
        """The leader epoch under which each log end was listed."""
        self._changes = object()
        """A new object after each change of `_logs`, `_watermarks` or `_epochs`: callers cache by its identity."""
        self._asked_for: Collection[TopicPartition] = ()
        """The collection from which `_partitions` was last made."""
        self._ends: Memo[Mapping[TopicPartition, LogRange]] = Memo()
        self._asked_at = 0.0
        self._known_at = 0.0
        self._earliest_at = 0.0
        self._listing_cpu_s = 0.0
        """CPU seconds of the last listing."""
        self._led: Memo[list[TopicPartition]] = Memo()
        self._metadata_at: float | None = None
        self._doubts = 0
        """Counts calls of `refresh_metadata`. A snapshot asked for before such a call does not satisfy it."""
        self._distrusts = False
        """Whether the next refresh asks another broker for the metadata."""
        self._missing: frozenset[TopicPartition] = frozenset()
        """Partitions whose leaders did not answer the last listing. They are asked again at `_ask_missing_at`."""
        self._ask_missing_at = 0.0
        self._reported_missing: frozenset[TopicPartition] = frozenset()
        self._valid_from: dict[TopicPartition, float] = {}
        """By partition: answers to requests sent before this time are about an older log. Dropped when no such request
        can be pending any more."""
        self._epoch = 0
        """Grows whenever earlier answers become invalid."""
        self._topic_ids: dict[str, tuple[str, float]] = {}
        """The id of each topic, and when it was last seen; dropped ABSENT_S after that."""
        self._stopping = False
        self._error: StreamGroupError | None = None
        self.snapshot = ClusterSnapshot({}, {})
        self._thread = threading.Thread(target=self._run, name="streamgroup-logs", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout: float) -> None:
        """End the thread; pending questions fail."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        if self._thread.is_alive():
            self._thread.join(timeout)

    def follow(self, topics: Collection[str]) -> None:
        """Watch the metadata of `topics`, and refresh it now."""
        with self._changed:
            self._topics = frozenset(topics)
            self._metadata_at = None
            self._changed.notify_all()

    def refresh_metadata(self) -> None:
        """Refresh the metadata soon: an answer has shown that it is old."""
        with self._changed:
            self._metadata_at = None
            self._doubts += 1
            self._changed.notify_all()

    def ends(self, partitions: Collection[TopicPartition], wait: float) -> Mapping[TopicPartition, LogRange]:
        """Return what the logs of `partitions` hold, listed after this call began.

        If no listing ends within `wait` seconds, and for partitions whose leader did not answer it, these are the ends
        last known: lower bounds, as logs only grow. Partitions never listed are absent. The answer is the same object
        while the brokers' answers and `partitions` stay the same. The caller must not change it in place.
        """
        if not partitions:
            return {}
        with self._changed:
            now = (
                time.monotonic()
            )  # under the lock: a listing of fewer partitions may begin while this call waits for it
            if partitions is not self._asked_for:
                if not self._partitions.issuperset(partitions):
                    self._known_at = 0.0  # the next listing is due at once
                self._partitions, self._asked_for = frozenset(partitions), partitions
            self._asked_at = now
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._known_at >= now or self._stopping, wait)
            return self._ends.get(lambda: self._of(partitions), partitions, self._changes)

    def known(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, LogRange]:
        """Return the last listed ranges of `partitions`, without asking the brokers."""
        with self._changed:
            return self._of(partitions)

    def _of(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, LogRange]:
        return {tp: self._logs[tp] for tp in partitions if tp in self._logs}

    @property
    def known_since(self) -> tuple[object, object]:
        """Two objects whose identity changes when `known`, `watermarks` or `leader_epochs` may answer differently."""
        return self._changes, self.snapshot

    def watermarks(self, logs: Mapping[TopicPartition, LogRange]) -> Mapping[TopicPartition, LogRange]:
        """Return `logs` up to their high watermarks: an open transaction is not a loss (R8)."""
        with self._changed:
            high = self._watermarks
            return {
                tp: known if high.get(tp, 0) <= known.latest else replace(known, latest=high[tp])
                for tp, known in logs.items()
            }

    def leader_epochs(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the newest leader epochs seen in the metadata or in listed ends (R8); unknown ones are absent."""
        with self._changed:
            infos = {tp: self.snapshot.partition(tp) for tp in partitions}
            newest = {
                tp: max(info.leader_epoch if info else UNKNOWN_EPOCH, self._epochs.get(tp, UNKNOWN_EPOCH))
                for tp, info in infos.items()
            }
        return {tp: epoch for tp, epoch in newest.items() if epoch != UNKNOWN_EPOCH}

    @property
    def metadata_at(self) -> float:
        """Monotonic time of the last refresh of the metadata; 0 before the first."""
        return self._metadata_at or 0.0

    def doubt(self, partitions: Collection[TopicPartition]) -> None:
        """Drop the known ranges of these logs, which may be stale; list them and refresh the metadata."""
        with self._changed:
            self._void(partitions, time.monotonic())
            self._earliest_at = 0.0
            self._known_at = 0.0
            self._distrusts = True
        self.refresh_metadata()

    def _void(self, partitions: Collection[TopicPartition], until: float) -> None:
        """Drop the known ranges of these logs, and answers to requests sent before `until`."""
        for tp in partitions:
            self._valid_from[tp] = until
            for known in (self._logs, self._watermarks, self._epochs):
                known.pop(tp, None)
        self._changes = object()
        self._epoch += 1

    def post(self, question: Question[T], timeout: float) -> Future[T]:
        """Leave a question with the watcher's thread, which sets the Future."""
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
        """Leave a question and wait for its answer. Raises TransportError after `timeout` seconds."""
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
                except (
                    Exception
                ) as error:  # any defect must fail the query, which would wait for ever without this thread
                    log.exception("watching the logs has failed")
                    known = error if isinstance(error, StreamGroupError) else StreamGroupError(repr(error))
                    self._on_failure(known)
                    self._stopping = True
        with self._changed:
            self._stopping = True
            left, self._questions = self._questions, deque()
            self._changed.notify_all()
        for _, _, future in left:  # without the lock: the callbacks take other locks
            future.set_exception(TransportError("the coordinator is stopping"))

    def _turn(self, cluster: Cluster) -> None:
        with self._changed:
            while not self._has_work():  # not wait_for: a call of `ends` shortens the wait
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
        """Return the seconds until the next listing; infinite if no caller waits for one."""
        if self._asked_at <= self._known_at:
            return math.inf
        every_s = max(LISTING_EVERY_S, min(REST_MOST_S, REST * self._listing_cpu_s))
        return max(0.0, self._known_at + every_s - time.monotonic())

    def _metadata_due(self) -> bool:
        return self._follows() and self._idle_for() <= 0

    def _follows(self) -> bool:
        """Return whether there is metadata to watch: of topics, or of topics that a pattern may match later."""
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
        """Drop ends listed under another leader epoch: a new leader may have truncated the log, or the topic is new."""
        for tp, epoch in _epochs(self.snapshot).items():
            if UNKNOWN_EPOCH not in (epoch, self._epochs.get(tp, UNKNOWN_EPOCH)) and epoch != self._epochs[tp]:
                for known in (self._logs, self._watermarks, self._epochs):
                    known.pop(tp, None)
                self._changes = object()

    def _drop_recreated(self) -> None:
        """Drop the ranges of recreated topics, whose leader epochs may equal the old ones.

        Answers within SETTLING_S are dropped, too. ListOffsets knows topics by name only, and the leader may still
        answer for the old topic.
        """
        now = time.monotonic()
        for name, topic in self.snapshot.topics.items():
            known, _ = self._topic_ids.get(name, (topic.topic_id, now))
            if topic.topic_id and known != topic.topic_id:
                self._void([TopicPartition(name, p.partition) for p in topic.partitions], now + SETTLING_S)
            self._topic_ids[name] = topic.topic_id or known, now

    def _drop_gone(self) -> None:
        """Forget deleted topics: the query may outlive many of them."""
        now = time.monotonic()
        remembered_s = max(ABSENT_S, 2 * self._options.client.metadata_max_age_ms / 1000)
        self._topic_ids = {name: seen for name, seen in self._topic_ids.items() if now - seen[1] < remembered_s}
        self._valid_from = {tp: at for tp, at in self._valid_from.items() if now < at + 2 * REFRESH_DEADLINE_S}
        for known in (self._logs, self._watermarks, self._epochs):
            for tp in [tp for tp in known if tp not in self._partitions and self.snapshot.partition(tp) is None]:
                del known[tp]
                self._changes = object()

    def _refresh_ends(self, cluster: Cluster) -> None:
        """List the ends. A slow or missing leader must not delay the partitions of the others."""
        started, cpu = time.monotonic(), time.thread_time()
        wanted = self._partitions
        isolation = self._options.fetch.isolation
        led = self._asked_now(wanted, started)
        latest, errors = self._listed(cluster, led, LATEST, isolation)
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
                if start is not None:  # a start dropped during the listing is listed next time
                    segments = first.segments if first else known.segments if known else ()
                    logs[tp] = LogRange(min(start, listed.offset), listed.offset, segments)
            self._learn(logs, high, latest)
            if not any(
                self._valid_from[tp] <= time.monotonic() for tp in void
            ):  # otherwise the next listing is due at once
                self._earliest_at = started if unknown else self._earliest_at
                self._known_at = started
            self._listing_cpu_s = time.thread_time() - cpu
            self._changed.notify_all()
        self._miss(wanted - latest.keys() - void, errors, asked=led)

    def _learn(self, logs: Mapping[TopicPartition, LogRange], high: Listed, latest: Listed) -> None:
        """Store the leaders' answers. `_changes` stays the same object if no answer differs, the usual case."""
        news = [
            _update(self._logs, logs),
            _update(self._watermarks, {tp: listed.offset for tp, listed in high.items()}),
            _update(self._epochs, {tp: listed.leader_epoch for tp, listed in latest.items()}),
        ]
        if any(news):
            self._changes = object()

    def _asked_now(self, wanted: frozenset[TopicPartition], now: float) -> list[TopicPartition]:
        """Return those of `wanted` that have a leader, less those whose leader has just failed to answer."""
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
            dict.fromkeys(partitions, at), isolation, deadline, timeout=LEADER_TIMEOUT_S, epoch=self._epoch
        )

    def _miss(
        self, missing: frozenset[TopicPartition], causes: Collection[str], asked: Collection[TopicPartition]
    ) -> None:
        """Warn once that leaders do not answer, and refresh the metadata: they may have moved."""
        now = time.monotonic()
        if causes and not missing <= self._reported_missing:
            names = ", ".join(map(str, sorted(missing)))
            log.warning(
                "cannot list the offsets of %s: %s. Other partitions are not affected", names, "; ".join(causes)
            )
            self._reported_missing |= missing
        self._reported_missing &= missing
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


def _update(known: dict[TopicPartition, T], listed: Mapping[TopicPartition, T]) -> bool:
    """Store `listed` in `known`; return whether anything has changed."""
    is_news = any(known.get(tp) != value for tp, value in listed.items())
    known.update(listed)
    return is_news


def _epochs(snapshot: ClusterSnapshot) -> dict[TopicPartition, int]:
    return {
        TopicPartition(name, p.partition): p.leader_epoch
        for name, topic in snapshot.topics.items()
        for p in topic.partitions
    }


def _answer(cluster: Cluster, question: Question[object], deadline: float, future: Future[object]) -> None:
    """Carry out one question. Its error, of any type, is raised in the thread that asked."""
    try:
        future.set_result(question(cluster, deadline))
    except Exception as error:
        future.set_exception(error)
