"""TLS as kazoo uses it: whose certificate is taken, and when a socket counts as readable."""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from streamgroup.errors import ConfigError, TlsError
from streamgroup.options.secrets import Secret
from streamgroup.options.tls import ZOOKEEPERS, TlsOptions
from streamgroup.testing import Authority, Identity, write_pem
from streamgroup.zookeeper import tls_socket
from streamgroup.zookeeper.client import SingleSessionHandler
from streamgroup.zookeeper.tls_socket import HandshakeRefused, TlsSocket, answers_in_plaintext, answers_in_tls
from tests.waiting import TIMEOUT_S


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority.create()


def trusting(authority: Authority, **others: object) -> TlsOptions:
    certificates = Secret(authority.certificate_pem().decode())
    given = {"truststore_type": "PEM", "truststore_certificates": certificates, "servers": ZOOKEEPERS, **others}
    return TlsOptions(**given)  # type: ignore[arg-type]


def context_of(identity: Identity, tmp_path: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(write_pem(tmp_path / "server.pem", identity))
    return context


@contextmanager
def served(context: ssl.SSLContext | None, serve: Callable[[socket.socket], None]) -> Iterator[tuple[str, int]]:
    """Accept connections, and pass each to `serve`, with TLS where there is a context."""

    def run() -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                connection.settimeout(TIMEOUT_S)
                with contextlib.suppress(OSError):
                    serve(connection if context is None else context.wrap_socket(connection, server_side=True))
                connection.close()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        yield listener.getsockname()[:2]
        listener.shutdown(socket.SHUT_RDWR)
    thread.join(TIMEOUT_S)


def connect(address: tuple[str, int], options: TlsOptions, host: str = "localhost") -> TlsSocket:
    secured = TlsSocket.connect(socket.create_connection(address, TIMEOUT_S), host, address[1], options, TIMEOUT_S)
    secured.setblocking(False)
    return secured


def readable(secured: TlsSocket, timeout_s: float) -> bool:
    return bool(SingleSessionHandler(1.0).select([secured], [], [], timeout_s)[0])


def is_descriptor_readable(secured: TlsSocket, timeout_s: float = TIMEOUT_S) -> bool:
    return bool(select.select([secured.fileno()], [], [], timeout_s)[0])


def test_a_socket_is_readable_when_decrypted_bytes_are_there(authority: Authority, tmp_path: Path) -> None:
    may_send = threading.Event()

    def serve(connection: socket.socket) -> None:
        assert may_send.wait(TIMEOUT_S)
        connection.sendall(b"headbody")
        assert connection.recv(1) == b""

    with served(context_of(authority.issue(), tmp_path), serve) as address:
        secured = connect(address, trusting(authority))
        assert is_descriptor_readable(secured), "the server's session tickets"
        assert not readable(secured, 0.05), "a ticket is not a response"
        may_send.set()
        assert readable(secured, TIMEOUT_S)
        assert secured.recv(4) == b"head"
        assert not is_descriptor_readable(secured, 0.05)
        assert readable(secured, TIMEOUT_S), "the second response of the same record"
        assert secured.recv(10) == b"body"
        assert secured.pending() == 0
        with pytest.raises(ssl.SSLWantReadError):
            secured.recv(1)
        secured.close()


def test_the_end_of_the_stream_is_readable_and_empty(authority: Authority, tmp_path: Path) -> None:
    with served(context_of(authority.issue(), tmp_path), lambda connection: None) as address:
        secured = connect(address, trusting(authority))
        assert readable(secured, TIMEOUT_S)
        with contextlib.suppress(ssl.SSLEOFError, ConnectionError):
            assert secured.recv(1) == b""
        secured.close()


@pytest.mark.parametrize(
    ("issue", "host", "said"),
    [
        ({"hosts": ["elsewhere.example"]}, "localhost", "not valid for the host name 'localhost'"),
        ({"name": "zk1", "hosts": ["127.0.0.1"]}, "localhost", "not valid for the host name 'localhost'"),
        ({"hosts": ["localhost"]}, "127.0.0.1", "not valid for the host name '127.0.0.1'"),
        ({"expired": True}, "localhost", "certificate has expired"),
        ({}, ".localhost", "Correct zookeeper.connect"),
    ],
)
def test_a_certificate_must_be_valid_for_the_host_of_zookeeper_connect(
    authority: Authority, tmp_path: Path, issue: dict[str, object], host: str, said: str
) -> None:
    identity = authority.issue(**issue)  # type: ignore[arg-type]
    with served(context_of(identity, tmp_path), lambda connection: None) as address:
        with pytest.raises(HandshakeRefused) as caught:
            connect(address, trusting(authority), host)
        error = caught.value.error
        assert isinstance(error, TlsError)
        assert said in str(error)
        assert "ZooKeeper server" in str(error)
        assert "kafka." not in str(error)


@pytest.mark.parametrize("host", ["localhost", "localhost.", "127.0.0.1", "::1", "::1%lo"])
def test_names_and_addresses_of_the_certificate_are_taken(authority: Authority, tmp_path: Path, host: str) -> None:
    with served(context_of(authority.issue(), tmp_path), lambda connection: None) as address:
        connect(address, trusting(authority), host).close()


def test_a_suite_that_is_not_listed_is_refused(authority: Authority, tmp_path: Path) -> None:
    options = trusting(authority, cipher_suites=("TLS_AES_128_GCM_SHA256",))
    with (
        served(context_of(authority.issue(), tmp_path), lambda connection: None) as address,
        pytest.raises(HandshakeRefused, match=r"zookeeper\.ssl\.cipher\.suites does not list"),
    ):
        connect(address, options)


def test_a_server_that_demands_a_certificate_says_so_after_the_handshake(authority: Authority, tmp_path: Path) -> None:
    context = context_of(authority.issue(), tmp_path)
    context.verify_mode = ssl.CERT_REQUIRED
    with served(context, lambda connection: None) as address:
        secured = connect(address, trusting(authority))
        assert readable(secured, TIMEOUT_S)
        with pytest.raises(HandshakeRefused) as caught:
            secured.recv(1)
        assert "demands a client certificate" in str(caught.value.error)
        assert "zookeeper.ssl.keystore.location" in str(caught.value.error)
        secured.close()


def test_a_trust_store_that_cannot_be_read_is_an_error_of_the_options(authority: Authority, tmp_path: Path) -> None:
    options = TlsOptions(truststore_location=str(tmp_path / "none.p12"), servers=ZOOKEEPERS)
    with served(context_of(authority.issue(), tmp_path), lambda connection: None) as address:
        with pytest.raises(HandshakeRefused) as caught:
            connect(address, options)
        assert isinstance(caught.value.error, ConfigError)
        assert "option zookeeper.ssl.truststore.location" in str(caught.value.error)


# -- which kind of listener it is --------------------------------------------------------------------------------------


@pytest.mark.parametrize("answer", [b"imok", b"ruok is not executed because it is not in the whitelist."])
def test_a_plaintext_zookeeper_is_known_by_its_answer(answer: bytes) -> None:
    def serve(connection: socket.socket) -> None:
        if connection.recv(4) == b"ruok":
            connection.sendall(answer)

    with served(None, serve) as address:
        assert answers_in_plaintext(address)
        assert not answers_in_tls(address)


def test_a_tls_listener_is_known_whatever_its_certificate(
    authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls_socket, "_PROBE_TIMEOUT_S", 0.2)
    with served(context_of(authority.issue(hosts=["x.example"]), tmp_path), lambda connection: None) as address:
        assert answers_in_tls(address)
        assert not answers_in_plaintext(address)


def test_a_server_that_hangs_up_is_of_neither_kind() -> None:
    with served(None, lambda connection: None) as address:
        assert not answers_in_plaintext(address)
        assert not answers_in_tls(address)
    assert not answers_in_plaintext(address)
    assert not answers_in_tls(address)
