from __future__ import annotations

import ast
import json
import re
import shlex
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from streamgroup.cli._cluster import ClusterAddress
from streamgroup.cli.main import main
from streamgroup.testing import background
from streamgroup.testing.background import BackgroundClient, BackgroundKafka
from streamgroup.testing.releases import NEWEST

Starts = Callable[..., list[Any]]
CONF = Path(__file__).parents[3] / "conf"


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAMGROUP_STATE", str(tmp_path))


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["kafka", *arguments])


@pytest.fixture
def starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Starts:
    """Let `up` start a Kafka of a version, and `down` stop it. Returns the arguments of the calls of `up`."""

    def start(version: str = NEWEST, zookeeper: str = "", clients: tuple[BackgroundClient, ...] = ()) -> list[Any]:
        calls: list[Any] = []
        known = BackgroundKafka(version, "127.0.0.1:5000", str(tmp_path), True, (), zookeeper, clients=clients)

        def up(*arguments: Any, **named: Any) -> tuple[BackgroundKafka, bool]:
            calls.append([*arguments, named])
            return known, False

        monkeypatch.setattr(background, "up", up)
        monkeypatch.setattr(background, "down", lambda: known)
        return calls

    return start


def test_status_of_nothing_has_an_exit_code_of_its_own_and_names_the_next_step() -> None:
    result = run("status")
    assert result.exit_code == 3
    assert "streamgroup kafka up" in result.output
    result = run("status", "--json")
    assert (result.exit_code, json.loads(result.output)) == (3, {"running": False, "nodes": []})


def test_down_without_a_running_kafka_succeeds() -> None:
    result = run("down")
    assert result.exit_code == 0
    assert "no Kafka" in result.output
    assert json.loads(run("down", "--json").output) == {"running": False, "nodes": []}


@pytest.mark.parametrize("command", ["up", "down"])
def test_up_and_down_print_the_kafka_for_programs(starts: Starts, command: str) -> None:
    starts(NEWEST)
    told = json.loads(run(command, "--json").stdout)
    assert (told["version"], told["bootstrap_servers"], told["nodes"]) == (NEWEST, "127.0.0.1:5000", [])


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


def test_up_passes_all_its_options_on_and_prints_the_bootstrap_servers(starts: Starts, tmp_path: Path) -> None:
    calls = starts("3.9.1")
    options = ["--version", "3.9.1", "--brokers", "2", "--port", "5000", "--data-dir", str(tmp_path)]
    result = run("up", *options, "--config", "a=b=c", "--config", "d=", "--zookeeper-port", "2181")
    assert (result.exit_code, result.output) == (0, "127.0.0.1:5000\n")
    named = {"zookeeper": None, "zookeeper_port": 2181, "mechanisms": ()}
    assert calls == [["3.9.1", 2, {"a": "b=c", "d": ""}, 5000, tmp_path, named]]


JAAS = "org.example.Module required\nusername=\"alicé 🔑\" password='a\\b';"
OPTIONS = {"kafka.sasl.jaas.config": JAAS, "kafka.security.protocol": "SASL_SSL"}


@pytest.mark.parametrize(
    ("options", "mechanisms"),
    [
        (("--secure",), ("SCRAM-SHA-512",)),
        (("--secure", "--mechanism", "PLAIN", "--mechanism", "OAUTHBEARER"), ("PLAIN", "OAUTHBEARER")),
    ],
)
def test_up_prints_the_options_of_a_secured_server_to_paste(
    starts: Starts, tmp_path: Path, options: tuple[str, ...], mechanisms: tuple[str, ...]
) -> None:
    file = tmp_path / "client.properties"
    file.write_text('sasl.jaas.config=m required password="p";\n')
    calls = starts(clients=tuple(BackgroundClient(each, OPTIONS, str(file), ("-Dflag",)) for each in mechanisms))
    first, *blocks = run("up", *options).stdout.split("\n\n")
    assert (first, calls[0][-1]["mechanisms"]) == ("127.0.0.1:5000", mechanisms)
    assert len(blocks) == 3 * len(mechanisms)
    for mechanism, python, toml, java in zip(mechanisms, blocks[::3], blocks[1::3], blocks[2::3], strict=True):
        assert all(f"# {mechanism} " in block for block in (python, toml, java))
        assert ast.literal_eval(python.partition("options = ")[2]) == OPTIONS
        kafka = tomllib.loads(toml)["source"]["kafka"]
        assert (kafka["sasl"]["jaas"]["config"], kafka["security"]["protocol"]) == (JAAS, "SASL_SSL")
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
def test_up_reports_the_ways_into_an_old_cluster(starts: Starts, version: str, printed: str) -> None:
    calls = starts(version, "127.0.0.1:2181/k")
    result = run("up", "--version", version, "--zookeeper", "127.0.0.1:2181/k")
    assert (result.exit_code, result.output) == (0, printed)
    assert calls[0][-1]["zookeeper"] == "127.0.0.1:2181/k"


@pytest.mark.parametrize("file", sorted(CONF.glob("*.toml")), ids=lambda file: file.name)
def test_the_commands_in_the_job_files_are_valid(file: Path, starts: Starts) -> None:
    calls = starts()
    (line,) = re.findall(r"^#   streamgroup kafka (up .*)$", file.read_text(), re.MULTILINE)
    result = run(*shlex.split(line))
    assert (result.exit_code, len(calls)) == (0, 1), result.output


IN_ZOOKEEPER = ClusterAddress(zookeeper="127.0.0.1:2181/k")


@pytest.mark.parametrize(
    ("version", "clients", "where"),
    [
        (NEWEST, (), ClusterAddress("127.0.0.1:5000")),
        ("1.1.1", (), ClusterAddress("127.0.0.1:5000")),
        ("0.8.2.2", (), IN_ZOOKEEPER),
        ("0.7", (), IN_ZOOKEEPER),
        (NEWEST, (BackgroundClient("PLAIN", {}, "/p"),), ClusterAddress("127.0.0.1:5000", command_config=Path("/p"))),
    ],
)
def test_up_serves_the_page_of_the_groups_where_they_are(
    starts: Starts,
    monkeypatch: pytest.MonkeyPatch,
    version: str,
    clients: tuple[BackgroundClient, ...],
    where: ClusterAddress,
) -> None:
    starts(version, "" if version == NEWEST else "127.0.0.1:2181/k", clients)
    served: list[ClusterAddress] = []
    monkeypatch.setattr("streamgroup.cli.kafka.options_text", lambda _: "")
    monkeypatch.setattr("streamgroup.cli.ui.serve_page", served.append)
    result = run("up", "--version", version, "--ui")
    assert (result.exit_code, served) == (0, [where]), result.output
