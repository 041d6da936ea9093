"""State of a member of a group in ZooKeeper: its session, its registration, and the group as last read.

These are values and operations: this module reads and writes no node.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from enum import Enum

from streamgroup.group.registry import nodes as f
from streamgroup.group.registry.nodes import GroupPaths, Incarnation
from streamgroup.group.registry.view import Consumer, OwnerNode, View
from streamgroup.model import TopicPartition
from streamgroup.text import counted
from streamgroup.znodes import Check, Create, Delete, Operation, Set, Subtree, ZNode

OPERATIONS_MOST = 400
"""The most operations of one transaction. Even with paths of 2 KiB it is smaller than the mebibyte that ZooKeeper
accepts (`jute.maxbuffer`)."""

_OTHER_TOPICS = ("",)
"""A registered subscription that differs from the current one: no topic has this name."""


class Registration:
    """The nodes that the member has registered in ZooKeeper, and the operations that register, renew and claim.

    `new_incarnation` returns a consumer id. It is called once a session, and again if the id is taken.
    """

    __slots__ = ("_me", "_new_incarnation", "_paths", "_sent", "identity", "session", "topics")

    def __init__(self, paths: GroupPaths, new_incarnation: Callable[[], Incarnation]) -> None:
        self._paths = paths
        self._new_incarnation = new_incarnation
        self._me = Incarnation("", 0)
        self.session: int | None = None
        """ZooKeeper's id of the session; None without a session."""
        self.topics: tuple[str, ...] | None = None
        """The registered subscription; None if it is unknown, or if the member may not be registered."""
        self.identity: bytes | None = None
        """The registered identity (R28)."""
        self._sent: tuple[tuple[str, ...], bytes] = ((), b"")
        """The subscription and the identity that the pending transaction registers."""

    @property
    def consumer_id(self) -> str:
        """The consumer id of this session, `""` before the first."""
        return self._me.consumer_id

    @property
    def path(self) -> str:
        return self._paths.consumer(self.consumer_id)

    @property
    def fence(self) -> Check:
        """The operation that makes a transaction fail if the member's id node is gone (R31)."""
        return Check(self.path)

    @property
    def subtree(self) -> Subtree:
        """The member's id node, to be read without a watch."""
        return Subtree(self.path, depth=0, watch=False)

    def is_of_session(self, owner: OwnerNode) -> bool:
        """Return whether this session created an owner node, perhaps under an earlier consumer id."""
        return owner.session_id == self.session

    def is_mine(self, owner: OwnerNode) -> bool:
        """Return whether this session created an owner node under the current consumer id."""
        return self.is_of_session(owner) and owner.consumer_id == self.consumer_id

    # -- what is known ------------------------------------------------------------------------------------------------

    def forget(self) -> None:
        """Forget the registration and the consumer id: the next registration has another id."""
        self._me = Incarnation("", 0)
        self.doubt()

    def doubt(self) -> None:
        """Mark the registration as unknown: a transaction that changes it was not answered."""
        self.topics = self.identity = None

    def accept(self) -> None:
        """Record that the pending transaction has taken effect."""
        self.topics, self.identity = self._sent

    def recognize(self, node: ZNode, topics: tuple[str, ...]) -> None:
        """Read the subscription from the member's id node if it is unknown. `topics` is the current subscription."""
        if self.topics is None:  # a registration was not answered: the node has it, or the one before it
            self.topics = topics if node.data == self._data(topics) else _OTHER_TOPICS

    # -- operations ---------------------------------------------------------------------------------------------------

    def _data(self, topics: Iterable[str]) -> bytes:
        return f.registration(self._paths.dialect, topics, self._me.timestamp_ms)

    def create(self, topics: tuple[str, ...], identity: bytes) -> tuple[Operation, ...]:
        """Return the operations that register the member, under a new id if it has none."""
        if not self.consumer_id:
            self._me = self._new_incarnation()
        self._sent = topics, identity
        member = Create(self._paths.member(self.consumer_id), identity, ephemeral=True)
        return Create(self.path, self._data(topics), ephemeral=True), member

    def renew(self, topics: tuple[str, ...], identity: bytes) -> tuple[Operation, ...]:
        """Return the operations that replace the id node in one step.

        No consumer sees the group without the member, and all consumers that watch the group rebalance.
        """
        self._sent = topics, identity
        return Delete(self.path), Create(self.path, self._data(topics), ephemeral=True)

    def identify(self, topics: tuple[str, ...], identity: bytes) -> tuple[Operation, ...]:
        self._sent = topics, identity
        return self.fence, Set(self._paths.member(self.consumer_id), identity)

    def sweep(self, consumer: Consumer) -> tuple[Operation, ...]:
        name = consumer.consumer_id
        nodes = [Delete(self._paths.consumer(name))]
        if consumer.is_ours:
            nodes.append(Delete(self._paths.member(name)))
        return (self.fence, *nodes)

    def delete(self) -> tuple[Operation, ...]:
        return Delete(self.path), Delete(self._paths.member(self.consumer_id))

    def claim(self, tp: TopicPartition, earlier: OwnerNode | None) -> tuple[Operation, ...]:
        """Return the operations that claim a partition.

        `earlier` is its owner node if this session owns it under an earlier consumer id: it is replaced.
        """
        path = self._paths.owner(tp)
        replaced = () if earlier is None else (Delete(path, earlier.version),)
        return self.fence, *replaced, Create(path, f.owner_data(f"{self.consumer_id}-0"), ephemeral=True)

    def fenced(self, operations: list[Delete]) -> Iterable[tuple[Operation, ...]]:
        """Yield the operations in transactions of at most `OPERATIONS_MOST`, each with the fence."""
        for some in in_transactions(operations):
            yield (self.fence, *some)


def in_transactions(operations: list[Delete]) -> Iterable[list[Operation]]:
    """Yield the operations in groups of at most `OPERATIONS_MOST`."""
    for start in range(0, len(operations), OPERATIONS_MOST):
        yield [*operations[start : start + OPERATIONS_MOST]]


class SessionLease:
    """Tracks whether the session is connected, its timeout, and when the member's lease was renewed (R9).

    The lease is the time in which the member may plan. `asked_ms` is the session timeout that the member requests.
    Times are `time.monotonic()` values.
    """

    __slots__ = ("_asked_ms", "_renewed_at", "connected", "proven", "timeout_ms")

    def __init__(self, asked_ms: int) -> None:
        self._asked_ms = asked_ms
        self.timeout_ms = asked_ms
        """The timeout that ZooKeeper grants, at most the requested one."""
        self.connected = False
        self.proven = False
        """Whether the member's node was read since the last connection or reconnection."""
        self._renewed_at: float | None = None

    def began(self, timeout_ms: int) -> None:
        """Record a new session with this timeout."""
        self.connected, self.timeout_ms = True, min(self._asked_ms, timeout_ms)

    def suspended(self) -> None:
        self.connected = self.proven = False
        self._renewed_at = None

    def renew(self, sent_at: float) -> None:
        """Renew the lease: a transaction or a commit that was sent at this time was accepted."""
        self._renewed_at = max(sent_at, self._renewed_at or sent_at)

    def end_lease(self) -> None:
        """End the lease: the member leaves, or the query fails."""
        self._renewed_at = None

    def unregistered(self) -> None:
        self._renewed_at, self.proven = None, False

    @property
    def lease_at(self) -> float | None:
        """When the lease was last renewed; None without a lease.

        Callers add the requested session timeout to this time. If ZooKeeper has granted a shorter one, the difference
        is subtracted here.
        """
        if self._renewed_at is None or not (self.connected and self.proven):
            return None
        return self._renewed_at - (self._asked_ms - self.timeout_ms) / 1000


_NOTHING: frozenset[TopicPartition] = frozenset()


class Seen:
    """The consumers and owners as last read from ZooKeeper, and whether they may have changed since.

    `wanted` are the partitions that this member should own, `mine` those that it owns.
    """

    def __init__(self, registration: Registration) -> None:
        self._registration = registration
        self.view: View | None = None
        self.view_stale = False
        """Whether a watch has fired since the last read of the group was sent."""
        self.shares: Mapping[TopicPartition, str] = {}
        """The thread that should own each partition."""
        self.owners: Mapping[TopicPartition, OwnerNode] = {}
        self.owners_stale = False
        self.unconfirmed = False
        """Whether this member has written since the owners were read."""
        self.kept = _NOTHING
        """The partitions held that this member has owned without interruption."""

    def forget(self) -> None:
        """Forget everything except the partitions kept: the registration is gone."""
        self.view = None
        self.shares, self.owners = {}, {}
        self.unconfirmed = self.view_stale = self.owners_stale = False

    def look_began(self) -> None:
        """Record that a read of the group was sent: watches that fire from now on make it outdated again."""
        self.view_stale = self.owners_stale = self.unconfirmed = False

    def confirm_began(self) -> None:
        """Record that a read of the owners was sent."""
        self.owners_stale = self.unconfirmed = False

    def see(self, view: View) -> None:
        self.view, self.shares = view, view.shares()
        self.see_owners(view.owners)

    def see_owners(self, owners: Mapping[TopicPartition, OwnerNode]) -> None:
        self.owners = owners
        self.kept &= self.mine

    def released(self, partitions: frozenset[TopicPartition]) -> None:
        """Treat partitions that are being released as partitions without an owner until the next read.

        Another member may claim them immediately, by a node with the same path and version. A member that leaves before
        its next read must not delete that node (R31).
        """
        self.owners = {tp: owner for tp, owner in self.owners.items() if tp not in partitions}
        self.kept -= partitions
        self.unconfirmed |= bool(partitions)

    # -- wanted and seen ----------------------------------------------------------------------------------------------

    @property
    def mine(self) -> frozenset[TopicPartition]:
        return frozenset(tp for tp, owner in self.owners.items() if self._registration.is_mine(owner))

    @property
    def wanted(self) -> frozenset[TopicPartition]:
        me = self._registration.consumer_id
        return frozenset(tp for tp, thread in self.shares.items() if f.consumer_of(thread) == me)

    def surplus(self, wanted: frozenset[TopicPartition]) -> list[TopicPartition]:
        """Return the partitions that this session owns and that are not wanted, sorted."""
        of_session = self._registration.is_of_session
        return [tp for tp, owner in sorted(self.owners.items()) if of_session(owner) and tp not in wanted]

    def is_free(self, tp: TopicPartition) -> bool:
        """Return whether no other session owns a partition; this one may, under an earlier consumer id."""
        owner = self.owners.get(tp)
        return owner is None or self._registration.is_of_session(owner)

    def leftovers(self) -> list[Consumer]:
        """Return the earlier registrations of this session, sorted by id.

        While the session is alive, no member would claim the partitions that they should own.
        """
        consumers = () if self.view is None else self.view.consumers.values()
        me = self._registration
        earlier = (c for c in consumers if c.session_id == me.session and c.consumer_id != me.consumer_id)
        return sorted(earlier, key=lambda consumer: consumer.consumer_id)

    def owned_topics(self) -> set[str]:
        return {tp.topic for tp, owner in self.owners.items() if self._registration.is_of_session(owner)}

    def unclaimed(self, consumers: Collection[str]) -> tuple[list[str], bool]:
        """Return the consumer of each partition that one of `consumers` should own and that has no owner.

        Also return whether another consumer has not yet released a partition that one of them should own.
        """
        theirs = [tp for tp, thread in self.shares.items() if f.consumer_of(thread) in consumers]
        unclaimed = [f.consumer_of(self.shares[tp]) for tp in theirs if tp not in self.owners]
        unreleased = any(tp in self.owners and self.owners[tp].thread != self.shares[tp] for tp in theirs)
        return unclaimed, unreleased

    # -- for the log --------------------------------------------------------------------------------------------------

    def waited_for(self, view: View, missing: frozenset[TopicPartition]) -> str | None:
        """Return which registered consumers still own the `missing` partitions, in words; None if there are none."""
        owned = {self.owners[tp].consumer_id for tp in missing if tp in self.owners}
        keepers = sorted(owned & view.consumers.keys())
        if not keepers:
            return None
        more = f" and {counted(len(keepers) - 1, 'other')}" if len(keepers) > 1 else ""
        text = f"still owned by {keepers[0]}{more}: {counted(len(missing), 'partition')} of this member"
        return f"{text}: claimed once they are released"

    def lingering(self, view: View, missing: frozenset[TopicPartition], paths: GroupPaths) -> Iterator[str]:
        """Yield, in words, each missing partition that an unregistered consumer still owns."""
        for tp in sorted(missing):
            owner = self.owners.get(tp)
            if owner is not None and owner.consumer_id not in view.consumers:
                who = f"{owner.thread!r}, which is not registered" if owner.thread else "an owner node without a name"
                yield (
                    f"{tp} is assigned to this member but still owned by {who}: waiting until {paths.owner(tp)} "
                    f"is deleted with its session {owner.session_id:#x}"
                )

    def next_generation(self, view: View, held: frozenset[TopicPartition], current: int) -> int:
        """Return the generation of the view, a zxid. Members that have read the same nodes have the same generation.

        A second assignment from one view has the zxid of its newest claim. Each generation is larger than the last.
        """
        if view.generation > current:
            return view.generation
        return max(current + 1, *(self.owners[tp].czxid for tp in held), 0)


NOTED_MOST = 1000
"""The most texts that are remembered. They name nodes and sessions, so there are always new ones. At this number all
are forgotten, and those that still apply are logged once more."""


class LoggedTexts:
    """Remembers which texts were logged, so that none is logged twice."""

    __slots__ = ("_texts",)

    def __init__(self) -> None:
        self._texts: set[str] = set()

    def __len__(self) -> int:
        return len(self._texts)

    def is_new(self, text: str) -> bool:
        """Return whether this text has not been logged yet, and remember it."""
        if text in self._texts:
            return False
        if len(self._texts) >= NOTED_MOST:
            self._texts.clear()
        self._texts.add(text)
        return True


class RegistryPurpose(Enum):
    """The purpose of a `ReadSubtrees` or a `Transact`, in words for the log."""

    REGISTER = "register"
    RENEW = "register again"
    """Register the same id with another subscription, or to force a rebalance (R33)."""
    IDENTIFY = "write its identity"
    SWEEP = "delete an earlier registration"
    LOOK = "read the group"
    RELEASE = "give partitions up"
    CLAIM = "claim partitions"
    CONFIRM = "read the owners"
    HEARTBEAT = "check its registration"
    NEIGHBOURS = "read what others own"
    LEAVE = "leave"

    def __str__(self) -> str:
        return self.value


class RegistryTimer(Enum):
    """The timers of a member, in the order in which due ones are handled."""

    LEAVE = "leaving overdue"
    REJOIN = "release due"
    RETRY = "retry due"
    PARTIAL = "waited for owners"
    FORCE_REBALANCE = "rebalance to force"
    HEARTBEAT = "heartbeat due"


FORCED_REBALANCE_AFTER_S = 10.0
"""A consumer of another client that has not claimed its partitions after this time has given up."""
FORCED_REBALANCE_MAX_S = 160.0
"""The longest wait between forced rebalances. A rebalance stops all consumers briefly, so a member whose forced
rebalances have no effect makes them less often."""


class ForcedRebalanceBackoff:
    """The waits between forced rebalances. They double until the group has other consumers (R33).

    To force a rebalance the member deletes and creates its own id node in one transaction. All consumers of the group
    watch the id nodes, so they claim their partitions again.
    """

    __slots__ = ("wait_s",)

    def __init__(self) -> None:
        self.wait_s = FORCED_REBALANCE_AFTER_S
        """The seconds until the next forced rebalance."""

    def add(self) -> None:
        """Count a forced rebalance: the next wait is twice as long, at most FORCED_REBALANCE_MAX_S."""
        self.wait_s = min(2 * self.wait_s, FORCED_REBALANCE_MAX_S)

    def reset(self) -> None:
        """Start again at the first wait: the group has other consumers."""
        self.wait_s = FORCED_REBALANCE_AFTER_S
