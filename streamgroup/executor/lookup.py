"""Where the logs of failed cursors are now, and what they still hold."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from streamgroup.errors import KafkaError
from streamgroup.executor.cursor import Cursor
from streamgroup.net.connection import Connection

KEEP_LONGER = ". To lose no more of them, raise the topic's retention, or read with more resources"
LAST_LOOK_TIMEOUT_S = 5.0
"""How long the last look at a log may take, once the timeout of a range is over."""


class Loss(NamedTuple):
    """Planned records below `until` that no broker has any more."""

    cursor: Cursor
    until: int
    why: str
    way_out: str = ""
    """How to avoid more of it, beside `failOnDataLoss=false`."""


class LogLookup(ABC):
    """Asks the cluster about cursors whose leader did not give what was planned. `Recovery` decides what follows.

    What it yields as a loss `Recovery` applies before it asks for the next: the cursor has then skipped it, or the task
    has failed.
    """

    next_step: str = ""
    """What to tell of a range that timed out, beside what was seen of it."""

    @abstractmethod
    def close(self) -> None:
        """Close the connections that were opened."""

    @abstractmethod
    def require_mendable(self, cursor: Cursor) -> None:
        """Raise BrokerError or TransportError where no waiting mends the failure of `cursor`."""

    @abstractmethod
    def look_up(self, cursors: Sequence[Cursor], deadline: float) -> Iterator[Loss]:
        """Move `cursors` to their leaders of now, and yield what their logs have lost. Raises TransportError."""

    @abstractmethod
    def pass_gaps(self, cursors: Sequence[Cursor], connection: Connection, deadline: float) -> Iterator[Loss]:
        """Skip what can never come of `cursors`, of which the leader on `connection` sends nothing, several times.

        Yields what their logs have lost.
        """

    @abstractmethod
    def last_look(self, cursor: Cursor, waited_s: float) -> Loss | str:
        """Return the loss of what can never come of `cursor`, or a text of what its log still holds.

        Raises TransportError where no broker can tell. A look that fails proves no loss.
        """


def has_failed_with(cursor: Cursor, code: int) -> bool:
    """Return whether the last failure of `cursor` is the broker's error `code`."""
    return isinstance(cursor.failure, KafkaError) and cursor.failure.code == code


def describe_failure(cursor: Cursor) -> str:
    """Return the last failure of `cursor` in words."""
    failure = cursor.failure
    if failure is None:
        return "the partition has no leader" if cursor.leader is None else "an empty answer"
    return failure.name if isinstance(failure, KafkaError) else str(failure)
