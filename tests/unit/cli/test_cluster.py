"""The cluster that a command line names, by the commands that share its options."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from streamgroup.cli import _cluster as module
from streamgroup.cli import doctor, groups
from streamgroup.cli._cluster import ClusterAddress
from streamgroup.cli._kcat_options import (
    parse_consume_properties,
    parse_produce_properties,
    sink_options,
    source_options,
)
from streamgroup.cli.main import main
from streamgroup.errors import TransportError
from streamgroup.options.secrets import Secret
from streamgroup.options.tls import TlsOptions
from streamgroup.options.types import ClientOptions, SinkOptions, SourceOptions

COMMANDS = [("topics", "--list"), ("groups", "--list"), ("doctor", "--group", "g")]
AS_EVE = ("--zookeeper-username", "eve", "--zookeeper-password", "hunter2")

commands = pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[ClientOptions]:
    """The options of every cluster that a command opens; none answers."""
    seen: list[ClientOptions] = []

    def opened(options: ClientOptions) -> None:
        seen.append(options)
        raise TransportError("nobody is there")

    @contextmanager
    def store(options: ClientOptions) -> Iterator[None]:
        opened(options)
        yield

    monkeypatch.setattr(module, "open_cluster", opened)
    monkeypatch.setattr(doctor, "open_cluster", opened)
    monkeypatch.setattr(doctor, "opened_store", store)
    monkeypatch.setattr(groups, "opened_store", store)
    return seen


@commands
def test_every_command_authenticates_to_zookeeper_with_what_it_was_given(
    asked: list[ClientOptions], command: tuple[str, ...]
) -> None:
    result = run(*command, "-z", "zk1:2181/kafka", *AS_EVE)
    assert asked
    for options in asked:
        assert options.zookeeper is not None
        assert (options.zookeeper.servers, options.zookeeper.chroot) == ((("zk1", 2181),), "/kafka")
        assert (options.zookeeper.username, options.zookeeper.password) == ("eve", Secret("hunter2"))
        assert "hunter2" not in repr(options)
    assert "nobody is there" in result.output
    assert "hunter2" not in result.output


@commands
@pytest.mark.parametrize("reference", ["env:NO_SUCH_VARIABLE", "file:/no/such/file"])
def test_a_broken_reference_is_an_error_that_names_it(command: tuple[str, ...], reference: str) -> None:
    given = ("--zookeeper-username", "eve", "--zookeeper-password", reference)
    result = run(*command, "-z", "127.0.0.1:1", *given, "--timeout", "300")
    assert result.exit_code == 1
    assert "cannot read the secret for option zookeeper.password: " in result.output
    assert reference.partition(":")[2] in result.output


@commands
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("-z", "zk1:2181", "--zookeeper-username", "eve"), "require each other"),
        (("-z", "zk1:2181", "--zookeeper-password", "hunter2"), "require each other"),
        (("-b", "broker:9092", *AS_EVE), "require --zookeeper"),
        (AS_EVE, "name the cluster with --bootstrap-server, or --zookeeper for Kafka before 0.9"),
    ],
)
def test_incomplete_credentials_are_refused_without_being_shown(
    command: tuple[str, ...], arguments: tuple[str, ...], said: str
) -> None:
    result = run(*command, *arguments)
    assert result.exit_code == 2
    assert said in " ".join(result.stderr.split())
    assert "hunter2" not in result.output


@commands
def test_an_empty_password_is_refused(command: tuple[str, ...]) -> None:
    result = run(*command, "-z", "zk1:2181", "--zookeeper-username", "eve", "--zookeeper-password", " ")
    assert (result.exit_code, result.stderr) == (
        1,
        "Error: invalid value for --zookeeper-password: expected a text that is not empty\n",
    )


@commands
def test_one_wording_says_what_zookeeper_is_for(command: tuple[str, ...]) -> None:
    what = "for Kafka before 0.9 and for groups of old consumers"
    assert what in " ".join(run(command[0], "--help").output.split()).replace("--zookeeper ", "")
    assert what in " ".join(run(*command).stderr.split())


def test_what_was_given_shows_no_password() -> None:
    assert "hunter2" not in repr(ClusterAddress("broker:9092", "zk1:2181", "eve", Secret("hunter2")))


@pytest.mark.parametrize(
    ("given", "complete"),
    [
        ("broker:1", "broker:1"),
        ("broker", "broker:9092"),
        ("b1, b2:7,b3", "b1:9092,b2:7,b3:9092"),
        ("[::1]", "[::1]:9092"),
        ("[::1]:5", "[::1]:5"),
        ("", ""),
    ],
)
def test_the_port_of_a_broker_is_9092_where_none_is_given(given: str, complete: str) -> None:
    assert module.with_ports(given) == complete


def test_a_broker_without_a_port_is_asked_at_9092(asked: list[ClientOptions]) -> None:
    run("topics", "--list", "-b", "broker-1")
    assert [options.bootstrap_servers for options in asked] == [(("broker-1", 9092),)]


@commands
def test_every_command_takes_the_properties_of_a_file(
    asked: list[ClientOptions], command: tuple[str, ...], tmp_path: Path
) -> None:
    file = tmp_path / "client.properties"
    file.write_text("security.protocol=SSL\nssl.truststore.type=PEM\nssl.truststore.location=/ca.pem\n")
    run(*command, "-b", "b:9093", "--command-config", str(file))
    assert asked
    for options in asked:
        assert options.security_protocol == "SSL"
        assert options.tls == TlsOptions(truststore_type="PEM", truststore_location="/ca.pem")
        assert options.bootstrap_servers == (("b", 9093),)


@commands
def test_a_file_of_properties_that_cannot_be_used_is_an_error(command: tuple[str, ...], tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("=x")
    result = run(*command, "-b", "b:9093", "--command-config", str(file))
    assert result.exit_code == 1
    assert f"cannot read the file of --command-config, {file}: expected lines" in result.output.replace("\n", "")


def test_warnings_of_the_file_are_shown(asked: list[ClientOptions], tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("security.protocol=SSL\nssl.endpoint.identification.algorithm=\n")
    assert (
        "host names of brokers are not verified"
        in run("topics", "--list", "-b", "b", "--command-config", str(file)).output
    )


def test_errors_and_warnings_name_properties_as_the_file_does(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.jaas.config=x\nsasl.mechansm=y\n")
    shown = run("topics", "--list", "-b", "b", "--command-config", str(file)).output
    assert "invalid value for option sasl.jaas.config" in shown
    assert "unknown option 'sasl.mechansm'. Did you mean 'sasl.mechanism'?" in shown
    assert "kafka.sasl" not in shown


def test_reading_and_writing_take_the_file_too(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("security.protocol=SSL\n")
    where = ClusterAddress("b:9093", command_config=file)
    read = source_options(where, ["t"], {}, 1_000, include_headers=False)
    written = sink_options(where, "t", {"kafka.ssl.protocol": "TLSv1.2"}, "none", 1_000, include_timestamp=False)
    assert read.client.tls == TlsOptions()
    assert written.client.tls == TlsOptions(protocol="TLSv1.2")


@pytest.mark.parametrize("kind", ["read", "write"])
def test_what_the_file_has_for_other_clients_has_no_effect(kind: str, tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("group.id=etl\nacks=0\nauto.offset.reset=earliest\nmax.block.ms=1\n")
    where = ClusterAddress("b:9093", command_config=file)
    bare = ClusterAddress("b:9093")
    if kind == "read":
        given = source_options(where, ["t"], {}, 1_000, include_headers=False)
        expected: SourceOptions | SinkOptions = source_options(bare, ["t"], {}, 1_000, include_headers=False)
    else:
        given = sink_options(where, "t", {}, "none", 1_000, include_timestamp=False)
        expected = sink_options(bare, "t", {}, "none", 1_000, include_timestamp=False)
    assert replace(given, notes=()) == expected
    assert given.notes == (
        "ignored options kafka.acks, kafka.auto.offset.reset, kafka.group.id, kafka.max.block.ms: only the properties "
        "of the connection count here",
    )


@pytest.mark.parametrize("kind", ["read", "write"])
def test_a_users_password_beside_tls_in_the_file_is_no_warning(kind: str, tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("zookeeper.ssl.client.enable=true\n")
    where = ClusterAddress(None, "zk1:2281", "eve", Secret("hunter2"), file)
    if kind == "read":
        assert source_options(where, ["t"], {}, 1_000, include_headers=False).notes == ()
    else:
        assert sink_options(where, "t", {}, "none", 1_000, include_timestamp=False).notes == ()


# -- ZooKeeper's properties in the file --------------------------------------------------------------------------------

SECURED = """
zookeeper.connect=other:2181
zookeeper.ssl.client.enable=true
zookeeper.clientCnxnSocket=org.apache.zookeeper.ClientCnxnSocketNetty
zookeeper.ssl.truststore.location=/etc/kafka/ca.pem
zookeeper.username=bob
zookeeper.password=hunter3
"""


@pytest.fixture
def secured(tmp_path: Path) -> str:
    file = tmp_path / "client.properties"
    file.write_text(SECURED)
    return str(file)


@commands
def test_the_file_secures_the_connection_to_zookeeper(
    asked: list[ClientOptions], command: tuple[str, ...], secured: str
) -> None:
    result = run(*command, "-z", "zk1:2281", "--command-config", secured)
    assert asked
    for options in asked:
        assert options.zookeeper is not None
        assert options.zookeeper.servers == (("zk1", 2281),), "the command line takes precedence"
        assert options.zookeeper.tls is not None
        assert options.zookeeper.tls.truststore_location == "/etc/kafka/ca.pem"
        assert (options.zookeeper.username, options.zookeeper.password) == ("bob", Secret("hunter3"))
    assert "hunter3" not in result.output
    run(*command, "-z", "zk1:2281", "--command-config", secured, *AS_EVE)
    assert asked[-1].zookeeper is not None
    assert (asked[-1].zookeeper.username, asked[-1].zookeeper.password) == ("eve", Secret("hunter2"))


@commands
def test_the_file_of_both_serves_a_command_that_asks_brokers(
    asked: list[ClientOptions], command: tuple[str, ...], secured: str
) -> None:
    run(*command, "-b", "broker:9092", "--command-config", secured)
    assert asked
    assert all(options.zookeeper is None for options in asked)


def test_reads_and_writes_of_a_command_take_zookeepers_options(secured: str) -> None:
    where = ClusterAddress(zookeeper="zk1:2281", command_config=Path(secured))
    given = {"zookeeper.session.timeout.ms": "9000"}
    read = source_options(where, ["a"], given, 1_000, include_headers=False).client.zookeeper
    written = sink_options(where, "a", given, "none", 1_000, include_timestamp=False).client.zookeeper
    for options in (read, written):
        assert options is not None
        assert options.tls is not None
        assert (options.servers, options.username, options.connection_timeout_ms) == ((("zk1", 2281),), "bob", 1_000)
        assert options.session_timeout_ms == 9_000


def test_x_takes_zookeepers_options_without_kafkas_prefix() -> None:
    for parse in (parse_consume_properties, parse_produce_properties):
        assert parse(["Zookeeper.SSL.client.enable=true"]) == {"zookeeper.ssl.client.enable": "true"}
        with pytest.raises(ValueError, match="use --zookeeper"):
            parse(["zookeeper.connect=zk1"])
