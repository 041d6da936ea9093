"""Events in kazoo's own threads: they are reported, and never ask ZooKeeper, which would wait for itself."""

from __future__ import annotations

import re
import socket
import threading
from types import SimpleNamespace
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import BadVersionError, NoAuthError, NodeExistsError, NoNodeError
from kazoo.protocol.states import EventType, KazooState, KeeperState, WatchedEvent
from kazoo.security import OPEN_ACL_UNSAFE

from streamgroup.errors import TlsError, TransportError
from streamgroup.options.types import ZooKeeperOptions
from streamgroup.znodes import Check, Create, Delete, Operation, Refusal, Set, ZNode
from streamgroup.zookeeper.reading import Aspect
from streamgroup.zookeeper.session import (
    NodeChanged,
    Session,
    SessionEnded,
    SessionEvent,
    SessionResumed,
    SessionStarted,
    SessionSuspended,
    Writer,
    _ClientSession,
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


def test_credentials_that_are_refused_are_noted(
    client: Scripted, life: _ClientSession, told: list[SessionEvent]
) -> None:
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


def test_an_end_that_both_sides_find_at_once_can_be_waited_for_by_both(
    life: _ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
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


@pytest.mark.slow
def test_a_long_wait_for_a_server_that_is_away_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    session = Session(ZooKeeperOptions((("127.0.0.1", port),), connection_timeout_ms=200))
    with pytest.raises(TransportError, match="no server answered in time"):
        session.connect(soon(1.0))
    session.close()
    (line,) = (record.message for record in caplog.records if record.name == "streamgroup")
    assert line.startswith(f"ZooKeeper 127.0.0.1:{port}: no connection within 0.2 s")
    assert re.search(r"; trying for \d s more$", line)


def test_a_wait_as_long_as_the_option_says_is_not_said(caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    session = Session(ZooKeeperOptions((("127.0.0.1", port),), connection_timeout_ms=200))
    with pytest.raises(TransportError, match="no server answered in time"):
        session.connect()
    session.close()
    assert [record for record in caplog.records if record.name == "streamgroup"] == []


OPTIONS = ZooKeeperOptions((("zk", 2181),))
ERRORS = {
    Refusal.NO_NODE: NoNodeError,
    Refusal.NODE_EXISTS: NodeExistsError,
    Refusal.BAD_VERSION: BadVersionError,
}


class Nodes:
    """kazoo's asynchronous methods over nodes in memory; what they give is called to have it."""

    def __init__(self, *paths: str) -> None:
        self.tree = NodeTree.of(dict.fromkeys(paths, b""))
        self.forbidden: set[str] = set()
        self.written: list[str] = []

    def exists_async(self, path: str) -> Any:
        return lambda: self._stat(path)

    def _stat(self, path: str) -> ZNode | None:
        node = self.tree.get(path)
        return None if node is None else node.read(children=False)

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


def writer(nodes: Any) -> Writer:
    client: KazooClient = nodes
    return Writer(client, OPTIONS, lambda ask: ask())


def test_operations_that_pass_the_check_are_applied_in_order() -> None:
    nodes = Nodes("/a", "/b")
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
    nodes = Nodes("/a")
    refused = writer(nodes).apply_one_by_one([Set("/a", b"x"), operation])
    assert refused == (operation.path, refusal)
    assert nodes.written == []


def test_a_write_in_between_is_detected_by_its_version() -> None:
    nodes = Nodes("/a")
    exists = nodes.exists_async

    def seen(path: str) -> Any:
        stat = exists(path)()
        nodes.tree.transact([Set("/a", b"other")])
        return lambda: stat

    nodes.exists_async = seen  # type: ignore[method-assign]
    assert writer(nodes).apply_one_by_one([Set("/a", b"x", 0)]) == ("/a", Refusal.BAD_VERSION)


def test_missing_nodes_are_made_with_their_parents_and_what_may_not_be_is_named() -> None:
    nodes = Nodes("/consumers")
    nodes.forbidden = {"/consumers/x"}
    refused = writer(nodes).ensure(["/consumers/g/ids", "/consumers/g/owners/t", "/consumers/x/ids", "/consumers"])
    assert refused == {"/consumers/x/ids": ("/consumers/x", Refusal.NO_AUTH)}
    assert nodes.written == [
        "create /consumers/g",
        "create /consumers/g/ids",
        "create /consumers/g/owners",
        "create /consumers/g/owners/t",
    ]
