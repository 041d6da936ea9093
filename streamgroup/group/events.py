"""What the membership machine hears (events) and what it wants done (actions).

The contract of `Membership.step(event, now) -> list[Action]`: the driver carries the actions out in their order and
reports back. Times are seconds of one monotonic clock; timeouts are milliseconds, as everywhere in Kafka.

- Every `Send` is answered by one `Answered` or one `Failed` with its token, `Failed` at the latest `timeout_ms` after
  it. Tokens that the machine has given up may be answered all the same: they are ignored.
- The list of each step ends with one `WakeAt` where anything is pending: send a `Tick` then, unless another event comes
  first. A list without one means that there is nothing to wait for but the driver's own events.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from streamgroup.errors import StreamGroupError
from streamgroup.model import Broker, TopicInfo, TopicPartition

DEBUG, INFO, WARNING = 10, 20, 30
"""The levels of a `Note`: numbers of the standard library's logging, which the pure rooms do not import."""


class Lane(Enum):
    """Which connection a request takes. A broker answers one request per connection at a time (R10)."""

    ANY = "any"
    """Any broker: FindCoordinator."""
    COORDINATOR = "coordinator"
    """The coordinator: Heartbeat and LeaveGroup; the driver's commits take it as well."""
    JOIN = "join"
    """A connection of its own to the coordinator: JoinGroup and SyncGroup, which wait for other members."""


# -- events -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Start:
    """Join the group with this subscription (of a pattern: what it resolves to). One that has left joins anew (R27)."""

    topics: tuple[str, ...]
    settles: bool = False
    """`Settled` follows each assignment that brings new partitions; a rejoin waits for it."""


@dataclass(frozen=True, slots=True)
class Identified:
    """What every later JoinGroup tells the other members about this one, as user data of its subscription (R28)."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Stop:
    """Stop being a member: leave the group. A static member stays, its partitions wait for its return (R29)."""


@dataclass(frozen=True, slots=True)
class Tick:
    """The time of the last `WakeAt` has come (or any other time: harmless)."""


@dataclass(frozen=True, slots=True)
class Answered:
    """The answer to the `Send` with this token; `version` is the one that the request was sent in."""

    token: int
    response: Any
    version: int


@dataclass(frozen=True, slots=True)
class Failed:
    """The `Send` with this token has no answer: its connection was lost or could not be made, or its time is over (the
    driver has then reset the connection)."""

    token: int
    reason: str
    unsupported: bool = False
    """The broker does not know what was asked (only of a `Send` that is `optional`)."""


@dataclass(frozen=True, slots=True)
class CoordinatorGone:
    """A connection to the coordinator broke, or a request of the driver's own to it failed."""

    reason: str


@dataclass(frozen=True, slots=True)
class TopicsKnown:
    """The cluster's metadata was read: `asked` are the topics asked for, `topics` those of them that exist.

    Sent at each refresh, at least of the topics of the last `NeedTopics`.
    """

    topics: Mapping[str, TopicInfo]
    asked: frozenset[str]


@dataclass(frozen=True, slots=True)
class Subscribed:
    """The own subscription now resolves to these topics (R23). The same as before is harmless."""

    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Planned:
    """A document with ranges was emitted: a batch is in flight (R21)."""


@dataclass(frozen=True, slots=True)
class Asked:
    """The partitions of a document were asked: its tasks start now (R22). Also for a replay, which nobody planned."""

    listened: bool = False
    """A listener tells at once when the batch has sunk: until then it runs."""


@dataclass(frozen=True, slots=True)
class Idle:
    """The boundary of a batch: every document emitted is proven sunk, no commit is due or unanswered (R21)."""


@dataclass(frozen=True, slots=True)
class Released:
    """No batch in flight and no commit concerns any more what the last `Assigned` revoked: it can be given up (R25)."""


@dataclass(frozen=True, slots=True)
class Settled:
    """Where the partitions start that the last `Assigned` brought is found and committed, as far as no later owner of
    them could find it (R6)."""


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
    | Identified
    | Stop
    | Tick
    | Answered
    | Failed
    | CoordinatorGone
    | TopicsKnown
    | Subscribed
    | Planned
    | Asked
    | Idle
    | Released
    | Settled
    | CommitAccepted
    | CommitRefused
)


# -- actions ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Send:
    """Send a request on this lane; its version is the connection's highest common one for `api`.

    `build(version)` gives the message: the shape of some (LeaveGroup, FindCoordinator, JoinGroup v0) depends on it.
    """

    token: int
    lane: Lane
    api: type[Any]
    build: Callable[[int], Any]
    timeout_ms: int
    optional: bool = False
    """Whether a broker that does not know the API is told by `Failed`; else it ends the query."""
    ceiling: int | None = None
    """The highest version that is meant."""


@dataclass(frozen=True, slots=True)
class NoCoordinator:
    """The group has no coordinator: its offsets lie in ZooKeeper, where any broker reads and writes them (v0)."""


@dataclass(frozen=True, slots=True)
class Reset:
    """Give up this lane's connection (R18: SO_LINGER 0): what is unanswered on it must neither block the next request
    nor arrive later. Commits unanswered on it are to be sent again."""

    lane: Lane


@dataclass(frozen=True, slots=True)
class CoordinatorFound:
    """The group's coordinator from now on; replaces the one before (connections to another address are given up)."""

    broker: Broker


@dataclass(frozen=True, slots=True)
class NeedTopics:
    """Follow the metadata of these topics from now on, instead of those of the last `NeedTopics`, beside what the own
    subscription needs. `urgent`: the member leads and waits for a `TopicsKnown` of them, read anew, to assign; without
    it they may be read anew as well."""

    topics: frozenset[str]
    urgent: bool


@dataclass(frozen=True, slots=True)
class Joining:
    """The member rejoins. In the eager protocol all partitions are given up now.

    `abandoned`: a document in flight is not waited for; all its partitions count as gained later (R22).
    `keeps` (R25): what is held stays held; it is planned and committed under its generation while the group rebalances.
    `gives_up`: but for these, which are held no more; what is in flight of them moves no position.
    """

    reason: str
    abandoned: bool
    keeps: bool = False
    gives_up: frozenset[TopicPartition] = frozenset()


@dataclass(frozen=True, slots=True)
class Assigned:
    """A SyncGroup of this generation has completed.

    `kept` are the partitions held under a completed SyncGroup of the generation directly before, with the same member
    id (R18); all others of `partitions` are gained (R5). `members` and `total` (partitions of all topics of the group)
    are None where the leader, a consumer of another make, did not tell them. `revoked` (cooperative only) are those
    held until now that are not among `partitions`: planned no more, but committed until the next `Joining` gives them
    up, which `Released` brings about.
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
    """So many partitions have no owner yet: another rebalance follows (R25). 0 also where the leader did not tell."""
    keeper: str = ""
    """What keeps the group, if not its coordinator; generations are the ledger's alone there."""

    def line(self, group_id: str) -> str:
        """The line that a reader of the log looks for first; what the leader did not tell is left out."""
        what = f"{len(self.partitions)} partitions"
        if self.total is not None:
            what = f"{len(self.partitions)} of {self.total} partitions"
        where = f"through {self.keeper}" if self.keeper else f"generation {self.generation}"
        line = f"joined {group_id}{' ' if self.keeper else ', '}{where}, {what}"
        if self.members is not None:
            line += f", {self.members - 1} other member{'' if self.members == 2 else 's'}"
        return f"{line}: {self._changes()}" if self.cooperative else line

    def _changes(self) -> str:
        changes = f"keeps {len(self.kept)}, gains {len(self.partitions) - len(self.kept)}"
        return f"{changes}, gives up {len(self.revoked)} after its batch" if self.revoked else changes


@dataclass(frozen=True, slots=True)
class Lost:
    """The member was put out of the group, or must assume so: all partitions are gone, the document in flight too."""

    reason: str


@dataclass(frozen=True, slots=True)
class GaveUp:
    """The batch in flight is waited for no longer (R22): it may be read again. `text` says why, and what to do."""

    text: str


@dataclass(frozen=True, slots=True)
class Left:
    """The member is no member any more; nothing follows but what another `Start` brings."""


@dataclass(frozen=True, slots=True)
class Fail:
    """The query cannot go on; nothing follows but what `Stop` brings."""

    error: StreamGroupError


@dataclass(frozen=True, slots=True)
class WakeAt:
    """Send a `Tick` at this time. Replaces the one before."""

    time: float


@dataclass(frozen=True, slots=True)
class Note:
    """A line for the log; `level` is DEBUG, INFO or WARNING."""

    level: int
    text: str


Action = (
    Send
    | Reset
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
