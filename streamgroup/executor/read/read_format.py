"""How tasks read a log: the part of a `LogFormat` that needs requests, connections and decoders.

A `FetchProtocol` makes the fetch requests for one connection. A `LogLookup` finds where the logs of failed cursors are
now.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar, NamedTuple, Protocol

from streamgroup.errors import KafkaError
from streamgroup.executor.read.cursor import Cursor
from streamgroup.kafka.net.connection import Connection
from streamgroup.kafka.net.link import AnyRequest
from streamgroup.kafka.records.decode import Decoded, DecodeOptions
from streamgroup.kafka.records.transactions import Aborted
from streamgroup.logformat import LogFormat
from streamgroup.model import Broker, Dialect
from streamgroup.options.types import ClientOptions, FetchOptions


class FetchedFrames(Protocol):
    """The frames of one answer, whose headers are walked: `Frames` or `Frames07`."""

    data: memoryview
    size: int

    @property
    def next_offset(self) -> int:
        """Where to fetch next."""


class PreparedFetch(NamedTuple):
    """A fetch request, in a `version` of its API where that has any, and the cursors that it fetches for."""

    cursors: list[Cursor]
    request: AnyRequest
    version: int | None = None


class Fetched(NamedTuple):
    """The part of an answer for one cursor: an error, or frames."""

    cursor: Cursor
    error: KafkaError | None = None
    frames: FetchedFrames | None = None
    aborted: tuple[Aborted, ...] = ()
    high_watermark: int = -1
    readable: int = -1
    """The offset below which the leader shows all that it has; -1 where this answer proves nothing, as a follower's."""
    comes_first: bool = False
    """Whether no partition before this one in the answer has records."""
    read_replica: int | None = None
    """The id of the follower to fetch from, where the leader names one (KIP-392)."""


class Portion(NamedTuple):
    """The records of one range in one answer: from the offset `start` on, as far as `frames` reach."""

    cursor: Cursor
    start: int
    frames: FetchedFrames
    aborted: tuple[Aborted, ...]

    @property
    def ahead(self) -> int:
        """The offset behind the last whole frame."""
        return self.frames.next_offset


class FetchProtocol(ABC):
    """Makes the fetch requests for one connection and reads the answers. `Pipeline` sends them."""

    timeout_s: float
    """How long an answer may take."""

    @abstractmethod
    def ask(self, wanted: Sequence[Cursor]) -> PreparedFetch:
        """Return the request for `wanted`, or for as many of them as one answer can serve.

        Each cursor of the request notes how many bytes are asked of it.
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

    `Recovery` applies each loss before it asks for the next: the cursor has then skipped it, or the task has failed.
    """

    next_step: str = ""
    """The part of an error about a range that timed out which does not depend on what was seen of it."""

    @abstractmethod
    def close(self) -> None:
        """Close the connections that were opened."""

    def replica(self, cursor: Cursor, node_id: int, deadline: float) -> Broker | None:
        """Return the replica `node_id` of `cursor`'s partition, or None where the cluster has no such replica.

        Raises TransportError. Kafka 0.7 has no replicas.
        """
        return None

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


class ReadFormat(ABC):
    """The differences between the generations of Kafka, for `RangeReader`, `Pipeline` and `Recovery`.

    It has no state of its own. `fetch_protocol` makes what belongs to one connection, `lookup` what belongs to one
    task.
    """

    dialect: ClassVar[Dialect]
    frame_noun: ClassVar[str]
    """The word for a damaged piece of the log that can be skipped as a whole."""
    next_frame_unknown: ClassVar[str]
    """The cause and next step where a damaged frame does not show where the next one begins."""

    @property
    def log_format(self) -> LogFormat:
        """The meaning of an offset and the name of a partition."""
        return self.dialect.log_format

    @abstractmethod
    def fetch_protocol(self, connection: Connection, cursors: Sequence[Cursor], options: FetchOptions) -> FetchProtocol:
        """Return the protocol that fetches `cursors` over `connection`."""

    @abstractmethod
    def lookup(self, client: ClientOptions, fetch: FetchOptions, clock: Callable[[], float]) -> LogLookup:
        """Return what finds the leaders of cursors again and what their logs hold. Connects when first asked."""

    @abstractmethod
    def decode(self, portion: Portion, position: int, options: DecodeOptions) -> Decoded:
        """Decode the records of `portion` from `position` on. Raises DecodeError."""
