"""Questions of the run to the brokers or to the group's offset store. Answers may take seconds.

The run holds no lock while it waits. An answer may be older than the newest assignment, so the run checks its state
again before it uses the answer. Times are seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from streamgroup.model import Document, LogRange, OffsetRange, Position, TopicPartition

if TYPE_CHECKING:
    from streamgroup.options.types import LimitOptions


@dataclass(frozen=True, slots=True)
class OpenLogs:
    """Connect to the brokers and resolve the subscription; no answer.

    Raises ConfigError if topics or servers do not exist, TransportError if no broker answers.
    """


@dataclass(frozen=True, slots=True)
class FindAgain:
    """Read the metadata again if it lacked partitions of `checkpoint` when the run began (R8)."""

    checkpoint: Document


@dataclass(frozen=True, slots=True)
class SnapshotEnds:
    """List the ends of all subscribed partitions (R11). The answer maps each to its end."""


@dataclass(frozen=True, slots=True)
class ListEnds:
    """List the ranges of the logs of `positions`. The answer maps each partition to its LogRange.

    A partition whose leader does not answer within `timeout` has the range last known, or is absent.
    """

    positions: Mapping[TopicPartition, Position]
    timeout: float


@dataclass(frozen=True, slots=True)
class CheckPositions:
    """Check `positions` against leader epochs, and against message boundaries in Kafka 0.7; no answer.

    Raises BrokerError, DecodeError.
    """

    positions: Mapping[TopicPartition, Position]
    logs: Mapping[TopicPartition, LogRange]
    limits: LimitOptions
    timeout: float


@dataclass(frozen=True, slots=True)
class FindOfflineBrokers:
    """Find the partitions that a plan from `checkpoint` leaves out, since their Kafka 0.7 broker is not registered.

    No answer. Raises DataLossError if a trigger that ends would leave them unread.
    """

    checkpoint: Document
    targets: Mapping[TopicPartition, int] | None
    once: bool


@dataclass(frozen=True, slots=True)
class CheckOfflineBrokers:
    """Check, before AvailableNow ends, that no broker of Kafka 0.7 is offline with unread records; no answer.

    Raises DataLossError.
    """

    checkpoint: Document
    targets: Mapping[TopicPartition, int] | None


@dataclass(frozen=True, slots=True)
class FetchCommitted:
    """Fetch the group's committed offsets for a replay (R13). The answer maps partitions to CommittedOffset."""


@dataclass(frozen=True, slots=True)
class MakeTasks:
    """Make the tasks that read `ranges` of `document`, with the leaders as of now (R12). The answer is their list."""

    document: Document
    ranges: tuple[OffsetRange, ...]


Question = (
    OpenLogs
    | FindAgain
    | SnapshotEnds
    | ListEnds
    | CheckPositions
    | FindOfflineBrokers
    | CheckOfflineBrokers
    | FetchCommitted
    | MakeTasks
)
