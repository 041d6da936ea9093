"""kazoo's client as it is made here: whom it connects to, as whom, and what it never says."""

from __future__ import annotations

import contextlib
import logging
import socket
import struct
import threading
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE, READ_ACL_UNSAFE

from streamgroup.errors import ConfigError
from streamgroup.options.secrets import Secret
from streamgroup.options.types import ZooKeeperOptions
from streamgroup.zookeeper import client
from streamgroup.zookeeper.client import DigestMd5, SingleSessionHandler, acl_of, addresses, client_of
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
