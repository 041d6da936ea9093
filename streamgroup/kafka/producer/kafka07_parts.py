"""The parts of the Kafka 0.7 producer: message sets, errors, events, actions, and the search for sets in a log."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from streamgroup.errors import DecodeError, DeliveryTimeoutError, ProduceError
from streamgroup.frozen import frozen
from streamgroup.kafka.producer.kafka07 import Kafka07Config
from streamgroup.kafka.wire.kafka07 import Request07, Response07
from streamgroup.kafka.wire.primitives import Bytes
from streamgroup.logformat import KAFKA07_LOG, broker_partition
from streamgroup.model import ClusterSnapshot, TopicPartition
from streamgroup.text import counted


class MessageSetState(Enum):
    """The states of a `MessageSet`."""

    QUEUED = "queued"
    """Not sent, or to be sent again."""
    SENT = "sent"
    """In a request that the broker has not handled yet."""
    HANDLED = "handled"
    """In a request that the broker has handled. With `verify` it is looked for in the log."""
    RESOLVED = "resolved"


@dataclass(slots=True, eq=False)
class MessageSet:
    """One message set for one broker-partition, with its state in the producer."""

    partition: TopicPartition
    messages: Bytes
    count: int
    """Records in it."""
    movable: bool = False
    """Whether it may go to another broker-partition of the topic: its records have no key and set no partition."""
    number: int = -1
    """The order in which sets were appended."""
    created_at: float = 0.0
    handled_at: float = 0.0
    attempts: int = 0
    state: MessageSetState = MessageSetState.QUEUED
    cause: str = ""
    """Why the last attempt failed."""

    @property
    def size(self) -> int:
        return len(self.messages)


# -- events -----------------------------------------------------------------------------------------------------------


@frozen
class Append07:
    """Event: write these message sets, in this order within each partition."""

    sets: tuple[MessageSet, ...]


@frozen
class Answered07:
    """Event: the response to the last request of the `Send07` with this token."""

    token: int
    response: Response07


@frozen
class ConnectionLost07:
    """Event: the connection to a broker was lost or could not be made. Its pending requests get no response.

    `unsent` has the tokens of the requests of which no byte was sent.
    """

    node: int
    reason: str
    unsent: frozenset[int] = frozenset()


@frozen
class SnapshotRead07:
    """Event: the brokers and topics that are registered now. The shell may send it at any time."""

    snapshot: ClusterSnapshot


@frozen
class Abandon07:
    """Event: fail every message set that is not delivered."""

    reason: str


@frozen
class Tick07:
    """Event: the time of the last `WakeAt07` has come. A tick at another time does no harm."""


Event07 = Append07 | Answered07 | ConnectionLost07 | SnapshotRead07 | Abandon07 | Tick07

# -- actions ----------------------------------------------------------------------------------------------------------


@frozen
class Send07:
    """Action: send these requests to a broker, in this order on one connection. Only the last one has a response."""

    node: int
    token: int
    requests: tuple[Request07, ...]


@frozen
class Drop07:
    """Action: reset the connection to a broker that has not answered in time. No `ConnectionLost07` must follow."""

    node: int
    reason: str


@frozen
class Refresh07:
    """Action: read brokers and topics again if possible, because a broker cannot be reached."""


@frozen
class Delivered07:
    """Action: report that the broker has handled the message set. With `verify` it is in the log at `position`.

    Without `verify`, `position` is None and this is not an acknowledgement: the broker has only read the request
    without closing the connection.
    """

    messages: MessageSet
    position: int | None


@frozen
class Failed07:
    """Action: report that the message set has failed. If `error.maybe_written`, the broker may have it nevertheless."""

    messages: MessageSet
    error: ProduceError


@frozen
class WakeAt07:
    """Action: send a `Tick07` at this time."""

    time: float


Action07 = Send07 | Drop07 | Refresh07 | Delivered07 | Failed07 | WakeAt07

# -- state ------------------------------------------------------------------------------------------------------------


class Purpose07(Enum):
    """The purposes of pending requests to a broker."""

    PRODUCE = "produce"
    """Message sets, followed by an OFFSETS. Its answer shows that the broker has handled them."""
    START = "start"
    """The end of the log before the first write, from which the log is read back."""
    READ = "read"
    """A part of the log, to look for message sets."""
    END = "end"
    """The end of the log, up to which to read before message sets count as missing."""


@frozen
class Pending07:
    """A request without a response. For a PRODUCE, `partition` is the partition of its last part."""

    node: int
    purpose: Purpose07
    until: float
    partition: TopicPartition
    sets: tuple[MessageSet, ...] = ()


@dataclass(slots=True, eq=False)
class Partition07:
    """The message sets and the reading state of one broker-partition that is written to."""

    tp: TopicPartition
    queue: deque[MessageSet] = field(default_factory=deque)
    """Sets to send, the oldest first."""
    written: deque[MessageSet] = field(default_factory=deque)
    """Sent and unresolved sets, in the order of sending."""
    position: int | None = None
    """With `verify`: where to read next in the log. None until its end is known."""
    end: int | None = None
    """The end of the log. A set that is not found up to here is missing."""
    wanted: int = 0
    """Bytes to read at once, because a set may begin at `position`."""
    asked: bool = False
    """Whether a request of `verify` is pending for the partition."""
    read_at: float = 0.0
    """When to read next."""
    doubtful: bool = False
    """Whether a connection was lost with sets in `written`. The broker may have them or not, so nothing is sent until
    the log shows which it has."""
    reached_at: float | None = None
    """When the broker answered for the first time after that."""
    hang_ups: int = 0
    """How many times in a row the broker has closed the connection at a request for this partition alone."""

    @property
    def node(self) -> int:
        return broker_partition(self.tp.partition)[0]

    @property
    def number(self) -> int:
        """The number of the partition on its broker."""
        return broker_partition(self.tp.partition)[1]

    @property
    def to_read(self) -> bool:
        """Whether the log may have sets that were not found yet. A broker handles sets in their order."""
        return bool(self.written) and (self.doubtful or self.written[0].state is MessageSetState.HANDLED)

    @property
    def oldest(self) -> float:
        """When the oldest unresolved set was appended; infinity if there is none."""
        return min((sets[0].created_at for sets in (self.written, self.queue) if sets), default=float("inf"))

    def unresolved(self) -> Iterator[MessageSet]:
        """Yield the sets that are neither delivered nor failed: first those that were sent, then the others."""
        yield from self.written
        yield from self.queue


@dataclass(slots=True, eq=False)
class Node07:
    """The pending requests and the connection failures of one broker."""

    node: int
    in_flight: int = 0
    """Produce requests without an answer."""
    failures: int = 0
    """Connections in a row that were lost or could not be made."""
    retry_at: float = float("-inf")
    """Before this time nothing is sent."""
    reason: str = ""
    """Why the last connection was lost."""


# -- the search in a log ----------------------------------------------------------------------------------------------

_LENGTH = 4
_LEAST = 5
"""The smallest length of a message: magic and checksum."""
_MARK = 10
"""Bytes of a set's first message that identify candidates: length, magic, attributes, checksum."""


class ReadBack(NamedTuple):
    """The result of `read_back`: the message sets that were found in a part of a log."""

    found: list[tuple[MessageSet, int]]
    """The sets that were found, and the positions where they begin, in the order of the log."""
    position: int
    """Where the first unread message begins."""
    wanted: int
    """Bytes to read at once from `position`, because a set may begin there; 0 if any number will do."""


def read_back(data: Bytes, position: int, expected: Sequence[MessageSet]) -> ReadBack:
    """Look for the sets `expected`, in their order, in `data`, the bytes of a log from `position` on.

    `position` must be a message boundary. Raises DecodeError for bytes that cannot be a message.
    """
    view = memoryview(data)
    waiting = _by_mark(expected)
    found: list[tuple[MessageSet, int]] = []
    at = 0
    while len(view) - at >= _LENGTH:
        length = int.from_bytes(view[at : at + _LENGTH], "big", signed=True)
        if length < _LEAST:
            raise DecodeError(f"position {position + at}: the bytes there declare a message of {length} bytes")
        if _LENGTH + length < _MARK:  # of magic 0, without a payload: not one of these sets
            at += _LENGTH + length
            continue
        mark = bytes(view[at : at + _MARK])
        candidates = waiting.get(mark, ())
        match = next((each for each in candidates if _begins_with(view[at:], each)), None)
        if match is not None:
            waiting[mark].remove(match)
            found.append((match, position + at))
            at += match.size
            continue
        wanted = max((_missing(view[at:], each) for each in candidates), default=0)
        if wanted or len(mark) < _MARK:
            return ReadBack(found, position + at, max(wanted, _MARK))
        at += _LENGTH + length
    return ReadBack(found, position + at, 0)


def _by_mark(expected: Iterable[MessageSet]) -> dict[bytes, deque[MessageSet]]:
    waiting: dict[bytes, deque[MessageSet]] = defaultdict(deque)
    for each in expected:
        waiting[bytes(each.messages[:_MARK])].append(each)
    return waiting


def _missing(rest: memoryview, expected: MessageSet) -> int:
    """Return the size of `expected` if `rest` is a proper prefix of it, else 0."""
    is_part = len(rest) < expected.size and bytes(rest) == bytes(expected.messages[: len(rest)])
    return expected.size if is_part else 0


def _begins_with(rest: memoryview, expected: MessageSet) -> bool:
    # Python compares bytes at once, but the elements of a memoryview one by one.
    return bytes(rest[: expected.size]) == bytes(expected.messages)


# -- errors -----------------------------------------------------------------------------------------------------------

_AGAIN = ". The broker may have the records: writing them again may duplicate them"


def _what(each: MessageSet) -> str:
    return f"could not write {counted(each.count, 'record')} ({each.size} bytes) to {KAFKA07_LOG.name(each.partition)}"


def unconfirmed(each: MessageSet) -> ProduceError:
    """Return the error for a set if the connection was lost before the broker had handled the set."""
    return ProduceError(
        f"{_what(each)}: the connection was lost after they were sent: {each.cause}. Kafka 0.7 acknowledges "
        f"nothing{_AGAIN}. With verify=true the log is read back, and only what is missing is sent again",
        maybe_written=True,
    )


def refused(each: MessageSet) -> ProduceError:
    """Return the error for a set if the broker closes the connection at each request for its partition."""
    return ProduceError(
        f"{_what(each)}: the broker closes the connection at every request for this partition: {each.cause}. Check the "
        "number of partitions of the topic at this broker (num.partitions), and the name of the topic",
        maybe_written=each.attempts > 0,
    )


def missing(each: MessageSet, start: int, end: int) -> ProduceError:
    """Return the error for a set that is not in the log between `start` and its end."""
    return ProduceError(
        f"{_what(each)}: the log has been read from position {start} to its end {end}, and does not contain them "
        f"after {counted(each.attempts, 'attempt')}. A broker drops messages above its max.message.size without "
        "an error: lower kafka.max.request.size to that. Or it flushes too rarely: see log.default.flush.interval.ms"
    )


def log_lost(each: MessageSet, position: int | None) -> ProduceError:
    """Return the error for a set if the log no longer contains the position that was read last."""
    return ProduceError(
        f"{_what(each)}: the log no longer has position {position}, which it had before: the broker has lost the end "
        "of the log, or removed it (retention). Look at the broker's log, then write the records again",
        maybe_written=True,
    )


def unreadable(each: MessageSet, position: int | None) -> ProduceError:
    """Return the error for a set if the log cannot be read back."""
    return ProduceError(
        f"{_what(each)}: cannot verify them: the broker refuses to send its log from position {position} on{_AGAIN}",
        maybe_written=True,
    )


def damaged(each: MessageSet, cause: str) -> ProduceError:
    """Return the error for a set if the log has bytes that are not messages."""
    return ProduceError(f"{_what(each)}: cannot verify them: the log is damaged: {cause}{_AGAIN}", maybe_written=True)


def timed_out(each: MessageSet, config: Kafka07Config, waits_for: str) -> DeliveryTimeoutError:
    """Return the error for a set that was not delivered within delivery.timeout.ms."""
    maybe = each.state is not MessageSetState.QUEUED
    moved = "" if each.movable else ". Records with a key, or with a partition, cannot go to another broker"
    return DeliveryTimeoutError(
        f"{_what(each)}: not delivered within delivery.timeout.ms={config.delivery_timeout_ms}: {waits_for}{moved}"
        f"{_AGAIN if maybe else ''}. Start the broker, or raise kafka.delivery.timeout.ms",
        maybe_written=maybe,
    )


def abandoned(each: MessageSet, reason: str) -> ProduceError:
    """Return the error for a set that the application gives up."""
    maybe = each.state is not MessageSetState.QUEUED
    return ProduceError(f"{_what(each)}: given up: {reason}{_AGAIN if maybe else ''}", maybe_written=maybe)
