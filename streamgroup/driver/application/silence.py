"""Warns of long triggers (R22), and leaves the group of a driver that hangs (R27), as `run/watchdog.py` decides."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from streamgroup.options.types import GroupOptions
from streamgroup.run.watchdog import LONG_TRIGGER_S, TriggerWatchdog, Verdict

log = logging.getLogger("streamgroup")

_LISTEN = (
    "%s: Spark asked for nothing for %.0f s. Where that is the trigger's interval, not the batch itself: only the next "
    "trigger proves that a batch has sunk, and commits and rebalances wait for that (R22). Call "
    "streamgroup.listen(spark) once in the application, and they follow the batch at once"
)
_HUNG = "%s: %s. Is the driver hung?%s"
_KEEPS = " It keeps its partitions as long as it lives; group.maxSilence would make it leave (R27)"


class SilenceWatch:
    """Carries out the watchdog's verdicts for one run. Spark's thread uses `call`, another thread `look`."""

    def __init__(self, group: GroupOptions, *, is_listened: Callable[[], bool], pause: Callable[[], bool]) -> None:
        self._group = group.group_id or "no group"
        self._keeps = _KEEPS if group.is_member else ""
        self._is_listened = is_listened
        self._pause = pause
        self._asked_for_listener = False
        self._lock = threading.Lock()
        self._watchdog = TriggerWatchdog(
            session_s=group.session_timeout_ms / 1000,
            poll_s=group.max_poll_interval_ms / 1000,
            max_silence_s=None if group.max_silence_ms is None else group.max_silence_ms / 1000,
        )

    @contextmanager
    def call(self) -> Iterator[None]:
        """Count no silence while the block, a call of Spark, runs."""
        with self._lock:
            gap = self._watchdog.begin_call(time.monotonic())
        try:
            if gap > LONG_TRIGGER_S and not self._asked_for_listener and not self._is_listened():
                self._asked_for_listener = True
                log.warning(_LISTEN, self._group, gap)
            yield
        finally:
            with self._lock:
                self._watchdog.end_call(time.monotonic())

    def look(self, *, jvm_is_stopped: bool) -> None:
        """Warn when Spark is silent for long; leave the group, until Spark calls again, when the driver seems hung."""
        with self._lock:
            look = self._watchdog.look(time.monotonic(), jvm_is_stopped=jvm_is_stopped)
        if look.verdict is Verdict.WARN:
            log.warning(_HUNG, self._group, look.reason, self._keeps)
        elif look.verdict is Verdict.LEAVE and self._pause():
            log.warning("%s: %s: left the group, the others read on (R27)", self._group, look.reason)


class Called(Protocol):
    """An object whose methods Spark calls."""

    silence: SilenceWatch


C = TypeVar("C", bound=Called)
P = ParamSpec("P")
T = TypeVar("T")


def spark_calls(method: Callable[Concatenate[C, P], T]) -> Callable[Concatenate[C, P], T]:
    """Decorate a method that Spark calls: no silence is counted while it runs."""

    def call(self: C, /, *args: P.args, **others: P.kwargs) -> T:
        with self.silence.call():
            return method(self, *args, **others)

    call.__doc__ = method.__doc__
    return call
