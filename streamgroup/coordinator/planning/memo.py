"""The newest result of a computation, kept for as long as what it was computed from has not changed.

Spark polls `latestOffset` every 10 ms while there is nothing new. A loop over 10,000 partitions takes about as long. So
each step of a poll that visits all partitions keeps its last result.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import is_
from typing import Generic, TypeVar

V = TypeVar("V")


class Memo(Generic[V]):
    """Keeps one result. Its inputs are compared by identity, so the caller must not change them in place.

    Comparing them by value would be such a loop itself. The inputs are kept too, so no other object can take their
    place in memory. For one thread at a time.
    """

    __slots__ = ("_inputs", "_result")

    def __init__(self) -> None:
        self._inputs: tuple[object, ...] | None = None
        self._result: V | None = None

    def get(self, make: Callable[[], V], *inputs: object) -> V:
        """Return the result kept for these very `inputs`; call `make` if they differ from the last ones."""
        kept = self.find(*inputs)
        return self.keep(make(), *inputs) if kept is None else kept

    def find(self, *inputs: object) -> V | None:
        """Return the result kept for these very `inputs`, or None."""
        if self._inputs is None or len(self._inputs) != len(inputs):
            return None
        return self._result if all(map(is_, self._inputs, inputs)) else None

    def keep(self, result: V, *inputs: object) -> V:
        """Keep `result` for these `inputs` in place of the last one, and return it."""
        self._inputs, self._result = inputs, result
        return result
