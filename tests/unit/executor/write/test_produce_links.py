"""The connections of a producer, and what becomes of its requests when they end."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from streamgroup.errors import ConfigError, ErrorCode, TransportError
from streamgroup.executor.write.produce_links import ProduceLinks
from streamgroup.kafka.net.poller import ConnectionLost, ConnectionReady
from streamgroup.kafka.producer import events as ev
from streamgroup.kafka.wire.messages.cluster import MetadataRequest
from streamgroup.kafka.wire.messages.log import FetchRequest
from streamgroup.kafka.wire.messages.produce import InitProducerIdRequest
from streamgroup.model import Broker
from streamgroup.options.tls import TlsOptions
from streamgroup.options.types import ClientOptions
from tests.clock import Clock
from tests.fakes.answers import metadata, topic
from tests.fakes.broker import SILENCE
from tests.fakes.scripted_cluster import ScriptedCluster
from tests.unit.executor.producing import TOPIC, VERSIONS, StubPoller, client_of
from tests.waiting import soon

Start = Callable[..., ScriptedCluster]
Open = Callable[..., ProduceLinks]


@pytest.fixture
def open_links() -> Iterator[Open]:
    opened: list[ProduceLinks] = []

    def make(client: ClientOptions, clock: Callable[[], float] = time.monotonic) -> ProduceLinks:
        opened.append(ProduceLinks(client, lambda _, version: b"%d" % version, clock))
        return opened[-1]

    yield make
    for each in opened:
        each.close()


def events_of(links: ProduceLinks, count: int) -> list[ev.Event]:
    """The next events, at least so many."""
    found: list[ev.Event] = []
    deadline = soon()
    while len(found) < count and deadline > time.monotonic():
        found += links.wait(0.1)
    return found


def test_metadata_and_producer_id_come_over_one_connection(start_cluster: Start, open_links: Open) -> None:
    cluster = start_cluster()
    links = open_links(client_of(cluster))
    links.read_metadata(frozenset({TOPIC, "missing"}))
    links.get_producer_id()
    assert not links.is_usable
    read, given = events_of(links, 2)
    assert isinstance(read, ev.MetadataRead)
    assert set(read.topics) == {TOPIC}
    assert read.errors == {"missing": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert given == ev.ProducerIdGiven(1000, 0)
    assert cluster.brokers[0].connections == 1
    assert links.is_usable


def test_a_broker_to_which_no_retry_connects_fails_the_task(start_cluster: Start, open_links: Open) -> None:
    tls = TlsOptions(truststore_type="PEM", truststore_location="/nowhere.pem")
    links = open_links(replace(client_of(start_cluster()), security_protocol="SSL", tls=tls))
    links.read_metadata(frozenset({TOPIC}))
    with pytest.raises(ConfigError, match=r"/nowhere\.pem: No such file"):
        events_of(links, 1)


@pytest.mark.parametrize("id_first", [True, False])
def test_a_refused_question_leaves_the_next_one_on_the_same_connection(
    start_cluster: Start, open_links: Open, id_first: bool
) -> None:
    links = open_links(client_of(start_cluster(versions={InitProducerIdRequest: (0, -1)})))
    asks = [links.get_producer_id, lambda: links.read_metadata(frozenset({TOPIC}))]
    for ask in asks if id_first else reversed(asks):
        ask()
    refused, read = events_of(links, 2)
    assert isinstance(refused, ev.ProducerIdRefused)
    assert refused.code == ErrorCode.UNSUPPORTED_VERSION
    assert isinstance(read, ev.MetadataRead)


def test_the_next_bootstrap_server_is_asked_where_one_is_away(start_cluster: Start, open_links: Open) -> None:
    cluster = start_cluster(2)
    cluster.brokers[0].stop()
    links = open_links(client_of(cluster))
    links.read_metadata(frozenset({TOPIC}))
    (read,) = events_of(links, 1)
    assert isinstance(read, ev.MetadataRead)


def test_metadata_fail_where_no_broker_answers(start_cluster: Start, open_links: Open) -> None:
    cluster = start_cluster(2)
    cluster.stop()
    links = open_links(client_of(cluster))
    links.read_metadata(frozenset({TOPIC}))
    links.get_producer_id()
    failed, refused = sorted(events_of(links, 2), key=lambda event: type(event).__name__)
    assert isinstance(failed, ev.MetadataFailed)
    assert all(str(port) in failed.reason for _, port in cluster.addresses)
    assert isinstance(refused, ev.ProducerIdRefused)
    assert refused.code == ErrorCode.NETWORK_EXCEPTION


@pytest.mark.slow
def test_a_question_is_given_up_after_the_request_timeout(start_cluster: Start, open_links: Open) -> None:
    cluster = start_cluster()
    cluster.brokers[0].handlers[MetadataRequest] = lambda *_: SILENCE
    links = open_links(client_of(cluster, request_timeout_ms=1_000))
    links.read_metadata(frozenset({TOPIC}))
    assert events_of(links, 1) == [ev.MetadataFailed("no answer within request.timeout.ms=1000")]


def a_send(node: int, token: int = 1, acks: int = -1) -> ev.Send:
    return ev.Send(node, token, (), acks, 1_000, {})


def test_a_send_to_an_unknown_broker_is_reported_as_not_written(start_cluster: Start, open_links: Open) -> None:
    links = open_links(client_of(start_cluster()))
    links.send(a_send(7))
    assert links.wait(None) == [ev.Disconnected(7, "broker 7 is not in the metadata", written=False)]


def test_a_broker_that_is_away_has_written_nothing(start_cluster: Start, open_links: Open) -> None:
    cluster = start_cluster()
    cluster.stop()
    links = open_links(client_of(cluster))
    links.use_brokers((Broker(0, *cluster.addresses[0]),))
    links.send(a_send(0))
    (lost,) = events_of(links, 1)
    assert isinstance(lost, ev.Disconnected)
    assert not lost.written


@pytest.mark.parametrize("acks", [-1, 1])
def test_a_request_without_an_answer_may_be_written(start_cluster: Start, open_links: Open, acks: int) -> None:
    cluster = start_cluster()
    cluster.cut(appended=True)
    links = open_links(client_of(cluster))
    links.use_brokers((Broker(0, *cluster.addresses[0]),))
    links.send(a_send(0, acks=acks))
    (lost,) = events_of(links, 1)
    assert isinstance(lost, ev.Disconnected)
    assert lost.written
    assert links.is_usable


def test_a_request_without_an_answer_is_written_after_the_throttle_time_of_its_broker(
    start_cluster: Start, open_links: Open
) -> None:
    """With acks=0 the task ends when its requests are written, and its worker process may end next."""
    cluster, skipped = start_cluster(versions={FetchRequest: FetchRequest.VERSIONS}), Clock(0.0)
    throttled = replace(metadata({0: cluster.addresses[0][1]}, topic(TOPIC, 0)), throttle_time_ms=3_600_000)
    cluster.brokers[0].handlers[MetadataRequest] = lambda *_: throttled
    links = open_links(client_of(cluster), lambda: time.monotonic() + skipped())
    links.read_metadata(frozenset({TOPIC}))
    events_of(links, 1)
    links.send(a_send(0, acks=0))
    assert (links.wait(0), cluster.requests) == ([], [])
    skipped.sleep(3_600)
    assert events_of(links, 1) == [ev.Written(1)]
    cluster.brokers[0].wait_for(lambda _: len(cluster.requests) == 1)


def test_no_event_follows_a_connection_that_the_producer_gives_up(start_cluster: Start, open_links: Open) -> None:
    cluster = start_cluster()
    cluster.mute()
    links = open_links(client_of(cluster))
    links.use_brokers((Broker(0, *cluster.addresses[0]),))
    links.send(a_send(0))
    while not cluster.requests:
        links.wait(0.01)
    links.disconnect(0)
    assert links.wait(0.05) == []
    assert links.is_usable
    cluster.brokers[0].wait_for(lambda broker: broker.resets + broker.ends == 1)


def test_a_broker_at_another_address_is_connected_to_there(start_cluster: Start, open_links: Open) -> None:
    cluster = start_cluster(2)
    links = open_links(client_of(cluster))
    for node in range(2):
        links.use_brokers((Broker(0, *cluster.addresses[node]),))
        links.send(a_send(0, token=node))
        assert [type(event) for event in events_of(links, 1)] == [ev.Answered]
    assert [node for node, _, _ in cluster.requests] == [0, 1]


@pytest.fixture
def poller(monkeypatch: pytest.MonkeyPatch) -> StubPoller:
    stub = StubPoller()
    monkeypatch.setattr("streamgroup.executor.write.produce_links.Poller", lambda *_: stub)
    return stub


TWO = ClientOptions((("first", 1), ("second", 2)))
END = TransportError("it has ended")


def test_a_question_does_not_go_to_a_connection_that_has_ended_at_the_same_time(
    poller: StubPoller, open_links: Open
) -> None:
    links = open_links(TWO)
    links.use_brokers((Broker(0, "first", 1), Broker(1, "second", 2)))
    links.send(a_send(0))
    links.send(a_send(1))
    one, two = poller.handles
    poller.events = [ConnectionReady(one, VERSIONS), ConnectionReady(two, VERSIONS)]
    links.wait(0.0)
    links.read_metadata(frozenset({TOPIC}))
    assert [type(request) for handle, request in poller.sent if handle == one][-1] is MetadataRequest
    poller.events = [ConnectionLost(one, END, ()), ConnectionLost(two, END, ())]
    assert [type(event) for event in links.wait(0.0)] == [ev.Disconnected] * 2
    assert [(handle.host, handle.port) for handle in poller.handles[2:]] == [("second", 2)]
    poller.events = [ConnectionLost(poller.handles[2], END, ())]
    assert links.wait(0.0) == [ev.MetadataFailed("it has ended; it has ended")]


def test_a_connection_that_ends_as_it_begins_carries_nothing(poller: StubPoller, open_links: Open) -> None:
    links = open_links(TWO)
    links.use_brokers((Broker(0, "first", 1),))
    links.send(a_send(0))
    (handle,) = poller.handles
    poller.events = [ConnectionReady(handle, VERSIONS), ConnectionLost(handle, END, ())]
    assert links.wait(0.0) == [ev.Disconnected(0, "it has ended", written=False)]
    assert poller.sent == []
