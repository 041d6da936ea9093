"""Servers of tests as another user of the machine meets them: their addresses, files and command lines."""

from __future__ import annotations

import ipaddress
import os
import socket
import struct
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from streamgroup.testing import Kafka07Server, KafkaServer, ZooKeeperServer
from streamgroup.testing.background import command_line
from streamgroup.testing.releases import RELEASES

pytestmark = [
    pytest.mark.live,
    pytest.mark.timeout(300),
    pytest.mark.skipif(sys.platform != "linux", reason="/proc names the sockets of a process"),
]

LISTENING = {"tcp": "0A", "tcp6": "0A", "udp": "07", "udp6": "07"}
"""The state of a socket that takes connections, or datagrams of anybody, in the tables of /proc/net."""
Address = tuple[str, int]


def listening(pid: int) -> list[Address]:
    """The addresses at which a process takes connections by TCP, or datagrams by UDP."""
    inodes = set()
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        try:
            target = os.readlink(descriptor)
        except FileNotFoundError:
            continue
        if target.startswith("socket:["):
            inodes.add(target.removeprefix("socket:[").removesuffix("]"))
    found = []
    for table, listens in LISTENING.items():
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            _, local, _, state, *_, inode = line.split()[:10]
            if state == listens and inode in inodes:
                address, port = local.split(":")
                found.append((address_of(address), int(port, 16)))
    return found


def address_of(shown: str) -> str:
    """The address that /proc shows in hexadecimal digits: words of 32 bits in the order of this machine."""
    words = [int(shown[i : i + 8], 16) for i in range(0, len(shown), 8)]
    data = struct.pack(f"={len(words)}I", *words)
    address = ipaddress.ip_address(data)
    return str(getattr(address, "ipv4_mapped", None) or address)


def processes_of(server: KafkaServer | Kafka07Server | ZooKeeperServer) -> list[int]:
    """The processes of a server, with its ZooKeeper, token server and KDC, and the process of its proxies: this one."""
    nodes = [server] if isinstance(server, ZooKeeperServer) else [*server.nodes]
    if isinstance(server, KafkaServer):
        nodes += [each for each in (server.zookeeper, server.token_server, server.kdc) if each is not None]
    return [os.getpid(), *(node.pid for node in nodes if node.pid is not None)]


def all_listen_on_loopback(server: KafkaServer | Kafka07Server | ZooKeeperServer, at_least: int) -> None:
    found = [(pid, *each) for pid in processes_of(server) for each in listening(pid)]
    assert [each for each in found if not ipaddress.ip_address(each[1]).is_loopback] == []
    assert len(found) >= at_least, found


def test_a_socket_that_listens_everywhere_is_found() -> None:
    with (
        socket.create_server(("0.0.0.0", 0)) as everywhere,
        socket.create_server(("127.0.0.1", 0)) as here,
        socket.socket(type=socket.SOCK_DGRAM) as datagrams,
    ):
        datagrams.bind(("0.0.0.0", 0))
        found = listening(os.getpid())
        assert ("0.0.0.0", everywhere.getsockname()[1]) in found
        assert ("127.0.0.1", here.getsockname()[1]) in found
        assert ("0.0.0.0", datagrams.getsockname()[1]) in found


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaServer]:
    home = tmp_path_factory.mktemp("kept") / "data"
    before = os.umask(0o022)
    try:
        with KafkaServer(
            security="SASL_SSL", mechanisms=["PLAIN", "OAUTHBEARER"], data_dir=home, proxied=True
        ) as kafka:
            kafka.security.client_properties()
            yield kafka
    finally:
        os.umask(before)


def test_a_secured_server_listens_on_the_loopback_interface(secured: KafkaServer) -> None:
    all_listen_on_loopback(secured, 5)  # clients, brokers, controller, tokens, the proxy


def test_only_this_user_may_read_a_file_with_a_password_or_a_key(secured: KafkaServer) -> None:
    secrets = secrets_of(secured)
    holding = {path for path in secured.data_dir.rglob("*") if path.is_file() and holds(path, secrets)}
    assert {path.name for path in holding} >= {"passwords.json", "user-client.pem", "authority.pem", "oidc.json"}
    assert {oct(path.stat().st_mode & 0o777) for path in holding} == {"0o600"}


def test_no_command_line_shows_a_password(secured: KafkaServer) -> None:
    lines = [command_line(pid) for pid in processes_of(secured)]
    assert any("kafka.Kafka" in line for line in lines)
    assert [line for line in lines for secret in secrets_of(secured) if secret.decode() in line] == []


def secrets_of(server: KafkaServer) -> list[bytes]:
    """The passwords of its users and stores, and the beginning of a private key in PEM."""
    settings = [server.security.client("client", "PLAIN", stores=stores).properties for stores in ("PEM", "PKCS12")]
    password = server.security.client("client", "PLAIN").librdkafka["sasl.password"]
    store = settings[1]["ssl.truststore.password"]
    return [password.encode(), store.encode(), b"PRIVATE KEY-----"]


def holds(path: Path, secrets: list[bytes]) -> bool:
    data = path.read_bytes()
    return any(secret in data for secret in secrets)


def test_temporary_data_are_this_users_alone() -> None:
    with ZooKeeperServer() as zookeeper:
        assert zookeeper.log.parent.stat().st_mode & 0o777 == 0o700
        all_listen_on_loopback(zookeeper, 1)


@pytest.mark.long
def test_a_kdc_listens_on_the_loopback_interface() -> None:
    with KafkaServer(security="SASL_PLAINTEXT", mechanisms=["GSSAPI"]) as server:
        assert server.kdc is not None
        assert server.kdc.pid is not None
        found = listening(server.kdc.pid)
        assert len(found) == 2, f"TCP and UDP: {found}"
        assert {port for _, port in found} == {found[0][1]}
        all_listen_on_loopback(server, 5)  # clients, brokers, controller, both of the KDC
        home = server.kdc.log.parent
        assert home.stat().st_mode & 0o777 == 0o700, "it holds the keys of all principals"
        keys = [path for path in home.iterdir() if path.suffix == ".keytab" or path.name in ("stash", "principals")]
        assert len(keys) >= 4, keys
        assert {oct(path.stat().st_mode & 0o777) for path in keys} == {"0o600"}


@pytest.mark.long
@pytest.mark.parametrize("version", RELEASES)
def test_every_server_listens_on_the_loopback_interface(version: str) -> None:
    server = Kafka07Server(brokers=2) if version == "0.7" else KafkaServer(version, brokers=2)
    with server:
        all_listen_on_loopback(server, 2)
        assert server.data_dir.stat().st_mode & 0o777 == 0o700
