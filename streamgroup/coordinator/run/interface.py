"""The interface of `Run`, the decisions of one start of a query: `Run.step` takes an event and returns actions.

The caller of `step` (`coordinator/coordinator.py`, or the simulation) numbers the calls of Spark and of the control
channel. The run numbers its own background tasks with negative numbers. Times are `time.monotonic()` values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from streamgroup.advice import OffsetLocation
from streamgroup.errors import StreamGroupError
from streamgroup.frozen import frozen
from streamgroup.group.events import Event as GroupEvent
from streamgroup.group.member import MemberAction
from streamgroup.group.offsets.store import Answer
from streamgroup.group.offsets.table import TableEvent
from streamgroup.group.offsets.table_rows import Claimant
from streamgroup.group.registry.events import RegistryEvent
from streamgroup.model import (
    ClusterSnapshot,
    CommittedOffset,
    ConfiguredOffsets,
    Document,
    LogRange,
    OffsetRange,
    Position,
    TopicPartition,
)

if TYPE_CHECKING:
    from streamgroup.coordinator.run.machine import Run
    from streamgroup.options.types import LimitOptions, Subscription

# --- events --------------------------------------------------------------------------------------------------------


@frozen
class Called:
    """Event: a thread calls the `Run` and waits for the `CallReply` or `Raise` with the same number `call`.

    `request` calls a method of the `Run`. If the method returns `Steps`, they are carried out.
    """

    call: int
    request: Callable[[Run], Any]


@frozen
class QuestionAnswered:
    """Event: the `Ask` of call or background task `call` has the result `answer`."""

    call: int
    answer: Any


@frozen
class QuestionFailed:
    """Event: the `Ask` of call or background task `call` has failed with `error`."""

    call: int
    error: Exception


@frozen
class CallAbandoned:
    """Event: the thread of `call` no longer waits, because a signal has ended it."""

    call: int


@frozen
class TopicsRead:
    """Event: the metadata was read; `asked` are the requested topics."""

    snapshot: ClusterSnapshot
    asked: frozenset[str]


@frozen
class SilenceLook:
    """Event: check for how long Spark has made no call (R27). `jvm_is_stopped`: the JVM is in state T."""

    jvm_is_stopped: bool


@frozen
class ThreadFailed:
    """Event: a thread of the coordinator process has failed with `error`, and retrying will not help."""

    error: StreamGroupError


RunEvent = Called | QuestionAnswered | QuestionFailed | CallAbandoned | TopicsRead | SilenceLook | ThreadFailed
Event = RunEvent | GroupEvent | RegistryEvent | Answer | TableEvent
"""The events that `Run.step` takes: its own, and those of the group, of ZooKeeper and of the offset store."""

# --- actions -------------------------------------------------------------------------------------------------------


@frozen
class CallReply:
    """Action: the call with number `call` is over and returns `result`."""

    call: int
    result: Any


@frozen
class Raise:
    """Action: the call with number `call` is over; raise `error` in its thread."""

    call: int
    error: Exception


@frozen
class Ask:
    """Action: send the request `question` to the cluster.

    Report the result with `QuestionAnswered` or `QuestionFailed`. For a call of Spark, its waiting thread sends the
    request.
    """

    call: int
    question: Question


@frozen
class Follow:
    """Action: watch the metadata of `topics`, and read it now."""

    topics: frozenset[str]


@frozen
class RefreshMetadata:
    """Action: read the metadata again soon, because a broker's response has shown that it is out of date."""


RunAction = CallReply | Raise | Ask | Follow | RefreshMetadata | MemberAction


def everything(_: TopicPartition) -> bool:
    """Accept every partition."""
    return True


@frozen
class Connect:
    """Request to the cluster: connect to the brokers, start the threads, read the metadata of `topics` (None: all).

    The result is a ClusterSnapshot, the newest metadata from now on. Raises ConfigError if the servers' names do not
    resolve or the options do not fit the cluster, TransportError if no broker responds.
    """

    topics: frozenset[str] | None


@frozen
class ReadTopics:
    """Request to the cluster: read the metadata of `topics` (None: all topics) now.

    The result is a ClusterSnapshot, the newest metadata from now on. Raises TransportError.
    """

    topics: frozenset[str] | None


@frozen
class ListOffsets:
    """Request to the cluster: list one offset of each partition: the earliest, the latest, or the one at a timestamp.

    The result maps each partition to its ListedOffset. Raises TransportError after `timeout`, BrokerError.
    """

    wanted: Mapping[TopicPartition, int]
    timeout: float


@frozen
class DescribeGroup:
    """Request to the cluster: describe the group's members. The result is a GroupDescription.

    Raises TransportError, BrokerError.
    """

    timeout: float


@frozen
class SnapshotEnds:
    """Request to the cluster: list the log ends of all subscribed partitions (R11).

    The result maps each partition to its log end.
    """


@frozen
class ListEnds:
    """Request to the cluster: list the log ranges of the partitions in `positions`.

    The result maps each partition to its LogRange. If its leader does not respond within `timeout`, a partition has the
    last known range, or is absent.
    """

    positions: Mapping[TopicPartition, Position]
    timeout: float


@frozen
class CheckPositions:
    """Request to the cluster: check `positions` against leader epochs, in Kafka 0.7 against message boundaries.

    If `limits` count bytes, the sizes of records at `positions` are sampled. No result.

    Raises BrokerError, DecodeError.
    """

    positions: Mapping[TopicPartition, Position]
    logs: Mapping[TopicPartition, LogRange]
    limits: LimitOptions
    timeout: float


@frozen
class FetchCommitted:
    """Request to the cluster: fetch the group's offsets, at least for the partitions that `wanted` accepts.

    The result maps partitions to CommittedOffset. Raises TransportError after `timeout`, and DecodeError if a node in
    ZooKeeper does not contain an offset.
    """

    timeout: float
    wanted: Callable[[TopicPartition], bool] = everything


@frozen
class EndTransaction:
    """Request to the cluster: abort the transaction that an earlier run of the query may have left open (R38).

    No result. Raises TransportError after `timeout`, UnsupportedVersionError, ConfigError, BrokerError.
    """

    transactional_id: str
    transaction_timeout_ms: int
    timeout: float


@frozen
class ClaimReplay:
    """Request to the database of the offset table: claim the partitions of a replay.

    Partitions that another query has claimed are left out.

    `found` are the group's commits in Kafka. The result maps the claimed partitions to their rows. Raises
    TransportError after `timeout`, OffsetStoreError.
    """

    claimant: Claimant
    ranges: tuple[OffsetRange, ...]
    found: Mapping[TopicPartition, CommittedOffset]
    timeout: float


@frozen
class MakeFetchTasks:
    """Request: make the tasks that read `ranges` of `document`, with the current leaders (R12).

    The result is a list of tasks.
    """

    document: Document
    ranges: tuple[OffsetRange, ...]
    packed_offsets: int = 0
    """The maximum number of offsets in a task that several small ranges share."""


Question = (
    Connect
    | ReadTopics
    | SnapshotEnds
    | ListEnds
    | ListOffsets
    | CheckPositions
    | FetchCommitted
    | EndTransaction
    | ClaimReplay
    | DescribeGroup
    | MakeFetchTasks
)


@frozen
class RunConfig:
    """The options that a `Run` uses. Times are seconds."""

    group_id: str
    """Empty if the query has no group."""
    is_member: bool
    location: OffsetLocation
    subscription: Subscription
    starting: ConfiguredOffsets
    join_timeout_s: float
    session_timeout_s: float
    dead_member_s: float
    """How long a member that has died may stay in the group, at most."""
    max_poll_s: float
    """`max.poll.interval.ms`: if Spark makes no call for longer, a warning is logged (R27)."""
    max_silence_s: float | None = None
    """`group.maxSilence`: the member leaves its group if Spark makes no call for longer (R27). None means never."""
    weight: int = 1
    """`group.member.weight`, which the member's user data carries."""
    transactional_id: str = ""
    """`kafka.transactional.id`; empty for the default, which has the group and the lineage."""
    transaction_timeout_ms: int = 600_000
    api_timeout_s: float = 60.0
    fetch_timeout_s: float = 120.0
    """`kafkaConsumer.pollTimeoutMs`: how long a replay waits for the brokers of its partitions."""
    fail_on_data_loss: bool = True
    target_batch_s: float | None = None
    """`group.targetBatchDuration`: how long a batch should take. None: the duration does not limit a batch."""
    start_retries: int = 3
    """`fetchOffset.numRetries`: how often the lookup of starting offsets is repeated."""
    start_retry_interval_s: float = 1.0

    def sink_id(self, lineage: str) -> str:
        """Return the transactional id of the sink of a query with this lineage (R38)."""
        return self.transactional_id or f"streamgroup-{self.group_id}-{lineage}"
