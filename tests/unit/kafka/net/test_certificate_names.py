"""The names of a server's certificate, which the error about a wrong host name shows to the user."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from streamgroup.kafka.net.tls.contexts import endpoint_context
from streamgroup.kafka.net.tls.refusals import names_in_certificate
from streamgroup.testing import Authority, Identity
from tests.certificates import server_context
from tests.unit.kafka.net.tls_servers import trusting
from tests.waiting import TIMEOUT_S

Names = Callable[[Identity], tuple[str, ...]]


@contextmanager
def serving(act: Callable[[socket.socket], object]) -> Iterator[int]:
    """Yield the port of a server that handles one connection."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(TIMEOUT_S)

        def serve() -> None:
            with contextlib.suppress(OSError), listener.accept()[0] as accepted:
                accepted.settimeout(TIMEOUT_S)
                act(accepted)

        server = threading.Thread(target=serve, daemon=True)
        server.start()
        try:
            yield listener.getsockname()[1]
        finally:
            server.join(2 * TIMEOUT_S)
        assert not server.is_alive(), "the server does not end"


def shown(context: ssl.SSLContext, received: list[bytes]) -> Callable[[socket.socket], None]:
    """Return a server that shows its certificate and keeps what the client sends behind the handshake."""

    def act(accepted: socket.socket) -> None:
        with context.wrap_socket(accepted, server_side=True, suppress_ragged_eofs=True) as secured:
            received.append(secured.recv(100))

    return act


@pytest.fixture
def names(authority: Authority, tmp_path: Path) -> Names:
    """Returns the names that a server with this certificate shows to a client that trusts the authority."""

    def ask(issued: Identity) -> tuple[str, ...]:
        received: list[bytes] = []
        with serving(shown(server_context(issued, tmp_path), received)) as port:
            found = names_in_certificate("127.0.0.1", port, endpoint_context(trusting(authority)), TIMEOUT_S)
        assert received in ([], [b""]), "the client sends nothing but its handshake"
        return found

    return ask


def test_the_names_and_addresses_of_a_host_are_returned_in_their_order(names: Names, authority: Authority) -> None:
    issued = authority.issue("id.example.com", ("b.example.com", "*.a.example.com", "10.0.0.7"))
    assert names(issued) == ("b.example.com", "*.a.example.com", "10.0.0.7")


def test_the_common_name_counts_only_without_alternative_names(names: Names, authority: Authority) -> None:
    assert names(authority.issue("id.example.com", hosts=())) == ("id.example.com",)
    assert names(authority.issue("id.example.com", ("other.example.com",))) == ("other.example.com",)


@pytest.mark.parametrize("count", [5, 6])
def test_of_a_certificate_for_many_hosts_the_first_five_are_returned(
    count: int, names: Names, authority: Authority
) -> None:
    hosts = tuple(f"host-{number}.example.com" for number in range(count))
    assert names(authority.issue(hosts=hosts)) == hosts[:5]


def test_a_certificate_of_an_unknown_authority_shows_no_names(names: Names) -> None:
    assert names(Authority.create("another").issue()) == ()


@pytest.mark.parametrize(
    "act",
    [lambda accepted: None, lambda accepted: accepted.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")],
    ids=["it closes the connection", "it speaks HTTP"],
)
def test_a_server_without_tls_shows_no_names(act: Callable[[socket.socket], object], authority: Authority) -> None:
    with serving(act) as port:
        assert names_in_certificate("127.0.0.1", port, endpoint_context(trusting(authority)), TIMEOUT_S) == ()


def test_an_endpoint_that_is_gone_shows_no_names(authority: Authority) -> None:
    assert names_in_certificate("127.0.0.1", 1, endpoint_context(trusting(authority)), 1.0) == ()


def test_a_server_that_does_not_answer_the_handshake_shows_no_names_after_the_timeout(authority: Authority) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:  # the kernel accepts, and nobody answers
        port = listener.getsockname()[1]
        assert names_in_certificate("127.0.0.1", port, endpoint_context(trusting(authority)), 0.05) == ()
