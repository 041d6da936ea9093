"""How long to wait before the next attempt: exponential, with jitter, up to a most (KIP-580)."""

from __future__ import annotations

import random

from streamgroup.options.types import ClientOptions

_JITTER = 0.2
"""Waits are spread by up to a fifth either way, so that many clients of one broken broker do not come back together."""


class Backoff:
    """The waits of one operation, in seconds: `retry_backoff_ms`, doubled each time, `retry_backoff_max_ms` at most."""

    __slots__ = ("_attempts", "_first", "_most", "_rng")

    def __init__(self, options: ClientOptions, rng: random.Random) -> None:
        self._first = options.retry_backoff_ms / 1000
        self._most = options.retry_backoff_max_ms / 1000
        self._rng = rng
        self._attempts = 0

    def next(self) -> float:
        """The wait before the next attempt."""
        exponent = min(self._attempts, 32)  # beyond it nothing changes but the size of the number
        self._attempts += 1
        wait: float = min(self._first * 2**exponent, self._most)
        return wait * self._rng.uniform(1 - _JITTER, 1 + _JITTER)

    def reset(self) -> None:
        """The last attempt went well: begin anew."""
        self._attempts = 0
