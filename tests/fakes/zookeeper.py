"""A ZooKeeper in memory: nodes, sessions with their ephemerals, watches that fire once; and a client that tests lead.

As one server does it: everything that is written has a zxid, a transaction is carried out whole or not at all, a watch
belongs to a connection and is gone with it. Everything happens at once, and a session lasts until it is ended: the
simulation adds time to the server (`tests/sim/zookeeper.py`), and has a client of its own, with a network, because
what is late or lost there is not a test's decision.

`Client` is what the real session is in production, by the contract of `group/registry/events.py`: requests go out in
order, answers and watches come back in order, each when the test lets them. So a test decides what is late, lost, or
carried out without an answer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from streamgroup.group.registry import events as zk
from streamgroup.znodes import NOT_EPHEMERAL, Create, Delete, Operation, Refusal, Subtree, ZNode
from tests.fakes import nodes
from tests.fakes.nodes import NodeTree, Watch, parent_of, steps_to

Refused = tuple[str, Refusal]


class Connection:
    """A connection as the server knows it. This one is of a client that is not interested."""

    def __init__(self) -> None:
        self.watches: set[Watch] = set()

    def changed(self, path: str, *, of_children: bool) -> None:
        """A watch has fired: of the node's children, or of its data."""

    def dropped(self) -> None:
        """The server closes the connection."""


@dataclass(eq=False, slots=True)
class Session:
    """A session as the server keeps it; `client` is whoever opened it."""

    session_id: int
    client: Any = None
    timeout_s: float = 0.0
    deadline: float = 0.0
    """When it expires unless its client is heard of; kept where there is time."""
    connection: Connection | None = None


class ZooKeeper:
    """The server."""

    def __init__(self) -> None:
        self._tree = NodeTree()
        self._sessions: dict[int, Session] = {}
        self._opened = 0

    def written(self, session: Session | None, operations: Sequence[Operation]) -> None:
        """A transaction has been carried out."""

    # -- sessions -----------------------------------------------------------------------------------------------------

    def open(self, client: Any = None, timeout_s: float = 0.0) -> Session:
        """A new session."""
        self._opened += 1
        self._tree.zxid += 1
        session = self._sessions[self._opened] = Session(self._opened, client, timeout_s)
        return session

    def session(self, session_id: int) -> Session | None:
        """The session, if it lives."""
        return self._sessions.get(session_id)

    def attach(self, session: Session, connection: Connection) -> None:
        """The session is on this connection from now on; the one before is closed."""
        before, session.connection = session.connection, connection
        if before is not None:
            before.dropped()

    def end(self, session: Session) -> None:
        """The session is over, by its client's will or not: its ephemeral nodes go, in one transaction."""
        if self._sessions.pop(session.session_id, None) is None:
            return
        self._carry_out(session, [Delete(path) for path in self._tree.owned_by(session.session_id)])
        connection, session.connection = session.connection, None
        if connection is not None:
            connection.dropped()

    # -- nodes --------------------------------------------------------------------------------------------------------

    def data(self, path: str, watcher: Connection | None = None) -> ZNode | None:
        """`getData`, or `exists` where there is no such node."""
        if watcher is not None:
            watcher.watches.add((path, False))
        node = self._tree.get(path)
        return None if node is None else node.read(children=False)

    def exists(self, path: str) -> bool:
        """Whether there is such a node, as nobody's client asks."""
        return path in self._tree

    def children(self, path: str, watcher: Connection | None = None) -> ZNode | None:
        """`getChildren`: with the node as it is at that moment."""
        node = self._tree.get(path)
        if node is None:
            return None
        if watcher is not None:
            watcher.watches.add((path, True))
        return node.read(children=True)

    def names(self, path: str) -> list[str]:
        """The children of a node, as nobody's client asks for them."""
        node = self.children(path)
        return [] if node is None else list(node.children)

    def read(self, subtrees: Iterable[Subtree], watcher: Connection | None = None) -> dict[str, ZNode]:
        """All that is there of the subtrees, in one go."""
        return self._tree.read(subtrees, None if watcher is None else watcher.watches)

    def transact(
        self, session: Session | None, operations: Sequence[Operation], ensured: Iterable[str] = ()
    ) -> Refused | None:
        """All of it, or nothing: what was refused, and why."""
        for path in ensured:
            self.ensure(session, path)
        return self._carry_out(session, operations)

    def ensure(self, session: Session | None, path: str) -> None:
        """A persistent node, with its parents."""
        for above in steps_to(path):
            if above not in self._tree:
                self._carry_out(session, [Create(above)])

    def put(self, path: str, value: str | bytes, owner: Session | None = None) -> None:
        """Create or overwrite, whatever the version; with its parents. A node with an owner is ephemeral."""
        operation = self._tree.write(path, value, ephemeral=owner is not None)
        assert self.transact(owner, [operation], ensured=(parent_of(path),)) is None

    def remove(self, path: str) -> None:
        """Delete, whatever the version."""
        assert self.transact(None, [Delete(path)]) is None

    def get(self, path: str) -> bytes | None:
        """The data of a node; None where it is not."""
        node = self._tree.get(path)
        return None if node is None else node.data

    def _carry_out(self, session: Session | None, operations: Sequence[Operation]) -> Refused | None:
        try:
            fired = self._tree.transact(operations, NOT_EPHEMERAL if session is None else session.session_id)
        except nodes.Refused as refused:
            return refused.path, refused.refusal
        for watch in fired:
            self._fire(watch)
        self.written(session, operations)
        return None

    def _fire(self, watch: Watch) -> None:
        for session in self._sessions.values():
            connection = session.connection
            if connection is not None and watch in connection.watches:
                connection.watches.discard(watch)
                connection.changed(watch[0], of_children=watch[1])


class Client(Connection):
    """One client's connection. `requests` wait for `serve`, `events` for whoever hears them."""

    def __init__(self, server: ZooKeeper) -> None:
        super().__init__()
        self.server = server
        self.session: Session | None = None
        self.connected = False
        self.wanted = False
        self.granted_ms = 40_000
        self.requests: deque[zk.ReadSubtrees | zk.Transact] = deque()
        self.events: deque[zk.RegistryEvent] = deque()

    @property
    def usable(self) -> bool:
        """Whether a request would be answered."""
        return self.session is not None and self.connected

    def carry_out(self, action: zk.RegistryAction) -> None:
        """Carry out an action of the machine."""
        match action:
            case zk.OpenSession():
                self.wanted = True
                self.connect()
            case zk.CloseSession():
                self.close()
            case zk.ReadSubtrees() | zk.Transact() if self.usable:
                self.requests.append(action)
            case zk.ReadSubtrees() | zk.Transact():
                self.events.append(zk.Unanswered(action.token, "there is no connection"))

    def connect(self) -> None:
        """A new session, if one is wanted and there is none; else the connection again."""
        if not self.wanted or any(isinstance(event, zk.Expired) for event in self.events):
            return  # who has not heard of the end of a session still writes for it
        if self.session is None:
            self.session = self.server.open(self)
            self.events.append(zk.SessionBegan(self.session.session_id, self.granted_ms))
        elif not self.connected:
            self.events.append(zk.Resumed())
        else:
            return
        self.connected = True
        self.server.attach(self.session, self)

    def close(self) -> None:
        """In order: what was asked before is carried out."""
        self.wanted = False
        while self.requests:
            self.serve()
        if self.session is not None:
            self.server.end(self.session)
        self.events.clear()
        self._over()

    def serve(self) -> bool:
        """The server carries out the next request; the answer is on its way. Whether there was one."""
        if not self.requests or not self.usable or self.session is None:
            return False
        request = self.requests.popleft()
        if isinstance(request, zk.ReadSubtrees):
            self.events.append(zk.SubtreesRead(request.token, self.server.read(request.subtrees, self)))
            return True
        refused = self.server.transact(self.session, request.operations, request.ensured)
        self.events.append(
            zk.Transacted(request.token) if refused is None else zk.RequestRefused(request.token, *refused)
        )
        return True

    def changed(self, path: str, *, of_children: bool) -> None:
        self.events.append(zk.Changed(path))

    def disconnect(self, carried_out: int = 0) -> None:
        """The connection is lost: `carried_out` of the requests have reached the server, no answer comes back."""
        if not self.usable or self.session is None:
            return
        for _ in range(carried_out):
            self.serve()
        lost = [
            event for event in self.events if isinstance(event, zk.SubtreesRead | zk.Transacted | zk.RequestRefused)
        ]
        kept = [
            e
            for e in self.events
            if not isinstance(e, zk.SubtreesRead | zk.Transacted | zk.RequestRefused | zk.Changed)
        ]
        tokens = [event.token for event in lost] + [request.token for request in self.requests]
        self.requests.clear()
        self.events = deque([*kept, *(zk.Unanswered(token, "the connection was lost") for token in tokens)])
        self.events.append(zk.Suspended("the connection was lost"))
        self.connected, self.session.connection = False, None
        self.watches.clear()

    def expire(self) -> None:
        """The server ends the session; the client hears of it when it is connected again (here: at once)."""
        if self.session is None:
            return
        self.server.end(self.session)
        self.requests.clear()
        answers = (zk.SubtreesRead, zk.Transacted, zk.RequestRefused, zk.Unanswered, zk.Changed)
        self.events = deque(event for event in self.events if not isinstance(event, answers))
        self.events.append(zk.Expired("the session has expired"))
        self._over()

    def _over(self) -> None:
        self.session, self.connected = None, False
        self.watches.clear()
