"""Fake brokers, clients with short waits, and events of pollers, for the tests of connections and of what uses them."""

import select
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from streamgroup.kafka.net.handshake import RELEASE_MEMORY
from streamgroup.kafka.net.poller import Event, Poller
from streamgroup.kafka.wire.messages.cluster import MetadataRequest
from streamgroup.options.types import ClientOptions
from streamgroup.testing import Authority
from tests.fakes.broker import FakeBroker
from tests.waiting import TIMEOUT_S

Start = Callable[..., FakeBroker]
Options = Callable[..., ClientOptions]
Names = Callable[[Callable[[str], Any]], None]
EVERYTHING = MetadataRequest(topics=None)


def script(*answers: Any) -> Callable[[Any, int], Any]:
    """A handler that gives one answer after the other, the last for ever; each may be made when it is asked for."""
    left = list(answers)

    def handle(request: Any, version: int) -> Any:
        answer = left.pop(0) if len(left) > 1 else left[0]
        return answer(request) if callable(answer) else answer

    return handle


def wait_for_events(fileno: int, interest: int, phase: object = "") -> None:
    """Wait until a socket has an event of interest."""
    poll = select.poll()
    poll.register(fileno, interest)
    assert poll.poll(TIMEOUT_S * 1000), f"no event has come {phase}"


def collect(poller: Poller, count: int, seconds: float = TIMEOUT_S) -> list[Event]:
    """Return the next `count` events of a poller, or more where they come together."""
    until = time.monotonic() + seconds
    events: list[Event] = []
    while len(events) < count:
        left = until - time.monotonic()
        assert left > 0, f"only {events}"
        events += poller.wait(left)
    return events


@pytest.fixture(autouse=True)
def fresh_memory(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The next test's broker may listen where this one's did. One on a busy machine is not taken for an old one."""
    monkeypatch.setattr("streamgroup.kafka.net.link.PROBE_AFTER_S", TIMEOUT_S)
    yield
    RELEASE_MEMORY.clear()


@pytest.fixture
def broker() -> Iterator[Start]:
    """Starts a fake broker; all are stopped at the end."""
    brokers: list[FakeBroker] = []

    def start(handlers: dict[Any, Any], tls: ssl.SSLContext | None = None) -> FakeBroker:
        brokers.append(FakeBroker(handlers, tls))
        return brokers[-1]

    yield start
    for each in brokers:
        each.stop()


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Names:
    """Has each name resolve to these ports of 127.0.0.1. The function of the name may wait, or raise an error."""
    original = socket.getaddrinfo

    def install(ports_of: Callable[[str], Any]) -> None:
        def look_up(host: str, port: int, *, flags: int, **others: Any) -> Any:
            if flags:  # only of an address
                return original(host, port, flags=flags, **others)
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", each)) for each in ports_of(host)]

        monkeypatch.setattr(socket, "getaddrinfo", look_up)

    return install


@pytest.fixture
def options() -> Options:
    """Client options with short waits, for a broker at this port."""

    def make(*ports: int, **others: Any) -> ClientOptions:
        shorter = {"retry_backoff_ms": 5, "retry_backoff_max_ms": 20, "connection_setup_timeout_ms": 30_000}
        servers = tuple(("127.0.0.1", port) for port in ports) or (("127.0.0.1", 1),)
        return ClientOptions(bootstrap_servers=servers, **{**shorter, **others})

    return make


@pytest.fixture(scope="session")
def authority() -> Authority:
    return Authority.create()
