"""Exponential backoff with jitter, up to a maximum (KIP-580). A leaf module."""

from __future__ import annotations

from typing import Protocol

_JITTER = 0.2
"""Waits vary by up to 20 % either way, so that the clients of a failed broker do not all reconnect together."""


class Random(Protocol):
    """The source of random numbers for jitter, such as `random.Random`."""

    def random(self) -> float:
        """Return the next number in [0, 1)."""


def backoff_s(attempt: int, first_ms: int, most_ms: int, random: Random) -> float:
    """Return the seconds to wait before retry number `attempt` (the first retry is 1).

    The wait is `first_ms` before the first retry. It doubles with each retry, up to `most_ms`, and has jitter.
    """
    wait = min(first_ms * 2.0 ** min(attempt - 1, 32), most_ms) / 1000
    return wait * (1 - _JITTER + 2 * _JITTER * random.random())


class Backoff:
    """The waits between the attempts of one operation: `first_ms`, then doubled up to `most_ms`, with jitter."""

    __slots__ = ("_attempts", "_first_ms", "_most_ms", "_random")

    def __init__(self, first_ms: int, most_ms: int, random: Random) -> None:
        self._first_ms = first_ms
        self._most_ms = most_ms
        self._random = random
        self._attempts = 0

    def next(self) -> float:
        """Return the seconds to wait before the next attempt."""
        self._attempts += 1
        return backoff_s(self._attempts, self._first_ms, self._most_ms, self._random)

    def reset(self) -> None:
        """Start again at the first wait, after an attempt that succeeded."""
        self._attempts = 0
