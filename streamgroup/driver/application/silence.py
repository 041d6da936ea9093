"""How long Spark says nothing, and what that means: R22's long triggers and R27's hung driver."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from streamgroup.options.types import GroupOptions

log = logging.getLogger("streamgroup")

LONG_TRIGGER_S = 10.0
"""R22: with triggers beyond this the listener is asked for."""

_LISTEN = (
    "%s: Spark asked for nothing for %.0f s. Where that is the trigger's interval, not the batch itself: only the next "
    "trigger proves that a batch has sunk, and commits and rebalances wait for that (R22). Call "
    "streamgroup.listen(spark) once in the application, and they follow the batch at once"
)
_HUNG = "%s: %s. Is the driver hung?%s"
_KEEPS = " It keeps its partitions as long as it lives; group.maxSilence would make it leave (R27)"


class Verdict(Enum):
    """What a look at the silence comes to."""

    GO_ON = "go on"
    SAY = "say"
    """It is plainly longer than a batch: the log is to say so, once for each silence."""
    LEAVE = "leave"
    """The others are to have the partitions."""


@dataclass(frozen=True, slots=True)
class Look:
    """A look at the silence: what to do about it, and the words for the log."""

    verdict: Verdict
    reason: str = ""


_NOTHING = Look(Verdict.GO_ON)


class Silence:
    """The time between Spark's calls. Calls come from Spark's thread, looks from another.

    `poll_s` is `max.poll.interval.ms`: a Java consumer that was silent so long would be put out of its group.
    """

    def __init__(
        self, clock: Callable[[], float], *, session_s: float, poll_s: float, max_silence_s: float | None
    ) -> None:
        self._clock = clock
        self._session_s = session_s
        self._poll_s = poll_s
        self._max_silence_s = max_silence_s
        self._lock = threading.Lock()
        self._calls = 0
        self._since: float | None = None
        self._longest = 0.0
        self._stopped_since: float | None = None
        self._was_stopped = self._said = self._left = False

    @contextmanager
    def call(self) -> Iterator[float]:
        """One of Spark's calls: while it lasts there is no silence. Gives how long Spark was silent before it.

        That is 0 where it tells nothing of the query: before the first call, and after the JVM was stopped.
        """
        with self._lock:
            gap = 0.0 if self._since is None or self._was_stopped else self._clock() - self._since
            self._calls += 1
            self._since, self._stopped_since = None, None
            self._longest = max(self._longest, gap)
            self._was_stopped = self._said = self._left = False
        try:
            yield gap
        finally:
            with self._lock:
                self._calls -= 1
                if not self._calls:
                    self._since = self._clock()

    def look(self, *, jvm_is_stopped: bool) -> Look:
        """What the silence means now. LEAVE is said once for each silence."""
        with self._lock:
            now = self._clock()
            if not jvm_is_stopped:
                self._stopped_since = None
            elif self._stopped_since is None:
                self._stopped_since = now
            self._was_stopped |= jvm_is_stopped
            if self._left:
                return _NOTHING
            stopped = 0.0 if self._stopped_since is None else now - self._stopped_since
            silent = 0.0 if self._since is None else now - self._since
            if stopped > self._session_s:
                self._left = True
                return Look(Verdict.LEAVE, f"the driver's JVM has been stopped (state T) for {stopped:.0f} s")
            if self._max_silence_s is not None and silent > self._max_silence_s:
                self._left = True
                return Look(Verdict.LEAVE, f"Spark has been silent for {silent:.0f} s, longer than group.maxSilence")
            if not self._said and silent > max(self._poll_s, 3 * self._longest):
                self._said = True
                longest = f"; its longest silence before was {self._longest:.0f} s" if self._longest else ""
                return Look(Verdict.SAY, f"Spark has asked for nothing for {silent:.0f} s{longest}")
            return _NOTHING


class SilenceWatch:
    """Says and does what the silence of one run calls for."""

    def __init__(self, group: GroupOptions, *, is_listened: Callable[[], bool], pause: Callable[[], bool]) -> None:
        self._group = group.group_id or "no group"
        self._keeps = _KEEPS if group.is_member else ""
        self._is_listened = is_listened
        self._pause = pause
        self._asked_for_listener = False
        self._silence = Silence(
            time.monotonic,
            session_s=group.session_timeout_ms / 1000,
            poll_s=group.max_poll_interval_ms / 1000,
            max_silence_s=None if group.max_silence_ms is None else group.max_silence_ms / 1000,
        )

    @contextmanager
    def call(self) -> Iterator[None]:
        """One of Spark's calls. R22: with long triggers nobody but a listener tells that a batch has sunk."""
        with self._silence.call() as gap:
            if gap > LONG_TRIGGER_S and not self._asked_for_listener and not self._is_listened():
                self._asked_for_listener = True
                log.warning(_LISTEN, self._group, gap)
            yield

    def look(self, *, jvm_is_stopped: bool) -> None:
        """R27: say so where Spark is silent for long; leave, until it calls again, where it must be taken for hung."""
        look = self._silence.look(jvm_is_stopped=jvm_is_stopped)
        if look.verdict is Verdict.SAY:
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
