"""Questions of the run to the brokers or to the group's offset store. Answers may take seconds.

The run holds no lock while it waits. An answer may be older than the newest assignment, so the run checks its state
again before it uses the answer. Times are seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from streamgroup.model import Document, LogRange, OffsetRange, Position, TopicPartition

if TYPE_CHECKING:
    from streamgroup.options.types import LimitOptions


def everything(_: TopicPartition) -> bool:
    """Accept every partition."""
    return True


@dataclass(frozen=True, slots=True)
class Connect:
    """Connect to the brokers, start the threads and read the metadata of `topics` (None: of all).

    The answer is a ClusterSnapshot, the newest metadata from now on. Raises ConfigError if the servers' names do not
    resolve or the options do not fit the cluster, TransportError if no broker answers.
    """

    topics: frozenset[str] | None


@dataclass(frozen=True, slots=True)
class ReadMetadata:
    """Read the metadata of `topics` (None: of all) now.

    The answer is a ClusterSnapshot, the newest metadata from now on. Raises TransportError.
    """

    topics: frozenset[str] | None


@dataclass(frozen=True, slots=True)
class ListOffsets:
    """List one offset of each partition: the earliest, the latest, or that of a timestamp.

    The answer maps each partition to its ListedOffset. Raises TransportError after `timeout`, BrokerError.
    """

    wanted: Mapping[TopicPartition, int]
    timeout: float


@dataclass(frozen=True, slots=True)
class DescribeGroup:
    """Describe the group's members. The answer is a GroupDescription. Raises TransportError, BrokerError."""

    timeout: float


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

    Where `limits` count bytes, the sizes of records at `positions` are sampled.

    Raises BrokerError, DecodeError.
    """

    positions: Mapping[TopicPartition, Position]
    logs: Mapping[TopicPartition, LogRange]
    limits: LimitOptions
    timeout: float


@dataclass(frozen=True, slots=True)
class FetchCommitted:
    """Fetch the group's committed offsets, at least those of the partitions that `wanted` accepts.

    The answer maps partitions to CommittedOffset. Raises TransportError after `timeout`, and DecodeError if a node in
    ZooKeeper does not hold an offset.
    """

    timeout: float
    wanted: Callable[[TopicPartition], bool] = everything


@dataclass(frozen=True, slots=True)
class MakeFetchTasks:
    """Make the tasks that read `ranges` of `document`, with the leaders as of now (R12). The answer is their list."""

    document: Document
    ranges: tuple[OffsetRange, ...]
    packed_offsets: int = 0
    """The most offsets of small ranges that share a task."""


Question = (
    Connect
    | ReadMetadata
    | SnapshotEnds
    | ListEnds
    | ListOffsets
    | CheckPositions
    | FetchCommitted
    | DescribeGroup
    | MakeFetchTasks
)
