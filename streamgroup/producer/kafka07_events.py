"""The events that the producer of Kafka 0.7 handles, and the actions that it returns.

The contract of `Kafka07Producer.step(event, now) -> list[Action07]`: the shell carries the actions out in their order
and reports back. Times are seconds of one monotonic clock.

- The shell answers each `Send07` by one `Answered07`, or one `ConnectionLost07` answers all `Send07`s that are pending
  at a broker. Reports of tokens that are not pending are ignored.
- The producer watches the timeout of a request, and asks for a `Drop07` when it has passed.
- Every message set that is appended ends in exactly one `Delivered07` or `Failed07`.
- Where anything is pending, the list of a step ends with one `WakeAt07`. The shell sends a `Tick07` at that time,
  unless another event comes first.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from streamgroup.errors import ProduceError
from streamgroup.model import ClusterSnapshot, TopicPartition
from streamgroup.wire.kafka07 import Request07, Response07
from streamgroup.wire.primitives import Bytes


class MessageSetState(Enum):
    """Where a message set is."""

    QUEUED = "queued"
    """Not sent, or to be sent again."""
    SENT = "sent"
    """In a request that the broker has not handled yet."""
    HANDLED = "handled"
    """In a request that the broker has handled. With `verify` it is looked for in the log."""
    RESOLVED = "resolved"


@dataclass(slots=True, eq=False)
class MessageSet:
    """One message set for one broker-partition, and what became of it."""

    partition: TopicPartition
    messages: Bytes
    count: int
    """Records in it."""
    movable: bool = False
    """Whether another broker-partition of the topic will do: the records have no key and no partition was asked for."""
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
        """Its bytes."""
        return len(self.messages)


# -- events -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Append07:
    """Write these message sets, those of one partition in this order."""

    sets: tuple[MessageSet, ...]


@dataclass(frozen=True, slots=True)
class Answered07:
    """The response to the last request of the `Send07` with this token."""

    token: int
    response: Response07


@dataclass(frozen=True, slots=True)
class ConnectionLost07:
    """The connection to a broker is lost, or could not be made: none of its pending requests is answered.

    `unsent` has the tokens of those of which no byte has left.
    """

    node: int
    reason: str
    unsent: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class SnapshotRead07:
    """The brokers and topics that are registered now. The shell may send it unasked, as when a watch fires."""

    snapshot: ClusterSnapshot


@dataclass(frozen=True, slots=True)
class Abandon07:
    """Fail every unresolved message set now."""

    reason: str


@dataclass(frozen=True, slots=True)
class Tick07:
    """The time of the last `WakeAt07` has come. At any other time a tick is harmless."""


Event07 = Append07 | Answered07 | ConnectionLost07 | SnapshotRead07 | Abandon07 | Tick07

# -- actions ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Send07:
    """Send these requests to a broker, one behind the other on one connection. Only the last one is answered."""

    node: int
    token: int
    requests: tuple[Request07, ...]


@dataclass(frozen=True, slots=True)
class Drop07:
    """Reset the connection to a broker that has not answered in time. The producer has already taken note."""

    node: int
    reason: str


@dataclass(frozen=True, slots=True)
class Refresh07:
    """Read brokers and topics again, where that is possible: a broker cannot be reached."""


@dataclass(frozen=True, slots=True)
class Delivered07:
    """The broker has handled the message set. With `verify` it lies in the log at `position`.

    Without `verify` this is not an acknowledgement, and `position` is None: the broker has read the request and has not
    hung up.
    """

    messages: MessageSet
    position: int | None


@dataclass(frozen=True, slots=True)
class Failed07:
    """The message set is given up. `error.maybe_written` says whether the broker may have it all the same."""

    messages: MessageSet
    error: ProduceError


@dataclass(frozen=True, slots=True)
class WakeAt07:
    """Send a `Tick07` at this time."""

    time: float


Action07 = Send07 | Drop07 | Refresh07 | Delivered07 | Failed07 | WakeAt07
