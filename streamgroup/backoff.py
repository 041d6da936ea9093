"""Exponential backoff with jitter, as a function of the attempt (KIP-580). A leaf module."""

from __future__ import annotations

from typing import Protocol

_JITTER = 0.2
"""Waits vary by up to 20 % either way, so that the clients of a failed broker do not all return at once."""


class Random(Protocol):
    """A source of jitter, such as `random.Random`."""

    def random(self) -> float:
        """Return the next number in [0, 1)."""


def backoff_s(attempt: int, first_ms: int, most_ms: int, random: Random) -> float:
    """Return the seconds to wait before `attempt`, where 1 is the first repetition: `first_ms`, doubled each time."""
    wait = min(first_ms * 2.0 ** min(attempt - 1, 32), most_ms) / 1000
    return wait * (1 - _JITTER + 2 * _JITTER * random.random())
