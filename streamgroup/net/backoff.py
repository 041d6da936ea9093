"""Exponential backoff with jitter between attempts, up to a maximum (KIP-580)."""

from __future__ import annotations

import random

from streamgroup.options.types import ClientOptions

_JITTER = 0.2
"""Waits vary by up to 20 % either way, so that the clients of a failed broker do not all reconnect at once."""


class Backoff:
    """The waits of one operation: `retry_backoff_ms`, doubled after each attempt, at most `retry_backoff_max_ms`."""

    __slots__ = ("_attempts", "_first", "_most", "_rng")

    def __init__(self, options: ClientOptions, rng: random.Random) -> None:
        self._first = options.retry_backoff_ms / 1000
        self._most = options.retry_backoff_max_ms / 1000
        self._rng = rng
        self._attempts = 0

    def next(self) -> float:
        """Return the seconds to wait before the next attempt."""
        exponent = min(self._attempts, 32)  # a larger exponent only makes a larger integer
        self._attempts += 1
        wait: float = min(self._first * 2**exponent, self._most)
        return wait * self._rng.uniform(1 - _JITTER, 1 + _JITTER)

    def reset(self) -> None:
        """Start again at the first wait, after an attempt that succeeded."""
        self._attempts = 0
