"""Secured servers, with librdkafka, Kafka's own tools and this project's client."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner
from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import AdminClient

from streamgroup.cli.main import main
from streamgroup.errors import AuthError
from streamgroup.executor.write.sink_writer import write
from streamgroup.options.parse import parse_sink
from streamgroup.testing import (
    Authority,
    ClientSettings,
    Identity,
    KafkaServer,
    java_tool,
    write_jks,
    write_pem,
    write_pkcs12,
)
from streamgroup.testing.releases import NEWEST, Listeners, release_of
from tests.bring_jars import LONG_RELEASES
from tests.conftest import MakeTopic
from tests.console_tools import console_consumer, console_option, console_producer
from tests.read_back import consumed, read_by_the_source

pytestmark = [pytest.mark.live, pytest.mark.timeout(600)]

PAGE = Path(__file__).parents[2] / "docs" / "testing.md"
DEADLINE_S = 30
TOOL_TIMEOUT_S = 120
REFUSAL_S = 3
"""Brokers before 0.11 show a topic without permission as missing, and librdkafka waits for it to appear."""
SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")
USERS = ("client", "stranger")


@dataclass(frozen=True)
class Setup:
    """A server to start."""

    version: str
    security: str
    mechanisms: tuple[str, ...] = ()
    mutual_tls: bool = False

    @property
    def arguments(self) -> dict[str, Any]:
        """For KafkaServer. ACLs are on wherever brokers can tell users apart."""
        return {
            "version": self.version,
            "security": self.security,
            "mechanisms": self.mechanisms,
            "mutual_tls": self.mutual_tls,
            "acls": bool(self.mechanisms) or self.mutual_tls,
            "users": USERS,
        }

    def __str__(self) -> str:
        return f"{self.version}-{self.security}{'-mutual' if self.mutual_tls else ''}"


ALL_MECHANISMS = ("PLAIN", *SCRAM, "OAUTHBEARER")
LARGEST = Setup(NEWEST, "SASL_SSL", ALL_MECHANISMS)
MUTUAL = Setup(NEWEST, "SSL", mutual_tls=True)
SHORT = [LARGEST, MUTUAL, Setup("0.10.2.2", "SASL_SSL", ("PLAIN", *SCRAM))]
LONG = [
    Setup(NEWEST, "SSL"),
    Setup(NEWEST, "SASL_PLAINTEXT", ALL_MECHANISMS),
    Setup(NEWEST, "SASL_SSL", ("PLAIN",), mutual_tls=True),
    *(Setup("3.9.1", security, ALL_MECHANISMS) for security in ("SASL_PLAINTEXT", "SASL_SSL")),
    Setup("3.9.1", "SSL", mutual_tls=True),
    *(Setup("1.1.1", security, ("PLAIN", *SCRAM)) for security in ("SASL_PLAINTEXT", "SASL_SSL")),
    Setup("1.1.1", "SSL", mutual_tls=True),
    Setup("2.8.2", "SASL_SSL", ("PLAIN", *SCRAM)),
    *(Setup(version, "SASL_SSL", ALL_MECHANISMS) for version in LONG_RELEASES if version != "2.8.2"),
    Setup("0.10.2.2", "SASL_PLAINTEXT", ("PLAIN", *SCRAM)),
    Setup("0.10.2.2", "SSL", mutual_tls=True),
]
EACH = [*(pytest.param(one, id=str(one)) for one in SHORT)]
EACH += [pytest.param(one, id=str(one), marks=pytest.mark.long) for one in LONG]


def started(setup: Setup) -> Iterator[KafkaServer]:
    with KafkaServer(**setup.arguments) as server:
        yield server


@pytest.fixture(scope="module", params=EACH)
def secured(request: pytest.FixtureRequest) -> Iterator[KafkaServer]:
    yield from started(request.param)


@pytest.fixture(scope="module")
def mutual() -> Iterator[KafkaServer]:
    yield from started(MUTUAL)


def mechanisms(server: KafkaServer) -> tuple[str | None, ...]:
    return server.security.settings.mechanisms or (None,)


def allow(server: KafkaServer, user: str, topic: str, group: str = "readers") -> None:
    if server.security.settings.acls:
        for operation in ("READ", "WRITE"):
            server.security.add_acl(user, operation, topic=topic)
        server.security.add_acl(user, "READ", group=group)


def produce(config: Mapping[str, str], topic: str, value: bytes, timeout_s: float = DEADLINE_S) -> KafkaError | None:
    """Write a record; returns the error if it did not arrive within `timeout_s`."""
    errors: list[KafkaError | None] = []
    producer = Producer({**config, "message.timeout.ms": int(timeout_s * 1000), "log_level": 0})
    producer.produce(topic, value, partition=0, on_delivery=lambda error, _: errors.append(error))
    producer.flush(DEADLINE_S)
    (error,) = errors
    return error


def refusal(config: Mapping[str, str], *expected: int) -> str:
    """The text of the first error among the `expected` ones that the connection of a client reports."""
    errors: list[KafkaError] = []
    producer = Producer({**config, "error_cb": errors.append, "log_level": 0})
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        producer.poll(0.1)
        for error in errors:
            if error.code() in expected:
                return error.str()
    pytest.fail(f"no error {expected} within {DEADLINE_S} s, but {errors}")


def test_what_a_client_writes_with_each_mechanism_it_reads(secured: KafkaServer, make_topic: MakeTopic) -> None:
    topic = make_topic(secured)
    allow(secured, "client", topic)
    for number, mechanism in enumerate(mechanisms(secured), start=1):
        client = secured.security.client(mechanism=mechanism)
        assert client.properties["security.protocol"] == secured.security.settings.protocol
        assert produce(client.librdkafka, topic, str(mechanism).encode()) is None
        assert len(consumed(client.librdkafka, topic, number)) == number


def test_what_a_task_writes_with_each_mechanism_the_source_reads(secured: KafkaServer, make_topic: MakeTopic) -> None:
    topic = make_topic(secured)
    allow(secured, "client", topic)
    for number, mechanism in enumerate(mechanisms(secured), start=1):
        options = secured.security.client(mechanism=mechanism).options
        # Before 2.8 a producer with an id needs a right on the cluster, too (KIP-679).
        sink = {**options, "topic": topic, "kafka.enable.idempotence": str(secured.version.startswith("4.")).lower()}
        assert write([pa.record_batch({"value": pa.array([b"%d" % number])})], parse_sink(sink)).records == 1
        found = read_by_the_source(topic, **options)
        assert [value for _, value in found[0]] == [b"%d" % n for n in range(1, number + 1)]


def test_a_wrong_password_ends_a_write_at_once(secured: KafkaServer) -> None:
    for mechanism in secured.security.settings.mechanisms:
        options = secured.security.client(mechanism=mechanism, password="wrong").options
        began = time.monotonic()
        with pytest.raises(AuthError) as caught:
            write([pa.record_batch({"value": pa.array([b"x"])})], parse_sink({**options, "topic": "orders"}))
        assert time.monotonic() - began < 30, "it waited for longer than a refusal needs"
        assert "wrong" not in str(caught.value)


def test_a_wrong_password_is_refused(secured: KafkaServer) -> None:
    for mechanism in secured.security.settings.mechanisms:
        client = secured.security.client(mechanism=mechanism, password="wrong")
        assert refusal(client.librdkafka, KafkaError._AUTHENTICATION)


@pytest.mark.parametrize("secured", [one for one in EACH if one.values[0].arguments["acls"]], indirect=True)
def test_an_ordinary_user_may_do_what_an_acl_allows_and_the_super_user_everything(
    secured: KafkaServer, make_topic: MakeTopic
) -> None:
    topic = make_topic(secured)
    stranger, admin = (secured.security.client(user).librdkafka for user in ("stranger", "admin"))
    error = produce(stranger, topic, b"refused", REFUSAL_S)
    assert error is not None
    names_it = release_of(secured.version).number >= (0, 11)
    assert error.code() == (KafkaError.TOPIC_AUTHORIZATION_FAILED if names_it else KafkaError._MSG_TIMED_OUT)
    assert produce(admin, topic, b"one") is None
    secured.security.add_acl("stranger", "WRITE", topic=topic)
    assert produce(stranger, topic, b"two") is None
    secured.security.add_acl("stranger", "WRITE", topic=topic, allow=False)
    assert produce(stranger, topic, b"denied", REFUSAL_S) is not None
    assert consumed(admin, topic, 2) == [b"one", b"two"]


def test_no_server_logs_a_password(secured: KafkaServer) -> None:
    """The broker has logged its configuration, and the token server the requests of the tests before."""
    files = secured.security.files
    known = json.loads(files.passwords.read_text())
    passwords = [known["store"], *known["users"].values()]
    logs = [*secured.data_dir.rglob("*.log")]
    assert {log.name for log in logs} >= {"server.log"}
    for log in logs:
        text = log.read_text(errors="replace")
        assert not any(password in text for password in passwords), log


def console(server: KafkaServer, topic: str, client: ClientSettings, properties: Path, *, stdin: str = "") -> str:
    """Read two records with the version's own consumer, or write `stdin` with its producer."""
    version, release = server.version, release_of(server.version)
    old = release.number < (2, 5)
    if stdin:
        where = ("--broker-list" if old else "--bootstrap-server", server.bootstrap_servers)
        # Without answers (0.9's default) the broker loses what it has not read when the producer ends.
        more: tuple[str, ...] = (console_option(version, "--producer.config"), str(properties))
        more += ("--request-required-acks", "-1")
    else:
        where = ("--bootstrap-server", server.bootstrap_servers)
        more = (console_option(version, "--consumer.config"), str(properties))
        more += ("--from-beginning", "--max-messages", "2")
        more += ("--group", "readers") if not old else ("--consumer-property", "group.id=readers")
        more += ("--new-consumer",) if release.number < (0, 10, 1) else ()
    argv = java_tool(
        *(version, console_producer(version) if stdin else console_consumer(version)),
        *(*where, "--topic", topic, *more),
        jvm_flags=("-Xmx256m", *client.jvm_flags),
    )
    ran = subprocess.run(argv, input=stdin, capture_output=True, text=True, timeout=TOOL_TIMEOUT_S, check=False)
    assert ran.returncode == 0, ran.stderr[-3000:]
    return ran.stdout


@pytest.mark.long
def test_kafkas_own_tools_take_the_properties_file_of_each_mechanism(
    secured: KafkaServer, make_topic: MakeTopic
) -> None:
    for mechanism in mechanisms(secured):
        topic = make_topic(secured)
        allow(secured, "client", topic)
        client = secured.security.client(mechanism=mechanism)
        properties = secured.security.client_properties(mechanism=mechanism)
        console(secured, topic, client, properties, stdin="one\ntwo\n")
        assert console(secured, topic, client, properties).split() == ["one", "two"], mechanism


@pytest.mark.long
def test_streamgroups_commands_take_the_properties_file_of_each_mechanism(
    secured: KafkaServer, make_topic: MakeTopic
) -> None:
    topic = make_topic(secured)
    allow(secured, "client", topic)
    if (0, 11) <= release_of(secured.version).number < (2, 8):
        secured.security.add_acl("client", "IDEMPOTENT_WRITE", cluster=True)  # later, WRITE includes it (KIP-679)
    for number, mechanism in enumerate(mechanisms(secured), start=1):
        where = ["--bootstrap-server", secured.bootstrap_servers]
        where += ["--command-config", str(secured.security.client_properties(mechanism=mechanism))]
        command([*where, "--topic", topic], "produce", f"{mechanism}\n")
        assert len(command([*where, "-t", topic, "-o", "beginning", "-e"], "consume").split()) == number, mechanism


def command(arguments: list[str], name: str, stdin: str = "") -> str:
    ran = subprocess.run(
        [sys.executable, "-c", "from streamgroup.cli.main import main; main()", name, *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=TOOL_TIMEOUT_S,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    return ran.stdout


@pytest.mark.long
def test_brokers_of_09_have_tls(make_topic: MakeTopic) -> None:
    """With its own tools: librdkafka cannot read the metadata of a 0.9."""
    setup = Setup("0.9.0.1", "SSL", mutual_tls=True)
    with KafkaServer(**setup.arguments) as server:
        assert release_of(server.version).listeners is Listeners.ONE
        topic = make_topic(server)
        for operation in ("READ", "WRITE"):
            server.security.add_acl("client", operation, topic=topic)
        server.security.add_acl("client", "READ", group="*")
        client, properties = server.security.client(), server.security.client_properties()
        console(server, topic, client, properties, stdin="one\ntwo\n")
        argv = java_tool(
            *("0.9.0.1", "kafka.tools.ConsoleConsumer", "--new-consumer", "--topic", topic, "--from-beginning"),
            *("--bootstrap-server", server.bootstrap_servers, "--consumer.config", str(properties)),
            *("--max-messages", "2"),
        )
        ran = subprocess.run(argv, capture_output=True, text=True, timeout=TOOL_TIMEOUT_S, check=False)
        assert ran.stdout.split() == ["one", "two"], ran.stderr[-3000:]


# --- certificates ----------------------------------------------------------------------------------------------------


def identified(server: KafkaServer, identity: Identity, file: Path) -> dict[str, str]:
    """The settings of librdkafka with another certificate."""
    pem = str(write_pem(file, identity))
    client = server.security.client().librdkafka
    return {**client, "ssl.certificate.location": pem, "ssl.key.location": pem}


def test_mutual_tls_refuses_a_client_without_a_certificate_and_with_a_bad_one(
    mutual: KafkaServer, make_topic: MakeTopic, tmp_path: Path
) -> None:
    authority = mutual.security.authority
    own = mutual.security.client().librdkafka
    without = {
        name: value for name, value in own.items() if name not in ("ssl.certificate.location", "ssl.key.location")
    }
    for bad in (
        without,
        identified(mutual, authority.issue("client", (), expired=True), tmp_path / "expired.pem"),
        identified(mutual, Authority.create("another").issue("client", ()), tmp_path / "another.pem"),
    ):
        # Since TLS 1.3 a client has connected before the broker looks at its certificate.
        assert "SSL alert number" in refusal(bad, KafkaError._SSL, KafkaError._TRANSPORT)
    topic = make_topic(mutual)
    allow(mutual, "client", topic)
    fresh = identified(mutual, authority.issue("client", ()), tmp_path / "fresh.pem")
    assert produce(fresh, topic, b"of the same name") is None


def test_an_encrypted_key_opens_with_its_password(mutual: KafkaServer, make_topic: MakeTopic, tmp_path: Path) -> None:
    topic = make_topic(mutual)
    allow(mutual, "client", topic)
    config = identified(mutual, mutual.security.authority.issue("client", ()), tmp_path / "plain.pem")
    encrypted = write_pem(tmp_path / "key.pem", mutual.security.authority.issue("client", ()), "secret")
    config |= {"ssl.certificate.location": str(encrypted), "ssl.key.location": str(encrypted)}
    assert produce({**config, "ssl.key.password": "secret"}, topic, b"one") is None


@pytest.mark.long
@pytest.mark.parametrize("kind", ["JKS", "PKCS12"])
def test_java_reads_the_stores_that_a_test_writes(
    mutual: KafkaServer, make_topic: MakeTopic, tmp_path: Path, kind: str
) -> None:
    topic = make_topic(mutual)
    allow(mutual, "client", topic)
    authority = mutual.security.authority
    identity = authority.issue("client", ())
    if kind == "JKS":
        key, trust = (write_jks(tmp_path / f"{n}.jks", of, "secret") for n, of in enumerate((identity, authority)))
    else:
        key, trust = write_pkcs12(tmp_path / "key.p12", identity, "secret"), tmp_path / "trust.p12"
        trust.write_bytes(authority.truststore("secret"))
    properties = tmp_path / "client.properties"
    properties.write_text(
        "security.protocol=SSL\n"
        f"ssl.keystore.type={kind}\nssl.keystore.location={key}\nssl.keystore.password=secret\n"
        f"ssl.truststore.type={kind}\nssl.truststore.location={trust}\nssl.truststore.password=secret\n"
        "ssl.key.password=secret\n"
    )
    client = mutual.security.client()
    console(mutual, topic, client, properties, stdin="one\ntwo\n")
    assert console(mutual, topic, client, properties).split() == ["one", "two"]


@pytest.mark.long
@pytest.mark.parametrize(
    "make",
    [
        lambda authority: authority.issue(expired=True),
        lambda authority: authority.issue(hosts=["elsewhere.example"]),
        lambda authority: Authority.create("another").issue(),
    ],
    ids=["expired", "other-host", "other-authority"],
)
def test_a_client_refuses_a_broker_with_a_bad_certificate(make: Callable[[Authority], Identity]) -> None:
    with KafkaServer(security="SSL", broker_identity=make) as server:
        client = server.security.client()
        assert "certificate verify failed" in refusal(client.librdkafka, KafkaError._SSL)
        unchecked = {**client.librdkafka, "enable.ssl.certificate.verification": "false"}
        assert AdminClient({**unchecked, "log_level": 0}).list_topics(timeout=DEADLINE_S).brokers.keys() == {0}


# --- clusters --------------------------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize("version", [NEWEST, "1.1.1"])
def test_three_secured_brokers_behind_proxies_share_users_and_acls(version: str, make_topic: MakeTopic) -> None:
    setup = Setup(version, "SASL_SSL", ("SCRAM-SHA-512",))
    with KafkaServer(brokers=3, proxied=True, **setup.arguments) as server:
        topic = make_topic(server, replication=3)
        server.brokers[1].kill()
        allow(server, "client", topic)
        server.brokers[1].restart()
        client = server.security.client().librdkafka
        assert produce(client, topic, b"one") is None
        assert consumed(client, topic, 1) == [b"one"]
        assert sum(proxy.accepted for proxy in server.proxies) > 0
        broker = server.brokers[1].address
        assert AdminClient({**client, "bootstrap.servers": broker}).list_topics(timeout=DEADLINE_S).topics.keys() >= {
            topic
        }


@pytest.mark.long
@pytest.mark.parametrize("version", [NEWEST, "0.10.2.2"])
def test_a_kept_directory_starts_again_with_the_same_users(version: str, make_topic: MakeTopic, tmp_path: Path) -> None:
    setup = Setup(version, "SASL_SSL", ("SCRAM-SHA-256",))
    with KafkaServer(data_dir=tmp_path, **setup.arguments) as server:
        topic = make_topic(server)
        allow(server, "client", topic)
        before = server.security.client().librdkafka
        assert produce(before, topic, b"kept") is None
    with KafkaServer(data_dir=tmp_path, **setup.arguments) as server:
        moved = {**before, "bootstrap.servers": server.bootstrap_servers}
        assert moved == server.security.client().librdkafka
        assert consumed(moved, topic, 1) == [b"kept"]
        server.restart()
        assert consumed(moved, topic, 1) == [b"kept"]


@pytest.mark.long
def test_the_code_of_the_page_about_secured_servers_runs(tmp_path: Path) -> None:
    section = re.split(r"^## ", PAGE.read_text(), flags=re.MULTILINE)
    (text,) = (part for part in section if part.startswith("A secured server\n"))
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert len(blocks) == 5
    names = {"tmp_path": tmp_path}
    for block in blocks:
        exec(block, names)


@pytest.mark.long
def test_the_command_starts_a_secured_one_and_prints_its_options(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STREAMGROUP_STATE", str(tmp_path))
    run = CliRunner().invoke
    try:
        up = run(main, ["kafka", "up", "--secure", "--mechanism", "OAUTHBEARER", "--mechanism", "PLAIN"])
        assert up.exit_code == 0, up.output
        blocks = up.stdout.split("\n\n")
        python, toml, java = blocks[4:]
        options: dict[str, str] = {}
        exec(python, options)  # what a reader pastes
        pasted = options["options"]
        assert isinstance(pasted, dict)
        assert pasted["kafka.sasl.mechanism"] == "PLAIN"
        assert tomllib.loads(toml)["source"]["kafka"]["sasl"]["mechanism"] == "PLAIN"
        file = Path(java.splitlines()[0].rsplit(" ", 1)[1])
        assert file.read_text().splitlines() == java.splitlines()[1:]
        topic = "written-by-the-admin"
        argv = java_tool(
            *(NEWEST, "org.apache.kafka.tools.TopicCommand", "--bootstrap-server", blocks[0]),
            *("--command-config", str(file), "--create", "--topic", topic),
        )
        ran = subprocess.run(argv, capture_output=True, text=True, timeout=TOOL_TIMEOUT_S, check=False)
        assert ran.returncode == 0, ran.stdout + ran.stderr
        status = run(main, ["kafka", "status"])
        assert "token-server  pid" in status.output
        again = run(main, ["kafka", "up"])
        assert again.exit_code != 0
        assert "Kafka with SASL_SSL and OAUTHBEARER, PLAIN runs at" in again.output
    finally:
        down = run(main, ["kafka", "down"])
    assert down.exit_code == 0, down.output
    assert run(main, ["kafka", "status"]).exit_code == 3
