"""The parts of the Kafka 0.7 producer: its message sets, errors, events and actions, and the search in a log."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from streamgroup.errors import DecodeError, DeliveryTimeoutError, ProduceError
from streamgroup.kafka.producer.kafka07 import Kafka07Config
from streamgroup.kafka.wire.kafka07 import Request07, Response07
from streamgroup.kafka.wire.primitives import Bytes
from streamgroup.logformat import KAFKA07_LOG, broker_partition
from streamgroup.model import ClusterSnapshot, TopicPartition
from streamgroup.text import counted


class MessageSetState(Enum):
    """The states of a message set."""

    QUEUED = "queued"
    """Not sent, or to be sent again."""
    SENT = "sent"
    """In a request that the broker has not handled yet."""
    HANDLED = "handled"
    """In a request that the broker has handled. With `verify` it is looked for in the log."""
    RESOLVED = "resolved"


@dataclass(slots=True, eq=False)
class MessageSet:
    """One message set for one broker-partition, with its state."""

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


@dataclass(frozen=True, slots=True)
class Append07:
    """Write these message sets, in this order within each partition."""

    sets: tuple[MessageSet, ...]


@dataclass(frozen=True, slots=True)
class Answered07:
    """The response to the last request of the `Send07` with this token."""

    token: int
    response: Response07


@dataclass(frozen=True, slots=True)
class ConnectionLost07:
    """The connection to a broker is lost, or could not be made: none of its pending requests is answered.

    `unsent` has the tokens of the requests of which no byte was sent.
    """

    node: int
    reason: str
    unsent: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class SnapshotRead07:
    """The brokers and topics that are registered now. The shell may send it at any time, as when a watch fires."""

    snapshot: ClusterSnapshot


@dataclass(frozen=True, slots=True)
class Abandon07:
    """Fail every unresolved message set now."""

    reason: str


@dataclass(frozen=True, slots=True)
class Tick07:
    """The time of the last `WakeAt07` has come. A tick at another time is harmless."""


Event07 = Append07 | Answered07 | ConnectionLost07 | SnapshotRead07 | Abandon07 | Tick07

# -- actions ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Send07:
    """Send these requests to a broker in this order on one connection. Only the last one has an answer."""

    node: int
    token: int
    requests: tuple[Request07, ...]


@dataclass(frozen=True, slots=True)
class Drop07:
    """Reset the connection to a broker that has not answered in time. The producer needs no `ConnectionLost07`."""

    node: int
    reason: str


@dataclass(frozen=True, slots=True)
class Refresh07:
    """Read brokers and topics again if possible: a broker cannot be reached."""


@dataclass(frozen=True, slots=True)
class Delivered07:
    """The broker has handled the message set. With `verify` it is in the log at `position`.

    Without `verify`, `position` is None and this is not an acknowledgement: the broker has only read the request
    without closing the connection.
    """

    messages: MessageSet
    position: int | None


@dataclass(frozen=True, slots=True)
class Failed07:
    """The message set has failed. If `error.maybe_written`, the broker may have it nevertheless."""

    messages: MessageSet
    error: ProduceError


@dataclass(frozen=True, slots=True)
class WakeAt07:
    """Send a `Tick07` at this time."""

    time: float


Action07 = Send07 | Drop07 | Refresh07 | Delivered07 | Failed07 | WakeAt07

# -- state ------------------------------------------------------------------------------------------------------------


class Purpose07(Enum):
    """The purpose of a pending request."""

    PRODUCE = "produce"
    """Message sets, followed by an OFFSETS. Its answer shows that the broker has handled them."""
    START = "start"
    """The end of the log before the first write, from which the log is read back."""
    READ = "read"
    """A part of the log, to look for message sets."""
    END = "end"
    """The end of the log, up to which to read before message sets count as missing."""


@dataclass(frozen=True, slots=True)
class Pending07:
    """A request without an answer. For a PRODUCE, `partition` is the partition of its last part."""

    node: int
    purpose: Purpose07
    until: float
    partition: TopicPartition
    sets: tuple[MessageSet, ...] = ()


@dataclass(slots=True, eq=False)
class Partition07:
    """One broker-partition that is written to."""

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
        """The number of the partition at its broker."""
        return broker_partition(self.tp.partition)[1]

    @property
    def to_read(self) -> bool:
        """Whether the log may have sets that are not found yet. A broker handles sets in their order."""
        return bool(self.written) and (self.doubtful or self.written[0].state is MessageSetState.HANDLED)

    @property
    def oldest(self) -> float:
        """When its oldest unresolved set was appended; infinity without one."""
        return min((sets[0].created_at for sets in (self.written, self.queue) if sets), default=float("inf"))

    def unresolved(self) -> Iterator[MessageSet]:
        """Yield its sets: first the sent ones, then the others."""
        yield from self.written
        yield from self.queue


@dataclass(slots=True, eq=False)
class Node07:
    """One broker."""

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
    """The message sets found in a part of a log."""

    found: list[tuple[MessageSet, int]]
    """The sets that were found, and the positions where they begin, in the order of the log."""
    position: int
    """Where the first unread message begins."""
    wanted: int
    """Bytes to read at once from `position`, because a set may begin there; 0 if any number will do."""


def read_back(data: Bytes, position: int, expected: Sequence[MessageSet]) -> ReadBack:
    """Look for the sets `expected`, in their order, in `data`, the bytes of a log from `position` on.

    `position` must be a boundary of messages. Raises DecodeError for bytes that cannot be a message.
    """
    view = memoryview(data)
    waiting = _by_mark(expected)
    found: list[tuple[MessageSet, int]] = []
    at = 0
    while len(view) - at >= _LENGTH:
        length = int.from_bytes(view[at : at + _LENGTH], "big", signed=True)
        if length < _LEAST:
            raise DecodeError(f"position {position + at}: a message of {length} bytes is announced there")
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
    """Return the error for a set whose connection was lost before the broker had handled it."""
    return ProduceError(
        f"{_what(each)}: the connection was lost after they were sent: {each.cause}. Kafka 0.7 acknowledges nothing, "
        f"so nobody can tell whether the broker has them{_AGAIN}. With verify=true the log is read back, and only what "
        "is missing is sent again",
        maybe_written=True,
    )


def refused(each: MessageSet) -> ProduceError:
    """Return the error for a set whose partition the broker answers by closing the connection, several times."""
    return ProduceError(
        f"{_what(each)}: the broker closes the connection at every request for this partition: {each.cause}. Check the "
        "number of partitions of the topic at this broker (num.partitions), and the name of the topic",
        maybe_written=each.attempts > 0,
    )


def missing(each: MessageSet, start: int, end: int) -> ProduceError:
    """Return the error for a set that the log does not have between `start` and its end."""
    return ProduceError(
        f"{_what(each)}: expected {each.size} bytes from position {start} on, and the log ends at {end}: they are not "
        f"there after {counted(each.attempts, 'attempt')}. A broker drops messages above its max.message.size without "
        "a sign: lower kafka.max.request.size to that. Or it flushes too rarely: see log.default.flush.interval.ms"
    )


def log_lost(each: MessageSet, position: int | None) -> ProduceError:
    """Return the error for a log that ends before, or begins after, the position that was read."""
    return ProduceError(
        f"{_what(each)}: the log no longer has position {position}, which it had before: the broker has lost the end "
        "of the log, or removed it (retention). Look at the broker's log, then write the records again",
        maybe_written=True,
    )


def unreadable(each: MessageSet, position: int | None) -> ProduceError:
    """Return the error for a log that cannot be read back."""
    return ProduceError(
        f"{_what(each)}: cannot verify them: the broker refuses to send its log from position {position} on{_AGAIN}",
        maybe_written=True,
    )


def damaged(each: MessageSet, cause: str) -> ProduceError:
    """Return the error for a log with bytes that are not messages."""
    return ProduceError(f"{_what(each)}: cannot verify them: the log is damaged: {cause}{_AGAIN}", maybe_written=True)


def timed_out(each: MessageSet, config: Kafka07Config, waits_for: str) -> DeliveryTimeoutError:
    """Return the error for a set whose delivery.timeout.ms has passed."""
    maybe = each.state is not MessageSetState.QUEUED
    moved = "" if each.movable else ". Records with a key, or with a partition, cannot go to another broker"
    return DeliveryTimeoutError(
        f"{_what(each)}: not delivered within delivery.timeout.ms={config.delivery_timeout_ms}: {waits_for}{moved}"
        f"{_AGAIN if maybe else ''}. Start the broker, or raise kafka.delivery.timeout.ms",
        maybe_written=maybe,
    )


def abandoned(each: MessageSet, reason: str) -> ProduceError:
    """Return the error for a set that the application abandons."""
    maybe = each.state is not MessageSetState.QUEUED
    return ProduceError(f"{_what(each)}: given up: {reason}{_AGAIN if maybe else ''}", maybe_written=maybe)
