"""A ZooKeeper in memory: nodes, sessions, watches, transactions; and clients of it that may lose their connection.

`ZooKeeper` is the server: everything happens at once, under one growing zxid. `Client` is what the real session is in
production, by the contract of `group/registry/events.py`: requests go out in order, answers and watches come back in
order, each when the test lets them. So a test decides what is late, lost, or carried out without an answer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from streamgroup.group.registry import events as zk
from streamgroup.znodes import Create, Delete, Operation, Refusal, Set, Subtree, ZNode
from tests.node_tree import NodeTree, Refused, Watch, parent_of, steps_to


class ZooKeeper:
    """The server."""

    def __init__(self) -> None:
        self._tree = NodeTree()
        self._sessions = 0x100
        self.watchers: dict[int, Client] = {}
        """The clients that are connected, by session."""
        self._watches: dict[Watch, set[int]] = {}

    # -- as a client sees it ------------------------------------------------------------------------------------------

    def begin(self) -> int:
        """A new session."""
        self._sessions += 1
        return self._sessions

    def end(self, session: int) -> None:
        """The session is closed or has expired: its ephemeral nodes go in one transaction."""
        self.forget_watches(session)
        self.watchers.pop(session, None)
        self._carry_out([Delete(path) for path in sorted(self._tree.owned_by(session), reverse=True)], session)

    def read(self, subtrees: Iterable[Subtree], session: int) -> dict[str, ZNode]:
        """What is there; watched by `session` where the subtree says so."""
        found: dict[str, ZNode] = {}
        for subtree in subtrees:
            self._read(subtree.path, subtree.depth, session if subtree.watch else None, found)
        return found

    def _read(self, path: str, depth: int, watcher: int | None, found: dict[str, ZNode]) -> None:
        if watcher is not None:
            self._watches.setdefault((path, False), set()).add(watcher)
            if depth:
                self._watches.setdefault((path, True), set()).add(watcher)
        node = self._tree.get(path)
        if node is None:
            return
        read = node.read(children=bool(depth))
        if path not in found or depth:
            found[path] = read
        for name in read.children:
            self._read(f"{path}/{name}", depth - 1, watcher, found)

    def transact(
        self, operations: Iterable[Operation], session: int, ensured: Iterable[str] = ()
    ) -> tuple[str, Refusal] | None:
        """All or nothing; what has refused it."""
        for path in ensured:
            for step in steps_to(path):
                if step not in self._tree:
                    self._carry_out([Create(step)], session)
        try:
            self._carry_out(operations, session)
        except Refused as refused:
            return refused.path, refused.refusal
        return None

    # -- as an operator, a broker or a consumer of another make does it ------------------------------------------------

    def put(self, path: str, data: str | bytes, session: int = 0) -> None:
        """Create or overwrite, whatever the version; with its parents."""
        value = data.encode() if isinstance(data, str) else data
        operation = Set(path, value) if path in self._tree else Create(path, value, ephemeral=bool(session))
        assert self.transact([operation], session, ensured=(parent_of(path),)) is None

    def remove(self, path: str) -> None:
        """Delete, whatever the version."""
        assert self.transact([Delete(path)], 0) is None

    def get(self, path: str) -> bytes | None:
        """The data of a node; None where it is not."""
        node = self._tree.get(path)
        return None if node is None else node.data

    def stat(self, path: str) -> ZNode | None:
        """One node."""
        return self.read([Subtree(path, 1, watch=False)], 0).get(path)

    def names(self, path: str) -> list[str]:
        """The children of a node."""
        node = self._tree.get(path)
        return [] if node is None else sorted(node.children)

    # -- inside -------------------------------------------------------------------------------------------------------

    def _carry_out(self, operations: Iterable[Operation], session: int) -> None:
        self._fire(self._tree.transact(operations, session))

    def _fire(self, fired: Iterable[Watch]) -> None:
        for watch in fired:
            for session in sorted(self._watches.pop(watch, ())):
                if session in self.watchers:
                    self.watchers[session].notify(watch[0])

    def forget_watches(self, session: int) -> None:
        """A connection is lost, and what it watched with it."""
        for sessions in self._watches.values():
            sessions.discard(session)


class Client:
    """One client's connection. `requests` wait for `serve`, `events` for whoever hears them."""

    def __init__(self, server: ZooKeeper) -> None:
        self.server = server
        self.session: int | None = None
        self.connected = False
        self.wanted = False
        self.granted_ms = 40_000
        self.requests: deque[zk.Look | zk.Transact] = deque()
        self.events: deque[zk.RegistryEvent] = deque()

    @property
    def usable(self) -> bool:
        """Whether a request would be answered."""
        return self.session is not None and self.connected

    def carry_out(self, action: zk.RegistryAction) -> None:
        """What the machine wants."""
        match action:
            case zk.OpenSession():
                self.wanted = True
                self.connect()
            case zk.CloseSession():
                self.close()
            case zk.Look() | zk.Transact() if self.usable:
                self.requests.append(action)
            case zk.Look() | zk.Transact():
                self.events.append(zk.Unanswered(action.token, "there is no connection"))

    def connect(self) -> None:
        """A new session, if one is wanted and there is none; else the connection again."""
        if not self.wanted or any(isinstance(event, zk.Expired) for event in self.events):
            return  # who has not heard of the end of a session still writes for it
        if self.session is None:
            self.session = self.server.begin()
            self.connected = True
            self.server.watchers[self.session] = self
            self.events.append(zk.SessionBegan(self.session, self.granted_ms))
        elif not self.connected:
            self.connected = True
            self.server.watchers[self.session] = self
            self.events.append(zk.Resumed())

    def close(self) -> None:
        """In order: what was asked before is carried out."""
        self.wanted = False
        while self.requests:
            self.serve()
        if self.session is not None:
            self.server.end(self.session)
        self.events.clear()
        self.session, self.connected = None, False

    def serve(self) -> bool:
        """The server carries out the next request; the answer is on its way. Whether there was one."""
        if not self.requests or not self.usable or self.session is None:
            return False
        request = self.requests.popleft()
        if isinstance(request, zk.Look):
            self.events.append(zk.Looked(request.token, self.server.read(request.subtrees, self.session)))
            return True
        refused = self.server.transact(request.operations, self.session, request.ensured)
        self.events.append(zk.Transacted(request.token) if refused is None else zk.Refused(request.token, *refused))
        return True

    def notify(self, path: str) -> None:
        """A watch has fired."""
        self.events.append(zk.Changed(path))

    def disconnect(self, carried_out: int = 0) -> None:
        """The connection is lost: `carried_out` of the requests have reached the server, no answer comes back."""
        if not self.usable or self.session is None:
            return
        for _ in range(carried_out):
            self.serve()
        lost = [event for event in self.events if isinstance(event, zk.Looked | zk.Transacted | zk.Refused)]
        kept = [e for e in self.events if not isinstance(e, zk.Looked | zk.Transacted | zk.Refused | zk.Changed)]
        tokens = [event.token for event in lost] + [request.token for request in self.requests]
        self.requests.clear()
        self.events = deque([*kept, *(zk.Unanswered(token, "the connection was lost") for token in tokens)])
        self.events.append(zk.Suspended("the connection was lost"))
        self.connected = False
        self.server.forget_watches(self.session)
        self.server.watchers.pop(self.session, None)

    def expire(self) -> None:
        """The server ends the session; the client hears of it when it is connected again (here: at once)."""
        if self.session is None:
            return
        self.server.end(self.session)
        self.requests.clear()
        answers = (zk.Looked, zk.Transacted, zk.Refused, zk.Unanswered, zk.Changed)
        self.events = deque(event for event in self.events if not isinstance(event, answers))
        self.events.append(zk.Expired("the session has expired"))
        self.session, self.connected = None, False
