"""The simulated ZooKeeper and its clients: what a real one guarantees, and what it does not."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

from streamgroup.group.registry import events as rv
from streamgroup.znodes import Check, Create, Delete, Operation, Refusal, Set
from tests.fakes.zookeeper import Session
from tests.sim.clock import SimulatedClock
from tests.sim.network import Network
from tests.sim.zkclient import Client, Loss
from tests.sim.zookeeper import TICK_S, SimZooKeeper

TIMEOUT_S = 6.0


class Play:
    """A server, and clients whose processes always run."""

    def __init__(self) -> None:
        self.clock = SimulatedClock(tracing=True)
        self.written: list[Sequence[Operation]] = []
        self.zookeeper = SimZooKeeper(self.clock, lambda session, operations: self.written.append(operations))

    def client(self, name: str = "c") -> Hearing:
        return Hearing(self, name)

    def run(self, seconds: float) -> None:
        self.clock.run_until(self.clock.now + seconds)


class Hearing:
    """A client that is connected, and what it has heard."""

    def __init__(self, play: Play, name: str) -> None:
        self.play = play
        self.heard: list[object] = []
        self.network = Network(play.clock, random.Random(name), 0.02)
        self.client = Client(
            play.zookeeper,
            self.network,
            name,
            TIMEOUT_S,
            hear=lambda act: act(),
            told=self.heard.append,
            fired=lambda path, of_children: self.heard.append(path),
        )
        self.client.open()
        play.run(0.2)
        assert self.heard == [rv.SessionBegan(self.session.session_id, int(TIMEOUT_S * 1000))]
        self.heard.clear()

    @property
    def session(self) -> Session:
        assert self.client.session is not None
        return self.client.session

    @property
    def kinds(self) -> list[type]:
        return [type(event) for event in self.heard]

    def ask(self, serve: Callable[..., Any]) -> list[Any]:
        answers: list[Any] = []
        self.client.request(serve, answers.append)
        return answers

    def transact(self, *operations: Operation) -> list[Any]:
        return self.ask(lambda session, wire: self.play.zookeeper.transact(session, operations))

    def watch(self, path: str) -> None:
        zookeeper = self.play.zookeeper
        self.ask(lambda session, wire: (zookeeper.data(path, wire), zookeeper.children(path, wire)))
        self.play.run(0.2)

    def break_off(self) -> None:
        assert self.client.wire is not None
        self.client.wire.break_("connection reset by peer")


# -- nodes -------------------------------------------------------------------------------------------------------------


def test_a_transaction_is_carried_out_whole_or_not_at_all() -> None:
    zookeeper = Play().zookeeper
    assert zookeeper.transact(None, [Create("/a", b"1"), Create("/a/b")]) is None
    before = zookeeper.data("/a")
    refused = zookeeper.transact(None, [Set("/a", b"2"), Delete("/a/b"), Create("/c"), Check("/d")])
    assert refused == ("/d", Refusal.NO_NODE)
    assert zookeeper.data("/a") == before
    assert zookeeper.names("/a") == ["b"]
    assert zookeeper.data("/c") is None


def test_what_is_refused_and_why() -> None:
    zookeeper = Play().zookeeper
    zookeeper.ensure(None, "/a/b")
    for operation, refusal in (
        (Create("/a"), Refusal.NODE_EXISTS),
        (Create("/x/y"), Refusal.NO_NODE),
        (Set("/a", b"", 1), Refusal.BAD_VERSION),
        (Check("/a", 1), Refusal.BAD_VERSION),
        (Delete("/a"), Refusal.NOT_EMPTY),
        (Delete("/x"), Refusal.NO_NODE),
    ):
        assert zookeeper.transact(None, [operation]) == (operation.path, refusal)


def test_zxids_order_all_that_is_written() -> None:
    zookeeper = Play().zookeeper
    zookeeper.ensure(None, "/a")
    zookeeper.ensure(None, "/b")
    zookeeper.transact(None, [Create("/a/x"), Set("/b", b"1")])
    a, b, x = (zookeeper.data(path) for path in ("/a", "/b", "/a/x"))
    assert a is not None
    assert b is not None
    assert x is not None
    assert a.czxid < b.czxid < x.czxid == a.pzxid == b.mzxid
    assert (a.version, b.version, x.version) == (0, 1, 0)
    zookeeper.transact(None, [Delete("/a/x")])
    after = zookeeper.data("/a")
    assert after is not None
    assert after.pzxid > a.pzxid
    zookeeper.transact(None, [Create("/a/x")])
    anew = zookeeper.data("/a/x")
    assert anew is not None
    assert (anew.version, anew.czxid > x.czxid) == (0, True)


# -- sessions ----------------------------------------------------------------------------------------------------------


def test_an_ephemeral_node_lingers_until_its_session_has_expired() -> None:
    play = Play()
    dead, watching = play.client("dead"), play.client("watching")
    dead.transact(Create("/a", ephemeral=True))
    play.run(0.2)
    watching.watch("/")
    dead.client.die()
    play.run(TIMEOUT_S / 2)
    assert play.zookeeper.names("/") == ["a"]
    assert not watching.heard
    play.run(TIMEOUT_S)
    assert play.zookeeper.names("/") == []
    assert watching.heard == ["/"]


def test_what_the_system_of_a_dead_client_has_yet_to_send_renews_its_session_once() -> None:
    play = Play()
    for seed in range(8):  # a request of a connection that is closed may be lost
        dead = play.client(f"dead-{seed}")
        session, wire = dead.session, dead.client.wire
        assert wire is not None
        play.run(TIMEOUT_S / 6)
        wire.stall(TIMEOUT_S / 2)
        dead.transact(Create("/a", ephemeral=True))
        dead.client.die()
        died_at = play.clock.now
        play.run(TIMEOUT_S / 2 + 0.2)
        late_at = play.zookeeper.late_at.get(f"dead-{seed}", 0.0)
        if late_at:
            break
    assert died_at + TIMEOUT_S / 2 <= late_at < died_at + TIMEOUT_S / 2 + 0.2
    play.run(TIMEOUT_S - 0.4)
    assert play.zookeeper.session(session.session_id) is session
    assert play.zookeeper.names("/") == ["a"]
    play.run(1.0)
    assert play.zookeeper.session(session.session_id) is None
    assert play.zookeeper.names("/") == []


def test_a_session_that_is_ended_in_order_takes_its_nodes_with_it_at_once() -> None:
    play = Play()
    leaving = play.client()
    leaving.transact(Create("/a", ephemeral=True))
    closed: list[bool] = []
    leaving.client.close(lambda: closed.append(True))
    play.run(0.3)
    assert closed
    assert play.zookeeper.names("/") == []
    assert not leaving.heard


def test_pings_keep_a_session_that_asks_nothing() -> None:
    play = Play()
    idle = play.client()
    play.run(10 * TIMEOUT_S)
    assert not idle.heard
    assert play.zookeeper.session(idle.session.session_id) is not None


def test_who_is_cut_off_is_suspended_when_a_ping_is_not_answered_and_hears_of_the_expiry_when_connected_again() -> None:
    play = Play()
    cut = play.client()
    cut.network.cut_until = play.clock.now + 2 * TIMEOUT_S
    play.run(TIMEOUT_S)
    assert cut.kinds == [rv.Suspended]
    play.run(TIMEOUT_S / 2)
    assert play.zookeeper.session(cut.session.session_id) is None
    assert cut.kinds == [rv.Suspended]
    play.run(TIMEOUT_S)
    assert cut.kinds == [rv.Suspended, rv.Expired]
    cut.client.open()
    play.run(0.2)
    assert cut.kinds == [rv.Suspended, rv.Expired, rv.SessionBegan]


def test_a_broken_connection_is_made_again_in_the_same_session() -> None:
    play = Play()
    client = play.client()
    client.break_off()
    assert client.ask(lambda session, wire: "answer") == [Loss("the connection is lost")]
    play.run(1.0)
    assert client.kinds == [rv.Suspended, rv.Resumed]
    answers = client.ask(lambda session, wire: session.session_id)
    play.run(0.2)
    assert answers == [client.session.session_id]


def test_what_was_under_way_on_a_broken_connection_is_answered_to_nobody_and_nothing_of_it_comes_late() -> None:
    carried_out = late = 0
    for number in range(200):
        play = Play()
        client = play.client(f"c{number}")
        answers = client.transact(Create("/a"))
        client.break_off()
        play.run(0.001)
        assert isinstance(answers[0], Loss)
        play.run(0.5)
        later = client.transact(Create("/b"))
        play.run(0.2)
        assert later == [None]
        names = play.zookeeper.names("/")
        carried_out += "a" in names
        a, b = play.zookeeper.data("/a"), play.zookeeper.data("/b")
        assert b is not None
        late += a is not None and a.czxid > b.czxid
    assert 40 < carried_out < 160
    assert late == 0


def test_a_session_that_another_client_takes_over_is_moved_back_and_forth() -> None:
    play = Play()
    first, thief = play.client("first"), play.client("thief")
    assert first.client.wire is not None
    thief.client.session = first.session
    thief.break_off()
    play.run(0.5)
    assert first.kinds[:2] == [rv.Suspended, rv.Resumed]
    assert rv.Suspended in thief.kinds[1:]


# -- watches -----------------------------------------------------------------------------------------------------------


def test_a_watch_fires_once() -> None:
    play = Play()
    play.zookeeper.ensure(None, "/a")
    client = play.client()
    client.watch("/a")
    for data in (b"1", b"2"):
        play.zookeeper.transact(None, [Set("/a", data)])
        play.run(0.2)
    assert client.heard == ["/a"]
    play.zookeeper.ensure(None, "/a/b")
    play.zookeeper.ensure(None, "/a/c")
    play.run(0.2)
    assert client.heard == ["/a", "/a"]


def test_the_coming_to_be_of_a_node_can_be_watched() -> None:
    play = Play()
    client = play.client()
    client.watch("/a")
    play.zookeeper.ensure(None, "/a")
    play.run(0.2)
    assert client.heard == ["/a"]


def test_watches_are_lost_with_their_connection() -> None:
    play = Play()
    play.zookeeper.ensure(None, "/a")
    client = play.client()
    client.watch("/a")
    client.break_off()
    play.run(1.0)
    play.zookeeper.transact(None, [Set("/a", b"1")])
    play.run(0.2)
    assert client.kinds == [rv.Suspended, rv.Resumed]


def test_the_event_comes_before_the_answer_that_shows_the_change() -> None:
    play = Play()
    play.zookeeper.ensure(None, "/a")
    client = play.client()
    client.watch("/a")
    client.client.request(
        lambda session, wire: play.zookeeper.transact(session, [Set("/a", b"1")]),
        lambda answer: client.heard.append("answered"),
    )
    play.run(0.2)
    assert client.heard == ["/a", "answered"]


# -- servers that are away ---------------------------------------------------------------------------------------------


def test_after_an_election_every_session_begins_anew() -> None:
    play = Play()
    client = play.client()
    play.zookeeper.go_away(2 * TIMEOUT_S, election=True)
    play.run(2 * TIMEOUT_S + 1.0)
    assert client.kinds == [rv.Suspended, rv.Resumed]


def test_servers_that_stood_still_expire_the_sessions_whose_time_is_over() -> None:
    play = Play()
    client = play.client()
    play.zookeeper.go_away(2 * TIMEOUT_S + TICK_S, election=False)
    play.run(TIMEOUT_S)
    assert client.kinds == [rv.Suspended]
    play.run(TIMEOUT_S + 2.0)
    assert client.kinds == [rv.Suspended, rv.Expired]
