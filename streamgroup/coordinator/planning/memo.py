"""Caches the newest result of a computation until its inputs change.

Spark polls `latestOffset` every 10 ms while there is nothing new. A loop over 10,000 partitions takes about as long. So
each step of a poll that visits all partitions caches its last result.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import is_
from typing import Generic, TypeVar

V = TypeVar("V")


class Memo(Generic[V]):
    """Caches one result with the inputs from which it was computed.

    Inputs are compared by identity, because comparing them by value would take as long as the computation. The caller
    must not change them in place. The cache keeps references to the inputs, so no other object can get their identity.
    Only one thread at a time may use it.
    """

    __slots__ = ("_inputs", "_result")

    def __init__(self) -> None:
        self._inputs: tuple[object, ...] | None = None
        self._result: V | None = None

    def get(self, make: Callable[[], V], *inputs: object) -> V:
        """Return the result cached for these `inputs`; otherwise call `make` and cache its result."""
        kept = self.find(*inputs)
        return self.keep(make(), *inputs) if kept is None else kept

    def find(self, *inputs: object) -> V | None:
        """Return the cached result if it was computed from these `inputs`, otherwise None."""
        if self._inputs is None or len(self._inputs) != len(inputs):
            return None
        return self._result if all(map(is_, self._inputs, inputs)) else None

    def keep(self, result: V, *inputs: object) -> V:
        """Cache `result` for these `inputs` in place of the previous result, and return it."""
        self._inputs, self._result = inputs, result
        return result
