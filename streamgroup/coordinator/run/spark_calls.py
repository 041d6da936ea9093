"""Serves Spark's calls, as generators (see `steps.py`): plan a batch, make its tasks, list AvailableNow's targets."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from streamgroup.coordinator.planning import loss
from streamgroup.coordinator.planning.batch import replay_ranges
from streamgroup.coordinator.planning.pace import Pace
from streamgroup.coordinator.run import interface
from streamgroup.coordinator.run.interface import RunConfig
from streamgroup.coordinator.run.lifecycle import Shutdown
from streamgroup.coordinator.run.lineage import LineageWatch
from streamgroup.coordinator.run.offline_brokers import OfflineBrokers
from streamgroup.coordinator.run.paused_partitions import PausedPartitions
from streamgroup.coordinator.run.planner import Logs, Planner
from streamgroup.coordinator.run.run_events import RunEvents
from streamgroup.coordinator.run.startup import Startup
from streamgroup.coordinator.run.status import Failure
from streamgroup.coordinator.run.steps import NOW, Steps, Until
from streamgroup.errors import SkippedBatchError, TransportError
from streamgroup.group import events as ev
from streamgroup.group.member import Member, MemberAction
from streamgroup.group.offsets.table import TableOffsetStore
from streamgroup.group.offsets.table_rows import Claimant
from streamgroup.group.start_positions import is_of_a_query
from streamgroup.model import CommittedOffset, Document, OffsetRange, TopicPartition, name_some

if TYPE_CHECKING:
    from streamgroup.options.types import LimitOptions

LISTING_TIMEOUT_S = 1.0
"""`latestOffset` waits this long for the log ends, and this long again for the checks of positions."""
END_TIMEOUT_S = 1.0
"""`latestOffset` waits this long for the `end` of a drain that other coordinators of the query have not finished."""


class SparkCalls:
    """Serves the calls that Spark makes to one query's source.

    `perform(actions)` carries out the member's actions in order.
    """

    def __init__(
        self,
        config: RunConfig,
        member: Member,
        *,
        perform: Callable[[Iterable[MemberAction]], None],
        planner: Planner,
        startup: Startup,
        offline: OfflineBrokers,
        lineages: LineageWatch,
        shutdown: Shutdown,
        events: RunEvents,
        failure: Failure,
        pace: Pace,
        paused: PausedPartitions,
    ) -> None:
        self._config = config
        self._member = member
        self._ledger = member.ledger
        self._perform = perform
        self._planner = planner
        self._startup = startup
        self._offline = offline
        self._lineages = lineages
        self._shutdown = shutdown
        self._events = events
        self._failure = failure
        self._pace = pace
        self._paused = paused
        self._tasks: tuple[Document, Any] | None = None
        self._has_ended_transaction = False
        self._gate = PlanGate(
            member,
            group_id=config.group_id,
            join_timeout_s=config.join_timeout_s,
            api_timeout_s=config.api_timeout_s,
            is_standalone=not config.is_member,
            is_clear=lambda: lineages.is_clear,
            is_over=self._is_over,
            is_paused=lambda: shutdown.paused,
            warn=lambda text: perform([ev.Note(ev.WARNING, text)]),
        )

    # --- Spark's calls -----------------------------------------------------------------------------------------------

    def prepare_available_now(self) -> Steps[None]:
        """Store the log end offsets of all subscribed partitions as targets (R11)."""
        yield from self._open()
        yield from self._offline.prepare()
        _, targets = yield interface.SnapshotEnds()
        yield from self._offline.catch_up(targets)
        self._planner.targets = targets

    def latest_offset(self, start: Document, limits: LimitOptions, *, once: bool = False) -> Steps[Document]:
        """Mark the batch that ends at `start` as completed, commit it and plan the next batch.

        Returns the next batch's document, or `start` itself if there is nothing to read.
        """
        self._shutdown.is_once = once
        yield from self._open()
        yield from self._end_earlier_transaction(start)
        yield from self._startup.look_again(start)
        now = yield NOW
        self._failure.raise_it()
        if (again := self._planned_before(start)) is not None:
            return again
        if self._planner.targets is not None:
            self._offline.compare(start, self._planner.targets)
        self._complete(start, now)
        self._join(start, now)
        yield from self._shutdown.wait_for_end(END_TIMEOUT_S)
        if not once:
            limits = yield from self._paced(limits)
        began = yield NOW
        while (planned := (yield from self._plan(start, limits, once=once))) is None:
            ends = self._planner.targets is not None
            if self._shutdown.wanted or not (yield from self._gate.looks_again(began, once=once, ends=ends)):
                return self._nothing_planned(start)
        return planned

    def partitions(self, start: Document, end: Document) -> Steps[Any]:
        """Return the tasks of the batch that `end` describes. They are kept, because Spark may call again (R12)."""
        if start == end:
            return []
        yield from self._open()
        yield from self._end_earlier_transaction(end)
        yield from self._startup.look_again(start)
        now = yield NOW
        self._failure.raise_it()
        if self._tasks is not None and self._tasks[0] == end:
            return self._tasks[1]
        if self._ledger.is_planned_here(end):
            ranges, actions = self._member.handed_out(end, now)
        elif self._member.in_transaction:
            ranges, actions = yield from self._adopt(start, end)
        else:  # the filter of a replay counts only if it is fetched now
            now, committed = yield interface.FetchCommitted(self._config.api_timeout_s)
            if (table := self._member.table) is not None:
                committed = yield from self._claim_replay(table, end, committed)
                now = yield NOW
            ranges, actions = self._replay(start, end, committed, now)
        self._perform(actions)
        self._join(start, now)
        yield from self._offline.wait_for_brokers(ranges, lambda: self._failure.error is not None)
        self._failure.raise_it()
        now, tasks = yield interface.MakeFetchTasks(end, ranges, self._pace.packing.offsets)
        self._tasks = end, tasks
        self._pace.begin(tasks, now)
        return tasks

    def _open(self) -> Steps[None]:
        """Connect in Spark's first call. After a pause, join the group again (R27)."""
        yield from self._shutdown.wait_for_end(0.0)
        if self._shutdown.begin():
            yield from self._startup.open()
        else:
            yield from self.join_again()

    def join_again(self) -> Steps[None]:
        """Join as a new member if a pause has left the group. The join timeout begins again."""
        if (yield from self._shutdown.resume()):
            self._gate.joined_at = yield NOW
            text = f"{self._config.group_id}: Spark calls the source again: joining the group again"
            self._perform([ev.Note(ev.WARNING, text)])

    # --- planning ----------------------------------------------------------------------------------------------------

    def _paced(self, limits: LimitOptions) -> Steps[LimitOptions]:
        """Return the limits of a batch planned now. AvailableNow waits for its rates: a batch without rows would follow
        at once. Under other triggers Spark calls again.
        """
        now = yield NOW
        paced = self._pace.limits(limits, now)
        while paced.is_spent and self._planner.targets is not None and not self._is_over():
            now = yield Until(lambda _: self._is_over(), self._pace.wait_s(limits))
            paced = self._pace.limits(limits, now)
        return paced

    def _is_over(self) -> bool:
        return self._failure.error is not None or self._shutdown.wanted

    def _plan(self, previous: Document, limits: LimitOptions, *, once: bool) -> Steps[Document | None]:
        """Return the next document, or `previous` if nothing is new; None if neither is known yet."""
        planner = self._planner
        may_plan = yield from self._gate.until_plannable(once=once, ends=planner.targets is not None)
        self._failure.raise_it()
        if not may_plan:
            return None
        generation, positions = self._ledger.generation, self._ledger.positions()
        _, logs = yield interface.ListEnds(positions, LISTING_TIMEOUT_S)
        yield interface.CheckPositions(positions, logs, limits, LISTING_TIMEOUT_S)
        if planner.targets is None:
            yield from self._offline.find(previous, once=once)
        now = yield NOW
        self._failure.raise_it()
        if self._shutdown.wanted or self._ledger.generation != generation:
            return None
        planned = yield from self._next(previous, logs, limits, now, once=once)
        if planned is not previous:
            return planned
        positions = self._ledger.positions()
        yield from self._offline.check_end(previous, planner.targets)
        self._failure.raise_it()
        return previous if self._ledger.positions() is positions else None  # partitions were gained meanwhile

    def _next(
        self, previous: Document, logs: Logs, limits: LimitOptions, now: float, *, once: bool
    ) -> Steps[Document | None]:
        """Plan from the brokers' responses. Returns the same as `_plan`."""
        if not self._member.may_plan(now):
            return None
        known, moved = self._planner.judge(logs, now)
        if moved:
            self._perform(self._member.moved(moved, now))
            return None
        if once and (unjudged := self._unjudged(now)):
            self._gate.check_unanswered(unjudged, "Trigger.Once", now)
            return None
        planned = self._planner.next(previous, self._paused.without(known), limits, now=now, once=once)
        if once:
            self._paused.report_left_out(self._ledger.positions(), known, "Trigger.Once")
        if planned is not None:
            self._pace.planned(sum(map(len, planned.ranges)), self._planner.size_of(planned, limits))
        if planned is None and self._startup.found_nothing:
            planned = self._planner.founded(previous)
        if planned is not None:
            self._gate.answered()
            self._perform(self._member.planned(planned, now))
            return planned
        if self._planner.targets is None:
            return previous
        is_read = yield from self._is_read(logs)
        return previous if is_read else None

    def _is_read(self, logs: Logs) -> Steps[bool]:
        """Return whether AvailableNow may end (R11): every owned position is valid and has reached its target.

        A position that looks lost has reached its target, too, if the log was truncated before the targets were listed.
        If the query ended before that position is judged, the loss would not be reported.
        """
        judged = self._ledger.positions()
        is_complete = yield from self._gate.until_complete()
        if not is_complete or self._ledger.positions() is not judged:
            return False  # partitions were gained or lost meanwhile
        now = yield NOW
        unread = self._planner.unread(logs)
        if left := self._unjudged(now) | self._paused.unpaused(unread):
            self._gate.check_unanswered(left, "Trigger.AvailableNow", now)
        else:
            self._paused.report_left_out(judged, {tp: logs[tp] for tp in unread if tp in logs}, "Trigger.AvailableNow")
        return not left

    def _unjudged(self, now: float) -> frozenset[TopicPartition]:
        """Return the partitions whose positions cannot be judged yet, so that Once and AvailableNow must wait.

        These are owned partitions, and partitions that existed when the query began but are missing from the metadata.
        Partitions of Kafka 0.7 whose broker is offline are excluded, because `OfflineBrokers` decides about them.
        Paused partitions are excluded, too, because their broker may be the reason for the pause.
        """
        unjudged = self._paused.unpaused(self._planner.unjudged)
        unjudged -= self._offline.left_out(unjudged)
        return unjudged | self._planner.absent(self._startup.there, now)

    def _nothing_planned(self, start: Document) -> Document:
        """Return `start` if nothing can be planned yet (R2). Under AvailableNow return an empty document, since `start`
        would end the query (R10).
        """
        if self._planner.targets is None or self._shutdown.wanted:
            return start
        document = self._planner.empty(start)
        self._member.planned_empty(document)
        return document

    def _planned_before(self, start: Document) -> Document | None:
        """Return the document of the batch in flight if Spark requests it again."""
        flight = self._ledger.in_flight
        if flight is None or not flight.planned_here or flight.document == start or flight.planned_ranges is not None:
            return None
        return flight.document if flight.document.sequence > start.sequence else None

    # --- batches -----------------------------------------------------------------------------------------------------

    def _complete(self, start: Document, now: float) -> None:
        """Mark the batch of `start` as completed. Raises SkippedBatchError if the sink skipped it (R17)."""
        self._pace.end(now)
        try:
            self._perform(self._member.batch_completed(start, now))
        except SkippedBatchError:
            self._events.skipped(start)
            raise

    def _join(self, checkpoint: Document, now: float) -> None:
        """Join with the first call, once the checkpoint is known. Report its deleted partitions as lost (R8)."""
        self._planner.miss(self._startup.gone(checkpoint))
        if self._startup.has_joined or self._shutdown.stopped:  # it may be stopped while the brokers are asked
            return
        self._gate.joined_at = now
        self._shutdown.join()
        ledger = self._ledger
        identity = self._lineages.begin(ledger.lineage, ledger.run) if self._config.is_member else None
        self._startup.join(identity, now)

    def _end_earlier_transaction(self, known: Document) -> Steps[None]:
        """Abort the transaction that an earlier run of this checkpoint may have left open, once (R38).

        Until it has ended, the group coordinator does not return the offsets that it would commit.
        """
        if self._has_ended_transaction or not self._member.in_transaction:
            return
        if known.lineage or self._config.transactional_id:
            sink_id = self._config.sink_id(known.lineage)
            yield interface.EndTransaction(sink_id, self._config.transaction_timeout_ms, self._config.api_timeout_s)
        self._has_ended_transaction = True

    def _adopt(self, start: Document, end: Document) -> Steps[tuple[tuple[OffsetRange, ...], list[MemberAction]]]:
        """Replay the part of a document whose partitions this member holds, from the group's offsets on (R38).

        The other partitions have other members, which read them from the group's offsets. So the replay waits for the
        assignment. A partition that was reset to before its range starts there in the next batch.
        """
        now = yield NOW
        self._complete(start, now)
        self._join(start, now)
        yield from self._gate.until_held()
        self._failure.raise_it()
        now = yield NOW
        held = {tp: position.offset for tp, position in self._ledger.positions().items()}
        at = {tp: CommittedOffset(offset) for tp, offset in held.items()}
        ranges = tuple(r for r in replay_ranges(end, at) if r.partition in held and r.start == held[r.partition])
        self._events.replaying(end, ranges)
        return ranges, self._member.adopted(start, end, ranges, now)

    def _claim_replay(
        self, table: TableOffsetStore, end: Document, found: Mapping[TopicPartition, CommittedOffset]
    ) -> Steps[dict[TopicPartition, CommittedOffset]]:
        """Claim the partitions of a replay in the offset table; return their offsets (R37).

        A partition that another query has claimed since has none: that query reads its records.
        """
        lineage = end.lineage or self._ledger.lineage
        claimant = Claimant(lineage, self._ledger.run, is_alone=not self._config.is_member)
        _, rows = yield interface.ClaimReplay(claimant, end.ranges, found, self._config.api_timeout_s)
        table.replayed(rows)
        return {tp: row.committed for tp, row in rows.items()}

    def _replay(
        self, start: Document, end: Document, committed: Mapping[TopicPartition, CommittedOffset], now: float
    ) -> tuple[tuple[OffsetRange, ...], list[MemberAction]]:
        """Return the ranges of a document of an earlier start that the group has not committed since (R13).

        If the query is not a member, a commit removes nothing from the ranges: it belongs to another query with another
        sink, or was made before the batch.
        """
        counts = {tp: commit for tp, commit in committed.items() if self._config.is_member or not is_of_a_query(commit)}
        ranges = tuple(replay_ranges(end, counts))
        if self._member.table is not None:
            # A partition that was reset to before its range starts there once it is assigned.
            ranges = tuple(r for r in ranges if r.partition in committed and committed[r.partition].offset >= r.start)
        self._events.replaying(end, ranges)
        return ranges, self._member.replayed(start, end, ranges, committed, now)


# --- the wait for a membership that may plan -------------------------------------------------------------------------

COMMIT_TIMEOUT_S = 0.5
"""A commit is one round trip (R9). `latestOffset` waits this long for its response, then returns `start`."""
ASSIGNMENT_TIMEOUT_S = 1.0
"""The first call waits this long for the first assignment, so that batch 0 is not empty (R10). Under AvailableNow every
call does."""
LOOK_AGAIN_S = 0.1
"""Under Once and AvailableNow a call checks this often for pending answers of the brokers."""
REPORT_AFTER_S = 30.0
"""A wait is reported after this time, and again whenever the time has doubled."""
STANDALONE_GRACE_S = 2.0
"""A standalone member finds other members in its group itself, and raises its own error within this time."""


class PlanGate:
    """Lets a call of Spark wait until the member may plan. Only one call at a time uses it.

    `is_clear()` returns whether the check for a second query on the same checkpoint lets the query plan. `is_over()`
    returns whether the query has failed or leaves its group, `is_paused()` whether the member has left until Spark
    calls again (R27). `api_timeout_s` is the timeout of requests to brokers. `warn(line)` logs a warning about a long
    wait.
    """

    def __init__(
        self,
        member: Member,
        *,
        group_id: str,
        join_timeout_s: float,
        api_timeout_s: float,
        is_standalone: bool,
        is_clear: Callable[[], bool],
        is_over: Callable[[], bool],
        is_paused: Callable[[], bool],
        warn: Callable[[str], None],
    ) -> None:
        self._member = member
        self._who = f"group {group_id}: " if group_id else ""
        self._join_timeout_s = join_timeout_s + (STANDALONE_GRACE_S if is_standalone else 0.0)
        self._api_timeout_s = api_timeout_s
        self._is_clear = is_clear
        self._is_over = is_over
        self._is_paused = is_paused
        self._warn = warn
        self._waits_since: float | None = None
        self._report_after = REPORT_AFTER_S
        self._has_waited = self._has_planned = False
        self._unanswered_since: dict[TopicPartition, float] = {}
        self.joined_at: float | None = None
        """Monotonic time of the member's start, or of its newest start after a pause."""

    def until_plannable(self, *, once: bool, ends: bool) -> Steps[bool]:
        """Wait until the member may plan, as long as the trigger allows. `ends`: the trigger is AvailableNow.

        Returns False if it may not plan now. Raises TransportError under Once and AvailableNow if no plan was possible
        within `group.joinTimeout`: otherwise they would end with nothing read, or never.
        """
        timeout = ASSIGNMENT_TIMEOUT_S if ends or not self._has_waited else COMMIT_TIMEOUT_S
        self._has_waited = True
        began = now = yield NOW
        if not self._is_ready(now, once):
            self._unanswered_since.clear()
        now = yield from self._wait(self._join_timeout_s if once else timeout, once=once)
        if self._is_over():
            return False
        if self._is_ready(now, once):
            self._has_planned = True
            self._waits_since = None
            return True
        if once or (ends and self._is_too_late(now)):
            trigger = "Trigger.Once" if once else "Trigger.AvailableNow"
            raise TransportError(self._too_late(f"under {trigger}", now))
        self._report(began, now)
        return False

    def until_held(self) -> Steps[None]:
        """Wait until the member has all partitions that it will get, for a replay of which it reads only these (R38).

        Raises TransportError if that takes longer than `group.joinTimeout`.
        """
        now = yield from self._wait(self._join_timeout_s, once=True)
        if not self._is_over() and not self._is_ready(now, True):
            raise TransportError(self._too_late("to replay the last one", now))

    def _report(self, began: float, now: float) -> None:
        """Log a warning with the cause if a call that began at `began` has waited long."""
        if self._waits_since is None:
            self._waits_since, self._report_after = began, REPORT_AFTER_S
        if (waited := now - self._waits_since) >= self._report_after:
            self._report_after = 2 * waited
            self._warn(f"{self._who}no batch could be planned for {waited:.0f} s: {self._cause(now)}")

    def _cause(self, now: float) -> str:
        """Return what prevents a plan, as a clause."""
        if cause := self._member.waits_for(now):
            return cause
        if not self._is_clear():
            return "the check whether another query uses a copy of this checkpoint has not ended"
        return "partitions are being moved to this member"

    def _wait(self, timeout: float, *, once: bool) -> Steps[float]:
        """Wait until the run may plan or is over, for `timeout` seconds at most; return the time.

        The timeout begins again when the member joins again after a pause. Under Once it does not end during the pause.
        """
        while True:
            since = self.joined_at
            now: float = yield Until(partial(self._ends_wait, since, once), timeout)
            is_timeout = self.joined_at == since and not (once and self._is_paused())
            if is_timeout or self._is_ready(now, once) or self._is_over():
                return now

    def _ends_wait(self, since: float | None, once: bool, now: float) -> bool:
        return self._is_ready(now, once) or self._is_over() or self.joined_at != since

    def looks_again(self, began: float, *, once: bool, ends: bool) -> Steps[bool]:
        """Return whether a call that began at `began` and could not plan must retry; wait LOOK_AGAIN_S first.

        Spark calls Once a single time, so that call retries until it can plan or raises. AvailableNow retries for a
        second: Spark runs a batch after each call, so early returns would create thousands of empty batches.
        """
        now = yield NOW
        if not once and not (ends and now - began < ASSIGNMENT_TIMEOUT_S):
            return False
        yield Until(lambda _: self._is_over(), LOOK_AGAIN_S)
        return True

    def answered(self) -> None:
        """Restart the timeout of `check_unanswered`: a batch was planned."""
        self._unanswered_since.clear()

    def check_unanswered(self, partitions: Collection[TopicPartition], trigger: str, now: float) -> None:
        """Raise TransportError if the brokers give no usable answer for one of `partitions` for too long.

        Only `partitions` are left to plan. A trigger that ends would never end, or end without their records. A
        suspected loss takes longer to be believed than a short `default.api.timeout.ms` and raises its own error.
        """
        self._unanswered_since = {tp: self._unanswered_since.get(tp, now) for tp in partitions}
        most = max(self._api_timeout_s, loss.BELIEVED_AFTER_S + 2 * loss.LOOK_EVERY_S)
        if late := sorted(tp for tp, since in self._unanswered_since.items() if now - since >= most):
            raise TransportError(
                f"{self._who}cannot plan {name_some(late)} under {trigger}: for {most:g} s no broker has returned "
                f"the log end offsets of these partitions. Check their leaders and run the query again, or raise "
                f"kafka.default.api.timeout.ms"
            )

    def until_complete(self) -> Steps[bool]:
        """Wait shortly for partitions that move to this member; return whether all have arrived (R11).

        If AvailableNow ended earlier, it would not read them.
        """
        yield Until(lambda _: self._member.complete or self._is_over(), ASSIGNMENT_TIMEOUT_S)
        return self._member.complete

    def _is_ready(self, now: float, once: bool) -> bool:
        may_plan = self._member.may_plan(now) and self._is_clear()
        return may_plan and (self._member.complete or not once)

    def _is_too_late(self, now: float) -> bool:
        """Return whether AvailableNow, which plans empty documents (R10), has waited too long for its group."""
        return not self._has_planned and self.joined_at is not None and now - self.joined_at >= self._join_timeout_s

    def _too_late(self, when: str, now: float) -> str:
        return (
            f"{self._who}no batch could be planned within group.joinTimeout ({self._join_timeout_s:.0f} s) "
            f"{when}: {self._cause(now)}. Run the query again, or raise group.joinTimeout"
        )
