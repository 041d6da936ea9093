"""kazoo's client as it is made here: whom it connects to, as whom, and what it never says."""

from __future__ import annotations

import logging
import socket
import struct
import threading
from dataclasses import replace

import pytest
from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE, READ_ACL_UNSAFE

from streamgroup.errors import ConfigError
from streamgroup.options.secrets import Secret
from streamgroup.options.types import ZooKeeperOptions
from streamgroup.zookeeper.client import SingleSessionHandler, acl_of, addresses, client_of
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
