"""How much may be planned now: `group.maxOffsetsPerSecond` and `group.maxBytesPerSecond` as token buckets."""

from __future__ import annotations

from typing import Final

BURST_S: Final = 1.0
"""A batch takes what this many seconds allow, or the time since Spark's last call if that is longer."""

LEAST_WAIT_S: Final = 0.001
_ROUNDING = 1e-6
"""A token that lacks less than this is one: sums of times are not exact."""


class Rate:
    """The tokens of one run; a token is an offset or a byte. Times are monotonic seconds.

    Tokens come at the rate of the option, and a planned batch takes its own. They pile up from one call of Spark to the
    next, so a trigger of a minute takes a minute's tokens at once. Over several calls without a batch, as while there
    is nothing to read, they do not. A batch may take more tokens than there are, because a partition takes one offset
    at least. The next batch then waits until they are paid.

    Over any time `t` after the start of the run, all batches but the last take `(t + BURST_S) * rate` tokens at most.
    """

    def __init__(self) -> None:
        self._tokens = 0.0
        self._at: float | None = None

    def available(self, rate: int, now: float) -> int:
        """Return the tokens at `now`; less than 1 where nothing may be planned. Called once in each call of Spark."""
        elapsed_s = BURST_S if self._at is None else max(0.0, now - self._at)
        self._at = now
        self._tokens = min(self._tokens + rate * elapsed_s, rate * max(BURST_S, elapsed_s))
        return max(0, int(self._tokens + _ROUNDING))

    def wait_s(self, rate: int) -> float:
        """Return the seconds after the last call of `available` until there is a token."""
        return max(LEAST_WAIT_S, (1 - self._tokens) / rate)

    def spend(self, tokens: int) -> None:
        """Take the tokens of a planned batch."""
        self._tokens -= tokens
