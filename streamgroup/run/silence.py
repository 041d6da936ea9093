"""Warns of long triggers (R22), and tells when the driver seems hung, as `silence.py` decides (R27)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from streamgroup.group.events import WARNING
from streamgroup.run.interface import RunConfig

_LISTEN = (
    "{group}: Spark asked for nothing for {gap:.0f} s. Where that is the trigger's interval, not the batch itself: "
    "only the next trigger proves that a batch has sunk, and commits and rebalances wait for that (R22). Call "
    "streamgroup.listen(spark) once in the application, and they follow the batch at once"
)
_KEEPS = " It keeps its partitions as long as it lives; group.maxSilence would make it leave (R27)"


class SilenceWatch:
    """The silence of Spark in one run. `note` takes a line for the log with its level."""

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
        """Take the begin of a call of Spark: no silence is counted while it runs."""
        gap = self._watchdog.begin_call(now)
        if gap > LONG_TRIGGER_S and not self._asked_for_listener and not self._is_listened():
            self._asked_for_listener = True
            self._note(WARNING, _LISTEN.format(group=self._group, gap=gap))

    def end_call(self, now: float) -> None:
        """Take the end of a call of Spark."""
        self._watchdog.end_call(now)

    def look(self, now: float, *, jvm_is_stopped: bool) -> str | None:
        """Warn when Spark is silent for long. Return the reason to leave the group if the driver seems hung."""
        look = self._watchdog.look(now, jvm_is_stopped=jvm_is_stopped)
        if look.verdict is SilenceVerdict.WARN:
            self._note(WARNING, f"{self._group}: {look.reason}. Is the driver hung?{self._keeps}")
        return look.reason if look.verdict is SilenceVerdict.LEAVE else None


LONG_TRIGGER_S = 10.0
"""Triggers longer than this call for a listener (R22)."""


class SilenceVerdict(Enum):
    """The results of a look at the silence."""

    GO_ON = "go on"
    WARN = "warn"
    """The silence is much longer than a batch: log a warning, once for each silence."""
    LEAVE = "leave"
    """Leave the group, so that the other members read its partitions."""


@dataclass(frozen=True, slots=True)
class Look:
    """The verdict of one look, and the reason for the log."""

    verdict: SilenceVerdict
    reason: str = ""


_NOTHING = Look(SilenceVerdict.GO_ON)


class TriggerWatchdog:
    """Measures the time between Spark's calls. `now` is monotonic seconds.

    `poll_s` is `max.poll.interval.ms`: a Java consumer that is silent for longer is removed from its group.
    `max_silence_s` is `group.maxSilence`; None if the member never leaves for silence alone.
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
        """Take the begin of a call of Spark, which ends the silence. Return the seconds of silence before it.

        Returns 0 for the first call, and after the JVM was stopped: such a gap does not measure the triggers.
        """
        gap = 0.0 if self._since is None or self._was_stopped else now - self._since
        self._calls += 1
        self._since, self._stopped_since = None, None
        self._longest = max(self._longest, gap)
        self._was_stopped = self._has_warned = self._has_left = False
        return gap

    def end_call(self, now: float) -> None:
        """Take the end of a call of Spark."""
        self._calls -= 1
        if not self._calls:
            self._since = now

    def look(self, now: float, *, jvm_is_stopped: bool) -> Look:
        """Return the verdict on the silence now. LEAVE comes once for each silence, and for each stop of the JVM."""
        if not jvm_is_stopped:
            self._stopped_since = None
            self._has_left &= not self._calls  # a call that waits joins again
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
            return Look(SilenceVerdict.LEAVE, f"Spark has been silent for {silent:.0f} s, longer than group.maxSilence")
        if not self._has_warned and silent > max(self._poll_s, 3 * self._longest):
            self._has_warned = True
            longest = f"; its longest silence before was {self._longest:.0f} s" if self._longest else ""
            return Look(SilenceVerdict.WARN, f"Spark has asked for nothing for {silent:.0f} s{longest}")
        return _NOTHING
