from __future__ import annotations

import ast
import json
import re
import shlex
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from streamgroup.cli._cluster import ClusterAddress
from streamgroup.cli.kafka import options_text
from streamgroup.cli.main import main
from streamgroup.testing import background
from streamgroup.testing.background import BackgroundClient, BackgroundKafka

CONF = Path(__file__).parents[3] / "conf"


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAMGROUP_STATE", str(tmp_path))


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["kafka", *arguments])


def test_status_of_nothing_has_an_exit_code_of_its_own_and_names_the_next_step() -> None:
    result = run("status")
    assert result.exit_code == 3
    assert "streamgroup kafka up" in result.output


def test_status_for_programs_is_json_even_of_nothing() -> None:
    result = run("status", "--json")
    assert result.exit_code == 3
    assert json.loads(result.output) == {"running": False, "nodes": []}
    assert json.loads(run("down", "--json").output) == {"running": False, "nodes": []}


def test_up_and_down_print_the_kafka_for_programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = BackgroundKafka("4.1.1", "127.0.0.1:5000", str(tmp_path), True, ())
    monkeypatch.setattr(background, "up", lambda *_, **__: (known, False))
    monkeypatch.setattr(background, "down", lambda: known)
    for command in ("up", "down"):
        told = json.loads(run(command, "--json").stdout)
        assert (told["version"], told["bootstrap_servers"], told["nodes"]) == ("4.1.1", "127.0.0.1:5000", [])


def test_down_without_a_running_kafka_succeeds() -> None:
    result = run("down")
    assert result.exit_code == 0
    assert "no Kafka" in result.output


@pytest.mark.parametrize(
    "arguments",
    [
        ("up", "--mechanism", "PLAIN"),
        ("up", "--secure", "--mechanism", "GSSAPI"),
        ("up", "--config", "novalue"),
        ("up", "--version", "0.1"),
        ("up", "--port", "80"),
        ("up", "--brokers", "0"),
        ("up", "--ui", "--json"),
    ],
)
def test_wrong_options_are_usage_errors(arguments: tuple[str, ...]) -> None:
    assert run(*arguments).exit_code == 2


def test_up_hands_all_its_options_on_and_prints_the_bootstrap_servers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []

    def up(*arguments: object, **named: object) -> tuple[BackgroundKafka, bool]:
        asked.extend([*arguments, named])
        return BackgroundKafka("3.9.1", "127.0.0.1:5000", str(tmp_path), True, ()), False

    monkeypatch.setattr(background, "up", up)
    options = ["--version", "3.9.1", "--brokers", "2", "--port", "5000", "--data-dir", str(tmp_path)]
    result = run("up", *options, "--config", "a=b=c", "--config", "d=", "--zookeeper-port", "2181")
    assert (result.exit_code, result.output) == (0, "127.0.0.1:5000\n")
    named = {"zookeeper": None, "zookeeper_port": 2181, "mechanisms": ()}
    assert asked == ["3.9.1", 2, {"a": "b=c", "d": ""}, 5000, tmp_path, named]


@pytest.mark.parametrize(
    ("options", "mechanisms"),
    [
        (("--secure",), ("SCRAM-SHA-512",)),
        (("--secure", "--mechanism", "PLAIN", "--mechanism", "OAUTHBEARER"), ("PLAIN", "OAUTHBEARER")),
    ],
)
def test_up_prints_the_options_of_a_secured_server_to_paste(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], mechanisms: tuple[str, ...]
) -> None:
    file = tmp_path / "client.properties"
    file.write_text('sasl.jaas.config=m required password="p";\n')
    given = {"kafka.sasl.jaas.config": 'm required password="p\\"q";', "kafka.security.protocol": "SASL_SSL"}

    def up(*_: object, mechanisms: tuple[str, ...], **__: object) -> tuple[BackgroundKafka, bool]:
        clients = tuple(BackgroundClient(each, given, str(file), ("-Dflag",)) for each in mechanisms)
        return BackgroundKafka("4.1.1", "127.0.0.1:5000", str(tmp_path), True, (), clients=clients), False

    monkeypatch.setattr(background, "up", up)
    first, *blocks = run("up", *options).stdout.split("\n\n")
    assert first == "127.0.0.1:5000"
    assert len(blocks) == 3 * len(mechanisms)
    for mechanism, python, toml, java in zip(mechanisms, blocks[::3], blocks[1::3], blocks[2::3], strict=True):
        assert all(f"# {mechanism} " in block for block in (python, toml, java))
        assert ast.literal_eval(python.partition("options = ")[2]) == given
        kafka = tomllib.loads(toml)["source"]["kafka"]
        assert (kafka["sasl"]["jaas"]["config"], kafka["security"]["protocol"]) == tuple(given.values())
        assert java.rstrip().splitlines() == [
            f"# {mechanism} for streamgroup's commands and Java's tools: --command-config {file}",
            "# export KAFKA_OPTS=-Dflag",
            'sasl.jaas.config=m required password="p";',
        ]


@pytest.mark.parametrize(
    ("version", "printed"),
    [
        ("0.8.2.2", "127.0.0.1:5000\nzookeeper.connect=127.0.0.1:2181/k\n"),
        ("0.7", "zookeeper.connect=127.0.0.1:2181/k\n"),
    ],
)
def test_up_tells_the_ways_into_an_old_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, printed: str
) -> None:
    def up(*_: object, zookeeper: str, **__: object) -> tuple[BackgroundKafka, bool]:
        return BackgroundKafka(version, "127.0.0.1:5000", str(tmp_path), True, (), zookeeper), False

    monkeypatch.setattr(background, "up", up)
    result = run("up", "--version", version, "--zookeeper", "127.0.0.1:2181/k")
    assert (result.exit_code, result.output) == (0, printed)


@pytest.mark.parametrize("file", sorted(CONF.glob("*.toml")), ids=lambda file: file.name)
def test_the_commands_in_the_job_files_are_valid(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def up(version: str, *_: object, **__: object) -> tuple[BackgroundKafka, bool]:
        asked.append(version)
        return BackgroundKafka(version, "127.0.0.1:5000", str(tmp_path), True, ()), False

    monkeypatch.setattr(background, "up", up)
    (line,) = re.findall(r"^#   streamgroup kafka (up .*)$", file.read_text(), re.MULTILINE)
    result = run(*shlex.split(line))
    assert (result.exit_code, len(asked)) == (0, 1), result.output


@pytest.mark.parametrize(
    ("version", "clients", "where"),
    [
        ("4.1.1", (), ClusterAddress("127.0.0.1:5000")),
        ("1.1.1", (), ClusterAddress("127.0.0.1:5000")),
        ("0.8.2.2", (), ClusterAddress(zookeeper="127.0.0.1:2181/k")),
        ("0.7", (), ClusterAddress(zookeeper="127.0.0.1:2181/k")),
        ("4.1.1", (BackgroundClient("PLAIN", {}, "/p"),), ClusterAddress("127.0.0.1:5000", command_config=Path("/p"))),
    ],
)
def test_up_serves_the_page_of_the_groups_where_they_are(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    version: str,
    clients: tuple[BackgroundClient, ...],
    where: ClusterAddress,
) -> None:
    zookeeper = "" if version == "4.1.1" else "127.0.0.1:2181/k"
    known = BackgroundKafka(version, "127.0.0.1:5000", str(tmp_path), True, (), zookeeper, clients=clients)
    served: list[ClusterAddress] = []
    monkeypatch.setattr(background, "up", lambda *_, **__: (known, False))
    monkeypatch.setattr("streamgroup.cli.kafka.options_text", lambda _: "")
    monkeypatch.setattr("streamgroup.cli.ui.serve_page", served.append)
    result = run("up", "--version", version, "--ui")
    assert (result.exit_code, served) == (0, [where]), result.output


JAAS = "org.example.Module required\nusername=\"alicé 🔑\" password='a\\b';"
OPTIONS = {"kafka.security.protocol": "SASL_SSL", "kafka.sasl.jaas.config": JAAS}


@pytest.fixture
def properties(tmp_path: Path) -> Path:
    file = tmp_path / "client.properties"
    file.write_text("security.protocol=SASL_SSL\nssl.truststore.type=PEM\n\n")
    return file


def blocks(client: BackgroundClient) -> list[str]:
    """The texts for Python, TOML and Java."""
    return options_text(client).removeprefix("\n").split("\n\n")


def test_quotes_backslashes_and_line_ends_reach_python_and_toml_as_they_are(properties: Path) -> None:
    python, toml, _ = blocks(BackgroundClient("PLAIN", OPTIONS, str(properties)))
    assert ast.literal_eval(python.partition("options = ")[2]) == OPTIONS
    kafka = tomllib.loads(toml)["source"]["kafka"]
    assert (kafka["security"]["protocol"], kafka["sasl"]["jaas"]["config"]) == ("SASL_SSL", JAAS)
