"""How a run ends: R29 and R30. A stop commits what is proven and leaves within a second; a drain first lets the batch
in flight sink.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from streamgroup.driver.group_thread import GroupThread
from streamgroup.driver.member import Member
from streamgroup.driver.watcher import LogWatcher
from streamgroup.group import events as ev
from streamgroup.group.membership import State

FAREWELL_S = 0.8
"""R29: committing and leaving take no longer than this."""


class Leaving:
    """See the module. Called from any thread; `state` is the coordinator's lock, notified after every change."""

    def __init__(
        self,
        state: threading.Condition,
        member: Member,
        thread: GroupThread,
        watcher: LogWatcher,
        has_failed: Callable[[], bool],
    ) -> None:
        self._state = state
        self._member = member
        self._thread = thread
        self._watcher = watcher
        self._has_failed = has_failed
        self._started = self._over = False
        self.draining = False
        """Nothing is planned any more."""
        self.stopped = False
        """The member leaves, or has left."""

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

    def stop(self) -> None:
        """Commit every held position, leave the group (static members stay), end the threads."""
        with self._state:
            if not self._started:
                self._never_begin()
                return
            if self.stopped:  # another thread is leaving: whoever calls may end the process next
                self._state.wait_for(lambda: self._over, FAREWELL_S)
                return
            self.stopped = True
            self._leave(time.monotonic() + FAREWELL_S)
        self._thread.stop(0.2)
        self._watcher.stop(0.1)

    def drain(self, timeout: float) -> bool:
        """Plan no more, wait until the last batch is proven sunk, commit, leave; whether that was done in time."""
        deadline = time.monotonic() + timeout
        with self._state:
            self.draining = True
            self._state.notify_all()
            settled = self._state.wait_for(lambda: self.stopped or self._has_failed() or self._is_settled(), timeout)
            drained = settled and not self._has_failed() and not self.stopped
            if not self._started:
                self._never_begin()
            elif not self.stopped:
                self.stopped = True
                drained = self._leave(max(deadline, time.monotonic() + FAREWELL_S)) and drained
            return drained

    def _is_settled(self) -> bool:
        ledger = self._member.ledger
        return ledger.idle and (not self._started or (self._member.stable and ledger.settled))

    def _has_left(self) -> bool:
        return self._member.membership.state is State.LEFT

    def _leave(self, deadline: float) -> bool:
        """Commit and leave, until `deadline`; whether the commit was accepted. The lock is held."""
        now = time.monotonic()
        self._thread.carry_out(self._member.farewell(now))
        committed_all = self._state.wait_for(lambda: not self._member.ledger.owes, max(0.0, (deadline - now) * 0.6))
        self._thread.carry_out(self._member.step(ev.Stop(), time.monotonic()))
        self._state.wait_for(self._has_left, max(0.0, deadline - time.monotonic()))
        self._over = True
        self._state.notify_all()
        return committed_all

    def _never_begin(self) -> None:
        """Stopped before the first call: whoever still asks is told so at once."""
        self.stopped = True
        self._watcher.stop(0.0)
