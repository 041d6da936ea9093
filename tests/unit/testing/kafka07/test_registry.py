"""An emulated 0.7 broker registers itself and its topics in ZooKeeper, again after its session has expired."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from kazoo.client import KazooState
from kazoo.exceptions import ConnectionLoss, NoAuthError, NodeExistsError, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError

from streamgroup.errors import ConfigError, TransportError
from streamgroup.testing.kafka07 import registry as module
from streamgroup.testing.kafka07.config import BrokerConfig
from streamgroup.testing.kafka07.registry import AlreadyRegistered, Registry
from streamgroup.znodes import Create, Delete, Refusal
from tests.fakes.nodes import NodeTree, Refused
from tests.waiting import wait_until

ZOOKEEPER = "zk1:2181/kafka"
RAISED = {Refusal.NO_NODE: NoNodeError, Refusal.NODE_EXISTS: NodeExistsError}
OTHER_SESSION = 99


class Client:
    """A client of kazoo whose ZooKeeper is in memory. Its session ends with `stop`, or when a test expires it."""

    def __init__(self, nodes: NodeTree) -> None:
        self.nodes = nodes
        self.session = 1
        self.chroot = "/kafka"
        self.calls: list[str] = []
        self.refusal: Exception | None = None
        """What `start` raises."""
        self.has_root = True
        self.losses: list[bool] = []
        """For the next calls of `create`: the connection is lost, and whether the call took effect."""
        self._listeners: list[Callable[[str], None]] = []

    def add_listener(self, listener: Callable[[str], None]) -> None:
        self._listeners.append(listener)

    def start(self, timeout: float) -> None:
        self.calls.append(f"start within {timeout:g} s")
        if self.refusal is not None:
            raise self.refusal

    def stop(self) -> None:
        self.calls.append("stop")
        self.end_session()

    def close(self) -> None:
        self.calls.append("close")

    def create(self, path: str, value: bytes | None, ephemeral: bool = False) -> None:
        if not self.has_root:
            raise NoNodeError
        takes_effect, is_lost = (self.losses.pop(0), True) if self.losses else (True, False)
        if takes_effect:
            try:
                self.nodes.transact([Create(path, value, ephemeral=ephemeral)], self.session)  # type: ignore[arg-type]
            except Refused as refused:
                raise RAISED[refused.refusal] from None
        if is_lost:
            raise ConnectionLoss

    def exists(self, path: str) -> SimpleNamespace | None:
        node = self.nodes.get(path)
        return None if node is None else SimpleNamespace(ephemeralOwner=node.owner)

    @property
    def client_id(self) -> tuple[int, bytes]:
        return self.session, b""

    def get(self, path: str) -> tuple[bytes, object]:
        node = self.nodes.get(path)
        if node is None:
            raise NoNodeError
        return node.data, None

    def end_session(self) -> None:
        """End the session, with its ephemeral nodes."""
        for path in self.nodes.owned_by(self.session):
            self.remove(path)
        self.session += 1

    def remove(self, path: str) -> None:
        self.nodes.transact([Delete(path)])

    def tell(self, *states: str) -> None:
        """Tell the listeners how the connection is."""
        for state in states:
            for listener in self._listeners:
                listener(state)


class Broker:
    """A broker's registry, its ZooKeeper, and the lines of its log."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **given: Any) -> None:
        self.nodes = NodeTree()
        self.client = Client(self.nodes)
        self.lines: list[str] = []
        self.topics: list[str] = []
        monkeypatch.setattr(module, "KazooClient", self._made)
        own = {"num_partitions": 3, "topic_partitions": {"wide": 8}, "session_timeout_ms": 500, **given}
        config = BrokerConfig(7, Path("/data"), zookeeper=ZOOKEEPER, host="host-7", **own)
        self.registry = Registry(config, 6667, lambda: self.topics, self.lines.append)

    def _made(self, hosts: str, timeout: float, **_: object) -> Client:
        self.client.calls.append(f"{hosts}, session of {timeout:g} s")
        return self.client

    def data(self, path: str) -> bytes | None:
        node = self.nodes.get(path)
        return None if node is None else node.data

    def await_line(self, text: str) -> None:
        wait_until(lambda: any(text in line for line in self.lines), text, every=0.001)


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Iterator[Broker]:
    made = Broker(monkeypatch)
    yield made
    made.registry.stop()


# -- the start --------------------------------------------------------------------------------------------------------


def test_a_broker_is_registered_by_host_and_port_and_by_its_partitions_of_each_topic(broker: Broker) -> None:
    broker.topics = ["t", "wide"]
    broker.registry.start()
    found = re.fullmatch(rb"host-7-(\d{13}):host-7:6667", broker.data("/brokers/ids/7") or b"")
    assert found is not None
    assert abs(int(found[1]) / 1000 - time.time()) < 60
    assert broker.data("/brokers/topics/t/7") == b"3"
    assert broker.data("/brokers/topics/wide/7") == b"8"
    assert broker.client.calls == ["zk1:2181/kafka, session of 0.5 s", "start within 6 s"]


def test_registrations_end_with_the_session_and_their_parents_stay_without_data(broker: Broker) -> None:
    broker.topics = ["t"]
    broker.registry.start()
    assert broker.nodes.owned_by(1) == ["/brokers/ids/7", "/brokers/topics/t/7"]
    broker.registry.stop()
    assert (broker.data("/brokers/ids/7"), broker.data("/brokers/topics/t/7")) == (None, None)
    for parent in ("/brokers", "/brokers/ids", "/brokers/topics", "/brokers/topics/t"):
        node = broker.nodes.get(parent)
        assert node is not None
        assert (node.data, node.owner) == (None, 0)
    assert broker.client.calls[-2:] == ["stop", "close"]


def test_an_id_that_another_broker_has_is_refused_and_the_session_ends(broker: Broker) -> None:
    broker.nodes = broker.client.nodes = NodeTree.of({"/brokers/ids/7": "other:other:9092"})
    with pytest.raises(AlreadyRegistered, match=r"path /brokers/ids/7\. .* wait for the session timeout, then start"):
        broker.registry.start()
    assert broker.data("/brokers/ids/7") == b"other:other:9092"
    assert broker.client.calls[-2:] == ["stop", "close"]


def test_a_zookeeper_that_does_not_answer_is_named_with_the_timeout(broker: Broker) -> None:
    broker.client.refusal = KazooTimeoutError("Connection time-out")
    with pytest.raises(TransportError, match=rf"ZooKeeper at {ZOOKEEPER} within 6000 ms\. Check that it runs"):
        broker.registry.start()
    assert broker.client.calls[-2:] == ["stop", "close"]


@pytest.mark.parametrize("takes_effect", [False, True])
def test_a_connection_that_is_lost_meanwhile_is_waited_for(broker: Broker, takes_effect: bool) -> None:
    """Each answer is lost at first, as by a connection that comes back with its session after its timeout."""
    broker.topics = ["t"]
    broker.client.nodes = broker.nodes = NodeTree.of({"/brokers": "", "/brokers/ids": "", "/brokers/topics": ""})
    broker.client.losses = [takes_effect, False, False, False]
    broker.registry.start()
    assert broker.client.losses == []
    assert broker.nodes.owned_by(1) == ["/brokers/ids/7", "/brokers/topics/t/7"]


def test_parents_are_made_over_a_lost_connection(broker: Broker) -> None:
    broker.client.create("/brokers", None)
    broker.client.losses = [False, False, True]
    broker.registry.start()
    assert broker.nodes.owned_by(1) == ["/brokers/ids/7"]


def test_a_broker_that_stops_waits_for_no_connection(broker: Broker) -> None:
    broker.registry.start()
    broker.client.losses = [False] * 1000
    broker.registry.announce("t")
    wait_until(lambda: len(broker.client.losses) < 1000, "the first attempt", every=0.001)
    broker.registry.stop()
    assert broker.lines == ["not registered: InterruptedError: "]


def test_a_chroot_that_does_not_exist_is_named_with_the_next_step(broker: Broker) -> None:
    broker.client.has_root = False
    with pytest.raises(ConfigError, match=r"invalid zk\.connect: the chroot /kafka does not exist .* Create it first"):
        broker.registry.start()
    assert broker.client.calls[-2:] == ["stop", "close"]


@pytest.mark.parametrize(("count", "is_refused"), [("3", False), ("4", True)])
def test_a_topic_that_is_registered_already_must_have_as_many_partitions(
    broker: Broker, count: str, is_refused: bool
) -> None:
    """The registration is the one of the session before, which has not expired yet."""
    before = NodeTree.of({"/brokers/topics/t/7": count}, {"/brokers/topics/t/7": OTHER_SESSION})
    broker.nodes = broker.client.nodes = before
    broker.topics = ["t"]
    if is_refused:
        with pytest.raises(TransportError, match=f"cannot use ZooKeeper at {ZOOKEEPER}: NodeExistsError"):
            broker.registry.start()
    else:
        broker.registry.start()
    assert broker.data("/brokers/topics/t/7") == count.encode()


# -- afterwards -------------------------------------------------------------------------------------------------------


def test_a_new_topic_is_registered_in_the_background(broker: Broker) -> None:
    broker.registry.start()
    broker.registry.announce("wide")
    broker.await_line("registered /brokers/topics/wide/7: 8")
    assert broker.data("/brokers/topics/wide/7") == b"8"


def test_everything_is_registered_again_after_a_session_has_expired(broker: Broker) -> None:
    broker.topics = ["t"]
    broker.registry.start()
    broker.client.end_session()
    assert broker.data("/brokers/ids/7") is None
    broker.lines.clear()
    broker.client.tell(KazooState.LOST, KazooState.CONNECTED)
    broker.await_line("re-registering broker 7 in ZooKeeper: its session had expired")
    broker.await_line("registered /brokers/topics/t/7: 3")
    assert broker.nodes.owned_by(2) == ["/brokers/ids/7", "/brokers/topics/t/7"]


def test_a_connection_that_comes_back_with_its_session_changes_nothing(broker: Broker) -> None:
    broker.registry.start()
    broker.client.tell(KazooState.SUSPENDED, KazooState.CONNECTED, KazooState.CONNECTED)
    broker.registry.announce("t")
    broker.await_line("registered /brokers/topics/t/7")
    assert len(broker.lines) == 1


def test_a_registration_that_fails_is_reported_and_the_next_one_is_made(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.registry.start()
    create = broker.client.create

    def create_or_fail(path: str, value: bytes | None, ephemeral: bool = False) -> None:
        if "unlucky" in path:
            raise NoAuthError
        create(path, value, ephemeral)

    monkeypatch.setattr(broker.client, "create", create_or_fail)
    broker.registry.announce("unlucky")
    broker.registry.announce("t")
    broker.await_line("registered /brokers/topics/t/7: 3")
    assert broker.lines[0].startswith("not registered: NoAuthError")


def test_an_id_that_another_broker_takes_meanwhile_is_reported(broker: Broker) -> None:
    broker.registry.start()
    broker.client.end_session()
    broker.nodes.transact([Create("/brokers/ids/7", b"other:other:9092")])
    broker.client.tell(KazooState.LOST, KazooState.CONNECTED)
    broker.await_line("not registered: AlreadyRegistered: A broker is already registered on the path /brokers/ids/7")
    assert broker.data("/brokers/ids/7") == b"other:other:9092"
