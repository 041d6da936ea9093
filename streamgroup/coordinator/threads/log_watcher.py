"""The log watcher: the thread that lists log ends, refreshes metadata, and carries out slow requests to the cluster.

Spark's thread and the group thread never wait for brokers longer than their timeouts. They read the newest responses
that this thread has stored, or post a request to it. `planning/log_read_schedule.py` decides which request this thread
sends, and when.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import closing, suppress
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from streamgroup.coordinator.planning import log_read_schedule as schedule
from streamgroup.coordinator.planning.known_logs import REFRESH_DEADLINE_MS
from streamgroup.coordinator.planning.memo import Memo
from streamgroup.coordinator.planning.subscription import of_interest
from streamgroup.errors import BrokerError, StreamGroupError, TransportError
from streamgroup.frozen import frozen
from streamgroup.kafka.cluster.interface import Cluster, open_cluster
from streamgroup.kafka.cluster.requests import ListedOffset
from streamgroup.model import EARLIEST, LATEST, ClusterSnapshot, LogRange, TopicPartition
from streamgroup.options.types import Isolation, SourceOptions

log = logging.getLogger("streamgroup")

T = TypeVar("T")
Listed = dict[TopicPartition, ListedOffset]
Question = Callable[[Cluster, float], T]
"""A call on the cluster, with its deadline in monotonic seconds."""
Done = Callable[[float], str | None]
"""Passes the result of a step to the schedule, with its time; returns a warning for the log."""

LEADER_TIMEOUT_S = 0.25
"""How long a listing waits for a slow leader. Its later answer counts for the next listing."""


@frozen
class _PostedQuestion:
    """A request that another thread has posted, with its deadline."""

    question: Question[Any]
    until: float
    answer: Future[Any]


class LogWatcher:
    """Lists the log ends and refreshes the metadata of one query in a separate thread.

    That thread calls `on_metadata` with every new snapshot and the requested topics, and `on_failure` with an error
    that retrying will not resolve.
    """

    def __init__(
        self,
        options: SourceOptions,
        on_metadata: Callable[[ClusterSnapshot, frozenset[str]], None],
        on_failure: Callable[[StreamGroupError], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._options = options
        self._clock = clock
        self._on_metadata = on_metadata
        self._on_failure = on_failure
        self._lock = threading.Lock()
        """Guards `_schedule` and `_callers`."""
        self._schedule: schedule.LogReadSchedule[_PostedQuestion] = schedule.LogReadSchedule(
            options.client.metadata_max_age_ms / 1000,
            partitions_ttl_s=max(0, options.partition_metadata_cache_ttl_ms) / 1000,
            has_pattern=options.subscription.pattern is not None,
        )
        self._callers: dict[SimpleQueue[None], float] = {}
        """The pending calls of `ends`, each with the earliest start of a listing that completes it."""
        self._wake: SimpleQueue[None] = SimpleQueue()
        """Filled after each change of `_schedule` by another thread."""
        self._ends: Memo[Mapping[TopicPartition, LogRange]] = Memo()
        self._thread = threading.Thread(target=self._run, name="streamgroup-logs", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout: float) -> None:
        """End the thread; pending requests fail."""
        with self._lock:
            self._schedule.is_stopping = True
            self._release()
        self._wake.put(None)
        if self._thread.is_alive():
            self._thread.join(timeout)

    def follow(self, topics: Collection[str]) -> None:
        """Watch the metadata of `topics`, and refresh it now."""
        with self._lock:
            self._schedule.follow(topics)
        self._wake.put(None)

    def refresh_metadata(self) -> None:
        """Refresh the metadata soon: an answer has shown that it is out of date."""
        with self._lock:
            self._schedule.refresh_metadata()
        self._wake.put(None)

    def ends(self, partitions: Collection[TopicPartition], wait: float) -> Mapping[TopicPartition, LogRange]:
        """Return the ranges of the logs of `partitions`, listed after this call began.

        If no listing ends within `wait` seconds, and for partitions whose leader did not respond, it returns the last
        known log ends: lower bounds, as logs only grow. Partitions that were never listed are absent. While the
        brokers' responses and `partitions` stay the same, it returns the same object. The caller must not change that
        object.
        """
        if not partitions:
            return {}
        listed: SimpleQueue[None] = SimpleQueue()
        with self._lock:
            now = self._clock()  # under the lock: a listing of fewer partitions may begin while this call waits
            self._schedule.want_ends(partitions, now)
            self._callers[listed] = now
            self._release()
        self._wake.put(None)
        with suppress(Empty):
            listed.get(timeout=max(0.0, wait))
        with self._lock:
            self._callers.pop(listed, None)
            logs = self._schedule.logs
            return self._ends.get(lambda: logs.ranges(partitions), partitions, logs.changes)

    def known(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, LogRange]:
        """Return the last listed ranges of `partitions`, without asking the brokers."""
        with self._lock:
            return self._schedule.logs.ranges(partitions)

    @property
    def known_since(self) -> tuple[object, object]:
        """Two objects whose identity changes when the answer of `known`, `watermarks` or `leader_epochs` may change."""
        logs = self._schedule.logs
        return logs.changes, logs.snapshot

    def watermarks(self, logs: Mapping[TopicPartition, LogRange]) -> Mapping[TopicPartition, LogRange]:
        """Return `logs` with their high watermarks as ends: an open transaction is not a data loss (R8)."""
        with self._lock:
            return self._schedule.logs.watermarks(logs)

    def leader_epochs(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the newest leader epochs seen in the metadata or in listed ends (R8); unknown ones are absent."""
        with self._lock:
            return self._schedule.logs.leader_epochs(partitions)

    @property
    def snapshot(self) -> ClusterSnapshot:
        """The newest metadata."""
        return self._schedule.logs.snapshot

    @snapshot.setter
    def snapshot(self, snapshot: ClusterSnapshot) -> None:
        self._schedule.logs.snapshot = snapshot

    @property
    def metadata_at(self) -> float:
        """Monotonic time of the last refresh of the metadata; 0 before the first."""
        return self._schedule.metadata_at

    @property
    def retries(self) -> int:
        """The number of refreshes and listings that failed or were incomplete, so that they are repeated."""
        return self._schedule.retries

    def doubt(self, partitions: Collection[TopicPartition], now: float) -> None:
        """Drop the log data known at `now` of `partitions`, which may be stale; list them and refresh the metadata."""
        with self._lock:
            self._schedule.doubt(partitions, now)
        self._wake.put(None)

    def post(self, question: Question[T], timeout: float) -> Future[T]:
        """Post a request to the watcher's thread. The thread sets the returned Future."""
        future: Future[T] = Future()
        with self._lock:
            stopping = self._schedule.is_stopping
            if not stopping:
                self._schedule.ask(_PostedQuestion(question, self._clock() + timeout, future))
        if stopping:
            future.set_exception(TransportError("cannot send the request: the coordinator is stopping"))
        else:
            self._wake.put(None)
        return future

    def ask(self, question: Question[T], timeout: float) -> T:
        """Post a request and wait for its result. Raises TransportError after `timeout` seconds."""
        try:
            return self.post(question, timeout).result(timeout + 1.0)
        except FutureTimeoutError:
            raise TransportError(f"the brokers did not answer within {timeout:.0f} s; {self._last_error()}") from None

    def _last_error(self) -> str:
        error = self._schedule.error
        return f"last error: {error}" if error else "they are connected but slow"

    def _release(self) -> None:
        """Resume the calls of `ends` that the last listing answers; all of them if the thread is stopping."""
        listed_at, is_stopping = self._schedule.listed_at, self._schedule.is_stopping
        for caller in [caller for caller, since in self._callers.items() if is_stopping or listed_at >= since]:
            del self._callers[caller]
            caller.put(None)

    # --- the thread --------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        with closing(open_cluster(self._options.client, self.refresh_metadata)) as cluster:
            try:
                done: Done = self._schedule.answered
                while not isinstance(step := self._next_step(done), schedule.EndReading):
                    done = self._try(step, cluster)
            except Exception as error:  # any defect must fail the query, which would wait forever without this thread
                log.exception("the thread that watches the logs has failed")
                self._on_failure(error if isinstance(error, StreamGroupError) else StreamGroupError(repr(error)))
        with self._lock:
            left = self._schedule.stop()
            self._release()
        for posted in left:  # without the lock: the callbacks take other locks
            posted.answer.set_exception(TransportError("cannot send the request: the coordinator is stopping"))

    def _next_step(self, done: Done) -> schedule.Step[_PostedQuestion]:
        """Pass the result of the last step to the schedule, and return the next step."""
        with self._lock:
            now = self._clock()
            warning = done(now)
            self._release()
            step = self._schedule.next_step(now)
        if warning is not None:
            log.warning("%s", warning)
        return step

    def _try(self, step: schedule.Step[_PostedQuestion], cluster: Cluster) -> Done:
        try:
            return self._carry_out(step, cluster)
        except (TransportError, BrokerError) as error:
            return partial(self._schedule.failed, error)

    def _carry_out(self, step: schedule.Step[_PostedQuestion], cluster: Cluster) -> Done:
        match step:
            case schedule.Wait(seconds):
                self._wait(seconds)
                return _nothing
            case schedule.Answer(posted):
                _answer(cluster, posted)
            case schedule.PublishMetadata(snapshot, topics):
                self._on_metadata(snapshot, topics)
            case schedule.FailQuery(error):
                self._on_failure(error)
                return _nothing
            case schedule.FetchMetadata():
                began_cpu_s = time.thread_time()
                return partial(self._take_metadata, step, self._fetched(cluster, step), began_cpu_s)
            case schedule.ListLogs():
                began_cpu_s = time.thread_time()
                return partial(self._take_listing, self._listing(cluster, step), began_cpu_s)
        return self._schedule.answered

    def _wait(self, seconds: float) -> None:
        """Wait for another thread to change `_schedule`."""
        with suppress(Empty):
            self._wake.get(timeout=seconds)
            while True:
                self._wake.get_nowait()

    def _fetched(self, cluster: Cluster, step: schedule.FetchMetadata) -> ClusterSnapshot:
        if step.elsewhere:
            cluster.distrust_metadata()
        snapshot = cluster.snapshot(None if step.reads_all else step.topics, _deadline(cluster), refresh=True)
        return of_interest(snapshot, self._options.subscription, step.topics) if step.reads_all else snapshot

    def _listing(self, cluster: Cluster, step: schedule.ListLogs) -> schedule.Listing:
        """List the logs. A leader that is slow or unknown must not delay the other partitions."""
        isolation = self._options.fetch.isolation
        ends, causes = _listed(cluster, step.asked, LATEST, isolation, step.epoch)
        watermarks: Listed = {}
        if isolation is Isolation.READ_COMMITTED:
            watermarks, _ = _listed(cluster, ends, LATEST, Isolation.READ_UNCOMMITTED, step.epoch)
        with self._lock:
            lists_starts = self._schedule.lists_starts(step, ends)
        starts = _listed(cluster, ends, EARLIEST, isolation, step.epoch)[0] if lists_starts else None
        return schedule.Listing(step, ends, watermarks, starts, causes)

    def _take_metadata(
        self, step: schedule.FetchMetadata, snapshot: ClusterSnapshot, began_cpu_s: float, now: float
    ) -> None:
        self._schedule.metadata_took(time.thread_time() - began_cpu_s)
        self._schedule.metadata_read(step, snapshot, now)

    def _take_listing(self, listing: schedule.Listing, began_cpu_s: float, now: float) -> str | None:
        warning = self._schedule.listed(listing, now)
        self._schedule.listing_took(time.thread_time() - began_cpu_s)
        return warning


def _nothing(now: float) -> None:
    """Report no result: the step has sent no request."""


def _deadline(cluster: Cluster) -> float:
    return cluster.deadline(REFRESH_DEADLINE_MS)


def _listed(
    cluster: Cluster, partitions: Collection[TopicPartition], at: int, isolation: Isolation, epoch: int
) -> tuple[Listed, list[str]]:
    if not partitions:
        return {}, []
    return cluster.list_offsets_once(
        dict.fromkeys(partitions, at), isolation, _deadline(cluster), timeout=LEADER_TIMEOUT_S, epoch=epoch
    )


def _answer(cluster: Cluster, posted: _PostedQuestion) -> None:
    """Carry out one posted request. Its error, of any type, is raised in the thread that posted it."""
    try:
        posted.answer.set_result(posted.question(cluster, posted.until))
    except Exception as error:
        posted.answer.set_exception(error)
