from __future__ import annotations

import dataclasses
import importlib.util
import json
import platform
import re
import subprocess
import sys
import time
from collections.abc import Collection, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from streamgroup import __version__
from streamgroup.advice import Operation, refusal
from streamgroup.cli import doctor as module
from streamgroup.cli.doctor import ApiVersions, CheckVerdict, Finding, findings_of, of_executors, of_pyspark
from streamgroup.cli.main import main
from streamgroup.errors import AuthorizationError, ConfigError, ErrorCode, NoBrokersYetError, TransportError
from streamgroup.kafka.cluster.kafka import KafkaCluster
from streamgroup.kafka.net.handshake import RELEASES
from streamgroup.kafka.wire.messages.cluster import ApiVersionsRequest, ApiVersionsResponse
from streamgroup.kafka.wire.messages.group import JoinGroupRequest
from streamgroup.kafka.wire.messages.log import FetchRequest, ListOffsetsRequest
from streamgroup.kafka.wire.schema import decode
from streamgroup.kafka.wire.versions import BrokerVersions
from streamgroup.model import (
    Broker,
    ClusterSnapshot,
    CommittedOffset,
    Dialect,
    GroupDescription,
    GroupState,
    MemberDescription,
    PartitionInfo,
    TopicInfo,
    TopicPartition,
)
from streamgroup.options.types import ClientOptions, ZooKeeperOptions
from tests.unit.cli.shown import orders_cluster
from tests.unit.kafka.wire.test_vectors import exchanges
from tests.waiting import soon, wait_until

NOWHERE = ClientOptions((("127.0.0.1", 1),), default_api_timeout_ms=300, retry_backoff_ms=50)


def versions(fetch: int, join: int | None = 5) -> BrokerVersions:
    ranges = {FetchRequest.API_KEY: (0, fetch)}
    if join is not None:
        ranges[JoinGroupRequest.API_KEY] = (0, join)
    return BrokerVersions("broker:9092", ranges)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["doctor", *arguments])


def test_without_a_cluster_it_looks_at_this_machine_alone() -> None:
    result = run()
    checks = [line.split()[0] for line in result.stdout.splitlines()[1:]]
    assert checks == ["streamgroup", "system", "python", "java", "pyspark", "packages", "records", "codecs"]
    assert (result.exit_code, result.stderr) == (0, "")


def test_a_support_request_needs_these_versions() -> None:
    found = {row.subject: row.text for row in module.of_this_machine()}
    assert found["streamgroup"].startswith(f"{__version__} (/")
    assert found["python"] == f"{platform.python_version()} ({sys.executable})"
    assert re.fullmatch(r"\d+[\d.]*\S* \(/\S+/java\)", found["java"])
    assert re.match(r"\d+\.\d+", found["pyspark"])


def test_a_cluster_that_cannot_be_reached_is_a_finding_with_the_reason_and_fails() -> None:
    found = [*module.of_cluster(NOWHERE), *module.of_groups(NOWHERE, ["g"])]
    assert [row.verdict for row in found if isinstance(row, Finding)] == [CheckVerdict.FAIL] * 2
    result = run("-b", "127.0.0.1:1", "--timeout", "300")
    assert result.exit_code == 1
    assert "127.0.0.1:1" in result.stdout.splitlines()[-1]


UNREADABLE = AuthorizationError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "cannot describe the configuration of broker 0")


@pytest.mark.parametrize(
    ("brokers", "leaders", "factor", "text"),
    [
        pytest.param(1, None, "1", "", id="the factor is that of a cluster of one broker"),
        pytest.param(
            2,
            None,
            "3",
            "the topic __consumer_offsets does not exist, and the brokers cannot create it: "
            "offsets.topic.replication.factor is 3, and the cluster has 2 brokers. So no group gets a coordinator. "
            "Start more brokers, or lower this setting of each broker and restart it",
            id="the factor is too large",
        ),
        pytest.param(4, None, "5", "offsets.topic.replication.factor is 5, and the cluster has 4 brokers", id="raised"),
        pytest.param(
            2,
            None,
            UNREADABLE,
            "does not exist yet. The brokers create it for the first group, with offsets.topic.replication.factor "
            "replicas (3 by default). With more replicas than brokers (2) they cannot",
            id="the factor cannot be read",
        ),
        pytest.param(1, None, None, "With more replicas than brokers (1) they cannot", id="the factor is not shown"),
        pytest.param(3, None, UNREADABLE, "", id="the default is small enough"),
        pytest.param(1, [0, 0], "3", "", id="the topic exists"),
        pytest.param(
            2,
            [0, 9, -1],
            "1",
            "2 of 3 partitions of __consumer_offsets have no leader, so the groups in them have",
            id="leaders are missing",
        ),
    ],
)
def test_an_offsets_topic_that_cannot_be_created_or_has_no_leaders_is_a_finding(
    brokers: int,
    leaders: list[int] | None,
    factor: str | AuthorizationError | None,
    text: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    infos = tuple(PartitionInfo(number, leader, 1) for number, leader in enumerate(leaders or ()))
    topics = {} if leaders is None else {"__consumer_offsets": TopicInfo("__consumer_offsets", infos)}
    snapshot = ClusterSnapshot({n: Broker(n, "h", 9) for n in range(brokers)}, topics)

    class Answering:
        deadline = staticmethod(lambda: 1.0)
        snapshot = staticmethod(lambda names, deadline: snapshot)

    def broker_config(cluster: Answering, node: int, name: str, deadline: float) -> str | None:
        assert (node in snapshot.brokers, name) == (True, "offsets.topic.replication.factor")
        if isinstance(factor, AuthorizationError):
            raise factor
        return factor

    monkeypatch.setattr(module, "broker_config", broker_config)
    found = module._of_offsets_topic(Answering(), snapshot)  # type: ignore[arg-type]
    assert text in found
    assert bool(found) == bool(text)


@pytest.mark.parametrize("arguments", [("--group", "g"), ("--conf", "spark.executor.memory=1g")])
def test_a_group_needs_a_cluster_and_settings_of_spark_need_a_master(arguments: tuple[str, ...]) -> None:
    assert run(*arguments).exit_code == 2


def test_a_master_is_given_the_settings_and_the_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    def of_executors(master: str, conf: tuple[str, ...], timeout_s: float) -> Iterator[Finding]:
        yield Finding("executors", CheckVerdict.FAIL, f"{master} {conf} {timeout_s}")

    monkeypatch.setattr(module, "of_executors", of_executors)
    result = run("--master", "spark://m:7077", "--conf", "a=b", "--conf", "c=d", "--executors-timeout", "7")
    assert result.exit_code == 1
    assert result.stdout.splitlines()[-1].endswith("spark://m:7077 ('a=b', 'c=d') 7")


def test_a_missing_pyspark_is_a_failed_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.delenv("SPARK_HOME", raising=False)
    finding = module._pyspark()
    assert (finding.subject, finding.verdict) == ("pyspark", CheckVerdict.FAIL)
    assert "SPARK_HOME" in finding.text


@pytest.mark.parametrize(
    ("fetch", "release"),
    [
        (2, "Kafka 0.10.0 or later (Fetch v2)"),
        (4, "Kafka 0.10.1 or later (Fetch v4)"),
        (17, "Kafka 3.9 or later (Fetch v17)"),
        (99, "Kafka 4.1 or later (Fetch v99)"),
    ],
)
def test_a_release_shows_in_the_versions_of_fetch(fetch: int, release: str) -> None:
    assert module.release_of(versions(fetch)) == release
    assert module.release_of(RELEASES[0].versions("broker:9092")) == "Kafka 0.9", "by the answers that it gave"


@pytest.mark.parametrize(
    ("version", "release"),
    [
        ("3.9.1", "Kafka 3.9 or later (Fetch v17)"),
        ("4.1.1", "Kafka 4.1 or later (Fetch v18)"),
        ("4.3.1", "Kafka 4.3 or later (DescribeLogDirs v5)"),
    ],
)
def test_a_release_shows_in_the_answer_of_a_real_broker(version: str, release: str) -> None:
    answer = decode(ApiVersionsResponse, exchanges(version, ApiVersionsRequest)[0][1][4:], 0)
    assert module.release_of(BrokerVersions.of(answer, "broker:9092")) == release


def test_the_release_after_that_of_the_newest_fetch_shows_in_another_api() -> None:
    fetch = {FetchRequest.API_KEY: (4, 18), ListOffsetsRequest.API_KEY: (1, 11)}
    assert module.release_of(BrokerVersions("b", fetch)) == "Kafka 4.2 or later (ListOffsets v11)"


@pytest.mark.parametrize(
    ("oldest", "release"), [(4, "Kafka 4.0 or later (Fetch v4 to v17)"), (3, "Kafka 3.9 or later")]
)
def test_kafka_4_0_is_recognised_by_the_versions_of_fetch_that_it_dropped(oldest: int, release: str) -> None:
    assert module.release_of(BrokerVersions("b", {FetchRequest.API_KEY: (oldest, 17)})).startswith(release)


def test_a_broker_without_the_group_protocol_needs_zookeeper() -> None:
    _, release082, *_ = RELEASES
    old = release082.versions("broker:9092")
    verdict, text = module._of_versions("broker:9092", old, NOWHERE)
    assert verdict is CheckVerdict.WARN
    assert "zookeeper.connect" in text
    with_registry = ClientOptions((), zookeeper=ZooKeeperOptions((("zk1", 2181),)))
    assert module._of_versions("broker:9092", old, with_registry) == (
        CheckVerdict.OK,
        "broker:9092 runs Kafka 0.8.2: ZooKeeper stores its groups",
    )


def test_a_broker_with_the_consumer_protocol_is_named_so() -> None:
    found = dataclasses.replace(versions(18), features={"group.version": 1})
    _, text = module._of_versions("broker:9092", found, NOWHERE)
    assert text.endswith(": it coordinates groups, also of the consumer protocol (KIP-848)")


def test_partitions_without_a_leader_are_warned_of() -> None:
    topic = TopicInfo("orders", (PartitionInfo(0, 1), PartitionInfo(1, -1)))
    snapshot = ClusterSnapshot({1: Broker(1, "one", 9092)}, {"orders": topic})
    verdict, text = module._of_snapshot(snapshot)
    assert verdict is CheckVerdict.WARN
    assert text.startswith("1 broker, 1 topic, 2 partitions, 1 of them without a leader")


def test_verbose_shows_the_versions_of_each_api(monkeypatch: pytest.MonkeyPatch) -> None:
    def of_cluster(options: ClientOptions) -> Iterator[Finding | ApiVersions]:
        yield Finding("broker 1", CheckVerdict.OK, "one:9092 runs Kafka 0.10.0")
        yield module._api_versions("broker 1", FetchRequest, versions(2))
        yield module._api_versions("broker 1", JoinGroupRequest, versions(2, join=None))

    monkeypatch.setattr(module, "of_cluster", of_cluster)
    lines = [" ".join(line.split()) for line in run("-b", "one:9092", "--verbose").stdout.splitlines()]
    here = "{}-{}".format(*FetchRequest.VERSIONS)
    assert lines[-3:] == [
        "BROKER API BROKER-VERSIONS CLIENT-VERSIONS USED",
        f"broker 1 Fetch 0-2 {here} 2",
        "broker 1 JoinGroup - {}-{} -".format(*JoinGroupRequest.VERSIONS),
    ]
    told = json.loads(run("-b", "one:9092", "--json").stdout)
    assert told["apis"][1]["used"] is None
    assert told["findings"][-1] == {"check": "broker 1", "verdict": "ok", "found": "one:9092 runs Kafka 0.10.0"}


def test_a_problem_of_this_machine_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> str:
        raise ConfigError("no Java: set JAVA_HOME")

    monkeypatch.setattr(module, "java_executable", none)
    monkeypatch.setattr(module.kernel, "name", lambda: "python")
    found = {row.subject: row for row in module.of_this_machine()}
    assert (found["java"].verdict, found["java"].text) == (CheckVerdict.FAIL, "no Java: set JAVA_HOME")
    assert found["records kernel"].verdict is CheckVerdict.WARN


def connections(monkeypatch: pytest.MonkeyPatch, there: BrokerVersions | None) -> list[str]:
    """Let each broker support these versions, or not answer. Return the hosts that were connected to, as they come."""
    asked: list[str] = []

    class Broker:
        versions = there

        def __init__(self, host: str, *_: object, **__: object) -> None:
            asked.append(host)

        def connect(self, deadline: float) -> None:
            if there is None:
                raise TransportError("cannot connect")

        def close(self) -> None:
            pass

    monkeypatch.setattr(module, "Connection", Broker)
    return asked


def test_a_broker_that_is_registered_and_silent_is_a_finding_and_the_others_are_looked_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = connections(monkeypatch, None)
    monkeypatch.setattr(module, "open_cluster", lambda _: orders_cluster(Dialect.KAFKA07))
    found = [row.verdict for row in module.of_cluster(NOWHERE) if isinstance(row, Finding)]
    assert (asked, found) == (["one", "two"], [CheckVerdict.WARN, CheckVerdict.FAIL, CheckVerdict.FAIL])


@pytest.mark.parametrize(
    ("versions_there", "verdict", "text"),
    [
        (
            RELEASES[1].versions("one:9092"),
            CheckVerdict.WARN,
            "no topics. The brokers learn their addresses with the first",
        ),
        (versions(17), CheckVerdict.FAIL, "no broker is known"),
    ],
    ids=["0.8.2", "3.9"],
)
def test_brokers_of_08_know_no_addresses_before_the_first_topic_and_others_always_do(
    monkeypatch: pytest.MonkeyPatch, versions_there: BrokerVersions, verdict: CheckVerdict, text: str
) -> None:
    def snapshot(*_: object, **__: object) -> ClusterSnapshot:
        raise NoBrokersYetError("no broker is known")

    monkeypatch.setattr(KafkaCluster, "snapshot", snapshot)
    connections(monkeypatch, versions_there)
    cluster, broker = (row for row in module.of_cluster(NOWHERE) if isinstance(row, Finding))
    assert (cluster.subject, cluster.verdict) == ("cluster", verdict)
    assert cluster.text.startswith(text)
    assert broker.subject == "broker 127.0.0.1:1"


def test_a_group_that_the_user_may_not_describe_is_a_finding_and_the_others_are_looked_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Store:
        notes: tuple[str, ...] = ()

        def describe(self, names: Collection[str], deadline: float) -> dict[str, GroupDescription]:
            if "secret" in names:
                raise refusal(30, "cannot describe group 'secret'", Operation.DESCRIBE, "secret")
            return {name: GroupDescription(name, GroupState.DEAD) for name in names}

    monkeypatch.setattr(module, "opened_store", lambda _: nullcontext(Store()))
    first, second = module.of_groups(NOWHERE, ["secret", "gone", "gone"])
    assert (first.subject, first.verdict) == ("group secret", CheckVerdict.FAIL)
    assert "--operation Describe --group secret`" in first.text
    assert (second.subject, second.verdict) == ("group gone", CheckVerdict.WARN)


def test_groups_of_kip_848_show_their_epoch_and_share_groups_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    there = (TopicPartition("t", 0), TopicPartition("t", 1))
    members = (
        MemberDescription("a", assigned=there, epoch=6, target=there[:1]),
        MemberDescription("b", epoch=7, target=there[1:]),
    )
    groups = {
        "moving": GroupDescription("moving", GroupState.RECONCILING, "consumer", "uniform", members, epoch=7),
        "shares": GroupDescription("shares", "Stable", "share"),
    }

    class Store:
        notes: tuple[str, ...] = ()

        def describe(self, names: Collection[str], deadline: float) -> dict[str, GroupDescription]:
            return groups

        def committed(self, name: str, deadline: float) -> dict[TopicPartition, CommittedOffset]:
            return {there[0]: CommittedOffset(3)}

        def log_ends(self, partitions: object, deadline: float) -> dict[TopicPartition, int]:
            return {there[0]: 5}

        def coordinator(self, name: str, deadline: float) -> str:
            return "kafka:9092 (1)"

    monkeypatch.setattr(module, "opened_store", lambda _: nullcontext(Store()))
    moving, shares = module.of_groups(NOWHERE, groups)
    assert moving.text == (
        "Reconciling, 2 members, consumer protocol in epoch 7, moving 1 partition, commits of 1 partition, lag 2, "
        "stored at kafka:9092 (1)"
    )
    assert (shares.verdict, shares.text) == (
        CheckVerdict.WARN,
        "Stable, a share group: no query of streamgroup can join it",
    )


# -- executors ---------------------------------------------------------------------------------------------------------

HEALTHY = {
    "host": "worker-1",
    "python": "/opt/python",
    "python_version": "3.11.7",
    "parent": "17",
    "streamgroup": "0.1.0",
    "pyarrow": "20.0.0",
    "google_crc32c": "unknown",
}


def report(*found: dict[str, str], known: int | None = None, problem: str | None = None) -> dict[str, Any]:
    return {"known": len(found) if known is None else known, "found": list(found), "problem": problem}


def test_executors_with_the_same_versions_are_one_finding_and_others_are_shown_apart() -> None:
    (finding,) = findings_of(report(HEALTHY, HEALTHY | {"host": "worker-2"}, HEALTHY | {"parent": "18"}), 60)
    assert finding.verdict is CheckVerdict.OK
    assert finding.text == (
        "3 executors on worker-1, worker-2: Python 3.11.7 (/opt/python), streamgroup 0.1.0, pyarrow 20.0.0, "
        "google_crc32c"
    )
    found = list(findings_of(report(HEALTHY, HEALTHY | {"host": "worker-2", "pyarrow": "19.0.0"}), 60))
    assert [row.text.split(":")[0] for row in found] == ["1 executor on worker-2", "1 executor on worker-1"]


def test_a_missing_package_or_a_session_that_does_not_start_fails_with_its_problem() -> None:
    problem = "cannot run the source on the executors: it lacks the package streamgroup. Install it"
    first, second = findings_of(report(HEALTHY, problem=problem), 60)
    assert first.verdict is CheckVerdict.OK
    assert (second.verdict, second.text) == (CheckVerdict.FAIL, problem)
    (finding,) = findings_of({"problem": "no executor has run a task"}, 60)
    assert (finding.verdict, finding.text) == (CheckVerdict.FAIL, "no executor has run a task")


@pytest.mark.parametrize(("known", "idle"), [(2, "1 of 2"), (3, "2 of 3")])
def test_an_executor_that_runs_no_task_is_warned_of(known: int, idle: str) -> None:
    _, finding = findings_of(report(HEALTHY, known=known), 60)
    assert finding.verdict is CheckVerdict.WARN
    assert finding.text.startswith(f"{idle} executors ran no task within 60 s. ")


def submit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, program: str) -> None:
    """Let a program stand in for spark-submit."""
    script = tmp_path / "spark-submit"
    script.write_text(f"#!{sys.executable}\n{program}")
    script.chmod(0o755)
    monkeypatch.setattr(module, "spark_submit", lambda: str(script))


def test_spark_submit_gets_the_master_the_settings_and_this_python(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    submit(
        monkeypatch,
        tmp_path,
        "import json, os, sys\n"
        "*given, program, report, timeout = sys.argv[1:]\n"
        "told = ' '.join([*given, open(program).read().split()[1], timeout, os.environ['PYSPARK_DRIVER_PYTHON']])\n"
        "json.dump({'problem': told}, open(report, 'w'))\n",
    )
    (finding,) = of_executors("spark://m:7077", ["a=b", "c=d"], 60)
    assert finding.text == (
        f"--master spark://m:7077 --conf a=b --conf c=d streamgroup.jobs.executors 60 {sys.executable}"
    )


def test_spark_that_ends_without_a_report_is_a_finding_with_the_last_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    lines = "INFO start\\norg.apache.spark.SparkException: Could not parse Master URL: 'x'.\\nINFO shutdown"
    submit(monkeypatch, tmp_path, f'import sys\nprint("{lines}")\nsys.exit(1)\n')
    (finding,) = of_executors("x", [], 60)
    assert finding.verdict is CheckVerdict.FAIL
    assert finding.text == (
        "cannot check the executors of x: spark-submit failed: org.apache.spark.SparkException: Could not parse Master "
        "URL: 'x'. Check the master's address and the settings"
    )


def test_spark_that_does_not_end_is_killed_with_its_processes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    started = tmp_path / "pid"

    class Started(subprocess.Popen[bytes]):
        def wait(self, timeout: float | None = None) -> int:
            """Time out as soon as the process has a child."""
            if timeout is None:
                return super().wait()
            wait_until(started.exists, "the child of spark-submit")
            raise subprocess.TimeoutExpired(self.args, timeout)

    monkeypatch.setattr(subprocess, "Popen", Started)
    submit(
        monkeypatch,
        tmp_path,
        "import os, subprocess, time\n"
        "child = subprocess.Popen(['sleep', '600'])\n"
        f"open({f'{started}.new'!r}, 'w').write(str(child.pid))\n"
        f"os.rename({f'{started}.new'!r}, {str(started)!r})\n"
        "time.sleep(600)\n",
    )
    (finding,) = of_executors("spark://m:7077", [], 60)
    assert (finding.verdict, "it has not ended within 90 s" in finding.text) == (CheckVerdict.FAIL, True)
    pid = int(started.read_text())
    deadline = soon()
    while _runs(pid):
        assert time.monotonic() < deadline, "a process of spark-submit outlives the check"
        time.sleep(0.01)


def _runs(pid: int) -> bool:
    """Return whether a process runs: one that was killed may wait for init to collect it."""
    state = subprocess.run(["ps", "-o", "state=", "-p", str(pid)], capture_output=True, text=True, check=False).stdout
    return state.strip() not in ("", "Z")


def test_a_machine_without_pyspark_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> str:
        raise ConfigError("cannot run Spark: PySpark is not installed. Install it: pip install 'streamgroup[spark]'")

    monkeypatch.setattr(module, "spark_submit", missing)
    (finding,) = of_executors("spark://m:7077", [], 60)
    assert (finding.verdict, finding.text.endswith("pip install 'streamgroup[spark]'")) == (CheckVerdict.FAIL, True)


@pytest.mark.parametrize("version", ["4.2.0", "4.2.1", "4.3.0", "4.3.0.dev1"])
def test_a_tried_minor_version_is_ok(version: str) -> None:
    finding = of_pyspark(version)
    assert (finding.verdict, finding.text) == (CheckVerdict.OK, version)


@pytest.mark.parametrize("version", ["4.1.1", "4.4.0", "4.20.0", "5.2.0"])
def test_another_version_is_warned_of_with_those_that_were_tried(version: str) -> None:
    finding = of_pyspark(version)
    assert finding.verdict is CheckVerdict.WARN
    assert finding.text.startswith(f"{version}: streamgroup is tested with PySpark 4.2 and 4.3. ")
