"""A simulated ZooKeeper: nodes, sessions, ephemerals that linger until their session is over, watches that fire once.

As one server does it: everything that is written has a zxid, a transaction is carried out whole or not at all, a watch
belongs to a connection and is gone with it, a session that reconnects takes what is under way on its old connection
with it (nothing of that is carried out afterwards). The connections are `tests/sim/zkclient.py`'s.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from streamgroup.znodes import NOT_EPHEMERAL, Create, Delete, Operation, Refusal, ZNode
from tests import node_tree
from tests.node_tree import NodeTree, steps_to
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
class Session:
    """A session as the server keeps it; `client` is whoever opened it."""

    session_id: int
    timeout_s: float
    client: Any
    deadline: float = 0.0
    connection: Watcher | None = None


class ZooKeeper:
    """See the module. `written` is told of each transaction: by whom, and what."""

    def __init__(self, kernel: Kernel, written: Callable[[Session | None, Sequence[Operation]], None]) -> None:
        self.kernel = kernel
        self.away_until = 0.0
        """No server answers until then."""
        self._written = written
        self._tree = NodeTree()
        self._sessions: dict[int, Session] = {}
        self._opened = 0

    # -- sessions -----------------------------------------------------------------------------------------------------

    @property
    def is_away(self) -> bool:
        return self.kernel.now < self.away_until

    def open(self, client: Any, timeout_s: float) -> Session:
        """A new session."""
        self._opened += 1
        self._tree.zxid += 1
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
        self._carry_out(session, [Delete(path) for path in self._tree.owned_by(session.session_id)])
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
        node = self._tree.get(path)
        return None if node is None else node.read(children=False)

    def exists(self, path: str) -> bool:
        """Whether there is such a node, as nobody's client asks."""
        return path in self._tree

    def children(self, path: str, watcher: Watcher | None = None) -> ZNode | None:
        """`getChildren`: with the node as it is at that moment."""
        node = self._tree.get(path)
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
        for above in steps_to(path):
            if above not in self._tree:
                self._carry_out(session, [Create(above)])

    def _carry_out(self, session: Session | None, operations: Sequence[Operation]) -> Refused | None:
        try:
            fired = self._tree.transact(operations, NOT_EPHEMERAL if session is None else session.session_id)
        except node_tree.Refused as refused:
            return refused.path, refused.refusal
        for path, of_children in fired:
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
