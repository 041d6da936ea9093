"""The interfaces between the reader of tasks and the code for Kafka 0.7 or for later releases.

A `FetchProtocol` makes the fetch requests of one connection. A `LogLookup` finds the new leaders of failed cursors and
checks which records their logs have. A `ReadFormat` creates both.
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
    """The frames (batches or messages) of one partition in a response, with parsed headers: `Frames` or `Frames07`."""

    data: memoryview
    size: int

    @property
    def next_offset(self) -> int:
        """The offset of the next fetch."""


class PreparedFetch(NamedTuple):
    """A fetch request to send, and the cursors that it contains.

    `version` is the version of the API, None for Kafka 0.7.
    """

    cursors: list[Cursor]
    request: AnyRequest
    version: int | None = None


class Fetched(NamedTuple):
    """The result of a fetch for one cursor: an error, or frames."""

    cursor: Cursor
    error: KafkaError | None = None
    frames: FetchedFrames | None = None
    aborted: tuple[Aborted, ...] = ()
    high_watermark: int = -1
    readable: int = -1
    """The offset below which the leader returns all of its records; -1 if this response proves nothing, such as a
    follower's."""
    comes_first: bool = False
    """Whether no partition before this one in the response has records."""
    read_replica: int | None = None
    """The id of the follower to fetch from, if the leader names one (KIP-392)."""
    leader: tuple[Broker, int] | None = None
    """With an error: the current leader and its epoch, if the broker names them (KIP-951)."""


class Portion(NamedTuple):
    """The records of one range in one response: those in `frames` from the offset `start` on."""

    cursor: Cursor
    start: int
    frames: FetchedFrames
    aborted: tuple[Aborted, ...]

    @property
    def ahead(self) -> int:
        """The offset after the last complete frame."""
        return self.frames.next_offset


class FetchProtocol(ABC):
    """Makes the fetch requests for one connection, and reads the responses. `Pipeline` sends the requests."""

    timeout_s: float
    """How many seconds a response may take."""

    @abstractmethod
    def ask(self, wanted: Sequence[Cursor]) -> PreparedFetch:
        """Return the fetch request for `wanted`, or for as many of them as one response can serve.

        Sets `asked_bytes` of each cursor in the request.
        """

    @abstractmethod
    def read(self, response: Any, asked: Sequence[Cursor]) -> list[Fetched]:
        """Return the result for each cursor in `asked` that `response` contains.

        Raises TransportError if the broker refused the whole request, DecodeError for an invalid response.
        """

    @abstractmethod
    def note_no_progress(self, fetched: Fetched, now: float) -> None:
        """Record on the cursor of `fetched` why it got no complete message, so that the next request differs.

        Raises TooLarge if the next message is larger than any response can be, DecodeError if no message can begin
        there.
        """


KEEP_LONGER = ". To avoid further losses, raise the topic's retention, or give the query more resources"
LAST_LOOK_TIMEOUT_S = 5.0
"""How many seconds the last check of a log may take after a range has timed out."""


class Loss(NamedTuple):
    """Planned records below the offset `until` that no broker has any more."""

    cursor: Cursor
    until: int
    why: str
    way_out: str = ""
    """How to avoid further losses, in addition to `failOnDataLoss=false`."""


class LogLookup(ABC):
    """Finds new leaders and lost records for cursors whose leader did not return the planned records.

    `Recovery` calls it. Methods that yield a `Loss` are resumed only after `Recovery` has handled it: the cursor has
    then skipped the lost records, or the task has failed.
    """

    next_step: str = ""
    """The next step in the error of a range that has timed out."""

    @abstractmethod
    def close(self) -> None: ...

    def replica(self, cursor: Cursor, node_id: int, deadline: float) -> Broker | None:
        """Return the replica `node_id` of `cursor`'s partition, or None if the cluster has no such replica.

        Raises TransportError. Kafka 0.7 has no replicas.
        """
        return None

    @abstractmethod
    def require_mendable(self, cursor: Cursor) -> None:
        """Raise BrokerError or TransportError if retrying cannot resolve the failure of `cursor`."""

    @abstractmethod
    def look_up(self, cursors: Sequence[Cursor], deadline: float) -> Iterator[Loss]:
        """Move `cursors` to their current leaders, and yield the records that are lost. Raises TransportError."""

    @abstractmethod
    def pass_gaps(self, cursors: Sequence[Cursor], connection: Connection, deadline: float) -> Iterator[Loss]:
        """Skip offsets without records: the leader on `connection` has sent none for `cursors` several times.

        Yields the records that are lost.
        """

    @abstractmethod
    def last_look(self, cursor: Cursor, waited_s: float) -> Loss | str:
        """Return the records of `cursor` that are lost, or a text that describes the current log.

        `waited_s` is how long the range has waited. Raises TransportError if no broker answers: a failed check proves
        no loss.
        """


def has_failed_with(cursor: Cursor, code: int) -> bool:
    return isinstance(cursor.failure, KafkaError) and cursor.failure.code == code


def describe_failure(cursor: Cursor) -> str:
    """Return the last failure of `cursor` as text for an error."""
    failure = cursor.failure
    if failure is None:
        return "the partition has no leader" if cursor.leader is None else "an empty answer"
    return failure.name if isinstance(failure, KafkaError) else str(failure)


class ReadFormat(ABC):
    """The code of a task that differs between Kafka 0.7 and later releases.

    `RangeReader`, `Pipeline` and `Recovery` use it. It has no state: `fetch_protocol` returns an object for one
    connection, `lookup` an object for one task.
    """

    dialect: ClassVar[Dialect]
    frame_noun: ClassVar[str]
    """The word for the smallest damaged part of a log that can be skipped."""
    next_frame_unknown: ClassVar[str]
    """The cause and next step if a damaged frame does not show where the next one begins."""

    @property
    def log_format(self) -> LogFormat:
        """The log format: how it numbers offsets and names partitions."""
        return self.dialect.log_format

    @abstractmethod
    def fetch_protocol(
        self, connection: Connection, cursors: Sequence[Cursor], options: FetchOptions
    ) -> FetchProtocol: ...

    @abstractmethod
    def lookup(self, client: ClientOptions, fetch: FetchOptions, clock: Callable[[], float]) -> LogLookup:
        """Return the lookup of one task. It connects when it is first used."""

    @abstractmethod
    def decode(self, portion: Portion, position: int, options: DecodeOptions) -> Decoded:
        """Decode the records of `portion` from `position` on. Raises DecodeError."""
