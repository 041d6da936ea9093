"""Stops and drains a query (R29, R30), and pauses its membership while Spark makes no calls (R27).

A stop commits the offsets of completed batches and leaves the group within a second. A drain first stops planning and
waits for the batch in flight. A pause leaves the group until Spark calls again. `SilenceWatch` decides when a pause
begins, and logs a warning before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum

from streamgroup.coordinator.run.interface import RunConfig
from streamgroup.coordinator.run.steps import Steps, Until
from streamgroup.errors import DrainedError
from streamgroup.frozen import frozen
from streamgroup.group import events as ev
from streamgroup.group.events import WARNING
from streamgroup.group.member import Member, MemberAction
from streamgroup.group.state_machine import State
from streamgroup.transitions import Transition, TransitionTable

LEAVE_TIMEOUT_S = 0.8
"""Maximum time for the last commit and LeaveGroup together (R29)."""
COMMIT_SHARE = 0.6
"""The part of that time for which the response to the last commit is awaited."""
LAST_WORD_TIMEOUT_S = 0.5
"""How long a stop waits for a listener to report the batch in flight."""
ONCE_LAST_WORD_TIMEOUT_S = 3.0
"""How long a stop waits under Trigger.Once. Spark ends the query as soon as its only batch is completed, so this report
always comes after the stop: 0.1 s after it on an idle machine, 1.2 s on a machine with three times its load."""
STOP_TIMEOUT_S = 1.0
"""Maximum time of a stop, including the wait of `LAST_WORD_TIMEOUT_S` for the listener's report (R29)."""
END_GRACE_S = 5.0
"""A drain from outside the application ends the query this long after the drain's timeout if `end` is never called."""


class Shutdown:
    """Stops and drains one query, and pauses its membership.

    `perform(actions)` carries out the member's actions in order. `has_failed()` returns whether the query has failed,
    `is_listened()` whether a listener reports completed batches.
    """

    def __init__(
        self,
        member: Member,
        perform: Callable[[Iterable[MemberAction]], None],
        *,
        has_failed: Callable[[], bool],
        is_listened: Callable[[], bool] = lambda: False,
    ) -> None:
        self._member = member
        self._perform = perform
        self._has_failed = has_failed
        self._is_listened = is_listened
        self._clean = False
        self._ends_at: float | None = None
        self._ended = False
        self._no_word_comes = False
        self.state = RunState.NEW
        self.has_begun = False
        """Whether Spark has made its first call. A query that is stopped or drained before that call never joins."""
        self.draining = False
        """Whether a drain was requested."""
        self.is_once = False
        """Whether the trigger is Once, which ends the query with its first batch."""
        self.uncommitted = 0
        """The number of offsets of completed batches whose commit had no response when the member left."""
        self.is_overdue = False
        """Whether the timeout of a drain expired before the last batch was completed and committed."""

    @property
    def wanted(self) -> bool:
        """Whether the query is being drained or stopped, so that no more batches are planned."""
        return self.state in {RunState.DRAINING, RunState.LEAVING, RunState.STOPPED}

    @property
    def paused(self) -> bool:
        """Whether the member is leaving, or has left, until Spark calls again (R27)."""
        return self.state is RunState.PAUSED

    @property
    def stopped(self) -> bool:
        """Whether the member is leaving or has left permanently."""
        return self.state in {RunState.LEAVING, RunState.STOPPED}

    def begin(self) -> bool:
        """Return whether this call is the first one of a query that was not stopped before."""
        if self.state is not RunState.NEW:
            return False
        self._take(RunCause.CALL)
        self.has_begun = True
        return True

    def join(self) -> None:
        """Record that the member is started."""
        self._take(RunCause.JOIN)

    def _take(self, cause: RunCause) -> None:
        self.state = TABLE.next_state(self.state, cause)

    # --- stopping ----------------------------------------------------------------------------------------------------

    def stop(self, now: float, *, last_word: bool = True) -> Steps[bool]:
        """Commit the positions of all owned partitions and leave the group. A static member does not leave.

        With `last_word`, and if a listener or a drain reports completed batches, wait shortly for the report of the
        batch in flight. `last_word=False` means that the application has ended: it also ends the wait of another stop.
        Returns whether this call has ended a run that had begun. The caller must then end its threads.
        """
        self._no_word_comes |= not last_word
        if self.stopped:  # another thread may be leaving, and the caller may end the process
            yield Until(lambda _: self.state is RunState.STOPPED, STOP_TIMEOUT_S)
            return False
        self._take(RunCause.STOP)
        if self.state is RunState.STOPPED:  # it has never begun
            self._clean = True
            return False
        latest = now + STOP_TIMEOUT_S
        if (self.draining or self._is_listened()) and self._awaits_report():
            wait = ONCE_LAST_WORD_TIMEOUT_S if self.is_once else LAST_WORD_TIMEOUT_S
            latest += wait - LAST_WORD_TIMEOUT_S
            now = yield Until(lambda _: not self._awaits_report(), wait)
        yield from self._leave(now, min(now + LEAVE_TIMEOUT_S, latest))
        return True

    def _awaits_report(self) -> bool:
        if self._no_word_comes:
            return False
        flight = self._member.ledger.in_flight
        if flight is None:
            return False
        # Spark has not run a batch for which it never called `partitions`. Under Once the sink may have skipped it
        # (R17).
        return flight.planned_ranges is not None or self.is_once

    # --- draining ----------------------------------------------------------------------------------------------------

    def drain(self, now: float, timeout: float, *, ends: bool = False) -> Steps[bool]:
        """Plan no more batches, wait until the last one is completed, commit it and leave the group.

        If the commit is rejected or gets no response, the member rejoins and commits again (R5, R6) until `timeout`
        seconds have passed. `ends`: the drain was requested from outside the application, so Spark's next call ends the
        query once `end` is called, or `END_GRACE_S` after the timeout. Returns whether no batch will be repeated.
        """
        deadline = now + timeout
        self.draining = True
        if ends:
            self._ends_at = deadline + END_GRACE_S
        if self.state is RunState.NEW:
            self._clean = True
        self._take(RunCause.DRAIN)
        now = yield Until(lambda _: self.stopped or self._has_failed() or self.is_settled(), timeout)
        if self.stopped:  # Spark has ended the query, another drain has stopped it, or it has never begun
            yield Until(lambda _: self.state is RunState.STOPPED, ONCE_LAST_WORD_TIMEOUT_S + STOP_TIMEOUT_S)
        else:
            self.is_overdue = not (self._has_failed() or self.is_settled())
            self._take(RunCause.STOP)
            yield from self._leave(now, max(deadline, now + LEAVE_TIMEOUT_S))
        return self._clean and not self._has_failed()

    def end(self) -> None:
        """End the query with Spark's next call, since all coordinators of the query are drained."""
        self._ended = True

    def wait_for_end(self, timeout: float) -> Steps[None]:
        """Raise DrainedError if a drain has ended the query. Wait up to `timeout` seconds for a pending `end`.

        Before `end`, the query may have other coordinators whose last batch is completed only by Spark's next call.
        """
        if self._ends_at is None:
            return
        now = yield Until(lambda _: self._ended, timeout)
        if self._ended or now >= self._ends_at:
            raise DrainedError(_drained(self._member.ledger.group, clean=self._clean))

    def is_settled(self) -> bool:
        """Return whether no batch is in flight and no completed batch waits for its commit or for a rejoin."""
        ledger = self._member.ledger
        # Spark's first call is under way and may replay a batch, which would sink after the member has left.
        if not ledger.started or not ledger.idle or ledger.commit_pending:
            return False
        return not ledger.awaits_holding or (self._member.stable and ledger.settled)

    # --- leaving -----------------------------------------------------------------------------------------------------

    def _leave(self, now: float, deadline: float) -> Steps[None]:
        now = yield from self._commit_all(now, deadline)
        yield from self._leave_group(now, deadline)
        self._take(RunCause.LEFT)

    def _commit_all(self, now: float, deadline: float) -> Steps[float]:
        ledger = self._member.ledger
        settled = self.is_settled()
        self._perform(self._member.farewell(now))
        now = yield Until(lambda _: not ledger.commit_pending, max(0.0, (deadline - now) * COMMIT_SHARE))
        # A position that was lost before its commit belongs to another member by now, which reads it again.
        self._clean = (settled or self.is_settled()) and not ledger.commits.outstanding
        self.uncommitted = ledger.uncommitted
        return now

    def _leave_group(self, now: float, deadline: float) -> Steps[None]:
        self._perform(self._member.step(ev.Stop(), now))
        yield Until(lambda _: self._member.membership.state is State.LEFT, max(0.0, deadline - now))

    # --- pausing -----------------------------------------------------------------------------------------------------

    @property
    def may_pause(self) -> bool:
        """Whether the query is a member, and neither failed nor ends."""
        has_member = self._member.membership.state not in {State.UNJOINED, State.LEFT}
        return self.state is RunState.RUNNING and has_member and not self._has_failed()

    def pause(self, now: float) -> Steps[bool]:
        """Commit completed batches and leave the group until `resume` (R27). Returns whether the query was a member."""
        if not self.may_pause:
            return False
        self._take(RunCause.PAUSE)
        deadline = now + LEAVE_TIMEOUT_S
        now = yield from self._commit_all(now, deadline)
        yield from self._leave_group(now, deadline)
        return True

    def resume(self) -> Steps[bool]:
        """Join as a new member if a pause has left the group, because Spark calls again. Returns whether it joins."""
        membership = self._member.membership
        if self.stopped:
            return False
        now = yield Until(lambda _: membership.state is not State.LEAVING, LEAVE_TIMEOUT_S)
        if self.stopped or membership.state is not State.LEFT:  # a stop or a drain may have begun meanwhile
            return False
        self._take(RunCause.RESUME)
        self._perform(self._member.step(ev.Start(membership.topics), now))
        return True


def _drained(group: str, *, clean: bool) -> str:
    if clean:
        return f"group {group}: the query was drained, and no batch will be repeated. Start the query again to continue"
    return (
        f"group {group}: a drain has stopped the query before the last batch was completed and committed, so that "
        f"batch may be repeated. The drain's timeout expired, or another member owns the partitions now. Start the "
        f"query again to continue"
    )


# --- states ----------------------------------------------------------------------------------------------------------


class RunState(Enum):
    """The states of one start of a query."""

    NEW = "new"
    """Spark has not made its first call. Nothing is connected."""
    OPENING = "opening"
    """Spark's first call resolves the subscription; the member is not started."""
    RUNNING = "running"
    """The member is started: batches are planned."""
    PAUSED = "paused"
    """The member leaves or has left, since Spark makes no calls (R27)."""
    DRAINING = "draining"
    """No more batches are planned. The member waits until the batch in flight is completed and committed (R30)."""
    LEAVING = "leaving"
    """The member makes its last commit and leaves the group (R29)."""
    STOPPED = "stopped"
    """The member has left permanently, or was never started."""


class RunCause(Enum):
    """Why a `RunState` changes."""

    CALL = "Spark's first call"
    JOIN = "member started"
    PAUSE = "Spark is silent"
    RESUME = "Spark is back"
    DRAIN = "drain"
    STOP = "stop, or drained"
    LEFT = "member has left"


_NEW, _OPENING, _RUNNING, _PAUSED = RunState.NEW, RunState.OPENING, RunState.RUNNING, RunState.PAUSED
_DRAINING, _LEAVING, _STOPPED = RunState.DRAINING, RunState.LEAVING, RunState.STOPPED

TABLE = TransitionTable(
    "run",
    {RunState.NEW: ""},
    (
        Transition(_NEW, RunCause.CALL, _OPENING),
        Transition(_NEW, RunCause.DRAIN, _STOPPED),
        Transition(_NEW, RunCause.STOP, _STOPPED),
        Transition(_OPENING, RunCause.JOIN, _RUNNING),
        Transition(_OPENING, RunCause.DRAIN, _DRAINING),
        Transition(_OPENING, RunCause.STOP, _LEAVING),
        Transition(_RUNNING, RunCause.PAUSE, _PAUSED),
        Transition(_RUNNING, RunCause.DRAIN, _DRAINING),
        Transition(_RUNNING, RunCause.STOP, _LEAVING),
        Transition(_PAUSED, RunCause.RESUME, _RUNNING),
        Transition(_PAUSED, RunCause.DRAIN, _DRAINING),
        Transition(_PAUSED, RunCause.STOP, _LEAVING),
        # A drain waits for a call of Spark that is under way: the batch that it replays must sink, too.
        Transition(_DRAINING, RunCause.JOIN, _DRAINING),
        # If a batch has sunk after the member left, the member joins again and commits it.
        Transition(_DRAINING, RunCause.RESUME, _DRAINING),
        Transition(_DRAINING, RunCause.DRAIN, _DRAINING),
        Transition(_DRAINING, RunCause.STOP, _LEAVING),
        Transition(_LEAVING, RunCause.DRAIN, _LEAVING),
        Transition(_LEAVING, RunCause.LEFT, _STOPPED),
        Transition(_STOPPED, RunCause.DRAIN, _STOPPED),
    ),
)


# --- a Spark that makes no calls (R22, R27) --------------------------------------------------------------------------

LONG_TRIGGER_S = 10.0
"""Longer triggers need a listener: without one only the next trigger shows that a batch is completed (R22)."""
_LISTEN = (
    "{group}: {gap:.0f} s passed between two calls of Spark. Without a listener, the query learns only at the next "
    "call that a batch is complete. Until then the group may lack its offsets, and a rebalance may wait. If the "
    "trigger interval is that long, call streamgroup.listen(spark) once in the application: it reports each batch"
)
_KEEPS = " The member keeps its partitions meanwhile; to let it leave the group, set group.maxSilence"


class SilenceWatch:
    """Measures for how long Spark makes no calls, and warns or makes the member leave its group.

    `note(level, line)` writes a log line.
    """

    def __init__(self, config: RunConfig, *, is_listened: Callable[[], bool], note: Callable[[int, str], None]) -> None:
        self._group = config.group_id or "no group"
        self._keeps = _KEEPS if config.is_member else ""
        self._is_listened = is_listened
        self._note = note
        self._asked_for_listener = False
        self._watchdog = TriggerWatchdog(
            session_s=config.session_timeout_s, poll_s=config.max_poll_s, max_silence_s=config.max_silence_s
        )

    def begin_call(self, now: float) -> None:
        """Record that a call of Spark begins. While it runs, Spark does not count as silent."""
        gap = self._watchdog.begin_call(now)
        if gap > LONG_TRIGGER_S and not self._asked_for_listener and not self._is_listened():
            self._asked_for_listener = True
            self._note(WARNING, _LISTEN.format(group=self._group, gap=gap))

    def end_call(self, now: float) -> None:
        """Record that a call of Spark ends."""
        self._watchdog.end_call(now)

    def look(self, now: float, *, jvm_is_stopped: bool) -> str | None:
        """Log a warning if Spark has made no call for long.

        Returns a reason if the member must leave the group, because the driver seems to hang; otherwise None.
        """
        look = self._watchdog.look(now, jvm_is_stopped=jvm_is_stopped)
        if look.verdict is SilenceVerdict.WARN:
            self._note(WARNING, f"{self._group}: {look.reason}. The driver may be hung{self._keeps}")
        return look.reason if look.verdict is SilenceVerdict.LEAVE else None

    def stays(self) -> None:
        """Record that the member cannot leave: it has not joined yet. The next looks say again that it must."""
        self._watchdog.stays()


class SilenceVerdict(Enum):
    """The action after a time without calls of Spark."""

    GO_ON = "go on"
    WARN = "warn"
    """The silence is much longer than a batch: log a warning, once for each silence."""
    LEAVE = "leave"
    """Leave the group, so that the other members read its partitions."""


@frozen
class Look:
    """The result of one check: the verdict, and the reason for the log."""

    verdict: SilenceVerdict
    reason: str = ""


_NOTHING = Look(SilenceVerdict.GO_ON)


class TriggerWatchdog:
    """Measures the time between Spark's calls, and decides when it is too long. `now` is from `time.monotonic()`.

    `poll_s` is `max.poll.interval.ms`: a Java consumer that does not poll for longer is removed from its group.
    `max_silence_s` is `group.maxSilence`; None if the member never leaves only because Spark makes no calls.
    """

    def __init__(self, *, session_s: float, poll_s: float, max_silence_s: float | None) -> None:
        self._session_s = session_s
        self._poll_s = poll_s
        self._max_silence_s = max_silence_s
        self._calls = 0
        self._since: float | None = None
        self._longest = 0.0
        self._stopped_since: float | None = None
        self._was_stopped = self._has_warned = self._has_left = False

    def begin_call(self, now: float) -> float:
        """Record that a call of Spark begins. Return the seconds without a call before it.

        Returns 0 for the first call, and after the JVM was stopped, since such a gap does not measure the trigger
        interval.
        """
        gap = 0.0 if self._since is None or self._was_stopped else now - self._since
        self._calls += 1
        self._since, self._stopped_since = None, None
        self._longest = max(self._longest, gap)
        self._was_stopped = self._has_warned = self._has_left = False
        return gap

    def end_call(self, now: float) -> None:
        """Record that a call of Spark ends."""
        self._calls -= 1
        if not self._calls:
            self._since = now

    def stays(self) -> None:
        """Record that the member has not left."""
        self._has_left = False

    def look(self, now: float, *, jvm_is_stopped: bool) -> Look:
        """Return what to do about the time without calls.

        LEAVE is returned once for each such time or stop of the JVM, and again after `stays`.
        """
        if not jvm_is_stopped:
            self._stopped_since = None
            self._has_left &= not self._calls  # a pending call joins again
        elif self._stopped_since is None:
            self._stopped_since = now
        self._was_stopped |= jvm_is_stopped
        if self._has_left:
            return _NOTHING
        stopped = 0.0 if self._stopped_since is None else now - self._stopped_since
        silent = 0.0 if self._since is None else now - self._since
        if stopped > self._session_s:
            self._has_left = True
            return Look(SilenceVerdict.LEAVE, f"the driver's JVM has been stopped (state T) for {stopped:.0f} s")
        if self._max_silence_s is not None and silent > self._max_silence_s:
            self._has_left = True
            return Look(
                SilenceVerdict.LEAVE, f"Spark has made no call for {silent:.0f} s, longer than group.maxSilence"
            )
        if not self._has_warned and silent > max(self._poll_s, 3 * self._longest):
            self._has_warned = True
            longest = f"; the longest time between two calls was {self._longest:.0f} s" if self._longest else ""
            return Look(SilenceVerdict.WARN, f"Spark has made no call for {silent:.0f} s{longest}")
        return _NOTHING
