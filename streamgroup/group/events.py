"""The events that a member's state machine handles, and the actions that it returns.

The contract of `Membership.step(event, now) -> list[Action]`: the caller (the driver of the machine) carries out the
actions in order, and reports the results as events. Times are `time.monotonic()` values, timeouts milliseconds.

- The driver reports for every `Send` one `RequestAnswered` or one `RequestFailed` with its token, within `timeout_ms`.
  The machine ignores responses with tokens that it has given up.
- If a timer runs or a request is pending, the list of a step ends with one `WakeAt`. The driver sends a `Tick` at that
  time, unless another event comes first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum, StrEnum
from typing import Any

from streamgroup.errors import StreamGroupError
from streamgroup.frozen import frozen
from streamgroup.model import Broker, TopicInfo, TopicPartition
from streamgroup.text import counted

DEBUG, INFO, WARNING, ERROR = 10, 20, 30, 40
"""The levels of a `Note`, with the numbers of Python's `logging`, which the pure rooms do not import."""


class Lane(Enum):
    """The connection that a request takes. A broker answers one request per connection at a time (R10)."""

    ANY = "any"
    """Any broker: FindCoordinator."""
    COORDINATOR = "coordinator"
    """The group coordinator: Heartbeat, LeaveGroup and commits."""
    JOIN = "join"
    """A second connection to the group coordinator: JoinGroup and SyncGroup, which wait for other members."""


# -- events -----------------------------------------------------------------------------------------------------------


@frozen
class Start:
    """Event: join the group with this subscription. A pattern is given as the topics that match it.

    After `Left`, this event lets the member join again (R27).
    """

    topics: tuple[str, ...]
    settles: bool = False
    """The driver sends `Settled` after each assignment with new partitions, and a rejoin waits for it."""


@frozen
class UserDataChanged:
    """Send this data to the other members with every later JoinGroup, as user data of the subscription (R28).

    `lasts`: also after a loss of the membership. Data without it is sent until the loss; after it the member sends the
    newest data that lasts. `rejoins`: a stable member of a Kafka group rejoins immediately to send it.
    """

    data: bytes
    lasts: bool = True
    rejoins: bool = False


@frozen
class Stop:
    """Leave the group. A static member stays in the group until its session expires (R29)."""


@frozen
class Tick:
    """The time of the last `WakeAt` is reached. A tick at any other time has no effect."""


@frozen
class RequestAnswered:
    """Event: the response to the `Send` with this token. `version` is the version of the request."""

    token: int
    response: Any
    version: int


@frozen
class RequestFailed:
    """The `Send` with this token failed: its connection was lost or could not be opened, or it timed out.

    After a timeout the driver has reset the connection.
    """

    token: int
    reason: str
    unsupported: bool = False
    """Whether the broker does not support the API. Only an `optional` request fails in this way."""
    moved: bool = False
    """Whether the driver closed the connection because another broker is the group coordinator now."""


@frozen
class CoordinatorGone:
    """The connection to the group coordinator was lost, or a request of the offset store to it failed."""

    reason: str


@frozen
class MetadataRefreshed:
    """The driver has read metadata: `asked` are the topics of the request, `topics` those of them that exist.

    The driver sends it at each refresh, at least for the topics of the last `NeedTopics`.
    """

    topics: Mapping[str, TopicInfo]
    asked: frozenset[str]


@frozen
class Subscribed:
    """The member's subscription now matches these topics (R23). The same topics as before have no effect."""

    topics: tuple[str, ...]


@frozen
class Planned:
    """Event: a document with ranges was passed to Spark, so a batch is in flight (R21)."""


@frozen
class Asked:
    """Event: Spark has called `partitions` for a new document or a replay, so its tasks start now (R22)."""

    listened: bool = False
    """Whether a listener will report when the batch is completed. Until then the batch is running."""


@frozen
class Idle:
    """Event: a batch boundary. Every document passed to Spark is completed, and no commit is due or pending (R21)."""


@frozen
class RevocationCompleted:
    """Event: the partitions that the last `Assigned` revoked can be given up (R25).

    They are not in the batch in flight, and no commit of them is due or pending.
    """


@frozen
class Settled:
    """Event: the start positions of the last `Assigned` that only this member could determine are committed (R6)."""


@frozen
class CommitAccepted:
    """Event: a commit with this member id and generation, sent at `sent_at`, was accepted."""

    member_id: str
    generation: int
    sent_at: float


@frozen
class CommitRefused:
    """Event: the response to a commit with this member id and generation was this error code."""

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


@frozen
class Send:
    """Send a request on this lane, in the highest version of `api` that client and broker support.

    `build(version)` returns the message.
    """

    token: int
    lane: Lane
    api: type[Any]
    build: Callable[[int], Any]
    timeout_ms: int
    optional: bool = False
    """Whether a broker without this API is reported as `RequestFailed`. If False, the query fails."""
    ceiling: int | None = None
    """The highest version to send; None: the highest that both support."""


@frozen
class NoCoordinator:
    """Action: use any broker. With offsets in ZooKeeper (v0), Kafka needs no group coordinator."""


@frozen
class ResetConnection:
    """Reset this lane's connection (R18: SO_LINGER 0).

    Pending requests on it must neither delay the next request nor arrive later. Pending commits are sent again.
    """

    lane: Lane


@frozen
class CoordinatorFound:
    """Use this broker as the group coordinator from now on, and close connections to another address."""

    broker: Broker


@frozen
class NeedTopics:
    """Refresh the metadata of these topics from now on, in addition to those of the subscription.

    They replace the topics of the last `NeedTopics`. `urgent`: refresh now, because the member leads the group and
    waits for `MetadataRefreshed` to assign the partitions.
    """

    topics: frozenset[str]
    urgent: bool


Partitions = frozenset[TopicPartition]


class JoinCause(StrEnum):
    """Why a member joins its group, in the words of the metrics."""

    START = "start"
    """The query starts."""
    GROUP = "group"
    """The group rebalances for another member."""
    SUBSCRIPTION = "subscription"
    """The subscription of this member matches other topics."""
    PARTITIONS = "partitions"
    """The number of partitions of a topic has changed."""
    REVOKED = "revoked"
    """This member gives up partitions that the assignment revoked (R25)."""
    CLAIMS = "claims"
    """Other members wait for partitions that this member or its predecessor may hold."""
    IDENTITY = "identity"
    """The members report again to which query each belongs (R28)."""
    LOST = "lost"
    """The group has removed this member, or its ZooKeeper session has expired."""
    COORDINATOR = "coordinator"
    """The connection to the group coordinator was lost, or the group coordinator has moved."""


@frozen
class Joining:
    """Action: the member rejoins. An eager member gives up all partitions now.

    `abandoned`: the member does not wait for its batch in flight; the partitions of that batch all count as newly
    assigned later (R22). `keeps` (R25): a cooperative member keeps its partitions, and plans and commits them in their
    generation during the rebalance. `gives_up`: the revoked partitions that it gives up; their batch in flight moves no
    position.
    """

    reason: str
    abandoned: bool
    keeps: bool = False
    gives_up: Partitions = frozenset()
    cause: JoinCause = JoinCause.GROUP


@frozen
class Assigned:
    """Action: the member owns these partitions in this generation, because a SyncGroup has completed.

    `kept` are the partitions that the same member id owned in the generation directly before (R18). All other
    partitions are gained (R5). `members` and `total` (partitions of all topics of the group) are None if the leader did
    not write them. `revoked` are partitions that a cooperative member has owned until now and that are not among
    `partitions`. The member no longer plans them, but commits them until it gives them up, after `RevocationCompleted`.
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
    """The number of partitions without an owner: another rebalance follows (R25). 0 if the leader did not write it."""
    keeper: str = ""
    """The service that stores the group if it has no group coordinator. The log line then names no generation."""
    leader_id: str = ""
    """The member id of the group's leader; empty if the group has none."""
    is_epoch: bool = False
    """Whether `generation` is the epoch of this member under the consumer protocol, and not the group's generation."""

    def line(self, group_id: str) -> str:
        """Return the log line about this assignment, without values that the leader did not write."""
        what = counted(len(self.partitions), "partition")
        if self.total is not None:
            what = f"{len(self.partitions)} of {counted(self.total, 'partition')}"
        number = f"{'epoch' if self.is_epoch else 'generation'} {self.generation}"
        where = f"through {self.keeper}" if self.keeper else number
        line = f"joined {group_id}{' ' if self.keeper else ', '}{where}, {what}"
        if self.members is not None:
            line += f", {counted(self.members - 1, 'other member')}"
        return f"{line}: {self._changes()}" if self.cooperative else line

    def _changes(self) -> str:
        changes = f"keeps {len(self.kept)}, gains {len(self.partitions) - len(self.kept)}"
        return f"{changes}, gives up {len(self.revoked)} after its batch" if self.revoked else changes


@frozen
class Released:
    """Action: the member has given up these revoked partitions. Under the consumer protocol no rejoin follows."""

    partitions: Partitions


@frozen
class Withheld:
    """Action: the group will assign so many more partitions to this member. It replaces the number in `Assigned`."""

    count: int


@frozen
class Lost:
    """Action: the group has removed the member, or may have. It owns no partitions, and its batch in flight is lost."""

    reason: str


@frozen
class GaveUp:
    """Action: the member stops waiting for the batch in flight (R22), so that batch may be read again.

    `text` says why, and what the user can do.
    """

    text: str


@frozen
class Left:
    """The member has left. No action follows until another `Start`."""


@frozen
class Fail:
    """The query fails. No action follows until `Stop`."""

    error: StreamGroupError
    refuses_protocol: bool = False
    """Whether the group coordinator refuses the protocol of this member, but perhaps not the other one."""


@frozen
class WakeAt:
    """Send a `Tick` at this time, instead of at the time of the last `WakeAt`."""

    time: float


@frozen
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
    | Released
    | Withheld
    | Lost
    | GaveUp
    | Left
    | Fail
    | WakeAt
    | Note
)
