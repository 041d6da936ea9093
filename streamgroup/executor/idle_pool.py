"""Keeps connections and producers while no task of the worker process uses them."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar


class Closable(Protocol):
    """A connection or a producer that the pool can close."""

    def close(self) -> None:
        """Close its sockets."""


Key = TypeVar("Key")
Kept = TypeVar("Kept", bound=Closable)


class IdlePool(Generic[Key, Kept]):
    """At most `most` idle objects by their key. `clock` returns monotonic seconds. Several threads may use it.

    It closes the oldest objects above `most`, and those that have been idle for too long.
    """

    def __init__(self, most: int, clock: Callable[[], float]) -> None:
        self._most = most
        self._clock = clock
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._idle: list[tuple[Key, float, Kept]] = []
        """Each object with its key, and with the time until which it is kept."""

    def take(self, key: Key) -> Kept | None:
        """Remove and return the object with `key` that was used last; None without one."""
        now = self._clock()
        with self._lock:
            if self._pid != os.getpid():  # forked: the sockets and the producer ids are the parent's
                self._pid, self._idle = os.getpid(), []
            old = [entry for entry in self._idle if now > entry[1]]
            self._idle = [entry for entry in self._idle if now <= entry[1]]
            found = next((entry for entry in reversed(self._idle) if entry[0] == key), None)
            if found is not None:
                self._idle.remove(found)
        _close(old)
        return None if found is None else found[2]

    def keep(self, key: Key, kept: Kept, max_idle_s: float) -> None:
        """Keep an object for the next `take` of its key within `max_idle_s` seconds."""
        with self._lock:
            self._idle.append((key, self._clock() + max_idle_s, kept))
            surplus = self._idle[: -self._most]
            del self._idle[: -self._most]
        _close(surplus)

    def clear(self) -> None:
        """Close all objects that are kept."""
        with self._lock:
            idle, self._idle = self._idle, []
        _close(idle)


def _close(entries: list[tuple[Key, float, Kept]]) -> None:
    for _, _, kept in entries:
        kept.close()
