"""The coordinator of one query: connects the decisions in `streamgroup.coordinator.run` to threads and sockets.

Spark's thread calls `latest_offset`, `partitions` and `stop`. The control channel's threads call the other methods. All
of them pass requests to the `Run` through its `Inbox`. The group thread sends the member's requests. The log watcher
sends requests about logs and metadata. `QuestionAnswerer` carries out the blocking requests of the `Run`.
"""

from __future__ import annotations

import itertools
import logging
import random
import sys
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, overload

from streamgroup.coordinator.batch_read import log_ends, tasks_of
from streamgroup.coordinator.control.claims import Claim
from streamgroup.coordinator.log_output import NOTES
from streamgroup.coordinator.planning.batch import whole_batch
from streamgroup.coordinator.planning.document import DocumentCache, from_value, to_value
from streamgroup.coordinator.planning.memo import Memo
from streamgroup.coordinator.planning.subscription import is_subscribed, of_interest, require_columns
from streamgroup.coordinator.run import interface
from streamgroup.coordinator.run.interface import Question
from streamgroup.coordinator.run.machine import Run
from streamgroup.coordinator.run.planner import Planner
from streamgroup.coordinator.run.run_events import RunEvents
from streamgroup.coordinator.run.steps import Steps
from streamgroup.coordinator.threads.assemble import backend_of, ledger_of, run_config
from streamgroup.coordinator.threads.group_backend import GroupBackend
from streamgroup.coordinator.threads.log_checks import LogChecks
from streamgroup.coordinator.threads.log_watcher import LogWatcher
from streamgroup.errors import ConfigError, StreamGroupError
from streamgroup.group import events as ev
from streamgroup.group.ledger import Ledger
from streamgroup.group.offsets.table import ClaimRows, CommitRows
from streamgroup.kafka.cluster.interface import Cluster, kafka_of
from streamgroup.kafka.cluster.transactions import end_earlier
from streamgroup.kafka.net.connection_totals import TOTALS
from streamgroup.kafka.net.requester import requester_of
from streamgroup.kafka.net.resolve import require_resolvable
from streamgroup.kafka.producer.transaction import TransactionalId
from streamgroup.model import ClusterSnapshot, FetchTask, LogRange, TopicPartition
from streamgroup.options.types import GroupMode, GroupOptions, LimitOptions, SourceOptions

if TYPE_CHECKING:
    from streamgroup.coordinator.threads.table_thread import TableThread

T = TypeVar("T")

log = logging.getLogger("streamgroup")

GROUP_THREAD_TIMEOUT_S = 0.2
"""How long a stop waits until the group thread has closed its connections."""
TABLE_THREAD_TIMEOUT_S = 0.5
"""How long a stop waits until the last commit is in the offset table."""
WATCHER_TIMEOUT_S = 0.1
"""How long a stop waits until the log watcher has closed its connections."""


class Coordinator:
    """One member of one consumer group, for one start of one query.

    It connects with the first call that needs a connection.

    `home` is the private directory of the driver's JVM, where the members of one application claim their group (R28).
    """

    def __init__(self, options: SourceOptions, rng: random.Random | None = None, home: Path | None = None) -> None:
        assert options.group is not None, "options of a batch read"
        self._options = options
        self._group: GroupOptions = options.group
        self._documents = DocumentCache()
        self.stopping = False
        """Whether `stop` was called. SIGTERM must not interrupt the thread that runs it."""
        self.run = _new_id()
        self._ledger = ledger_of(self._group, self.run, _new_id())
        self._reported: Memo[dict[str, dict[str, int]]] = Memo()
        self._inbox = Inbox(self)
        self._watcher = LogWatcher(options, self._metadata_read, self._fail)
        checks = LogChecks(self._watcher, self._group.offset_location)
        events = self._events_of(self._ledger)
        self._planner = self._planner_of(self._ledger, checks, events)
        self._backend = backend_of(
            options,
            self._group,
            self._ledger,
            rng=rng or random.Random(),
            inbox=self._inbox,
            watcher=self._watcher,
            is_missed=self._is_missed,
        )
        self._table = _table_thread(self._inbox, self._group)
        config = run_config(options, self._group)
        self._run = Run(config, self._backend.member, self._watcher, self._planner, events)
        self._inbox.run = self._run
        self._claim = None if home is None else Claim(home, self._group.group_id, self._group.member, self.run)
        self._answers = QuestionAnswerer(
            options,
            watcher=self._watcher,
            backend=self._backend,
            checks=checks,
            planner=self._planner,
            claim=self._claim,
            table=self._table,
            is_stopped=lambda: self._run.shutdown.stopped,
        )

    def _events_of(self, ledger: Ledger) -> RunEvents:
        return RunEvents(ledger.group, self.run, log_format=lambda: self._watcher.snapshot.log_format)

    def _planner_of(self, ledger: Ledger, checks: LogChecks, events: RunEvents) -> Planner:
        return Planner(
            ledger,
            self._watcher,
            checks,
            events,
            location=self._group.offset_location,
            fail_on_data_loss=self._options.fail_on_data_loss,
            documents_positions=self._group.mode is GroupMode.OFF,
            is_subscribed=lambda tp: is_subscribed(self._options.subscription, tp),
        )

    # --- Spark's calls -----------------------------------------------------------------------------------------------

    def prepare_available_now(self) -> None:
        """Store the log end offsets of all subscribed partitions as the targets of AvailableNow (R11)."""
        self._inbox.call(Run.prepare_available_now)

    def latest_offset(self, start: Mapping[str, Any], *, limits: LimitOptions, once: bool = False) -> dict[str, Any]:
        """Mark the batch that ends at `start` as completed, commit it and plan the next batch.

        Returns the next batch's offset document, or `start` if there is nothing to read.
        """
        document = self._documents.read(start)
        planned = self._inbox.call(lambda run: run.latest_offset(document, limits, once=once))
        return dict(start) if planned is document else to_value(planned)

    def partitions(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> list[FetchTask]:
        """Return the tasks of the batch that `end` describes. They are kept, because Spark may call again (R12)."""
        first = self._documents.read(start)
        last = whole_batch(first, self._documents.read(end))
        return self._inbox.call(lambda run: run.partitions(first, last))

    def report_latest(self) -> dict[str, dict[str, int]] | None:
        """Return the owned partitions' log ends in the format of Spark's Kafka connector; None if unknown."""
        logs = self._inbox.call(Run.report_latest)
        return self._reported.get(lambda: _by_topic(logs), logs) or None

    def stop(self, *, last_word: bool = True) -> None:
        """Commit the positions of all owned partitions and leave the group within a second (R29).

        A static member does not leave.

        `last_word`: see `Shutdown.stop`.
        """
        self.stopping = True
        if self._inbox.call(lambda run: run.stop(last_word=last_word)):
            self._backend.thread.stop(GROUP_THREAD_TIMEOUT_S)
            self._watcher.stop(WATCHER_TIMEOUT_S)
            if self._table is not None:
                self._table.stop(TABLE_THREAD_TIMEOUT_S)
        self._end_unbegun()
        if self._claim is not None:
            self._claim.release()

    def end_query(self, error: StreamGroupError) -> None:
        """Leave the group although Spark still runs the query. Spark's pending or next call raises `error`."""
        self._fail(error)
        self.stop()

    def _end_unbegun(self) -> None:
        """Fail the log watcher's pending requests if the run was stopped before it began."""
        if not self._run.shutdown.has_begun:
            self._watcher.stop(0.0)

    def interrupt(self) -> None:
        """End the call that Spark waits for; called by a signal handler.

        Raises SystemExit, at once or after the current step.
        """
        self._inbox.interrupt()

    def look_at_silence(self, *, jvm_is_stopped: bool) -> None:
        """Check for how long Spark has made no calls (R27)."""
        self._inbox.post(interface.SilenceLook(jvm_is_stopped))

    # --- the control channel's requests: see `ControlledRun` ---------------------------------------------------------

    def sunk(self, document: Mapping[str, Any], batch: int | None, query: Mapping[str, Any]) -> dict[str, Any]:
        end = from_value(document)
        return dict(self._inbox.call(lambda run: run.report_completed(end, batch, query)))

    def ranges(self) -> dict[str, Any]:
        return dict(self._inbox.call(lambda run: run.completion.ranges()))

    def log_ends(self) -> dict[str, Any]:
        return {"ends": _by_topic(self._inbox.call(Run.list_ends))}

    def listen(self, is_announced: Callable[[], bool]) -> None:
        """Use `is_announced()` to find out whether the application has a listener that reports completed batches."""
        self._run.completion.is_announced = is_announced

    def end(self) -> dict[str, Any]:
        self._inbox.call(lambda run: run.shutdown.end())
        return {}

    def drain(self, timeout: float, *, ends: bool = False) -> dict[str, Any]:
        """Stop planning, wait until the last batch is completed, commit it and leave the group (R30).

        `ends`: see `Shutdown.drain`. Returns `{"drained": bool, "why": str, ...}`. `drained` is False if the last batch
        may be repeated, for example because `timeout` seconds have passed; `why` gives the reason.
        """
        result = self._inbox.call(lambda run: run.drain(timeout, ends=ends))
        self._end_unbegun()
        return {**result, "group": self._group.group_id, "run": self.run}

    def pause(self, partitions: Collection[TopicPartition] | None, *, is_paused: bool) -> dict[str, Any]:
        """Pause or resume partitions, as `ControlledRun.pause` describes. Raises PauseRefused."""
        chosen = None if partitions is None else frozenset(partitions)
        return self._inbox.call(lambda run: run.pause_reading(chosen, is_paused=is_paused))

    def status(self) -> dict[str, Any]:
        status = self._inbox.call(Run.status)
        epoch = time.time() - time.monotonic()  # each time: the system's clock may have been set
        for counter in status["trouble"].values():
            counter["last"] = None if counter["last"] is None else _utc(epoch + counter["last"])
        return {
            "group": self._group.group_id,
            "mode": self._group.mode.value,
            "source": self._options.description,
            "name": self._group.member or self._group.instance_id or "",
            "run": self.run,
            "offsets_store": None if self._table is None else self._table.where,
            **status,
            "client": {"id": self._options.client.client_id, "host": TOTALS.local_host},
            "connections": TOTALS.status(),
            "retries": {"group": self._backend.member.retries, "logs": self._watcher.retries},
        }

    # --- the shell of the inbox --------------------------------------------------------------------------------------

    def carry_out(self, action: interface.RunAction) -> None:
        """Carry out an action of the `Run` without waiting."""
        match action:
            case interface.Follow(topics):
                self._watcher.follow(topics)
            case interface.RefreshMetadata():
                self._watcher.refresh_metadata()
            case ClaimRows() | CommitRows():
                assert self._table is not None
                self._table.carry_out(action)
            case interface.CallReply() | interface.Raise() | interface.Ask():
                raise AssertionError(f"the inbox handles {action}")
            case _:
                self._backend.thread.carry_out(action)

    def answer(self, question: Question) -> object:
        """Carry out a blocking request to the cluster for a Spark call, in the thread of that call."""
        return self._answers.answer(question)

    def post(self, task: int, question: Question) -> None:
        """Have another thread carry out a request to the cluster for the background task `task`."""
        self._answers.post(question).add_done_callback(partial(self._answered, task))

    def wake(self) -> None:
        """Wake the thread that checks the timers."""
        self._backend.thread.wake()

    def _answered(self, task: int, answer: Future[Any]) -> None:
        error = answer.exception()
        if error is None:
            self._inbox.post(interface.QuestionAnswered(task, answer.result()))
        else:
            self._inbox.post(
                interface.QuestionFailed(task, error if isinstance(error, Exception) else StreamGroupError(repr(error)))
            )

    def _is_missed(self, tp: TopicPartition) -> bool:
        """Return whether a deleted partition is still owned because its loss has not been reported yet."""
        return tp in self._ledger.positions() and tp not in self._planner.deleted

    def _metadata_read(self, snapshot: ClusterSnapshot, asked: frozenset[str]) -> None:
        self._inbox.post(interface.TopicsRead(snapshot, asked))

    def _fail(self, error: StreamGroupError) -> None:
        self._inbox.post(interface.ThreadFailed(error))


def _table_thread(inbox: Inbox, group: GroupOptions) -> TableThread | None:
    if not group.store_url:
        return None
    # Few queries have an offset table, and all others start without loading SQLAlchemy.
    try:
        from streamgroup.coordinator.threads.table_thread import TableThread  # noqa: PLC0415
    except ModuleNotFoundError as error:
        if error.name != "sqlalchemy":
            raise
        raise ConfigError(
            "cannot use offsets.store: the Python package sqlalchemy is not installed. Install streamgroup[sql] for "
            "the Python of the driver"
        ) from None
    return TableThread(inbox, group)


def _by_topic(logs: Mapping[TopicPartition, LogRange]) -> dict[str, dict[str, int]]:
    ends: dict[str, dict[str, int]] = {}
    for tp, known in sorted(logs.items()):
        ends.setdefault(tp.topic, {})[str(tp.partition)] = known.latest
    return ends


def _new_id() -> str:
    """Return an id for a lineage or a run, short enough for a commit's metadata."""
    return uuid.uuid4().hex[:16]


def _utc(at: float) -> str:
    """Return a time in seconds since 1970 in ISO 8601. Rounded, since readings of two clocks differ a little."""
    return datetime.fromtimestamp(round(at), UTC).isoformat(timespec="seconds")


# --- the questions of the run ----------------------------------------------------------------------------------------


class QuestionAnswerer:
    """Carries out the requests to brokers and ZooKeeper that the `Run` of one query makes.

    `answer` blocks until the result is there; `post` returns at once and gives the request to another thread.
    """

    def __init__(
        self,
        options: SourceOptions,
        *,
        watcher: LogWatcher,
        backend: GroupBackend,
        checks: LogChecks,
        planner: Planner,
        claim: Claim | None,
        is_stopped: Callable[[], bool],
        table: TableThread | None = None,
    ) -> None:
        self._options = options
        self._watcher = watcher
        self._backend = backend
        self._checks = checks
        self._planner = planner
        self._claim = claim
        self._table = table
        self._is_stopped = is_stopped
        self._timeout_s = options.client.default_api_timeout_ms / 1000

    def answer(self, question: interface.Question) -> object:
        """Carry out a request for a Spark call and return the result. The caller must not hold the inbox's lock."""
        answer: object = None
        match question:
            case interface.Connect(topics):
                answer = self._connect(topics)
            case interface.ReadTopics(topics):
                answer = self._snapshot(topics, self._timeout_s)
            case interface.SnapshotEnds():
                subscription, isolation = self._options.subscription, self._options.fetch.isolation
                answer = self._watcher.ask(
                    lambda cluster, deadline: log_ends(cluster, deadline, subscription, isolation), self._timeout_s
                )
            case interface.ListEnds(positions, timeout):
                answer = self._watcher.ends(positions, timeout)
            case interface.CheckPositions(positions, logs, limits, timeout):
                self._checks.ask(positions, logs, limits, self._planner.targets, timeout)
            case interface.FetchCommitted(timeout, wanted):
                answer = self._backend.committed(timeout, wanted)
            case interface.EndTransaction(sink_id, transaction_timeout_ms, timeout):
                sink = TransactionalId(sink_id, transaction_timeout_ms, requester_of(self._options.client))
                answer = self._watcher.ask(
                    lambda cluster, until: end_earlier(kafka_of(cluster, until), sink, until), timeout
                )
            case interface.ClaimReplay(claimant, ranges, found, timeout):
                assert self._table is not None
                answer = self._table.claim_for_replay(claimant, ranges, found, timeout)
            case interface.MakeFetchTasks(document, ranges, packed):
                logs = self._watcher.known([r.partition for r in ranges])
                snapshot, options = self._watcher.snapshot, self._options
                answer = tasks_of(ranges, snapshot, options, document.positions, logs, packed_offsets=packed)
            case _:
                raise AssertionError(f"unexpected request of a Spark call: {question}")
        return answer

    def post(self, question: interface.Question) -> Future[Any]:
        """Queue a request of a background task for the thread of the log watcher or of ZooKeeper's session."""
        match question:
            case interface.ListOffsets(wanted, timeout):
                isolation = self._options.fetch.isolation
                return self._watcher.post(
                    lambda cluster, deadline: cluster.list_offsets(wanted, isolation, deadline), timeout
                )
            case interface.DescribeGroup(timeout):
                return self._backend.described(timeout)
        raise AssertionError(f"unexpected request of a background task: {question}")

    def _connect(self, topics: frozenset[str] | None) -> ClusterSnapshot:
        options = self._options
        group = options.group
        assert group is not None, "options of a batch read"
        if self._claim is not None and group.is_member:
            self._claim.take(self._is_stopped)
        NOTES.log(options.notes, group.group_id or "no group")
        left = require_resolvable(options.client.bootstrap_servers, self._timeout_s)
        self._watcher.start()
        snapshot = self._snapshot(topics, max(1.0, left))
        require_columns(options.fetch, snapshot)
        self._backend.opened(snapshot.dialect)
        self._backend.thread.start()
        if self._table is not None:
            self._table.start()
        return snapshot

    def _snapshot(self, topics: frozenset[str] | None, timeout: float) -> ClusterSnapshot:
        def read(cluster: Cluster, deadline: float) -> ClusterSnapshot:
            snapshot = cluster.snapshot(topics, deadline, refresh=True)
            # Here, in the watcher's thread, it cannot replace a newer one.
            self._watcher.snapshot = of_interest(snapshot, self._options.subscription, ())
            return snapshot

        return self._watcher.ask(read, timeout)


# --- the inbox of the run --------------------------------------------------------------------------------------------

LONGEST_WAIT_S = 5.0
"""A call that waits looks this often whether a timer is due."""


class Shell(Protocol):
    """Carries out the actions that a `Run` returns."""

    def carry_out(self, action: interface.RunAction) -> None:
        """Carry out an action without waiting. The caller holds the inbox's lock."""

    def answer(self, question: Question) -> object:
        """Carry out a blocking request to the cluster for a Spark call, in its thread and without the lock."""

    def post(self, task: int, question: Question) -> None:
        """Have another thread carry out a request to the cluster for the background task `task`."""

    def wake(self) -> None:
        """Wake the thread that checks the timers: a new timer is due before the next known one."""


class Inbox:
    """Passes events and calls from any thread to the `Run` of one query. Set `run` before the first event."""

    run: Run

    def __init__(self, shell: Shell, clock: Callable[[], float] = time.monotonic) -> None:
        self._shell = shell
        self._clock = clock
        self._lock = threading.RLock()
        self._events: deque[interface.Event] = deque()
        self._is_stepping = False
        self._is_interrupted = False
        self._numbers = itertools.count()
        self._calls: dict[int, SimpleQueue[interface.CallReply | interface.Raise | interface.Ask]] = {}
        self.wake_at: float | None = None
        """When the `Run` needs its next `Tick`, from `time.monotonic()`."""

    def post(self, event: interface.Event) -> None:
        """Pass an event to the `Run`. Returns when this event, and the events that follow from it, are handled."""
        try:
            with self._lock:
                self._events.append(event)
                if not self._is_stepping:  # otherwise an action of this step has led to the event: handle it after it
                    self._step()
        finally:
            if self._is_interrupted and threading.current_thread() is threading.main_thread():
                self._is_interrupted = False
                sys.exit(0)

    def _step(self) -> None:
        self._is_stepping = True
        try:
            while self._events:
                for action in self.run.step(self._events.popleft(), self._clock()):
                    self._try(action)
        finally:
            self._is_stepping = False
            before, self.wake_at = self.wake_at, self.run.wake_at
        if self.wake_at is not None and (before is None or self.wake_at < before):
            self._shell.wake()

    def _try(self, action: interface.RunAction) -> None:
        """Carry out an action. If it raises, the query fails, but this thread continues."""
        try:
            self._carry_out(action)
        except Exception as error:
            log.exception("an action of the coordinator has failed")
            self._events.append(
                interface.ThreadFailed(StreamGroupError(f"an action of the coordinator has failed: {error!r}"))
            )

    def interrupt(self) -> None:
        """End the main thread's call, from a signal handler: at once while it waits, or after its current step.

        Ending a step in the middle would leave an event half processed. Raises SystemExit.
        """
        if self._lock._is_owned() and self._is_stepping:  # type: ignore[attr-defined]
            self._is_interrupted = True
        else:
            sys.exit(0)

    def tick(self, now: float) -> None:
        """Pass a `Tick` to the `Run` if one of its timers is due."""
        wake_at = self.wake_at
        if wake_at is not None and now >= wake_at:
            self.post(ev.Tick())

    def _carry_out(self, action: interface.RunAction) -> None:
        match action:
            case interface.Ask(call, question) if call < 0:
                self._shell.post(call, question)
            case interface.CallReply(call) | interface.Raise(call) | interface.Ask(call):
                if (mail := self._calls.get(call)) is not None:
                    mail.put(action)
            case ev.Note(level, text):
                log.log(level, "%s", text)
            case _:
                self._shell.carry_out(action)

    @overload
    def call(self, request: Callable[[Run], Steps[T]]) -> T: ...

    @overload
    def call(self, request: Callable[[Run], T]) -> T: ...

    def call(self, request: Callable[[Run], Any]) -> Any:
        """Call a method of the `Run` with `request` and wait for the result in this thread.

        Raises the error that the method raises.
        """
        number = next(self._numbers)
        mail = self._calls[number] = SimpleQueue()
        is_over = False
        try:
            self.post(interface.Called(number, request))
            while True:
                match self._wait(mail):
                    case interface.Ask(_, question):
                        self._answer(number, question)
                    case interface.Raise(_, error):
                        is_over = True
                        raise error
                    case interface.CallReply(_, result):
                        is_over = True
                        return result
        finally:
            del self._calls[number]
            if not is_over:  # a signal has ended the wait
                self.post(interface.CallAbandoned(number))

    def _answer(self, number: int, question: Question) -> None:
        try:
            found = self._shell.answer(question)
        except Exception as error:  # the call decides what an error means
            self.post(interface.QuestionFailed(number, error))
        else:
            self.post(interface.QuestionAnswered(number, found))

    def _wait(
        self, mail: SimpleQueue[interface.CallReply | interface.Raise | interface.Ask]
    ) -> interface.CallReply | interface.Raise | interface.Ask:
        while True:
            now, wake_at = self._clock(), self.wake_at
            due = now + LONGEST_WAIT_S if wake_at is None else min(wake_at, now + LONGEST_WAIT_S)
            try:
                return mail.get(timeout=max(0.0, due - now))
            except Empty:
                self.tick(due)
