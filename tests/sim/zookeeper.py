"""A simulated ZooKeeper: nodes, sessions, ephemerals that linger until their session is over, watches that fire once.

As one server does it: everything that is written has a zxid, a transaction is carried out whole or not at all, a watch
belongs to a connection and is gone with it, a session that reconnects takes what is under way on its old connection
with it (nothing of that is carried out afterwards). The connections are `tests/sim/zkclient.py`'s.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from streamgroup.znodes import (
    ANY_VERSION,
    NOT_EPHEMERAL,
    Check,
    Create,
    Delete,
    Operation,
    Refusal,
    Set,
    ZNode,
)
from tests.sim.kernel import Kernel

TICK_S = 0.5
"""Sessions expire at the ticks of the server: up to so much later than they might."""

Refused = tuple[str, Refusal]


class Watcher(Protocol):
    """A connection, as the server knows it."""

    data: set[str]
    """Paths whose data, or whose coming to be, it watches."""
    children: set[str]

    def changed(self, path: str, *, of_children: bool) -> None:
        """A watch has fired: of the node's children, or of its data."""

    def dropped(self) -> None:
        """The server closes the connection."""


class Nobody:
    """A connection that nobody is interested in."""

    def __init__(self) -> None:
        self.data: set[str] = set()
        self.children: set[str] = set()

    def changed(self, path: str, *, of_children: bool) -> None:
        """Nobody hears of it."""

    def dropped(self) -> None:
        """Nobody hears of it."""


@dataclass(eq=False, slots=True)
class _Node:
    data: bytes
    czxid: int
    mzxid: int
    pzxid: int
    version: int = 0
    owner: int = NOT_EPHEMERAL
    children: set[str] = field(default_factory=set)

    def read(self, *, children: bool) -> ZNode:
        names = tuple(sorted(self.children)) if children else ()
        return ZNode(self.data, self.version, self.czxid, self.mzxid, self.pzxid, self.owner, names)


@dataclass(eq=False, slots=True)
class Session:
    """A session as the server keeps it; `client` is whoever opened it."""

    session_id: int
    timeout_s: float
    client: Any
    deadline: float = 0.0
    connection: Watcher | None = None


class _Impossible(Exception):
    """An operation of a transaction cannot be carried out."""

    def __init__(self, path: str, refusal: Refusal) -> None:
        super().__init__(path, refusal)
        self.path = path
        self.refusal = refusal


class _Transaction:
    """Operations carried out one after the other, and how to take them back."""

    def __init__(self, nodes: dict[str, _Node], zxid: int, session_id: int) -> None:
        self._nodes = nodes
        self._zxid = zxid
        self._session_id = session_id
        self._undo: list[Callable[[], None]] = []
        self.fired: dict[tuple[str, bool], None] = {}
        """Which watches fire: the path, and whether those of its children."""

    def carry_out(self, operation: Operation) -> None:
        match operation:
            case Check(path, version):
                self._existing(path, version)
            case Create(path, data, ephemeral):
                self._create(path, data, self._session_id if ephemeral else NOT_EPHEMERAL)
            case Set(path, data, version):
                self._set(self._existing(path, version), path, data)
            case Delete(path, version):
                self._delete(self._existing(path, version), path)

    def _existing(self, path: str, version: int) -> _Node:
        node = self._nodes.get(path)
        if node is None:
            raise _Impossible(path, Refusal.NO_NODE)
        if version not in {ANY_VERSION, node.version}:
            raise _Impossible(path, Refusal.BAD_VERSION)
        return node

    def _parent(self, path: str) -> tuple[str, _Node]:
        above = path.rpartition("/")[0] or "/"
        parent = self._nodes.get(above)
        if parent is None:
            raise _Impossible(path, Refusal.NO_NODE)
        return above, parent

    def _create(self, path: str, data: bytes, owner: int) -> None:
        above, parent = self._parent(path)
        assert parent.owner == NOT_EPHEMERAL, f"{above} is ephemeral and can have no children"
        if path in self._nodes:
            raise _Impossible(path, Refusal.NODE_EXISTS)
        self._nodes[path] = _Node(data, self._zxid, self._zxid, self._zxid, owner=owner)
        self._undo.append(lambda: self._nodes.pop(path))
        self._of_parent(above, parent, path)
        self.fired[path, False] = self.fired[above, True] = None

    def _of_parent(self, above: str, parent: _Node, path: str) -> None:
        """A child has come or gone."""
        before, children = parent.pzxid, set(parent.children)

        def undo() -> None:
            parent.pzxid, parent.children = before, children

        self._undo.append(undo)
        parent.children ^= {path[len(above.rstrip("/")) + 1 :]}
        parent.pzxid = self._zxid

    def _set(self, node: _Node, path: str, data: bytes) -> None:
        before = (node.data, node.version, node.mzxid)

        def undo() -> None:
            node.data, node.version, node.mzxid = before

        self._undo.append(undo)
        node.data, node.version, node.mzxid = data, node.version + 1, self._zxid
        self.fired[path, False] = None

    def _delete(self, node: _Node, path: str) -> None:
        if node.children:
            raise _Impossible(path, Refusal.NOT_EMPTY)
        above, parent = self._parent(path)
        del self._nodes[path]
        self._undo.append(lambda: self._nodes.update({path: node}))
        self._of_parent(above, parent, path)
        self.fired[path, False] = self.fired[path, True] = self.fired[above, True] = None

    def take_back(self) -> None:
        while self._undo:
            self._undo.pop()()


class ZooKeeper:
    """See the module. `written` is told of each transaction: by whom, and what."""

    def __init__(self, kernel: Kernel, written: Callable[[Session | None, Sequence[Operation]], None]) -> None:
        self.kernel = kernel
        self.away_until = 0.0
        """No server answers until then."""
        self._written = written
        self._nodes = {"/": _Node(b"", 0, 0, 0)}
        self._sessions: dict[int, Session] = {}
        self._opened = 0
        self._zxid = 0

    # -- sessions -----------------------------------------------------------------------------------------------------

    @property
    def is_away(self) -> bool:
        return self.kernel.now < self.away_until

    def open(self, client: Any, timeout_s: float) -> Session:
        """A new session."""
        self._opened += 1
        self._zxid += 1
        session = Session(self._opened, timeout_s, client)
        self._sessions[session.session_id] = session
        self.heard_of(session)
        self._watch_deadline(session)
        return session

    def session(self, session_id: int) -> Session | None:
        """The session, if it lives."""
        return self._sessions.get(session_id)

    def attach(self, session: Session, connection: Watcher) -> None:
        """The session is on this connection from now on; the one before is closed."""
        before, session.connection = session.connection, connection
        if before is not None:
            before.dropped()
        self.heard_of(session)

    def heard_of(self, session: Session) -> None:
        """Its client has sent something."""
        session.deadline = math.ceil((self.kernel.now + session.timeout_s) / TICK_S) * TICK_S

    def _watch_deadline(self, session: Session) -> None:
        def look() -> None:
            if session.session_id not in self._sessions:
                return
            if self.is_away:
                self.kernel.at(self.away_until, look)
            elif self.kernel.now >= session.deadline:
                self._expire(session)
            else:
                self.kernel.at(session.deadline, look)

        self.kernel.at(session.deadline, look)

    def end(self, session: Session) -> None:
        """The session is over, by its client's will or not: its ephemeral nodes go, in one transaction."""
        if self._sessions.pop(session.session_id, None) is None:
            return
        mine = [path for path, node in self._nodes.items() if node.owner == session.session_id]
        self._carry_out(session, [Delete(path) for path in mine])
        connection, session.connection = session.connection, None
        if connection is not None:
            connection.dropped()

    def go_away(self, seconds: float, *, election: bool) -> None:
        """The servers are gone for so long. With an `election` all connections break and every session begins anew
        with the new leader; else they stand still, and sessions whose time was over meanwhile expire."""
        self.away_until = max(self.away_until, self.kernel.now + seconds)
        self.kernel.at(self.away_until, self._elected if election else self._expire_overdue)
        if election:
            for session in tuple(self._sessions.values()):
                if session.connection is not None:
                    session.connection.dropped()

    def _elected(self) -> None:
        for session in self._sessions.values():
            self.heard_of(session)

    def _expire_overdue(self) -> None:
        """Before anything is read that waits in the sockets."""
        for session in tuple(self._sessions.values()):
            if not self.is_away and self.kernel.now >= session.deadline:
                self._expire(session)

    def _expire(self, session: Session) -> None:
        self.kernel.note("zookeeper", f"session {session.session_id} of {session.client} expired")
        self.end(session)

    # -- nodes --------------------------------------------------------------------------------------------------------

    def data(self, path: str, watcher: Watcher | None = None) -> ZNode | None:
        """`getData`, or `exists` where there is no such node."""
        if watcher is not None:
            watcher.data.add(path)
        node = self._nodes.get(path)
        return None if node is None else node.read(children=False)

    def exists(self, path: str) -> bool:
        """Whether there is such a node, as nobody's client asks."""
        return path in self._nodes

    def children(self, path: str, watcher: Watcher | None = None) -> ZNode | None:
        """`getChildren`: with the node as it is at that moment."""
        node = self._nodes.get(path)
        if node is None:
            return None
        if watcher is not None:
            watcher.children.add(path)
        return node.read(children=True)

    def names(self, path: str) -> tuple[str, ...]:
        """The children of a node, as nobody's client asks for them."""
        node = self.children(path)
        return () if node is None else node.children

    def transact(self, session: Session | None, operations: Sequence[Operation]) -> Refused | None:
        """All of it, or nothing: what was refused, and why."""
        return self._carry_out(session, operations)

    def ensure(self, session: Session | None, path: str) -> None:
        """A persistent node, with its parents."""
        for above in _from_the_root(path):
            if above not in self._nodes:
                self._carry_out(session, [Create(above)])

    def _carry_out(self, session: Session | None, operations: Sequence[Operation]) -> Refused | None:
        self._zxid += 1
        transaction = _Transaction(self._nodes, self._zxid, NOT_EPHEMERAL if session is None else session.session_id)
        try:
            for operation in operations:
                transaction.carry_out(operation)
        except _Impossible as reason:
            transaction.take_back()
            return reason.path, reason.refusal
        for path, of_children in transaction.fired:
            self._fire(path, of_children=of_children)
        self._written(session, operations)
        return None

    def _fire(self, path: str, *, of_children: bool) -> None:
        for session in self._sessions.values():
            connection = session.connection
            if connection is None:
                continue
            watched = connection.children if of_children else connection.data
            if path in watched:
                watched.discard(path)
                connection.changed(path, of_children=of_children)


def _from_the_root(path: str) -> Iterator[str]:
    steps = path.split("/")[1:]
    for depth in range(1, len(steps) + 1):
        yield "/" + "/".join(steps[:depth])
