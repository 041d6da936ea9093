"""A member's session in ZooKeeper, and the nodes by which it registers the member in a group.

Both are values: no node is read or written here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from streamgroup.group.registry import formats as f
from streamgroup.group.registry.formats import GroupPaths, Incarnation
from streamgroup.group.registry.view import Consumer, OwnerNode
from streamgroup.model import TopicPartition
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
