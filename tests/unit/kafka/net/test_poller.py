import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from streamgroup.errors import DecodeError, TransportError, UnsupportedVersionError
from streamgroup.kafka.net.poller import ConnectionIdle, ConnectionLost, ConnectionReady, Poller, ResponseReceived
from streamgroup.kafka.wire.messages.cluster import ApiVersionsRequest, MetadataRequest
from streamgroup.kafka.wire.messages.group import HeartbeatRequest
from streamgroup.options.types import ClientOptions
from tests.clock import Clock
from tests.fakes.answers import API_VERSIONS, METADATA, api_versions
from tests.fakes.broker import CLOSE, SILENCE, Cut, FakeBroker, Held, OtherId
from tests.unit.kafka.net.polling import collect
from tests.waiting import TIMEOUT_S

Start = Callable[..., FakeBroker]
Options = Callable[..., ClientOptions]
EVERYTHING = MetadataRequest(topics=None)


@pytest.fixture
def poller(options: Options) -> Iterator[Poller]:
    made = Poller(options())
    yield made
    made.close(reset=True)


def always(answer: Any) -> Callable[[Any, int], Any]:
    return lambda request, version: answer


def healthy(broker: Start, **others: Any) -> FakeBroker:
    return broker({ApiVersionsRequest: always(API_VERSIONS), MetadataRequest: always(METADATA), **others})


def test_an_idle_connection_is_closed_before_it_can_be_used(broker: Start, options: Options) -> None:
    clock = Clock()
    poller = Poller(options(connections_max_idle_ms=5_000), clock)
    fake = healthy(broker)
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
    fake = healthy(broker)
    handle = poller.connect("127.0.0.1", fake.port, "coordinator")
    asked = poller.send(handle, EVERYTHING, ceiling=4)
    connected, received = collect(poller, 2)
    assert connected == ConnectionReady(handle, poller.versions(handle))  # type: ignore[arg-type]
    assert received == ResponseReceived(handle, asked, replace(METADATA, topics=received.response.topics), 4)  # type: ignore[union-attr]
    assert [version for name, version, _ in fake.requests] == [3, 4]
    assert str(handle) == f"coordinator 127.0.0.1:{fake.port} #0"


def test_many_connections_answer_in_their_own_time(broker: Start, poller: Poller) -> None:
    released = threading.Event()
    slow = broker({ApiVersionsRequest: always(API_VERSIONS), MetadataRequest: always(Held(METADATA, released))})
    fast = healthy(broker)
    handles = [poller.connect("127.0.0.1", fake.port) for fake in (slow, fast)]
    for handle in handles:
        poller.send(handle, EVERYTHING)
    events = collect(poller, 3)
    released.set()
    events += collect(poller, 1)
    assert [event.handle for event in events if isinstance(event, ResponseReceived)] == handles[::-1]


def test_wait_ends_when_its_time_is_over(broker: Start, poller: Poller) -> None:
    fake = broker({ApiVersionsRequest: always(API_VERSIONS), MetadataRequest: always(SILENCE)})
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
    fake = broker({ApiVersionsRequest: always(API_VERSIONS), MetadataRequest: always(answer)})
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
    left: list[Any] = [METADATA, OtherId(METADATA, 99)]
    fake = broker({ApiVersionsRequest: always(API_VERSIONS), MetadataRequest: lambda *_: left.pop(0)})
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
    fake = broker({ApiVersionsRequest: always(api_versions(metadata=(0, 3)))})
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
    fake = healthy(broker)
    handle = poller.connect("127.0.0.1", fake.port)
    collect(poller, 1)
    poller.send(handle, EVERYTHING)
    poller.drop(handle, reset=reset)
    poller.drop(handle, reset=reset)
    fake.wait_for(lambda f: (f.resets if reset else f.ends) == 1)
    assert poller.wait(0.01) == []
    assert fake.asked("Metadata") == []


def test_a_name_is_looked_up_while_other_connections_go_on(
    broker: Start, poller: Poller, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = healthy(broker)
    resolved = threading.Event()
    numeric = socket.getaddrinfo

    def look_up(host: str, port: int, **others: Any) -> Any:
        if host == "127.0.0.1":
            return numeric(host, port, **others)
        if others["flags"]:
            raise socket.gaierror("not numeric")
        resolved.wait(TIMEOUT_S)
        return numeric("127.0.0.1", port, **others)

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    named = poller.connect("kafka.example", fake.port)
    numbered = poller.connect("127.0.0.1", fake.port)
    (first,) = collect(poller, 1)
    assert first.handle == numbered
    resolved.set()
    (second,) = collect(poller, 1)
    assert isinstance(second, ConnectionReady)
    assert second.handle == named
