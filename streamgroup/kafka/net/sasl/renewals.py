"""Shares tokens and tickets between the connections of a process, and renews them before they expire."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from streamgroup.errors import StreamGroupError, TransportError

WAIT_S = 30.0
"""Seconds to wait for the attempt of another connection: a function of the user, or a KDC, may never return."""
RENEWED_AFTER = 0.8
"""The part of a lifetime after which the next connection gets a new token or ticket, as in Java's logins. A
connection that is open authenticates again after `_SESSION_PART` of the session that the broker granted."""


class Renewable(Protocol):
    """A value that expires: a token or a ticket. Times are seconds since 1970."""

    @property
    def renewed_at(self) -> float:
        """The time from which the next connection gets a new value."""

    @property
    def expires_at(self) -> float:
        """The time at which the value expires."""


K = TypeVar("K", bound=Hashable)
V = TypeVar("V", bound=Renewable)


@dataclass(slots=True)
class _Entry(Generic[V]):
    lock: threading.Lock = field(default_factory=threading.Lock)
    value: V | None = None
    attempts: int = 0
    """Number of finished attempts to get a value."""
    failure: StreamGroupError | None = None
    """The error of the last attempt; None if it succeeded."""


class Renewals(Generic[K, V]):
    """Keeps the current value (a token or a ticket) for each key (its options). Thread-safe.

    Only one caller at a time gets a new value for a key. Callers that wait for it get the same value, or the same
    error: otherwise, if a server does not answer, a hundred connections would wait for it one after the other. A caller
    waits at most `wait_s` seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.time, wait_s: float = WAIT_S) -> None:
        self._clock = clock
        self._wait_s = wait_s
        self._lock = threading.Lock()
        self._entries: dict[K, _Entry[V]] = {}

    def get(self, key: K, new: Callable[[float], V]) -> V:
        """Return the current value for `key`. If it is time to renew it, call `new` with the time for a new value.

        Raises the exception of `new`, and TransportError if the attempt of another caller takes longer than `wait_s`.
        While the current value has not expired, it is returned instead of raising a TransportError.
        """
        with self._lock:
            entry = self._entries.setdefault(key, _Entry())
            attempts = entry.attempts
        if not entry.lock.acquire(timeout=self._wait_s):
            return self._kept(entry, _another_waits(self._wait_s), self._clock())
        try:
            return self._current(entry, attempts, new)
        finally:
            entry.lock.release()

    def forget(self, key: K) -> None:
        with self._lock:
            self._entries.pop(key, None)

    def _current(self, entry: _Entry[V], attempts: int, new: Callable[[float], V]) -> V:
        """Return the value of `entry`. The caller holds its lock, and read `attempts` before it waited."""
        now = self._clock()
        value = entry.value
        if value is not None and now < value.renewed_at:
            return value
        if entry.attempts != attempts and entry.failure is not None:
            return self._kept(entry, entry.failure, now)
        try:
            entry.value = value = new(now)
            entry.failure = None
        except StreamGroupError as error:
            entry.failure = error.with_traceback(None)
            return self._kept(entry, error, self._clock())
        finally:
            entry.attempts += 1
        return value

    @staticmethod
    def _kept(entry: _Entry[V], failure: StreamGroupError, now: float) -> V:
        """Return the value if it has not expired although there is no new one. Raises `failure` otherwise."""
        if isinstance(failure, TransportError) and entry.value is not None and now < entry.value.expires_at:
            return entry.value
        raise failure


def _another_waits(seconds: float) -> TransportError:
    return TransportError(
        "cannot get a token or a ticket: another connection of this process has waited for one for more than "
        f"{seconds:g} s. Check that the function of sasl.tokenProvider returns, or that this machine reaches the token "
        "endpoint or the KDC"
    )
