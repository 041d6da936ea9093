"""No secret in what Spark and streamgroup show: plans, event logs, pages, logs, errors, checkpoints, processes.

An application of its own reads and writes with a known secret in each option that takes one, and fails with others.
"""

from __future__ import annotations

import inspect
import json
import os
import re
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from streamgroup.coordinator.control import channel
from streamgroup.group.commits import CommitMetadata
from streamgroup.kafka.cluster.admin import committed
from streamgroup.kafka.cluster.kafka import KafkaCluster
from streamgroup.options import kinds
from streamgroup.options.database import DATABASE
from streamgroup.options.parse import OPTIONS, SINK_OPTIONS
from streamgroup.options.types import ClientOptions
from streamgroup.testing import Kafka07Server, KafkaServer, PostgresServer, Producer07, ZooKeeperServer
from streamgroup.testing.directories import write_private
from tests.conftest import MakeTopic
from tests.fakes.schema_registry import schema_registry
from tests.spark.canaries import (
    KAFKA_CASES,
    MECHANISMS,
    USERS,
    WAYS,
    ZOOKEEPER_CASES,
    Canaries,
    Case,
    files_below,
    forms_of,
    variables_of,
)
from tests.spark.canary_application import CHANGING_REQUESTS, Application, reading_requests

pytestmark = [pytest.mark.live, pytest.mark.spark, pytest.mark.timeout(700)]

ROOT = Path(__file__).parents[2]
CHROOT = "/canary"
AVRO = '{"type":"record","name":"r","fields":[{"name":"id","type":"int"}]}'
APPLICATION_TIMEOUT_S = 540
DRIVER, EXECUTOR = b"org.apache.spark.deploy.SparkSubmit", b"CoarseGrainedExecutorBackend"
COORDINATOR, WORKER = b"python_streaming_source_runner", b"pyspark.daemon"
"""Parts of the command lines of processes."""
PLACES = ("explain-extended", "progress", "control-", "cmdline", "environ", "ui-", "events/", "work/", "checkpoint/")
"""Parts of the names of files that every application leaves."""


@pytest.fixture(scope="module")
def secured() -> Iterator[KafkaServer]:
    with KafkaServer(security="SASL_SSL", mechanisms=MECHANISMS, mutual_tls=True, users=USERS) as server:
        yield server


@pytest.fixture(scope="module")
def zookeeper() -> Iterator[ZooKeeperServer]:
    with ZooKeeperServer(security="SSL", mutual_tls=True) as server:
        yield server


class Run:
    """One application that has ended, and what it has left."""

    def __init__(self, canaries: Canaries, home: Path, cases: dict[str, Case]) -> None:
        self.canaries, self.home, self.cases = canaries, home, cases
        self.files = dict(files_below(home))

    def leaks(self) -> dict[str, list[str]]:
        """The canaries in each file, but for the environment variables by which they were given."""
        found: dict[str, list[str]] = {}
        for name, data in self.files.items():
            shown = data
            if name.endswith("-environ"):
                given = self.canaries.environment
                shown = b"\n".join(value for variable, value in variables_of(data).items() if variable not in given)
            if hits := self.canaries.found_in(shown):
                found[name] = hits
        return found

    def text(self, name: str) -> str:
        return self.files[name].decode(errors="replace")


def run(home: Path, canaries: Canaries, cases: dict[str, Any], statement: dict[str, str]) -> None:
    """Run the application with these cases. Everything that it says is in files below `home`."""
    plan = write_private(canaries.home / "plan.json", json.dumps({"cases": cases, "statement": statement}))
    environment = {
        **os.environ,
        **canaries.environment,
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": str(ROOT),
        "STREAMGROUP_LOG_LEVEL": "DEBUG",
    }
    home.mkdir()
    with (home / "stderr").open("wb") as out:
        ended = subprocess.run(
            [sys.executable, "-m", "tests.spark.canary_application", str(home), str(plan)],
            cwd=home,
            env=environment,
            stdout=out,
            stderr=subprocess.STDOUT,
            timeout=APPLICATION_TIMEOUT_S,
            check=False,
        )
    assert ended.returncode == 0, (home / "stderr").read_text()[-6000:]


def plan_of(case: Case, topic: str, to: str, group: str) -> dict[str, Any]:
    return {"options": case.options, "failing": case.failing, "topic": topic, "to": to, "group": group}


def kafka_cases(
    names: list[str], secured: KafkaServer, make_topic: MakeTopic, canaries: Canaries
) -> tuple[dict[str, Case], dict[str, Any]]:
    """The cases, and the part of the application's plan for them."""
    producer = Producer({"bootstrap.servers": secured.direct_servers})
    cases, plan = {}, {}
    for name in names:
        topic, to = make_topic(secured), make_topic(secured)
        for number in range(20):
            producer.produce(topic, f"record {number}".encode())
        producer.produce(topic, b"\0\0\0\0\7\x0a")
        assert producer.flush(30) == 0
        cases[name] = KAFKA_CASES[name](secured, canaries)
        plan[name] = plan_of(cases[name], topic, to, f"canary-{canaries.way}-{name}")
        if right := cases[name].options.get("offsets.store.password"):
            _, wrong = canaries.password("database: wrong password")
            plan[name]["database"] = {"passwords": {"right": right, "wrong": wrong}}
    return cases, plan


@contextmanager
def registry_of(plan: dict[str, Any], canaries: Canaries) -> Iterator[None]:
    """Add a schema registry to the plan of a case, with its password and with a wrong one."""
    with schema_registry() as registry:
        secret, password = canaries.password("schema registry")
        _, wrong = canaries.password("schema registry: wrong password")
        registry.user_info = f"etl:{secret}"
        registry.schemas = {7: {"schema": AVRO}}
        plan["registry"] = {"url": registry.url, "schema": AVRO, "passwords": {"right": password, "wrong": wrong}}
        yield
        assert registry.asked == [7], "the right password was not taken"


def check_database(ran: Run, name: str) -> None:
    for way in ("stream", "write"):
        assert ran.text(f"shown/{name}-database-right-{way}").startswith("no error")
        assert "password authentication failed" in ran.text(f"shown/{name}-database-wrong-{way}")


def check_registry(ran: Run, name: str) -> None:
    assert ran.text(f"shown/{name}-registry-right").startswith("no error")
    assert "/schemas/ids/7: HTTP status 401" in ran.text(f"shown/{name}-registry-wrong")
    assert f"shown/{name}-registry-right-explain-extended" in ran.files


def commits_of(server: KafkaServer, groups: list[str]) -> bytes:
    """The metadata of all commits of these groups. librdkafka would read on behind the end of each text."""
    host, _, port = server.direct_servers.rpartition(":")
    cluster = KafkaCluster(ClientOptions(((host, int(port)),)))
    found = []
    try:
        for group in groups:
            commits = committed(cluster, group, cluster.deadline(20_000)).values()
            metadata = [commit.metadata for commit in commits]
            assert any(CommitMetadata.parse(text) for text in metadata), f"no commit of group {group}"
            found += metadata
    finally:
        cluster.close()
    return "\n".join(found).encode()


def check(ran: Run) -> None:
    """Require that each place is there, shows a query, and shows no secret."""
    for place in PLACES:
        assert any(place in name for name in ran.files), f"nothing was kept of {place}"
    for name in ("stderr", "driver.log"):
        assert "streamgroup" in ran.text(name), f"{name} does not show the query"
    assert "PythonRunner" in ran.text("executor.log"), "executor.log does not show the tasks"
    assert core_limits(ran, EXECUTOR), "the tasks ran in the driver's JVM"
    for name, case in ran.cases.items():
        for failing, expected in case.errors.items():
            for kind in ("read", "write", "stream"):
                assert re.search(expected, ran.text(f"shown/failing-{name}-{failing}-{kind}")), (name, failing, kind)
    assert ran.leaks() == {}
    _, hard = resource.getrlimit(resource.RLIMIT_CORE)
    raised = b"unlimited" if hard == resource.RLIM_INFINITY else str(hard).encode()
    assert core_limits(ran, DRIVER) == {raised}, "the application raises the limit of all its processes"
    assert core_limits(ran, COORDINATOR) == {b"0"}, "a crash of a coordinator writes a core file"
    assert b"0" in core_limits(ran, WORKER), "a crash of a worker that has read or written writes a core file"


def core_limits(ran: Run, program: bytes) -> set[bytes]:
    """The soft limits for core files of the processes with this text in their command lines."""
    found = set()
    for name, line in ran.files.items():
        if name.endswith("-cmdline") and program in line:
            limit = re.search(rb"^Max core file size +(\S+)", ran.files[name.removesuffix("cmdline") + "limits"], re.M)
            assert limit is not None
            found.add(limit[1])
    return found


def test_every_option_that_takes_a_secret_has_a_case(
    secured: KafkaServer, zookeeper: ZooKeeperServer, streamgroup_postgres: PostgresServer, tmp_path: Path
) -> None:
    canaries = Canaries("value", tmp_path, database=streamgroup_postgres)
    cases = [make(secured, canaries) for make in KAFKA_CASES.values()]
    cases += [make(zookeeper, CHROOT, canaries) for make in ZOOKEEPER_CASES.values()]
    given = {name for case in cases for name in case.options}
    takes = {row.name for row in (*OPTIONS.values(), *SINK_OPTIONS.values()) if row.kind is kinds.SECRET}
    # `Application.store` gives the password of the offset table to the sink, too.
    assert [row.name for row in DATABASE if row.kind is kinds.SECRET] == ["password"]
    assert takes - given == set(), "add these options to a case in tests/spark/canaries.py"


def test_the_search_finds_a_canary_in_every_form(tmp_path: Path) -> None:
    canaries = Canaries("value", tmp_path)
    secret, _ = canaries.password("one")
    for form in forms_of(secret.encode()):
        assert canaries.found_in(b"before " + form + b" after") == ["one"]
    token = b"Bearer eyJhbGciOiJub25lIn0.eyJzdWIiOiJhbGljZSJ9."
    assert canaries.found_in(token) == ["an access token"]
    assert canaries.found_in(b"no bird") == []


def test_the_requests_of_a_control_channel_are_all_known() -> None:
    """Those that change nothing are asked, and their answers searched."""
    cases = re.findall(r'case \{"request": ([^,}]+)', inspect.getsource(channel.ControlServer))
    served = {name for case in cases for name in re.findall(r'"(\w+)"', case)}
    assert served == {*CHANGING_REQUESTS, *reading_requests()}
    assert {"ranges", "status"} <= set(reading_requests())


def test_no_secret_of_a_query_is_shown(
    spark: SparkSession,
    secured: KafkaServer,
    make_topic: MakeTopic,
    streamgroup_postgres: PostgresServer,
    tmp_path: Path,
) -> None:
    """The short form: one case in the session of all tests, which has neither a user interface nor an event log."""
    hidden, home = tmp_path / "hidden", tmp_path / "home"
    hidden.mkdir(mode=0o700)
    home.mkdir()
    canaries = Canaries("value", hidden, database=streamgroup_postgres)
    cases, plan = kafka_cases(["plain"], secured, make_topic, canaries)
    application = Application(spark, home)
    application.read_and_write("plain", plan["plain"])
    wrong = plan["plain"]["failing"]["wrong-password"]
    application.fail("wrong-password", wrong, plan["plain"])
    with registry_of(plan["plain"], canaries):
        application.parse("plain", plan["plain"])
    application.store("plain", plan["plain"])
    ran = Run(canaries, home, cases)
    for kind in ("read", "write", "stream"):
        assert "rejected the credentials" in ran.text(f"shown/failing-wrong-password-{kind}")
    check_registry(ran, "plain")
    check_database(ran, "plain")
    for request in reading_requests():
        shown = plan["plain"]["topic" if request == "log_ends" else "group"]
        assert shown in ran.text(f"shown/plain-control-{request}")
    unknown = "unknown request on the control channel"
    assert any(unknown in ran.text(name) for name in ran.files if "-control-unknown-" in name)
    assert ran.leaks() == {}
    assert canaries.found_in(commits_of(secured, [plan["plain"]["group"]])) == []


@pytest.mark.long
@pytest.mark.parametrize("way", WAYS)
def test_no_secret_of_any_option_is_shown(
    *,
    secured: KafkaServer,
    zookeeper: ZooKeeperServer,
    make_topic: MakeTopic,
    streamgroup_postgres: PostgresServer,
    tmp_path: Path,
    way: str,
) -> None:
    hidden, home = tmp_path / "hidden", tmp_path / "home"
    hidden.mkdir(mode=0o700)
    canaries = Canaries(way, hidden, database=streamgroup_postgres)
    cases, plan = kafka_cases(list(KAFKA_CASES), secured, make_topic, canaries)
    with Kafka07Server(zookeeper=zookeeper.connect_string + CHROOT) as kafka07:
        for name, case in ZOOKEEPER_CASES.items():
            cases[name] = case(zookeeper, CHROOT, canaries)
            plan[name] = plan_of(cases[name], name, f"{name}-copy", f"canary-{way}-{name}")
            with Producer07(zookeeper=kafka07.zookeeper_connect) as producer:
                producer.produce(name, [b"record"] * 20)
                producer.produce(f"{name}-copy", [b"record"])
        statement = {name: value for case in cases.values() for name, value in case.options.items()}
        with registry_of(plan["plain"], canaries):
            run(home, canaries, plan, statement)
    ran = Run(canaries, home, cases)
    check(ran)
    check_registry(ran, "plain")
    check_database(ran, "plain")
    groups = [plan[name]["group"] for name in KAFKA_CASES]
    assert canaries.found_in(commits_of(secured, groups)) == []
