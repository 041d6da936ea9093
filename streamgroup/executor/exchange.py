"""The requests for records over one connection, and what their answers hold."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from streamgroup.errors import KafkaError
from streamgroup.executor.cursor import Cursor
from streamgroup.net.link import AnyRequest
from streamgroup.records.transactions import AbortedTransaction


class Walked(Protocol):
    """The frames of one answer, whose headers are walked: `Frames` or `Frames07`."""

    data: memoryview
    size: int

    @property
    def next_offset(self) -> int:
        """Where to fetch next."""


class Inquiry(NamedTuple):
    """A request, in a `version` of its API where that has any, and the cursors that it asks for."""

    cursors: list[Cursor]
    request: AnyRequest
    version: int | None = None


class Fetched(NamedTuple):
    """What an answer holds of one cursor: an error, or frames."""

    cursor: Cursor
    error: KafkaError | None = None
    frames: Walked | None = None
    aborted: tuple[AbortedTransaction, ...] = ()
    high_watermark: int = -1
    readable: int = -1
    """The offset below which the leader shows all that it has; -1 where this answer proves nothing."""
    comes_first: bool = False
    """Whether no partition before this one in the answer has records."""


class Exchange(ABC):
    """Makes the requests for records and reads the answers; it sends nothing itself."""

    timeout_s: float
    """How long an answer may take."""

    @abstractmethod
    def ask(self, wanted: Sequence[Cursor]) -> Inquiry:
        """Return the request for `wanted`, or for as many of them as one answer can serve.

        Each cursor of the inquiry notes how many bytes are asked of it.
        """

    @abstractmethod
    def read(self, response: Any, asked: Sequence[Cursor]) -> list[Fetched]:
        """Return what `response` holds of the cursors that were asked for; cursors that it leaves out are left out.

        Raises TransportError where the broker refused the request as a whole, DecodeError for an impossible answer.
        """

    @abstractmethod
    def note_no_progress(self, fetched: Fetched, now: float) -> None:
        """Note on the cursor of `fetched` why no whole message came, so that the next request asks otherwise.

        Raises TooLarge where the next message is larger than any answer may be, DecodeError where none can begin there.
        """
