"""kazoo's client as it is made here: whom it connects to, as whom, and what it never says."""

from __future__ import annotations

import contextlib
import logging
import select
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE, READ_ACL_UNSAFE

from streamgroup.errors import ConfigError, TlsError
from streamgroup.options.secrets import Secret
from streamgroup.options.tls import ZOOKEEPERS, TlsOptions
from streamgroup.options.types import ZooKeeperOptions
from streamgroup.testing import Authority, Identity, write_pem
from streamgroup.znodes import Check, Create, Delete, Operation, Refusal, Set
from streamgroup.zookeeper import client
from streamgroup.zookeeper.client import (
    DigestMd5,
    HandshakeRefused,
    RefusedError,
    SingleSessionHandler,
    TlsSocket,
    acl_of,
    addresses,
    answers_in_plaintext,
    answers_in_tls,
    client_of,
)
from tests.waiting import TIMEOUT_S

OPTIONS = ZooKeeperOptions((("zk1", 2181), ("::1", 2182)), "/kafka")
BOB = ZooKeeperOptions((("zk1", 2181),), username="bob", password=Secret("env:BOBS"), creator_only=True)


def test_servers_are_written_as_an_operator_writes_them() -> None:
    assert addresses(OPTIONS) == "zk1:2181,[::1]:2182"
    client = client_of(OPTIONS)
    assert (client.hosts, client.chroot) == ([("zk1", 2181), ("::1", 2182)], "/kafka")


def test_credentials_are_followed_where_they_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BOBS", "canary")
    assert client_of(BOB).auth_data == {("digest", "bob:canary")}
    monkeypatch.delenv("BOBS")
    with pytest.raises(ConfigError, match=r"zookeeper\.password: the environment variable 'BOBS' is not set"):
        client_of(BOB)


@pytest.mark.parametrize(
    ("options", "path", "acl"),
    [
        (OPTIONS, "/consumers/g/ids", OPEN_ACL_UNSAFE),
        (BOB, "/consumers", OPEN_ACL_UNSAFE),
        (BOB, "/consumers/g", [*CREATOR_ALL_ACL, *READ_ACL_UNSAFE]),
        (BOB, "/consumers/g/ids/c", [*CREATOR_ALL_ACL, *READ_ACL_UNSAFE]),
    ],
)
def test_nodes_are_the_creators_but_what_all_groups_share(options: ZooKeeperOptions, path: str, acl: object) -> None:
    assert acl_of(options, path) == acl


def test_kazoo_says_nothing_at_debug_and_the_rest_at_debug(caplog: pytest.LogCaptureFixture) -> None:
    """At DEBUG it logs requests, credentials too."""
    logger = client_of(OPTIONS).logger
    with caplog.at_level(1):
        logger.debug("Sending request: Auth(auth=%s)", "bob:canary")
        logger.info("Connecting")
        logger.warning("Connection dropped")
        logger.error("Unhandled exception")
    assert [(r.levelno, r.levelname, r.message) for r in caplog.records] == [
        (logging.DEBUG, "DEBUG", "Connecting"),
        (logging.DEBUG, "DEBUG", "Connection dropped"),
        (logging.ERROR, "ERROR", "Unhandled exception"),
    ]
    caplog.clear()
    with caplog.at_level(logging.INFO):
        logger.warning("Connection dropped")
    assert caplog.records == []


def test_after_the_end_of_its_session_nothing_connects_any_more() -> None:
    handler = SingleSessionHandler(0.5)
    with socket.create_server(("127.0.0.1", 0)) as server:
        handler.create_connection(server.getsockname(), timeout=99).close()
        handler.is_over = True
        with pytest.raises(OSError, match="the session has expired or is closed"):
            handler.create_connection(server.getsockname())


@pytest.mark.parametrize("granted_ms", [400, 6_000, 60_000])
def test_the_granted_timeout_is_known_when_the_session_starts(granted_ms: int) -> None:
    begun = threading.Event()
    known: list[int] = []

    def hear(state: str) -> None:
        if not begun.is_set():
            known.append(client.granted_ms)
            begun.set()

    with socket.create_server(("127.0.0.1", 0)) as server:
        client = client_of(replace(OPTIONS, servers=(server.getsockname()[:2],)))
        assert client.granted_ms == 0
        client.add_listener(hear)
        client.start_async()
        connection, _ = server.accept()
        with connection:
            connection.settimeout(TIMEOUT_S)
            assert connection.recv(1024)
            answer = struct.pack(">iiqi", 0, granted_ms, 0x77, 16) + bytes(17)
            connection.sendall(struct.pack(">i", len(answer)) + answer)
            assert begun.wait(TIMEOUT_S)
            client.handler.is_over = True
        ending = threading.Thread(target=client.stop, daemon=True)
        ending.start()
        ending.join(TIMEOUT_S)
    assert known == [granted_ms]
    assert client.handler.connect_timeout_s == min(6.0, granted_ms / 1000)


CHALLENGE = b'realm="elwood.innosoft.com",nonce="OA6MG9tEQGm2hh",qop="auth",algorithm=md5-sess,charset=utf-8'
PROOF = b"rspauth=ea40f60335c427b5527b84dbabcdfffd"


@pytest.fixture
def chris(monkeypatch: pytest.MonkeyPatch) -> DigestMd5:
    """The user of the example in RFC 2831, section 4."""
    monkeypatch.setattr(client, "DIGEST_URI", "imap/elwood.innosoft.com")
    return DigestMd5("chris", "secret", "OA6MHXh6VqTrRk")


def test_the_example_of_the_rfc_has_its_response_and_its_proof(chris: DigestMd5) -> None:
    response = chris.response(CHALLENGE).decode()
    assert "response=d388dad90d4bbd760a152321f2143af7," in response
    assert 'username="chris",realm="elwood.innosoft.com",nonce="OA6MG9tEQGm2hh",nc=00000001' in response
    assert chris.is_proof(PROOF)


@pytest.mark.parametrize("proof", [b"", b"rspauth=", PROOF[:-1], PROOF.replace(b"ea40", b"ea41"), PROOF + b","])
def test_a_server_that_does_not_know_the_password_is_noticed(chris: DigestMd5, proof: bytes) -> None:
    chris.response(CHALLENGE)
    assert not chris.is_proof(proof)


def test_nothing_is_a_proof_before_the_challenge(chris: DigestMd5) -> None:
    assert not chris.is_proof(b"")
    assert not chris.is_proof(PROOF)


@pytest.mark.parametrize(
    "challenge",
    [
        b"",
        b'realm="r",qop="auth",algorithm=md5-sess',
        b'realm="r",nonce="n",qop="auth",algorithm=md5',
        b'realm="r",nonce="n",qop="auth-conf",algorithm=md5-sess',
        CHALLENGE.replace(b"nonce", b"once"),
    ],
)
def test_another_challenge_is_an_error(chris: DigestMd5, challenge: bytes) -> None:
    with pytest.raises(ValueError, match="challenge lacks"):
        chris.response(challenge)


def test_a_challenge_longer_than_the_rfc_allows_is_not_searched(chris: DigestMd5) -> None:
    with pytest.raises(ValueError, match="the challenge has 100000 bytes, more than 2047"):
        chris.response(b"a" * 100_000)


def test_quotes_in_names_are_escaped() -> None:
    response = DigestMd5('a"\\b', "p", "c").response(b'realm="x\\"y",nonce="n",algorithm=md5-sess').decode()
    assert 'username="a\\"\\\\b",realm="x\\"y"' in response


@given(st.binary(max_size=200))
def test_any_bytes_are_a_challenge_or_a_value_error(challenge: bytes) -> None:
    with contextlib.suppress(ValueError):
        assert b"canary" not in DigestMd5("u", "canary", "c").response(challenge)


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
    thread.join(TIMEOUT_S / 2)
    assert not thread.is_alive(), "a connection is still open"


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
    monkeypatch.setattr(client, "_PROBE_TIMEOUT_S", 0.2)
    with served(context_of(authority.issue(hosts=["x.example"]), tmp_path), lambda connection: None) as address:
        assert answers_in_tls(address)
        assert not answers_in_plaintext(address)


def test_a_server_that_hangs_up_is_of_neither_kind() -> None:
    with served(None, lambda connection: None) as address:
        assert not answers_in_plaintext(address)
        assert not answers_in_tls(address)
    assert not answers_in_plaintext(address)
    assert not answers_in_tls(address)


@pytest.mark.parametrize(
    ("path", "asked", "node", "right"),
    [
        ("/g/a", [Create("/g/a")], "/g", "CREATE (c)"),
        ("/g", [Create("/g")], "/", "CREATE (c)"),
        ("/g/a", [Check("/g/b"), Delete("/g/a")], "/g", "DELETE (d)"),
        ("/g/a", [Set("/g/b", b""), Set("/g/a", b"")], "/g/a", "WRITE (w)"),
        ("/g/a", [Check("/g/a")], "/g/a", "READ (r)"),
        ("/g/a", [], "/g/a", "READ (r)"),
    ],
)
def test_a_denied_operation_names_the_right_and_the_node_that_lacks_it(
    path: str, asked: Sequence[Operation], node: str, right: str
) -> None:
    error = RefusedError(path, Refusal.NO_AUTH, "ZooKeeper zk1:2181", asked)
    assert str(error).startswith(
        f"operation on {path} refused by ZooKeeper zk1:2181: the node's access control list forbids the operation. "
    )
    assert f"lacks the permission {right} on {node}. Set zookeeper.username and zookeeper.password" in error.advice
    assert f"setAcl {node} auth::cdrwa,world:anyone:r" in str(error)


@pytest.mark.parametrize("refusal", [Refusal.NO_NODE, Refusal.NODE_EXISTS, Refusal.BAD_VERSION, Refusal.NOT_EMPTY])
def test_a_race_between_members_needs_no_advice(refusal: Refusal) -> None:
    error = RefusedError("/g/a", refusal, "zk", [Create("/g/a")])
    assert (error.advice, str(error)) == ("", f"operation on /g/a refused by zk: {refusal.value}")


def test_a_session_without_an_identity_is_advised_to_have_one() -> None:
    assert "zookeeper.set.acl=true" in RefusedError("/g/a", Refusal.INVALID_ACL, "zk", [Create("/g/a")]).advice
