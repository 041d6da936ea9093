"""Decides everything for one start of a query: `Run.step` takes an event and the time, and returns actions.

The code has no thread, socket, clock or log. `interface.py` has the events and actions, `lifecycle.py` the states.
"""

from __future__ import annotations

import itertools
import traceback
from collections.abc import Callable, Generator, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from streamgroup.coordinator.planning.memo import Memo
from streamgroup.coordinator.planning.pace import Pace
from streamgroup.coordinator.run import interface
from streamgroup.coordinator.run.interface import Question, RunConfig
from streamgroup.coordinator.run.lifecycle import Shutdown, SilenceWatch
from streamgroup.coordinator.run.lineage import LineageWatch
from streamgroup.coordinator.run.offline_brokers import OfflineBrokers
from streamgroup.coordinator.run.paused_partitions import PausedPartitions
from streamgroup.coordinator.run.planner import Logs, LogView, Planner
from streamgroup.coordinator.run.run_events import RunEvents
from streamgroup.coordinator.run.spark_calls import LISTING_TIMEOUT_S, SparkCalls
from streamgroup.coordinator.run.startup import StartingOffsets, Startup
from streamgroup.coordinator.run.status import AssignmentClock, BatchClock, BatchCompletion, Failure
from streamgroup.coordinator.run.steps import NOW, Steps, StepScheduler
from streamgroup.errors import SkippedBatchError, StreamGroupError
from streamgroup.group import events as ev
from streamgroup.group.member import Member, MemberAction, MetadataStale, Resolve, shown_state
from streamgroup.model import Document, FetchTask, TopicPartition, name_some

if TYPE_CHECKING:
    from streamgroup.options.types import LimitOptions

T = TypeVar("T")


class Run:
    """The decisions of one start of a query, as a state machine that the caller steps with events.

    `logs` returns the brokers' latest responses about the logs. `events` reports rebalances, losses and repeats.
    """

    def __init__(self, config: RunConfig, member: Member, logs: LogView, planner: Planner, events: RunEvents) -> None:
        self._member = member
        self._ledger = member.ledger
        self._logs = logs
        self._events = events
        events.write = self._note
        self._now = 0.0
        self._assignment_clock = AssignmentClock()
        self._batch_clock = BatchClock()
        self._actions: list[interface.RunAction] = []
        self._scheduler = StepScheduler(self)
        self._numbers = itertools.count(-1, -1)
        self._describing: int | None = None
        """The number of the background task that describes the group (R28)."""
        self._ends: Memo[Logs] = Memo()
        """The result of `report_latest`, which is part of the status, too."""
        self._spark_calls = 0
        """How many calls of Spark are pending."""
        self._failure = Failure()
        self._paused = PausedPartitions(config.group_id, self._note)
        pace = Pace(config.target_batch_s)
        self.completion = BatchCompletion(member, self._perform, self._skipped, pace, config)
        self.shutdown = Shutdown(
            member,
            self._perform,
            has_failed=lambda: self._failure.error is not None,
            is_listened=lambda: self.completion.is_listened,
        )
        member.is_listened = lambda: self.completion.is_listened
        self.startup = Startup(
            config,
            member,
            logs,
            perform=self._perform,
            follow=self._follow,
            is_stopped=lambda: self.shutdown.stopped,
        )
        self._starts = StartingOffsets(config, member, events, perform=self._perform, is_new=self.startup.is_new)
        self._lineages = LineageWatch(
            config.group_id,
            config.dead_member_s,
            identify=self._identify,
            note=self._note,
            is_static=member.is_static,
            weight=config.weight,
        )
        # No other member waits for a standalone one, so a listener or a leave would not help the group.
        self._silence = SilenceWatch(
            config, is_listened=lambda: not config.is_member or self.completion.is_listened, note=self._note
        )
        self._is_member = config.is_member
        self._session_timeout_s = config.session_timeout_s
        self._calls = SparkCalls(
            config,
            member,
            perform=self._perform,
            planner=planner,
            startup=self.startup,
            offline=OfflineBrokers(config, lambda: logs.snapshot, lambda text: self._note(ev.WARNING, text)),
            lineages=self._lineages,
            shutdown=self.shutdown,
            events=events,
            failure=self._failure,
            pace=pace,
            paused=self._paused,
        )

    @property
    def failure(self) -> StreamGroupError | None:
        """The error that Spark's next call raises; None while the query can continue."""
        return self._failure.error

    @property
    def wake_at(self) -> float | None:
        """The time when a `Tick` is due; None if no timer runs."""
        times = [time for time in (self._member.wake_at, self._scheduler.wake_at) if time is not None]
        return min(times, default=None)

    def step(self, event: interface.Event, now: float) -> list[interface.RunAction]:
        """Process one event at `now` (`time.monotonic()`); return the actions to carry out, in order."""
        self._now = self._events.now = now
        self._actions = []
        try:
            self._take(event, now)
        except Exception as error:  # a defect must end the query, and not the thread that steps the run
            self._fail_by(error)
        self._scheduler.advance(now)
        self._batch_clock.look(self._ledger.in_flight, now)
        return self._actions

    def _take(self, event: interface.Event, now: float) -> None:
        match event:
            case interface.Called(call, request):
                self._scheduler.begin(call, self._steps(request), now)
            case interface.QuestionAnswered(call, answer):
                self._scheduler.answer(call, answer, now)
            case interface.QuestionFailed(call, error):
                self._scheduler.fail(call, error, now)
            case interface.CallAbandoned(call):
                self._scheduler.abandon(call)
            case interface.TopicsRead(snapshot, asked):
                self.startup.see(snapshot, asked, now)
            case interface.SilenceLook(jvm_is_stopped):
                self._look_at_silence(jvm_is_stopped, now)
            case interface.ThreadFailed(error):
                self._perform([ev.Fail(error)])
            case ev.Tick():
                if self._member.wake_at is not None and now >= self._member.wake_at:
                    self._perform(self._member.step(event, now))
            case _:
                self._perform(self._member.step(event, now))

    def _steps(self, request: Callable[[Run], Any]) -> Steps[Any]:
        result = request(self)
        return (yield from result) if isinstance(result, Generator) else result

    def _fail_by(self, error: Exception) -> None:
        """End the query with an error of any type. For a defect the log has the traceback."""
        if isinstance(error, StreamGroupError):
            self._perform([ev.Fail(error)])
            return
        self._note(ev.ERROR, "the query has failed\n" + "".join(traceback.format_exception(error)))
        self._failure.set(StreamGroupError(f"the query has failed: {error!r}"))

    # --- Spark's calls -----------------------------------------------------------------------------------------------

    def prepare_available_now(self) -> Steps[None]:
        """Store the log end offsets of all subscribed partitions as targets (R11)."""
        return self._call_of_spark(self._calls.prepare_available_now())

    def latest_offset(self, start: Document, limits: LimitOptions, *, once: bool = False) -> Steps[Document]:
        """Mark the batch that ends at `start` as completed, commit it and plan the next batch.

        Returns the next batch's document, or `start` itself if there is nothing to read.
        """
        return self._call_of_spark(self._calls.latest_offset(start, limits, once=once))

    def partitions(self, start: Document, end: Document) -> Steps[list[FetchTask]]:
        """Make the tasks of the batch that `end` describes (R12)."""
        return self._call_of_spark(self._calls.partitions(start, end))

    def report_latest(self) -> Logs:
        """Return the last listed range of each owned partition; the same object while nothing has changed."""
        self._silence.begin_call(self._now)
        self._silence.end_call(self._now)
        return self._known_ends()

    def _call_of_spark(self, steps: Steps[T]) -> Steps[T]:
        """Carry out a call of Spark. While one is pending, Spark does not count as silent (R27)."""
        self._spark_calls += 1
        self._silence.begin_call(self._now)
        try:
            return (yield from steps)
        finally:
            self._spark_calls -= 1
            self._silence.end_call(self._now)

    # --- the other calls ---------------------------------------------------------------------------------------------

    def report_completed(self, document: Document, batch: int | None, query: Mapping[str, Any]) -> Mapping[str, Any]:
        """Process a listener's report that Spark has completed the batch of `document`, its batch number `batch`.

        `BatchCompletion.on_report` describes the result.
        """
        return self.completion.on_report(document, batch, query, self._now)

    def list_ends(self) -> Steps[Logs]:
        """List the log ends now. Returns the range of each owned partition."""
        logs: Logs
        _, logs = yield interface.ListEnds(self._ledger.positions(), LISTING_TIMEOUT_S)
        return logs

    def pause_reading(self, partitions: frozenset[TopicPartition] | None, *, is_paused: bool) -> dict[str, Any]:
        """Pause or resume `partitions`, or the entire query for None, as an operator requests.

        Returns the partitions that are paused then. Raises PauseRefused.
        """
        held = self._ledger.partitions()
        if is_paused:
            self._paused.pause(partitions, held)
        else:
            self._paused.resume(partitions)
        return {"paused": self._paused.names(held), "is_whole": self._paused.is_whole}

    def status(self) -> dict[str, Any]:
        """Return the state of the member, its positions and its events."""
        commits = self._ledger.commits
        age = self._batch_clock.look(self._ledger.in_flight, self._now)
        logs = self._known_ends()
        return {
            "lineage": self._ledger.lineage,
            "member": self._ledger.member_id,
            "generation": self._ledger.generation,
            "state": shown_state(self._member.membership),
            "draining": self.shutdown.draining,
            "stopped": self.shutdown.stopped,
            "idle": self._ledger.idle,
            "in_flight_s": None if age is None else round(age, 3),
            "revoked": len(self._member.membership.revoking),
            "awaited": self._member.awaited,
            "paused": self._paused.names(self._ledger.partitions()),
            "paused_whole": self._paused.is_whole,
            "query": dict(self.completion.query),
            "batches": list(self.completion.batches),
            "positions": {str(tp): p.offset for tp, p in self._ledger.positions().items()},
            "starts": {str(tp): log.earliest for tp, log in logs.items()},
            "ends": {str(tp): log.latest for tp, log in logs.items()},
            "trouble": self._events.status(),
            "rebalances": self._events.rebalances(),
            "without_assignment_s": round(self._assignment_clock.seconds(self._now), 3),
            "commits": {"count": commits.accepted, "seconds": round(commits.accepted_s, 3)},
        }

    def stop(self, *, last_word: bool = True) -> Steps[bool]:
        """Commit and leave the group (R29), as `Shutdown.stop` describes."""
        now = yield NOW
        has_left = yield from self.shutdown.stop(now, last_word=last_word)
        self._events.left(self._ledger.in_flight, self.shutdown.uncommitted, "stopped")
        return has_left

    def drain(self, timeout: float, *, ends: bool = False) -> Steps[dict[str, Any]]:
        """Plan no more batches, wait for the last one, commit and leave the group (R30), as `Shutdown.drain` describes.

        `drained` of the result is whether no batch will be repeated, and `why` is the reason if one may be.
        """
        now = yield NOW
        drained = yield from self.shutdown.drain(now, timeout, ends=ends)
        if drained:
            return {"drained": True, "in_flight": not self._ledger.idle, "why": ""}
        self._events.left(self._ledger.in_flight, self.shutdown.uncommitted, self._drain_end())
        return {"drained": False, "in_flight": not self._ledger.idle, "why": self._why_unclean()}

    def _drain_end(self) -> str:
        """Return why a drain ended early, as a clause before `before ...`."""
        if self._failure.error is not None:
            return "the query has failed"
        return "the drain's timeout expired" if self.shutdown.is_overdue else "stopped"

    def _why_unclean(self) -> str:
        """Return why a drain that has ended may repeat the last batch. docs/drain.md lists the reasons."""
        if self._failure.error is not None:
            return f"the query has failed: {self._failure.error}"
        if not self._ledger.idle:
            how = "the timeout expired" if self.shutdown.is_overdue else "the query was stopped"
            return f"{how} before the batch in flight was complete"
        if self.shutdown.uncommitted:
            return "the commit of the last batch was not acknowledged"
        if lost := self._ledger.commits.outstanding:
            return f"the member lost {name_some(lost)} before it could commit the last batch, and another may own them"
        return "the timeout expired before the member owned the partitions of the last batch again"

    def _known_ends(self) -> Logs:
        held = self._ledger.partitions()
        return self._ends.get(lambda: self._logs.known(held), held, *self._logs.known_since)

    # --- results of tasks ------------------------------------------------------------------------------------------

    def asks(self, task: int, question: Question) -> None:
        """Send a request of a call or of a background task."""
        self._actions.append(interface.Ask(task, question))

    def is_over(self, task: int, result: Any, now: float) -> None:
        """Return the result of a call to its thread. A background task has no result."""
        if task >= 0:
            self._actions.append(interface.CallReply(task, result))

    def has_failed(self, task: int, error: Exception, now: float) -> None:
        """Raise the error of a call in its thread. The error of a background task ends the query."""
        if task >= 0:
            self._actions.append(interface.Raise(task, error))
        else:
            self._fail_by(error)

    # --- background tasks --------------------------------------------------------------------------------------------

    def _begin_task(self, steps: Steps[None]) -> int:
        number = next(self._numbers)
        self._scheduler.begin(number, steps, self._now)
        return number

    def _find_starts(self, wanted: Resolve) -> Steps[None]:
        """Look up the start offsets of newly assigned partitions.

        Errors are ignored if a newer generation has begun.
        """
        try:
            yield from self._starts.find(wanted)
        except Exception:
            if wanted.generation == self._ledger.generation and not self.shutdown.stopped:
                raise

    def _look_at_silence(self, jvm_is_stopped: bool, now: float) -> None:
        reason = self._silence.look(now, jvm_is_stopped=jvm_is_stopped)
        if reason is not None and self._is_member and self.shutdown.may_pause:
            self._begin_task(self._pause(reason))
        elif reason is not None:
            self._silence.stays()  # it may be about to join
        elif self.shutdown.paused and self._spark_calls and not jvm_is_stopped:
            # The call began before the pause, or while the member left. Under Trigger.Once no later call follows.
            self._begin_task(self._calls.join_again())

    def _pause(self, reason: str) -> Steps[None]:
        """Leave the group until Spark calls again (R27)."""
        now = yield NOW
        if (yield from self.shutdown.pause(now)):
            left = "left the group, so other members read its partitions"
            how = "left"
            if self._member.is_static:
                how = "stopped its heartbeats"
                left = (
                    "the member stops its heartbeats. As a static member it stays in the group, and other members read "
                    f"its partitions only when its session expires ({self._session_timeout_s:g} s, session.timeout.ms)"
                )
            self._events.left(self._ledger.in_flight, self.shutdown.uncommitted, f"{how} while Spark was silent")
            who = f"group {self._ledger.group}" if self._ledger.group else "no group"
            self._note(ev.WARNING, f"{who}: {reason}: {left}. It joins again at Spark's next call")

    # --- the member's actions ----------------------------------------------------------------------------------------

    def _perform(self, actions: Iterable[MemberAction]) -> None:
        """Carry out the member's actions that need no thread, and return the others to the caller of `step`."""
        begun: list[Steps[None]] = []  # they begin after the last action: each may lead to further ones
        describes = False
        for action in actions:
            self._events.on_action(action, self._ledger.in_flight)
            self._assignment_clock.on_action(action, self._now)
            describes |= self._lineages.on_action(action, self._now)
            match action:
                case ev.NeedTopics(topics):
                    self.startup.follow(topics)
                case Resolve():
                    begun.append(self._find_starts(action))
                case MetadataStale():
                    self._actions.append(interface.RefreshMetadata())
                case ev.Fail(error):
                    self._failure.set(error)
                case ev.Assigned():
                    self._paused.assigned(action.partitions)
                case ev.Joining() | ev.Lost() | ev.GaveUp() | ev.Left() | ev.Released() | ev.Withheld():
                    pass  # reported above, or for the member alone
                case _:
                    self._actions.append(action)
        for steps in begun:
            self._begin_task(steps)
        if describes:
            self._describe_group()

    def _describe_group(self) -> None:
        if self._describing is not None:
            self._scheduler.abandon(self._describing)
        self._describing = self._begin_task(self._lineages.look())

    def _identify(self, identity: bytes, rejoins: bool, now: float) -> None:
        # A member that joins again is a later joiner. If it sent its admission then, it and a duplicate that was
        # admitted meanwhile would both be refused.
        self._perform(self._member.step(ev.UserDataChanged(identity, lasts=False, rejoins=rejoins), now))

    def _follow(self, topics: frozenset[str]) -> None:
        self._actions.append(interface.Follow(topics))

    def _note(self, level: int, text: str) -> None:
        self._actions.append(ev.Note(level, text))

    def _skipped(self, document: Document, error: SkippedBatchError) -> None:
        """Fail the query, because the sink skipped the batch of `document`, as the listener's report shows (R17)."""
        self._events.skipped(document)
        self._failure.set(error)
