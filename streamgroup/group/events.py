"""The events that a state machine handles, and the actions that it returns.

The contract of `Membership.step(event, now) -> list[Action]`: the driver carries out the actions in their order and
reports back. Times are seconds of one monotonic clock. Timeouts are milliseconds, as everywhere in Kafka.

- The driver answers every `Send` by one `RequestAnswered` or one `RequestFailed` with its token. The latter comes at
  the latest `timeout_ms` after the `Send`. The driver may also answer tokens that the machine has given up: the machine
  ignores them.
- Where anything is pending, the list of a step ends with one `WakeAt`. The driver sends a `Tick` at that time, unless
  another event comes first. A list without `WakeAt` means that the machine waits for the driver's own events only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import Any

from streamgroup.errors import StreamGroupError
from streamgroup.model import Broker, TopicInfo, TopicPartition
from streamgroup.text import counted

DEBUG, INFO, WARNING, ERROR = 10, 20, 30, 40
"""The levels of a `Note`, with the numbers of the standard library's logging, which the pure rooms do not import."""


class Lane(Enum):
    """The connection that a request takes. A broker answers one request per connection at a time (R10)."""

    ANY = "any"
    """Any broker: FindCoordinator."""
    COORDINATOR = "coordinator"
    """The coordinator: Heartbeat, LeaveGroup and the driver's commits."""
    JOIN = "join"
    """A second connection to the coordinator: JoinGroup and SyncGroup, which wait for other members."""


# -- events -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Start:
    """Join the group with this subscription, for a pattern the topics that match.

    A member that has left joins anew (R27).
    """

    topics: tuple[str, ...]
    settles: bool = False
    """`Settled` follows each assignment that brings new partitions, and a rejoin waits for it."""


@dataclass(frozen=True, slots=True)
class UserDataChanged:
    """Send this data to the other members with every later JoinGroup, as user data of the subscription (R28).

    `lasts`: also after a loss of the membership. The data of an event without it counts until then; after the loss the
    member sends the newest data that lasts. `rejoins`: a stable member of Kafka's groups joins again with it.
    """

    data: bytes
    lasts: bool = True
    rejoins: bool = False


@dataclass(frozen=True, slots=True)
class Stop:
    """Leave the group. A static member stays, and its partitions wait for its return (R29)."""


@dataclass(frozen=True, slots=True)
class Tick:
    """The time of the last `WakeAt` has come. At any other time a tick is harmless."""


@dataclass(frozen=True, slots=True)
class RequestAnswered:
    """The answer to the `Send` with this token. `version` is the version of the request."""

    token: int
    response: Any
    version: int


@dataclass(frozen=True, slots=True)
class RequestFailed:
    """The `Send` with this token has no answer: its connection was lost or could not be made, or it has timed out.

    After a timeout the driver has reset the connection.
    """

    token: int
    reason: str
    unsupported: bool = False
    """Whether the broker does not know the API. Only an `optional` request fails in this way."""


@dataclass(frozen=True, slots=True)
class CoordinatorGone:
    """A connection to the coordinator broke, or one of the driver's own requests to it failed."""

    reason: str


@dataclass(frozen=True, slots=True)
class MetadataRefreshed:
    """The driver has read the cluster's metadata: `asked` are the topics asked for, `topics` those of them that exist.

    The driver sends it at each refresh, at least for the topics of the last `NeedTopics`.
    """

    topics: Mapping[str, TopicInfo]
    asked: frozenset[str]


@dataclass(frozen=True, slots=True)
class Subscribed:
    """The member's subscription now matches these topics (R23). The same topics as before are harmless."""

    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Planned:
    """Spark was given a document with ranges: a batch is in flight (R21)."""


@dataclass(frozen=True, slots=True)
class Asked:
    """Spark has asked for the partitions of a document, so its tasks start now (R22). This goes for a replay, too."""

    listened: bool = False
    """Whether a listener reports at once when the batch has sunk: until then the batch runs."""


@dataclass(frozen=True, slots=True)
class Idle:
    """The boundary of a batch: every document given to Spark is proven sunk, and no commit is due or unanswered
    (R21)."""


@dataclass(frozen=True, slots=True)
class RevocationCompleted:
    """The member no longer needs the partitions that the last `Assigned` revoked, so it can give them up (R25).

    No batch in flight has them, and no commit of them is due or unanswered.
    """


@dataclass(frozen=True, slots=True)
class Settled:
    """The starting positions of the last `Assigned` are found and committed.

    This goes for the positions that a later owner could not find (R6).
    """


@dataclass(frozen=True, slots=True)
class CommitAccepted:
    """A commit under this member id and generation, sent at `sent_at`, was accepted."""

    member_id: str
    generation: int
    sent_at: float


@dataclass(frozen=True, slots=True)
class CommitRefused:
    """A commit under this member id and generation was answered with this error code."""

    code: int
    member_id: str
    generation: int
    sent_at: float


Event = (
    Start
    | UserDataChanged
    | Stop
    | Tick
    | RequestAnswered
    | RequestFailed
    | CoordinatorGone
    | MetadataRefreshed
    | Subscribed
    | Planned
    | Asked
    | Idle
    | RevocationCompleted
    | Settled
    | CommitAccepted
    | CommitRefused
)


# -- actions ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Send:
    """Send a request on this lane, in the highest version of `api` that both sides know.

    `build(version)` returns the message. The shape of LeaveGroup, FindCoordinator and JoinGroup depends on the version.
    """

    token: int
    lane: Lane
    api: type[Any]
    build: Callable[[int], Any]
    timeout_ms: int
    optional: bool = False
    """Whether the driver reports a broker that does not know the API by `RequestFailed`. Otherwise the query ends."""
    ceiling: int | None = None
    """The highest version to send."""


@dataclass(frozen=True, slots=True)
class NoCoordinator:
    """The group has no coordinator: its offsets are in ZooKeeper, where any broker reads and writes them (v0)."""


@dataclass(frozen=True, slots=True)
class ResetConnection:
    """Reset this lane's connection (R18: SO_LINGER 0).

    Unanswered requests on it must neither hold up the next request nor arrive later. Unanswered commits are sent again.
    """

    lane: Lane


@dataclass(frozen=True, slots=True)
class CoordinatorFound:
    """Use this broker as the group's coordinator from now on, and close connections to another address."""

    broker: Broker


@dataclass(frozen=True, slots=True)
class NeedTopics:
    """Follow the metadata of these topics from now on, beside those of the subscription.

    They replace the topics of the last `NeedTopics`. `urgent`: the member leads the group and waits for a
    `MetadataRefreshed` of these topics, read anew, to assign the partitions.
    """

    topics: frozenset[str]
    urgent: bool


Partitions = frozenset[TopicPartition]


class JoinCause(StrEnum):
    """Why a member joins its group, in the words of the metrics."""

    START = "start"
    """The query starts."""
    GROUP = "group"
    """Another member comes, goes, or asks for a rebalance."""
    SUBSCRIPTION = "subscription"
    """The subscription of this member matches other topics."""
    PARTITIONS = "partitions"
    """A topic has more or fewer partitions."""
    REVOKED = "revoked"
    """This member gives up partitions that the assignment revoked (R25)."""
    CLAIMS = "claims"
    """Others wait for partitions that this member or its predecessor may hold."""
    IDENTITY = "identity"
    """The members tell each other anew which query each is of (R28)."""
    LOST = "lost"
    """The group, or the session in ZooKeeper, has gone on without this member."""
    COORDINATOR = "coordinator"
    """The connection to the coordinator broke, or the coordinator moved."""


@dataclass(frozen=True, slots=True)
class Joining:
    """The member rejoins. An eager member gives up all partitions now.

    `abandoned`: the member does not wait for its batch in flight, whose partitions all count as gained later (R22).
    `keeps` (R25): a cooperative member keeps its partitions, plans them and commits them under their generation while
    the group rebalances. `gives_up`: the partitions that it gives up all the same. Their batch in flight moves no
    position.
    """

    reason: str
    abandoned: bool
    keeps: bool = False
    gives_up: Partitions = frozenset()
    cause: JoinCause = JoinCause.GROUP


@dataclass(frozen=True, slots=True)
class Assigned:
    """The member holds these partitions in this generation: a SyncGroup has completed.

    `kept` are the partitions held under a completed SyncGroup of the generation directly before, with the same member
    id (R18). All other partitions are gained (R5). `members` and `total` (partitions of all topics of the group) are
    None where the leader did not tell them. `revoked` are the partitions that a
    cooperative member has held until now and that are not among `partitions`. It plans them no more. It commits them
    until the next `Joining`, which `RevocationCompleted` brings about, gives them up.
    """

    generation: int
    member_id: str
    partitions: tuple[TopicPartition, ...]
    kept: frozenset[TopicPartition]
    strategy: str
    leader: bool
    members: int | None
    total: int | None
    cooperative: bool = False
    revoked: frozenset[TopicPartition] = frozenset()
    withheld: int = 0
    """How many partitions have no owner yet: another rebalance follows (R25). 0 also where the leader did not tell
    it."""
    keeper: str = ""
    """The service that keeps the group, if it has no coordinator. Its log line names no generation."""

    def line(self, group_id: str) -> str:
        """Return the log line about this assignment, without the values that the leader did not tell."""
        what = counted(len(self.partitions), "partition")
        if self.total is not None:
            what = f"{len(self.partitions)} of {counted(self.total, 'partition')}"
        where = f"through {self.keeper}" if self.keeper else f"generation {self.generation}"
        line = f"joined {group_id}{' ' if self.keeper else ', '}{where}, {what}"
        if self.members is not None:
            line += f", {counted(self.members - 1, 'other member')}"
        return f"{line}: {self._changes()}" if self.cooperative else line

    def _changes(self) -> str:
        changes = f"keeps {len(self.kept)}, gains {len(self.partitions) - len(self.kept)}"
        return f"{changes}, gives up {len(self.revoked)} after its batch" if self.revoked else changes


@dataclass(frozen=True, slots=True)
class Lost:
    """The group has removed the member, or may have: it holds no partition any more, and its batch in flight is
    lost."""

    reason: str


@dataclass(frozen=True, slots=True)
class GaveUp:
    """The member waits for the batch in flight no longer (R22), so it may be read again.

    `text`: why, and what to do.
    """

    text: str


@dataclass(frozen=True, slots=True)
class Left:
    """The member has left. Nothing follows until another `Start`."""


@dataclass(frozen=True, slots=True)
class Fail:
    """The query fails. Nothing follows until `Stop`."""

    error: StreamGroupError


@dataclass(frozen=True, slots=True)
class WakeAt:
    """Send a `Tick` at this time, instead of at the time of the last `WakeAt`."""

    time: float


@dataclass(frozen=True, slots=True)
class Note:
    """Log a line; `level` is DEBUG, INFO, WARNING or ERROR."""

    level: int
    text: str


Action = (
    Send
    | ResetConnection
    | NoCoordinator
    | CoordinatorFound
    | NeedTopics
    | Joining
    | Assigned
    | Lost
    | GaveUp
    | Left
    | Fail
    | WakeAt
    | Note
)
