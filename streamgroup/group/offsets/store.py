"""The interface of all offset stores, which fetch and commit a group's offsets, with requests and results as values.

The member sends its requests to an `OffsetStore`, which translates them:

| store | requests become |
|---|---|
| `KafkaOffsetStore` | OffsetFetch and OffsetCommit, sent to the group's coordinator |
| `ZooKeeperOffsetStore` | reads of the offset nodes and transactions on them |
| `DualOffsetStore` | a check or a commit in ZooKeeper, then a request to Kafka |
| `TableOffsetStore` | claims of rows in a database and changes of them, then requests to Kafka |
| `TransactionOffsetStore` | OffsetFetch: the sink's transactions commit |
| `MemoryOffsetStore` | nothing: it answers immediately |

Stores are pure. A store returns the actions that the driver must carry out. The driver passes the results to `hear`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field
from enum import Enum
from typing import Any, Protocol

from streamgroup.errors import ErrorCode
from streamgroup.frozen import frozen
from streamgroup.model import CommittedOffset, OffsetRange, TopicPartition

# -- requests ---------------------------------------------------------------------------------------------------------


@frozen
class FetchOffsets:
    """Fetch all commits of `group` (R7), without those of open transactions (R19).

    A store that cannot list the commits of a group fetches those of `partitions`, all partitions in the member's
    metadata. With `is_partial`, only the commits of `partitions` are fetched.
    """

    token: int
    group: str
    partitions: frozenset[TopicPartition]
    timeout_ms: int
    is_partial: bool = False


@frozen
class CommitOffsets:
    """Commit `offsets`, each with its leader epoch and metadata (R20), for this member id and generation of `group`.

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
    """A store's verdict on the commit of one partition, or on a fetch."""

    COMMITTED = "committed"
    FENCED = "fenced"
    """The store does not accept this member id or generation: the member must rejoin."""
    MOVED = "moved"
    """Not committed: the store has moved or is not available. Retry once it is found."""
    RETRIABLE = "retriable"
    """Not committed: retry later."""
    STALE_METADATA = "stale metadata"
    """Not committed: the store does not know the partition. Refresh the metadata and retry."""
    FAILED = "failed"
    """Not committed: the store failed for an unknown reason. A retry may succeed or not."""
    TOO_LARGE = "too large"
    """Not committed: the request is too large. Retry with fewer partitions."""
    REFUSED = "refused"
    """Not committed, and retrying will not help."""


@frozen
class PartitionVerdict:
    """A verdict and its cause, a code of `errors.error_of`."""

    verdict: Verdict
    code: int = ErrorCode.NONE
    topic: str = ""
    """The topic that the code of a fetch concerns; empty if it concerns the group."""


COMMITTED = PartitionVerdict(Verdict.COMMITTED)
TIMED_OUT = PartitionVerdict(Verdict.RETRIABLE, ErrorCode.REQUEST_TIMED_OUT)
"""It is unknown whether the partition was committed: it is committed again."""


@frozen
class OffsetsFetched:
    """The result of the `FetchOffsets` with this token: the committed offsets, or why there are none."""

    token: int
    offsets: Mapping[TopicPartition, CommittedOffset] = field(default_factory=dict)
    refusal: PartitionVerdict | None = None
    outdated: frozenset[TopicPartition] = frozenset()
    """Partitions for which the group in Kafka has another commit, or none: the member commits them at once (R37)."""


@frozen
class OffsetsCommitted:
    """The result of the `CommitOffsets` with this token. A partition without a verdict counts as timed out."""

    token: int
    verdicts: Mapping[TopicPartition, PartitionVerdict]


@frozen
class NoAnswer:
    """The store did not respond to the request with this token. A commit may have taken effect or not."""

    token: int
    reason: str
    is_elsewhere: bool = False
    """Whether something else than the group coordinator did not respond: a database, or the broker that was the
    coordinator before."""


Request = FetchOffsets | CommitOffsets
Answer = OffsetsFetched | OffsetsCommitted | NoAnswer


@frozen
class Outcome:
    """The result of a call of a store: actions that the driver must carry out, in order, and results for the member."""

    actions: tuple[Any, ...] = ()
    answers: tuple[Answer, ...] = ()


NOTHING = Outcome()


class OffsetStore(Protocol):
    """Fetches and commits a group's offsets. `now` is from `time.monotonic()`. Only one thread uses a store.

    Every request gets one result within `timeout_ms`, which may be `NoAnswer`. After a `Joining`, `Assigned`, `Lost` or
    `Left`, results of earlier requests may be missing: the member no longer waits for them.
    """

    @property
    def is_the_groups(self) -> bool:
        """Whether the group itself stores these offsets, so that an accepted commit renews the lease (R9)."""

    @property
    def wake_at(self) -> float | None:
        """When to call `hear` with a Tick; None: the driver reports every timeout."""
        return None

    def fetch(self, request: FetchOffsets, now: float) -> Outcome:
        """Start to fetch. Return actions, or the result if it is already known."""

    def commit(self, request: CommitOffsets, now: float) -> Outcome:
        """Start to commit. A pending commit sends no further writes."""

    def planned(self, ranges: Iterable[OffsetRange]) -> None:
        """Record that a batch of `ranges` is in flight. Stores whose offsets the sink changes have to know it."""
        return

    def follow(self, action: object) -> Outcome:
        """Process an action of the membership state machine before the driver carries it out.

        A pending commit sends no further writes when its member gives up partitions or gets an assignment.
        """
        return NOTHING

    def takes(self, event: object) -> bool:
        """Return whether `event` is the result of a request of this store.

        If so, the membership machine does not get it.
        """
        return False

    def hear(self, event: object, now: float) -> Outcome:
        """Process an event of the driver."""
        return NOTHING


class MemoryOffsetStore(OffsetStore):
    """Stores the offsets of a query without a group in memory. The caller holds the coordinator's lock."""

    is_the_groups = False

    def __init__(self) -> None:
        self._offsets: dict[TopicPartition, CommittedOffset] = {}
        """Bounded by the partitions that the query has ever held."""

    def fetch(self, request: FetchOffsets, now: float) -> Outcome:
        return Outcome(answers=(OffsetsFetched(request.token, dict(self._offsets)),))

    def commit(self, request: CommitOffsets, now: float) -> Outcome:
        self._offsets |= request.offsets
        return Outcome(answers=(OffsetsCommitted(request.token, dict.fromkeys(request.offsets, COMMITTED)),))
