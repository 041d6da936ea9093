"""A connection, its counts, and a poller of many: brokers that do what a test says."""

from __future__ import annotations

import re
import socket
import struct
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from streamgroup.errors import (
    BrokerError,
    ConfigError,
    DecodeError,
    TooLarge,
    TransportError,
    UnsupportedVersionError,
    error_of,
)
from streamgroup.kafka.net.connection import Connection
from streamgroup.kafka.net.connection_totals import TOTALS, ConnectionTotals
from streamgroup.kafka.net.poller import ConnectionIdle, ConnectionLost, ConnectionReady, Poller, ResponseReceived
from streamgroup.kafka.net.resolve import RESOLVE_TIMEOUT_S, require_resolvable
from streamgroup.kafka.wire.messages.cluster import ApiVersionsRequest, MetadataRequest
from streamgroup.kafka.wire.messages.group import HeartbeatRequest
from tests.clock import Clock
from tests.fakes.answers import API_VERSIONS, METADATA, api_versions
from tests.fakes.broker import CLOSE, SILENCE, Cut, FakeBroker, Held, OtherId, Raw
from tests.unit.kafka.net.conftest import EVERYTHING, Names, Options, Start, collect, script
from tests.waiting import TIMEOUT_S, soon


def connected(broker: FakeBroker, options: Options, **others: Any) -> Connection:
    connection = Connection("127.0.0.1", broker.port, options(**others))
    connection.connect(soon())
    return connection


def answering(start: Start, *answers: Any) -> FakeBroker:
    return start({ApiVersionsRequest: script(API_VERSIONS), MetadataRequest: script(*answers)})


@pytest.mark.parametrize("code", [-1, 7, 8])
def test_a_handshake_that_fails_in_passing_is_a_failed_connection(code: int, broker: Start, options: Options) -> None:
    fake = broker({ApiVersionsRequest: script(replace(API_VERSIONS, error_code=code), API_VERSIONS)})
    with pytest.raises(TransportError, match=f"ApiVersions handshake with broker .* failed: {error_of(code).name}"):
        connected(fake, options)
    assert connected(fake, options).open
    fake = broker({ApiVersionsRequest: script(replace(API_VERSIONS, error_code=29))})
    with pytest.raises(BrokerError, match=r"ApiVersions handshake with broker .* failed: TOPIC_AUTHORIZATION_FAILED"):
        connected(fake, options)


def test_requests_are_pipelined_and_answered_in_their_order(broker: Start, options: Options) -> None:
    fake = answering(broker, METADATA)
    connection = connected(fake, options)
    asked = [connection.send(EVERYTHING, ceiling=4 + i) for i in range(3)]
    assert connection.outstanding == 3
    assert [connection.receive(soon()).correlation_id for _ in asked] == asked
    assert connection.outstanding == 0
    assert [version for name, version, _ in fake.requests if name == "Metadata"] == [4, 5, 6]


def test_a_missed_deadline_names_what_was_asked_and_how_long_was_waited(broker: Start, options: Options) -> None:
    fake = answering(broker, SILENCE)
    connection = connected(fake, options)
    began = time.monotonic()
    with pytest.raises(TransportError) as missed:
        connection.call(EVERYTHING, soon(0.1))
    named = re.search(rf"127.0.0.1:{fake.port} within (\d+\.\d) s; pending: Metadata v\d+", str(missed.value))
    assert named is not None, str(missed.value)
    assert 0.1 <= float(named[1]) <= time.monotonic() - began + 0.1
    assert not connection.open
    fake.wait_for(lambda f: f.resets == 1)


def test_a_late_answer_is_received_after_its_deadline_as_that_of_its_request(broker: Start, options: Options) -> None:
    released = threading.Event()
    answers = script(Held(METADATA, released), METADATA)
    connection = connected(broker({ApiVersionsRequest: script(API_VERSIONS), MetadataRequest: answers}), options)
    first = connection.send(EVERYTHING)
    with pytest.raises(TransportError, match="no response"):
        connection.receive(soon(0.01))
    released.set()
    second = connection.send(EVERYTHING)
    assert connection.receive(soon()).correlation_id == first
    assert connection.receive(soon()).correlation_id == second


def test_a_call_is_refused_while_answers_are_outstanding(broker: Start, options: Options) -> None:
    fake = answering(broker, METADATA)
    connection = connected(fake, options)
    connection.send(EVERYTHING)
    with pytest.raises(ValueError, match="1 responses are outstanding"):
        connection.call(EVERYTHING, soon())


def test_an_answer_under_another_correlation_id_ends_the_connection(broker: Start, options: Options) -> None:
    fake = answering(broker, OtherId(METADATA, 77))
    connection = connected(fake, options)
    with pytest.raises(DecodeError, match=r"correlation id 77; expected: Metadata v\d+ \(correlation id 1\)"):
        connection.call(EVERYTHING, soon())
    assert not connection.open


@pytest.mark.parametrize("reset", [False, True])
def test_a_connection_cut_in_the_middle_of_a_frame_says_so(reset: bool, broker: Start, options: Options) -> None:
    fake = answering(broker, Cut(METADATA, 5, reset))
    connection = connected(fake, options)
    expected = "lost|closed the connection" if reset else "5 bytes before the end of a frame; pending: Metadata"
    with pytest.raises(TransportError, match=expected):
        connection.call(EVERYTHING, soon())
    assert not connection.open


def test_a_frame_beyond_the_cap_is_refused_unread(broker: Start, options: Options) -> None:
    huge = Raw(struct.pack(">ii", 1 << 20, 1))
    fake = answering(broker, huge)
    connection = connected(fake, options, max_frame_bytes=1 << 16)
    with pytest.raises(TooLarge, match=r"1048576 bytes: the limit is 65536; pending: Metadata"):
        connection.call(EVERYTHING, soon())


def test_abort_resets_and_close_does_not(broker: Start, options: Options) -> None:
    fake = broker({ApiVersionsRequest: script(API_VERSIONS)})
    connected(fake, options).abort()
    fake.wait_for(lambda f: f.resets == 1)
    connected(fake, options).close()
    fake.wait_for(lambda f: f.ends == 1)
    assert fake.resets == 1


def test_a_closed_connection_refuses_requests_and_can_connect_again(broker: Start, options: Options) -> None:
    fake = answering(broker, METADATA)
    connection = connected(fake, options)
    connection.close()
    with pytest.raises(TransportError, match="not connected"):
        connection.send(EVERYTHING)
    connection.connect(soon())
    assert connection.call(EVERYTHING, soon()) == METADATA


def test_each_address_of_a_name_is_tried(broker: Start, options: Options, names: Names) -> None:
    fake = broker({ApiVersionsRequest: script(API_VERSIONS)})
    names(lambda host: [1, fake.port])  # nobody listens at the first
    connection = Connection("kafka.example", fake.port, options())
    connection.connect(soon())
    assert connection.open


def test_a_name_that_does_not_exist_is_named(options: Options, names: Names) -> None:
    def unknown(host: str) -> Any:
        time.sleep(0.05)  # the connection waits for it
        raise socket.gaierror(-2, "Name or service not known")

    names(unknown)
    with pytest.raises(TransportError, match=r"to broker nowhere:9092: its name does not resolve: .*not known"):
        Connection("nowhere", 9092, options()).connect(soon())


def test_a_listener_that_never_answers_the_handshake_is_given_up(broker: Start, options: Options) -> None:
    clock = Clock()
    fake = broker({ApiVersionsRequest: clock.before(0.08, SILENCE)})
    connection = Connection("127.0.0.1", fake.port, options(connection_setup_timeout_ms=80), clock)
    with pytest.raises(TransportError, match=r"to the ApiVersions handshake within 0\.08 s"):
        connection.connect(clock.now + 20)
    with pytest.raises(TransportError, match=r"within 0\.1 s: it is still in the phase handshake"):
        Connection("127.0.0.1", fake.port, options(), clock).connect(clock.now + 0.05)


def test_answers_that_came_before_the_end_are_received_before_its_error(broker: Start, options: Options) -> None:
    fake = answering(broker, METADATA, OtherId(METADATA, 9))
    connection = connected(fake, options)
    for _ in range(2):
        connection.send(EVERYTHING)
    fake.wait_for(lambda f: len(f.requests) == 3)
    assert connection.receive(soon()).correlation_id == 1
    with pytest.raises(DecodeError, match="correlation id 9"):
        connection.receive(soon())


def test_connecting_again_ends_the_old_connection(broker: Start, options: Options) -> None:
    fake = broker({ApiVersionsRequest: script(API_VERSIONS)})
    connection = connected(fake, options)
    connection.connect(soon())
    fake.wait_for(lambda f: f.ends == 1)
    assert connection.open


# -- the counts of connections -----------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def fresh_totals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TOTALS, "_counts", ConnectionTotals().status())


def counts(**others: float) -> dict[str, float]:
    return {"open": 0, "opened": 0, "failed": 0, "lost": 0, "unanswered": 0, "throttled_s": 0.0} | others


def test_a_connection_is_open_from_its_handshake_until_it_is_closed(broker: Start, options: Options) -> None:
    connection = connected(answering(broker, METADATA), options)
    assert TOTALS.status() == counts(open=1, opened=1)
    connection.call(EVERYTHING, soon())
    connection.close()
    connection.close()
    assert TOTALS.status() == counts(opened=1)


def test_a_connection_that_the_broker_ends_is_lost_with_its_pending_requests(broker: Start, options: Options) -> None:
    connection = connected(answering(broker, CLOSE), options)
    connection.send(EVERYTHING)
    connection.send(EVERYTHING)
    with pytest.raises(TransportError):
        connection.receive(soon())
    assert TOTALS.status() == counts(opened=1, lost=1, unanswered=2)
    connection.abort()
    assert TOTALS.status() == counts(opened=1, lost=1, unanswered=2), "counted once"


def test_the_connections_of_a_poller_are_counted(broker: Start, options: Options) -> None:
    fake = broker({ApiVersionsRequest: lambda request, version: API_VERSIONS})
    poller = Poller(options())
    handles = [poller.connect("127.0.0.1", fake.port) for _ in range(3)]
    refused = poller.connect("127.0.0.1", 1)
    seen = collect(poller, 4)
    assert [event.handle for event in seen if isinstance(event, ConnectionLost)] == [refused]
    assert TOTALS.status() == counts(open=3, opened=3, failed=1)
    poller.send(handles[0], EVERYTHING)
    poller.drop(handles[0], reset=True)
    poller.drop(handles[1], reset=True)
    assert TOTALS.status() == counts(open=1, opened=3, failed=1, lost=1, unanswered=1)
    poller.close()
    assert TOTALS.status() == counts(opened=3, failed=1, lost=1, unanswered=1)


def test_the_address_of_this_machine_is_that_of_the_newest_connection(broker: Start, options: Options) -> None:
    totals = ConnectionTotals()
    assert totals.local_host == ""
    for host in ("10.0.0.7", "10.0.0.8"):
        totals.on_opened(host)
        assert totals.local_host == host
    connected(answering(broker, METADATA), options).close()
    assert TOTALS.local_host == "127.0.0.1"


# -- a poller of many connections --------------------------------------------------------------------------------------


@pytest.fixture
def poller(options: Options) -> Iterator[Poller]:
    made = Poller(options())
    yield made
    made.close(reset=True)


def test_an_idle_connection_is_closed_before_it_can_be_used(broker: Start, options: Options) -> None:
    clock = Clock()
    poller = Poller(options(connections_max_idle_ms=5_000), clock)
    fake = answering(broker, METADATA)
    idle, used = (poller.connect("127.0.0.1", fake.port) for _ in range(2))
    collect(poller, 2)
    clock.now += 4
    poller.send(used, EVERYTHING)
    collect(poller, 1)
    clock.now += 2
    assert poller.wait(0) == [ConnectionIdle(idle)]
    assert (poller.has(idle), poller.has(used)) == (False, True)
    fake.wait_for(lambda f: (f.ends, f.resets) == (1, 0))
    poller.close()


def test_requests_before_the_handshake_are_sent_after_it(broker: Start, poller: Poller) -> None:
    fake = answering(broker, METADATA)
    handle = poller.connect("127.0.0.1", fake.port, "coordinator")
    asked = poller.send(handle, EVERYTHING, ceiling=4)
    connected, received = collect(poller, 2)
    assert connected == ConnectionReady(handle, poller.versions(handle))  # type: ignore[arg-type]
    assert received == ResponseReceived(handle, asked, replace(METADATA, topics=received.response.topics), 4)  # type: ignore[union-attr]
    assert [version for name, version, _ in fake.requests] == [3, 4]
    assert str(handle) == f"coordinator 127.0.0.1:{fake.port} #0"


def test_many_connections_answer_in_their_own_time(broker: Start, poller: Poller) -> None:
    released = threading.Event()
    slow = answering(broker, Held(METADATA, released))
    fast = answering(broker, METADATA)
    handles = [poller.connect("127.0.0.1", fake.port) for fake in (slow, fast)]
    for handle in handles:
        poller.send(handle, EVERYTHING)
    events = collect(poller, 3)
    released.set()
    events += collect(poller, 1)
    assert [event.handle for event in events if isinstance(event, ResponseReceived)] == handles[::-1]


def test_wait_ends_when_its_time_is_over(broker: Start, poller: Poller) -> None:
    fake = answering(broker, SILENCE)
    handle = poller.connect("127.0.0.1", fake.port)
    collect(poller, 1)
    poller.send(handle, EVERYTHING)
    began = time.monotonic()
    assert poller.wait(0.05) == []
    assert time.monotonic() - began > 0.04
    assert poller.wait(0) == []


def test_wake_ends_a_wait_from_another_thread_and_the_next_one_if_none_is_on(poller: Poller) -> None:
    threading.Timer(0.05, poller.wake).start()
    assert poller.wait(None) == []
    for _ in range(10_000):
        poller.wake()  # a full pipe blocks nobody
    assert poller.wait(None) == []
    assert poller.wait(0.01) == []


@pytest.mark.parametrize(
    ("answer", "error"),
    [(CLOSE, TransportError), (Cut(METADATA, 3), TransportError), (OtherId(METADATA, 9), DecodeError)],
    ids=["closed", "cut", "another id"],
)
def test_a_broken_connection_reports_all_unanswered_requests(
    answer: Any, error: type[Exception], broker: Start, poller: Poller
) -> None:
    fake = answering(broker, answer)
    handle = poller.connect("127.0.0.1", fake.port)
    asked = tuple(poller.send(handle, EVERYTHING) for _ in range(3))
    assert poller.has(handle)
    _, broken = collect(poller, 2)
    assert not poller.has(handle)
    assert isinstance(broken, ConnectionLost)
    assert (broken.handle, broken.unanswered) == (handle, asked)
    assert isinstance(broken.error, error)
    assert f"127.0.0.1:{fake.port}" in str(broken.error)
    with pytest.raises(KeyError):
        poller.send(handle, EVERYTHING)
    assert poller.wait(0) == []


def test_answers_before_the_break_are_delivered_and_not_counted_as_unanswered(broker: Start, poller: Poller) -> None:
    fake = answering(broker, METADATA, OtherId(METADATA, 99))
    handle = poller.connect("127.0.0.1", fake.port)
    first, second = (poller.send(handle, EVERYTHING) for _ in range(2))
    events = collect(poller, 1)
    fake.wait_for(lambda f: len(f.requests) == 3)
    _, received, broken = events + collect(poller, 3 - len(events))  # a busy machine brings all at once
    assert isinstance(received, ResponseReceived)
    assert isinstance(broken, ConnectionLost)
    assert (received.correlation_id, broken.unanswered) == (first, (second,))


def test_a_connection_that_is_not_set_up_in_time_is_broken(broker: Start, options: Options) -> None:
    clock = Clock()
    fake = broker({ApiVersionsRequest: clock.before(0.06, SILENCE)})
    poller = Poller(options(connection_setup_timeout_ms=60), clock)
    poller.connect("127.0.0.1", fake.port)
    (broken,) = collect(poller, 1)
    assert isinstance(broken, ConnectionLost)
    assert "to the ApiVersions handshake within 0.06 s" in str(broken.error)
    poller.close()


def test_an_api_that_the_broker_lacks_breaks_what_waited_and_is_raised_later(broker: Start, poller: Poller) -> None:
    fake = broker({ApiVersionsRequest: script(api_versions(metadata=(0, 3)))})
    handle = poller.connect("127.0.0.1", fake.port)
    waiting = poller.send(handle, HeartbeatRequest(group_id="g"))
    connected, broken = collect(poller, 2)
    assert isinstance(connected, ConnectionReady)
    assert isinstance(broken, ConnectionLost)
    assert isinstance(broken.error, UnsupportedVersionError)
    assert broken.unanswered == (waiting,)
    again = poller.connect("127.0.0.1", fake.port)
    collect(poller, 1)
    with pytest.raises(UnsupportedVersionError, match="Heartbeat"):
        poller.send(again, HeartbeatRequest(group_id="g"))


@pytest.mark.parametrize("reset", [True, False])
def test_a_dropped_connection_has_no_more_events(reset: bool, broker: Start, poller: Poller) -> None:
    fake = answering(broker, METADATA)
    handle = poller.connect("127.0.0.1", fake.port)
    collect(poller, 1)
    poller.send(handle, EVERYTHING)
    poller.drop(handle, reset=reset)
    poller.drop(handle, reset=reset)
    fake.wait_for(lambda f: (f.resets if reset else f.ends) == 1)
    assert poller.wait(0.01) == []
    assert fake.asked("Metadata") == []


def test_a_name_is_looked_up_while_other_connections_go_on(broker: Start, poller: Poller, names: Names) -> None:
    fake = answering(broker, METADATA)
    resolved = threading.Event()
    names(lambda host: resolved.wait(TIMEOUT_S) and [fake.port])
    named = poller.connect("kafka.example", fake.port)
    numbered = poller.connect("127.0.0.1", fake.port)
    (first,) = collect(poller, 1)
    assert first.handle == numbered
    resolved.set()
    (second,) = collect(poller, 1)
    assert isinstance(second, ConnectionReady)
    assert second.handle == named


# -- names of bootstrap servers: one that has an address is enough, none is an error soon -----------------------------

SERVERS = (("kafka-1", 9092), ("kafka-2", 9093))


def unknown(host: str) -> Any:
    raise socket.gaierror(-2, "Name or service not known")


def required(clock: Clock, timeout: float = 60.0) -> None:
    require_resolvable(SERVERS, timeout, clock=clock, sleep=clock.sleep)


def test_unresolvable_names_are_an_error_within_seconds_with_all_names(names: Names) -> None:
    asked, clock = [], Clock(0.0)
    names(lambda host: asked.append(host) or unknown(host))
    with pytest.raises(ConfigError) as caught:
        required(clock)
    told = str(caught.value)
    assert "cannot resolve any name in kafka.bootstrap.servers" in told
    assert all(f"{host}:{port}: [Errno -2] Name or service not known" in told for host, port in SERVERS)
    assert RESOLVE_TIMEOUT_S <= clock.now <= RESOLVE_TIMEOUT_S + 1
    assert asked.count("kafka-1") >= 3, "a name service may stumble once"


def test_a_name_service_that_stumbles_once_is_asked_again(names: Names) -> None:
    clock = Clock(0.0)
    names(lambda host: [9092] if clock.now else unknown(host))
    required(clock)
    assert 0 < clock.now < RESOLVE_TIMEOUT_S


def test_a_slow_name_holds_up_no_other_and_proves_nothing_at_the_deadline(names: Names) -> None:
    hang = threading.Event()
    names(lambda host: [9092] if host == "kafka-2" else hang.wait(TIMEOUT_S) and unknown(host))
    assert 0 < require_resolvable(SERVERS, TIMEOUT_S) <= TIMEOUT_S
    names(lambda host: hang.wait(TIMEOUT_S) and unknown(host))
    assert require_resolvable(SERVERS, 0.05) == 0
    assert not hang.is_set()
    hang.set()


@pytest.mark.parametrize("servers", [(("127.0.0.1", 1),), (("::1", 1),), ()])
def test_addresses_are_not_looked_up_and_no_servers_no_error(
    servers: tuple[tuple[str, int], ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    flags = []
    look_up = socket.getaddrinfo
    monkeypatch.setattr(socket, "getaddrinfo", lambda *a, **k: flags.append(k["flags"]) or look_up(*a, **k))
    require_resolvable(servers, 5)
    assert 0 not in flags
