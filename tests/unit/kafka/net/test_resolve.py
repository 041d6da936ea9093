"""Names of bootstrap servers at the start of a query: one that has an address is enough, none is an error soon."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from typing import Any

import pytest

from streamgroup.errors import ConfigError
from streamgroup.kafka.net.resolve import RESOLVE_TIMEOUT_S, require_resolvable
from tests.clock import Clock
from tests.waiting import TIMEOUT_S

KNOWN = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 9092))]
SERVERS = (("kafka-1", 9092), ("kafka-2", 9093))


@pytest.fixture
def looks_up(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[str], Any]], list[str]]:
    """Answer look-ups by name; the names looked up."""

    def install(answer: Callable[[str], Any]) -> list[str]:
        asked: list[str] = []

        def look_up(host: str, *_: Any, flags: int, **__: Any) -> Any:
            if flags:
                raise socket.gaierror("not numeric")
            asked.append(host)
            return answer(host)

        monkeypatch.setattr(socket, "getaddrinfo", look_up)
        return asked

    return install


Install = Callable[[Callable[[str], Any]], list[str]]


def unknown(host: str) -> Any:
    raise socket.gaierror(-2, "Name or service not known")


def required(clock: Clock, timeout: float = 60.0) -> None:
    require_resolvable(SERVERS, timeout, clock=clock, sleep=clock.sleep)


def test_unresolvable_names_are_an_error_within_seconds_with_all_names(looks_up: Install) -> None:
    asked, clock = looks_up(unknown), Clock(0.0)
    with pytest.raises(ConfigError) as caught:
        required(clock)
    told = str(caught.value)
    assert "cannot resolve any name in kafka.bootstrap.servers" in told
    assert all(f"{host}:{port}: [Errno -2] Name or service not known" in told for host, port in SERVERS)
    assert RESOLVE_TIMEOUT_S <= clock.now <= RESOLVE_TIMEOUT_S + 1
    assert asked.count("kafka-1") >= 3, "a name service may stumble once"


def test_a_name_service_that_stumbles_once_is_asked_again(looks_up: Install) -> None:
    clock = Clock(0.0)
    looks_up(lambda host: KNOWN if clock.now else unknown(host))
    required(clock)
    assert 0 < clock.now < RESOLVE_TIMEOUT_S


def test_a_slow_name_holds_up_no_other_and_proves_nothing_at_the_deadline(looks_up: Install) -> None:
    hang = threading.Event()

    def slow(host: str) -> Any:
        hang.wait(TIMEOUT_S)
        return unknown(host)

    looks_up(lambda host: KNOWN if host == "kafka-2" else slow(host))
    assert 0 < require_resolvable(SERVERS, TIMEOUT_S) <= TIMEOUT_S
    looks_up(slow)
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
