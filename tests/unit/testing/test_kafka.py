"""A KafkaServer without starting one; tests/live/test_servers.py starts them."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from streamgroup.errors import ConfigError
from streamgroup.testing import KafkaServer, ZooKeeperServer, create_topic, kafka, zookeeper
from streamgroup.testing.java import archive_flags, archive_path
from streamgroup.testing.kafka import archive_classes, spread
from streamgroup.testing.metadata_mode import check_data_dir
from streamgroup.testing.node import NodePlan
from streamgroup.testing.processes import ServerStartError
from streamgroup.testing.releases import NEWEST, RELEASES, Listeners, Quorum, release_of
from streamgroup.testing.zookeeper import configuration
from streamgroup.testing.zookeeper_mode import RESERVED, ZooKeeperMode, defaults, places


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"zookeeper": "127.0.0.1:2181"}, r"zookeeper=127\.0\.0\.1:2181: Kafka 4\.3\.1 runs in KRaft mode"),
        ({"zookeeper_port": 2181}, "zookeeper_port=2181: Kafka 4"),
        ({"version": "0.8.2.2", "zookeeper": "zk1:2181", "zookeeper_port": 2181}, "zk1:2181 with zookeeper_port=2181"),
        ({"brokers": 0}, "at least one"),
        ({"brokers": 2, "racks": ("a",)}, "expected one for each of 2 brokers"),
        ({"proxied": True, "detached": True}, "proxied=True with detached=True"),
    ],
)
def test_arguments_that_contradict_each_other_are_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        KafkaServer(**given)


@pytest.mark.parametrize(
    "name", ["bootstrap_servers", "direct_servers", "controller", "data_dir", "zookeeper", "zookeeper_connect"]
)
def test_a_server_that_was_not_started_says_so(name: str) -> None:
    with pytest.raises(ConfigError, match="is not started"):
        getattr(KafkaServer(), name)


def test_a_zookeeper_of_an_unknown_version_is_refused_and_one_that_was_not_started_says_so_and_can_be_stopped() -> None:
    with pytest.raises(ConfigError, match=r"unsupported ZooKeeper 3\.4\.6: available are 3\.3\.6"):
        ZooKeeperServer(version="3.4.6")
    server = ZooKeeperServer()
    with pytest.raises(ConfigError, match="is not started"):
        server.kill()
    server.stop()
    assert not server.alive


def test_a_data_directory_of_another_size_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka, "kafka_classpath", lambda _: ())
    monkeypatch.setattr("streamgroup.testing.kafka.bootstrap_checkpoint", lambda *_: tmp_path / "none")
    (tmp_path / "streamgroup.json").write_text(json.dumps({"cluster_id": "x", "brokers": 3}))
    with pytest.raises(ConfigError, match="its cluster has 3"):
        KafkaServer(data_dir=tmp_path).start()


def test_zookeeper_listens_on_the_loopback_without_its_admin_server() -> None:
    values = configuration(Path("/data"), 2181, 200)
    assert values["clientPortAddress"] == "127.0.0.1"
    assert values["admin.enableServer"] == "false"
    assert values["tickTime"] == "200"


DATA = Path("/data")


def test_one_broker_is_its_own_controller() -> None:
    (node,) = kafka.plan_nodes([9092], 9093)
    values = kafka.properties(node, [node], DATA, {})
    assert values["process.roles"] == "broker,controller"
    assert values["controller.quorum.voters"] == "0@127.0.0.1:9093"
    assert values["listeners"] == "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093"
    assert values["advertised.listeners"] == "PLAINTEXT://127.0.0.1:9092"
    assert values["offsets.topic.replication.factor"] == "1"


def test_several_brokers_have_their_controller_apart_so_that_each_of_them_may_die() -> None:
    nodes = kafka.plan_nodes([1, 2, 3, 4], 9)
    written = [kafka.properties(node, nodes, DATA, {}) for node in nodes]
    assert [values["process.roles"] for values in written] == ["controller", *["broker"] * 4]
    assert [values["node.id"] for values in written] == ["1000", "0", "1", "2", "3"]
    assert {values["controller.quorum.voters"] for values in written} == {"1000@127.0.0.1:9"}
    assert {values["transaction.state.log.replication.factor"] for values in written} == {"3"}
    assert "advertised.listeners" not in written[0]
    assert [node.name for node in nodes[:2]] == ["controller", "broker-0"]


def test_brokers_behind_proxies_advertise_those_and_talk_among_themselves_past_them() -> None:
    nodes = kafka.plan_nodes([1, 2], 9, advertised=[11, 12], internal=[21, 22])
    values = kafka.properties(nodes[2], nodes, DATA, {})
    assert values["listeners"] == "PLAINTEXT://127.0.0.1:2,INTERNAL://127.0.0.1:22"
    assert values["advertised.listeners"] == "PLAINTEXT://127.0.0.1:12,INTERNAL://127.0.0.1:22"
    assert values["inter.broker.listener.name"] == "INTERNAL"
    (single,) = kafka.plan_nodes([1], 9, advertised=[11], internal=[21])
    assert kafka.properties(single, [single], DATA, {})["listeners"].endswith(",CONTROLLER://127.0.0.1:9")


def test_config_overrides_the_defaults() -> None:
    """Brokers keep records with old timestamps by default: a test that wrote timestamps of 2023 lost its records."""
    assert kafka.defaults(1)["log.retention.hours"] == "-1"
    assert kafka.defaults(1)["group.consumer.assignment.interval.ms"] == "0", "no test waits for an assignment"
    (node,) = kafka.plan_nodes([9092], 9093)
    values = kafka.properties(node, [node], DATA, {"num.partitions": "7", "log.retention.ms": "1"})
    assert (values["num.partitions"], values["log.retention.ms"]) == ("7", "1")


@pytest.mark.parametrize(
    ("version", "key"),
    [*((NEWEST, key) for key in sorted(kafka.RESERVED)), *(("0.8.2.2", key) for key in sorted(RESERVED))],
)
def test_reserved_properties_are_refused(version: str, key: str) -> None:
    with pytest.raises(ConfigError, match=key):
        KafkaServer(version, config={key: "x"})


def test_ids_are_those_that_kafka_accepts() -> None:
    ids = {kafka.random_id() for _ in range(500)}
    assert len(ids) == 500
    assert all(len(each) == 22 and not each.startswith("-") for each in ids)


def test_a_node_is_formatted_once(tmp_path: Path) -> None:
    (node,) = kafka.plan_nodes([9092], 9093)
    bootstrap = tmp_path / "made-by-kafka"
    bootstrap.write_bytes(b"features")
    kafka.format_node(node, tmp_path / "data", "cluster", bootstrap)
    meta = tmp_path / "data" / "meta.properties"
    first = meta.read_text()
    assert first.startswith("version=1\ncluster.id=cluster\nnode.id=0\ndirectory.id=")
    assert (tmp_path / "data" / "bootstrap.checkpoint").read_bytes() == b"features"
    kafka.format_node(node, tmp_path / "data", "another", bootstrap)
    assert meta.read_text() == first


def test_leaders_and_replicas_go_round() -> None:
    assert spread([0, 1, 2], 4, 2) == [[0, 1], [1, 2], [2, 0], [0, 1]]
    assert spread([5], 2, 1) == [[5], [5]]


@pytest.mark.parametrize("version", ["0.8.2.2", NEWEST])
def test_topics_need_a_server_that_was_started(version: str) -> None:
    with pytest.raises(ConfigError, match="is not started"):
        create_topic(KafkaServer(version), "t")


KAFKA_JARS = (Path("/jars/kafka.jar"),)
ZOOKEEPER_JARS = (Path("/jars/zookeeper.jar"),)
LOGGING_JARS = (Path("/jars/log4j.jar"),)
ARCHIVES_AT_EXIT = "-XX:ArchiveClassesAtExit="


class Java:
    """The JVMs of a test. One writes its archive as it exits, if it knows archives."""

    def __init__(self) -> None:
        self.flags: list[tuple[str, ...]] = []
        """The flags of each JVM that was started."""
        self.data: list[Path] = []
        self.knows_archives = True
        self.error: Exception | None = None

    def server(self, jvm_flags: Sequence[str], data_dir: Path) -> Server:
        return Server(self, tuple(jvm_flags), data_dir)


class Server:
    """A server of one JVM."""

    def __init__(self, java: Java, flags: tuple[str, ...], data_dir: Path) -> None:
        self._java = java
        self._flags = flags
        self._data_dir = data_dir

    def start(self) -> Server:
        assert self._data_dir.is_dir()
        self._java.flags.append(self._flags)
        self._java.data.append(self._data_dir)
        if self._java.error is not None:
            raise self._java.error
        return self

    def stop(self) -> None:
        (archive,) = (flag.removeprefix(ARCHIVES_AT_EXIT) for flag in self._flags if flag.startswith(ARCHIVES_AT_EXIT))
        if self._java.knows_archives:
            Path(archive).write_text("classes")
            Path(archive).chmod(0o600)


@pytest.fixture
def java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Java:
    """Return the JVMs of a test, whose servers have jars and a cache of their own."""
    made = Java()
    monkeypatch.setenv("STREAMGROUP_CACHE", str(tmp_path))
    monkeypatch.setattr(kafka, "kafka_classpath", lambda version: KAFKA_JARS)
    monkeypatch.setattr(kafka, "logging_jars", lambda: LOGGING_JARS)
    monkeypatch.setattr(zookeeper, "zookeeper_jars", lambda version: ZOOKEEPER_JARS)
    monkeypatch.setattr(kafka, "KafkaServer", lambda version, **given: made.server(**given))
    monkeypatch.setattr(zookeeper, "ZooKeeperServer", made.server)
    return made


def archives() -> list[Path]:
    """Return the places of the two archives."""
    return [
        archive_path(kafka.MAIN_CLASS, KAFKA_JARS),
        archive_path(zookeeper.MAIN_CLASS, (*LOGGING_JARS, *ZOOKEEPER_JARS)),
    ]


def test_each_server_is_started_once_with_its_usual_flags_and_leaves_its_archive(java: Java, tmp_path: Path) -> None:
    archive_classes()
    of_broker, of_zookeeper = java.flags
    assert of_broker[:-1] == kafka.JVM_FLAGS
    assert of_zookeeper[:-1] == zookeeper.JVM_FLAGS
    assert [path.read_text() for path in archives()] == ["classes", "classes"]
    archive_classes()
    assert len(java.flags) == 2, "the archives are there"
    assert [path.stat().st_mode & 0o777 for path in archives()] == [0o644, 0o644], "others may read and not write them"
    assert archive_flags(kafka.MAIN_CLASS, KAFKA_JARS)[0] == f"-XX:SharedArchiveFile={archives()[0]}"
    assert {path.suffix for path in (tmp_path / "classes").iterdir()} == {".jsa", ".lock"}
    assert [path for path in java.data if path.exists()] == []


def test_only_the_archive_that_is_missing_is_written(java: Java) -> None:
    archive_classes()
    archives()[1].unlink()
    archive_classes()
    assert [flags[:-1] for flags in java.flags] == [kafka.JVM_FLAGS, zookeeper.JVM_FLAGS, zookeeper.JVM_FLAGS]
    assert archives()[1].exists()


def test_a_java_that_knows_no_archives_leaves_none_and_is_no_error(java: Java) -> None:
    java.knows_archives = False
    archive_classes()
    assert [path.exists() for path in archives()] == [False, False]


def test_a_server_that_does_not_start_leaves_no_archive_and_the_next_call_tries_again(java: Java) -> None:
    java.error = ServerStartError("broker 0 ended with exit code 1 before it served")
    with pytest.raises(ServerStartError, match="before it served"):
        archive_classes()
    assert [path.exists() for path in archives()] == [False, False]
    java.error = None
    archive_classes()
    assert [path.exists() for path in archives()] == [True, True]


def test_each_release_has_an_archive_of_its_own_jars(java: Java, monkeypatch: pytest.MonkeyPatch) -> None:
    def classpath(version: str) -> tuple[Path, ...]:
        return (Path(f"/jars/kafka-{version}.jar"),)

    monkeypatch.setattr(kafka, "kafka_classpath", classpath)
    for version in ("3.9.1", NEWEST):
        archive_classes(version)
        assert archive_path(kafka.MAIN_CLASS, classpath(version)).exists()
    assert len(java.flags) == 3, "ZooKeeper is the same"


# -- the directory of a cluster ----------------------------------------------------------------------------------------


def test_the_settings_of_a_cluster_are_returned_at_its_next_start(tmp_path: Path) -> None:
    home = tmp_path / "new"
    assert check_data_dir(home, 3, "kraft", {"cluster_id": "first"}) == {"cluster_id": "first"}
    assert check_data_dir(home, 3, "kraft", {"cluster_id": "second"}) == {"cluster_id": "first"}


def test_a_directory_of_the_other_kind_is_refused(tmp_path: Path) -> None:
    check_data_dir(tmp_path, 1, "kraft", {"cluster_id": "x"})
    with pytest.raises(ConfigError, match=r"created with kraft. Start it with the version that made it"):
        check_data_dir(tmp_path, 1, "zookeeper", {})


def test_a_directory_from_before_there_were_kinds_is_taken(tmp_path: Path) -> None:
    (tmp_path / "streamgroup.json").write_text(json.dumps({"cluster_id": "x", "brokers": 1}))
    assert check_data_dir(tmp_path, 1, "kraft", {"cluster_id": "y"}) == {"cluster_id": "x"}


# -- the releases that a test can start: jars, listeners and log lines of each -----------------------------------------


OLD = ["0.7", "0.8.2.2", "0.9.0.1", "0.10.2.2", "1.1.1", "2.8.2"]
VERSIONS = [*OLD, "3.6.2", "3.9.1", "4.0.1", "4.1.1", "4.2.1", "4.3.1"]


def test_the_releases_are_in_the_order_of_their_numbers_and_the_default_is_the_newest() -> None:
    assert list(RELEASES) == VERSIONS
    numbers = [release.number for release in RELEASES.values()]
    assert numbers == sorted(numbers), "as text, 0.10 would come before 0.9"
    assert release_of("0.10.2.2").number == (0, 10, 2, 2)
    assert VERSIONS[-1] == NEWEST


@pytest.mark.parametrize("version", ["", "2.0.0", "4.3", "4.3.1 ", "latest"])
def test_another_version_is_refused_with_those_that_there_are(version: str) -> None:
    expected = f"unsupported Kafka {version}: available are {', '.join(VERSIONS)}"
    with pytest.raises(ConfigError, match=f"^{re.escape(expected)}$"):
        release_of(version)


@pytest.mark.parametrize(
    ("version", "broker", "tools", "extra"),
    [
        ("0.10.2.2", "org.apache.kafka:kafka_2.11:0.10.2.2", None, ["javax.xml.bind:jaxb-api:2.3.1"]),
        ("2.8.2", "org.apache.kafka:kafka_2.13:2.8.2", None, []),
        ("3.6.2", "org.apache.kafka:kafka_2.13:3.6.2", "org.apache.kafka:kafka-tools:3.6.2", []),
        ("4.3.1", "org.apache.kafka:kafka_2.13:4.3.1", "org.apache.kafka:kafka-tools:4.3.1", []),
    ],
)
def test_jars_are_named_as_maven_names_them(version: str, broker: str, tools: str | None, extra: list[str]) -> None:
    release = release_of(version)
    assert str(release.coordinate) == broker
    assert (None if release.tools is None else str(release.tools)) == tools
    assert [str(each) for each in release.extra] == extra


def test_only_kafka_0_7_is_emulated_and_has_neither_tools_nor_another_advertised_port() -> None:
    emulated = [release for release in RELEASES.values() if release.emulated]
    assert [(each.version, each.tools, each.listeners) for each in emulated] == [("0.7", None, Listeners.HOST_NAME)]


# -- how brokers that register in ZooKeeper are told their places ------------------------------------------------------


REGISTERED = [release.version for release in RELEASES.values() if release.quorum is Quorum.ZOOKEEPER]


def mode(version: str, brokers: int = 1) -> ZooKeeperMode:
    return ZooKeeperMode(
        release_of(version), brokers, zookeeper="127.0.0.1:2181/k", detached=False, start_timeout_s=1.0
    )


def test_old_brokers_have_one_listener_for_all_and_advertise_their_proxy() -> None:
    assert places(NodePlan(0, 9092, advertised_port=9), Listeners.HOST_AND_PORT) == {
        "host.name": "127.0.0.1",
        "port": "9092",
        "advertised.host.name": "127.0.0.1",
        "advertised.port": "9",
    }
    assert places(NodePlan(0, 9092, advertised_port=9), Listeners.ONE) == {
        "listeners": "PLAINTEXT://127.0.0.1:9092",
        "advertised.listeners": "PLAINTEXT://127.0.0.1:9",
    }


def test_later_brokers_meet_past_their_proxies() -> None:
    values = places(NodePlan(0, 9092, advertised_port=9, internal_port=5), Listeners.NAMED)
    assert values["listeners"] == "PLAINTEXT://127.0.0.1:9092,INTERNAL://127.0.0.1:5"
    assert values["advertised.listeners"] == "PLAINTEXT://127.0.0.1:9,INTERNAL://127.0.0.1:5"
    assert values["inter.broker.listener.name"] == "INTERNAL"


@pytest.mark.parametrize(("version", "apart"), [("0.8.2.2", 0), ("0.9.0.1", 0), ("0.10.2.2", 2), ("2.8.2", 2)])
def test_only_brokers_that_can_have_two_listeners_get_two_ports(version: str, apart: int) -> None:
    plans = mode(version, 2).plan(20_000, [1, 2])
    assert [(plan.node_id, plan.port, plan.advertised_port) for plan in plans] == [(0, 20_000, 1), (1, 20_001, 2)]
    assert sum(plan.internal_port is not None for plan in plans) == apart


@pytest.mark.parametrize(
    ("version", "names"),
    [("0.7", ("brokerid", "log.dir", "zk.connect")), ("0.8.2.2", ("broker.id", "log.dirs", "zookeeper.connect"))],
)
def test_config_overrides_the_defaults_and_not_the_place(version: str, names: tuple[str, ...]) -> None:
    node = NodePlan(3, 9092)
    values = mode(version).properties(node, [node], Path("/home"), {"num.partitions": "7", names[2]: "elsewhere"})
    assert values["num.partitions"] == "7"
    assert tuple(values[name] for name in names) == ("3", "/home/data", "127.0.0.1:2181/k")


def test_a_request_has_only_the_fields_of_its_version() -> None:
    known = {version: defaults(release_of(version), 3) for version in REGISTERED}
    with_groups = [version for version in REGISTERED if "group.min.session.timeout.ms" in known[version]]
    with_transactions = [version for version in REGISTERED if "transaction.state.log.min.isr" in known[version]]
    assert with_groups == ["0.9.0.1", "0.10.2.2", "1.1.1", "2.8.2"]
    assert with_transactions == ["1.1.1", "2.8.2"]
    assert known["1.1.1"]["transaction.state.log.replication.factor"] == "3"
    keeping = [version for version in REGISTERED if known[version].get("log.retention.hours") == "-1"]
    assert keeping == ["0.10.2.2", "1.1.1", "2.8.2"], "older ones do not look at timestamps, and 0.8 refuses the value"
    assert known["0.8.2.2"]["offsets.topic.replication.factor"] == "3"
    assert not known["0.7"].keys() & known["0.8.2.2"].keys()


def test_a_zookeeper_that_others_use_is_left_in_good_order() -> None:
    own = ZooKeeperMode(release_of("0.8.2.2"), 1, zookeeper=None, detached=False, start_timeout_s=1.0)
    assert (own.needs_clean_shutdown, mode("0.8.2.2").needs_clean_shutdown) == (False, True)
