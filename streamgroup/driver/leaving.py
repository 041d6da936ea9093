"""How a run ends: R29 and R30. A stop commits what is proven and leaves within a second; a drain first lets the batch
in flight sink. How it pauses: R27, for as long as Spark is silent.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from streamgroup.driver.logs.watcher import LogWatcher
from streamgroup.driver.membership.seats import Carrier
from streamgroup.errors import DrainedError
from streamgroup.group import events as ev
from streamgroup.group.member import Member
from streamgroup.group.membership import State

FAREWELL_S = 0.8
"""R29: committing and leaving take no longer than this."""
LAST_WORD_S = 0.5
"""How long a stop waits for word of the batch that was handed out, where there is a listener. Spark ends a Trigger.Once
at the very moment that its batch has sunk: the word of it and the stop come together."""
TOGETHER_S = 1.0
"""R29: both together."""
UNTOLD_S = 5.0
"""A drain asked from outside whose asker says no more ends the query so long after its deadline."""


class Leaving:
    """See the module. Called from any thread; `state` is the coordinator's lock, notified after every change."""

    def __init__(
        self,
        state: threading.Condition,
        member: Member,
        thread: Carrier,
        watcher: LogWatcher,
        has_failed: Callable[[], bool],
        *,
        is_listened: Callable[[], bool] = lambda: False,
    ) -> None:
        self._state = state
        self._member = member
        self._thread = thread
        self._watcher = watcher
        self._has_failed = has_failed
        self._is_listened = is_listened
        self._started = self._over = self._clean = False
        self._ends_at: float | None = None
        self._ended = False
        self.draining = False
        """Nothing is planned any more."""
        self.stopped = False
        """The member leaves, or has left."""
        self.uncommitted = 0
        """Of how many offsets that have sunk the commit was not acknowledged when the member left."""

    @property
    def wanted(self) -> bool:
        """Whether nothing is to be planned any more."""
        return self.draining or self.stopped

    def begin(self) -> bool:
        """Whether the run begins now. Stopped or drained before, it begins no more: nobody would leave."""
        if self._started or self.stopped:
            return False
        self._started = True
        return True

    # --- stopping ----------------------------------------------------------------------------------------------------

    def stop(self, *, last_word: bool = True) -> None:
        """Commit every held position, leave the group (static members stay), end the threads.

        `last_word`: where a listener or a drain listens, wait shortly for word that the batch in flight has sunk.
        """
        with self._state:
            if not self._started:
                self._never_begin()
                return
            if self.stopped:  # another thread is leaving: whoever calls may end the process next
                self._state.wait_for(lambda: self._over, TOGETHER_S)
                return
            self.stopped = True
            self._state.notify_all()
            began = time.monotonic()
            listens = last_word and (self.draining or self._is_listened())
            if listens and self._awaits_word():
                self._state.wait_for(lambda: not self._awaits_word(), LAST_WORD_S)
            self._leave(min(time.monotonic() + FAREWELL_S, began + TOGETHER_S))
        self._thread.stop(0.2)
        self._watcher.stop(0.1)

    def _awaits_word(self) -> bool:
        flight = self._member.ledger.in_flight
        return flight is not None and flight.planned_ranges is not None

    # --- draining ----------------------------------------------------------------------------------------------------

    def drain(self, timeout: float, *, ends: bool = False) -> bool:
        """Plan no more, wait until the last batch is proven sunk, commit, leave; whether that was done in time.

        A commit that is refused or unanswered is made again, by a member that has rejoined (R5, R6), until then.
        `ends`: it is asked from outside of the application: Spark's next call ends the query once `end` is called, or a
        while after the timeout.
        """
        deadline = time.monotonic() + timeout
        with self._state:
            self.draining = True
            if ends:
                self._ends_at = deadline + UNTOLD_S
            self._state.notify_all()
            self._state.wait_for(lambda: self.stopped or self._has_failed() or self._is_settled(), timeout)
            if not self._started:
                self._never_begin()
            elif self.stopped:  # by Spark, which has ended the query, or by another drain
                self._state.wait_for(lambda: self._over, TOGETHER_S)
            else:
                self.stopped = True
                self._leave(max(deadline, time.monotonic() + FAREWELL_S))
            return self._clean and not self._has_failed()

    def end(self) -> None:
        """Every coordinator of the query has been drained: the next call of Spark ends it."""
        with self._state:
            self._ended = True
            self._state.notify_all()

    def raise_if_ended(self, patience: float = 0.0) -> None:
        """Raise DrainedError where the query is to end; one that is to end any moment is waited for.

        Without `end` the query may have other coordinators, whose last batch is proven by Spark's calls alone.
        """
        if self._ends_at is None:
            return
        with self._state:
            self._state.wait_for(lambda: self._ended, patience)
            if self._ended or time.monotonic() >= self._ends_at:
                raise DrainedError(_drained(self._member.ledger.group, clean=self._clean))

    def _is_settled(self) -> bool:
        """Nothing is in flight, and nothing that a commit, and a membership to make it with, is owed to."""
        ledger = self._member.ledger
        if not self._started:
            return True
        # Spark's first call is under way, and may be that for a replay: its batch would sink after the leaving.
        if not ledger.started or not ledger.idle or ledger.commit_pending:
            return False
        return not ledger.awaits_holding or (self._member.stable and ledger.settled)

    # --- leaving -----------------------------------------------------------------------------------------------------

    def _has_left(self) -> bool:
        return self._member.membership.state is State.LEFT

    def _leave(self, deadline: float) -> None:
        """Commit and leave, until `deadline`. The lock is held."""
        now = time.monotonic()
        self._commit_all(now, deadline)
        self._step_out(deadline)
        self._over = True
        self._state.notify_all()

    def _commit_all(self, now: float, deadline: float) -> None:
        ledger = self._member.ledger
        settled = self._is_settled()
        self._thread.carry_out(self._member.farewell(now))
        self._state.wait_for(lambda: not ledger.commit_pending, max(0.0, (deadline - now) * 0.6))
        # What was lost before its commit, and is another's now, that one reads again.
        self._clean = (settled or self._is_settled()) and not ledger.commits.outstanding
        self.uncommitted = ledger.uncommitted

    def _step_out(self, deadline: float) -> None:
        self._thread.carry_out(self._member.step(ev.Stop(), time.monotonic()))
        self._state.wait_for(self._has_left, max(0.0, deadline - time.monotonic()))

    def _never_begin(self) -> None:
        """Stopped before the first call: whoever still asks is told so at once."""
        self.stopped = self._over = self._clean = True
        self._watcher.stop(0.0)
        self._state.notify_all()

    # --- pausing -----------------------------------------------------------------------------------------------------

    def pause(self) -> bool:
        """R27: commit what is proven and leave, until `resume`; whether there was anything to leave."""
        with self._state:
            if self._member.membership.state in {State.UNJOINED, State.LEFT} or self.wanted or self._has_failed():
                return False
            now = time.monotonic()
            self._commit_all(now, now + FAREWELL_S)
            self._step_out(now + FAREWELL_S)
            return True

    def resume(self) -> bool:
        """Spark calls again: join as a new member where the member has left; whether it had."""
        with self._state:
            membership = self._member.membership
            if not self._started or self.stopped:
                return False
            self._state.wait_for(lambda: membership.state is not State.LEAVING, FAREWELL_S)
            if membership.state is not State.LEFT:
                return False
            self._thread.carry_out(self._member.step(ev.Start(membership.topics), time.monotonic()))
            return True


def _drained(group: str, *, clean: bool) -> str:
    if clean:
        return f"group {group}: drained: nothing will be repeated; start the query again to go on"
    return (
        f"group {group}: stopped by a drain that has not seen the last batch proven sunk and committed (its time was "
        "over, or another member has its partitions by now): that batch may be repeated; start the query again to go on"
    )
