"""GSSAPI with real brokers and a KDC of MIT Kerberos, beside Java's console consumer with the same keytab."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from streamgroup.errors import AuthenticationError, ConfigError, TransportError
from streamgroup.executor.write.sink_writer import write
from streamgroup.kafka.net.connection import Connection
from streamgroup.kafka.net.poller import ConnectionReady, Poller, ResponseReceived
from streamgroup.kafka.net.sasl.kerberos import Tickets
from streamgroup.kafka.wire.messages.cluster import MetadataRequest
from streamgroup.options.parse import parse_sink, parse_source
from streamgroup.options.sasl import KerberosOptions
from streamgroup.options.types import ClientOptions
from streamgroup.testing import KafkaServer, java_tool
from streamgroup.testing.releases import NEWEST
from streamgroup.testing.security.kdc import SERVICE, Kdc
from tests.conftest import MakeTopic
from tests.console_tools import console_consumer, console_option
from tests.read_back import read_by_the_source
from tests.waiting import soon, wait_until

pytestmark = [pytest.mark.live, pytest.mark.long, pytest.mark.timeout(300)]

SETUPS = [
    *((NEWEST, "SASL_PLAINTEXT"), (NEWEST, "SASL_SSL"), ("1.1.1", "SASL_PLAINTEXT"), ("1.1.1", "SASL_SSL")),
    *(("0.10.2.2", "SASL_PLAINTEXT"), ("0.10.2.2", "SASL_SSL")),
]
TOOL_TIMEOUT_S = 120
KRB5 = "com.sun.security.auth.module.Krb5LoginModule"


@pytest.fixture(scope="module", autouse=True)
def _needs_the_library_and_its_programs() -> None:
    """A missing part is a failure: these tests run only where somebody asks for the long ones."""
    if find_spec("gssapi") is None or shutil.which("kinit") is None:
        pytest.fail(
            "install the package gssapi, MIT's KDC and kinit: apt-get install libkrb5-dev gcc python3-dev krb5-kdc "
            "krb5-admin-server krb5-user, then .venv/bin/pip install gssapi"
        )


def client_of(options: Mapping[str, str]) -> ClientOptions:
    return parse_source({"subscribe": "none", **options}, streaming=False).client


def connected(options: ClientOptions) -> Connection:
    host, port = options.bootstrap_servers[0]
    connection = Connection(host, port, options)
    connection.connect(soon(60))
    return connection


def kinit(kdc: Kdc, cache: Path, life: str = "1h") -> None:
    argv = ["kinit", "-c", f"FILE:{cache}", "-l", life, "-k", "-t", str(kdc.keytab("client")), kdc.principal("client")]
    subprocess.run(argv, check=True, capture_output=True, timeout=30)


def use(monkeypatch: pytest.MonkeyPatch, environment: Mapping[str, str]) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)


@pytest.mark.parametrize(("version", "security"), SETUPS)
def test_this_client_and_javas_read_what_this_one_writes(
    version: str, security: str, make_topic: MakeTopic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with KafkaServer(version, security=security, mechanisms=["GSSAPI"], acls=True) as server:
        topic = make_topic(server)
        for operation in ("READ", "WRITE"):
            server.security.add_acl("client", operation, topic=topic)
        server.security.add_acl("client", "READ", group="readers")
        client = server.security.client()
        use(monkeypatch, client.environment)
        sink = parse_sink({**client.options, "topic": topic, "kafka.enable.idempotence": "false"})
        assert write([pa.record_batch({"value": pa.array([b"one", b"two"])})], sink).records == 2
        found = read_by_the_source(topic, **client.options)
        assert [value for _, value in found[0]] == [b"one", b"two"]
        assert console(server, topic, tmp_path).split() == ["one", "two"]
        kdc = server.security.kdc
        assert kdc is not None
        kinit(kdc, tmp_path / "cache")
        cache = f'{KRB5} required useTicketCache=true ticketCache="{tmp_path / "cache"}";'
        cached = {**client.options, "kafka.sasl.jaas.config": cache}
        assert [value for _, value in read_by_the_source(topic, **cached)[0]] == [b"one", b"two"]


def console(server: KafkaServer, topic: str, directory: Path) -> str:
    """Read two records with the version's own consumer and the same keytab."""
    java = server.security.client(stores="PKCS12")
    properties = directory / "java.properties"
    properties.write_text(java.text())
    version = server.version
    argv = java_tool(
        *(version, console_consumer(version), "--bootstrap-server", server.bootstrap_servers, "--topic", topic),
        *(console_option(version, "--consumer.config"), str(properties), "--from-beginning", "--max-messages", "2"),
        *(console_option(version, "--consumer-property"), "group.id=readers"),
        jvm_flags=("-Xmx256m", *java.jvm_flags),
    )
    ran = subprocess.run(argv, capture_output=True, text=True, timeout=TOOL_TIMEOUT_S, check=False)
    assert ran.returncode == 0, ran.stderr[-3000:]
    return ran.stdout


@pytest.fixture(scope="module")
def kerberized() -> Iterator[KafkaServer]:
    # Brokers of 4.1 end sessions after two seconds, so that clients authenticate again.
    with KafkaServer(
        security="SASL_PLAINTEXT",
        mechanisms=["GSSAPI"],
        users=["client", "other", "gone", "moved"],
        config={"connections.max.reauth.ms": "2000"},
    ) as server:
        yield server


@pytest.fixture
def kdc(kerberized: KafkaServer, monkeypatch: pytest.MonkeyPatch) -> Kdc:
    found = kerberized.security.kdc
    assert found is not None
    use(monkeypatch, found.environment)
    return found


@pytest.mark.usefixtures("kdc")
def test_an_idle_connection_authenticates_again_with_a_ticket(kerberized: KafkaServer) -> None:
    options = client_of(kerberized.security.client().options)
    poller = Poller(options)
    handle = poller.connect(*options.bootstrap_servers[0])
    deadline = soon(30)
    events: list[Any] = []
    while not any(isinstance(event, ConnectionReady) for event in events):
        assert time.monotonic() < deadline
        events += poller.wait(0.2)
    begun = logins(kerberized)
    while logins(kerberized) < begun + 2:
        assert time.monotonic() < deadline
        events += poller.wait(0.2)
    poller.send(handle, MetadataRequest(topics=None))
    while not isinstance(events[-1], ResponseReceived):
        assert time.monotonic() < deadline
        events += poller.wait(0.2)
    assert [type(event) for event in events] == [ConnectionReady, ResponseReceived]
    poller.close()


def logins(server: KafkaServer) -> int:
    return server.brokers[0].log.read_text().count("authenticationID=client@")


def options_for(kdc: Kdc, user: str = "client", **others: Any) -> KerberosOptions:
    given = {"principal": kdc.principal(user), "use_keytab": True, "keytab": str(kdc.keytab(user)), **others}
    return KerberosOptions(SERVICE, **given)


def test_a_ticket_from_a_keytab_is_got_anew_before_it_ends(kerberized: KafkaServer, kdc: Kdc) -> None:
    kdc.admin(f'modprinc -maxlife "4 seconds" {kdc.principal("other")}')
    tickets = Tickets()
    options = options_for(kdc, "other")
    asked = kdc_requests(kdc, "other")
    tickets.open(options, kerberized.bootstrap_servers)
    tickets.open(options, kerberized.bootstrap_servers)
    assert kdc_requests(kdc, "other") == asked + 1, "two connections use one ticket"
    wait_until(
        lambda: tickets.open(options, kerberized.bootstrap_servers) and kdc_requests(kdc, "other") > asked + 1,
        "a ticket of four seconds was not got anew",
        10,
    )


def kdc_requests(kdc: Kdc, user: str) -> int:
    """The tickets that the KDC has given to a user, without those for a service."""
    assert kdc.process is not None
    lines = kdc.process.log.read_text().splitlines()
    return sum("AS_REQ" in line and "ISSUE" in line and kdc.principal(user) in line for line in lines)


def test_errors_that_no_retry_mends(kerberized: KafkaServer, kdc: Kdc, tmp_path: Path) -> None:
    peer = kerberized.bootstrap_servers
    refused: list[tuple[KerberosOptions, type[Exception], str]] = [
        (options_for(kdc, keytab=str(tmp_path / "none")), ConfigError, "No such file or directory. Correct keyTab"),
        (options_for(kdc, principal=kdc.principal("other")), ConfigError, "has no key of 'other@.*klist -k shows"),
        (
            options_for(kdc, "gone"),
            AuthenticationError,
            "'gone@.*' not found in Kerberos database.*create the principal",
        ),
        (options_for(kdc, "moved"), AuthenticationError, "Write the keytab again"),
        (
            replace(options_for(kdc), service_name="confluent"),
            AuthenticationError,
            f"to broker {peer} as user 'client@.*: the KDC gave no ticket for confluent@.* not found.*service.name",
        ),
        (
            KerberosOptions(SERVICE, use_ticket_cache=True, ticket_cache=str(tmp_path / "no-cache")),
            AuthenticationError,
            "from ticket cache .*no-cache: .*Run kinit",
        ),
    ]
    kdc.admin(f"delprinc -force {kdc.principal('gone')}", f"cpw -randkey {kdc.principal('moved')}")
    for options, kind, text in refused:
        with pytest.raises(kind, match=text):
            Tickets().open(options, peer)


def test_the_default_ticket_cache_is_that_of_the_environment(
    kerberized: KafkaServer, kdc: Kdc, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{tmp_path / 'cache'}")
    # Without useKeyTab no keytab is used, not even that of the environment.
    monkeypatch.setenv("KRB5_CLIENT_KTNAME", str(kdc.keytab("client")))
    default = KerberosOptions(SERVICE, use_ticket_cache=True)
    with pytest.raises(AuthenticationError, match=r"from the default ticket cache: .*Run kinit"):
        Tickets().open(default, kerberized.bootstrap_servers)
    by_default_keytab = KerberosOptions(SERVICE, kdc.principal("client"), use_keytab=True)
    assert Tickets().open(by_default_keytab, kerberized.bootstrap_servers)[1] == kdc.principal("client")
    assert not (tmp_path / "cache").exists(), "a ticket from a keytab stays in memory"
    kinit(kdc, tmp_path / "cache")
    assert Tickets().open(default, kerberized.bootstrap_servers)[1] == kdc.principal("client")


def test_a_ticket_cache_of_another_and_one_that_has_ended(kerberized: KafkaServer, kdc: Kdc, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    kinit(kdc, cache, "2s")
    cached = KerberosOptions(SERVICE, use_ticket_cache=True, ticket_cache=str(cache))
    with pytest.raises(AuthenticationError, match=r"does not match desired name.*run kinit for this principal"):
        Tickets().open(replace(cached, principal=kdc.principal("other")), kerberized.bootstrap_servers)
    assert Tickets().open(cached, kerberized.bootstrap_servers)[1] == kdc.principal("client")

    def ended() -> bool:
        try:
            Tickets().open(cached, kerberized.bootstrap_servers)
        except AuthenticationError as error:
            return "the ticket has ended. Run kinit" in str(error)
        return False

    wait_until(ended, "a ticket of two seconds has not ended", 10)
    both = replace(options_for(kdc), use_ticket_cache=True, ticket_cache=str(cache))
    assert Tickets().open(both, kerberized.bootstrap_servers)[1] == kdc.principal("client"), (
        "the keytab is the second choice"
    )


def test_a_kdc_that_is_away_may_be_asked_again(kerberized: KafkaServer, kdc: Kdc) -> None:
    assert kdc.process is not None
    kdc.process.stop()
    try:
        with pytest.raises(TransportError, match=r"Cannot contact any KDC.*KRB5_CONFIG"):
            Tickets().open(options_for(kdc), kerberized.bootstrap_servers)
    finally:
        kdc.process.start()
    Tickets().open(options_for(kdc), kerberized.bootstrap_servers)


@pytest.mark.usefixtures("kdc")
def test_a_kdc_that_does_not_answer_holds_up_no_other_connection(kerberized: KafkaServer, kdc: Kdc) -> None:
    assert kdc.process is not None
    options = client_of(
        {**kerberized.security.client("other").options, "kafka.socket.connection.setup.timeout.ms": "1000"}
    )
    poller = Poller(options)
    kdc.process.pause()
    try:
        poller.connect(*options.bootstrap_servers[0])
        events: list[Any] = []
        deadline, waits = soon(20), 0
        while not events and time.monotonic() < deadline:
            events, waits = poller.wait(0.05), waits + 1
        assert waits > 4, "the poller's thread has waited for the KDC"
        with pytest.raises(TransportError, match=r"there was no Kerberos ticket within 1 s .*reaches the KDC"):
            raise events[0].error
    finally:
        kdc.process.resume()
        poller.close()


def test_a_broker_with_a_new_key_rejects_a_kept_ticket_and_takes_a_new_one(kerberized: KafkaServer, kdc: Kdc) -> None:
    options = client_of(kerberized.security.client().options)
    connected(options).close()
    kdc.broker_keytab.unlink()
    kdc.admin(f"ktadd -k {kdc.broker_keytab} {kdc.broker}")  # with a new key
    kerberized.restart()
    with pytest.raises(AuthenticationError, match=r"rejected the ticket.*The log of the broker has the cause"):
        connected(options)
    connected(options).close()
