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
    """Carries out what the watchdog of one run decides. Spark's thread calls it, and another thread looks."""

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
        """Spark calls; while the block runs there is no silence."""
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
        """Warn where Spark is silent for long; leave, until it calls again, where the driver must be taken for hung."""
        with self._lock:
            look = self._watchdog.look(time.monotonic(), jvm_is_stopped=jvm_is_stopped)
        if look.verdict is Verdict.WARN:
            log.warning(_HUNG, self._group, look.reason, self._keeps)
        elif look.verdict is Verdict.LEAVE and self._pause():
            log.warning("%s: %s: left the group, the others read on (R27)", self._group, look.reason)


class Hears(Protocol):
    """Who is called by Spark."""

    silence: SilenceWatch


H = TypeVar("H", bound=Hears)
P = ParamSpec("P")
T = TypeVar("T")


def spark_calls(method: Callable[Concatenate[H, P], T]) -> Callable[Concatenate[H, P], T]:
    """Of a method that Spark calls: there is no silence while it runs."""

    def call(self: H, /, *args: P.args, **others: P.kwargs) -> T:
        with self.silence.call():
            return method(self, *args, **others)

    call.__doc__ = method.__doc__
    return call
