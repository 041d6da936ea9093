"""Offsets of a group, fetched and committed: requests and answers as values, and the interface of every store.

The member puts its requests to an `OffsetStore`, in the words of this file. Each store translates them at its edge:

| store | requests become |
|---|---|
| `KafkaOffsetStore` | OffsetFetch and OffsetCommit, sent to the group's coordinator |
| `ZooKeeperOffsetStore` | looks at the offset nodes and transactions on them |
| `DualOffsetStore` | a check or a commit in ZooKeeper, then a request to Kafka |
| `MemoryOffsetStore` | nothing: it answers at once |

Stores are pure. A store returns the actions that the driver is to carry out, and hears their results by `hear`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Protocol

from streamgroup.errors import ErrorCode
from streamgroup.model import CommittedOffset, TopicPartition

# -- requests ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FetchOffsets:
    """Fetch what `group` has committed: all of it (R7), of transactions only what is complete (R19).

    A store that cannot list the commits of a group looks for those of `partitions`, which are all that the member's
    metadata shows.
    """

    token: int
    group: str
    partitions: frozenset[TopicPartition]
    timeout_ms: int


@dataclass(frozen=True, slots=True)
class CommitOffsets:
    """Commit `offsets`, each with its leader epoch and metadata (R20), as this member of this generation of `group`.

    A query that is not a member has no member id, and generation -1.
    """

    token: int
    group: str
    member_id: str
    generation: int
    offsets: Mapping[TopicPartition, CommittedOffset]
    timeout_ms: int
    instance_id: str | None = None


# -- answers ----------------------------------------------------------------------------------------------------------


class Verdict(Enum):
    """A store's answer to the commit of one partition, or to a fetch."""

    COMMITTED = "committed"
    FENCED = "fenced"
    """The store does not accept this member id or generation: the member has to join again."""
    MOVED = "moved"
    """Not committed: the store is elsewhere, or not available. The same may be accepted once it is found."""
    RETRIABLE = "retriable"
    """Not committed: the same may be accepted later."""
    STALE_METADATA = "stale metadata"
    """Not committed: the store does not know the partition. The same may be accepted once the metadata is refreshed."""
    FAILED = "failed"
    """Not committed: the store failed and cannot say why. The same may be accepted later, or never."""
    TOO_LARGE = "too large"
    """Not committed: the request holds more than the store accepts. Fewer partitions may be accepted."""
    REFUSED = "refused"
    """Not committed, and nothing that this member could do helps."""


@dataclass(frozen=True, slots=True)
class PartitionVerdict:
    """A verdict and its cause: a row of the table of errors (`errors.error_of`)."""

    verdict: Verdict
    code: int = ErrorCode.NONE
    topic: str = ""
    """The topic that the code of a fetch is about; empty if it is about the group."""


COMMITTED = PartitionVerdict(Verdict.COMMITTED)
TIMED_OUT = PartitionVerdict(Verdict.RETRIABLE, ErrorCode.REQUEST_TIMED_OUT)
"""Whether the partition was committed is not known: it is committed again."""


@dataclass(frozen=True, slots=True)
class OffsetsFetched:
    """The answer to the `FetchOffsets` with this token: the committed offsets, or why there are none."""

    token: int
    offsets: Mapping[TopicPartition, CommittedOffset] = field(default_factory=dict)
    refusal: PartitionVerdict | None = None


@dataclass(frozen=True, slots=True)
class OffsetsCommitted:
    """The answer to the `CommitOffsets` with this token. A partition without a verdict counts as timed out."""

    token: int
    verdicts: Mapping[TopicPartition, PartitionVerdict]


@dataclass(frozen=True, slots=True)
class NoAnswer:
    """The store did not answer the request with this token. A commit may have been carried out, or not."""

    token: int
    reason: str


Request = FetchOffsets | CommitOffsets
Answer = OffsetsFetched | OffsetsCommitted | NoAnswer


@dataclass(frozen=True, slots=True)
class Outcome:
    """The actions that the driver is to carry out, in order, and the answers for the member."""

    actions: tuple[Any, ...] = ()
    answers: tuple[Answer, ...] = ()


NOTHING = Outcome()


class OffsetStore(Protocol):
    """Where a group's offsets are kept. `now` is monotonic seconds; nothing here is called from several threads.

    Every request gets one answer, `NoAnswer` at the latest `timeout_ms` after it. After a `Joining`, `Assigned`, `Lost`
    or `Left` the answers to earlier requests may be missing: the member does not wait for them any more.
    """

    @property
    def is_the_groups(self) -> bool:
        """Whether the group itself keeps these offsets, so that a commit that is accepted renews the lease (R9)."""

    @property
    def wake_at(self) -> float | None:
        """When `hear` wants a Tick. None: the driver fails what is not answered in time."""
        return None

    def fetch(self, request: FetchOffsets, now: float) -> Outcome:
        """Begin to fetch."""

    def commit(self, request: CommitOffsets, now: float) -> Outcome:
        """Begin to commit. A commit that is under way writes nothing more."""

    def follow(self, action: object) -> Outcome:
        """Follow an action of the membership machine, before the driver carries it out.

        Nothing more is written for a commit once its member gives partitions up or is assigned others.
        """
        return NOTHING

    def takes(self, event: object) -> bool:
        """Whether `event` answers a question of this store, so that the membership machine need not hear it."""
        return False

    def hear(self, event: object, now: float) -> Outcome:
        """Hear any event of the driver's."""
        return NOTHING


class MemoryOffsetStore(OffsetStore):
    """Answers every request at once. Used under the coordinator's lock."""

    is_the_groups = False

    def __init__(self) -> None:
        self._offsets: dict[TopicPartition, CommittedOffset] = {}
        """Bounded by the partitions that the query has ever held."""

    def fetch(self, request: FetchOffsets, now: float) -> Outcome:
        """Answer with all that was committed."""
        return Outcome(answers=(OffsetsFetched(request.token, dict(self._offsets)),))

    def commit(self, request: CommitOffsets, now: float) -> Outcome:
        """Commit, whoever asks."""
        self._offsets |= request.offsets
        return Outcome(answers=(OffsetsCommitted(request.token, dict.fromkeys(request.offsets, COMMITTED)),))
