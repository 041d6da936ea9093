"""ZooKeeper over TLS with digest, SASL and ACLs: sessions, the errors of wrong settings, and a group of Kafka 0.8."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner
from kazoo.client import KazooClient

from streamgroup.cli.main import main
from streamgroup.errors import ConfigError, TlsError, TransportError
from streamgroup.options.parse import parse_source
from streamgroup.options.types import ZooKeeperOptions
from streamgroup.testing import Authority, KafkaServer, ZooKeeperServer, write_pem
from streamgroup.znodes import Create, Refusal, Set, Subtree
from streamgroup.zookeeper.client import CredentialsError, RefusedError
from streamgroup.zookeeper.session import Session, SessionEvent, SessionResumed
from tests.conftest import MakeTopic
from tests.fault.harness import Stream, raise_error
from tests.live.test_old_cli import produce
from tests.waiting import wait_until

pytestmark = pytest.mark.live

TIMEOUT_S = 20.0
GROUP = "secured"
CANARY = "canary-password"


@pytest.fixture(scope="module")
def server() -> Iterator[ZooKeeperServer]:
    with ZooKeeperServer(security="SSL", sasl=True, users=["bob", "eve"]) as zookeeper:
        yield zookeeper


def parsed(options: Mapping[str, str], **changes: str | None) -> ZooKeeperOptions:
    """Parse options as a read does. `__` in a name is a dot, and None takes the option away."""
    given = {**options, **{name.replace("__", "."): value for name, value in changes.items()}, "subscribe": "t"}
    found = parse_source({name: value for name, value in given.items() if value is not None}, streaming=False)
    assert found.client.zookeeper is not None
    return found.client.zookeeper


def digest(server: ZooKeeperServer, user: str = "bob", **changes: str | None) -> ZooKeeperOptions:
    """Return the options of a user of ZooKeeper's scheme digest, over TLS."""
    return parsed(server.security.client_options(user), zookeeper__sasl__mechanism=None, **changes)


def deadline() -> float:
    return time.monotonic() + TIMEOUT_S


def failure(options: ZooKeeperOptions) -> Exception:
    """Return the error of a connection, or else that of the first read."""
    with closing(Session(options)) as session, pytest.raises(Exception) as caught:  # noqa: PT011, PT012
        session.connect(deadline())
        session.read([Subtree("/", 0, watch=False)], deadline())
    return caught.value


# -- sessions ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mechanism", [None, "DIGEST-MD5"])
def test_nodes_over_tls_are_their_creators_and_readable_by_all(
    server: ZooKeeperServer, mechanism: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    root = f"/consumers/of-{mechanism}"
    options = {user: server.security.client_options(user) for user in ("bob", "eve")}
    changes = {"zookeeper__sasl__mechanism": mechanism, "zookeeper__set__acl": "true"}
    told: list[SessionEvent] = []
    with (
        caplog.at_level(1),
        closing(Session(parsed(options["bob"], **changes), told.append)) as bob,
        closing(Session(parsed(options["eve"], **changes))) as eve,
    ):
        bob.connect(deadline())
        eve.connect(deadline())
        bob.transact([Create(f"{root}/offset", b"1" * 100_000)], [root], deadline())
        assert bob._current is not None
        bob._current.client._connection._socket._socket.shutdown(2)
        wait_until(
            lambda: SessionResumed(bob.session_id) in told and bob.connected, "the same session, authenticated again"
        )
        bob.transact([Set(f"{root}/offset", b"2" * 100_000)], [], deadline())
        read = eve.read([Subtree(root, 1, watch=False)], deadline())
        assert read[f"{root}/offset"].data == b"2" * 100_000, "several records of TLS in one response"
        with pytest.raises(RefusedError, match=rf"lacks the permission WRITE \(w\) on {root}/offset\. ") as caught:
            eve.transact([Set(f"{root}/offset", b"3")], [], deadline())
        assert caught.value.refusal is Refusal.NO_AUTH
        assert f"setAcl {root}/offset auth::cdrwa,world:anyone:r" in str(caught.value)
        with pytest.raises(RefusedError, match=rf"lacks the permission CREATE \(c\) on {root}\. "):
            eve.transact([Create(f"{root}/new")], [], deadline())
    passwords = [given["zookeeper.password"] for given in options.values()]
    assert [each for each in passwords if each in caplog.text] == []


@pytest.mark.long
def test_a_session_over_tls_outlives_a_restart_of_its_server() -> None:
    """A server that starts hangs up in handshakes, and is not taken for one without TLS."""
    told: list[SessionEvent] = []
    with ZooKeeperServer(security="SSL") as zookeeper:
        options = parsed(zookeeper.client_options, zookeeper__set__acl="true")
        with closing(Session(options, told.append)) as session:
            session.connect(deadline())
            session.transact([Create("/consumers/g/x")], ["/consumers/g"], deadline())
            began = session.session_id
            zookeeper.kill()
            zookeeper.restart()
            wait_until(lambda: session.connected and SessionResumed(began) in told, "the same session")
            session.transact([Set("/consumers/g/x", b"1")], [], deadline())


def test_rejected_credentials_end_the_session(server: ZooKeeperServer) -> None:
    error = failure(parsed(server.security.client_options("bob", password=CANARY)))
    assert isinstance(error, CredentialsError)
    assert "zookeeper.password" in str(error)
    assert CANARY not in str(error)


# -- wrong settings ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def strict() -> Iterator[ZooKeeperServer]:
    """Demands client certificates, and has a certificate that is for another host."""
    with ZooKeeperServer(
        security="SSL", mutual_tls=True, server_identity=lambda authority: authority.issue(hosts=["elsewhere.example"])
    ) as zookeeper:
        yield zookeeper


NO_HOST_CHECK = {"zookeeper__ssl__endpoint__identification__algorithm": ""}


def test_a_tls_client_of_a_plaintext_port_is_reported(server: ZooKeeperServer) -> None:
    error = failure(digest(server, zookeeper__connect=f"localhost:{server.port}"))
    assert isinstance(error, TlsError)
    assert "the listener is plaintext" in str(error)
    assert "secureClientPort" in str(error)


def test_a_plaintext_client_of_a_tls_port_is_reported(server: ZooKeeperServer) -> None:
    error = failure(parsed({"zookeeper.connect": server.security.connect_string}))
    assert isinstance(error, TlsError)
    assert "zookeeper.ssl.client.enable=true" in str(error)


def test_an_unknown_authority_is_named_with_the_option(server: ZooKeeperServer) -> None:
    error = failure(digest(server, zookeeper__ssl__truststore__location=None))
    assert isinstance(error, TlsError)
    assert "Set zookeeper.ssl.truststore.location" in str(error)


def test_the_name_in_zookeeper_connect_is_verified_and_not_the_address(strict: ZooKeeperServer) -> None:
    error = failure(parsed(strict.client_options))
    assert isinstance(error, TlsError)
    assert "not valid for the host name 'localhost'" in str(error)
    with closing(Session(parsed(strict.client_options, **NO_HOST_CHECK))) as session:
        session.connect(deadline())


def test_a_server_that_demands_a_certificate_is_reported(strict: ZooKeeperServer) -> None:
    error = failure(parsed(strict.client_options, **NO_HOST_CHECK, zookeeper__ssl__keystore__location=None))
    assert isinstance(error, TlsError)
    assert "demands a client certificate" in str(error)
    assert "zookeeper.ssl.keystore.location" in str(error)


def test_a_client_certificate_is_an_identity_for_acls(strict: ZooKeeperServer) -> None:
    user = {"zookeeper__username": None, "zookeeper__password": None, "zookeeper__set__acl": "true"}
    with closing(Session(parsed(strict.client_options, **NO_HOST_CHECK, **user))) as session:
        session.connect(deadline())
        session.transact([Create("/consumers/g/x")], ["/consumers/g"], deadline())
    kazoo = KazooClient(strict.connect_string)
    kazoo.start(TIMEOUT_S)
    try:
        acls = kazoo.get_acls("/consumers/g")[0]
    finally:
        kazoo.stop()
        kazoo.close()
    assert {(acl.id.scheme, acl.id.id) for acl in acls} == {("x509", "CN=client"), ("world", "anyone")}


def test_an_expired_certificate_is_reported(tmp_path: Path) -> None:
    with ZooKeeperServer(security="SSL", server_identity=lambda authority: authority.issue(expired=True)) as zookeeper:
        error = failure(parsed(zookeeper.client_options))
        assert isinstance(error, TlsError)
        assert "certificate has expired" in str(error)
        own = write_pem(tmp_path / "own.pem", zookeeper.security.authority.issue("client", expired=True))
        error = failure(parsed(zookeeper.client_options, zookeeper__ssl__keystore__location=str(own)))
        assert isinstance(error, ConfigError)
        assert "option zookeeper.ssl.keystore.location" in str(error)


def test_a_server_that_is_away_is_awaited_and_then_reported_with_the_last_cause(server: ZooKeeperServer) -> None:
    with (
        closing(Session(digest(server, zookeeper__connect="localhost:1"))) as session,
        pytest.raises(TransportError, match=r"no server answered in time \(.*refused\)"),
    ):
        session.connect(time.monotonic() + 2)


# -- a group of Kafka 0.8.2.2 ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def kafka(server: ZooKeeperServer) -> Iterator[KafkaServer]:
    """A broker of 0.8 cannot speak TLS: it takes the plaintext port of the same ZooKeeper."""
    with KafkaServer("0.8.2.2", zookeeper=server.connect_string) as running:
        yield running


@pytest.fixture
def topic(kafka: KafkaServer, make_topic: MakeTopic) -> str:
    made = make_topic(kafka, 4)
    for partition in range(4):
        produce(kafka, made, partition=partition, count=10)
    return made


@pytest.fixture
def member(server: ZooKeeperServer, topic: str) -> Callable[..., Stream]:
    def make(name: str, user: str = "bob", **options: str) -> Stream:
        secured = server.security.client_options(user)
        del secured["zookeeper.sasl.mechanism"]
        given = {"kafka.group.id": GROUP, "subscribe": topic, "startingOffsets": "earliest", **secured}
        return Stream(name, {**given, "zookeeper.set.acl": "true", **options})

    return make


def test_a_group_of_0_8_over_tls_is_its_users_alone(
    server: ZooKeeperServer,
    topic: str,
    member: Callable[..., Stream],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.INFO), member("a") as a, member("b") as b:

        def is_shared() -> bool:
            for each in (a, b):
                raise_error(each)
            return (len(a.held), len(b.held)) == (2, 2)

        wait_until(is_shared, "two members share four partitions", 2 * TIMEOUT_S)
        wait_until(lambda: len(a.rows + b.rows) >= 40, "all records are in the sinks", TIMEOUT_S)
        stranger = member("stranger", **{"zookeeper.password": CANARY})
        with stranger:
            wait_until(lambda: stranger.error is not None, "the stranger is refused", 2 * TIMEOUT_S)
        assert isinstance(stranger.error, ConfigError)
        assert f"/consumers/{GROUP}" in str(stranger.error)
        assert "lacks the permission CREATE (c)" in str(stranger.error)
        assert is_shared(), "the stranger changes nothing"
    assert CANARY not in caplog.text + str(stranger.error)
    _check_nodes(server, topic)
    properties = server.security.client_options("bob")
    file = tmp_path / "zookeeper.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in properties.items() if name != "zookeeper.connect"))
    command = ["groups", "-z", server.security.connect_string, "--command-config", str(file)]
    result = CliRunner().invoke(main, [*command, "--describe", "--group", GROUP, "--json"])
    assert result.exit_code == 0, result.output
    described = {row["partition"]: (row["current_offset"], row["lag"]) for row in json.loads(result.stdout)}
    assert described == dict.fromkeys(range(4), (10, 0))


def test_a_query_ends_at_once_where_no_retry_mends_the_connection(
    member: Callable[..., Stream], tmp_path: Path
) -> None:
    other = tmp_path / "other.pem"
    other.write_bytes(Authority.create("another").certificate_pem())
    with member("distrustful", **{"zookeeper.ssl.truststore.location": str(other)}) as query:
        wait_until(lambda: query.error is not None, "the query fails", TIMEOUT_S)
    assert isinstance(query.error, TlsError)
    assert str(other) in str(query.error)


def _check_nodes(server: ZooKeeperServer, topic: str) -> None:
    """Offsets are committed, all nodes of the group are bob's, and everybody may read them."""
    kazoo = KazooClient(server.connect_string)
    kazoo.start(TIMEOUT_S)
    try:
        offsets = f"/consumers/{GROUP}/offsets/{topic}"
        assert {name: kazoo.get(f"{offsets}/{name}")[0] for name in kazoo.get_children(offsets)} == {
            str(partition): b"10" for partition in range(4)
        }
        paths = [f"/consumers/{GROUP}"]
        for path in paths:
            paths += [f"{path}/{name}" for name in kazoo.get_children(path)]
            found = {(acl.id.scheme, acl.id.id.partition(":")[0], acl.perms) for acl in kazoo.get_acls(path)[0]}
            assert found == {("digest", "bob", 31), ("world", "anyone", 1)}, path
        assert len(paths) > 8
        shared = kazoo.get_acls("/consumers")[0]
        assert [(acl.id.scheme, acl.perms) for acl in shared] == [("world", 31)], "other groups register there too"
    finally:
        kazoo.stop()
        kazoo.close()


# -- Kafka 0.7 ---------------------------------------------------------------------------------------------------------


def test_commands_write_and_read_a_kafka_0_7_over_tls(server: ZooKeeperServer, tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    secured = server.security.client_options("eve")
    file.write_text("".join(f"{name}={value}\n" for name, value in secured.items()))
    place = ["-z", server.security.connect_string + "/seven", "-t", "events"]
    consume = ["consume", *place, "-o", "beginning", "-e"]
    with KafkaServer("0.7", zookeeper=f"{server.connect_string}/seven"):
        produce07 = ["produce", "--zookeeper", *place[1:], "--command-config", str(file), "-X", "verify=true"]
        written = CliRunner().invoke(main, produce07, input=b"one\ntwo\n")
        assert written.exit_code == 0, written.output
        read = CliRunner().invoke(main, [*consume, "--command-config", str(file)])
        assert (read.exit_code, read.stdout) == (0, "one\ntwo\n"), read.output
        options = {name: value for name, value in secured.items() if name != "zookeeper.connect"}
        given = [part for name, value in options.items() for part in ("-X", f"{name}={value}")]
        read = CliRunner().invoke(main, [*consume, *given])
        assert (read.exit_code, read.stdout) == (0, "one\ntwo\n"), read.output
        plain = CliRunner().invoke(main, consume)
        assert plain.exit_code == 1
        assert "zookeeper.ssl.client.enable=true" in plain.output
