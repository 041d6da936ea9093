"""Warns of long triggers (R22), and tells when the driver seems hung, as `watchdog.py` decides (R27)."""

from __future__ import annotations

from collections.abc import Callable

from streamgroup.group.events import WARNING
from streamgroup.run.config import RunConfig
from streamgroup.run.watchdog import LONG_TRIGGER_S, SilenceVerdict, TriggerWatchdog

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
