"""The thread of a process that asks the brokers about logs: the real schedule, over the simulated logs and network.

`SimWatcher` has those methods of `LogWatcher` that the run's planner, its questions and `LogChecks` call. The real
`LogReadSchedule` decides when to read logs and metadata, and the real `KnownLogs` which answers count.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from streamgroup.coordinator.planning import log_read_schedule as steps
from streamgroup.coordinator.planning.known_logs import REFRESH_DEADLINE_MS
from streamgroup.coordinator.planning.memo import Memo
from streamgroup.coordinator.run import interface as io
from streamgroup.coordinator.threads.log_watcher import LEADER_TIMEOUT_S
from streamgroup.errors import StreamGroupError, TransportError
from streamgroup.kafka.cluster.requests import ListedOffset
from streamgroup.model import Broker, ClusterSnapshot, Dialect, LogRange, TopicPartition
from tests.sim.boundaries import SimCluster07
from tests.sim.bytelogs import Logs07
from tests.sim.clock import Sleep, Steps, Thread, Until, raise_failure
from tests.sim.settings import METADATA_AGE_S

if TYPE_CHECKING:
    from tests.sim.process import Process

Logs = Mapping[TopicPartition, LogRange]
Question = Callable[[Any, float], Any]


@dataclass(frozen=True, slots=True)
class _Posted:
    """A question of another thread, with its deadline."""

    question: Question
    until: float
    answer: Future[Any]


class SimWatcher:
    """See the module."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._clock = process.clock
        self._network = process.network
        registry = process.settings.registry
        self._dialect = Dialect.KAFKA if registry is None else registry.dialect
        self._schedule: steps.LogReadSchedule[_Posted] = steps.LogReadSchedule(METADATA_AGE_S, has_pattern=False)
        logs = process.world.logs
        self._cluster = SimCluster07(self, self._clock, logs) if isinstance(logs, Logs07) else None
        self._ends: Memo[Logs] = Memo()
        self._unanswered = 0
        self._is_woken = False
        self._thread: Thread | None = None

    # -- what other threads use ---------------------------------------------------------------------------------------

    @property
    def is_free(self) -> bool:
        """Whether every question is answered."""
        return not self._unanswered

    @property
    def snapshot(self) -> ClusterSnapshot:
        """The newest metadata."""
        return self._schedule.logs.snapshot

    @property
    def metadata_at(self) -> float:
        return self._schedule.metadata_at

    @property
    def known_since(self) -> tuple[object, object]:
        logs = self._schedule.logs
        return logs.changes, logs.snapshot

    def known(self, partitions: Collection[TopicPartition]) -> Logs:
        return self._schedule.logs.ranges(partitions)

    def watermarks(self, logs: Logs) -> Logs:
        return self._schedule.logs.watermarks(logs)

    def leader_epochs(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        return self._schedule.logs.leader_epochs(partitions)

    def doubt(self, partitions: Collection[TopicPartition], now: float) -> None:
        self._schedule.doubt(partitions, now)
        self._wake()

    def follow(self, topics: Collection[str]) -> None:
        self._schedule.follow(topics)
        self._wake()

    def refresh_metadata(self) -> None:
        self._schedule.refresh_metadata()
        self._wake()

    def read_metadata(self, timeout: float) -> Steps:
        """Read the metadata at once."""

        def read(cluster: Any, deadline: float) -> ClusterSnapshot:
            self._schedule.logs.snapshot = self._read()
            return self.snapshot

        snapshot = yield from self.ask(read, timeout)
        return snapshot

    def ends(self, partitions: Collection[TopicPartition], wait: float) -> Steps:
        """As `LogWatcher.ends`: what a listing shows that begins from now on, or what is known after `wait` seconds."""
        if not partitions:
            return {}
        schedule, since = self._schedule, self._clock.now
        schedule.want_ends(partitions, since)
        self._wake()
        yield Until(lambda: schedule.listed_at >= since, wait)
        return self._ends.get(lambda: schedule.logs.ranges(partitions), partitions, schedule.logs.changes)

    def ask(self, question: Question, timeout: float) -> Steps:
        """Leave a question and wait for its answer. Raises TransportError after `timeout` seconds."""
        answer = self.post(question, timeout)
        yield Until(answer.done, timeout + 1.0)
        if not answer.done():
            raise TransportError(f"the brokers did not answer within {timeout:g} s")
        return answer.result()

    def post(self, question: Question, timeout: float) -> Future[Any]:
        """As `LogWatcher.post`."""
        answer: Future[Any] = Future()
        self._unanswered += 1
        self._schedule.ask(_Posted(question, self._clock.now + timeout, answer))
        self._wake()
        return answer

    def look(self) -> None:
        """Something has changed."""
        if self._thread is not None:
            self._thread.look()

    def close(self) -> None:
        """The process is gone."""
        if self._thread is not None:
            self._thread.kill()

    def _wake(self) -> None:
        self._is_woken = True
        if self._thread is None:
            self._thread = Thread(self._clock, self._run(), self._process.hear, raise_failure)
        self._thread.look()

    # -- the thread ---------------------------------------------------------------------------------------------------

    def _run(self) -> Steps:
        schedule = self._schedule
        while True:
            self._is_woken = False
            match schedule.next_step(self._clock.now):
                case steps.Wait(seconds):
                    yield Until(lambda: self._is_woken, seconds)
                case steps.Answer(posted):
                    yield from self._answer(posted)
                    schedule.answered(self._clock.now)
                case steps.PublishMetadata(snapshot, topics):
                    self._process.post(io.TopicsRead(snapshot, topics))
                    schedule.answered(self._clock.now)
                case steps.FetchMetadata() as step:
                    yield from self._fetch_metadata(step)
                case steps.ListLogs() as step:
                    yield from self._list(step)
                case step:
                    raise AssertionError(f"the simulated brokers lead to no {step}")

    def _round_trip(self, until: float) -> Steps:
        """A request to a broker and its answer. Raises TransportError at `until`."""
        clock, network = self._clock, self._network
        due = max(clock.now, network.cut_until) + 2 * network.latency()
        yield Sleep(min(due, until) - clock.now)
        if due > until:
            raise TransportError("the brokers do not answer in time")

    def _answer(self, posted: _Posted) -> Steps:
        try:
            yield from self._round_trip(posted.until)
            posted.answer.set_result(posted.question(self._cluster, posted.until))
        except StreamGroupError as error:
            posted.answer.set_exception(error)
        self._unanswered -= 1

    def _fetch_metadata(self, step: steps.FetchMetadata) -> Steps:
        try:
            yield from self._round_trip(self._clock.now + REFRESH_DEADLINE_MS / 1000)
        except TransportError as error:
            self._schedule.failed(error, self._clock.now)
            return
        self._schedule.metadata_read(step, self._read(step.topics), self._clock.now)

    def _read(self, asked: Collection[str] | None = None) -> ClusterSnapshot:
        """The metadata of the topics that were asked for, or of all."""
        topics = {
            name: info for name, info in self._process.world.logs.topics().items() if asked is None or name in asked
        }
        leaders = {info.leader for topic in topics.values() for info in topic.partitions}
        brokers = {node: Broker(node, f"b{node}", 9092) for node in leaders if node is not None}
        return ClusterSnapshot(brokers, topics, dialect=self._dialect)

    def _list(self, step: steps.ListLogs) -> Steps:
        """As `LogWatcher._listing`."""
        schedule, logs = self._schedule, self._process.world.logs
        causes: list[str] = []
        ends = yield from self._listed(step.asked, lambda tp: ListedOffset(logs.range(tp).latest), causes)
        starts = None
        if schedule.lists_starts(step, ends):
            starts = yield from self._listed(ends, lambda tp: _start(logs.range(tp)), [])
        schedule.listed(steps.Listing(step, ends, {}, starts, causes), self._clock.now)

    def _listed(
        self, asked: Collection[TopicPartition], at: Callable[[TopicPartition], ListedOffset], causes: list[str]
    ) -> Steps:
        """As `Cluster.list_offsets_once`: what the brokers answer, and nothing where they do not in time."""
        if not asked:
            return {}
        try:
            yield from self._round_trip(self._clock.now + LEADER_TIMEOUT_S)
        except TransportError as error:
            causes.append(str(error))
            return {}
        return {tp: at(tp) for tp in asked}


def _start(log: LogRange) -> ListedOffset:
    return ListedOffset(log.earliest, segments=log.segments)
