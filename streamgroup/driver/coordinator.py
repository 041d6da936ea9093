"""The coordinator of one query's run. It serves Spark's calls with the group's thread and the log watcher.

Spark's thread calls `latest_offset`, `partitions` and `stop`; the group's thread carries out the member's actions; the
watcher asks the brokers. One condition, `_state`, guards the member and is notified after every change.
"""

from __future__ import annotations

import logging
import random
import threading
import time
import uuid
from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from streamgroup.driver.application.claims import Claim
from streamgroup.driver.application.silence import SilenceWatch, spark_calls
from streamgroup.driver.batch import tasks_of
from streamgroup.driver.log_checks import LogChecks
from streamgroup.driver.logs.subscription import is_subscribed
from streamgroup.driver.logs.watcher import LogWatcher
from streamgroup.driver.membership.backends import backend_of
from streamgroup.driver.membership.lineage_watch import LineageWatch
from streamgroup.driver.membership.modes import ledger_of
from streamgroup.driver.offline_brokers import OfflineBrokers
from streamgroup.driver.resolver import Resolver
from streamgroup.driver.starts import log_ends
from streamgroup.driver.startup import Startup
from streamgroup.driver.waiting import carry_through
from streamgroup.errors import StreamGroupError
from streamgroup.group import events as ev
from streamgroup.group.member import MemberAction, MetadataStale, Resolve
from streamgroup.model import (
    ClusterSnapshot,
    FetchTask,
    TopicPartition,
)
from streamgroup.options.types import GroupOptions, LimitOptions, Mode, SourceOptions
from streamgroup.planning.batch import whole_batch
from streamgroup.planning.document import DocumentReader, from_value, to_value
from streamgroup.planning.memo import Memo
from streamgroup.run import questions as ask
from streamgroup.run.machine import Run, RunConfig
from streamgroup.run.planner import Planner
from streamgroup.run.run_events import Loss, RunEvents
from streamgroup.run.steps import Steps

log = logging.getLogger("streamgroup")

GROUP_THREAD_TIMEOUT_S = 0.2
"""How long a stop waits for the group's thread to close its connections."""
WATCHER_TIMEOUT_S = 0.1
"""How long a stop waits for the watcher to close its connections."""


class Coordinator:
    """One member of one group, for one run of one query. Nothing connects before the first call that needs it.

    `home` is the private directory of the driver's JVM, where members of one application meet (R28).
    """

    def __init__(self, options: SourceOptions, rng: random.Random | None = None, home: Path | None = None) -> None:
        assert options.group is not None, "options of a batch read"
        self._options = options
        self._group: GroupOptions = options.group
        self._state = threading.Condition(threading.RLock())
        self._timeout_s = options.client.default_api_timeout_ms / 1000
        self._documents = DocumentReader()
        self._reported: Memo[dict[str, dict[str, int]]] = Memo()
        self.stopping = False
        """Whether `stop` was called. SIGTERM must not interrupt the thread that runs it."""
        self.run = _new_id()
        self._ledger = ledger = ledger_of(self._group, self.run, _new_id())
        self._watcher = LogWatcher(options, self._metadata_refreshed, self._fail)
        self._backend = backend_of(
            options,
            self._group,
            ledger,
            rng=rng or random.Random(),
            state=self._state,
            watcher=self._watcher,
            is_missed=self._is_missed,
            on_action=self._act,
        )
        self._member, self._thread = self._backend.member, self._backend.thread
        self._events = events = RunEvents(
            ledger.group,
            self.run,
            lambda level, line: log.log(level, "%s", line),
            lambda: datetime.now(UTC),
            log_format=lambda: self._watcher.snapshot.log_format,
        )
        self._checks = LogChecks(self._watcher, self._group.offset_location)
        self._planner = Planner(
            ledger,
            self._watcher,
            self._checks,
            events,
            location=self._group.offset_location,
            fail_on_data_loss=options.fail_on_data_loss,
            warn=lambda line: log.warning("%s", line),
            documents_positions=self._group.mode is Mode.OFF,
            is_subscribed=lambda tp: is_subscribed(options.subscription, tp),
        )
        self._resolver = Resolver(
            options,
            self._group.offset_location,
            self._watcher,
            self._report_losses,
            on_found=self._found,
            on_failed=self._not_found,
            is_new=lambda tp: tp not in self._startup.there,
        )
        self._claim = None if home is None else Claim(home, ledger.group, self._group.member, self.run)
        session_s = self._group.session_timeout_ms / 1000
        self._lineages = LineageWatch(
            ledger.group, session_s, self._state, self._backend.described, identify=self._identify, on_failed=self._fail
        )
        self._member.is_listened = lambda: self._run.completion.is_listened
        self._startup = Startup(
            options,
            self._state,
            self._backend,
            watcher=self._watcher,
            lineages=self._lineages,
            claim=self._claim,
            is_stopped=lambda: self._run.shutdown.stopped,
        )
        self._offline = OfflineBrokers(options, self._backend, lambda: self._watcher.snapshot, self._timeout_s)
        self._run = Run(
            RunConfig(
                group_id=self._group.group_id,
                is_member=self._group.is_member,
                join_timeout_s=self._group.join_timeout_ms / 1000,
                api_timeout_s=self._timeout_s,
            ),
            self._member,
            self._thread.carry_out,
            planner=self._planner,
            startup=self._startup,
            offline=self._offline,
            events=events,
            is_clear=lambda _: self._lineages.clear(),
        )
        self._shutdown = self._run.shutdown
        # No other member waits for a standalone one, so a listener or a leave would not help the group.
        is_standalone = not self._group.is_member
        self.silence = SilenceWatch(
            self._group,
            is_listened=lambda: is_standalone or self._run.completion.is_listened,
            pause=lambda: not is_standalone and self._pause(),
        )

    # --- Spark's calls -----------------------------------------------------------------------------------------------

    @spark_calls
    def prepare_available_now(self) -> None:
        """Take the ends of all subscribed partitions as the targets of AvailableNow (R11)."""
        carry_through(self._state, lambda _: self._run.prepare_available_now(), self._answer)

    @spark_calls
    def latest_offset(self, start: Mapping[str, Any], *, limits: LimitOptions, once: bool = False) -> dict[str, Any]:
        """Mark the batch of `start` as sunk, commit it and plan the next: its document, or `start` if none."""
        document = self._documents.read(start)
        planned = carry_through(
            self._state, lambda _: self._run.latest_offset(document, limits, once=once), self._answer
        )
        return dict(start) if planned is document else to_value(planned)

    @spark_calls
    def partitions(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> list[FetchTask]:
        """Return the tasks of the batch that `end` describes. The answer is kept: Spark may ask again (R12)."""
        first = self._documents.read(start)
        last = whole_batch(first, self._documents.read(end))
        if first == last:
            return []
        tasks: list[FetchTask] = carry_through(self._state, lambda _: self._run.partitions(first, last), self._answer)
        return tasks

    def _answer(self, question: ask.Question) -> object:
        """Answer a question of the run. Called without the lock: brokers may be slow."""
        match question:
            case ask.OpenLogs():
                self._startup.open()
            case ask.FindAgain(checkpoint):
                self._startup.look_again(checkpoint)
            case ask.SnapshotEnds():
                subscription, isolation = self._options.subscription, self._options.fetch.isolation
                return self._watcher.ask(
                    lambda cluster, deadline: log_ends(cluster, deadline, subscription, isolation), self._timeout_s
                )
            case ask.ListEnds(positions, timeout):
                return self._watcher.ends(positions, timeout)
            case ask.CheckPositions(positions, logs, limits, timeout):
                self._checks.ask(positions, logs, limits, self._planner.targets, timeout)
            case ask.FindOfflineBrokers(checkpoint, targets, once):
                self._offline.begin(checkpoint, targets, once=once)
            case ask.CheckOfflineBrokers(checkpoint, targets):
                self._offline.end(checkpoint, targets)
            case ask.FetchCommitted():
                return self._backend.committed(self._timeout_s)
            case ask.MakeTasks(document, ranges):
                logs = self._watcher.known([r.partition for r in ranges])
                return tasks_of(ranges, self._watcher.snapshot, self._options, document.positions, logs)
        return None

    @spark_calls
    def report_latest(self) -> dict[str, dict[str, int]] | None:
        """Return the ends of the logs held, in the format of Spark's Kafka connector; None before the first listing."""
        with self._state:
            held = self._ledger.partitions()
        return self._reported.get(lambda: self._ends_of(held), held, *self._watcher.known_since) or None

    def _ends_of(self, held: Collection[TopicPartition]) -> dict[str, dict[str, int]]:
        ends: dict[str, dict[str, int]] = {}
        for tp, known in sorted(self._watcher.known(held).items()):
            ends.setdefault(tp.topic, {})[str(tp.partition)] = known.latest
        return ends

    def stop(self, *, last_word: bool = True) -> None:
        """Commit every held position and leave the group within a second (R29); static members stay.

        `last_word`: see `Shutdown.stop`.
        """
        self.stopping = True
        has_left = carry_through(self._state, lambda now: self._shutdown.stop(now, last_word=last_word))
        if has_left:
            self._thread.stop(GROUP_THREAD_TIMEOUT_S)
            self._watcher.stop(WATCHER_TIMEOUT_S)
        self._end_unbegun()
        with self._state:
            self._events.left(self._ledger.in_flight, self._shutdown.uncommitted, "stopped")
        if self._claim is not None:
            self._claim.release()

    def _pause(self) -> bool:
        """Leave the group until Spark calls again (R27). Return whether there was a group to leave."""
        return carry_through(self._state, self._leave_until_the_next_call)

    def _leave_until_the_next_call(self, now: float) -> Steps[bool]:
        paused = yield from self._shutdown.pause(now)
        if paused:
            self._events.left(self._ledger.in_flight, self._shutdown.uncommitted, "left while Spark was silent")
        return paused

    def _end_unbegun(self) -> None:
        """Fail pending questions to the watcher at once if the run was stopped before it began."""
        if not self._shutdown.has_begun:
            self._watcher.stop(0.0)

    # --- the control channel's requests ------------------------------------------------------------------------------

    def sunk(self, document: Mapping[str, Any], batch: int | None, query: Mapping[str, Any]) -> dict[str, Any]:
        """Take the listener's report that the batch of `document` has sunk (R15)."""
        sunk = from_value(document)
        with self._state:
            answer = self._run.completion.mark_sunk(sunk, batch, query, time.monotonic())
            self._state.notify_all()
            return dict(answer)

    def ranges(self) -> dict[str, Any]:
        """Return the ranges of the batch in flight."""
        with self._state:
            return dict(self._run.completion.ranges())

    def listen(self, is_announced: Callable[[], bool]) -> None:
        """Use `is_announced` to find whether the application has a listener that reports sunk batches."""
        self._run.completion.is_announced = is_announced

    def end(self) -> dict[str, Any]:
        """End the query with Spark's next call: every coordinator of the query is drained."""
        with self._state:
            self._shutdown.end()
            self._state.notify_all()
        return {}

    def drain(self, timeout: float, *, ends: bool = False) -> dict[str, Any]:
        """Stop planning, wait until the last batch has sunk, commit and leave (R30). `ends`: see `Shutdown.drain`.

        Returns `{"drained": bool, ...}`: False if `timeout` seconds passed before; then one batch may be repeated.
        """
        drained = carry_through(self._state, lambda now: self._shutdown.drain(now, timeout, ends=ends))
        self._end_unbegun()
        with self._state:
            if not drained:
                self._events.left(self._ledger.in_flight, self._shutdown.uncommitted, "the drain's time was over")
            return {
                "drained": drained,
                "group": self._group.group_id,
                "run": self.run,
                "in_flight": not self._ledger.idle,
            }

    def status(self) -> dict[str, Any]:
        """Return the state of the member, its positions and its events."""
        with self._state:
            return {
                "group": self._group.group_id,
                "mode": self._group.mode.value,
                "name": self._group.member or self._group.instance_id or "",
                "run": self.run,
                "lineage": self._ledger.lineage,
                "member": self._ledger.member_id,
                "generation": self._ledger.generation,
                "state": self._member.membership.state.name.lower(),
                "draining": self._shutdown.draining,
                "stopped": self._shutdown.stopped,
                "idle": self._ledger.idle,
                "query": dict(self._run.completion.query),
                "positions": {str(tp): p.offset for tp, p in self._ledger.positions().items()},
                "trouble": self._events.status(),
            }

    # --- planning ----------------------------------------------------------------------------------------------------

    def _is_missed(self, tp: TopicPartition) -> bool:
        """Return whether a deleted partition is still held, since its loss is not reported yet."""
        return tp in self._ledger.positions() and tp not in self._planner.deleted

    # --- the other threads -------------------------------------------------------------------------------------------

    def _act(self, action: MemberAction) -> None:
        """Carry out an action that is not the group thread's own. The lock is held."""
        self._events.on_action(action, self._ledger.in_flight)
        self._lineages.on_action(action)
        match action:
            case ev.NeedTopics(topics):
                self._startup.follow(topics)
            case Resolve():
                self._resolver.resolve(action)
            case MetadataStale():
                self._watcher.refresh_metadata()
            case ev.Fail(error):
                self._fail(error)
        self._state.notify_all()

    def _identify(self, identity: bytes) -> None:
        self._thread.carry_out(self._member.step(ev.Identified(identity), time.monotonic()))

    def _metadata_refreshed(self, snapshot: ClusterSnapshot, asked: frozenset[str]) -> None:
        self._startup.see(snapshot, asked)

    def _report_losses(self, losses: Collection[Loss], failed: bool) -> None:
        with self._state:
            self._events.lost_records(losses, failed=failed)

    def _found(self, generation: int, offsets: Mapping[TopicPartition, int]) -> None:
        with self._state:
            self._thread.carry_out(self._member.resolved(generation, offsets, time.monotonic()))
            self._state.notify_all()

    def _not_found(self, generation: int, error: StreamGroupError) -> None:
        with self._state:
            if generation == self._ledger.generation and not self._shutdown.stopped:
                self._fail(error)

    def _fail(self, error: StreamGroupError) -> None:
        """Fail the query: its next call raises `error`."""
        with self._state:
            self._run.fail(error)
            self._state.notify_all()


def _new_id() -> str:
    """Return an id for a lineage or a run, short enough for a commit's metadata."""
    return uuid.uuid4().hex[:16]
