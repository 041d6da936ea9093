"""When to make consumers of another make claim their partitions again (R33)."""

from __future__ import annotations

POKE_AFTER_S = 10.0
"""A consumer of another make that has not claimed its partitions by then has given up."""
POKE_MOST_S = 160.0
"""A poke makes all consumers stop and claim anew, so where it does not help the member pokes more and more rarely."""


class Pokes:
    """Counts the pokes since the group's consumers have changed. A poke is a new registration that all others see."""

    __slots__ = ("_count",)

    def __init__(self) -> None:
        self._count = 0

    def poked(self) -> None:
        """Count a poke."""
        self._count += 1

    def reset(self) -> None:
        """Begin anew: the group has other consumers."""
        self._count = 0

    @property
    def wait_s(self) -> float:
        """The seconds until the next poke."""
        return float(min(POKE_AFTER_S * 2**self._count, POKE_MOST_S))
