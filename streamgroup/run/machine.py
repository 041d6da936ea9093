"""One run of a query: Spark's calls, a stop, a drain and a pause, decided without a thread, a socket or a clock.

Every call is a generator (see `run/steps.py`). The run has no side effects: the member's actions go to `perform`, and
questions to the brokers are yielded (see `run/questions.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from streamgroup.errors import ConfigError, StreamGroupError
from streamgroup.group import events as ev
from streamgroup.group.member import Member, MemberAction
from streamgroup.group.positions import is_of_a_query
from streamgroup.model import CommittedOffset, Document, OffsetRange, Position, TopicPartition
from streamgroup.planning.batch import replay_ranges
from streamgroup.run import questions as ask
from streamgroup.run.completion import BatchCompletion
from streamgroup.run.plan_gate import PlanGate
from streamgroup.run.planner import Logs, Planner
from streamgroup.run.run_events import RunEvents
from streamgroup.run.shutdown import Shutdown
from streamgroup.run.steps import NOW, Steps

if TYPE_CHECKING:
    from streamgroup.options.types import LimitOptions

LISTING_TIMEOUT_S = 1.0
"""`latestOffset` waits this long for the ends of logs, and this long again for the checks of positions."""
END_TIMEOUT_S = 1.0
"""`latestOffset` waits this long for the `end` of a drain that other coordinators of the query have not finished."""


class Startup(Protocol):
    """The partitions that existed when the run began, and the start of its member."""

    there: frozenset[TopicPartition]
    """The subscribed partitions that existed when the run began."""

    has_joined: bool
    """Whether the member was started."""

    def gone(self, checkpoint: Document) -> Mapping[TopicPartition, Position]:
        """Return the positions of `checkpoint` whose partitions did not exist any more when the run began."""

    def join(self, now: float) -> None: ...


class OfflineBrokers(Protocol):
    """Partitions of Kafka 0.7 that exist only while their broker is registered."""

    def left_out(self, unjudged: frozenset[TopicPartition]) -> frozenset[TopicPartition]:
        """Return those of `unjudged` for which a trigger that ends does not wait. Raises DataLossError."""

    def wait_for_brokers(self, ranges: Iterable[OffsetRange], is_over: Callable[[], bool]) -> Steps[None]:
        """Wait until the brokers of `ranges` are registered. Raises TransportError after the timeout."""


@dataclass(frozen=True, slots=True)
class RunConfig:
    """The options of a run as plain values, in seconds."""

    group_id: str
    is_member: bool
    join_timeout_s: float
    api_timeout_s: float


class Run:
    """Decides for one run. `is_clear(now)` is the check for a second query on a copy of the checkpoint (R28)."""

    def __init__(
        self,
        config: RunConfig,
        member: Member,
        perform: Callable[[Iterable[MemberAction]], None],
        *,
        planner: Planner,
        startup: Startup,
        offline: OfflineBrokers,
        events: RunEvents,
        is_clear: Callable[[float], bool],
    ) -> None:
        self._config = config
        self._member = member
        self._ledger = member.ledger
        self._perform = perform
        self._planner = planner
        self._startup = startup
        self._offline = offline
        self._events = events
        self._tasks: tuple[Document, Any] | None = None
        self.failure: StreamGroupError | None = None
        """The error that Spark's next call raises; None while the query can go on."""
        self.completion = BatchCompletion(member, perform, self._skipped)
        self.shutdown = Shutdown(
            member,
            perform,
            has_failed=lambda: self.failure is not None,
            is_listened=lambda: self.completion.is_listened,
        )
        self.gate = PlanGate(
            member,
            group_id=config.group_id,
            join_timeout_s=config.join_timeout_s,
            api_timeout_s=config.api_timeout_s,
            is_standalone=not config.is_member,
            is_clear=is_clear,
            is_over=lambda: self.failure is not None or self.shutdown.wanted,
        )

    def fail(self, error: StreamGroupError) -> None:
        """End the query with `error`, unless it has failed before."""
        self.failure = self.failure or error

    # --- Spark's calls -----------------------------------------------------------------------------------------------

    def prepare_available_now(self) -> Steps[None]:
        """Take the ends of all subscribed partitions as the run's targets (R11)."""
        yield from self._open()
        _, self._planner.targets = yield ask.SnapshotEnds()

    def latest_offset(self, start: Document, limits: LimitOptions, *, once: bool = False) -> Steps[Document]:
        """Mark the batch of `start` as sunk, commit it and plan the next: its document, or `start` itself if none."""
        yield from self._open()
        now, _ = yield ask.FindAgain(start)
        self._raise_failure()
        if (again := self._planned_before(start)) is not None:
            return again
        self._complete(start, now)
        self._join(start, now)
        yield from self.shutdown.wait_for_end(END_TIMEOUT_S)
        began = yield NOW
        while (planned := (yield from self._plan(start, limits, once=once))) is None:
            ends = self._planner.targets is not None
            if self.shutdown.wanted or not (yield from self.gate.looks_again(began, once=once, ends=ends)):
                return self._nothing_planned(start)
        return planned

    def partitions(self, start: Document, end: Document) -> Steps[Any]:
        """Return the tasks of the batch that `end` describes. The answer is kept: Spark may ask again (R12)."""
        yield from self._open()
        now, _ = yield ask.FindAgain(start)
        self._raise_failure()
        if self._tasks is not None and self._tasks[0] == end:
            return self._tasks[1]
        if self._ledger.is_planned_here(end):
            ranges, actions = self._member.handed_out(end, now)
        else:  # the filter of a replay counts only if it is fetched now
            now, committed = yield ask.FetchCommitted()
            ranges, actions = self._replay(start, end, committed, now)
        self._perform(actions)
        self._join(start, now)
        yield from self._offline.wait_for_brokers(ranges, lambda: self.failure is not None)
        self._raise_failure()
        _, tasks = yield ask.MakeTasks(end, ranges)
        self._tasks = end, tasks
        return tasks

    def _open(self) -> Steps[None]:
        """Begin the run with its first call; join again where a pause has left the group (R27)."""
        yield from self.shutdown.wait_for_end(0.0)
        if self.shutdown.begin():
            yield ask.OpenLogs()
        elif (yield from self.shutdown.resume()):
            text = f"{self._config.group_id}: Spark is back: joining as a new member (R27)"
            self._perform([ev.Note(ev.WARNING, text)])

    # --- planning ----------------------------------------------------------------------------------------------------

    def _plan(self, previous: Document, limits: LimitOptions, *, once: bool) -> Steps[Document | None]:
        """Return the next document, or `previous` if nothing is new; None if that is not known yet."""
        planner = self._planner
        may_plan = yield from self.gate.until_plannable(once=once, ends=planner.targets is not None)
        self._raise_failure()
        if not may_plan:
            return None
        generation, positions = self._ledger.generation, self._ledger.positions()
        _, logs = yield ask.ListEnds(positions, LISTING_TIMEOUT_S)
        yield ask.CheckPositions(positions, logs, limits, LISTING_TIMEOUT_S)
        now, _ = yield ask.FindOfflineBrokers(previous, planner.targets, once)
        self._raise_failure()
        if self.shutdown.wanted or self._ledger.generation != generation:
            return None
        planned = yield from self._next(previous, logs, limits, now, once=once)
        if planned is previous:
            yield ask.CheckOfflineBrokers(previous, planner.targets)
        return planned

    def _next(
        self, previous: Document, logs: Logs, limits: LimitOptions, now: float, *, once: bool
    ) -> Steps[Document | None]:
        """Plan with the brokers' answers; returns as `_plan` does."""
        if not self._member.may_plan(now):
            return None
        known, moved = self._planner.judge(logs, now)
        if moved:
            self._perform(self._member.moved(moved, now))
            return None
        if once and (unjudged := self._unjudged(now)):
            self.gate.check_unanswered(unjudged, "Trigger.Once", now)
            return None
        planned = self._planner.next(previous, known, limits, now=now, once=once)
        if planned is not None:
            self.gate.answered()
            self._perform(self._member.planned(planned, now))
            return planned
        if self._planner.targets is None:
            return previous
        is_read = yield from self._is_read(logs)
        return previous if is_read else None

    def _is_read(self, logs: Logs) -> Steps[bool]:
        """Return whether AvailableNow may end (R11): every position held is judged sound and has reached its target.

        A position that looks lost has reached its target, too, if the log was truncated before the snapshot. If the
        query ended before that is judged, the loss would go unreported.
        """
        judged = self._ledger.positions()
        is_complete = yield from self.gate.until_complete()
        if not is_complete or self._ledger.positions() is not judged:
            return False  # partitions were gained or lost meanwhile
        now = yield NOW
        if left := self._unjudged(now) | self._planner.unread(logs):
            self.gate.check_unanswered(left, "Trigger.AvailableNow", now)
        return not left

    def _unjudged(self, now: float) -> frozenset[TopicPartition]:
        """Return the partitions that cannot be judged yet, for which a trigger that ends must wait.

        These are partitions held, and partitions of the run's beginning that the metadata lacks. Partitions of Kafka
        0.7 whose broker is offline are excluded: `OfflineBrokers` decides about those.
        """
        unjudged = self._planner.unjudged - self._offline.left_out(self._planner.unjudged)
        return unjudged | self._planner.absent(self._startup.there, now)

    def _nothing_planned(self, start: Document) -> Document:
        """Return `start` if nothing can be planned yet (R2). Under AvailableNow return an empty document, since `start`
        would end the query (R10).
        """
        if self._planner.targets is None or self.shutdown.wanted:
            return start
        document = self._planner.empty(start)
        self._member.planned_empty(document)
        return document

    def _planned_before(self, start: Document) -> Document | None:
        """Return the document in flight if Spark asks for it again."""
        flight = self._ledger.in_flight
        if flight is None or not flight.planned_here or flight.document == start or flight.planned_ranges is not None:
            return None
        return flight.document if flight.document.sequence > start.sequence else None

    # --- batches -----------------------------------------------------------------------------------------------------

    def _complete(self, start: Document, now: float) -> None:
        """Mark the batch of `start` as sunk. Raises ConfigError if the sink skipped it (R17)."""
        try:
            self._perform(self._member.mark_sunk(start, now))
        except ConfigError:
            self._events.skipped(start)
            raise

    def _skipped(self, document: Document, error: ConfigError) -> None:
        """Fail the query: the listener's report shows that the sink skipped the batch of `document` (R17)."""
        self._events.skipped(document)
        self.fail(error)

    def _join(self, checkpoint: Document, now: float) -> None:
        """Join with the first call, once the checkpoint is known. Report its deleted partitions as lost (R8)."""
        self._planner.miss(self._startup.gone(checkpoint))
        if (
            not self._startup.has_joined and not self.shutdown.stopped
        ):  # another thread may stop it while the brokers are asked
            self.gate.joined_at = now
            self.shutdown.join()
            self._startup.join(now)

    def _replay(
        self, start: Document, end: Document, committed: Mapping[TopicPartition, CommittedOffset], now: float
    ) -> tuple[tuple[OffsetRange, ...], list[MemberAction]]:
        """Return every range of a document that another process planned, less what the group has committed since (R13).

        If the run is not a member, a commit of a query leaves nothing out: it belongs to another query with another
        sink, or was made before the batch.
        """
        counts = {tp: commit for tp, commit in committed.items() if self._config.is_member or not is_of_a_query(commit)}
        ranges = tuple(replay_ranges(end, counts))
        self._events.replaying(end, ranges)
        return ranges, self._member.replayed(start, end, ranges, committed, now)

    def _raise_failure(self) -> None:
        if self.failure is not None:
            raise self.failure
