"""How long Spark has not called, and what that means: long triggers (R22) and a hung driver (R27)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

LONG_TRIGGER_S = 10.0
"""R22: with triggers beyond this the listener is asked for."""


class Verdict(Enum):
    """What a look at the silence comes to."""

    GO_ON = "go on"
    WARN = "warn"
    """The silence is plainly longer than a batch: the log says so, once for each silence."""
    LEAVE = "leave"
    """The member leaves, so that the other members read its partitions."""


@dataclass(frozen=True, slots=True)
class Look:
    """A look at the silence: what to do about it, and the words for the log."""

    verdict: Verdict
    reason: str = ""


_NOTHING = Look(Verdict.GO_ON)


class TriggerWatchdog:
    """Measures the time between Spark's calls. `now` is monotonic seconds.

    `poll_s` is `max.poll.interval.ms`: a Java consumer that is silent for longer is removed from its group.
    `max_silence_s` is `group.maxSilence`; None where the member never leaves for silence alone.
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
        """Spark calls: while the call lasts there is no silence. Returns how long Spark was silent before it.

        That is 0 before the first call, and after the JVM was stopped: such a gap says nothing about the triggers.
        """
        gap = 0.0 if self._since is None or self._was_stopped else now - self._since
        self._calls += 1
        self._since, self._stopped_since = None, None
        self._longest = max(self._longest, gap)
        self._was_stopped = self._has_warned = self._has_left = False
        return gap

    def end_call(self, now: float) -> None:
        """Spark has its answer."""
        self._calls -= 1
        if not self._calls:
            self._since = now

    def look(self, now: float, *, jvm_is_stopped: bool) -> Look:
        """Return what the silence means now. LEAVE comes once for each silence."""
        if not jvm_is_stopped:
            self._stopped_since = None
        elif self._stopped_since is None:
            self._stopped_since = now
        self._was_stopped |= jvm_is_stopped
        if self._has_left:
            return _NOTHING
        stopped = 0.0 if self._stopped_since is None else now - self._stopped_since
        silent = 0.0 if self._since is None else now - self._since
        if stopped > self._session_s:
            self._has_left = True
            return Look(Verdict.LEAVE, f"the driver's JVM has been stopped (state T) for {stopped:.0f} s")
        if self._max_silence_s is not None and silent > self._max_silence_s:
            self._has_left = True
            return Look(Verdict.LEAVE, f"Spark has been silent for {silent:.0f} s, longer than group.maxSilence")
        if not self._has_warned and silent > max(self._poll_s, 3 * self._longest):
            self._has_warned = True
            longest = f"; its longest silence before was {self._longest:.0f} s" if self._longest else ""
            return Look(Verdict.WARN, f"Spark has asked for nothing for {silent:.0f} s{longest}")
        return _NOTHING
