"""A member's session in ZooKeeper, and the nodes by which it registers the member in a group.

Both are values: no node is read or written here.
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
"""The operations of one transaction. With paths of 2 KiB each it stays well below the mebibyte that ZooKeeper accepts
(`jute.maxbuffer`)."""

_OTHER_TOPICS = ("",)
"""Stands for a registered subscription that is not the wanted one: no topic has this name."""


class Registration:
    """The registration of a member, as far as the member knows it.

    `new_incarnation` is asked for a consumer id once a session, and again where an id turns out to be taken.
    """

    __slots__ = ("_me", "_new_incarnation", "_paths", "_sent", "identity", "session", "topics")

    def __init__(self, paths: GroupPaths, new_incarnation: Callable[[], Incarnation]) -> None:
        self._paths = paths
        self._new_incarnation = new_incarnation
        self._me = Incarnation("", 0)
        self.session: int | None = None
        """ZooKeeper's id of the session; None while there is none."""
        self.topics: tuple[str, ...] | None = None
        """The registered subscription. None: it is not known, or not even whether the member is registered."""
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
        """The path of the member's own id node."""
        return self._paths.consumer(self.consumer_id)

    @property
    def fence(self) -> Check:
        """The operation that refuses a transaction where the own id node is gone (R31)."""
        return Check(self.path)

    @property
    def subtree(self) -> Subtree:
        """The own id node, to be read without a watch."""
        return Subtree(self.path, depth=0, watch=False)

    def is_of_session(self, owner: OwnerNode) -> bool:
        """Return whether this session made an owner node, perhaps as a consumer that it was before."""
        return owner.session_id == self.session

    def is_mine(self, owner: OwnerNode) -> bool:
        """Return whether this session made an owner node as the consumer that it is now."""
        return self.is_of_session(owner) and owner.consumer_id == self.consumer_id

    # -- what is known ------------------------------------------------------------------------------------------------

    def forget(self) -> None:
        """Forget the consumer id as well: the next registration has another one."""
        self._me = Incarnation("", 0)
        self.doubt()

    def doubt(self) -> None:
        """Take the registration for unknown: a transaction that changes it has no answer."""
        self.topics = self.identity = None

    def accept(self) -> None:
        """Take the pending transaction for carried out."""
        self.topics, self.identity = self._sent

    def recognize(self, node: ZNode, topics: tuple[str, ...]) -> None:
        """Take the subscription from the own id node, where it is not known. `topics` is the wanted one."""
        if self.topics is None:  # a registration without an answer: it was carried out, or the one before it
            self.topics = topics if node.data == self._data(topics) else _OTHER_TOPICS

    # -- operations ---------------------------------------------------------------------------------------------------

    def _data(self, topics: Iterable[str]) -> bytes:
        return f.registration(self._paths.dialect, topics, self._me.timestamp_ms)

    def create(self, topics: tuple[str, ...], identity: bytes) -> tuple[Operation, ...]:
        """Return the operations that register the member, under a new id where it has none."""
        if not self.consumer_id:
            self._me = self._new_incarnation()
        self._sent = topics, identity
        member = Create(self._paths.member(self.consumer_id), identity, ephemeral=True)
        return Create(self.path, self._data(topics), ephemeral=True), member

    def renew(self, topics: tuple[str, ...], identity: bytes) -> tuple[Operation, ...]:
        """Return the operations that replace the id node in one step.

        Nobody sees the group without the member, and all who watch the group look again.
        """
        self._sent = topics, identity
        return Delete(self.path), Create(self.path, self._data(topics), ephemeral=True)

    def identify(self, topics: tuple[str, ...], identity: bytes) -> tuple[Operation, ...]:
        """Return the operations that change the identity."""
        self._sent = topics, identity
        return self.fence, Set(self._paths.member(self.consumer_id), identity)

    def sweep(self, consumer: Consumer) -> tuple[Operation, ...]:
        """Return the operations that delete an earlier consumer of this session."""
        name = consumer.consumer_id
        nodes = [Delete(self._paths.consumer(name))]
        if consumer.is_ours:
            nodes.append(Delete(self._paths.member(name)))
        return (self.fence, *nodes)

    def delete(self) -> tuple[Operation, ...]:
        return Delete(self.path), Delete(self._paths.member(self.consumer_id))

    def claim(self, tp: TopicPartition, earlier: OwnerNode | None) -> tuple[Operation, ...]:
        """Return the operations that claim a partition.

        `earlier` is its owner node where an earlier consumer of this session has one: it is replaced.
        """
        path = self._paths.owner(tp)
        replaced = () if earlier is None else (Delete(path, earlier.version),)
        return self.fence, *replaced, Create(path, f.owner_data(f"{self.consumer_id}-0"), ephemeral=True)

    def fenced(self, operations: list[Delete]) -> Iterable[tuple[Operation, ...]]:
        """Yield the operations in transactions of `OPERATIONS_MOST`, each with the fence."""
        for some in in_transactions(operations):
            yield (self.fence, *some)


def in_transactions(operations: list[Delete]) -> Iterable[list[Operation]]:
    """Yield as many operations as one transaction takes at a time."""
    for start in range(0, len(operations), OPERATIONS_MOST):
        yield [*operations[start : start + OPERATIONS_MOST]]


class SessionLease:
    """Whether the session is connected, how long it lasts, and since when the member has a lease (R9).

    `asked_ms` is the session timeout that the member asks for. Times are monotonic seconds.
    """

    __slots__ = ("_asked_ms", "_renewed_at", "connected", "proven", "timeout_ms")

    def __init__(self, asked_ms: int) -> None:
        self._asked_ms = asked_ms
        self.timeout_ms = asked_ms
        """The timeout that ZooKeeper grants, at most the one asked for."""
        self.connected = False
        self.proven = False
        """Whether the own node was seen since the connection was made, or made again."""
        self._renewed_at: float | None = None

    def began(self, timeout_ms: int) -> None:
        """Note a new session with this timeout."""
        self.connected, self.timeout_ms = True, min(self._asked_ms, timeout_ms)

    def suspended(self) -> None:
        """Note that the connection is lost."""
        self.connected = self.proven = False
        self._renewed_at = None

    def renew(self, sent_at: float) -> None:
        """Renew the lease by a transaction or a commit that was sent at this time and accepted."""
        self._renewed_at = max(sent_at, self._renewed_at or sent_at)

    def end_lease(self) -> None:
        """End the lease: the member leaves, or the query fails."""
        self._renewed_at = None

    def unregistered(self) -> None:
        """Note that the member's own node is gone."""
        self._renewed_at, self.proven = None, False

    @property
    def lease_at(self) -> float | None:
        """When the lease was last renewed; None without a lease.

        Callers count the session timeout that was asked for from this time. ZooKeeper may have granted a shorter one,
        so the difference is subtracted.
        """
        if self._renewed_at is None or not (self.connected and self.proven):
            return None
        return self._renewed_at - (self._asked_ms - self.timeout_ms) / 1000


_NOTHING: frozenset[TopicPartition] = frozenset()


class Seen:
    """The consumers and owners that were read, and whether they are still as they were.

    `wanted` are the partitions that fall to this member, `mine` those that it owns.
    """

    def __init__(self, registration: Registration) -> None:
        self._registration = registration
        self.view: View | None = None
        self.view_stale = False
        """Whether a watch has fired since the last look at the group was asked for."""
        self.shares: Mapping[TopicPartition, str] = {}
        """The thread to which each partition falls."""
        self.owners: Mapping[TopicPartition, OwnerNode] = {}
        self.owners_stale = False
        self.unconfirmed = False
        """Whether something was written since the owners were read."""
        self.kept = _NOTHING
        """The partitions held that this member has owned without a break."""

    def forget(self) -> None:
        """Forget everything but the partitions kept: the registration is gone."""
        self.view = None
        self.shares, self.owners = {}, {}
        self.unconfirmed = self.view_stale = self.owners_stale = False

    def look_began(self) -> None:
        """Note that the group is being read: watches that fire from now on make it stale again."""
        self.view_stale = self.owners_stale = self.unconfirmed = False

    def confirm_began(self) -> None:
        """Note that the owners are being read."""
        self.owners_stale = self.unconfirmed = False

    def see(self, view: View) -> None:
        """Take over a whole view."""
        self.view, self.shares = view, view.shares()
        self.see_owners(view.owners)

    def see_owners(self, owners: Mapping[TopicPartition, OwnerNode]) -> None:
        """Take over the owners."""
        self.owners = owners
        self.kept &= self.mine

    def released(self, partitions: frozenset[TopicPartition]) -> None:
        """Take partitions that are being released for partitions without an owner until the next look.

        Another member may claim them at once, and makes a node with the same path and version. A member that leaves
        before its next look must not delete that node (R31).
        """
        self.owners = {tp: owner for tp, owner in self.owners.items() if tp not in partitions}
        self.kept -= partitions
        self.unconfirmed |= bool(partitions)

    # -- wanted and seen ----------------------------------------------------------------------------------------------

    @property
    def mine(self) -> frozenset[TopicPartition]:
        """The partitions that this member owns."""
        return frozenset(tp for tp, owner in self.owners.items() if self._registration.is_mine(owner))

    @property
    def wanted(self) -> frozenset[TopicPartition]:
        """The partitions that fall to this member."""
        me = self._registration.consumer_id
        return frozenset(tp for tp, thread in self.shares.items() if f.consumer_of(thread) == me)

    def surplus(self, wanted: frozenset[TopicPartition]) -> list[TopicPartition]:
        """Return the partitions that this session owns and that are not wanted, sorted."""
        of_session = self._registration.is_of_session
        return [tp for tp, owner in sorted(self.owners.items()) if of_session(owner) and tp not in wanted]

    def is_free(self, tp: TopicPartition) -> bool:
        """Return whether nobody owns a partition but this session, perhaps as a consumer that it was before."""
        owner = self.owners.get(tp)
        return owner is None or self._registration.is_of_session(owner)

    def leftovers(self) -> list[Consumer]:
        """Return the earlier consumers of this session, sorted by id.

        As long as the session lives, nobody would claim the partitions that fall to them.
        """
        consumers = () if self.view is None else self.view.consumers.values()
        me = self._registration
        earlier = (c for c in consumers if c.session_id == me.session and c.consumer_id != me.consumer_id)
        return sorted(earlier, key=lambda consumer: consumer.consumer_id)

    def owned_topics(self) -> set[str]:
        """Return the topics in which this session owns a partition."""
        return {tp.topic for tp, owner in self.owners.items() if self._registration.is_of_session(owner)}

    def unclaimed(self, consumers: Collection[str]) -> tuple[list[str], bool]:
        """Return which of these consumers have not claimed a partition that falls to them, one name for each.

        Beside it: whether another consumer has yet to release a partition that falls to one of them.
        """
        theirs = [tp for tp, thread in self.shares.items() if f.consumer_of(thread) in consumers]
        unclaimed = [f.consumer_of(self.shares[tp]) for tp in theirs if tp not in self.owners]
        unreleased = any(tp in self.owners and self.owners[tp].thread != self.shares[tp] for tp in theirs)
        return unclaimed, unreleased

    # -- for the log --------------------------------------------------------------------------------------------------

    def waited_for(self, view: View, missing: frozenset[TopicPartition]) -> str | None:
        """Return which registered consumers still own the `missing` partitions, in words; None where there are none."""
        owned = {self.owners[tp].consumer_id for tp in missing if tp in self.owners}
        keepers = sorted(owned & view.consumers.keys())
        if not keepers:
            return None
        more = f" and {counted(len(keepers) - 1, 'other')}" if len(keepers) > 1 else ""
        text = f"still owned by {keepers[0]}{more}: {counted(len(missing), 'partition')} of this member"
        return f"{text}: claimed as soon as they are released"

    def lingering(self, view: View, missing: frozenset[TopicPartition], paths: GroupPaths) -> Iterator[str]:
        """Yield for each missing partition which unregistered consumer still owns it, in words."""
        for tp in sorted(missing):
            owner = self.owners.get(tp)
            if owner is not None and owner.consumer_id not in view.consumers:
                who = (
                    f"{owner.thread!r}, which is not registered (any more)"
                    if owner.thread
                    else "an owner node without a name"
                )
                yield (
                    f"{tp} falls to this member and is still owned by {who}: waiting until {paths.owner(tp)} "
                    f"goes with its session {owner.session_id:#x}"
                )

    def next_generation(self, view: View, held: frozenset[TopicPartition], current: int) -> int:
        """Return the generation of the view: a zxid, far beyond an int32, the same for all who have seen the same.

        A second assignment from one view has the zxid of its newest claim. Each generation is above the one before.
        """
        if view.generation > current:
            return view.generation
        return max(current + 1, *(self.owners[tp].czxid for tp in held), 0)


NOTED_MOST = 1000
"""Texts name nodes and sessions, of which new ones come for ever. When so many are remembered, all are forgotten, and
each that still holds is logged once more."""


class LoggedTexts:
    """Remembers texts, so that none is logged twice."""

    __slots__ = ("_texts",)

    def __init__(self) -> None:
        self._texts: set[str] = set()

    def __len__(self) -> int:
        return len(self._texts)

    def is_new(self, text: str) -> bool:
        """Return whether this text was not logged yet, and remember it."""
        if text in self._texts:
            return False
        if len(self._texts) >= NOTED_MOST:
            self._texts.clear()
        self._texts.add(text)
        return True


class RegistryPurpose(Enum):
    """The purpose of a `ReadSubtrees` or a `Transact`, in words for the log."""

    REGISTER = "register"
    RENEW = "register anew"
    """The same id with another subscription, or to make all others look again (R33)."""
    IDENTIFY = "tell who it is"
    SWEEP = "delete what it was registered as before"
    LOOK = "look at the group"
    RELEASE = "give partitions up"
    CLAIM = "claim partitions"
    CONFIRM = "look at the owners"
    HEARTBEAT = "prove that it is registered"
    NEIGHBOURS = "look at what others own"
    LEAVE = "leave"

    def __str__(self) -> str:
        return self.value


class RegistryTimer(Enum):
    """A timer of a member, in the order in which due ones are handled."""

    LEAVE = "leaving overdue"
    REJOIN = "release due"
    RETRY = "retry due"
    PARTIAL = "waited for owners"
    FORCE_REBALANCE = "rebalance to force"
    HEARTBEAT = "heartbeat due"


FORCED_REBALANCE_AFTER_S = 10.0
"""A consumer of another make that has not claimed its partitions by then has given up."""
FORCED_REBALANCE_MAX_S = 160.0
"""A rebalance stops all consumers for a moment. So where forcing one does not help, the member forces them ever more
rarely."""


class ForcedRebalanceBackoff:
    """The waits between forced rebalances: they double with each one, until the group's consumers change (R33).

    To force a rebalance the member deletes and creates its own id node in one transaction. All consumers of the group
    watch the id nodes, so they claim their partitions again.
    """

    __slots__ = ("wait_s",)

    def __init__(self) -> None:
        self.wait_s = FORCED_REBALANCE_AFTER_S
        """The seconds until the next forced rebalance."""

    def add(self) -> None:
        """Count a forced rebalance: the next one waits twice as long, FORCED_REBALANCE_MAX_S at most."""
        self.wait_s = min(2 * self.wait_s, FORCED_REBALANCE_MAX_S)

    def reset(self) -> None:
        """Begin anew: the group has other consumers."""
        self.wait_s = FORCED_REBALANCE_AFTER_S
