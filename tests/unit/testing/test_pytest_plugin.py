from __future__ import annotations

import subprocess
import sys

import pytest

import streamgroup.testing
from streamgroup.testing import mariadb, postgres
from streamgroup.testing.releases import NEWEST

pytest_plugins = ["pytester"]

IMPORTS = """
import sys, pytest
before = set(sys.modules)
import streamgroup.testing.pytest_plugin
print(*sorted(name for name in set(sys.modules) - before if not name.startswith("streamgroup")))
print(*sorted(name for name in set(sys.modules) - before if name.startswith("streamgroup.testing.")))
"""


def test_the_plugin_costs_no_imports_before_a_fixture_is_used() -> None:
    ran = subprocess.run([sys.executable, "-c", IMPORTS], capture_output=True, text=True, timeout=60, check=True)
    others, ours = ran.stdout.splitlines()
    assert ours == "streamgroup.testing.pytest_plugin"
    assert not {"rich", "click", "pyspark", "numpy", "pyarrow"} & {name.split(".")[0] for name in others.split()}


class FakeServer:
    """Takes the place of a server; what the fixture asks for and when it ends is all that counts here."""

    def __init__(self, version: str, log: list[str]) -> None:
        self.version = version
        self._log = log

    def __enter__(self) -> FakeServer:
        self._log.append(f"start {self.version}")
        return self

    def __exit__(self, *_: object) -> None:
        self._log.append("stop")


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    log: list[str] = []
    monkeypatch.setattr(streamgroup.testing, "KafkaServer", lambda version: FakeServer(version, log), raising=False)
    monkeypatch.setattr(streamgroup.testing, "ZooKeeperServer", lambda: FakeServer("zookeeper", log), raising=False)
    monkeypatch.setattr(mariadb, "MariaDbServer", lambda: FakeServer("mariadb", log))
    monkeypatch.setattr(postgres, "PostgresServer", lambda: FakeServer("postgres", log))
    return log


TWO_TESTS = """
def test_one(streamgroup_kafka): assert streamgroup_kafka.version
def test_two(streamgroup_kafka): assert streamgroup_kafka.version
"""


@pytest.mark.parametrize(
    ("ini", "arguments", "version"),
    [
        ("", [], NEWEST),
        ("streamgroup_kafka_version = 3.9.1", [], "3.9.1"),
        ("streamgroup_kafka_version = 3.9.1", ["--streamgroup-kafka-version", "1.1.1"], "1.1.1"),
    ],
)
def test_one_server_serves_a_session_in_the_version_asked_for(
    pytester: pytest.Pytester, log: list[str], ini: str, arguments: list[str], version: str
) -> None:
    pytester.makeini(f"[pytest]\n{ini}\n")
    pytester.makepyfile(TWO_TESTS)
    pytester.runpytest_inprocess(*arguments).assert_outcomes(passed=2)
    assert log == [f"start {version}", "stop"]


@pytest.mark.parametrize(
    ("fixture", "started"),
    [
        ("", []),
        ("streamgroup_zookeeper", ["start zookeeper", "stop"]),
        ("streamgroup_mariadb", ["start mariadb", "stop"]),
        ("streamgroup_postgres", ["start postgres", "stop"]),
    ],
)
def test_a_session_starts_only_the_servers_that_it_asks_for(
    pytester: pytest.Pytester, log: list[str], fixture: str, started: list[str]
) -> None:
    pytester.makepyfile(f"def test_one({fixture}): pass")
    pytester.runpytest_inprocess().assert_outcomes(passed=1)
    assert log == started
