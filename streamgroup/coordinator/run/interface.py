"""The interface of a run: events go into `Run.step`, actions come out of it.

The shell (`coordinator/coordinator.py`, or the simulation) numbers the calls. The run numbers its own background tasks
with negative numbers. Times are monotonic seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from streamgroup.advice import OffsetLocation
from streamgroup.errors import StreamGroupError
from streamgroup.group.events import Event as GroupEvent
from streamgroup.group.member import MemberAction
from streamgroup.group.offsets.store import Answer
from streamgroup.group.registry.events import RegistryEvent
from streamgroup.model import (
    ClusterSnapshot,
    ConfiguredOffsets,
    Document,
    LogRange,
    OffsetRange,
    Position,
    TopicPartition,
)

if TYPE_CHECKING:
    from streamgroup.options.types import LimitOptions, Subscription

# --- requests ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PrepareAvailableNow:
    """Spark: take the ends of all subscribed partitions as the run's targets (R11). No result."""


@dataclass(frozen=True, slots=True)
class LatestOffset:
    """Spark: the batch of `start` has sunk; plan the next. The result is its document, or `start` itself if none."""

    start: Document
    limits: LimitOptions
    once: bool = False


@dataclass(frozen=True, slots=True)
class Partitions:
    """Spark: make the tasks of the batch that `end` describes. The result is their list."""

    start: Document
    end: Document


@dataclass(frozen=True, slots=True)
class GetEnds:
    """Spark: report the newest offsets. The result maps the partitions held to their ends."""


@dataclass(frozen=True, slots=True)
class StopRun:
    """Commit and leave the group (R29). `last_word`: see `Shutdown.stop`. The result is whether threads must end."""

    last_word: bool = True


@dataclass(frozen=True, slots=True)
class DrainRun:
    """Plan nothing more, wait for the last batch, commit and leave (R30). The result is whether nothing is repeated."""

    timeout: float
    ends: bool = False


@dataclass(frozen=True, slots=True)
class EndAtNextCall:
    """End the query with Spark's next call: every coordinator of it is drained. No result."""


@dataclass(frozen=True, slots=True)
class BatchSunk:
    """The listener reports that the batch of `document` has sunk, as Spark's batch `batch` (R15).

    The result is a mapping for the listener.
    """

    document: Document
    batch: int | None
    query: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class GetRanges:
    """The result is a mapping with the ranges of the batch in flight."""


@dataclass(frozen=True, slots=True)
class ListHeldEnds:
    """List the ends of the logs now. The result maps the partitions held to their LogRange."""


@dataclass(frozen=True, slots=True)
class GetStatus:
    """The result is a mapping with the state of the member, its positions and its events."""


@dataclass(frozen=True, slots=True)
class SetPaused:
    """An operator pauses `partitions` (`is_paused`) or resumes them; None means the entire query.

    The result is a mapping with the partitions that are paused then. Raises PauseRefused.
    """

    partitions: frozenset[TopicPartition] | None
    is_paused: bool


SparkRequest = PrepareAvailableNow | LatestOffset | Partitions | GetEnds
"""Requests of Spark's engine: while one is answered, Spark is not silent (R27)."""
Request = (
    SparkRequest | StopRun | DrainRun | EndAtNextCall | BatchSunk | GetRanges | ListHeldEnds | GetStatus | SetPaused
)

# --- events --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Called:
    """A thread makes `request` and waits for `Reply` or `Raise` with the number `call`."""

    call: int
    request: Request


@dataclass(frozen=True, slots=True)
class QuestionAnswered:
    """The answer to the question of the call or background task `call`."""

    call: int
    answer: Any


@dataclass(frozen=True, slots=True)
class QuestionFailed:
    """The question of `call` has led to `error`."""

    call: int
    error: Exception


@dataclass(frozen=True, slots=True)
class CallAbandoned:
    """The thread of `call` does not wait any more: a signal has ended it."""

    call: int


@dataclass(frozen=True, slots=True)
class TopicsRead:
    """The metadata was read; `asked` are the topics that were requested."""

    snapshot: ClusterSnapshot
    asked: frozenset[str]


@dataclass(frozen=True, slots=True)
class SilenceLook:
    """Check how long Spark has made no call (R27). `jvm_is_stopped`: the JVM is in state T."""

    jvm_is_stopped: bool


@dataclass(frozen=True, slots=True)
class ThreadFailed:
    """A thread of the shell has failed with `error`: retrying will not help."""

    error: StreamGroupError


RunEvent = Called | QuestionAnswered | QuestionFailed | CallAbandoned | TopicsRead | SilenceLook | ThreadFailed
Event = RunEvent | GroupEvent | RegistryEvent | Answer
"""The events that `Run.step` takes: its own, and those of the group, of ZooKeeper and of the offset store."""

# --- actions -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CallReply:
    """The call `call` is over; `result` is its result."""

    call: int
    result: Any


@dataclass(frozen=True, slots=True)
class Raise:
    """The call `call` is over: raise `error` in its thread."""

    call: int
    error: Exception


@dataclass(frozen=True, slots=True)
class Ask:
    """Answer `question` with `QuestionAnswered` or `QuestionFailed`. The waiting thread of a call does so."""

    call: int
    question: Question


@dataclass(frozen=True, slots=True)
class Follow:
    """Watch the metadata of `topics`, and read it now."""

    topics: frozenset[str]


@dataclass(frozen=True, slots=True)
class RefreshMetadata:
    """Read the metadata again soon: an answer has shown that it is out of date."""


RunAction = CallReply | Raise | Ask | Follow | RefreshMetadata | MemberAction


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
class ReadTopics:
    """Read the metadata of `topics` (None: of all) now.

    The answer is a ClusterSnapshot, the newest metadata from now on. Raises TransportError.
    """

    topics: frozenset[str] | None


@dataclass(frozen=True, slots=True)
class ListOffsets:
    """List one offset of each partition: the earliest, the latest, or the offset of a timestamp.

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

    If `limits` count bytes, the sizes of records at `positions` are sampled.

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
    | ReadTopics
    | SnapshotEnds
    | ListEnds
    | ListOffsets
    | CheckPositions
    | FetchCommitted
    | DescribeGroup
    | MakeFetchTasks
)


@dataclass(frozen=True, slots=True)
class RunConfig:
    """The options of a run. Times are seconds."""

    group_id: str
    """Empty if the run has no group."""
    is_member: bool
    location: OffsetLocation
    subscription: Subscription
    starting: ConfiguredOffsets
    join_timeout_s: float
    session_timeout_s: float
    max_poll_s: float
    """`max.poll.interval.ms`: silence of Spark for longer than this is logged (R27)."""
    max_silence_s: float | None = None
    """`group.maxSilence`: the member leaves after this silence of Spark (R27). None means never."""
    api_timeout_s: float = 60.0
    fetch_timeout_s: float = 120.0
    """`kafkaConsumer.pollTimeoutMs`: how long a replay waits for the brokers of its partitions."""
    fail_on_data_loss: bool = True
    target_batch_s: float | None = None
    """`group.targetBatchDuration`: how long a batch is to last. None sizes no batch by its duration."""
    start_retries: int = 3
    """`fetchOffset.numRetries`: how often the lookup of starting offsets is repeated."""
    start_retry_interval_s: float = 1.0
