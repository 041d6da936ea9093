"""The state of the producer of Kafka 0.7: its brokers, broker-partitions and pending requests."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum

from streamgroup.logformat import broker_partition
from streamgroup.model import TopicPartition
from streamgroup.producer.kafka07_events import MessageSet, MessageSetState


class Purpose07(Enum):
    """The purpose of a pending request."""

    PRODUCE = "produce"
    """Message sets, and an OFFSETS behind them whose answer shows that the broker has handled them."""
    START = "start"
    """Where the log ends before anything is written: from there on it is read back."""
    READ = "read"
    """A piece of the log to look for message sets in."""
    END = "end"
    """How far to read before message sets count as missing."""


@dataclass(frozen=True, slots=True)
class Pending07:
    """A request without an answer. `partition` is that of the last part of a PRODUCE."""

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
    """To be sent, the oldest first."""
    written: deque[MessageSet] = field(default_factory=deque)
    """Sent, in this order, and not resolved."""
    position: int | None = None
    """With `verify`: where the log is read next. None before its end is known."""
    end: int | None = None
    """The end of the log, up to which everything is read before what was not found is missing."""
    wanted: int = 0
    """Bytes to read at once, because a set may begin at `position`."""
    asked: bool = False
    """Whether a request of `verify` is pending for it."""
    read_at: float = 0.0
    """When to read next."""
    doubtful: bool = False
    """Whether a connection was lost with sets in `written`, which the broker may have or not. Nothing is sent until the
    log shows which."""
    reached_at: float | None = None
    """When the broker answered for the first time after that."""
    hang_ups: int = 0
    """How often the broker has hung up on a request for this partition alone, in a row."""

    @property
    def node(self) -> int:
        """The id of its broker."""
        return broker_partition(self.tp.partition)[0]

    @property
    def number(self) -> int:
        """Its number at its broker."""
        return broker_partition(self.tp.partition)[1]

    @property
    def to_read(self) -> bool:
        """Whether the log may have sets that were not found yet. A broker handles sets in their order."""
        return bool(self.written) and (self.doubtful or self.written[0].state is MessageSetState.HANDLED)

    @property
    def oldest(self) -> float:
        """When its oldest unresolved set was appended; infinity without one."""
        return min((sets[0].created_at for sets in (self.written, self.queue) if sets), default=float("inf"))

    def unresolved(self) -> Iterator[MessageSet]:
        """Yield its sets, those that were sent first."""
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
