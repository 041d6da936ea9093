"""Sessions with a real ZooKeeper: what is read and written, what is told when the connection or the session ends."""

from __future__ import annotations

import logging
import queue
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
from kazoo.client import KazooClient

from streamgroup.errors import ConfigError, TransportError
from streamgroup.options.secrets import Secret
from streamgroup.options.types import ZooKeeperOptions
from streamgroup.testing import ZooKeeperServer
from streamgroup.znodes import Check, Create, Delete, Operation, Refusal, Set, Subtree, ZNode
from streamgroup.zookeeper.client import RefusedError, SessionOverError, SingleSessionHandler, UnansweredError
from streamgroup.zookeeper.session import (
    NodeChanged,
    Session,
    SessionEnded,
    SessionEvent,
    SessionResumed,
    SessionStarted,
    SessionSuspended,
)
from tests.waiting import wait_until

pytestmark = pytest.mark.live

TIMEOUT_S = 20.0
SESSION_MS = 2_000
"""The server's tick is 200 ms: it grants from 400 ms on."""


class Client:
    """A session and what it has told."""

    def __init__(self, server: ZooKeeperServer, path: str = "", **options: object) -> None:
        given = ZooKeeperOptions((("127.0.0.1", server.port),), path, session_timeout_ms=SESSION_MS)
        self.told: queue.Queue[SessionEvent] = queue.Queue()
        self.session = Session(replace(given, **options), self.told.put)  # type: ignore[arg-type]

    def read(self, path: str, depth: int = 1, *, watch: bool = False) -> dict[str, ZNode]:
        return dict(self.session.read([Subtree(path, depth, watch)], deadline()))

    def write(self, *operations: Operation, ensured: tuple[str, ...] = ()) -> None:
        self.session.transact(operations, ensured, deadline())

    def next(self, timeout: float = TIMEOUT_S) -> SessionEvent:
        return self.told.get(timeout=timeout)

    def silent(self) -> bool:
        return self.told.empty()


def deadline(seconds: float = TIMEOUT_S) -> float:
    return time.monotonic() + seconds


@pytest.fixture(scope="module")
def server() -> Iterator[ZooKeeperServer]:
    with ZooKeeperServer() as zookeeper:
        yield zookeeper


@pytest.fixture
def connect(server: ZooKeeperServer) -> Iterator[Callable[..., Client]]:
    clients: list[Client] = []

    def connected(to: ZooKeeperServer = server, path: str = "", **options: object) -> Client:
        client = Client(to, path, **options)
        clients.append(client)
        client.session.connect(deadline())
        assert client.next() == SessionStarted(client.session.session_id, client.session.timeout_ms)
        return client

    yield connected
    for client in clients:
        client.session.close()


@contextmanager
def paused(server: ZooKeeperServer) -> Iterator[None]:
    server.pause()
    try:
        yield
    finally:
        server.resume()


def taken_over(client: Client) -> KazooClient:
    """Another client with the id and the password of the session: closing it ends the session."""
    life = client.session._current
    assert life is not None
    return KazooClient(
        f"127.0.0.1:{client.session._options.servers[0][1]}", timeout=SESSION_MS / 1000, client_id=life.client.client_id
    )


Connect = Callable[..., Client]

# -- reading and writing -----------------------------------------------------------------------------------------------


def test_a_subtree_is_read_with_owners_and_zxids_that_tell_the_order(connect: Connect) -> None:
    client = connect()
    client.write(Create("/r/ids/a", b"A", ephemeral=True), Create("/r/ids/b", b"B"), ensured=("/r/ids", "/r/owners/t"))
    nodes = client.read("/r", 2)
    assert nodes.keys() == {"/r", "/r/ids", "/r/owners", "/r/ids/a", "/r/ids/b", "/r/owners/t"}
    assert nodes["/r"].children == ("ids", "owners")
    assert nodes["/r/owners/t"].data == nodes["/r"].data == b"", "as real brokers and consumers leave what lies between"
    assert (nodes["/r/ids/a"].data, nodes["/r/ids/a"].owner) == (b"A", client.session.session_id)
    assert (nodes["/r/ids/b"].data, nodes["/r/ids/b"].owner) == (b"B", 0)
    assert nodes["/r/ids"].pzxid == nodes["/r/ids/b"].czxid > nodes["/r/owners"].czxid
    assert client.read("/r", 0)["/r"].children == ()
    assert client.read("/r/nothing", 3) == {}
    client.write(Set("/r/ids/b", b"C", 0))
    written = client.read("/r/ids/b", 0)["/r/ids/b"]
    assert (written.data, written.version, written.mzxid > written.czxid) == (b"C", 1, True)


@pytest.mark.parametrize(
    ("operation", "refusal"),
    [
        (Check("/refused/none"), Refusal.NO_NODE),
        (Check("/refused/there", 7), Refusal.BAD_VERSION),
        (Create("/refused/there"), Refusal.NODE_EXISTS),
        (Create("/refused/none/below"), Refusal.NO_NODE),
        (Set("/refused/there", b"x", 7), Refusal.BAD_VERSION),
        (Delete("/refused"), Refusal.NOT_EMPTY),
    ],
)
def test_a_transaction_is_carried_out_as_a_whole_or_names_what_stands_in_its_way(
    connect: Connect, operation: Operation, refusal: Refusal
) -> None:
    client = connect()
    client.session.transact((), ["/refused/there"], deadline())
    with pytest.raises(RefusedError, match=refusal.value) as caught:
        client.write(Create("/refused/new"), operation, Create("/refused/newer"))
    assert (caught.value.path, caught.value.refusal) == (operation.path, refusal)
    assert client.read("/refused")["/refused"].children == ("there",)


def test_many_transactions_go_out_together_and_each_has_its_answer(connect: Connect) -> None:
    client = connect()
    claims: list[tuple[list[Operation], list[str]]] = [
        ([Create(f"/many/{'taken' if n % 3 == 0 else n}", b"", ephemeral=True)], ["/many"]) for n in range(9)
    ]
    answers = client.session.transact_each(claims, deadline())
    refusals = {n: a.refusal for n, a in enumerate(answers) if isinstance(a, RefusedError)}
    assert refusals == {3: Refusal.NODE_EXISTS, 6: Refusal.NODE_EXISTS}
    assert [a for a in answers if a is not None and not isinstance(a, RefusedError)] == []
    assert set(client.read("/many")["/many"].children) == {"taken", "1", "2", "4", "5", "7", "8"}
    client.session.close()
    (left,) = client.session.transact_each([([Check("/many")], [])], deadline())
    assert isinstance(left, SessionOverError)


def test_below_a_chroot_paths_are_the_groups_own(connect: Connect, server: ZooKeeperServer) -> None:
    connect().write(ensured=("/a/kafka",))
    inside = connect(path="/a/kafka")
    inside.write(Create("/consumers/g"), ensured=("/consumers",))
    inside.read("/consumers", watch=True)
    outside = connect()
    assert "/a/kafka/consumers/g" in outside.read("/a", 3)
    outside.write(Create("/a/kafka/consumers/h"))
    assert inside.next() == NodeChanged("/consumers")


def test_a_chroot_that_does_not_exist_is_reported_with_the_option_to_mend(server: ZooKeeperServer) -> None:
    client = Client(server, "/nowhere")
    with pytest.raises(ConfigError, match=r"invalid chroot /nowhere .*Set the path at the end of zookeeper\.connect"):
        client.session.connect(deadline())
    client.session.close()


def test_nobody_at_the_address_is_reported_with_the_address(caplog: pytest.LogCaptureFixture) -> None:
    with socket.socket() as unheard:
        unheard.bind(("127.0.0.1", 0))
        port = unheard.getsockname()[1]
        session = Session(ZooKeeperOptions((("127.0.0.1", port),), connection_timeout_ms=300))
        with (
            caplog.at_level(logging.INFO),
            pytest.raises(TransportError, match=f"cannot connect to ZooKeeper 127.0.0.1:{port}"),
        ):
            session.connect()
        session.close()
    assert caplog.records == [], "kazoo says nothing of its own"


# -- watches -----------------------------------------------------------------------------------------------------------


def test_what_is_watched_is_reported_once_until_it_is_read_again(connect: Connect) -> None:
    client, other = connect(), connect()
    client.write(ensured=("/w/x",))
    client.read("/w", watch=True)
    other.write(Set("/w/x", b"1"))
    assert client.next() == NodeChanged("/w/x")
    other.write(Set("/w/x", b"2"))
    other.write(Create("/w/y"))
    assert client.next() == NodeChanged("/w"), "a child of it is new; the data of x is watched no more"
    for _ in range(3):
        client.read("/w", watch=True)
    other.write(Delete("/w/y"))
    assert {client.next(), client.next()} == {NodeChanged("/w"), NodeChanged("/w/y")}
    client.read("/w/y", watch=True)
    other.write(Create("/w/y"))
    assert client.next() == NodeChanged("/w/y"), "an absent node is watched, too"
    assert client.silent()


def test_reading_again_and_again_leaves_nothing_behind(connect: Connect) -> None:
    client = connect()
    client.write(ensured=("/again/x",))
    for _ in range(50):
        client.read("/again", watch=True)
    life = client.session._current
    assert life is not None
    assert max(len(watchers) for watchers in life.client._data_watchers.values()) == 1
    assert len(life.watches._armed) == 3


def test_a_watch_lost_with_the_connection_is_reported_as_a_change(server: ZooKeeperServer, connect: Connect) -> None:
    client = connect(session_timeout_ms=4_000)
    client.write(ensured=("/lost/x",))
    client.read("/lost", watch=True)
    cut(client)
    assert client.next() == SessionSuspended(client.session.session_id)
    assert client.next() == SessionResumed(client.session.session_id)
    assert client.next() == NodeChanged("/lost")
    assert client.silent()


def cut(client: Client) -> None:
    """The connection breaks."""
    life = client.session._current
    assert life is not None
    life.client._connection._socket.shutdown(socket.SHUT_RDWR)


# -- suspended and over ------------------------------------------------------------------------------------------------


def test_a_paused_zookeeper_suspends_the_session_and_what_is_asked_fails_at_once(
    server: ZooKeeperServer, connect: Connect
) -> None:
    client = connect(session_timeout_ms=4_000)
    client.write(Create("/paused-id", ephemeral=True))
    with paused(server):
        asked = time.monotonic()
        with pytest.raises(UnansweredError):
            client.read("/")
        assert time.monotonic() - asked < TIMEOUT_S / 2, "long before its deadline"
        assert client.next() == SessionSuspended(client.session.session_id)
        asked = time.monotonic()
        with pytest.raises(UnansweredError, match=r"the connection to .* is lost"):
            client.write(Create("/paused-x"))
        assert time.monotonic() - asked < TIMEOUT_S / 2, "at once"
    while (event := client.next()) == SessionSuspended(client.session.session_id):
        pass
    if event == SessionResumed(
        client.session.session_id
    ):  # whether the server takes the session for over hangs on who wakes first
        assert client.read("/paused-id", 0)["/paused-id"].owner == client.session.session_id
    else:
        assert isinstance(event, SessionEnded)
    assert "/paused-x" not in connect().read("/")


def test_a_session_that_expires_is_over_and_the_next_one_is_another(server: ZooKeeperServer, connect: Connect) -> None:
    """A pause longer than the session, while another one sees to it that time goes on for the server."""
    client = connect()
    first = client.session.session_id
    client.write(Create("/expired", ephemeral=True))
    end = taken_over(client)
    end.start()
    end.stop()
    end.close()
    while not isinstance(event := client.next(), SessionEnded):
        assert event in (SessionSuspended(first), SessionResumed(first))
    assert event == SessionEnded(first, "the session has expired")
    with pytest.raises(SessionOverError, match="expired"):
        client.read("/")
    client.session.open()
    began = client.next()
    assert isinstance(began, SessionStarted)
    assert began.session_id == client.session.session_id != first
    assert client.read("/expired", 0) == {}


def test_what_was_asked_of_an_expired_session_is_never_carried_out_under_the_next(
    server: ZooKeeperServer, connect: Connect
) -> None:
    """kazoo itself goes on with a new session, and with what was left in its queue."""
    client = connect()
    life = client.session._current
    assert life is not None
    end = taken_over(client)
    end.start()
    end.stop()
    end.close()
    while not isinstance(client.next(), SessionEnded):
        pass
    assert isinstance(life.client.handler, SingleSessionHandler)
    wait_until(lambda: not life.client.handler.running, "the old client's end")
    life.client.create_async("/zombie")
    client.session.open()
    assert isinstance(client.next(), SessionStarted)
    time.sleep(0.3)  # a zombie would have come by now: it connects within 0.1 s
    assert client.read("/zombie", 0) == {}


@pytest.mark.parametrize(("asked_ms", "granted_ms"), [(300_000, 4_000), (3_000, 3_000), (100, 400)])
def test_the_session_is_as_long_as_the_server_grants(connect: Connect, asked_ms: int, granted_ms: int) -> None:
    """2 to 20 of its ticks of 200 ms."""
    assert connect(session_timeout_ms=asked_ms).session.timeout_ms == granted_ms


def test_closing_lets_the_ephemeral_nodes_go_at_once(server: ZooKeeperServer, connect: Connect) -> None:
    client, other = connect(), connect()
    client.write(Create("/closing", ephemeral=True))
    client.session.close()
    assert other.read("/closing", 0) == {}
    with pytest.raises(SessionOverError, match="closed"):
        client.read("/")
    assert client.silent()


def test_closing_never_waits_for_a_zookeeper_that_does_not_answer(server: ZooKeeperServer, connect: Connect) -> None:
    client = connect(session_timeout_ms=4_000)
    with paused(server):
        began = time.monotonic()
        client.session.close(0.5)
        assert time.monotonic() - began < 2.0, "it waited until the connection was given up"


def test_events_come_from_other_threads_which_never_ask_zookeeper(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All events of a life. A question from kazoo's threads would wait for an answer that they have to take."""
    heard: list[tuple[SessionEvent, threading.Thread]] = []
    asked = guarded(monkeypatch)
    watching = connect()
    listening = Session(watching.session._options, lambda event: heard.append((event, threading.current_thread())))
    client = Client.__new__(Client)
    client.session = listening
    listening.connect(deadline())
    client.read("/heard", 0, watch=True)
    watching.write(Create("/heard"))
    wait_until(lambda: NodeChanged("/heard") in dict(heard), "the watch")
    client.read("/heard", 0, watch=True)
    cut(client)
    wait_until(lambda: [event for event, _ in heard].count(NodeChanged("/heard")) == 2, "the watch that was lost")
    end = taken_over(client)
    end.start()
    end.stop()
    end.close()
    wait_until(lambda: isinstance(heard[-1][0], SessionEnded), "the session's end", TIMEOUT_S)
    assert {type(event) for event, _ in heard} == {
        SessionStarted,
        NodeChanged,
        SessionSuspended,
        SessionResumed,
        SessionEnded,
    }
    assert threading.current_thread() not in {thread for _, thread in heard}
    listening.close()
    assert asked.wrongly == []
    assert asked.rightly > 0, "the guard is in their way"


class Asked:
    """Calls of kazoo's clients: how many from the owners' threads, and which from kazoo's."""

    def __init__(self) -> None:
        self.rightly = 0
        self.wrongly: list[str] = []


def guarded(monkeypatch: pytest.MonkeyPatch) -> Asked:
    """Have every call by which a client asks or ends raise in kazoo's own threads: they serve what it waits for.

    `_call` is what all of its operations send by.
    """
    asked = Asked()
    mine = {"MainThread", "streamgroup-zookeeper-end"}

    def guard(name: str) -> None:
        original = getattr(KazooClient, name)

        def call(client: KazooClient, *args: object, **kwargs: object) -> object:
            thread = threading.current_thread().name
            if thread not in mine:
                asked.wrongly.append(f"{name} {args} in {thread}")
                raise AssertionError(asked.wrongly[-1])
            asked.rightly += 1
            return original(client, *args, **kwargs)

        monkeypatch.setattr(KazooClient, name, call)

    for name in ("_call", "command", "start_async", "stop", "restart", "close"):
        guard(name)
    return asked


# -- who may do what ---------------------------------------------------------------------------------------------------

BOB = {"username": "bob", "password": Secret("env:BOBS_PASSWORD"), "creator_only": True}


def test_nodes_of_a_creator_are_read_by_all_and_written_by_him_over_reconnects(
    connect: Connect, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("BOBS_PASSWORD", "canary")
    with caplog.at_level(1):
        bob, other = connect(**BOB), connect()
        bob.write(Create("/consumers/bobs/offset", b"1"), ensured=("/consumers/bobs",))
        cut(bob)
        wait_until(
            lambda: bob.session.connected and SessionResumed(bob.session.session_id) in bob.told.queue, "the connection"
        )
        bob.write(Set("/consumers/bobs/offset", b"2"))
        assert other.read("/consumers/bobs")["/consumers/bobs/offset"].data == b"2"
        with pytest.raises(RefusedError, match=r"zookeeper\.username") as caught:
            other.write(Set("/consumers/bobs/offset", b"3"))
        assert caught.value.refusal is Refusal.NO_AUTH
        with pytest.raises(RefusedError, match="/consumers/bobs/new"):
            other.write(ensured=("/consumers/bobs/new",))
        other.write(ensured=("/consumers/others",))  # what all groups share is everybody's
        monkeypatch.setenv("BOBS_PASSWORD", "wrong")
        impostor = connect(**BOB)
        with pytest.raises(RefusedError):
            impostor.write(Set("/consumers/bobs/offset", b"4"))
    assert "canary" not in caplog.text
    assert "wrong" not in caplog.text
    assert "canary" not in repr(bob.session._options)


def test_what_may_not_be_read_is_named(connect: Connect, server: ZooKeeperServer) -> None:
    kazoo = KazooClient(f"127.0.0.1:{server.port}", auth_data=[("digest", "eve:secret")])
    kazoo.start()
    try:
        from kazoo.security import CREATOR_ALL_ACL  # noqa: PLC0415

        kazoo.create("/eves", acl=CREATOR_ALL_ACL)
        forbidden = r"/eves refused by .*: the node's access control list forbids the operation"
        with pytest.raises(RefusedError, match=forbidden):
            connect().read("/", 1)
    finally:
        kazoo.delete("/eves")
        kazoo.stop()
        kazoo.close()


# -- before transactions -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def old_server() -> Iterator[ZooKeeperServer]:
    with ZooKeeperServer(version="3.3.6") as zookeeper:
        yield zookeeper


def test_a_zookeeper_without_transactions_is_noticed_before_it_falls_silent(
    old_server: ZooKeeperServer, connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    client = connect(old_server)
    client.write(
        Create("/old/ids/a", b"A", ephemeral=True), Create("/old/offset", b"1"), ensured=("/old/ids", "/old/owners")
    )
    assert "ZooKeeper before 3.4 has no transactions" in caplog.text
    client.write(Check("/old/ids/a"), Set("/old/offset", b"2", 0))
    client.write(Delete("/old/ids/a"), Create("/old/ids/a", b"B", ephemeral=True))
    nodes = client.read("/old", 2)
    assert (nodes["/old/offset"].data, nodes["/old/ids/a"].data) == (b"2", b"B")
    with pytest.raises(RefusedError, match="/old/ids/b") as caught:
        client.write(Set("/old/offset", b"3"), Check("/old/ids/b"))
    assert caught.value.refusal is Refusal.NO_NODE
    assert client.read("/old/offset", 0)["/old/offset"].data == b"2", "all that can be judged is judged first"
    assert client.silent()
