"""Events in kazoo's own threads: they are reported, and never ask ZooKeeper, which would wait for itself."""

from __future__ import annotations

import itertools
import re
import socket
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import BadVersionError, NoAuthError, NodeExistsError, NoNodeError
from kazoo.protocol.states import EventType, KazooState, KeeperState, WatchedEvent, ZnodeStat
from kazoo.security import OPEN_ACL_UNSAFE

from streamgroup.errors import TlsError, TransportError
from streamgroup.options.types import ZooKeeperOptions
from streamgroup.znodes import Check, Create, Delete, Operation, Refusal, Set, Subtree
from streamgroup.zookeeper.session import (
    Aspect,
    DeniedError,
    NodeChanged,
    Session,
    SessionEnded,
    SessionEvent,
    SessionResumed,
    SessionStarted,
    SessionSuspended,
    SubtreeReader,
    Watches,
    Writer,
    _ClientSession,
    join,
)
from tests.fakes.nodes import NodeTree, Refused
from tests.waiting import TIMEOUT_S, soon


class Scripted:
    """kazoo's client: attributes as they are, methods for any thread but that which `serves` the connection."""

    def __init__(self) -> None:
        self.client_id = (7, b"")
        self.granted_ms = 4_000
        self.client_state = KeeperState.EXPIRED_SESSION
        self.handler = SimpleNamespace(is_over=False, refusal=None, last_failure="", tls=None)
        self.serves = threading.current_thread()
        self.called: list[str] = []

    def __getattr__(self, name: str) -> Any:
        def call(*args: object, **kwargs: object) -> None:
            assert threading.current_thread() is not self.serves, f"{name} of kazoo's client, in kazoo's own thread"
            self.called.append(name)

        return call


@pytest.fixture
def client() -> Scripted:
    return Scripted()


@pytest.fixture
def told() -> list[SessionEvent]:
    return []


@pytest.fixture
def life(client: Scripted, told: list[SessionEvent]) -> _ClientSession:
    return _ClientSession(client, told.append, 6_000)  # type: ignore[arg-type]


def test_the_state_listener_and_the_watches_never_call_zookeeper(
    client: Scripted, life: _ClientSession, told: list[SessionEvent]
) -> None:
    life.watches.arm("/g/ids", Aspect.CHILDREN, "/g")
    life._on_kazoo_state(KazooState.CONNECTED)
    life.watches.fired(WatchedEvent(EventType.CHILD, KeeperState.CONNECTED, "/g/ids"))
    life.watches.arm("/g/ids", Aspect.CHILDREN, "/g")
    life._on_kazoo_state(KazooState.SUSPENDED)
    life._on_kazoo_state(KazooState.CONNECTED)
    life._on_kazoo_state(KazooState.LOST)
    assert told == [
        *(SessionStarted(7, 4_000), NodeChanged("/g/ids"), SessionSuspended(7), SessionResumed(7), NodeChanged("/g")),
        SessionEnded(7, "the session has expired"),
    ]
    life.end().join(TIMEOUT_S)
    assert client.called == ["stop", "close"], "from a thread of its own"


def test_a_server_that_does_not_say_what_it_grants_is_taken_at_what_it_was_asked_for(
    client: Scripted, life: _ClientSession, told: list[SessionEvent]
) -> None:
    client.granted_ms = 0
    life._on_kazoo_state(KazooState.CONNECTED)
    assert told == [SessionStarted(7, 6_000)]


def test_whoever_hears_that_a_session_has_begun_finds_it_connected(client: Scripted) -> None:
    connected: list[bool] = []
    life = _ClientSession(client, lambda event: connected.append(life.connected.is_set()), 6_000)  # type: ignore[arg-type]
    for state in (KazooState.CONNECTED, KazooState.SUSPENDED, KazooState.CONNECTED):
        life._on_kazoo_state(state)
    assert connected == [True, False, True]


def test_after_the_end_of_its_session_a_client_may_connect_no_more(client: Scripted, life: _ClientSession) -> None:
    life._on_kazoo_state(KazooState.CONNECTED)
    assert not client.handler.is_over
    life._on_kazoo_state(KazooState.LOST)
    assert (client.handler.is_over, life.over, life.connected.is_set(), life.refused) == (True, True, False, False)


def test_refused_credentials_are_noted(client: Scripted, life: _ClientSession, told: list[SessionEvent]) -> None:
    client.client_state = KeeperState.AUTH_FAILED
    life._on_kazoo_state(KazooState.LOST)
    assert life.refused
    assert told == [SessionEnded(0, "the credentials were not accepted")]


def test_a_refused_handshake_ends_a_session_that_never_started(
    client: Scripted, life: _ClientSession, told: list[SessionEvent]
) -> None:
    """kazoo tells nothing of such an end: to it, the session was never there."""
    client.handler.refusal = TlsError("the authority is unknown")
    life._on_refused()
    assert (life.refused, life.over, client.handler.is_over) == (True, True, True)
    client.client_state = KeeperState.AUTH_FAILED
    life._on_kazoo_state(KazooState.LOST)
    assert told == [SessionEnded(0, "the authority is unknown")], "once"


def test_both_sides_that_find_an_end_can_wait_for_it(life: _ClientSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """kazoo's thread tells that the session is over while its owner closes it."""
    begun, may_start = threading.Event(), threading.Event()

    class Slow(threading.Thread):
        def start(self) -> None:
            begun.set()
            assert may_start.wait(TIMEOUT_S)
            super().start()

    joined: list[str] = []

    def end(who: str) -> None:
        life.end().join(TIMEOUT_S)
        joined.append(who)

    ends = [threading.Thread(target=end, args=(who,)) for who in ("kazoo", "owner")]
    monkeypatch.setattr("streamgroup.zookeeper.session.threading.Thread", Slow)
    ends[0].start()
    assert begun.wait(TIMEOUT_S)
    ends[1].start()
    ends[1].join(0.2)
    may_start.set()
    for each in ends:
        each.join(TIMEOUT_S)
    assert sorted(joined) == ["kazoo", "owner"]


def test_events_after_the_close_are_not_reported(life: _ClientSession, told: list[SessionEvent]) -> None:
    life.end().join(TIMEOUT_S)
    life._on_kazoo_state(KazooState.LOST)
    assert told == []


@pytest.mark.parametrize(
    "wait_s", [pytest.param(1.0, id="longer than the option", marks=pytest.mark.slow), pytest.param(None, id="as long")]
)
def test_a_long_wait_for_a_server_that_is_away_is_said_once(
    caplog: pytest.LogCaptureFixture, wait_s: float | None
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    session = Session(ZooKeeperOptions((("127.0.0.1", port),), connection_timeout_ms=200))
    with pytest.raises(TransportError, match="no server answered in time"):
        session.connect(None if wait_s is None else soon(wait_s))
    session.close()
    lines = [record.message for record in caplog.records if record.name == "streamgroup"]
    assert len(lines) == (wait_s is not None)
    for line in lines:
        assert re.fullmatch(rf"ZooKeeper 127.0.0.1:{port}: no connection within 0.2 s.*; trying for \d s more", line)


OPTIONS = ZooKeeperOptions((("zk", 2181),))
ERRORS = {Refusal.NO_NODE: NoNodeError, Refusal.NODE_EXISTS: NodeExistsError, Refusal.BAD_VERSION: BadVersionError}


class Nodes:
    """kazoo's asynchronous methods over nodes in memory. The server answers a request when it is waited for."""

    def __init__(self, nodes: dict[str, bytes]) -> None:
        self.tree = NodeTree.of(nodes)
        self.forbidden: set[str] = set()
        self.events: list[str] = []
        """Requests, and `wait` for each answer."""
        self.written: list[str] = []
        self.watched: set[tuple[str, str]] = set()
        self.before: dict[str, Callable[[], object]] = {}
        """Called once before the server answers the request."""

    def wait(self, answer: Callable[[], Any]) -> Any:
        self.events.append("wait")
        return answer()

    def get_async(self, path: str, watch: Any) -> Any:
        return self._ask("get", path, watch, lambda: self._read(path))

    def get_children_async(self, path: str, watch: Any, include_data: bool) -> Any:
        assert include_data, "without the stat the reader cannot tell a recreated node"
        return self._ask(
            "children", path, watch, lambda: (sorted(self._node(path).children, reverse=True), self._read(path)[1])
        )

    def exists_async(self, path: str, watch: Any = None) -> Any:
        return self._ask("exists", path, watch, lambda: self._read(path)[1] if path in self.tree else None)

    def create_async(self, path: str, value: bytes, acl: Any, ephemeral: bool = False) -> Any:
        assert acl == OPEN_ACL_UNSAFE
        return lambda: self._write("create", Create(path, value, ephemeral))

    def set_async(self, path: str, value: bytes, version: int) -> Any:
        return lambda: self._write("set", Set(path, value, version))

    def delete_async(self, path: str, version: int) -> Any:
        return lambda: self._write("delete", Delete(path, version))

    def _write(self, what: str, operation: Operation) -> None:
        if operation.path in self.forbidden:
            raise NoAuthError
        try:
            self.tree.transact([operation])
        except Refused as refused:
            raise ERRORS[refused.refusal] from None
        self.written.append(f"{what} {operation.path}")

    def _ask(self, what: str, path: str, watch: Any, answer: Callable[[], Any]) -> Any:
        request = f"{what} {path}"
        self.events.append(request)
        if watch is not None:
            self.watched.add((what, path))

        def answered() -> Any:
            self.before.pop(request, lambda: None)()
            return answer()

        return answered

    def _node(self, path: str) -> Any:
        if path in self.forbidden:
            raise NoAuthError
        node = self.tree.get(path)
        if node is None:
            raise NoNodeError
        return node

    def _read(self, path: str) -> tuple[bytes, ZnodeStat]:
        node = self._node(path)
        return node.data, ZnodeStat(
            node.czxid, node.mzxid, 0, 0, node.version, 0, 0, node.owner, len(node.data), len(node.children), node.pzxid
        )


def writer(nodes: Any) -> Writer:
    client: KazooClient = nodes
    return Writer(client, OPTIONS, lambda ask: ask())


def test_operations_that_pass_the_check_are_applied_in_order() -> None:
    nodes = Nodes({"/a": b"", "/b": b""})
    operations: list[Operation] = [
        Check("/a", 0),
        Set("/a", b"x", 0),
        Set("/a", b"y", 1),
        Delete("/b"),
        Create("/b"),
        Create("/a/c"),
    ]
    assert writer(nodes).apply_one_by_one(operations) is None
    assert nodes.written == ["set /a", "set /a", "delete /b", "create /b", "create /a/c"]


@pytest.mark.parametrize(
    ("operation", "refusal"),
    [
        (Check("/none"), Refusal.NO_NODE),
        (Check("/a", 3), Refusal.BAD_VERSION),
        (Set("/a", b"", 3), Refusal.BAD_VERSION),
        (Set("/none", b""), Refusal.NO_NODE),
        (Delete("/none"), Refusal.NO_NODE),
        (Create("/a"), Refusal.NODE_EXISTS),
    ],
)
def test_a_refused_operation_keeps_all_others_from_being_applied(operation: Operation, refusal: Refusal) -> None:
    nodes = Nodes({"/a": b""})
    refused = writer(nodes).apply_one_by_one([Set("/a", b"x"), operation])
    assert refused == (operation.path, refusal)
    assert nodes.written == []


def test_a_write_in_between_is_detected_by_its_version() -> None:
    nodes = Nodes({"/a": b""})
    exists = nodes.exists_async

    def seen(path: str) -> Any:
        stat = exists(path)()
        nodes.tree.transact([Set("/a", b"other")])
        return lambda: stat

    nodes.exists_async = seen  # type: ignore[method-assign]
    assert writer(nodes).apply_one_by_one([Set("/a", b"x", 0)]) == ("/a", Refusal.BAD_VERSION)


def test_missing_nodes_are_made_with_their_parents_and_what_may_not_be_is_named() -> None:
    nodes = Nodes({"/consumers": b""})
    nodes.forbidden = {"/consumers/x"}
    refused = writer(nodes).ensure(["/consumers/g/ids", "/consumers/g/owners/t", "/consumers/x/ids", "/consumers"])
    assert refused == {"/consumers/x/ids": ("/consumers/x", Refusal.NO_AUTH)}
    assert nodes.written == [
        "create /consumers/g",
        "create /consumers/g/ids",
        "create /consumers/g/owners",
        "create /consumers/g/owners/t",
    ]


PATHS = {"/g": b"group", "/g/ids": b"", "/g/ids/b": b"2", "/g/ids/a": b"1", "/g/offsets": b"", "/other": b""}


class WatchedNodes:
    """A reader of the nodes, and the paths whose changes its watches report."""

    def __init__(self) -> None:
        self.nodes = Nodes(PATHS)
        self.reported: list[str] = []
        self.watches = Watches(self.reported.append)
        client: Any = self.nodes
        kazoo: KazooClient = client
        self.reader = SubtreeReader(kazoo, self.watches, self.nodes.wait)

    def read(self, *subtrees: Subtree) -> dict[str, Any]:
        return self.reader.read(subtrees)

    def fire(self, kind: str, path: str) -> list[str]:
        """Fire a watch. Return what it reports."""
        self.reported.clear()
        self.watches.fired(WatchedEvent(kind, KeeperState.CONNECTED, path))
        return list(self.reported)


@pytest.fixture
def world() -> WatchedNodes:
    return WatchedNodes()


@pytest.mark.parametrize(
    ("depth", "paths"),
    [
        (0, ["/g"]),
        (1, ["/g", "/g/ids", "/g/offsets"]),
        (2, ["/g", "/g/ids", "/g/ids/a", "/g/ids/b", "/g/offsets"]),
        (9, ["/g", "/g/ids", "/g/ids/a", "/g/ids/b", "/g/offsets"]),
    ],
)
def test_a_read_has_the_node_and_as_many_levels_below_as_asked_for(
    world: WatchedNodes, depth: int, paths: list[str]
) -> None:
    found = world.read(Subtree("/g", depth))
    assert sorted(found) == paths
    assert found == world.nodes.tree.read([Subtree("/g", depth)])


def test_a_node_has_its_data_its_versions_its_owner_and_the_sorted_names_of_its_children(world: WatchedNodes) -> None:
    world.nodes.tree.transact([Create("/g/ids/c", b"me", ephemeral=True)], 77)
    world.nodes.tree.transact([Set("/g/ids", b"new")])
    found = world.read(Subtree("/g/ids"))
    ids = found["/g/ids"]
    assert (ids.data, ids.version, ids.children) == (b"new", 1, ("a", "b", "c"))
    assert ids.czxid < ids.pzxid < ids.mzxid, "created, then given a child, then written"
    assert (found["/g/ids/c"].owner, found["/g/ids/c"].data) == (77, b"me")


def test_the_requests_of_one_level_are_sent_before_the_first_answer_is_awaited(world: WatchedNodes) -> None:
    world.read(Subtree("/g", 2), Subtree("/other", 0))
    events = world.nodes.events
    assert events[:4] == ["get /g", "children /g", "get /other", "wait"]
    rounds = [one for one, following in itertools.pairwise(events) if one != "wait" and following == "wait"]
    assert len(rounds) == 3, "one round trip for each level of the deeper subtree"


def test_a_subtree_that_does_not_exist_is_absent_and_its_creation_is_watched(world: WatchedNodes) -> None:
    assert world.read(Subtree("/none"), Subtree("/gone", watch=False)) == {}
    assert ("exists", "/none") in world.nodes.watched
    assert "exists /gone" not in world.nodes.events
    assert world.fire(EventType.CREATED, "/gone") == []
    assert world.fire(EventType.CREATED, "/none") == ["/none"]


def test_a_subtree_that_is_created_while_its_watch_is_set_is_read_again(world: WatchedNodes) -> None:
    world.nodes.before["exists /none"] = lambda: world.nodes.tree.transact([Create("/none", b"new"), Create("/none/a")])
    assert sorted(world.read(Subtree("/none"), Subtree("/g", 0))) == ["/g", "/none", "/none/a"]
    assert world.nodes.events.count("get /g") == 1, "the subtree that was found is not read again"


def test_a_child_that_is_deleted_during_the_read_is_absent(world: WatchedNodes) -> None:
    world.nodes.before["get /g/ids/a"] = lambda: world.nodes.tree.transact([Delete("/g/ids/a")])
    found = world.read(Subtree("/g/ids"))
    assert sorted(found) == ["/g/ids", "/g/ids/b"]
    assert found["/g/ids"].children == ("a", "b"), "the names are those of the response"


def test_a_node_that_is_recreated_between_its_two_responses_is_read_again(world: WatchedNodes) -> None:
    def recreate() -> None:
        world.nodes.tree.transact([Delete("/g/offsets"), Create("/g/offsets", b"new")])

    world.nodes.before["children /g/offsets"] = recreate
    found = world.read(Subtree("/g/offsets"))
    assert (found["/g/offsets"].data, world.nodes.events.count("get /g/offsets")) == (b"new", 2)


def test_a_node_that_may_not_be_read_is_an_error_that_has_its_path(world: WatchedNodes) -> None:
    world.nodes.forbidden.add("/g/ids/b")
    with pytest.raises(DeniedError) as caught:
        world.read(Subtree("/g", 2))
    assert caught.value.path == "/g/ids/b"


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_node_that_two_subtrees_share_keeps_its_children(world: WatchedNodes, order: tuple[int, int]) -> None:
    found = world.read(*(Subtree("/g", depth) for depth in order))
    assert found["/g"].children == ("ids", "offsets")
    assert sorted(found) == ["/g", "/g/ids", "/g/offsets"]


def test_watches_cover_the_data_of_all_nodes_and_the_children_of_all_but_the_last_level(world: WatchedNodes) -> None:
    world.read(Subtree("/g", 1), Subtree("/other", watch=False))
    assert world.nodes.watched == {("get", "/g"), ("children", "/g"), ("get", "/g/ids"), ("get", "/g/offsets")}
    assert world.fire(EventType.CHILD, "/g/ids") == []
    assert world.fire(EventType.CHANGED, "/g/ids") == ["/g/ids"]
    assert world.fire(EventType.CHILD, "/g") == ["/g"]
    assert world.fire(EventType.CHANGED, "/other") == []


def test_watches_that_the_connection_loses_are_those_of_the_subtree(world: WatchedNodes) -> None:
    world.read(Subtree("/g", 1))
    world.watches.disconnected()
    world.watches.connected()
    assert world.reported == ["/g"]


@pytest.mark.parametrize(("path", "child"), [("/", "/a"), ("/g", "/g/a"), ("/g/", "/g/a")])
def test_a_child_is_below_its_node_with_one_slash_between(path: str, child: str) -> None:
    assert join(path, "a") == child
