"""The fetches of one leader on one connection: the next one is asked before the answer to the last is decoded.

What the protocols share: whose turn it is, how many answers are asked for or held, when what goes wrong is told.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from heapq import nsmallest
from typing import NamedTuple

from streamgroup.errors import DecodeError, TransportError
from streamgroup.executor.cursor import Cursor
from streamgroup.net.connection import Connection
from streamgroup.options.types import FetchOptions
from streamgroup.records.transactions import AbortedTransaction

MOST_PARTITIONS = 100
"""Of one request: small ranges of one leader share a round trip."""


class Portion(NamedTuple):
    """What one answer holds of one range: the batches of `[start, ahead)`, the first may begin before."""

    cursor: Cursor
    start: int
    ahead: int
    records: memoryview
    aborted: tuple[AbortedTransaction, ...]


class Fetching(ABC):
    """Fetches `cursors` over `connection`, which is used by nobody else meanwhile.

    At most `prefetch` answers are asked for or held besides the one that is being decoded.
    """

    def __init__(
        self,
        connection: Connection,
        cursors: Sequence[Cursor],
        options: FetchOptions,
        clock: Callable[[], float],
    ) -> None:
        self._connection = connection
        self._cursors = cursors
        self._options = options
        self._clock = clock
        self._ready: deque[list[Portion]] = deque()
        self._failure: TransportError | DecodeError | None = None
        self._turn = 0
        """Grows with every answer."""

    def next(self) -> list[Portion] | None:
        """The next answer's portions, none where it brought nothing; None when nothing is left to fetch.

        Waits `request_timeout_ms` at most. Partitions that fail are left out from then on: see their cursors' troubles.
        Raises TransportError, DecodeError.
        """
        if not self._ready:
            if self._failure is not None:
                raise self._failure
            if not self._is_asked and not self._ask():
                return None
            self._receive()
        portions = self._ready.popleft()
        if portions:
            self.pump()
        return portions

    def pump(self) -> None:
        """Take what has arrived and ask for more, without waiting; to be called while decoding.

        Raises nothing: what goes wrong is raised by `next` when all that came before is delivered.
        """
        if self._failure is not None:
            return
        try:
            if self._is_asked and self._connection.arrived():
                self._receive()
            if not self._is_asked and len(self._ready) < self._options.prefetch:
                self._ask()
        except (TransportError, DecodeError) as error:
            self._failure = error

    def _whose_turn(self) -> list[Cursor]:
        """Those that want more, the ones first that have waited longest."""
        # One that wants nothing more here never will: its trouble is mended, if at all, for other fetches.
        self._cursors = [cursor for cursor in self._cursors if cursor.wants_more]
        return nsmallest(MOST_PARTITIONS, self._cursors, key=lambda cursor: cursor.turn)

    @property
    @abstractmethod
    def _is_asked(self) -> bool:
        """Whether an answer is outstanding."""

    @abstractmethod
    def _ask(self) -> bool:
        """Send the next request; whether there was anything to ask for."""

    @abstractmethod
    def _receive(self) -> None:
        """Wait for the answer and put its portions to `_ready`."""
