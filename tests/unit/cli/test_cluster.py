"""The cluster that a command line names, by the commands that share its options."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from streamgroup.cli import _cluster as module
from streamgroup.cli import doctor, groups
from streamgroup.cli._cluster import ClusterAddress
from streamgroup.cli._kcat_options import sink_options, source_options
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
    expected = "Error: invalid value for --zookeeper-password: expected a text that is not empty\n"
    assert (result.exit_code, result.stderr) == (1, expected)


@commands
def test_one_wording_says_what_zookeeper_is_for(command: tuple[str, ...]) -> None:
    what = "for Kafka before 0.9 and for groups of old consumers"
    assert what in " ".join(run(command[0], "--help").output.split()).replace("--zookeeper ", "")
    assert what in " ".join(run(*command).stderr.split())


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


def test_errors_and_warnings_name_properties_as_the_file_does(asked: list[ClientOptions], tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("security.protocol=SSL\nssl.endpoint.identification.algorithm=\n")
    shown = run("topics", "--list", "-b", "b", "--command-config", str(file)).output
    assert "host names of brokers are not verified" in shown
    assert [options.bootstrap_servers for options in asked] == [(("b", 9092),)], "the port by default"
    file.write_text("security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.jaas.config=x\nsasl.mechansm=y\n")
    shown = run("topics", "--list", "-b", "b", "--command-config", str(file)).output
    assert "invalid value for option sasl.jaas.config" in shown
    assert "unknown option 'sasl.mechansm'. Did you mean 'sasl.mechanism'?" in shown
    assert "kafka.sasl" not in shown


def read(where: ClusterAddress, **properties: str) -> SourceOptions:
    return source_options(where, ["t"], properties, 1_000, include_headers=False)


def write(where: ClusterAddress, **properties: str) -> SinkOptions:
    return sink_options(where, "t", properties, "none", 1_000, include_timestamp=False)


each_way = pytest.mark.parametrize("options", [read, write])
Options = Callable[..., SourceOptions | SinkOptions]


@each_way
def test_reading_and_writing_take_the_file_too(options: Options, tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("security.protocol=SSL\n")
    where = ClusterAddress("b:9093", command_config=file)
    assert options(where).client.tls == TlsOptions()
    assert options(where, **{"kafka.ssl.protocol": "TLSv1.2"}).client.tls == TlsOptions(protocol="TLSv1.2")


@each_way
def test_what_the_file_has_for_other_clients_has_no_effect(options: Options, tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("group.id=etl\nacks=0\nauto.offset.reset=earliest\nmax.block.ms=1\n")
    given = options(ClusterAddress("b:9093", command_config=file))
    assert replace(given, notes=()) == options(ClusterAddress("b:9093"))
    assert given.notes == (
        "ignored options kafka.acks, kafka.auto.offset.reset, kafka.group.id, kafka.max.block.ms: only the properties "
        "of the connection count here",
    )


@each_way
def test_a_users_password_beside_tls_in_the_file_is_no_warning(options: Options, tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("zookeeper.ssl.client.enable=true\n")
    assert options(ClusterAddress(None, "zk1:2281", "eve", Secret("hunter2"), file)).notes == ()


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


@each_way
def test_reads_and_writes_of_a_command_take_zookeepers_options(options: Options, secured: str) -> None:
    where = ClusterAddress(zookeeper="zk1:2281", command_config=Path(secured))
    found = options(where, **{"zookeeper.session.timeout.ms": "9000"}).client.zookeeper
    assert found is not None
    assert found.tls is not None
    assert (found.servers, found.username, found.connection_timeout_ms) == ((("zk1", 2281),), "bob", 1_000)
    assert found.session_timeout_ms == 9_000
