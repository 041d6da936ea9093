import ssl
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from streamgroup.kafka.net.handshake import RELEASE_MEMORY
from streamgroup.options.types import ClientOptions
from streamgroup.testing import Authority
from tests.fakes.broker import FakeBroker
from tests.waiting import TIMEOUT_S


@pytest.fixture(autouse=True)
def fresh_memory(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The next test's broker may listen where this one's did. One on a busy machine is not taken for an old one."""
    monkeypatch.setattr("streamgroup.kafka.net.link.PROBE_AFTER_S", TIMEOUT_S)
    yield
    RELEASE_MEMORY.clear()


@pytest.fixture
def broker() -> Iterator[Callable[..., FakeBroker]]:
    """Starts a fake broker; all are stopped at the end."""
    brokers: list[FakeBroker] = []

    def start(handlers: dict[Any, Any], tls: ssl.SSLContext | None = None) -> FakeBroker:
        brokers.append(FakeBroker(handlers, tls))
        return brokers[-1]

    yield start
    for each in brokers:
        each.stop()


@pytest.fixture
def options() -> Callable[..., ClientOptions]:
    """Client options with short waits, for a broker at this port."""

    def make(*ports: int, **others: Any) -> ClientOptions:
        shorter = {"retry_backoff_ms": 5, "retry_backoff_max_ms": 20, "connection_setup_timeout_ms": 30_000}
        servers = tuple(("127.0.0.1", port) for port in ports) or (("127.0.0.1", 1),)
        return ClientOptions(bootstrap_servers=servers, **{**shorter, **others})

    return make


@pytest.fixture(scope="session")
def authority() -> Authority:
    return Authority.create()
